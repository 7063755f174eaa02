/* See gpu_rig.h. */
#include "tests/gpu/gpu_rig.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/process.h"

struct gpu_rig rig;

static bool is_pinned(void *ctx, const void *start, uint64_t bytes)
{
    return rig.pinned;
}

void gpu_rig_open_with(uint32_t kernel_below, uint32_t in_flight)
{
    struct spw_error err = {0};
    struct spw_gpu_config config = {.driver = FAKE_CUDA, .which = "0"};
    cr_assert_eq(spw_gpu_open(&config, &rig.gpu, &err), 0, "%s", err.text);
    rig.driver = &rig.gpu->driver;
    struct fake_cuda *(*control)(void) =
        (struct fake_cuda * (*)(void)) dlsym(rig.driver->loaded, "fake_cuda_control");
    cr_assert(control != NULL);
    rig.fake = control();
    rig.pinned = true;
    rig.slots = aligned_alloc(4096, RIG_SLOTS * RIG_SLOT_BYTES);
    cr_assert(rig.slots != NULL);
    memset(rig.slots, 0xee, RIG_SLOTS * RIG_SLOT_BYTES);
    cr_assert_eq(rig.driver->MemHostRegister(rig.slots, RIG_SLOTS * RIG_SLOT_BYTES, 0), 0);
    struct spw_cuda_copier_config copier = {
        .gpu = rig.gpu,
        .in_flight = {in_flight, in_flight},
        .kernel_below_bytes = kernel_below,
        .slot_bytes = RIG_SLOT_BYTES,
        .record = &rig.record,
        .is_pinned = is_pinned,
        .unpinned = &rig.unpinned,
    };
    cr_assert_eq(spw_cuda_copier_open(&copier, &rig.copier, &err), 0, "%s", err.text);
    cr_assert_eq(rig.driver->StreamCreateWithPriority(&rig.engine, CU_STREAM_NON_BLOCKING, 0), 0);
    struct spw_kv_record *record = &rig.kv.record;
    memcpy(record->gpu, spw_gpu_identity(rig.gpu)->uuid, sizeof record->gpu);
    record->pid = (uint32_t)getpid();
    record->start_ticks = spw_process_start_ticks(getpid());
}

void gpu_rig_open(uint32_t kernel_below)
{
    gpu_rig_open_with(kernel_below, 8);
}

void gpu_rig_close(void)
{
    rig.copier.ops->close(rig.copier.copier);
    cr_expect_eq(spw_load_relaxed(&rig.record.handles_open), 0);
    rig.driver->StreamDestroy(rig.engine);
    for (uint32_t t = 0; t < rig.kv.record.tensors; t++)
        rig.driver->MemFree(rig.memory[t]);
    for (uint32_t f = 0; f < rig.kv.record.fences; f++)
        rig.driver->EventDestroy(rig.event[f]);
    rig.driver->MemHostUnregister(rig.slots);
    cr_expect_eq(spw_load_relaxed(&rig.fake->events), 0, "events left");
    cr_expect_eq(spw_load_relaxed(&rig.fake->allocated), 0, "device memory left");
    cr_expect_eq(spw_load_relaxed(&rig.fake->registered), 0, "host memory left registered");
    cr_expect_eq(spw_load_relaxed(&rig.fake->given_back_early), 0, "memory given back in use");
    free(rig.slots);
    spw_gpu_close(rig.gpu);
}

void gpu_rig_tensor(uint32_t group, uint32_t parts, uint32_t part_bytes, bool parts_apart)
{
    struct spw_kv_record *record = &rig.kv.record;
    uint32_t t = record->tensors++;
    uint64_t offset = 256 * t; /* not at the start of its allocation */
    record->memories = record->tensors;
    rig.memory_bytes[t] = offset + (uint64_t)RIG_BLOCKS * parts * part_bytes;
    cr_assert_eq(rig.driver->MemAlloc(&rig.memory[t], rig.memory_bytes[t]), 0);
    rig.kv.memory[t] =
        (struct spw_kv_memory_record){.bytes = rig.memory_bytes[t], .kind = SPW_KV_POINTER};
    memcpy(rig.kv.memory[t].handle, &rig.memory[t], sizeof rig.memory[t]);
    rig.kv.tensor[t] = (struct spw_kv_tensor_record){
        .offset = offset,
        .block_stride = parts_apart ? part_bytes : parts * part_bytes,
        .part_stride = parts_apart ? (uint64_t)RIG_BLOCKS * part_bytes : part_bytes,
        .part_bytes = part_bytes,
        .parts = parts,
        .blocks = RIG_BLOCKS,
        .group = group,
        .memory = t,
    };
}

struct spw_kv_record *gpu_rig_record(void)
{
    const struct spw_kv_record *from = &rig.kv.record;
    uint8_t *bytes = malloc(spw_kv_record_bytes(from->memories, from->tensors, from->fences));
    cr_assert(bytes != NULL);
    uint8_t *at = bytes;
    memcpy(at, from, sizeof *from);
    at += sizeof *from;
    memcpy(at, rig.kv.memory, from->memories * sizeof rig.kv.memory[0]);
    at += from->memories * sizeof rig.kv.memory[0];
    memcpy(at, rig.kv.tensor, from->tensors * sizeof rig.kv.tensor[0]);
    at += from->tensors * sizeof rig.kv.tensor[0];
    memcpy(at, rig.kv.fence, from->fences * sizeof rig.kv.fence[0]);
    return (struct spw_kv_record *)bytes;
}

int gpu_rig_register(uint32_t client, struct spw_error *err)
{
    struct spw_kv_record *record = gpu_rig_record();
    int status;
    do
        status = rig.copier.ops->kv_open(rig.copier.copier, client, record, &rig.shape, err);
    while (status == -EAGAIN);
    free(record);
    return status;
}

static void wait(void)
{
    cr_assert_eq(rig.driver->StreamSynchronize(rig.engine), 0);
}

void gpu_rig_read(uint32_t t, uint8_t *out)
{
    cr_assert_eq(rig.driver->MemcpyDtoHAsync(out, rig.memory[t], rig.memory_bytes[t], rig.engine),
                 0);
    wait();
}

void gpu_rig_write(uint32_t t, const uint8_t *bytes)
{
    cr_assert_eq(rig.driver->MemcpyHtoDAsync(rig.memory[t], bytes, rig.memory_bytes[t], rig.engine),
                 0);
    wait();
}

uint8_t *gpu_rig_slot(uint32_t slot)
{
    return rig.slots + slot * RIG_SLOT_BYTES;
}

int gpu_rig_submit(enum spw_copy_kind kind, uint32_t client, uint32_t group, uint32_t slot,
                   const uint32_t *blocks, uint32_t count, void *tag)
{
    struct spw_copy copy = {
        .kind = kind,
        .client = client,
        .group = group,
        .pieces = count,
        .piece_bytes = (uint32_t)rig.shape.block_bytes[group],
        .blocks = blocks,
        .slot = gpu_rig_slot(slot),
        .tag = tag,
    };
    return rig.copier.ops->submit(rig.copier.copier, &copy);
}

bool gpu_rig_end(struct spw_copy_end *out)
{
    uint64_t until = spw_monotonic_ns() + 5000000000u;
    while (spw_monotonic_ns() < until) {
        if (rig.copier.ops->poll(rig.copier.copier, spw_monotonic_ns(), out, 1) == 1)
            return true;
        usleep(20);
    }
    return false;
}
