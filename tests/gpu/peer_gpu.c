/*
 * An engine's process for tests: allocates and fills device memory, exports it and two fences, and then
 * does what single letters on its standard input say, each answered by one on its output:
 *
 *   r  record fence 0 behind a slow copy    w  wait for that    c  are the bytes as filled? y or n
 *   f  free memory 0 and allocate it anew   n  how many GPUs are there? a digit
 *
 * It ends at the end of its input. Usage: peer_gpu LIBRARY MEMORIES BYTES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu_impl.h"

#define FENCES 2

static struct spw_gpu *gpu;
static CUstream stream;

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "peer_gpu: %s: %s\n", what, spw_driver_word(&gpu->driver, result));
    exit(1);
}

static void say(const void *bytes, size_t count)
{
    if (write(STDOUT_FILENO, bytes, count) != (ssize_t)count)
        exit(1);
}

static uint8_t byte_at(size_t m, size_t i)
{
    return (uint8_t)(m * 77 + i * 5 + i / 256);
}

int main(int argc, char **argv)
{
    struct spw_error err = {0};
    size_t memories = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
    size_t bytes = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (argc < 4 ||
        spw_gpu_open(&(struct spw_gpu_config){.driver = argv[1], .which = "0"}, &gpu, &err)) {
        fprintf(stderr, "peer_gpu: %s\n", err.text);
        return 1;
    }
    const struct spw_driver *driver = &gpu->driver;
    CUdeviceptr *memory = calloc(memories, sizeof *memory);
    uint8_t *host = malloc(bytes);
    CUevent fence[FENCES];
    must(driver->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "stream");
    say(spw_gpu_identity(gpu)->uuid, 16);
    for (size_t m = 0; m < memories; m++) {
        CUipcMemHandle handle;
        must(driver->MemAlloc(&memory[m], bytes), "memory");
        for (size_t i = 0; i < bytes; i++)
            host[i] = byte_at(m, i);
        must(driver->MemcpyHtoDAsync(memory[m], host, bytes, stream), "fill");
        must(driver->StreamSynchronize(stream), "fill");
        must(driver->IpcGetMemHandle(&handle, memory[m]), "export");
        say(&handle, sizeof handle);
    }
    for (size_t f = 0; f < FENCES; f++) {
        CUipcEventHandle handle;
        must(driver->EventCreate(&fence[f], CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
             "event");
        must(driver->IpcGetEventHandle(&handle, fence[f]), "export an event");
        say(&handle, sizeof handle);
    }
    for (char order; read(STDIN_FILENO, &order, 1) == 1;) {
        char answer = 'y';
        if (order == 'r') { /* FAKE_CUDA_RATE makes it slow; pageable memory would wait here */
            must(driver->MemsetD8Async(memory[0], 0, 0, stream), "nothing");
            must(driver->MemHostRegister(host, bytes, 0), "pin");
            for (size_t i = 0; i < bytes; i++)
                host[i] = byte_at(0, i);
            must(driver->MemcpyHtoDAsync(memory[0], host, bytes, stream), "slow copy");
            must(driver->EventRecord(fence[0], stream), "record");
        } else if (order == 'w') {
            must(driver->EventSynchronize(fence[0]), "wait");
            must(driver->MemHostUnregister(host), "unpin");
        } else if (order == 'f') {
            must(driver->MemFree(memory[0]), "free");
            must(driver->MemAlloc(&memory[0], bytes), "memory"); /* behind the same descriptor */
        } else if (order == 'n') {
            int count;
            must(driver->DeviceGetCount(&count), "count");
            answer = (char)('0' + count);
        } else {
            for (size_t m = 0; m < memories; m++) {
                must(driver->MemcpyDtoHAsync(host, memory[m], bytes, stream), "read");
                must(driver->StreamSynchronize(stream), "read");
                for (size_t i = 0; i < bytes; i++)
                    if (host[i] != byte_at(m, i))
                        answer = 'n';
            }
        }
        say(&answer, 1);
    }
    for (size_t f = 0; f < FENCES; f++)
        driver->EventDestroy(fence[f]);
    for (size_t m = 0; m < memories; m++)
        driver->MemFree(memory[m]);
    driver->StreamDestroy(stream);
    spw_gpu_close(gpu);
    free(memory);
    free(host);
    return 0;
}
