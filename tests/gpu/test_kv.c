/* Registrations: what is refused and in which words, memory of another process, the trial, and that
 * nothing stays open. */
#include "tests/gpu/gpu_peer.h"
#include "tests/gpu/gpu_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(kv, .timeout = 30);

static struct spw_error err;

static void open_with_two(void)
{
    gpu_rig_open(0);
    gpu_rig_tensor(0, 2, 512, true);
    gpu_rig_tensor(1, 1, 1024, false);
}

/* Refused by @words, nothing open, and whole again once @undone. */
static void refused(int status, const char *words)
{
    cr_expect_eq(gpu_rig_register(3, &err), status, "%s", words);
    cr_expect(strstr(err.text, words), "%s: %s", words, err.text);
    cr_expect_eq(spw_load_relaxed(&rig.record.handles_open), 0);
}

/* ---- values ---------------------------------------------------------------------------------- */

Test(kv, every_value_is_checked)
{
    open_with_two();
    struct rig_kv good = rig.kv;
    struct spw_kv_tensor_record *tensor = rig.kv.tensor;
#define BAD(change, status, words)                                                                 \
    do {                                                                                           \
        change;                                                                                    \
        refused(status, words);                                                                    \
        rig.kv = good;                                                                             \
    } while (0)
    BAD(tensor[1].group = SPW_GROUP_COUNT_MAX, -EINVAL, "tensor 1: group 16");
    BAD(tensor[0].memory = 2, -EINVAL, "tensor 0: memory 2 of 2");
    BAD(tensor[0].blocks = 0, -EINVAL, "tensor 0: 0 blocks");
    BAD(tensor[0].parts = 0, -EINVAL, "0 parts");
    BAD(tensor[0].parts = 3, -EINVAL, "3 parts");
    BAD(tensor[0].part_bytes = 0, -EINVAL, "0 bytes");
    BAD(tensor[0].block_stride = 511, -EINVAL, "511 bytes apart");
    BAD(tensor[0].offset += 1, -EINVAL, "beyond its memory");
    BAD(tensor[0].offset = UINT64_MAX, -EINVAL, "beyond its memory");
    BAD(tensor[0].block_stride = UINT64_MAX, -EINVAL, "beyond its memory");
    BAD(tensor[0].part_stride = UINT64_MAX, -EINVAL, "beyond its memory");
    BAD(tensor[0].blocks = UINT32_MAX, -EINVAL, "beyond its memory");
    BAD(rig.kv.memory[0].bytes += 1, -EINVAL, "memory 0: ");
    BAD(rig.kv.memory[1].kind = 0, -EINVAL, "memory 1: kind 0");
    BAD(rig.kv.record.pid++, -EINVAL, "an address means nothing");
    BAD(rig.kv.record.start_ticks++, -EINVAL, "an address means nothing");
    BAD(rig.kv.record.tensors = 0, -EINVAL, "0 tensors");
    BAD(rig.kv.record.gpu[0] ^= 1, -ENODEV, "can't be registered at the worker of");
    cr_expect_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    rig.kv.record.tensors = rig.kv.record.memories = 2;
    gpu_rig_close();
}

Test(kv, several_clients_and_one_that_registers_anew)
{
    open_with_two();
    cr_assert_eq(gpu_rig_register(0, &err), 0);
    cr_assert_eq(gpu_rig_register(SPW_CLIENTS_MAX - 1, &err), 0);
    cr_assert_eq(gpu_rig_register(0, &err), 0);
    cr_expect_eq(rig.shape.block_bytes[0], 1024, "not twice");
    rig.copier.ops->kv_close(rig.copier.copier, 0);
    rig.copier.ops->kv_close(rig.copier.copier, 0);
    cr_assert_eq(gpu_rig_register(0, &err), 0);
    gpu_rig_close();
}

static CUresult (*whole_range)(CUdeviceptr *, size_t *, CUdeviceptr);
static uint64_t pieces_end; /* offset behind which nothing is mapped */

/* An allocation of virtual memory: pieces of 512 bytes, each by itself. */
static CUresult piece_range(CUdeviceptr *out_base, size_t *out_bytes, CUdeviceptr at)
{
    CUdeviceptr base;
    size_t bytes;
    CUresult result = whole_range(&base, &bytes, at);
    uint64_t piece = (at - base) / 512 * 512;
    if (result == CUDA_SUCCESS && at - base >= pieces_end)
        return CUDA_ERROR_NOT_FOUND;
    *out_base = base + piece;
    *out_bytes = bytes - piece < 512 ? bytes - piece : 512;
    return result;
}

