#!/usr/bin/env python3
"""Look one prompt up in a running pool, through libspillway by ctypes.

usage: lookup.py [--lib LIBRARY] [--pool NAME] [--shm-dir DIR] [--store]

--store first stores three chunks of the prompt from this client's KV blocks in host memory, so
that the lookup finds them.
"""
import argparse
import ctypes
import hashlib
import sys
import time
from ctypes import c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p

CHUNK_TOKENS, BLOCK_BYTES, CHUNKS = 16, 8192, 4
RESERVED, STORED = 1, 2


def struct(name, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


AttachOptions = struct("AttachOptions", size_bytes=c_uint32, numa_node=c_int32, pool=c_char_p,
                       shm_dir=c_char_p, label=c_char_p, timeout_ns=c_uint64, changes=c_uint32,
                       uid=c_int64)
Group = struct("Group", kind=c_uint32, block_tokens=c_uint32, window_tokens=c_uint64,
               chunk_bytes=c_uint32, nominal_bytes=c_uint64)
SpaceConfig = struct("SpaceConfig", size_bytes=c_uint32, blocks_per_chunk=c_uint32,
                     hash_unit_tokens=c_uint32, groups=c_uint32, group=ctypes.POINTER(Group),
                     ranks=c_uint32, rank_worker=ctypes.POINTER(c_uint32), fingerprint=c_char_p,
                     max_recompute_pending_tokens=c_int64, recompute_scope=c_uint32,
                     gpu_prefix_cache=c_uint32)
RequestConfig = struct("RequestConfig", size_bytes=c_uint32, flags=c_uint32,
                       prompt_tokens=c_uint64, expect_tokens=c_uint64)
Need = struct("Need", first=c_uint64, end=c_uint64)
Decision = struct("Decision", size_bytes=c_uint32, action=c_uint32, reason=c_uint32,
                  groups=c_uint32, step=c_uint64, hit_tokens=c_uint64, computed_tokens=c_uint64,
                  tail_boundary=c_uint64, recomputed_tokens=c_uint64, deciding_chunk=c_uint64,
                  deciding_group=c_uint32, repeated=c_uint32, need=Need * 16)
ChunkRef = struct("ChunkRef", group=c_uint32, reserved=c_uint32, index=c_uint64, boundary=c_uint64)
Ticket = struct("Ticket", id=c_uint64, incarnation=c_uint64, worker=c_uint32, kind=c_uint32,
                chunks=c_uint32, reserved=c_uint32)
Completion = struct("Completion", kind=c_uint32, status=c_int32, cookie=c_uint64, ticket=Ticket,
                    mask=c_uint64)


class Client:
    def __init__(self, library, pool, shm_dir):
        self.lib, self.handle, self.space = library, c_void_p(), c_void_p()
        self.lib.spw_version.restype = c_char_p
        options = AttachOptions(ctypes.sizeof(AttachOptions), -1, pool.encode(),
                                shm_dir.encode() if shm_dir else None, b"lookup.py", 0, 0, -1)
        self.with_words("spw_attach", ctypes.byref(options), ctypes.byref(self.handle))
        group = Group(0, CHUNK_TOKENS, 0, BLOCK_BYTES, 0)
        config = SpaceConfig(ctypes.sizeof(SpaceConfig), 1, CHUNK_TOKENS, 1, ctypes.pointer(group),
                             1, (c_uint32 * 1)(0), b"lookup.py, one layer", 0, 0, 0)
        self.with_words("spw_space_open", self.handle, ctypes.byref(config),
                        ctypes.byref(self.space))

    def with_words(self, name, *args):
        text = ctypes.create_string_buffer(256)
        if getattr(self.lib, name)(*args, text, c_uint64(256)) < 0:
            sys.exit(f"{name}: {text.value.decode()}")

    def call(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result < 0:
            sys.exit(f"{name}: errno {-result}")
        return result

    def request(self, text):
        """A request whose chunk keys are chained hashes of its text, one a chunk."""
        keys, digest = b"", b""
        for chunk in range(CHUNKS):
            digest = hashlib.sha256(digest + text.encode() + bytes([chunk])).digest()
            keys += digest
        config = RequestConfig(ctypes.sizeof(RequestConfig), 0, CHUNKS * CHUNK_TOKENS, 0)
        handle = c_void_p()
        self.call("spw_request_open", self.space, ctypes.byref(config), ctypes.byref(handle))
        self.call("spw_request_extend", handle, c_uint32(0), keys, c_uint32(32), c_uint64(CHUNKS))
        return handle

    def completion(self, kind):
        done = Completion()
        while self.call("spw_completions", self.handle, ctypes.byref(done), c_uint32(1)) == 0:
            time.sleep(0.001)
        if done.kind != kind or done.status != 0:
            sys.exit(f"completion {done.kind}: errno {-done.status}")
        return done

    def store(self, request, count):
        refs = (ChunkRef * count)(*(ChunkRef(0, 0, i, 0) for i in range(count)))
        self.call("spw_store_reserve", request, c_uint32(0), refs, c_uint32(count), c_uint64(1))
        ticket = self.completion(RESERVED).ticket
        if ticket.id == 0:
            return  # all are there already
        blocks = (c_uint32 * count)(*range(count))
        self.call("spw_run", self.handle, ctypes.byref(ticket), blocks, c_uint32(count),
                  c_uint64(2))
        self.completion(STORED)

    def look_up(self, request):
        decision = Decision(size_bytes=ctypes.sizeof(Decision))
        self.call("spw_step_begin", self.handle)
        self.call("spw_lookup", request, c_uint64(0), 0, ctypes.byref(decision))
        self.call("spw_step_end", self.handle)
        return decision


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", default="libspillway.so.0")
    parser.add_argument("--pool", default="spillway")
    parser.add_argument("--shm-dir")
    parser.add_argument("--store", action="store_true", help="store three chunks first")
    args = parser.parse_args()
    try:
        library = ctypes.CDLL(args.lib)
    except OSError as error:
        sys.exit(f"{error}; where is it? (--lib)")
    client = Client(library, args.pool, args.shm_dir)
    request = client.request("a prompt")
    if args.store:
        client.store(request, 3)
    decision = client.look_up(request)
    what = ("load", "miss", "defer")[decision.action]
    print(f"{what}: {decision.hit_tokens} of {CHUNKS * CHUNK_TOKENS} tokens")
    client.lib.spw_detach(client.handle)


if __name__ == "__main__":
    main()
