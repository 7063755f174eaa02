/* The engine's process: see peer.h. It ends by itself at the first thing that it can't do. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench/gpu/peer.h"

#define BUSY_BYTES (256ull << 20) /* filled again and again to keep the stream busy */
#define BUSY_SMALL (1ull << 20)
#define BUSY_MOST  4096u

struct engine {
    struct spw_gpu *gpu;
    const struct spw_driver *driver;
    CUstream stream;
    CUdeviceptr memory, busy;
    uint64_t bytes, busy_bytes;
    uint64_t late_ns;
    uint32_t fills; /* of busy that take late_ns; 0 = not known yet */
    CUevent fence;
    uint8_t *host;
};

static bool move(int fd, void *bytes, uint64_t count, bool out)
{
    for (uint64_t done = 0; done < count;) {
        uint8_t *at = (uint8_t *)bytes + done;
        ssize_t n = out ? write(fd, at, count - done) : read(fd, at, count - done);
        if (n <= 0)
            return false;
        done += (uint64_t)n;
    }
    return true;
}

static bool answer(struct spw_error *err)
{
    return move(STDOUT_FILENO, err, sizeof *err, true);
}

static int must(struct engine *engine, CUresult result, const char *what, struct spw_error *err)
{
    if (result == CUDA_SUCCESS)
        return 0;
    return spw_fail(err, spw_driver_errno(result), "%s: %s", what,
                    spw_driver_word(engine->driver, result));
}

/* ---- open ------------------------------------------------------------------------------------ */

static int open_engine(struct engine *engine, const char *which, const char *library,
                       struct check_export *out, struct spw_error *err)
{
    struct spw_gpu_config config = {.driver = library, .which = which};
    int status = spw_gpu_open(&config, &engine->gpu, err);
    if (status < 0)
        return status;
    const struct spw_driver *driver = engine->driver = &engine->gpu->driver;
    memcpy(out->gpu, spw_gpu_identity(engine->gpu)->uuid, sizeof out->gpu);
    engine->host = malloc(engine->bytes);
    if (!engine->host)
        return spw_fail(err, -ENOMEM, "no memory");
    status =
        must(engine, driver->StreamCreateWithPriority(&engine->stream, CU_STREAM_NON_BLOCKING, 0),
             "a stream", err);
    if (status == 0)
        status =
            must(engine, driver->MemAlloc(&engine->memory, engine->bytes), "device memory", err);
    if (status == 0 && engine->late_ns)
        status =
            must(engine, driver->MemAlloc(&engine->busy, engine->busy_bytes), "device memory", err);
    if (status == 0)
        status = must(engine, driver->IpcGetMemHandle(&out->memory, engine->memory),
                      "memory can't be exported", err);
    if (status == 0)
        status = must(
            engine,
            driver->EventCreate(&engine->fence, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
            "an event", err);
    if (status == 0)
        status = must(engine, driver->IpcGetEventHandle(&out->fence, engine->fence),
                      "an event can't be exported", err);
    return status;
}

static void close_engine(struct engine *engine)
{
    const struct spw_driver *driver = engine->driver;
    if (engine->fence)
        driver->EventDestroy(engine->fence);
    if (engine->stream)
        driver->StreamDestroy(engine->stream);
    if (engine->memory)
        driver->MemFree(engine->memory);
    if (engine->busy)
        driver->MemFree(engine->busy);
    free(engine->host);
    spw_gpu_close(engine->gpu);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static CUresult fill_busy(struct engine *engine, uint32_t times)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < times && result == CUDA_SUCCESS; i++)
        result = engine->driver->MemsetD8Async(engine->busy, (uint8_t)i, engine->busy_bytes,
                                               engine->stream);
    return result;
}

/* How many fills keep this GPU busy for so long? */
static CUresult find_fills(struct engine *engine)
{
    const uint32_t tried = 16;
    CUresult result = fill_busy(engine, 2); /* warm */
    if (result == CUDA_SUCCESS)
        result = engine->driver->StreamSynchronize(engine->stream);
    uint64_t begin = spw_monotonic_ns();
    if (result == CUDA_SUCCESS)
        result = fill_busy(engine, tried);
    if (result == CUDA_SUCCESS)
        result = engine->driver->StreamSynchronize(engine->stream);
    uint64_t fills = engine->late_ns * tried / (spw_monotonic_ns() - begin + 1) + 1;
    engine->fills = (uint32_t)(fills < BUSY_MOST ? fills : BUSY_MOST);
    return result;
}

static CUresult fill_late(struct engine *engine, uint8_t value)
{
    CUresult result = CUDA_SUCCESS;
    if (engine->fills == 0)
        result = find_fills(engine);
    if (result == CUDA_SUCCESS)
        result = fill_busy(engine, engine->fills);
    if (result == CUDA_SUCCESS)
        result =
            engine->driver->MemsetD8Async(engine->memory, value, engine->bytes, engine->stream);
    if (result == CUDA_SUCCESS)
        result = engine->driver->EventRecord(engine->fence, engine->stream);
    return result;
}

static CUresult waited(struct engine *engine, CUresult result)
{
    CUresult ended = engine->driver->StreamSynchronize(engine->stream);
    return result != CUDA_SUCCESS ? result : ended;
}

/* False: there is nobody to answer. */
static bool obey(struct engine *engine, char order)
{
    struct spw_error err = {0};
    const struct spw_driver *driver = engine->driver;
    uint8_t value = 0;
    switch (order) {
    case 'w':
        if (!move(STDIN_FILENO, engine->host, engine->bytes, false))
            return false;
        must(engine,
             waited(engine, driver->MemcpyHtoDAsync(engine->memory, engine->host, engine->bytes,
                                                    engine->stream)),
             "a copy to the device", &err);
        return answer(&err);
    case 'r':
        must(engine,
             waited(engine, driver->MemcpyDtoHAsync(engine->host, engine->memory, engine->bytes,
                                                    engine->stream)),
             "a copy from the device", &err);
        return answer(&err) &&
               (err.code < 0 || move(STDOUT_FILENO, engine->host, engine->bytes, true));
    case 's':
        if (!move(STDIN_FILENO, &value, 1, false))
            return false;
        must(engine, fill_late(engine, value), "a late fill", &err);
        return answer(&err);
    default:
        must(engine, waited(engine, CUDA_SUCCESS), "waiting for the stream", &err);
        return answer(&err);
    }
}

/* --as-engine GPU BYTES LATE_NS [LIBRARY] */
int check_peer_main(int argc, char **argv)
{
    struct spw_error err = {0};
    struct check_export exports = {0};
    struct engine engine = {0};
    char order;
    if (argc < 5)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    engine.bytes = strtoull(argv[3], NULL, 10);
    engine.late_ns = strtoull(argv[4], NULL, 10);
    engine.busy_bytes = engine.late_ns < 5000000 ? BUSY_SMALL : BUSY_BYTES;
    open_engine(&engine, argv[2], argc > 5 ? argv[5] : NULL, &exports, &err);
    bool goes_on =
        answer(&err) && err.code == 0 && move(STDOUT_FILENO, &exports, sizeof exports, true);
    while (goes_on && read(STDIN_FILENO, &order, 1) == 1)
        goes_on = obey(&engine, order);
    close_engine(&engine);
    return err.code < 0;
}
