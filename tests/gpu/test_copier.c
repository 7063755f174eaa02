/* The CUDA copier on the stand-in driver: every layout and every way to copy, order, limits, errors. */
#include "tests/gpu/gpu_rig.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(copier, .timeout = 30);

#define CHUNK 8u /* blocks */
#define ALL   (1u << 30)

/* ---- what must be where ---------------------------------------------------------------------- */

static uint8_t tensor_byte(uint32_t t, uint64_t at)
{
    return (uint8_t)(at * 7 + at / 256 * 13 + t * 101 + 1);
}

static void fill_tensors(void)
{
    for (uint32_t t = 0; t < rig.kv.record.tensors; t++) {
        uint8_t *bytes = malloc(rig.memory_bytes[t]);
        for (uint64_t i = 0; i < rig.memory_bytes[t]; i++)
            bytes[i] = tensor_byte(t, i);
        gpu_rig_write(t, bytes);
        free(bytes);
    }
}

/* Said anew from the header's words, byte by byte: tensors, of each its parts, of each the blocks. */
static void each_byte(uint32_t group, const uint32_t *blocks, uint32_t count,
                      void (*visit)(uint32_t t, uint64_t at, uint64_t slot_off))
{
    uint64_t slot_off = 0;
    for (uint32_t t = 0; t < rig.kv.record.tensors; t++) {
        const struct spw_kv_tensor_record *tensor = &rig.kv.tensor[t];
        if (tensor->group != group)
            continue;
        for (uint32_t p = 0; p < tensor->parts; p++)
            for (uint32_t b = 0; b < count; b++)
                for (uint32_t i = 0; i < tensor->part_bytes; i++)
                    visit(t,
                          tensor->offset + blocks[b] * tensor->block_stride +
                              p * tensor->part_stride + i,
                          slot_off++);
    }
}

static const uint8_t *seen_slot;
static uint64_t wrong, visited;

static void compare_slot(uint32_t t, uint64_t at, uint64_t slot_off)
{
    visited++;
    wrong += seen_slot[slot_off] != tensor_byte(t, at);
}

static uint8_t *want[RIG_TENSORS];

static void expect_byte(uint32_t t, uint64_t at, uint64_t slot_off)
{
    want[t][at] = seen_slot[slot_off];
}

/* Distinct ids in random order; sorted, some are neighbours. */
static void choose_blocks(uint32_t *blocks, uint32_t count, bool in_order)
{
    uint32_t all[RIG_BLOCKS];
    for (uint32_t i = 0; i < RIG_BLOCKS; i++)
        all[i] = i;
    for (uint32_t i = RIG_BLOCKS - 1; i > 0; i--) {
        uint32_t j = (uint32_t)rand() % (i + 1), kept = all[i];
        all[i] = all[j];
        all[j] = kept;
    }
    memcpy(blocks, all, count * sizeof *blocks);
    for (uint32_t i = 0; in_order && i < count; i++)
        blocks[i] = i + 3;
}

static void store(uint32_t group, uint32_t slot, const uint32_t *blocks, uint32_t count)
{
    struct spw_copy_end end;
    int tag;
    memset(gpu_rig_slot(slot), 0xee, RIG_SLOT_BYTES);
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 5, group, slot, blocks, count, &tag), 0);
    cr_assert(gpu_rig_end(&end));
    cr_expect_eq(end.status, 0);
    cr_expect_eq(end.tag, &tag);
    seen_slot = gpu_rig_slot(slot);
    wrong = visited = 0;
    each_byte(group, blocks, count, compare_slot);
    cr_expect_eq(wrong, 0, "%lu of %lu bytes", (unsigned long)wrong, (unsigned long)visited);
    cr_expect_eq(visited, count * rig.shape.block_bytes[group]);
    for (uint64_t i = visited; i < RIG_SLOT_BYTES; i++)
        cr_assert_eq(seen_slot[i], 0xee, "beyond the part, at %lu", (unsigned long)i);
}

