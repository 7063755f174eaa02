/* See stub_cold.h. Single-threaded. */
#include "tests/support/stub_cold.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "shm/layout.h"

static uint32_t limit(const struct spw_cold *stub)
{
    return stub->capacity ? stub->capacity : STUB_CHUNKS;
}

static void tell(struct spw_cold *stub, enum spw_cold_event_kind kind, uint32_t id, int status,
                 void *tag)
{
    assert(stub->events < 256);
    stub->event[stub->events++] =
        (struct spw_cold_event){.kind = kind, .id = id, .status = status, .tag = tag};
}

static void lose(struct spw_cold *stub, uint32_t id, enum spw_cold_why why)
{
    stub->chunk[id].held = false;
    stub->held--;
    stub->listener.gone(stub->listener.ctx, id, why);
}

/* A FREE id; the oldest goes for it. */
static int64_t take_id(struct spw_cold *stub)
{
    uint32_t oldest = UINT32_MAX;
    for (uint32_t id = 0; id < limit(stub); id++) {
        bool busy = false;
        for (int t = 0; t < 64; t++)
            busy = busy || (stub->transfer[t].open && stub->transfer[t].id == id);
        if (busy)
            continue;
        if (!stub->chunk[id].held)
            return id;
        if (oldest == UINT32_MAX || stub->chunk[id].age < stub->chunk[oldest].age)
            oldest = id;
    }
    if (oldest == UINT32_MAX)
        return -ENOSPC;
    lose(stub, oldest, SPW_COLD_EVICTED);
    return oldest;
}

static struct stub_transfer *idle(struct spw_cold *stub, bool put)
{
    struct stub_transfer *found = NULL;
    uint32_t open = 0, most = put && stub->puts_max ? stub->puts_max : 32;
    for (int t = 0; t < 64; t++) {
        open += stub->transfer[t].open && stub->transfer[t].put == put;
        found = stub->transfer[t].open ? found : &stub->transfer[t];
    }
    return open < most ? found : NULL;
}

static void note(struct spw_cold *stub, char what)
{
    uint32_t n = stub->puts + stub->gets;
    if (n < sizeof stub->order - 1)
        stub->order[n] = what;
}

static int stub_put(struct spw_cold *stub, const struct spw_cold_put *put)
{
    struct stub_transfer *transfer = idle(stub, true);
    if (stub->down || stub->put_refusal)
        return stub->down ? -EIO : stub->put_refusal;
    if (!transfer)
        return -EAGAIN;
    int64_t id = take_id(stub);
    if (id < 0)
        return (int)id;
    assert(put->bytes <= STUB_BYTES);
    uint64_t start = stub->free_ns > stub->now_ns ? stub->free_ns : stub->now_ns;
    stub->free_ns = start + stub->put_ns;
    struct stub_chunk *chunk = &stub->chunk[id];
    *chunk = (struct stub_chunk){.name = put->name, .bytes = put->bytes, .age = ++stub->age};
    *transfer = (struct stub_transfer){.open = true,
                                       .put = true,
                                       .id = (uint32_t)id,
                                       .due_ns = stub->free_ns,
                                       .payload = (uint8_t *)put->payload,
                                       .tag = put->tag};
    note(stub, 'p');
    stub->summed = put->summed;
    stub->sum = put->sum;
    stub->puts++;
    stub->in_flight++;
    return 0;
}

static int stub_get(struct spw_cold *stub, uint32_t id, uint8_t *payload, uint64_t bytes, void *tag)
{
    struct stub_transfer *transfer = idle(stub, false);
    if (stub->down)
        return -EIO;
    if (id >= STUB_CHUNKS || !stub->chunk[id].held || stub->chunk[id].bytes != bytes)
        return -ENOENT;
    if (!transfer)
        return -EAGAIN;
    *transfer = (struct stub_transfer){.open = true,
                                       .id = id,
                                       .due_ns = stub->now_ns + stub->get_ns,
                                       .payload = payload,
                                       .tag = tag};
    note(stub, 'g');
    stub->gets++;
    stub->in_flight++;
    return 0;
}

static void end(struct spw_cold *stub, struct stub_transfer *transfer)
{
    struct stub_chunk *chunk = &stub->chunk[transfer->id];
    int status = transfer->put ? stub->put_status : stub->get_status;
    transfer->open = status == -ETIMEDOUT;
    stub->in_flight -= !transfer->open;
    if (transfer->put && status == 0) {
        memcpy(chunk->payload, transfer->payload, chunk->bytes);
        chunk->held = true;
        stub->held++;
    } else if (!transfer->put && status == 0) {
        memcpy(transfer->payload, chunk->payload, chunk->bytes);
    } else if (!transfer->put) {
        lose(stub, transfer->id, SPW_COLD_FAILED);
    }
    if (transfer->open)
        transfer->due_ns = UINT64_MAX;
    tell(stub, transfer->put ? SPW_COLD_PUT : SPW_COLD_GET, transfer->id, status, transfer->tag);
}

