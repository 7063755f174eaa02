/* See counted.h. Written by the thread that copies, which is the only one. */
#include "bench/gpu/counted.h"

static struct spw_driver real;
static struct check_calls calls;

static CUresult count_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *attribute_of,
                            size_t attributes_count, CUstream stream)
{
    calls.batches++;
    return real.MemcpyBatchAsync(to, from, bytes, count, attributes, attribute_of, attributes_count,
                                 stream);
}

static CUresult count_batch_12(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                               CUmemcpyAttributes *attributes, size_t *attribute_of,
                               size_t attributes_count, size_t *failed, CUstream stream)
{
    calls.batches++;
    return real.MemcpyBatchAsync_12(to, from, bytes, count, attributes, attribute_of,
                                    attributes_count, failed, stream);
}

static CUresult count_launch(CUfunction function, unsigned x, unsigned y, unsigned z,
                             unsigned threads_x, unsigned threads_y, unsigned threads_z,
                             unsigned shared_bytes, CUstream stream, void **parameters,
                             void **extra)
{
    calls.launches++;
    return real.LaunchKernel(function, x, y, z, threads_x, threads_y, threads_z, shared_bytes,
                             stream, parameters, extra);
}

static CUresult count_store(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    calls.copies++;
    return real.MemcpyDtoHAsync(to, from, bytes, stream);
}

static CUresult count_load(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    calls.copies++;
    return real.MemcpyHtoDAsync(to, from, bytes, stream);
}

void check_calls_count(struct spw_gpu *gpu)
{
    real = gpu->driver;
    if (real.MemcpyBatchAsync)
        gpu->driver.MemcpyBatchAsync = count_batch;
    if (real.MemcpyBatchAsync_12)
        gpu->driver.MemcpyBatchAsync_12 = count_batch_12;
    if (real.LaunchKernel)
        gpu->driver.LaunchKernel = count_launch;
    gpu->driver.MemcpyDtoHAsync = count_store;
    gpu->driver.MemcpyHtoDAsync = count_load;
}

struct check_calls check_calls_so_far(void)
{
    return calls;
}