Test(kv, CU_8_virtual_memory_in_pieces_is_as_long_as_they_are_without_a_gap)
{
    open_with_two();
    whole_range = rig.gpu->driver.MemGetAddressRange;
    rig.gpu->driver.MemGetAddressRange = piece_range;
    pieces_end = UINT64_MAX;
    cr_expect_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    pieces_end = 1024;
    cr_expect_eq(gpu_rig_register(3, &err), -EINVAL);
    cr_expect(strstr(err.text, "it has 1024"), "%s", err.text);
    pieces_end = 0;
    cr_expect_lt(gpu_rig_register(3, &err), 0);
    cr_expect(strstr(err.text, "CUDA_ERROR_NOT_FOUND"), "%s", err.text);
    gpu_rig_close();
}

Test(kv, a_block_that_no_slot_holds_is_refused_before_it_is_tried)
{
    gpu_rig_open(0);
    gpu_rig_tensor(0, 2, RIG_SLOT_BYTES / 2, true);
    cr_expect_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    gpu_rig_tensor(0, 1, 64, false);
    refused(-EINVAL, "a block of group 0 has 65600 bytes, a chunk at most 65536");
    gpu_rig_close();
}

/* ---- the trial ------------------------------------------------------------------------------- */

Test(kv, CU_8_the_trial_leaves_every_byte_as_it_was)
{
    uint8_t *before, *after;
    gpu_rig_open(1 << 20);
    gpu_rig_tensor(0, 2, 512, true);
    before = malloc(rig.memory_bytes[0]);
    after = malloc(rig.memory_bytes[0]);
    for (uint64_t i = 0; i < rig.memory_bytes[0]; i++)
        before[i] = (uint8_t)rand();
    gpu_rig_write(0, before);
    cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    gpu_rig_read(0, after);
    cr_expect_eq(memcmp(before, after, rig.memory_bytes[0]), 0);
    cr_expect_gt(spw_load_relaxed(&rig.fake->launches), 0, "the kernel was tried, too");
    free(before);
    free(after);
    gpu_rig_close();
}

/* The engine's tensor @t holds @bytes, still. */
static void untouched(uint32_t t, const uint8_t *bytes, const char *when)
{
    uint8_t *now = malloc(rig.memory_bytes[t]);
    gpu_rig_read(t, now);
    cr_expect_eq(memcmp(now, bytes, rig.memory_bytes[t]), 0, "tensor %u after %s", t, when);
    free(now);
}

static uint8_t *filled(uint32_t t)
{
    uint8_t *bytes = malloc(rig.memory_bytes[t]);
    for (uint64_t i = 0; i < rig.memory_bytes[t]; i++)
        bytes[i] = (uint8_t)rand();
    gpu_rig_write(t, bytes);
    return bytes;
}

Test(kv, CU_8_a_copy_that_fails_is_a_refusal_with_the_drivers_word)
{
    open_with_two();
    uint8_t *bytes[] = {filled(0), filled(1)};
    /* what writes the pattern: 4 pieces of group 0, put back by as many, and again after the batch call;
       then of group 1 */
    static const uint32_t calls[] = {1, 4, 13, 14};
    for (uint32_t i = 0; i < 4; i++) {
        char fault[48], words[64];
        snprintf(fault, sizeof fault, "MemcpyHtoDAsync:%u:801", calls[i]);
        snprintf(words, sizeof words, "a trial copy of group %u: CUDA_ERROR_NOT_SUPPORTED", i / 2);
        rig.fake->set_faults(fault);
        refused(-ENOSYS, words);
        rig.fake->set_faults("");
        untouched(0, bytes[0], fault);
        untouched(1, bytes[1], fault);
    }
    rig.fake->set_faults("");
    cr_expect_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    free(bytes[0]);
    free(bytes[1]);
    gpu_rig_close();
}