static int stub_poll(struct spw_cold *stub, uint64_t now_ns, struct spw_cold_event *out, int max)
{
    stub->now_ns = now_ns;
    for (; stub->found < limit(stub) && stub->events < 200; stub->found++)
        if (stub->chunk[stub->found].held)
            tell(stub, SPW_COLD_FOUND, stub->found, 0, NULL);
    bool ends = !stub->never && !spw_load_acquire(&stub->held_back);
    for (int t = 0; ends && t < 64; t++)
        if (stub->transfer[t].open && stub->transfer[t].due_ns <= now_ns)
            end(stub, &stub->transfer[t]);
    int count = stub->events < (uint32_t)max ? (int)stub->events : max;
    memcpy(out, stub->event, (size_t)count * sizeof *out);
    stub->events -= (uint32_t)count;
    memmove(stub->event, stub->event + count, stub->events * sizeof *out);
    return count;
}

void stub_cold_release_all(struct spw_cold *stub)
{
    for (int t = 0; t < 64; t++) {
        if (!stub->transfer[t].open || stub->transfer[t].due_ns != UINT64_MAX)
            continue;
        stub->transfer[t].open = false;
        stub->in_flight--;
        tell(stub, SPW_COLD_RELEASED, stub->transfer[t].id, 0, stub->transfer[t].tag);
    }
}

static void stub_drop(struct spw_cold *stub, uint32_t id)
{
    stub->held -= stub->chunk[id].held;
    stub->chunk[id].held = false;
}

static void stub_touch(struct spw_cold *stub, uint32_t id)
{
    stub->chunk[id].age = ++stub->age;
}

static void stub_demote(struct spw_cold *stub, uint32_t id)
{
    stub->chunk[id].age = 0;
}

static int stub_name(struct spw_cold *stub, uint32_t id, struct spw_cold_name *out_name,
                     uint64_t *out_bytes)
{
    if (id >= STUB_CHUNKS || !stub->chunk[id].held)
        return -ENOENT;
    *out_name = stub->chunk[id].name;
    *out_bytes = stub->chunk[id].bytes;
    return 0;
}

static int stub_reset(struct spw_cold *stub, const uint64_t space[2], void *tag)
{
    for (uint32_t id = 0; id < limit(stub); id++)
        if (stub->chunk[id].held && (!space || memcmp(stub->chunk[id].name.space, space, 16) == 0))
            lose(stub, id, SPW_COLD_OLD);
    if (stub->down)
        return -EIO;
    stub->reset_tag = tag;
    if (!stub->reset_waits)
        tell(stub, SPW_COLD_RESET, 0, 0, tag);
    return 0;
}

void stub_cold_end_reset(struct spw_cold *stub, void *tag)
{
    tell(stub, SPW_COLD_RESET, 0, 0, tag);
}

static uint64_t stub_due(struct spw_cold *stub, uint64_t now_ns)
{
    uint64_t due = stub->events ? now_ns : UINT64_MAX;
    bool ends = !spw_load_acquire(&stub->held_back);
    for (int t = 0; ends && t < 64; t++)
        if (stub->transfer[t].open && stub->transfer[t].due_ns < due)
            due = stub->transfer[t].due_ns;
    return due;
}

static void stub_gauge(struct spw_cold *stub, struct spw_cold_gauge *out)
{
    *out = (struct spw_cold_gauge){.capacity_bytes = (uint64_t)limit(stub) * STUB_BYTES,
                                   .used_bytes = (uint64_t)stub->held * STUB_BYTES,
                                   .entries = stub->held,
                                   .leased = stub->in_flight,
                                   .evictable = stub->held,
                                   .state = stub->down ? SPW_TIER_DOWN : SPW_TIER_UP,
                                   .text = stub->down ? "told to be down" : ""};
}

static uint32_t stub_in_flight(struct spw_cold *stub)
{
    return stub->in_flight;
}

static int stub_close(struct spw_cold *stub, uint64_t limit_ns)
{
    (void)limit_ns;
    if (stub->close_status < 0)
        return stub->close_status;
    memset(stub->transfer, 0, sizeof stub->transfer);
    stub->in_flight = 0;
    stub->events = 0;
    return 0;
}

static void stub_share(struct spw_cold *stub, const uint64_t space[2],
                       const struct spw_share *share)
{
    (void)space;
    stub->shares++;
    stub->share = *share;
}

int stub_cold_open(void *ctx, const struct spw_cold_listener *listener, void (*wake)(void *ctx),
                   void *wake_ctx, struct spw_cold_handle *out_cold, struct spw_error *err)
{
    static const struct spw_cold_ops ops = {
        .put = stub_put,
        .get = stub_get,
        .drop = stub_drop,
        .touch = stub_touch,
        .demote = stub_demote,
        .name = stub_name,
        .reset = stub_reset,
        .share = stub_share,
        .poll = stub_poll,
        .due_ns = stub_due,
        .gauge = stub_gauge,
        .in_flight = stub_in_flight,
        .close = stub_close,
    };
    struct spw_cold *stub = ctx;
    if (stub->absent)
        return spw_fail(err, -EBUSY, "somebody else has it");
    stub->listener = *listener;
    stub->wake = wake;
    stub->wake_ctx = wake_ctx;
    stub->found = 0;
    stub->opens++;
    *out_cold = (struct spw_cold_handle){.ops = &ops, .cold = stub};
    return 0;
}
