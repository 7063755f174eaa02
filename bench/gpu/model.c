/* See model.h. */
#include "bench/gpu/model.h"

#include <stdlib.h>
#include <string.h>

#include "shm/process.h"

const char *check_layout_name(enum check_layout layout)
{
    static const char *const names[CHECK_LAYOUTS] = {"block-first", "K/V-first", "cross-layer"};
    return names[layout];
}

static void add_tensor(struct check_kv *kv, const struct check_shape *shape, uint64_t part_bytes,
                       uint32_t parts)
{
    kv->tensor[kv->tensors++] = (struct spw_kv_tensor_record){
        .offset = kv->bytes,
        .block_stride = part_bytes,
        .part_stride = part_bytes * shape->blocks,
        .part_bytes = (uint32_t)part_bytes,
        .parts = parts,
        .blocks = shape->blocks,
    };
    kv->bytes += part_bytes * parts * shape->blocks + shape->gap_bytes;
    kv->block_bytes += part_bytes * parts;
}

void check_kv_lay(const struct check_shape *shape, struct check_kv *out)
{
    memset(out, 0, sizeof *out);
    out->bytes = shape->gap_bytes;
    out->blocks = shape->blocks;
    if (shape->layout == CHECK_CROSS_LAYER)
        add_tensor(out, shape, 2ull * shape->layers * shape->part_bytes, 1);
    for (uint32_t l = 0; l < shape->layers && shape->layout == CHECK_BLOCK_FIRST; l++)
        add_tensor(out, shape, 2ull * shape->part_bytes, 1);
    for (uint32_t l = 0; l < shape->layers && shape->layout == CHECK_KV_FIRST; l++)
        add_tensor(out, shape, shape->part_bytes, 2);
}

/* Tensors, of each its parts, of each part the blocks one behind the other. */
static void each_part(const struct check_kv *kv, uint8_t *memory, const uint32_t *blocks,
                      uint32_t count, uint8_t *slot, bool gather)
{
    for (uint32_t t = 0; t < kv->tensors; t++) {
        const struct spw_kv_tensor_record *tensor = &kv->tensor[t];
        for (uint32_t p = 0; p < tensor->parts; p++)
            for (uint32_t b = 0; b < count; b++) {
                uint8_t *at = memory + tensor->offset + blocks[b] * tensor->block_stride +
                              p * tensor->part_stride;
                memcpy(gather ? slot : at, gather ? at : slot, tensor->part_bytes);
                slot += tensor->part_bytes;
            }
    }
}

void check_kv_gather(const struct check_kv *kv, const uint8_t *memory, const uint32_t *blocks,
                     uint32_t count, uint8_t *slot)
{
    each_part(kv, (uint8_t *)memory, blocks, count, slot, true);
}

void check_kv_scatter(const struct check_kv *kv, uint8_t *memory, const uint32_t *blocks,
                      uint32_t count, const uint8_t *slot)
{
    each_part(kv, memory, blocks, count, (uint8_t *)slot, false);
}

struct spw_kv_record *check_kv_record(const struct check_kv *kv, const struct check_source *source)
{
    uint32_t fences = source->fence ? 1 : 0;
    struct spw_kv_record *record = calloc(1, spw_kv_record_bytes(1, kv->tensors, fences));
    if (!record)
        return NULL;
    *record = (struct spw_kv_record){
        .memories = 1,
        .tensors = kv->tensors,
        .fences = fences,
        .pid = source->pid,
        .start_ticks = spw_process_start_ticks((pid_t)source->pid),
    };
    memcpy(record->gpu, source->gpu, sizeof record->gpu);
    struct spw_kv_memory_record *memory = (struct spw_kv_memory_record *)(record + 1);
    *memory = (struct spw_kv_memory_record){.bytes = kv->bytes, .kind = source->kind};
    memcpy(memory->handle, source->memory, sizeof memory->handle);
    memcpy(memory + 1, kv->tensor, kv->tensors * sizeof kv->tensor[0]);
    if (fences)
        memcpy((struct spw_kv_tensor_record *)(memory + 1) + kv->tensors, source->fence,
               SPW_IPC_BYTES);
    return record;
}