/* Into poisoned blocks: what was loaded is there, and nothing else has changed. */
static void load(uint32_t group, uint32_t slot, const uint32_t *blocks, uint32_t count)
{
    struct spw_copy_end end;
    uint8_t *got;
    for (uint64_t i = 0; i < RIG_SLOT_BYTES; i++)
        gpu_rig_slot(slot)[i] = (uint8_t)rand();
    seen_slot = gpu_rig_slot(slot);
    for (uint32_t t = 0; t < rig.kv.record.tensors; t++) {
        want[t] = malloc(rig.memory_bytes[t]);
        memset(want[t], 0x5a, rig.memory_bytes[t]);
        gpu_rig_write(t, want[t]);
    }
    each_byte(group, blocks, count, expect_byte);
    cr_assert_eq(gpu_rig_submit(SPW_COPY_LOAD, 5, group, slot, blocks, count, NULL), 0);
    cr_assert(gpu_rig_end(&end));
    cr_expect_eq(end.status, 0);
    for (uint32_t t = 0; t < rig.kv.record.tensors; t++) {
        got = malloc(rig.memory_bytes[t]);
        gpu_rig_read(t, got);
        cr_expect_eq(memcmp(got, want[t], rig.memory_bytes[t]), 0, "tensor %u", t);
        free(got);
        free(want[t]);
    }
}

/* ---- layouts --------------------------------------------------------------------------------- */

struct way {
    uint32_t kernel_below;
    int version;
    char hidden[32];
};

static struct way ways[] = {{0, 13000, ""},
                            {0, 12080, ""},
                            {0, 12040, ""},
                            {0, 13000, "cuMemcpyBatchAsync"},
                            {ALL, 13000, ""}};

static void open_way(const struct way *way)
{
    char version[16];
    snprintf(version, sizeof version, "%d", way->version);
    setenv("FAKE_CUDA_VERSION", version, 1);
    setenv("FAKE_CUDA_HIDE", way->hidden, 1);
    gpu_rig_open(way->kernel_below);
}

/* Group 0 lies block-first, group 1 with K and V apart, group 2 all layers together. */
static void make_layouts(uint32_t odd)
{
    struct spw_error err;
    gpu_rig_tensor(0, 1, 512 + odd, false);
    gpu_rig_tensor(1, 2, 256 + odd, true);
    gpu_rig_tensor(0, 1, 1024, false);
    gpu_rig_tensor(1, 2, 128, true);
    gpu_rig_tensor(2, 1, 4096, false);
    cr_assert_eq(gpu_rig_register(5, &err), 0, "%s", err.text);
    cr_expect_eq(rig.shape.block_bytes[0], 1536 + odd);
    cr_expect_eq(rig.shape.block_bytes[1], 768 + 2 * odd);
    cr_expect_eq(rig.shape.block_bytes[2], 4096);
    cr_expect_eq(rig.shape.block_bytes[3], 0);
    cr_expect_eq(rig.shape.blocks[1], RIG_BLOCKS);
}

ParameterizedTestParameters(copier, every_layout_every_way)
{
    return cr_make_param_array(struct way, ways, sizeof ways / sizeof ways[0]);
}

ParameterizedTest(struct way *way, copier, every_layout_every_way)
{
    uint32_t blocks[CHUNK];
    open_way(way);
    make_layouts(0);
    bool kernel = spw_load_relaxed(&rig.record.flags) & SPW_GPU_KERNEL;
    cr_expect_eq(kernel, way->kernel_below != 0);
    unsigned long launches = spw_load_relaxed(&rig.fake->launches),
                  batches = spw_load_relaxed(&rig.fake->batches);
    for (uint32_t round = 0; round < 6; round++)
        for (uint32_t group = 0; group < 3; group++) {
            choose_blocks(blocks, CHUNK, round == 0);
            fill_tensors();
            store(group, round, blocks, CHUNK);
            load(group, round, blocks, CHUNK);
        }
    cr_expect_eq(spw_load_relaxed(&rig.fake->launches) != launches, kernel);
    cr_expect_eq(spw_load_relaxed(&rig.fake->batches) != batches,
                 !kernel && way->version >= 12080 && way->hidden[0] == '\0');
    gpu_rig_close();
}

