/* See ground.h. */
#include "bench/gpu/ground.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/pin.h"
#include "gpu/touch.h"

#define TOUCHERS 4u

static int open_slots(struct check_ground *ground, uint64_t bytes)
{
    struct check *check = ground->check;
    struct spw_pin_backend backend = spw_pin_driver(check->gpu);
    struct spw_touch_config touch = {.threads = TOUCHERS, .writable = true};
    const char *name = "refused";
    void *slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        return spw_fail(&check->err, -errno, "no memory for %lu bytes of slots",
                        (unsigned long)bytes);
    ground->slots = slots;
    ground->slots_bytes = bytes;
    int status = spw_touch_pages(&touch, ground->slots, bytes);
    if (status < 0)
        return spw_fail(&check->err, status, "the slots' pages can't be had: %s",
                        strerror(-status));
    status = backend.add(backend.ctx, ground->slots, bytes, true, &name);
    if (status < 0)
        return spw_fail(&check->err, status, "the slots can't be pinned: %s", name);
    ground->pinned = true;
    return 0;
}

int check_ground_open(struct check *check, uint64_t memory_bytes, uint64_t slots_bytes,
                      struct check_ground *out)
{
    const struct spw_driver *driver = &check->gpu->driver;
    *out = (struct check_ground){.check = check};
    int status = check_driver(
        check, driver->StreamCreateWithPriority(&out->stream, CU_STREAM_NON_BLOCKING, 0),
        "a stream");
    if (status == 0 && memory_bytes != 0)
        status = check_driver(check, driver->MemAlloc(&out->memory, memory_bytes), "device memory");
    if (status == 0)
        out->memory_bytes = memory_bytes;
    if (status == 0 && slots_bytes != 0)
        status = open_slots(out, spw_align_up(slots_bytes, 4096));
    if (status < 0)
        check_ground_close(out);
    return status;
}

void check_ground_close(struct check_ground *ground)
{
    if (!ground->check)
        return;
    const struct spw_driver *driver = &ground->check->gpu->driver;
    if (ground->stream)
        driver->StreamDestroy(ground->stream);
    if (ground->pinned)
        driver->MemHostUnregister(ground->slots);
    if (ground->slots)
        munmap(ground->slots, ground->slots_bytes);
    if (ground->memory_bytes)
        driver->MemFree(ground->memory);
    *ground = (struct check_ground){.check = NULL};
}

static int ended(struct check_ground *ground, CUresult result, const char *what)
{
    CUresult waited = ground->check->gpu->driver.StreamSynchronize(ground->stream);
    return check_driver(ground->check, result != CUDA_SUCCESS ? result : waited, what);
}

int check_ground_write(struct check_ground *ground, const uint8_t *bytes, uint64_t count)
{
    const struct spw_driver *driver = &ground->check->gpu->driver;
    return ended(ground, driver->MemcpyHtoDAsync(ground->memory, bytes, count, ground->stream),
                 "a plain copy to the device");
}

int check_ground_read(struct check_ground *ground, uint8_t *bytes, uint64_t count)
{
    const struct spw_driver *driver = &ground->check->gpu->driver;
    return ended(ground, driver->MemcpyDtoHAsync(bytes, ground->memory, count, ground->stream),
                 "a plain copy from the device");
}

int check_ground_set(struct check_ground *ground, uint8_t value)
{
    const struct spw_driver *driver = &ground->check->gpu->driver;
    return ended(ground,
                 driver->MemsetD8Async(ground->memory, value, ground->memory_bytes, ground->stream),
                 "a fill of device memory");
}

int check_ground_big(struct check_ground *ground, bool is_store, CUdeviceptr at, uint64_t count,
                     uint64_t *out_ns)
{
    const struct spw_driver *driver = &ground->check->gpu->driver;
    uint64_t begin = spw_monotonic_ns();
    int status = ended(ground,
                       is_store ? driver->MemcpyDtoHAsync(ground->slots, at, count, ground->stream)
                                : driver->MemcpyHtoDAsync(at, ground->slots, count, ground->stream),
                       "one big copy");
    *out_ns = spw_monotonic_ns() - begin;
    return status;
}

struct spw_kv_record *check_ground_record(const struct check_ground *ground,
                                          const struct check_kv *kv)
{
    struct check_source source = {.pid = (uint32_t)getpid(), .kind = SPW_KV_POINTER};
    memcpy(source.gpu, spw_gpu_identity(ground->check->gpu)->uuid, sizeof source.gpu);
    memcpy(source.memory, &ground->memory, sizeof ground->memory);
    return check_kv_record(kv, &source);
}
