/* See uring_io.h. The ring belongs to the thread `drive`; what others give it goes through the core's
 * lists and an eventfd that the ring reads. */
#include "tier/uring_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tier/io_core.h"

#define BUSY_WAIT_NS  100000L /* the kernel is short of something: asked again */
#define NOT_YET       1
#define OPEN_LIMIT_NS 10000000000ull

struct spw_io_engine {
    struct spw_io_core core;
    const struct spw_uring_calls *calls;
    struct io_uring ring;
    struct iovec *piece; /* registered, by address */
    uint32_t pieces;
    uint32_t in_flight; /* with the ring, the eventfd's read not counted */
    struct spw_io_slot *unsummed[SPW_IO_DEPTH_MAX]; /* writes of these: summed while they run */
    uint32_t unsummed_count;
    bool refused; /* the ring is no longer used */
    bool hears;   /* the eventfd's read is with the ring */
    int bell;
    uint64_t rung;
    bool sleeping; /* under the core's lock: the bell must be rung */
    int opened;    /* under the core's lock: NOT_YET, or what came of it */
    pthread_cond_t is_open;
    const struct spw_io_config *config; /* while it opens */
    struct spw_error error;
};

const struct spw_uring_calls spw_uring_calls = {
    .init = io_uring_queue_init_params,
    .submit_and_wait = io_uring_submit_and_wait,
    .register_buffers = io_uring_register_buffers,
};

/* ---- registered memory ----------------------------------------------------------------------- */

int spw_uring_split(const struct iovec *memory, uint32_t count, uint64_t part_bytes,
                    struct iovec *out, uint32_t max)
{
    uint64_t step = SPW_URING_PIECE_BYTES_MAX;
    uint32_t pieces = 0;
    if (part_bytes != 0 && part_bytes < step)
        step -= step % part_bytes;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t at = 0; at < memory[i].iov_len; at += step) {
            uint64_t left = memory[i].iov_len - at;
            if (pieces == max)
                return -E2BIG;
            out[pieces++] = (struct iovec){.iov_base = (uint8_t *)memory[i].iov_base + at,
                                           .iov_len = left < step ? left : step};
        }
    }
    return (int)pieces;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct iovec *)a)->iov_base;
    uintptr_t y = (uintptr_t)((const struct iovec *)b)->iov_base;
    return (x > y) - (x < y);
}

static uint64_t mib(uint64_t bytes)
{
    return (bytes + (1u << 20) - 1) >> 20;
}

static void say_not_registered(struct spw_io_engine *engine, int rc)
{
    const struct spw_io_config *config = engine->config;
    char *why = engine->core.mode.why;
    size_t room = sizeof engine->core.mode.why;
    uint64_t needed = 0;
    struct rlimit limit = {0};
    for (uint32_t i = 0; i < config->memory_count; i++)
        needed += config->memory[i].iov_len;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (rc == -ENOMEM && limit.rlim_cur != RLIM_INFINITY)
        snprintf(why, room,
                 "memory is not registered: needs %llu MiB, limit %llu KiB; raise RLIMIT_MEMLOCK",
                 (unsigned long long)mib(needed), (unsigned long long)(limit.rlim_cur >> 10));
    else if (rc == -EFAULT || rc == -EOPNOTSUPP)
        snprintf(why, room, "memory is not registered: the kernel refuses its kind (%s)",
                 strerror(-rc));
    else if (rc == -E2BIG)
        snprintf(why, room, "memory is not registered: %u ranges need more than %u pieces",
                 config->memory_count, SPW_URING_PIECES_MAX);
    else
        snprintf(why, room, "memory is not registered (%llu MiB): %s",
                 (unsigned long long)mib(needed), strerror(-rc));
}

/* Gains speed only: whatever goes wrong is told, and all goes on. */
static void register_memory(struct spw_io_engine *engine)
{
    const struct spw_io_config *config = engine->config;
    if (config->memory_count == 0)
        return;
    int rc = -ENOMEM;
    engine->piece = calloc(SPW_URING_PIECES_MAX, sizeof *engine->piece);
    if (engine->piece)
        rc = spw_uring_split(config->memory, config->memory_count, config->part_bytes,
                             engine->piece, SPW_URING_PIECES_MAX);
    uint32_t count = rc > 0 ? (uint32_t)rc : 0;
    if (rc > 0) {
        qsort(engine->piece, count, sizeof *engine->piece, by_address);
        rc = engine->calls->register_buffers(&engine->ring, engine->piece, count);
    }
    if (rc < 0) {
        say_not_registered(engine, rc);
        return;
    }
    engine->pieces = count;
    engine->core.mode.registered = count > 0;
}