Test(copier, odd_sizes_go_by_the_kernel_byte_by_byte)
{
    uint32_t blocks[CHUNK];
    gpu_rig_open(ALL);
    make_layouts(3);
    choose_blocks(blocks, CHUNK, false);
    fill_tensors();
    store(1, 0, blocks, CHUNK);
    load(1, 0, blocks, CHUNK);
    cr_expect_gt(spw_load_relaxed(&rig.fake->launches), 0);
    gpu_rig_close();
}

Test(copier, neighbours_move_as_one_piece)
{
    uint32_t blocks[CHUNK];
    gpu_rig_open(0);
    make_layouts(0);
    fill_tensors();
    choose_blocks(blocks, CHUNK, true);
    unsigned long before = spw_load_relaxed(&rig.fake->copies);
    struct spw_copy_end end;
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 1, 0, blocks, CHUNK, NULL), 0);
    cr_assert(gpu_rig_end(&end));
    cr_expect_eq(spw_load_relaxed(&rig.fake->copies) - before, 4, "two tensors of two parts");
    gpu_rig_close();
}

/* ---- order and limits ------------------------------------------------------------------------ */

Test(copier, a_stream_takes_so_many_chunks_and_no_more)
{
    uint32_t blocks[CHUNK];
    struct spw_copy_end end;
    gpu_rig_open_with(0, 2);
    make_layouts(0);
    choose_blocks(blocks, CHUNK, true);
    spw_store_relaxed(&rig.fake->rate_bytes, 1 << 20); /* 12 ms a chunk */
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 0, i, blocks, CHUNK, NULL), 0);
    cr_expect_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 0, 2, blocks, CHUNK, NULL), -EAGAIN);
    cr_expect_eq(gpu_rig_submit(SPW_COPY_LOAD, 5, 0, 3, blocks, CHUNK, NULL), 0, "its own stream");
    cr_assert(gpu_rig_end(&end) && gpu_rig_end(&end) && gpu_rig_end(&end));
    cr_expect_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 0, 2, blocks, CHUNK, NULL), 0);
    cr_assert(gpu_rig_end(&end));
    gpu_rig_close();
}

Test(copier, CU_4_a_chunk_has_ended_only_when_its_copy_has)
{
    uint32_t blocks[CHUNK];
    struct spw_copy_end end;
    gpu_rig_open(0);
    make_layouts(0);
    fill_tensors();
    choose_blocks(blocks, CHUNK, true);
    uint64_t begin = spw_monotonic_ns();
    spw_store_relaxed(&rig.fake->rate_bytes, 200000); /* 12,288 bytes: 61 ms */
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 0, 0, blocks, CHUNK, NULL), 0);
    cr_expect_eq(rig.copier.ops->poll(rig.copier.copier, begin, &end, 1), 0);
    uint64_t due = rig.copier.ops->due_ns(rig.copier.copier, begin);
    cr_expect(due > begin && due < begin + 1000000, "looked at again soon, not at once");
    cr_assert(gpu_rig_end(&end));
    cr_expect_gt(spw_monotonic_ns() - begin, 55000000u);
    cr_expect_eq(rig.copier.ops->due_ns(rig.copier.copier, begin), UINT64_MAX);
    seen_slot = gpu_rig_slot(0);
    wrong = 0;
    each_byte(0, blocks, CHUNK, compare_slot);
    cr_expect_eq(wrong, 0);
    spw_store_relaxed(&rig.fake->rate_bytes, 0);
    gpu_rig_close();
}

Test(copier, a_load_overtakes_stores_that_were_submitted_before)
{
    uint32_t blocks[CHUNK];
    struct spw_copy_end end;
    int stores[8], first;
    gpu_rig_open(0);
    make_layouts(0);
    choose_blocks(blocks, CHUNK, true);
    spw_store_relaxed(&rig.fake->rate_bytes, 1 << 20);
    for (uint32_t i = 0; i < 8; i++)
        cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 0, i, blocks, CHUNK, &stores[i]), 0);
    cr_assert_eq(gpu_rig_submit(SPW_COPY_LOAD, 5, 1, 9, blocks, CHUNK, &first), 0);
    uint32_t before = 0;
    for (uint32_t i = 0; i < 9; i++) {
        cr_assert(gpu_rig_end(&end));
        if (end.tag == &first)
            before = i;
    }
    cr_expect_leq(before, 2);
    spw_store_relaxed(&rig.fake->rate_bytes, 0);
    gpu_rig_close();
}

