#ifndef SPW_SHM_LAYOUT_H
#define SPW_SHM_LAYOUT_H
/*
 * What lies in the pool's shared objects, byte by byte. Chunks are unknown here: the state table
 * and the records inside rings are laid out in tier/layout.h.
 *
 * Objects of a pool NAME of user UID (directory --shm-dir, prefix "spillway-UID-NAME"):
 *
 *   .lock      never mapped; who is alive is told by OFD write locks on its bytes:
 *              byte 0 the daemon, 1 + k worker k, 40 whoever pins memory now, 64 + c client c
 *   .ctl       written by the daemon alone, and once that is dead by whoever holds its byte: closed
 *   .feed.K    written by worker K alone; where a new daemon goes on with it, before there is one:
 *              the pool's id, acknowledgements and fences
 *   .client.C  one half written by client C, the other half, lane by lane, by each worker; a header
 *              that client C has damaged by the daemon
 *   .kv.C      client C's KV blocks in host memory: what its GPU memory is where there is a GPU;
 *              written by client C, and by workers that load
 *   .data.K    payload of shard K, written by worker K alone, its header like a feed's; clients
 *              never map it
 *
 * All are created by the daemon, all bytes reserved, and published by storing `version` last.
 */
#include "shm/atomic.h"
#include "shm/base.h"

#define SPW_LAYOUT_VERSION 6u
#define SPW_REGION_MAGIC   0x31594157304c5053ull
#define SPW_ENDIAN_MARK    0x01020304u
#define SPW_PAYLOAD_OFF    4096u /* of .kv and .data: where their payload begins */

#define SPW_LOCK_DAEMON    0u
#define SPW_LOCK_WORKER(k) (1u + (k))
#define SPW_LOCK_PINNING   40u
#define SPW_LOCK_CLIENT(c) (64u + (c))

enum spw_region_kind {
    SPW_REGION_CTL = 1,
    SPW_REGION_FEED = 2,
    SPW_REGION_CLIENT = 3,
    SPW_REGION_KV = 4,
    SPW_REGION_DATA = 5,
};

/* First bytes of every object.
 *      0 +-----------------------------------------------+ creator; version last, with release
 *        | version  magic  layout_hash  size  pool_id[2] |
 *     48 | kind  index  page_bytes  endian               |
 *    128 +-----------------------------------------------+ */
struct spw_region_header {
    alignas(64) spw_atomic64 version; /* 0 until the object is whole                */
    uint64_t magic;
    uint64_t layout_hash; /* of all sizes and offsets                   */
    uint64_t size_bytes;
    uint64_t pool_id[2]; /* random: [0] new with every start, [1] of the creation
                            that filled the shards: a warm start keeps it */
    uint32_t kind;       /* enum spw_region_kind                       */
    uint32_t index;      /* k or c                                     */
    uint32_t page_bytes;
    uint32_t endian;
    uint8_t reserved[64];
};
SPW_LAYOUT_SIZE(struct spw_region_header, 128);
SPW_LAYOUT_FIELD(struct spw_region_header, pool_id, 32);
SPW_LAYOUT_FIELD(struct spw_region_header, kind, 48);

#define SPW_CELL_SHIFT_MAX  12u
#define SPW_COLD_CHUNKS_MAX (1u << 28)

