/* Functions by name and version, as the driver hands them out: the newest that is not above what was
 * asked for, nor above the driver itself. */
#include <string.h>

#include "gpu/driver.h"
#include "tests/fake_cuda/fake.h"

typedef void (*function)(void);

#define DECLARE(name, version) CUresult fake_##name();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
SPW_DRIVER_REQUIRED(DECLARE)
SPW_DRIVER_OPTIONAL(DECLARE)
DECLARE(MemcpyBatchAsync, 13000)
DECLARE(MemcpyBatchAsync_12, 12080)
#pragma GCC diagnostic pop

static const struct {
    const char *name;
    int version;
    function function;
} table[] = {
#define ROW(name, version) {"cu" #name, version, (function)fake_##name},
    SPW_DRIVER_REQUIRED(ROW)
        SPW_DRIVER_OPTIONAL(ROW){"cuMemcpyBatchAsync", 12080, (function)fake_MemcpyBatchAsync_12},
    {"cuMemcpyBatchAsync", 13000, (function)fake_MemcpyBatchAsync},
};

static bool is_hidden(const char *name)
{
    const char *hidden = fake_env("FAKE_CUDA_HIDE");
    size_t length = strlen(name);
    for (const char *at = hidden; at && (at = strstr(at, name)); at += length)
        if ((at == hidden || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

CUresult cuGetProcAddress_v2(const char *, void **, int, cuuint64_t,
                             CUdriverProcAddressQueryResult *);

__attribute__((visibility("default"))) CUresult
cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *found)
{
    int most = (int)spw_load_relaxed(&fake.version), best = -1;
    bool exists = false;
    most = version < most ? version : most;
    for (size_t i = 0; i < sizeof table / sizeof table[0] && !is_hidden(name); i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        exists = true;
        if (table[i].version <= most && (best < 0 || table[i].version > table[best].version))
            best = (int)i;
    }
    *out = best < 0 ? NULL : (void *)table[best].function;
    if (found && best >= 0)
        *found = CU_GET_PROC_ADDRESS_SUCCESS;
    else if (found)
        *found = exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return best < 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