/* The piece in which all of the transfer lies, or -1. */
static int piece_of(const struct spw_io_engine *engine, const struct spw_io *io)
{
    uintptr_t at = (uintptr_t)io->buffer;
    uint32_t low = 0, high = engine->pieces;
    while (low < high) { /* the first one that begins behind it */
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)engine->piece[middle].iov_base <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return -1;
    const struct iovec *piece = &engine->piece[low - 1];
    uint64_t from = at - (uintptr_t)piece->iov_base;
    return from < piece->iov_len && io->bytes <= piece->iov_len - from ? (int)(low - 1) : -1;
}

/* ---- the ring's thread ----------------------------------------------------------------------- */

static void ring_bell(struct spw_io_engine *engine)
{
    const uint64_t one = 1;
    ssize_t written = write(engine->bell, &one, sizeof one);
    (void)written; /* fails only when it has been rung 2^64 times */
}

static void hear(struct spw_io_engine *engine)
{
    struct io_uring_sqe *sqe = engine->hears ? NULL : io_uring_get_sqe(&engine->ring);
    if (!sqe)
        return;
    io_uring_prep_read(sqe, engine->bell, &engine->rung, sizeof engine->rung, 0);
    io_uring_sqe_set_data(sqe, NULL);
    engine->hears = true;
}

static void prepare(struct spw_io_engine *engine, struct spw_io_slot *slot)
{
    struct spw_io *io = &slot->io;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&engine->ring); /* entries are above the depth */
    unsigned bytes = (unsigned)(io->bytes < SPW_IO_BYTES_MAX ? io->bytes : SPW_IO_BYTES_MAX);
    int piece = piece_of(engine, io);
    if (io->op == SPW_IO_WRITE && io->sum_bytes != 0)
        engine->unsummed[engine->unsummed_count++] = slot;
    if (io->op == SPW_IO_READ && piece >= 0)
        io_uring_prep_read_fixed(sqe, io->fd, io->buffer, bytes, io->offset, piece);
    else if (io->op == SPW_IO_READ)
        io_uring_prep_read(sqe, io->fd, io->buffer, bytes, io->offset);
    else if (piece >= 0)
        io_uring_prep_write_fixed(sqe, io->fd, io->buffer, bytes, io->offset, piece);
    else
        io_uring_prep_write(sqe, io->fd, io->buffer, bytes, io->offset);
    io_uring_sqe_set_data(sqe, slot);
    engine->in_flight++;
}

/* The ring refuses what plain calls do: from now on threads do it. */
static void go_on_without_ring(struct spw_io_engine *engine, int refusal)
{
    struct spw_io_core *core = &engine->core;
    pthread_mutex_lock(&core->lock);
    engine->refused = true;
    core->mode.uring = core->mode.registered = false;
    snprintf(core->mode.why, sizeof core->mode.why,
             "io_uring refuses transfers here: %s; threads do them", strerror(-refusal));
    core->ring_takes = engine->sleeping = false;
    pthread_cond_broadcast(&core->more);
    pthread_mutex_unlock(&core->lock);
    /* the thread for calls takes all from now on, and has help where more can be had */
    spw_io_core_start(core, core->depth < SPW_IO_POOL_MAX ? core->depth : SPW_IO_POOL_MAX);
}

static bool may_be_refusal(int result)
{
    return result == -EINVAL || result == -EOPNOTSUPP || result == -ENOSYS || result == -EPERM ||
           result == -EACCES;
}

static void ended(struct spw_io_engine *engine, struct spw_io_slot *slot, int result)
{
    int64_t final = result;
    if (result == -EINTR || result == -EAGAIN || may_be_refusal(result)) {
        final = spw_io_core_perform(&slot->io);
        if (final >= 0 && may_be_refusal(result) && !engine->refused)
            go_on_without_ring(engine, result);
    }
    spw_io_core_end(&engine->core, slot, final);
}

