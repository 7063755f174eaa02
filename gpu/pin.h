#ifndef SPW_GPU_PIN_H
#define SPW_GPU_PIN_H
/*
 * Payload memory pinned for one worker's GPU, by a thread of its own, while the worker serves from what
 * is pinned already.
 *
 *             open           all of the own shard          ctl.pinning OFF
 *        NONE -----> RUNNING ---------------------> DONE -----------------> NONE
 *                       |  refused, or the limit passed
 *                       +------------------------------> REFUSED: undone, words said
 *                       |  the GPU is lost
 *                       +------------------------------> NONE: words said, and the process should go
 *
 *   a piece   (gpu/pin_pieces.h) is touched by several threads, then registered by one call, then the
 *             frontier moves behind it. All of the own shard or nothing
 *   turns     one registration at a time on a pool: under lock byte SPW_LOCK_PINNING, let go of after
 *             each. Touching needs no turn, nor do the few pages of its own that a worker registers
 *             besides (ids for kernels, two blocks for a trial of KV): nobody else has those mapped, the
 *             call is short, and its loop would stand still until a piece of somebody's is registered
 *   others    a piece of another worker's shard is pinned once a copy asked for it in vain, when the
 *             own shard is done; one that is refused stays unpinned, and that is all
 *   undoing   what is pinned goes when no copy uses it any more: a copy counts itself in and out
 *             (spw_pin_use()), so the thread that unpins sees it or the copy sees that it is too late
 *   threads   open, close, use and done: the worker's; the rest: any
 *   crash     registrations end with the process; so does the turn
 *
 *   pairs     [PN-1] a piece registered -> its bit -> who copies
 *             [PN-2] bits cleared, then uses counted -> a use counted, then the bit looked at again
 *             [PN-3] a copy's last access -> its end counted -> the memory unpinned
 *             [PN-4] words and numbers -> pin_state -> the daemon's look
 */
#include "shm/layout.h"

struct spw_pin; /* opaque */

/** What registers: a GPU's driver (spw_pin_driver()), or a test's own. Called by the pin thread. */
struct spw_pin_backend {
    /* once, before all others, by the thread that makes the calls; 0 or a negative errno. NULL: nothing
     * to be done */
    int (*enter)(void *ctx);
    /* Pin whole pages. 0; -ENODEV: the GPU is lost for good; else refused. *out_name: what the driver
     * calls the error, static */
    int (*add)(void *ctx, void *start, uint64_t bytes, bool writable, const char **out_name);
    void (*remove)(void *ctx, void *start);
    void *ctx;
};

struct spw_pin_memory {
    uint8_t *start; /* first slot's payload, on a page; NULL: not mapped */
    uint64_t bytes; /* all slots                                         */
};

struct spw_pin_config {
    struct spw_pin_backend backend;
    struct spw_pin_memory memory[SPW_WORKERS_MAX]; /* shards; others' are mapped read-only */
    uint32_t shards;
    uint32_t k;                  /* the own one                                             */
    uint32_t slot_bytes;         /* seams lie between so many; as in the pool's geometry    */
    uint32_t cell_shift;         /* likewise                                                */
    uint64_t piece_bytes;        /* at most, 0 = SPW_PIN_PIECE_BYTES                        */
    uint64_t limit_ns;           /* for all of the own shard, 0 = none                      */
    uint32_t threads;            /* that touch, on the caller's CPUs; 0 = one a CPU, 4 at most */
    int lock_fd;                 /* of the pool (shm/alive.h)                               */
    const char *host_dir;        /* NULL, or a folder that the host's pools have in common: whoever
                                      registers holds it by flock(), but nobody is waited for over
                                      10 s a piece: anyone may hold it */
    const spw_atomic32 *pinning; /* of ctl; OFF: nothing is pinned (any more)        */
    struct spw_gpu_record *record; /* pin_state, pinned_bytes, pin_total_bytes are kept here */
    spw_atomic64 *touched; /* NULL, or bytes of the own shard touched so far are kept here */
    /* Why it was refused: called by the pin thread once, before pin_state says so */
    void (*say)(void *ctx, const char *words);
    /* NULL, or told that all of the own shard is touched and pinned: called by the pin thread before
     * pin_state says so */
    void (*done)(void *ctx);
    /* NULL, or a test's own way to touch (gpu/touch.h) */
    int (*touch)(void *ctx, uint8_t *start, uint64_t bytes);
    void *ctx;
};

/**
 * Begin to pin; returns at once. With ctl.pinning OFF nothing is pinned, and all is as if nothing had
 * to be. 0, or -ENOMEM with words in @err.
 */
int spw_pin_open(const struct spw_pin_config *config, struct spw_pin **out_pin,
                 struct spw_error *err);
/** Unpin all that is pinned; no copy is in flight any more, and the GPU is still open. May take as
 * long as one registration. NULL is fine. */
void spw_pin_close(struct spw_pin *pin);

/** A copy from or to this memory is about to begin. True: it is pinned, in one piece, and stays so until
 * spw_pin_done(). False: not now; of another worker's shard it will be soon. Never blocks; a full fence,
 * rarely a system call. */
bool spw_pin_use(struct spw_pin *pin, const void *start, uint64_t bytes);
/** A copy whose use was true has ended. */
void spw_pin_done(struct spw_pin *pin);
/** Slots of the own shard that may be handed out: those that are pinned while pinning goes on, else
 * all. Only grows. For spw_worker_config.usable_slots: @pin is a struct spw_pin. */
uint32_t spw_pin_usable_slots(void *pin);
/** 0; or -ENODEV for good: the GPU was lost while memory was registered, and the process should go. */
int spw_pin_health(const struct spw_pin *pin);

struct spw_gpu;
/** Register with the driver of @gpu, borrowed. Needs a build with CUDA. */
struct spw_pin_backend spw_pin_driver(struct spw_gpu *gpu);

#endif