/* Sizes of a pool: computed once by the daemon, stored in ctl, checked by whoever attaches. */
struct spw_geometry {
    uint32_t workers;          /* 1..32                                            */
    uint32_t clients;          /* 1..127, the last one is kept for the tools       */
    uint32_t capacity_chunks;  /* resident chunks of slot_bytes a shard holds; of
                                  smaller ones as many as have their bytes         */
    uint32_t slots;            /* (capacity + reserve) << cell_shift, a shard      */
    uint32_t slot_bytes;       /* of the largest chunk, a multiple of 64           */
    uint32_t update_records;   /* of an update ring, a power of two                */
    uint32_t gate_records;     /* the gate moves by this many, a power of two      */
    uint32_t command_slots;    /* of a command lane, a power of two                */
    uint32_t completion_slots; /* of a completion lane, a power of two             */
    uint32_t index_buckets;    /* of a state table's index                         */
    uint32_t kv_blocks;        /* of a client's host KV, 0 = none                  */
    uint32_t kv_block_bytes;   /* a multiple of 64                                 */
    uint32_t cold_chunks;      /* entries behind the slots', for chunks of the tier
                                  below, a shard; 0 = there is no such tier        */
    uint32_t cell_shift;       /* 1 << it slots lie side by side in slot_bytes of
                                  payload (spw_slot_off()); 0 = each its own        */
    uint8_t reserved[8];
};
SPW_LAYOUT_SIZE(struct spw_geometry, 64);

/* ---- ctl ------------------------------------------------------------------------------------ */

enum spw_pool_phase { SPW_POOL_STARTING = 0, SPW_POOL_SERVING = 1, SPW_POOL_CLOSED = 2 };
enum spw_worker_phase { SPW_WORKER_DOWN = 0, SPW_WORKER_UP = 1, SPW_WORKER_REAPED = 2 };

/* One line a worker; the daemon writes it, since a dead worker can't say that it is dead. */
struct spw_worker_state {
    alignas(64) spw_atomic32 phase; /* enum spw_worker_phase                     */
    uint32_t reserved0;
    spw_atomic64 incarnation; /* repeats feed.k's; where they differ: down */
    spw_atomic64 pid;         /* for display, and with the next to end one */
    spw_atomic64 start_ticks; /* of that process, as /proc tells it: no other has pid and this */
    spw_atomic64 restarts;
    spw_atomic64 out_of_service; /* 1: its GPU failed too often, it is not started any more */
    uint8_t reserved1[16];
};
SPW_LAYOUT_SIZE(struct spw_worker_state, 64);

/* Shares of a tier's bytes, in 1/1000: what others can't take, and what is kept while others want
 * room, 0 = all. */
#define SPW_SHARES_ALL 1000u
#define SPW_SHARES(guaranteed_permille, largest_permille)                                          \
    ((uint64_t)(largest_permille) << 32 | (uint32_t)(guaranteed_permille))
#define SPW_SHARES_GUARANTEED(shares) ((uint32_t)(shares))
#define SPW_SHARES_LARGEST(shares)    ((uint32_t)((shares) >> 32))

/* Payload memory is pinned in all workers or in none: one that can't makes the daemon decide. */
enum spw_pinning { SPW_PINNING_ON = 0, SPW_PINNING_OFF = 1 };

/* The daemon's answer to a client's mailbox request. */
struct spw_reply {
    alignas(64) spw_atomic64 seq; /* the request's seq; stored last, with release */
    spw_atomic64 value;
    spw_atomic64 status;     /* 0 or a negative errno, sign extended         */
    spw_atomic64 generation; /* of the client that asked                     */
    char text[96];           /* words for a refusal                            */
};
SPW_LAYOUT_SIZE(struct spw_reply, 128);

/* What a client says of a space, in its mailbox and in ctl; plain bytes, compared whole. */
struct spw_group_record {
    uint32_t kind; /* enum spw_group_kind in sched/verdict.h */
    uint32_t block_tokens;
    uint64_t window_tokens;
    uint32_t chunk_bytes; /* payload of one part, at most slot_bytes */
    uint32_t reserved;
    uint64_t nominal_bytes; /* what pacing counts for one part        */
};
SPW_LAYOUT_SIZE(struct spw_group_record, 32);

struct spw_space_record {
    char fingerprint[256]; /* model, weights, dtype, layout, hash scheme, seed; NUL padded */
    uint32_t blocks_per_chunk;
    uint32_t hash_unit_tokens;
    uint32_t groups;
    uint32_t ranks;
    struct spw_group_record group[SPW_GROUP_COUNT_MAX];
};
SPW_LAYOUT_SIZE(struct spw_space_record, 784);