/* The disk works meanwhile: what a write writes doesn't change until its end is polled. */
static void sum_writes(struct spw_io_engine *engine)
{
    for (; engine->unsummed_count != 0; engine->unsummed_count--)
        spw_io_core_sum(engine->unsummed[engine->unsummed_count - 1]);
}

static void reap(struct spw_io_engine *engine)
{
    struct io_uring_cqe *cqe;
    sum_writes(engine);
    while (io_uring_peek_cqe(&engine->ring, &cqe) == 0) {
        struct spw_io_slot *slot = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&engine->ring, cqe);
        if (!slot) {
            engine->hears = false;
            if (may_be_refusal(result) && !engine->refused)
                go_on_without_ring(engine, result);
            continue;
        }
        engine->in_flight--;
        ended(engine, slot, result);
    }
}

/* What waits, into the ring. False: the engine is being closed. */
static bool fill(struct spw_io_engine *engine)
{
    struct spw_io_core *core = &engine->core;
    struct spw_io_slot *slot = NULL;
    pthread_mutex_lock(&core->lock);
    engine->sleeping = false;
    while (!core->stopping && engine->in_flight < core->depth && (slot = spw_io_core_take(core))) {
        pthread_mutex_unlock(&core->lock);
        prepare(engine, slot);
        pthread_mutex_lock(&core->lock);
    }
    bool goes_on = engine->sleeping = !core->stopping;
    pthread_mutex_unlock(&core->lock);
    hear(engine);
    return goes_on;
}

static void enter(struct spw_io_engine *engine, unsigned wait)
{
    static const struct timespec a_moment = {.tv_nsec = BUSY_WAIT_NS};
    for (;;) {
        int rc = engine->calls->submit_and_wait(&engine->ring, wait);
        if (rc == -EAGAIN || rc == -EBUSY) {
            reap(engine); /* it may be short of room for what has ended */
            nanosleep(&a_moment, NULL);
        } else if (rc < 0 && rc != -EINTR) {
            nanosleep(&a_moment, NULL); /* nothing of this is documented: don't spin */
        }
        if (io_uring_sq_ready(&engine->ring) == 0)
            return;
        wait = 0;
    }
}

/* The bell once, through the ring: whether it can be entered and reads. */
static int try_ring(struct spw_io_engine *engine)
{
    struct io_uring_cqe *cqe;
    ring_bell(engine);
    hear(engine);
    int rc = engine->calls->submit_and_wait(&engine->ring, 1);
    while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY)
        rc = engine->calls->submit_and_wait(&engine->ring, 1);
    if (rc >= 0)
        rc = io_uring_wait_cqe(&engine->ring, &cqe);
    if (rc < 0)
        return rc;
    rc = cqe->res < 0 ? cqe->res : 0;
    io_uring_cqe_seen(&engine->ring, cqe);
    engine->hears = false;
    return rc;
}

static int open_ring(struct spw_io_engine *engine)
{
    unsigned entries = engine->core.depth + 1; /* and the bell */
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER |
                                              IORING_SETUP_DEFER_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG};
    int rc = engine->calls->init(entries, &engine->ring, &params);
    if (rc == -EINVAL) { /* older than these flags */
        params = (struct io_uring_params){0};
        rc = engine->calls->init(entries, &engine->ring, &params);
    }
    if (rc == 0 && (rc = try_ring(engine)) < 0)
        io_uring_queue_exit(&engine->ring);
    if (rc < 0)
        return spw_fail(&engine->error, rc, "no io_uring here (%s)", strerror(-rc));
    engine->core.mode.uring = engine->core.ring_takes = true;
    register_memory(engine);
    return 0;
}

static void tell_opened(struct spw_io_engine *engine, int rc)
{
    pthread_mutex_lock(&engine->core.lock);
    engine->opened = rc;
    pthread_cond_signal(&engine->is_open);
    pthread_mutex_unlock(&engine->core.lock);
}