Test(copier, loads_go_before_stores_by_the_priority_of_their_stream)
{
    uint32_t blocks[CHUNK];
    gpu_rig_open(0);
    make_layouts(0);
    fill_tensors();
    choose_blocks(blocks, CHUNK, true);
    store(0, 0, blocks, CHUNK);
    int64_t stores = (int64_t)spw_load_relaxed(&rig.fake->copied_at);
    struct spw_copy_end end;
    cr_assert_eq(gpu_rig_submit(SPW_COPY_LOAD, 5, 0, 0, blocks, CHUNK, NULL), 0);
    cr_assert(gpu_rig_end(&end));
    int64_t loads = (int64_t)spw_load_relaxed(&rig.fake->copied_at);
    cr_expect_lt(loads, stores, "the driver's greatest priority is its smallest number");
    gpu_rig_close();
}

Test(copier, one_registration_is_closed_while_another_ones_copies_are_on_their_way)
{
    uint32_t blocks[CHUNK];
    struct spw_copy_end end;
    struct spw_error err;
    gpu_rig_open(0);
    make_layouts(0);
    cr_assert_eq(gpu_rig_register(6, &err), 0, "%s", err.text);
    fill_tensors();
    choose_blocks(blocks, CHUNK, false);
    spw_store_relaxed(&rig.fake->rate_bytes, 200000); /* 12,288 bytes: 61 ms */
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 0, 0, blocks, CHUNK, NULL), 0);
    uint64_t begin = spw_monotonic_ns();
    rig.copier.ops->kv_close(rig.copier.copier, 6);
    cr_expect_lt(spw_monotonic_ns() - begin, 30000000u, "nobody's copy is waited for");
    cr_assert(gpu_rig_end(&end) && end.status == 0);
    seen_slot = gpu_rig_slot(0);
    wrong = 0;
    each_byte(0, blocks, CHUNK, compare_slot);
    cr_expect_eq(wrong, 0);
    spw_store_relaxed(&rig.fake->rate_bytes, 0);
    gpu_rig_close();
}

/* ---- fences ---------------------------------------------------------------------------------- */

static void make_fences(void)
{
    rig.kv.record.fences = RIG_FENCES;
    for (uint32_t f = 0; f < RIG_FENCES; f++) {
        cr_assert_eq(rig.driver->EventCreate(&rig.event[f], CU_EVENT_DISABLE_TIMING), 0);
        memcpy(rig.kv.fence[f], &rig.event[f], sizeof rig.event[f]);
    }
}

Test(copier, CU_4_a_fence_has_fired_once_what_was_before_it_has_happened)
{
    struct spw_error err;
    gpu_rig_open(0);
    gpu_rig_tensor(0, 1, 4096, false);
    make_fences();
    cr_assert_eq(gpu_rig_register(5, &err), 0, "%s", err.text);
    cr_expect_eq(rig.shape.fences, RIG_FENCES);
    const struct spw_copier_ops *ops = rig.copier.ops;
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 5, 0), 1, "never recorded");
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 5, RIG_FENCES), -EINVAL);
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 6, 0), -EINVAL, "nobody's");
    spw_store_relaxed(&rig.fake->rate_bytes, 1 << 20);
    uint8_t *bytes = calloc(1, rig.memory_bytes[0]); /* 96 KiB: 94 ms */
    cr_assert_eq(rig.driver->MemHostRegister(bytes, rig.memory_bytes[0], 0), 0);
    cr_assert_eq(rig.driver->MemcpyHtoDAsync(rig.memory[0], bytes, rig.memory_bytes[0], rig.engine),
                 0);
    cr_assert_eq(rig.driver->EventRecord(rig.event[0], rig.engine), 0);
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 5, 0), 0);
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 5, 1), 1, "another one");
    cr_assert_eq(rig.driver->StreamSynchronize(rig.engine), 0);
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 5, 0), 1);
    rig.driver->MemHostUnregister(bytes);
    free(bytes);
    gpu_rig_close();
}