Test(kv, CU_8_one_tensor_of_a_group_is_tried_by_what_its_copies_will_use)
{
    gpu_rig_open(0);
    gpu_rig_tensor(0, 1, 1024, false);
    unsigned long batches = spw_load_relaxed(&rig.fake->batches);
    cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    cr_expect_gt(spw_load_relaxed(&rig.fake->batches), batches);
    gpu_rig_close();
}

/* A store of two blocks of client 3, its bytes compared. */
static void expect_stored(const uint8_t *bytes, const char *when)
{
    uint32_t blocks[2] = {5, 1};
    struct spw_copy_end end;
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 3, 0, 0, blocks, 2, NULL), 0);
    cr_assert(gpu_rig_end(&end) && end.status == 0);
    for (uint32_t part = 0; part < 2; part++)
        for (uint32_t b = 0; b < 2; b++)
            cr_expect_eq(memcmp(gpu_rig_slot(0) + (part * 2 + b) * 512,
                                bytes + (part * RIG_BLOCKS + blocks[b]) * 512, 512),
                         0, "%s: part %u of block %u", when, part, blocks[b]);
}

Test(kv, CU_8_where_only_the_batch_call_fails_copies_go_on_one_by_one)
{
    static const char *const faults[] = {"MemcpyBatchAsync:1:801", "MemcpyBatchAsync:2:801",
                                         "byte:21:1", "byte:28:1", "MemHostRegister:1:2"};
    gpu_rig_open(0);
    gpu_rig_tensor(0, 2, 512, true);
    uint8_t *bytes = filled(0);
    for (uint32_t i = 0; i < 5;
         i++) { /* write, read back; other bytes in either; no way to try it */
        rig.fake->set_faults(faults[i]);
        cr_assert_eq(gpu_rig_register(3, &err), 0, "%s: %s", faults[i], err.text);
        rig.fake->set_faults("");
        untouched(0, bytes, faults[i]);
        unsigned long batches = spw_load_relaxed(&rig.fake->batches);
        expect_stored(bytes, faults[i]);
        cr_expect_eq(spw_load_relaxed(&rig.fake->batches), batches, "%s", faults[i]);
    }
    cr_assert_eq(gpu_rig_register(3, &err), 0);
    unsigned long batches = spw_load_relaxed(&rig.fake->batches);
    expect_stored(bytes, "no fault");
    cr_expect_eq(spw_load_relaxed(&rig.fake->batches), batches + 1);
    free(bytes);
    gpu_rig_close();
}

Test(kv, CU_8_where_only_the_kernel_fails_copies_go_on_without_it)
{
    uint32_t block = 1;
    struct spw_copy_end end;
    gpu_rig_open(1 << 20);
    gpu_rig_tensor(0, 2, 512, true);
    uint8_t *bytes = filled(0);
    for (uint32_t nth = 1; nth <= 2; nth++) { /* write, read back */
        char fault[48];
        snprintf(fault, sizeof fault, "LaunchKernel:%u:801", nth);
        rig.fake->set_faults(fault);
        cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
        rig.fake->set_faults("");
        untouched(0, bytes, fault);
        unsigned long launches = spw_load_relaxed(&rig.fake->launches);
        cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 3, 0, 0, &block, 1, NULL), 0);
        cr_assert(gpu_rig_end(&end) && end.status == 0);
        cr_expect_eq(spw_load_relaxed(&rig.fake->launches), launches, "%s", fault);
    }
    free(bytes);
    gpu_rig_close();
}

/* The engine's bytes are kept and put back by plain copies: a way that is being tried has no say. */
Test(kv, CU_8_a_kernel_that_fails_from_some_call_on_has_changed_nothing)
{
    gpu_rig_open(1 << 20);
    gpu_rig_tensor(0, 2, 512, true);
    uint8_t *bytes = filled(0);
    for (uint32_t nth = 1; nth <= 4; nth++) {
        char fault[48];
        snprintf(fault, sizeof fault, "LaunchKernel:%u-:801", nth);
        rig.fake->set_faults(fault);
        cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
        rig.fake->set_faults("");
        untouched(0, bytes, fault);
    }
    free(bytes);
    gpu_rig_close();
}