/* Refused or closed: until all that the ring still holds has ended. */
static void *drive(void *arg)
{
    struct spw_io_engine *engine = arg;
    int rc = open_ring(engine);
    tell_opened(engine, rc);
    if (rc < 0) {
        spw_io_core_leave(&engine->core);
        return NULL;
    }
    while (!engine->refused && fill(engine)) {
        if (engine->unsummed_count != 0) {
            enter(engine, 0);
            sum_writes(engine);
        }
        enter(engine, 1);
        reap(engine);
    }
    ring_bell(engine); /* so that the ring gives up its read too */
    while (engine->in_flight > 0 || engine->hears) {
        enter(engine, 1);
        reap(engine);
    }
    io_uring_queue_exit(&engine->ring);
    spw_io_core_leave(&engine->core);
    return NULL;
}

/* ---- the worker's side ----------------------------------------------------------------------- */

static int submit(struct spw_io_engine *engine, const struct spw_io *io)
{
    struct spw_io_core *core = &engine->core;
    pthread_mutex_lock(&core->lock);
    int rc = spw_io_core_push(core, io);
    bool wake = rc == 0 && engine->sleeping;
    if (wake)
        engine->sleeping = false;
    if (rc == 0)
        pthread_cond_signal(&core->more);
    pthread_mutex_unlock(&core->lock);
    if (wake)
        ring_bell(engine);
    return rc;
}

static int poll(struct spw_io_engine *engine, struct spw_io_end *out, int max)
{
    return spw_io_core_poll(&engine->core, out, max);
}

static void mode(struct spw_io_engine *engine, struct spw_io_mode *out)
{
    spw_io_core_mode(&engine->core, out);
}

static void release(struct spw_io_engine *engine)
{
    pthread_cond_destroy(&engine->is_open);
    spw_io_core_fini(&engine->core);
    free(engine->piece);
    if (engine->bell >= 0)
        close(engine->bell);
    free(engine);
}

static int close_engine(struct spw_io_engine *engine, uint64_t limit_ns)
{
    if (!engine)
        return 0;
    uint64_t until_ns = spw_monotonic_ns() + limit_ns;
    spw_io_core_end_soon(&engine->core);
    ring_bell(engine);
    int rc = spw_io_core_stop(&engine->core, until_ns);
    if (rc < 0)
        return rc; /* threads that hang need all of it */
    release(engine);
    return 0;
}

static const struct spw_io_ops ops = {submit, poll, mode, close_engine};

static int wait_opened(struct spw_io_engine *engine)
{
    pthread_mutex_lock(&engine->core.lock);
    while (engine->opened == NOT_YET)
        pthread_cond_wait(&engine->is_open, &engine->core.lock);
    int rc = engine->opened;
    pthread_mutex_unlock(&engine->core.lock);
    return rc;
}

/* The ring's thread, and one for calls. */
static int start(struct spw_io_engine *engine)
{
    engine->bell = eventfd(0, EFD_CLOEXEC);
    if (engine->bell < 0)
        return spw_fail(&engine->error, -errno, "eventfd: %s", strerror(errno));
    int rc = spw_io_core_run(&engine->core, drive, engine);
    if (rc < 0)
        return spw_fail(&engine->error, rc, "no thread for io_uring: %s", strerror(-rc));
    rc = wait_opened(engine);
    if (rc < 0)
        return rc;
    rc = spw_io_core_start(&engine->core, 1);
    return rc < 0 ? spw_fail(&engine->error, rc, "no thread for calls: %s", strerror(-rc)) : 0;
}

int spw_uring_io_open(const struct spw_io_config *config, const struct spw_uring_calls *calls,
                      struct spw_io_handle *out_io, struct spw_error *err)
{
    struct spw_io_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return spw_fail(err, -ENOMEM, "no memory for an I/O engine");
    int rc = spw_io_core_init(&engine->core, config);
    if (rc < 0) {
        free(engine);
        return spw_fail(err, rc, "an I/O engine of depth %u: %s", config->depth, strerror(-rc));
    }
    engine->calls = calls;
    engine->config = config;
    engine->opened = NOT_YET;
    pthread_cond_init(&engine->is_open, NULL);
    rc = start(engine);
    if (rc < 0) {
        if (err)
            *err = engine->error;
        close_engine(engine, OPEN_LIMIT_NS);
        return rc;
    }
    engine->config = NULL; /* the caller's */
    *out_io = (struct spw_io_handle){&ops, engine};
    return 0;
}
