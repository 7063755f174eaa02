/*
 * Copy engine over plain memory: two queues in submit order, memcpy when a copy is due. All state
 * is private to the worker's process; a copy ends with it.
 */
#include "tier/host_copier.h"

#include "shm/base.h"

#include <stdlib.h>
#include <string.h>

struct host_copy {
    struct spw_copy copy;
    uint64_t end_ns; /* UINT64_MAX: never */
    int status;      /* of the end, by the table of faults */
};

struct stream {
    struct host_copy *ring; /* limit entries, oldest first from head */
    uint32_t limit;
    uint32_t head;
    uint32_t count;
    uint64_t submitted;
    uint64_t paced_ns;  /* when the copy before this one was done by the rate          */
    uint64_t remainder; /* of the division by the rate, so that rounding never adds up */
};

struct spw_copier {
    struct spw_host_copier_config config;
    struct stream stream[2];
};

/* When the rate has the copy done. A stream that was idle starts anew at the offer. */
static uint64_t pace(struct stream *stream, uint64_t rate_bytes, const struct spw_copy *copy)
{
    if (rate_bytes == 0)
        return copy->offered_ns;
    if (stream->paced_ns < copy->offered_ns) {
        stream->paced_ns = copy->offered_ns;
        stream->remainder = 0;
    }
    __uint128_t work = (__uint128_t)copy->nominal_bytes * 1000000000u + stream->remainder;
    __uint128_t end_ns = stream->paced_ns + work / rate_bytes;
    stream->remainder = (uint64_t)(work % rate_bytes);
    stream->paced_ns = end_ns < UINT64_MAX ? (uint64_t)end_ns : UINT64_MAX - 1;
    return stream->paced_ns;
}

static bool nth(uint64_t number, uint64_t every)
{
    return every != 0 && number % every == 0;
}

static int host_submit(struct spw_copier *copier, const struct spw_copy *copy)
{
    struct stream *stream = &copier->stream[copy->kind];
    const struct spw_host_faults *faults = &copier->config.faults;
    if (stream->count == stream->limit)
        return -EAGAIN;
    struct host_copy *entry = &stream->ring[(stream->head + stream->count++) % stream->limit];
    entry->copy = *copy;
    entry->end_ns =
        pace(stream, copier->config.rate_bytes[copy->kind], copy) + faults->delay_ns[copy->kind];
    stream->submitted++;
    entry->status =
        nth(stream->submitted, faults->fail_every[copy->kind]) ? faults->fail_status : 0;
    if (nth(stream->submitted, faults->stick_every[copy->kind]))
        entry->end_ns = UINT64_MAX;
    return 0;
}

void spw_host_copy_pieces(const struct spw_copy *copy)
{
    for (uint32_t i = 0; i < copy->pieces; i++) {
        uint8_t *block = copy->kv + copy->blocks[i] * copy->kv_block_bytes;
        uint8_t *part = copy->slot + (uint64_t)i * copy->piece_bytes;
        if (copy->kind == SPW_COPY_STORE)
            memcpy(part, block, copy->piece_bytes);
        else
            memcpy(block, part, copy->piece_bytes);
    }
}

static bool due(const struct stream *stream, uint64_t now_ns)
{
    return stream->count != 0 && stream->ring[stream->head].end_ns != UINT64_MAX &&
           stream->ring[stream->head].end_ns <= now_ns;
}

static int host_poll(struct spw_copier *copier, uint64_t now_ns, struct spw_copy_end *out, int max)
{
    static const enum spw_copy_kind order[] = {SPW_COPY_LOAD, SPW_COPY_STORE};
    int ended = 0;
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &copier->stream[order[i]];
        while (ended < max && due(stream, now_ns)) {
            struct host_copy *entry = &stream->ring[stream->head];
            if (entry->status == 0)
                spw_host_copy_pieces(&entry->copy);
            out[ended++] = (struct spw_copy_end){.tag = entry->copy.tag, .status = entry->status};
            stream->head = (stream->head + 1) % stream->limit;
            stream->count--;
        }
    }
    return ended;
}

static uint64_t host_due_ns(struct spw_copier *copier, uint64_t now_ns)
{
    uint64_t earliest = UINT64_MAX;
    for (int kind = 0; kind < 2; kind++) {
        const struct stream *stream = &copier->stream[kind];
        if (stream->count != 0 && stream->ring[stream->head].end_ns < earliest)
            earliest = stream->ring[stream->head].end_ns;
    }
    return earliest <= now_ns ? 0 : earliest;
}

static void host_close(struct spw_copier *copier)
{
    if (!copier)
        return;
    free(copier->stream[0].ring);
    free(copier->stream[1].ring);
    free(copier);
}

static const struct spw_copier_ops host_ops = {
    .submit = host_submit,
    .poll = host_poll,
    .due_ns = host_due_ns,
    .close = host_close,
};

int spw_host_copier_open(const struct spw_host_copier_config *config,
                         struct spw_copier_handle *out_handle)
{
    struct spw_copier *copier = calloc(1, sizeof(*copier));
    if (!copier)
        return -ENOMEM;
    copier->config = *config;
    for (int kind = 0; kind < 2; kind++) {
        struct stream *stream = &copier->stream[kind];
        stream->limit = config->in_flight[kind];
        if (stream->limit == 0) {
            host_close(copier);
            return -EINVAL;
        }
        stream->ring = calloc(stream->limit, sizeof(*stream->ring));
        if (!stream->ring) {
            host_close(copier);
            return -ENOMEM;
        }
    }
    *out_handle = (struct spw_copier_handle){.ops = &host_ops, .copier = copier};
    return 0;
}
