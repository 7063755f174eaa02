#ifndef SPW_BENCH_GPU_PEER_H
#define SPW_BENCH_GPU_PEER_H
/*
 * An engine's process: this program anew, with device memory and a fence of its own, exported. It does
 * what single letters on its standard input say and answers each by a struct spw_error.
 *
 *   w  all bytes of its memory follow        r  the answer is followed by them
 *   s  a byte follows: fill the memory with it, late, and record the fence behind that; answered when
 *      all this is queued on the engine's stream
 *   q  wait until the stream has nothing left
 *
 *   crash     it ends at the end of its input, so with its starter
 */
#include <sys/types.h>

#include "bench/gpu/check.h"
#include "bench/gpu/exact.h"

/** What it tells first, behind an answer. */
struct check_export {
    uint8_t gpu[16];
    CUipcMemHandle memory;
    CUipcEventHandle fence;
};

struct check_peer {
    struct check *check;
    pid_t pid;
    int to, from;
    struct check_export exports;
};

/** @late_ns: what `s` keeps the stream busy before it fills. 0, or a negative errno with words. */
int check_peer_start(struct check *check, uint64_t bytes, uint64_t late_ns, struct check_peer *out);
/** It is gone when this returns. What was zeroed is fine. */
void check_peer_end(struct check_peer *peer);

struct spw_kv_record *check_peer_record(const struct check_peer *peer, const struct check_kv *kv);
/** Its memory, for check_exact_rounds(). */
struct check_memory check_peer_memory(struct check_peer *peer);
int check_peer_fill_late(struct check_peer *peer, uint8_t value);
int check_peer_wait(struct check_peer *peer);

#endif