/* A space of the pool. The record never changes once `ready` is stored; masks only grow; shares are
 * what a client or the tool said last. */
struct spw_space_slot {
    alignas(64) spw_atomic64 ready; /* 1 when the record is whole; release        */
    uint64_t seal;                  /* hash of the record, for the next daemon: equal fingerprints
                                       must never mean other bytes than they did   */
    spw_atomic64 shares;            /* SPW_SHARES(): of each tier of each of its workers */
    uint8_t reserved[40];
    spw_atomic64 rank_workers[SPW_RANKS_MAX]; /* bit k: worker k keeps parts of this rank */
    struct spw_space_record record;
};
SPW_LAYOUT_SIZE(struct spw_space_slot, 1152);

#define SPW_VALUES_BYTES 16384u

struct spw_ctl {
    struct spw_region_header header;
    struct spw_geometry geometry;
    alignas(64) spw_atomic32 phase; /* enum spw_pool_phase                         */
    spw_atomic32 bell;              /* workers sleep on it: raised to stop them    */
    spw_atomic64 daemon_pid;        /* for display                                 */
    spw_atomic64 started_ns;        /* CLOCK_REALTIME, for display                 */
    spw_atomic64 updated_ns;        /* CLOCK_REALTIME of the daemon's last round, for display */
    spw_atomic64 rounds;            /* of the daemon's loop, for display           */
    spw_atomic64 pid_namespace;     /* inode of the daemon's: pids above mean something there */
    spw_atomic32 pinning;           /* enum spw_pinning: all workers' memory, or none's */
    uint8_t reserved[12];
    struct spw_worker_state worker[SPW_WORKERS_MAX];
    struct spw_reply reply[SPW_CLIENTS_MAX + 1];
    struct spw_space_slot space[SPW_SPACES_MAX];
    /* how often client.c and kv.c were made anew because somebody cut or removed them: a worker
       that has mapped another number maps them again */
    spw_atomic64 client_object[SPW_CLIENTS_MAX + 1];
    /* the daemon's effective values as a configuration file, for workers that it doesn't start itself;
       stored before the phase is SERVING, and not changed after */
    char values[SPW_VALUES_BYTES];
};
SPW_LAYOUT_FIELD(struct spw_ctl, geometry, 128);
SPW_LAYOUT_FIELD(struct spw_ctl, phase, 192);
SPW_LAYOUT_FIELD(struct spw_ctl, worker, 256);
SPW_LAYOUT_FIELD(struct spw_ctl, reply, 256 + 2048);
SPW_LAYOUT_FIELD(struct spw_ctl, space, 256 + 2048 + 16384);
SPW_LAYOUT_FIELD(struct spw_ctl, client_object, 256 + 2048 + 16384 + 73728);

/* ---- feed.k --------------------------------------------------------------------------------- */

#define SPW_COUNTERS_MAX 128u

/* A worker's store stream, in nominal bytes, on one line: with an entry's place in it, all that an
 * ETA needs (tier/eta.h). Fields are read one by one; an ETA made from two moments is off by what
 * moved in between. */
struct spw_stream {
    alignas(64) spw_atomic64 bytes_done;
    spw_atomic64 bytes_queued;     /* everything before a new store, done included           */
    spw_atomic64 bytes_awaited;    /* done, and queued ahead of what nobody awaits           */
    spw_atomic64 rate_bytes_per_s; /* smoothed over the copies that ended last, 0 = unknown  */
    spw_atomic64 progress_ns;      /* CLOCK_MONOTONIC: a copy ended, or the stream began     */
    uint8_t reserved[24];
};
SPW_LAYOUT_SIZE(struct spw_stream, 64);

