#ifndef SPW_TOOLS_INSIDE_H
#define SPW_TOOLS_INSIDE_H
/*
 * libspillway-inside: a worker as a thread of the engine, where the engine's GPU memory can't be exported
 * to another process. It is the shard's worker as if the daemon had started it: the same code with the
 * running pool's own values. A registration then names memory by its address (SPW_KV_MEMORY_ADDRESS of
 * spillway.h). docs/gpu.md says when, and what it costs.
 *
 *   needs     a pool that was started with --inside K, by this user, in this pid namespace
 *   threads   calls from any one thread at a time; the worker has threads of its own, with all signals
 *             blocked. They run where this process may: bind it before
 *   signals   SIGBUS is handled in the pool's mappings, any other goes where it went before. A handler that
 *             is installed later must hand on to the one that it found, with its siginfo
 *   fork      not while a worker is being started; a forked child has no worker
 *   output    standard error, as a worker process
 *   crash     the worker dies with the engine: what its shard has ready stays, and is copied by others
 *             and by its successor, which an engine starts when this process is gone
 */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SPW_API
#define SPW_API __attribute__((visibility("default")))
#endif

struct spw_inside; /* opaque */

struct spw_inside_options {
    uint32_t size_bytes; /* sizeof(struct spw_inside_options) */
    uint32_t worker;     /* one of those that --inside names  */
    const char *pool;    /* its name; NULL = "spillway"       */
    const char *shm_dir; /* NULL = "/dev/shm"                 */
    const char *gpu;     /* UUID, PCI address or ordinal here; NULL = as the pool's --gpu says */
};

/**
 * Be worker @worker in a thread of this process. Returns when the pool has it up. The GPU's primary
 * context is used, which is made if there is none yet.
 *
 * -ENOENT no such pool; -EAGAIN it is starting; -EINVAL the options, or the pool wasn't started with --inside
 * for this worker; -EBUSY somebody is this worker, or was and isn't gone; -EPROTONOSUPPORT another layout;
 * -EXDEV another pid namespace; -EACCES; -ENODEV the GPU; -EOWNERDEAD the pool's daemon is gone; -ETIMEDOUT
 * it was not up within 30 s. Words in @error_text, which may be NULL.
 */
SPW_API int spw_inside_start(const struct spw_inside_options *options,
                             struct spw_inside **out_inside, char *error_text,
                             uint64_t error_bytes);

/** 1 it runs; 0 it has ended, since the pool was stopped, its GPU failed, or nobody needed it for the pool's
 * --orphan: stop it. Words on why in @error_text, which may be NULL. No system call. */
SPW_API int spw_inside_runs(const struct spw_inside *inside, char *error_text,
                            uint64_t error_bytes);

/** End it: copies that run have the pool's --drain-limit. 0; -EBUSY copies of the GPU or I/O of the tier below
 * didn't end and may go on: what they use is left to them, and the shard is down, until this process ends.
 * @inside is freed in any case; NULL is fine. */
SPW_API int spw_inside_stop(struct spw_inside *inside);

#ifdef __cplusplus
}
#endif

#endif