Test(kv, CU_8_bytes_that_cannot_be_put_back_are_a_refusal_whichever_way_was_tried)
{
    gpu_rig_open(1 << 20);
    gpu_rig_tensor(0, 2, 512, true);
    /* the planes; then 4 pieces, written and put back; put back after the batch call and the kernel */
    for (uint32_t nth = 1; nth <= 18; nth++) {
        char fault[48];
        snprintf(fault, sizeof fault, "MemcpyHtoDAsync:%u:801", nth);
        rig.fake->set_faults(fault);
        if (nth > 1 && nth < 18)
            refused(-ENOSYS, "a trial copy of group 0: CUDA_ERROR_NOT_SUPPORTED");
        else
            cr_expect_eq(gpu_rig_register(3, &err), 0, "%s: %s", fault, err.text);
    }
    rig.fake->set_faults("");
    gpu_rig_close();
}

/* Closing what is left in a driver that answers nothing else any more. */
static void close_lost(void)
{
    cr_expect_eq(rig.copier.ops->health(rig.copier.copier), -ENODEV);
    cr_expect_eq(spw_load_relaxed(&rig.record.handles_open), 0);
    rig.copier.ops->close(rig.copier.copier);
}

Test(kv, CU_8_a_trial_that_costs_the_GPU_is_a_refusal_and_health_says_so)
{
    gpu_rig_open(1 << 20);
    gpu_rig_tensor(0, 2, 512, true);
    rig.fake->set_faults("LaunchKernel:1:700");
    refused(-ENODEV, "CUDA_ERROR_ILLEGAL_ADDRESS");
    close_lost();
}

/* ---- another process ------------------------------------------------------------------------- */

static struct gpu_peer peer;

static char ask(char order)
{
    return gpu_peer_ask(&peer, order);
}

/* Its memory becomes the rig's record: one tensor in each. */
static void spawn_peer(uint32_t memories, const char *rate)
{
    uint32_t size = RIG_BLOCKS * 1024;
    struct spw_kv_record *record = &rig.kv.record;
    setenv("FAKE_CUDA_RATE", rate, 1);
    gpu_peer_spawn(&peer, memories, size);
    memcpy(record->gpu, peer.uuid, sizeof record->gpu);
    record->memories = record->tensors = memories;
    for (uint32_t m = 0; m < memories; m++) {
        memcpy(rig.kv.memory[m].handle, &peer.memory[m], SPW_IPC_BYTES);
        rig.kv.memory[m].kind = SPW_KV_IPC;
        rig.kv.memory[m].bytes = size;
        rig.kv.tensor[m] = (struct spw_kv_tensor_record){.block_stride = 1024,
                                                         .part_bytes = 1024,
                                                         .parts = 1,
                                                         .blocks = RIG_BLOCKS,
                                                         .memory = m};
    }
    record->fences = RIG_FENCES;
    for (uint32_t f = 0; f < RIG_FENCES; f++)
        memcpy(rig.kv.fence[f], &peer.fence[f], SPW_IPC_BYTES);
}

static void end_peer(bool kill_it)
{
    gpu_peer_end(&peer, kill_it);
    rig.kv.record.tensors = rig.kv.record.fences = 0; /* not the rig's to free */
}

Test(kv, memory_of_another_process_is_stored_and_loaded_back)
{
    uint32_t blocks[] = {7, 3, 20, 0};
    struct spw_copy_end end;
    gpu_rig_open(0);
    spawn_peer(3, "0");
    cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    cr_expect_eq(spw_load_relaxed(&rig.record.handles_open), 3);
    cr_expect_eq(ask('c'), 'y', "as before the trial");
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 3, 0, 0, blocks, 4, NULL), 0);
    cr_assert(gpu_rig_end(&end) && end.status == 0);
    uint32_t elsewhere[] = {8, 9, 10, 11};
    cr_assert_eq(gpu_rig_submit(SPW_COPY_LOAD, 3, 0, 0, elsewhere, 4, NULL), 0);
    cr_assert(gpu_rig_end(&end) && end.status == 0);
    cr_expect_eq(ask('c'), 'n', "other blocks there");
    end_peer(false);
    rig.copier.ops->kv_close(rig.copier.copier, 3);
    gpu_rig_close();
}