/* Tiers of a shard, as its worker shows them; nothing is decided by it. */
enum spw_tier { SPW_TIER_HOST = 0, SPW_TIER_NVME = 1, SPW_TIERS };

enum spw_tier_state {
    SPW_TIER_NONE = 0, /* there is no such tier                                      */
    SPW_TIER_UP = 1,
    SPW_TIER_SCANNING = 2, /* serves what was found so far; writes nothing yet            */
    SPW_TIER_FULL = 3,     /* its file system has no room; what is there is served        */
    SPW_TIER_DOWN = 4,     /* out of service: everything there reads MISS, tried again    */
};

/* Measured, not asked for. */
enum spw_tier_mode {
    SPW_TIER_DIRECT = 1,     /* O_DIRECT; else through the page cache */
    SPW_TIER_URING = 2,      /* io_uring; else a pool of threads      */
    SPW_TIER_REGISTERED = 4, /* payload memory is registered there    */
};

/* Exact, and kept with each change: reading them costs the same at any size. */
struct spw_tier_record {
    alignas(64) spw_atomic64 capacity_bytes;
    spw_atomic64 used_bytes; /* at true chunk sizes and their alignment; below: all on disk */
    spw_atomic64 entries;
    spw_atomic64 leased;    /* of them, in use by a copy, a read or a write, or promised    */
    spw_atomic64 evictable; /* entries that may go                                          */
    spw_atomic64 state;     /* enum spw_tier_state                                          */
    spw_atomic64 mode;      /* bits of enum spw_tier_mode                                   */
    spw_atomic64 reserved;
};
SPW_LAYOUT_SIZE(struct spw_tier_record, 64);

#define SPW_TIER_TEXT_WORDS 32u

/* Who copies for a worker, and where it runs. Clients look at uuid; the daemon at pin_state, bus, binds,
 * near_permille and flags, for what it says, or ends a strict pool for; all else is for display. */
enum spw_copier_kind { SPW_COPIER_UNKNOWN = 0, SPW_COPIER_HOST = 1, SPW_COPIER_CUDA = 2 };

enum spw_pin_state {
    SPW_PIN_NONE = 0,    /* a host copier needs none, it is switched off, or the GPU is lost */
    SPW_PIN_RUNNING = 1, /* what is pinned is used already                            */
    SPW_PIN_DONE = 2,
    SPW_PIN_REFUSED = 3, /* nothing is pinned, gpu_text says why                      */
};

/* What came of binding to a node: of the process and of its memory, one by one. */
enum spw_bind_state {
    SPW_BIND_NONE = 0, /* not asked for: no node is known      */
    SPW_BIND_DONE = 1,
    SPW_BIND_DENIED = 2,     /* the system refused             */
    SPW_BIND_ELSEWHERE = 3,  /* the node isn't allowed: on others that are */
    SPW_BIND_INTERLEAVED = 4 /* no node is known: spread over all          */
};

#define SPW_BUS_UNKNOWN  UINT64_MAX
#define SPW_NEAR_UNKNOWN UINT64_MAX

struct spw_gpu_record {
    alignas(64) spw_atomic64 kind; /* enum spw_copier_kind; stored last, with release        */
    spw_atomic64 uuid[2];          /* of the GPU, most significant byte first; 0 = none      */
    spw_atomic64 bus;              /* domain << 16 | bus << 8 | device << 3 | function       */
    spw_atomic64 pin_state;        /* enum spw_pin_state                                     */
    spw_atomic64 pinned_bytes;     /* of the own shard                                       */
    spw_atomic64 pin_total_bytes;
    spw_atomic64 handles_open;       /* GPU memory of clients that is mapped here            */
    alignas(64) spw_atomic64 node;   /* 1 + NUMA node of its CPUs, 0 = none known            */
    spw_atomic64 memory_node;        /* 1 + node of its shard, 0 = none in particular        */
    spw_atomic64 near_permille;      /* of sampled pages of the shard that lie on that node  */
    spw_atomic64 cpus;               /* CPUs that it may run on                              */
    spw_atomic64 cpu_bind;           /* enum spw_bind_state                                  */
    spw_atomic64 memory_bind;        /* enum spw_bind_state                                  */
    spw_atomic64 kernel_below_bytes; /* pieces up to so many bytes are gathered by a kernel  */
    spw_atomic64 flags;              /* bits of enum spw_gpu_flag                            */
};
SPW_LAYOUT_SIZE(struct spw_gpu_record, 128);

