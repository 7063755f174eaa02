/* Copies and fills, one by one or in batches. */
#include <stdlib.h>

#include "tests/fake_cuda/fake.h"

/* Memory that isn't registered is staged: the call waits for it. */
static CUresult queue_copy(CUstream stream, void *to, const void *from, size_t bytes,
                           const void *host)
{
    enum fake_pinned pinned = fake_is_pinned(host, bytes);
    struct fake_op op = {.kind = FAKE_COPY, .to = to, .from = from, .bytes = bytes};
    if (!to || !from || pinned == FAKE_CROSSES)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = fake_push(stream, &op);
    if (code != CUDA_SUCCESS || pinned == FAKE_PINNED)
        return code;
    fake_count(&fake.unpinned, 1);
    fake_drain(stream);
    return CUDA_SUCCESS;
}

FAKE(MemcpyDtoHAsync)(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult code = fake_enter("MemcpyDtoHAsync", true);
    return code != CUDA_SUCCESS ? code
                                : queue_copy(stream, to, fake_bytes_of(from, bytes), bytes, to);
}

FAKE(MemcpyHtoDAsync)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    CUresult code = fake_enter("MemcpyHtoDAsync", true);
    return code != CUDA_SUCCESS ? code
                                : queue_copy(stream, fake_bytes_of(to, bytes), from, bytes, from);
}

FAKE(MemsetD8Async)(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    CUresult code = fake_enter("MemsetD8Async", true);
    struct fake_op op = {
        .kind = FAKE_SET, .to = fake_bytes_of(to, bytes), .bytes = bytes, .value = value};
    if (code == CUDA_SUCCESS && !op.to)
        return CUDA_ERROR_INVALID_VALUE;
    return code != CUDA_SUCCESS ? code : fake_push(stream, &op);
}

/* One of the two is device memory; either way round. */
static CUresult batch_one(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    void *device_to = fake_bytes_of(to, bytes), *device_from = fake_bytes_of(from, bytes);
    void *host = (void *)(uintptr_t)(device_to ? from : to);
    if (!device_to == !device_from)
        return CUDA_ERROR_INVALID_VALUE;
    return queue_copy(stream, device_to ? device_to : host, device_from ? device_from : host, bytes,
                      host);
}

/* Each attribute is for the copies from its index on. */
static bool are_attributes(const CUmemcpyAttributes *attributes, const size_t *attribute_of,
                           size_t attributes_count, size_t count)
{
    if (attributes_count == 0 || attributes_count > count || attribute_of[0] != 0)
        return false;
    for (size_t i = 0; i < attributes_count; i++)
        if (attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID ||
            attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
            attribute_of[i] >= count || (i > 0 && attribute_of[i] <= attribute_of[i - 1]))
            return false;
    return true;
}

FAKE(MemcpyBatchAsync_12)
(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
 size_t *attribute_of, size_t attributes_count, size_t *failed, CUstream stream)
{
    CUresult code = fake_enter("MemcpyBatchAsync", true);
    *failed = SIZE_MAX;
    if (code != CUDA_SUCCESS)
        return code;
    if (!stream || count == 0 || !are_attributes(attributes, attribute_of, attributes_count, count))
        return CUDA_ERROR_INVALID_VALUE;
    fake_count(&fake.batches, 1);
    for (size_t i = 0; i < count && code == CUDA_SUCCESS; i++) {
        code = batch_one(to[i], from[i], bytes[i], stream);
        if (code != CUDA_SUCCESS)
            *failed = i;
    }
    return code;
}

FAKE(MemcpyBatchAsync)
(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
 size_t *attribute_of, size_t attributes_count, CUstream stream)
{
    size_t failed;
    return fake_MemcpyBatchAsync_12(to, from, bytes, count, attributes, attribute_of,
                                    attributes_count, &failed, stream);
}
