/* See io_core.h. */
#include "tier/io_core.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

static void append(struct spw_io_list *list, struct spw_io_slot *slot)
{
    slot->next = NULL;
    if (list->last)
        list->last->next = slot;
    else
        list->first = slot;
    list->last = slot;
}

static struct spw_io_slot *take_first(struct spw_io_list *list)
{
    struct spw_io_slot *slot = list->first;
    if (!slot)
        return NULL;
    list->first = slot->next;
    if (!list->first)
        list->last = NULL;
    return slot;
}

int spw_io_core_init(struct spw_io_core *core, const struct spw_io_config *config)
{
    *core = (struct spw_io_core){
        .depth = config->depth, .wake = config->wake, .wake_ctx = config->wake_ctx};
    if (config->depth == 0 || config->depth > SPW_IO_DEPTH_MAX)
        return -EINVAL;
    uint32_t slots = config->depth * SPW_IO_WAITING;
    core->slot = calloc(slots, sizeof *core->slot);
    if (!core->slot)
        return -ENOMEM;
    for (uint32_t i = 0; i < slots; i++)
        append(&core->free, &core->slot[i]);
    pthread_mutex_init(&core->lock, NULL);
    pthread_cond_init(&core->more, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&core->left, &clock);
    pthread_condattr_destroy(&clock);
    return 0;
}

void spw_io_core_fini(struct spw_io_core *core)
{
    if (!core->slot)
        return;
    pthread_cond_destroy(&core->left);
    pthread_cond_destroy(&core->more);
    pthread_mutex_destroy(&core->lock);
    free(core->slot);
    core->slot = NULL;
}

/* ---- threads --------------------------------------------------------------------------------- */

static struct spw_io_slot *take_any(struct spw_io_core *core)
{
    struct spw_io_slot *slot = core->ring_takes ? NULL : take_first(&core->wait[1]);
    if (!slot)
        slot = take_first(&core->calls);
    return slot || core->ring_takes ? slot : take_first(&core->wait[0]);
}

static void *carry_out(void *arg)
{
    struct spw_io_core *core = arg;
    pthread_mutex_lock(&core->lock);
    while (!core->stopping) {
        struct spw_io_slot *slot = take_any(core);
        if (!slot) {
            pthread_cond_wait(&core->more, &core->lock);
            continue;
        }
        pthread_mutex_unlock(&core->lock);
        if (slot->io.op == SPW_IO_WRITE)
            spw_io_core_sum(slot);
        spw_io_core_end(core, slot, spw_io_core_perform(&slot->io));
        pthread_mutex_lock(&core->lock);
    }
    pthread_mutex_unlock(&core->lock);
    spw_io_core_leave(core);
    return NULL;
}