/* Ways to copy that the driver has, and which of them failed a registration's trial since the worker began:
 * there, copies go another way. Bits 32 and up: the driver's code of the first failure, 0 = other bytes. */
enum spw_gpu_flag {
    SPW_GPU_BATCH = 1,
    SPW_GPU_KERNEL = 2,
    SPW_GPU_BATCH_FAILED = 4,
    SPW_GPU_KERNEL_FAILED = 8
};
#define SPW_GPU_CODE_SHIFT 32

#define SPW_GPU_TEXT_WORDS 32u

struct spw_feed_head {
    struct spw_region_header header;
    alignas(64) spw_atomic64 incarnation; /* 0 before the first worker; see tier/adopt.h */
    alignas(64) spw_atomic64 gate;        /* positions up to it may be overwritten       */
    alignas(64) spw_atomic64 tail;        /* highest position published                  */
    alignas(64) spw_atomic32 asleep;      /* 1 while the worker may be in futex_waitv    */
    uint32_t reserved0;
    struct spw_stream stream;
    alignas(64) spw_atomic64 passes; /* loop passes, for display                    */
    spw_atomic64 lingering; /* 1: transfers of this worker may outlive its process: what it was
                               filling stays in quarantine after its death (tier/quarantine.h) */
    /* of the engine whose thread this worker is, 0 = it is a process of its own: the lock of one that is
       dead may be free while its copies still run, until its process is gone (tools/inside_watch.h) */
    spw_atomic64 inside_pid;
    spw_atomic64 inside_ticks; /* when that process began (shm/process.h), stored first */
    spw_atomic64 inside_image; /* of the program that it ran then, likewise              */
    spw_atomic64 inside_left;  /* 1: it has ended but for copies, or I/O, that didn't    */
    uint8_t reserved1[16];
    alignas(64) spw_atomic64 counter[SPW_COUNTERS_MAX];
    spw_atomic64 acked[SPW_CLIENTS_MAX + 1];       /* generation of client c that is served here  */
    spw_atomic64 fenced[SPW_CLIENTS_MAX + 1];      /* step of client c that is void, and earlier  */
    spw_atomic64 space_generation[SPW_SPACES_MAX]; /* raised by a reset                        */
    spw_atomic64 space_bytes[SPW_SPACES_MAX];      /* of host memory, that its chunks take     */
    struct spw_stream promotions;                  /* what is read from the tier below         */
    struct spw_tier_record tier[SPW_TIERS];
    /* why the tier below works otherwise than asked for, or not at all; NUL padded, for display */
    alignas(64) spw_atomic64 tier_text[SPW_TIER_TEXT_WORDS];
    struct spw_gpu_record gpu;
    /* likewise of its GPU, its memory and its place */
    alignas(64) spw_atomic64 gpu_text[SPW_GPU_TEXT_WORDS];
};
SPW_LAYOUT_FIELD(struct spw_feed_head, incarnation, 128);
SPW_LAYOUT_FIELD(struct spw_feed_head, gate, 192);
SPW_LAYOUT_FIELD(struct spw_feed_head, tail, 256);
SPW_LAYOUT_FIELD(struct spw_feed_head, asleep, 320);
SPW_LAYOUT_FIELD(struct spw_feed_head, stream, 384);
SPW_LAYOUT_FIELD(struct spw_feed_head, counter, 512);

