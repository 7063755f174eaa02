/* See stub_kv.h. */
#include "tests/support/stub_kv.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct stub_kv stub_kv;

static int take(struct spw_copier *copier, uint32_t client, const struct spw_kv_record *record,
                struct spw_kv_shape *out_shape, struct spw_error *err)
{
    stub_kv.open[client] = true;
    stub_kv.seen = *record;
    memcpy(stub_kv.bytes, record,
           spw_kv_record_bytes(record->memories, record->tensors, record->fences));
    if (stub_kv.steps > 0) {
        stub_kv.steps--;
        return -EAGAIN;
    }
    if (stub_kv.refusal < 0) {
        stub_kv.open[client] = false;
        return spw_fail(err, stub_kv.refusal, "memory 0: refused");
    }
    *out_shape = (struct spw_kv_shape){.block_bytes = {RIG_BLOCK_BYTES, RIG_BLOCK_BYTES / 2},
                                       .blocks = {STUB_KV_BLOCKS, STUB_KV_BLOCKS},
                                       .fences = record->fences};
    return 0;
}

static void let_go(struct spw_copier *copier, uint32_t client)
{
    stub_kv.closes++;
    stub_kv.open[client] = false;
}

static int fired(struct spw_copier *copier, uint32_t client, uint32_t fence)
{
    assert(stub_kv.open[client]);
    if (++stub_kv.asked == stub_kv.fires_at)
        stub_kv.fired[client][fence] = stub_kv.fires_next;
    return stub_kv.fired[client][fence];
}

static int submit(struct spw_copier *copier, const struct spw_copy *copy)
{
    struct spw_copy mine = *copy;
    if (stub_kv.lost)
        return -ENODEV;
    if (!copy->kv) {
        assert(stub_kv.open[copy->client]);
        mine.kv = stub_kv.kv[copy->client];
        mine.kv_block_bytes = RIG_BLOCK_BYTES;
    }
    int status = stub_kv.host.ops->submit(copier, &mine);
    if (status == 0 && !copy->kv)
        stub_kv.order[stub_kv.copies++ % 64] = copy->blocks[0];
    return status;
}

static int health(struct spw_copier *copier)
{
    return stub_kv.lost ? -ENODEV : 0;
}

void stub_kv_reset(void)
{
    memset(&stub_kv, 0, sizeof stub_kv);
}

struct spw_copier_handle stub_kv_wrap(struct spw_copier_handle host)
{
    static struct spw_copier_ops ops;
    stub_kv.host = host;
    ops = *host.ops;
    ops.submit = submit;
    ops.health = health;
    ops.kv_open = take;
    ops.kv_close = let_go;
    ops.fence_fired = fired;
    return (struct spw_copier_handle){.ops = &ops, .copier = host.copier};
}