int spw_io_core_run(struct spw_io_core *core, void *(*run)(void *arg), void *arg)
{
    sigset_t quiet, before;
    int rc = ECANCELED;
    sigfillset(&quiet);
    sigdelset(&quiet, SIGSEGV); /* what a thread does itself stays its own */
    sigdelset(&quiet, SIGBUS);
    sigdelset(&quiet, SIGILL);
    sigdelset(&quiet, SIGFPE);
    sigdelset(&quiet, SIGSYS);
    pthread_mutex_lock(&core->lock);
    if (!core->stopping && core->threads < SPW_IO_THREADS_MAX) {
        pthread_sigmask(SIG_BLOCK, &quiet, &before);
        rc = pthread_create(&core->thread[core->threads], NULL, run, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rc == 0) {
        core->threads++;
        core->running++;
    }
    pthread_mutex_unlock(&core->lock);
    return -rc;
}

void spw_io_core_leave(struct spw_io_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->running--;
    pthread_cond_signal(&core->left);
    pthread_mutex_unlock(&core->lock);
}

int spw_io_core_start(struct spw_io_core *core, uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = spw_io_core_run(core, carry_out, core);
    return rc;
}

void spw_io_core_end_soon(struct spw_io_core *core)
{
    pthread_mutex_lock(&core->lock);
    core->stopping = true;
    pthread_cond_broadcast(&core->more);
    pthread_mutex_unlock(&core->lock);
}

int spw_io_core_stop(struct spw_io_core *core, uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    int rc = 0;
    spw_io_core_end_soon(core);
    pthread_mutex_lock(&core->lock);
    while (core->running != 0 && rc == 0)
        rc = pthread_cond_timedwait(&core->left, &core->lock, &until);
    bool hangs = core->running != 0;
    pthread_mutex_unlock(&core->lock);
    for (uint32_t i = 0; i < core->threads; i++) {
        if (hangs)
            pthread_detach(core->thread[i]);
        else
            pthread_join(core->thread[i], NULL);
    }
    return hangs ? -ETIMEDOUT : 0;
}

/* ---- transfers ------------------------------------------------------------------------------- */

int spw_io_core_push(struct spw_io_core *core, const struct spw_io *io)
{
    struct spw_io_slot *slot = take_first(&core->free);
    if (!slot)
        return -EAGAIN;
    slot->io = *io;
    slot->end = (struct spw_io_end){.tag = io->tag};
    if (io->op == SPW_IO_CALL || io->op == SPW_IO_SYNC)
        append(&core->calls, slot);
    else
        append(&core->wait[io->urgent], slot);
    return 0;
}

struct spw_io_slot *spw_io_core_take(struct spw_io_core *core)
{
    struct spw_io_slot *slot = take_first(&core->wait[1]);
    return slot ? slot : take_first(&core->wait[0]);
}

void spw_io_core_sum(struct spw_io_slot *slot)
{
    if (slot->io.sum_bytes != 0)
        slot->end.sum = XXH3_64bits(slot->io.sum_base, slot->io.sum_bytes);
}

void spw_io_core_end(struct spw_io_core *core, struct spw_io_slot *slot, int64_t result)
{
    slot->end.result = result;
    if (slot->io.op == SPW_IO_READ && result > 0 && (uint64_t)result == slot->io.bytes)
        spw_io_core_sum(slot);
    pthread_mutex_lock(&core->lock);
    append(&core->done, slot);
    /* [EN-1] release: a poll that sees the count finds the end behind the lock */
    spw_store_release(&core->done_count, spw_load_relaxed(&core->done_count) + 1);
    bool wake = core->wake && !core->stopping; /* who closes needn't be woken, and may be gone */
    pthread_mutex_unlock(&core->lock);
    if (wake)
        core->wake(core->wake_ctx);
}

int64_t spw_io_core_perform(const struct spw_io *io)
{
    uint64_t bytes = io->bytes < SPW_IO_BYTES_MAX ? io->bytes : SPW_IO_BYTES_MAX;
    int64_t result;
    do {
        switch (io->op) {
        case SPW_IO_READ:
            result = pread(io->fd, io->buffer, bytes, (off_t)io->offset);
            break;
        case SPW_IO_WRITE:
            result = pwrite(io->fd, io->buffer, bytes, (off_t)io->offset);
            break;
        case SPW_IO_SYNC:
            result = fdatasync(io->fd);
            break;
        default:
            return io->call(io->arg);
        }
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : result;
}

int spw_io_core_poll(struct spw_io_core *core, struct spw_io_end *out, int max)
{
    int count = 0;
    /* [EN-1] acquire: ends counted are in the list; the lock would do, but costs an idle poll */
    if (spw_load_acquire(&core->done_count) == 0)
        return 0;
    pthread_mutex_lock(&core->lock);
    while (count < max && core->done.first) {
        struct spw_io_slot *slot = take_first(&core->done);
        out[count++] = slot->end;
        append(&core->free, slot);
    }
    /* relaxed: under the lock, as all who write it */
    spw_store_relaxed(&core->done_count, spw_load_relaxed(&core->done_count) - (uint32_t)count);
    pthread_mutex_unlock(&core->lock);
    return count;
}

void spw_io_core_mode(struct spw_io_core *core, struct spw_io_mode *out)
{
    pthread_mutex_lock(&core->lock);
    *out = core->mode;
    pthread_mutex_unlock(&core->lock);
}