/* Parts of feed.k behind its head, as offsets from the region's start. */
struct spw_feed_map {
    uint64_t ring_off;    /* update_records x 32 bytes                                    */
    uint64_t entry_off;   /* (slots + cold_chunks) x 64 bytes (tier/layout.h)             */
    uint64_t key_off;     /* likewise                                                     */
    uint64_t index_off;   /* index_buckets x 64 bytes                                     */
    uint64_t copying_off; /* one bit a slot of the whole pool, shard-major, 64-bit words;
                             shard s starts at word s * words_per_shard                   */
    uint64_t size_bytes;
};

/* ---- client.c ------------------------------------------------------------------------------- */

#define SPW_MAILBOX_BYTES 65536u

enum spw_mail_kind { SPW_MAIL_OPEN_SPACE = 1, SPW_MAIL_STOP = 2, SPW_MAIL_SHARES = 3 };

/* Bytes of SPW_MAIL_OPEN_SPACE; answered with the space's number. */
struct spw_open_space_mail {
    struct spw_space_record record;
    uint64_t shares; /* SPW_SHARES(), 0 = as they are */
    uint32_t rank_worker[SPW_RANKS_MAX];
};
SPW_LAYOUT_SIZE(struct spw_open_space_mail, 784 + 8 + 4 * SPW_RANKS_MAX);

#define SPW_SET_GUARANTEED 1u
#define SPW_SET_LARGEST    2u

/* Bytes of SPW_MAIL_SHARES: of a space that there is; answered with its number. */
struct spw_shares_mail {
    char fingerprint[256];
    uint64_t shares; /* SPW_SHARES() */
    uint32_t set;    /* which of them: bits SPW_SET_GUARANTEED, SPW_SET_LARGEST */
    uint32_t reserved;
};
SPW_LAYOUT_SIZE(struct spw_shares_mail, 256 + 16);

/* ---- registrations of GPU memory: client c -> worker k through the mailbox's bytes, announced by a
 * command and not by the mailbox's seq; the daemon doesn't look at them ---- */

#define SPW_KV_MEMORIES_MAX 256u
#define SPW_KV_TENSORS_MAX  512u
#define SPW_KV_FENCES_MAX   64u
#define SPW_IPC_BYTES       64u

enum spw_kv_memory_kind {
    SPW_KV_IPC = 1,    /* handle: a CUDA IPC handle of the whole allocation                  */
    SPW_KV_POINTER = 2 /* handle: its address, 8 bytes; only where the worker is a thread of the
                          client's own process                                                */
};

struct spw_kv_memory_record {
    uint8_t handle[SPW_IPC_BYTES];
    uint64_t bytes; /* of the allocation          */
    uint32_t kind;  /* enum spw_kv_memory_kind    */
    uint32_t reserved;
};
SPW_LAYOUT_SIZE(struct spw_kv_memory_record, 80);

/* Where a block's bytes lie in one tensor: part p of block b is part_bytes at
 * offset + b * block_stride + p * part_stride of its memory. */
struct spw_kv_tensor_record {
    uint64_t offset;
    uint64_t block_stride;
    uint64_t part_stride;
    uint32_t part_bytes;
    uint32_t parts;  /* 1, or 2 where K and V lie apart */
    uint32_t blocks; /* 1 + highest block id            */
    uint32_t group;
    uint32_t memory; /* which of the records            */
    uint32_t reserved;
};
SPW_LAYOUT_SIZE(struct spw_kv_tensor_record, 48);

/* Followed by memories, tensors and fences, in this order; a fence is SPW_IPC_BYTES of a CUDA IPC
 * event handle, or its address where memories are SPW_KV_POINTER. */
struct spw_kv_record {
    uint8_t gpu[16]; /* UUID                                         */
    uint32_t memories;
    uint32_t tensors;
    uint32_t fences;
    uint32_t pid;         /* of the process whose memory that is      */
    uint64_t start_ticks; /* of that process (shm/process.h)          */
    uint64_t reserved;
};
SPW_LAYOUT_SIZE(struct spw_kv_record, 48);