Test(kv, the_same_handle_twice_is_opened_once)
{
    gpu_rig_open(0);
    spawn_peer(2, "0");
    rig.kv.memory[1] = rig.kv.memory[0];
    rig.kv.tensor[0].blocks = rig.kv.tensor[1].blocks = RIG_BLOCKS / 2;
    rig.kv.tensor[1].offset = RIG_BLOCKS / 2 * 1024;
    cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    cr_expect_eq(spw_load_relaxed(&rig.record.handles_open), 1);
    cr_expect_eq(spw_load_relaxed(&rig.fake->open_handles), 1);
    end_peer(false);
    gpu_rig_close();
    cr_expect_eq(spw_load_relaxed(&rig.fake->open_handles), 0);
}

Test(kv, CU_8_an_import_that_fails_is_refused_within_a_second)
{
    gpu_rig_open(0);
    spawn_peer(3, "0");
    for (uint32_t nth = 1; nth <= 3; nth++) {
        char fault[48];
        snprintf(fault, sizeof fault, "IpcOpenMemHandle:%u:205", nth);
        rig.fake->set_faults(fault);
        uint64_t begin = spw_monotonic_ns();
        refused(-EIO, "CUDA_ERROR_MAP_FAILED");
        cr_expect_lt(spw_monotonic_ns() - begin, 1000000000u);
        cr_expect_eq(spw_load_relaxed(&rig.fake->open_handles), 0,
                     "those opened before are closed");
    }
    rig.fake->set_faults("IpcOpenEventHandle:2:205");
    refused(-EIO, "fence 1: CUDA_ERROR_MAP_FAILED");
    rig.fake->set_faults("");
    cr_expect_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    end_peer(false);
    gpu_rig_close();
}

Test(kv, CU_4_a_fence_of_another_process_fires_when_its_work_is_done)
{
    gpu_rig_open(0);
    spawn_peer(1, "200000"); /* 24 KiB: 120 ms */
    cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    const struct spw_copier_ops *ops = rig.copier.ops;
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 3, 0), 1, "never recorded");
    cr_assert_eq(ask('r'), 'y');
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 3, 0), 0);
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 3, 1), 1);
    cr_assert_eq(ask('w'), 'y');
    cr_expect_eq(ops->fence_fired(rig.copier.copier, 3, 0), 1);
    end_peer(false);
    gpu_rig_close();
}

Test(kv, LC_4_handles_of_a_killed_process_are_closed_and_its_copy_ends)
{
    uint32_t blocks[] = {1, 2, 3, 4};
    struct spw_copy_end end;
    gpu_rig_open(0);
    spawn_peer(3, "0");
    cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    spw_store_relaxed(&rig.fake->rate_bytes, 100000); /* 12 KiB: 120 ms */
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 3, 0, 0, blocks, 4, NULL), 0);
    end_peer(true);
    cr_assert(gpu_rig_end(&end), "it doesn't hang");
    rig.copier.ops->kv_close(rig.copier.copier, 3);
    cr_expect_eq(spw_load_relaxed(&rig.fake->open_handles), 0);
    cr_expect_eq(spw_load_relaxed(&rig.record.handles_open), 0);
    spw_store_relaxed(&rig.fake->rate_bytes, 0);
    gpu_rig_close();
}

Test(kv, CU_5_a_registration_under_way_when_the_GPU_is_lost_leaves_nothing_open)
{
    uint32_t block = 0;
    struct spw_copy_end end;
    struct spw_kv_shape shape;
    gpu_rig_open(0);
    spawn_peer(3, "0");
    cr_assert_eq(gpu_rig_register(3, &err), 0, "%s", err.text);
    struct spw_kv_record *record = gpu_rig_record();
    for (uint32_t step = 0; step < 3; step++)
        cr_assert_eq(rig.copier.ops->kv_open(rig.copier.copier, 4, record, &shape, &err), -EAGAIN);
    cr_expect_gt(spw_load_relaxed(&rig.record.handles_open), 3);
    rig.fake->set_faults("copy:1:700");
    cr_assert_eq(gpu_rig_submit(SPW_COPY_STORE, 3, 0, 0, &block, 1, NULL), 0);
    cr_assert(gpu_rig_end(&end) && end.status == -EIO);
    cr_expect_eq(rig.copier.ops->kv_open(rig.copier.copier, 4, record, &shape, &err), -ENODEV);
    cr_expect_eq(spw_load_relaxed(&rig.record.handles_open), 3, "those of the other one");
    rig.copier.ops->kv_close(rig.copier.copier, 3);
    free(record);
    end_peer(false);
    close_lost();
}