/* ---- errors ---------------------------------------------------------------------------------- */

Test(copier, a_refused_chunk_fails_alone_and_nothing_leaks_into_the_next)
{
    uint32_t blocks[CHUNK];
    struct spw_copy_end end;
    setenv("FAKE_CUDA_HIDE", "cuMemcpyBatchAsync", 1);
    gpu_rig_open(0);
    make_layouts(0);
    fill_tensors();
    choose_blocks(blocks, CHUNK, false);
    for (uint32_t nth = 1; nth <= 2 * CHUNK; nth++) {
        char fault[64];
        snprintf(fault, sizeof fault, "MemcpyDtoHAsync:%u:1", nth);
        rig.fake->set_faults(fault);
        unsigned long before = spw_load_relaxed(&rig.fake->copies);
        int status = gpu_rig_submit(SPW_COPY_STORE, 5, 0, 0, blocks, CHUNK, NULL);
        cr_assert(status == 0 && gpu_rig_end(&end));
        if (end.status == 0)
            break; /* no so many pieces */
        cr_expect_eq(end.status, -EINVAL);
        cr_expect_eq(spw_load_relaxed(&rig.fake->copies) - before, nth - 1,
                     "what came before has ended");
        rig.fake->set_faults("");
        store(0, 1, blocks, CHUNK);
        cr_expect_eq(rig.copier.ops->health(rig.copier.copier), 0);
    }
    rig.fake->set_faults("");
    gpu_rig_close();
}

Test(copier, CU_5_after_a_sticky_error_everything_ends_and_health_says_so)
{
    uint32_t blocks[CHUNK];
    struct spw_copy_end end;
    struct spw_error err;
    gpu_rig_open(0);
    make_layouts(0);
    choose_blocks(blocks, CHUNK, true);
    rig.fake->set_faults("copy:3:700");
    spw_store_relaxed(&rig.fake->rate_bytes, 1 << 20); /* so that all are on their way by then */
    for (uint32_t i = 0; i < 4; i++)
        cr_expect_eq(gpu_rig_submit(SPW_COPY_STORE, 5, 0, i, blocks, CHUNK, NULL), 0);
    cr_expect_eq(gpu_rig_submit(SPW_COPY_LOAD, 5, 0, 9, blocks, CHUNK, NULL), 0);
    uint32_t failed = 0;
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert(gpu_rig_end(&end), "copy %u hangs", i);
        failed += end.status == -EIO;
    }
    cr_expect_geq(failed, 3);
    cr_expect_eq(rig.copier.ops->health(rig.copier.copier), -ENODEV);
    cr_expect_eq(gpu_rig_submit(SPW_COPY_LOAD, 5, 0, 9, blocks, CHUNK, NULL), -ENODEV);
    cr_expect_eq(gpu_rig_register(6, &err), -ENODEV);
    cr_expect_eq(rig.copier.ops->fence_fired(rig.copier.copier, 5, 0), -ENODEV);
    rig.copier.ops->close(rig.copier.copier); /* and doesn't hang */
}

Test(copier, memory_that_is_not_pinned_is_copied_all_the_same_and_counted)
{
    uint32_t blocks[CHUNK];
    gpu_rig_open(ALL);
    make_layouts(0);
    fill_tensors();
    choose_blocks(blocks, CHUNK, false);
    rig.pinned = false;
    unsigned long launches = spw_load_relaxed(&rig.fake->launches);
    store(0, 0, blocks, CHUNK);
    load(0, 0, blocks, CHUNK);
    cr_expect_eq(spw_load_relaxed(&rig.unpinned), 2);
    cr_expect_eq(spw_load_relaxed(&rig.fake->launches), launches, "a kernel would crash there");
    gpu_rig_close();
}