static inline uint64_t spw_kv_record_bytes(uint32_t memories, uint32_t tensors, uint32_t fences)
{
    return sizeof(struct spw_kv_record) + memories * sizeof(struct spw_kv_memory_record) +
           tensors * sizeof(struct spw_kv_tensor_record) + (uint64_t)fences * SPW_IPC_BYTES;
}

/* Worker k's answer to a registration. */
#define SPW_KV_TEXT_WORDS 22u

struct spw_kv_words {
    alignas(64) spw_atomic64 answered;    /* cookie of the command, stored last, with release */
    spw_atomic64 status;                  /* 0 or a negative errno, sign extended             */
    spw_atomic64 text[SPW_KV_TEXT_WORDS]; /* why it was refused, NUL padded                 */
};
SPW_LAYOUT_SIZE(struct spw_kv_words, 192);

struct spw_mailbox {
    alignas(64) spw_atomic32 bell; /* low 32 bits of seq: the daemon sleeps on it     */
    spw_atomic32 kind;             /* enum spw_mail_kind                              */
    spw_atomic64 seq;              /* stored last of the request, with release        */
    spw_atomic64 length_bytes;
    uint8_t reserved[40];
    uint8_t bytes[SPW_MAILBOX_BYTES];
};
SPW_LAYOUT_SIZE(struct spw_mailbox, 64 + SPW_MAILBOX_BYTES);

/* A client's side of its lanes to worker k. */
struct spw_lane_client {
    alignas(64) spw_atomic64 command_tail; /* commands sent; workers sleep on its low half */
    spw_atomic64 command_base;             /* where this generation's commands begin       */
    spw_atomic64 completion_head;          /* completions reaped                           */
    uint8_t reserved[40];
};
SPW_LAYOUT_SIZE(struct spw_lane_client, 64);

/* Worker k's side of its lanes to a client. */
struct spw_lane_worker {
    alignas(64) spw_atomic64 command_head; /* commands taken: a load's claim stands before */
    spw_atomic64 completion_tail;          /* completions sent                             */
    uint8_t reserved[48];
};
SPW_LAYOUT_SIZE(struct spw_lane_worker, 64);

/* How long deferred requests of a client waited, by how their waits ended. Bucket b counts waits
 * below 2^b microseconds that no lower one counts; the last one counts all others. */
#define SPW_WAIT_OUTCOMES_MAX 8u
#define SPW_WAIT_BUCKETS      32u

struct spw_wait_record {
    alignas(64) spw_atomic64 sum_ns;
    spw_atomic64 reserved[7];
    spw_atomic64 bucket[SPW_WAIT_BUCKETS];
};
SPW_LAYOUT_SIZE(struct spw_wait_record, 320);

/* One of a client's last decisions; record number n lies at n mod SPW_DECISION_RECORDS. */
#define SPW_DECISION_RECORDS 256u
#define SPW_DECISION_WORDS   15u

struct spw_decision_record {
    alignas(128) spw_atomic64 seq; /* n + 1 once whole, 0 while it is written */
    spw_atomic64 word[SPW_DECISION_WORDS];
};
SPW_LAYOUT_SIZE(struct spw_decision_record, 128);

