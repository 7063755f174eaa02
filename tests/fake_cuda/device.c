/* Devices and their primary contexts, and whether a call may be made at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

#define STANDARD "GPU-00000000-0000-0000-0000-00000000000a@0000:10:00.0"

struct device {
    unsigned char uuid[16];
    char bus[16];
    int at_host;         /* its place in FAKE_CUDA_DEVICES */
    atomic_int retained; /* contexts                       */
};

#define CONTEXT_OF(device) ((CUcontext)(uintptr_t)(0x1000 + (device)))
#define DEVICE_OF(context) ((CUdevice)((uintptr_t)(context)-0x1000))

struct fake_cuda fake = {.version = 13000, .stream_capacity = 65536, .set_faults = fake_set_faults};
static atomic_int started_by; /* 0: not initialised */
static struct device device[FAKE_DEVICES_MAX];
static int devices;
/* Of a thread. No __thread: leak checkers take what a loaded library has of it for something else. */
static pthread_key_t current_key;
static pthread_once_t current_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    pthread_key_create(&current_key, NULL);
}

static CUcontext current_context(void)
{
    pthread_once(&current_once, make_key);
    return pthread_getspecific(current_key);
}
static atomic_int last_retained = -1; /* at the host */

__attribute__((visibility("default"))) struct fake_cuda *fake_cuda_control(void)
{
    return &fake;
}

const char *fake_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

int fake_device_current(void)
{
    CUcontext current = current_context();
    return current ? device[DEVICE_OF(current)].at_host : atomic_load(&last_retained);
}

CUresult fake_enter(const char *name, bool context)
{
    if (atomic_load(&started_by) != getpid()) /* nor after a fork */
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_poison() != CUDA_SUCCESS)
        return fake_poison();
    CUresult code = fake_fault(name);
    if (code != CUDA_SUCCESS)
        return code;
    return context && !current_context() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/* ---- devices --------------------------------------------------------------------------------- */

static bool read_device(const char *entry, struct device *out)
{
    const char *at = strchr(entry, '@');
    unsigned byte;
    int n = 0;
    if (!at || strncmp(entry, "GPU-", 4) != 0)
        return false;
    for (const char *c = entry + 4; c < at && n < 16; c += *c == '-' ? 1 : 2) {
        if (*c == '-')
            continue;
        if (sscanf(c, "%2x", &byte) != 1)
            return false;
        out->uuid[n++] = (unsigned char)byte;
    }
    snprintf(out->bus, sizeof out->bus, "%.15s", at + 1);
    return n == 16;
}

static int read_all(struct device *all)
{
    const char *text = getenv("FAKE_CUDA_DEVICES");
    char copy[1024];
    char *rest = copy;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", text ? text : STANDARD);
    for (char *entry; (entry = strsep(&rest, ",")) && count < FAKE_DEVICES_MAX;)
        if (read_device(entry, &all[count])) {
            all[count].at_host = count;
            count++;
        }
    return count;
}

/* Ordinals or UUIDs, in the order named; the first that isn't there ends the list. */
static void choose_visible(void)
{
    struct device all[FAKE_DEVICES_MAX] = {0}, wanted;
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int count = read_all(all);
    devices = 0;
    if (!text) {
        memcpy(device, all, sizeof all);
        devices = count;
        return;
    }
    char copy[1024], with_bus[128];
    char *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *entry; devices < FAKE_DEVICES_MAX && (entry = strsep(&rest, ","));) {
        int found = -1;
        snprintf(with_bus, sizeof with_bus, "%.60s@", entry);
        if (read_device(with_bus, &wanted)) {
            for (int i = 0; i < count; i++)
                if (memcmp(all[i].uuid, wanted.uuid, 16) == 0)
                    found = i;
        } else if (*entry >= '0' && *entry <= '9' && atoi(entry) < count) {
            found = atoi(entry);
        }
        if (found < 0)
            return;
        device[devices++] = all[found];
    }
}

static void set_from_env(const char *name, spw_atomic64 *out)
{
    const char *value = fake_env(name);
    if (value)
        spw_store_relaxed(out, strtoull(value, NULL, 10));
}

static void read_settings(void)
{
    static atomic_bool faults_read;
    const char *faults = fake_env("FAKE_CUDA_FAULTS");
    if (faults && !atomic_exchange(&faults_read, true))
        fake_set_faults(faults);
    set_from_env("FAKE_CUDA_VERSION", &fake.version);
    set_from_env("FAKE_CUDA_RATE", &fake.rate_bytes);
    set_from_env("FAKE_CUDA_REGISTRATION_CAP", &fake.registration_cap);
    set_from_env("FAKE_CUDA_NS_PER_MIB", &fake.ns_per_mib);
    set_from_env("FAKE_CUDA_STREAM_CAPACITY", &fake.stream_capacity);
}