struct spw_client_head {
    struct spw_region_header header;
    alignas(64) spw_atomic64 generation; /* of the process that holds the lock; only grows */
    spw_atomic64 pid;                    /* for display                                    */
    char label[48];                      /* for display                                    */
    alignas(64) spw_atomic64 step;       /* number of the current or last step             */
    alignas(64) spw_atomic64 applied[SPW_WORKERS_MAX]; /* 0 outside a step, else 1 + position */
    alignas(64) spw_atomic64 awaited_changes[SPW_WORKERS_MAX]; /* of the bits of shard k    */
    alignas(64) spw_atomic64 counter[SPW_COUNTERS_MAX];
    struct spw_lane_client lane[SPW_WORKERS_MAX];
    struct spw_wait_record wait[SPW_WAIT_OUTCOMES_MAX];
    alignas(64) spw_atomic64 decisions; /* records written, ever                          */
    spw_atomic64 decision_base;         /* of them, written before this generation's first */
    spw_atomic64 wait_limit_ns;         /* of the space opened last, for display          */
    spw_atomic64 retry_limit_ns;
    spw_atomic64 budget_tokens; /* UINT64_MAX: auto */
    uint8_t reserved[24];
    struct spw_decision_record decision[SPW_DECISION_RECORDS];
    struct spw_mailbox mailbox;
    struct spw_lane_worker worker_lane[SPW_WORKERS_MAX];     /* line k: worker k alone          */
    struct spw_kv_words kv_words[SPW_WORKERS_MAX];           /* likewise                        */
    alignas(64) spw_atomic64 counter_base[SPW_COUNTERS_MAX]; /* counted before this generation */
};
SPW_LAYOUT_FIELD(struct spw_client_head, generation, 128);
SPW_LAYOUT_FIELD(struct spw_client_head, step, 192);
SPW_LAYOUT_FIELD(struct spw_client_head, applied, 256);
SPW_LAYOUT_FIELD(struct spw_client_head, awaited_changes, 512);
SPW_LAYOUT_FIELD(struct spw_client_head, counter, 768);
SPW_LAYOUT_FIELD(struct spw_client_head, lane, 1792);
SPW_LAYOUT_FIELD(struct spw_client_head, wait, 3840);
SPW_LAYOUT_FIELD(struct spw_client_head, decision, 6528);

struct spw_client_map {
    uint64_t pin_off;        /* one bit a slot of the pool, laid out like copying bits       */
    uint64_t awaited_off;    /* likewise: its store is waited for                            */
    uint64_t command_off;    /* workers x command_slots x 64 bytes, written by the client    */
    uint64_t completion_off; /* workers x completion_slots x 64 bytes, lane k by worker k    */
    uint64_t size_bytes;
};

/* A slot of a command or completion lane. */
struct spw_lane_slot {
    alignas(64) spw_atomic64 seq; /* position + 1 once published              */
    spw_atomic64 word[7];         /* 56 bytes of payload, stored before seq   */
};
SPW_LAYOUT_SIZE(struct spw_lane_slot, 64);

/* A record of the update ring. */
struct spw_ring_slot {
    alignas(32) spw_atomic64 seq; /* its position once published (from 1)     */
    spw_atomic64 word[3];
};
SPW_LAYOUT_SIZE(struct spw_ring_slot, 32);

/** Entries of a shard's state table: entry i < slots speaks of slot i, the others of the tier below. */
static inline uint32_t spw_geometry_entries(const struct spw_geometry *geometry)
{
    return geometry->slots + geometry->cold_chunks;
}

/** 64-bit words of one shard's bits in a claim bitmap. */
static inline uint64_t spw_claim_words(const struct spw_geometry *geometry)
{
    return (geometry->slots + 63u) / 64u;
}

/** Check @geometry as bytes from outside; 0, or -EBADMSG with the offending field in @err. */
int spw_geometry_check(const struct spw_geometry *geometry, struct spw_error *err);

/** Where things lie; the one place that computes it. @geometry must have passed the check. */
void spw_feed_map_init(const struct spw_geometry *geometry, struct spw_feed_map *out_map);
void spw_client_map_init(const struct spw_geometry *geometry, struct spw_client_map *out_map);
uint64_t spw_kv_size_bytes(const struct spw_geometry *geometry);
uint64_t spw_data_size_bytes(const struct spw_geometry *geometry);

/** Hash over every size and offset of the shared layout: differs whenever a layout differs. */
uint64_t spw_layout_hash(void);

#endif