__attribute__((visibility("default"))) CUresult cuInit(unsigned flags)
{
    int by = atomic_load(&started_by);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    read_settings();
    CUresult code = fake_fault("Init");
    if (code != CUDA_SUCCESS)
        return code;
    if (by != 0 && by != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (by == 0)
        choose_visible();
    if (devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    atomic_store(&started_by, getpid());
    return CUDA_SUCCESS;
}

FAKE(DriverGetVersion)(int *out)
{
    *out = (int)spw_load_relaxed(&fake.version);
    return CUDA_SUCCESS;
}

FAKE(GetErrorName)(CUresult code, const char **out)
{
#define NAMED(code)                                                                                \
    case code:                                                                                     \
        *out = #code;                                                                              \
        return CUDA_SUCCESS
    switch (code) {
        NAMED(CUDA_SUCCESS);
        NAMED(CUDA_ERROR_INVALID_VALUE);
        NAMED(CUDA_ERROR_OUT_OF_MEMORY);
        NAMED(CUDA_ERROR_NOT_INITIALIZED);
        NAMED(CUDA_ERROR_NO_DEVICE);
        NAMED(CUDA_ERROR_INVALID_DEVICE);
        NAMED(CUDA_ERROR_INVALID_IMAGE);
        NAMED(CUDA_ERROR_INVALID_CONTEXT);
        NAMED(CUDA_ERROR_MAP_FAILED);
        NAMED(CUDA_ERROR_ECC_UNCORRECTABLE);
        NAMED(CUDA_ERROR_INVALID_HANDLE);
        NAMED(CUDA_ERROR_NOT_FOUND);
        NAMED(CUDA_ERROR_NOT_READY);
        NAMED(CUDA_ERROR_ILLEGAL_ADDRESS);
        NAMED(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        NAMED(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        NAMED(CUDA_ERROR_LAUNCH_FAILED);
        NAMED(CUDA_ERROR_NOT_PERMITTED);
        NAMED(CUDA_ERROR_NOT_SUPPORTED);
        NAMED(CUDA_ERROR_UNKNOWN);
    default:
        *out = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
#undef NAMED
}

/* A call about device @which. */
static CUresult enter_device(const char *name, CUdevice which)
{
    CUresult code = fake_enter(name, false);
    return code == CUDA_SUCCESS && (which < 0 || which >= devices) ? CUDA_ERROR_INVALID_DEVICE
                                                                   : code;
}

FAKE(DeviceGetCount)(int *out)
{
    CUresult code = fake_enter("DeviceGetCount", false);
    *out = devices;
    return code;
}

FAKE(DeviceGet)(CUdevice *out, int ordinal)
{
    CUresult code = enter_device("DeviceGet", ordinal);
    if (code == CUDA_SUCCESS)
        *out = ordinal;
    return code;
}

FAKE(DeviceGetName)(char *out, int bytes, CUdevice which)
{
    CUresult code = enter_device("DeviceGetName", which);
    if (code == CUDA_SUCCESS)
        snprintf(out, (size_t)bytes, "stand-in %d", which);
    return code;
}

FAKE(DeviceGetUuid)(CUuuid *out, CUdevice which)
{
    CUresult code = enter_device("DeviceGetUuid", which);
    if (code == CUDA_SUCCESS)
        memcpy(out->bytes, device[which].uuid, 16);
    return code;
}

FAKE(DeviceGetPCIBusId)(char *out, int bytes, CUdevice which)
{
    CUresult code = enter_device("DeviceGetPCIBusId", which);
    if (code == CUDA_SUCCESS)
        snprintf(out, (size_t)bytes, "%s", device[which].bus);
    return code;
}

FAKE(DeviceGetAttribute)(int *out, CUdevice_attribute attribute, CUdevice which)
{
    CUresult code = enter_device("DeviceGetAttribute", which);
    if (code == CUDA_SUCCESS)
        *out = attribute == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING ||
               attribute == CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED ||
               attribute == CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
    return code;
}

/* ---- contexts: each device's primary one ----------------------------------------------------- */

FAKE(DevicePrimaryCtxRetain)(CUcontext *out, CUdevice which)
{
    CUresult code = enter_device("DevicePrimaryCtxRetain", which);
    if (code != CUDA_SUCCESS)
        return code;
    atomic_fetch_add(&device[which].retained, 1);
    atomic_store(&last_retained, device[which].at_host);
    *out = CONTEXT_OF(which);
    return CUDA_SUCCESS;
}

FAKE(DevicePrimaryCtxRelease)(CUdevice which)
{
    CUresult code = enter_device("DevicePrimaryCtxRelease", which);
    if (code != CUDA_SUCCESS)
        return code;
    if (atomic_load(&device[which].retained) == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    atomic_fetch_sub(&device[which].retained, 1);
    return CUDA_SUCCESS;
}

FAKE(CtxSetCurrent)(CUcontext context)
{
    CUresult code = fake_enter("CtxSetCurrent", false);
    if (code == CUDA_SUCCESS && context && atomic_load(&device[DEVICE_OF(context)].retained) == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_once(&current_once, make_key);
    if (code == CUDA_SUCCESS)
        pthread_setspecific(current_key, context);
    return code;
}

FAKE(CtxGetStreamPriorityRange)(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return fake_enter("CtxGetStreamPriorityRange", true);
}
