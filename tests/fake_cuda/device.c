/* Devices, contexts, and the list of faults. */
#include "tests/fake_cuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULTS_MAX 16
#define STANDARD   "GPU-00000000-0000-0000-0000-00000000000a@0000:10:00.0"

struct fault {
    char name[40];
    unsigned long nth, calls;
    bool from_then_on;
    int code;
};

struct device {
    unsigned char uuid[16];
    char bus[16];
};

static void set_faults(const char *text);

struct fake_cuda fake = {.version = 13000, .set_faults = set_faults};
static struct fault faults[FAULTS_MAX];
static int fault_count;
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int poison;
static pid_t started_by; /* 0: not initialised */
static struct device device[FAKE_DEVICES_MAX];
static int devices;
static __thread CUcontext current;
static atomic_int retained;

__attribute__((visibility("default"))) struct fake_cuda *fake_cuda_control(void)
{
    return &fake;
}

const char *fake_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void set_faults(const char *text)
{
    char copy[512];
    char *rest = copy;
    pthread_mutex_lock(&fault_lock);
    fault_count = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *entry; (entry = strsep(&rest, ",")) && fault_count < FAULTS_MAX;) {
        struct fault fault = {.calls = 0};
        char nth[16] = "";
        if (sscanf(entry, "%39[^:]:%15[^:]:%d", fault.name, nth, &fault.code) != 3)
            continue;
        fault.nth = strtoul(nth, NULL, 10);
        fault.from_then_on = strchr(nth, '-') != NULL;
        faults[fault_count++] = fault;
    }
    pthread_mutex_unlock(&fault_lock);
}

CUresult fake_fault(const char *name)
{
    int code = 0;
    pthread_mutex_lock(&fault_lock);
    for (int i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];
        if (strcmp(fault->name, name) != 0)
            continue;
        fault->calls++;
        if (fault->calls == fault->nth || (fault->from_then_on && fault->calls > fault->nth))
            code = fault->code;
    }
    pthread_mutex_unlock(&fault_lock);
    if (fake_is_sticky(code))
        fake_set_poison(code);
    return code;
}

bool fake_is_sticky(CUresult code)
{
    return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_FAILED ||
           code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_ILLEGAL_INSTRUCTION ||
           code == CUDA_ERROR_MISALIGNED_ADDRESS || code == CUDA_ERROR_ASSERT;
}

CUresult fake_poison(void)
{
    return (CUresult)atomic_load(&poison);
}

void fake_set_poison(CUresult code)
{
    atomic_store(&poison, (int)code);
}

CUresult fake_enter(const char *name, bool context)
{
    if (started_by == 0 || started_by != getpid()) /* nor after a fork */
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_poison() != CUDA_SUCCESS)
        return fake_poison();
    CUresult code = fake_fault(name);
    if (code != CUDA_SUCCESS)
        return code;
    return context && !current ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
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
        if (read_device(entry, &all[count]))
            count++;
    return count;
}

/* Ordinals or UUIDs, in the order named; the first that isn't there ends the list. */
static void choose_visible(void)
{
    struct device all[FAKE_DEVICES_MAX], wanted;
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
    for (char *entry; (entry = strsep(&rest, ","));) {
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

__attribute__((visibility("default"))) CUresult cuInit(unsigned flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_env("FAKE_CUDA_FAULTS") && fault_count == 0)
        set_faults(getenv("FAKE_CUDA_FAULTS"));
    if (fake_env("FAKE_CUDA_VERSION"))
        atomic_store(&fake.version, atoi(getenv("FAKE_CUDA_VERSION")));
    if (fake_env("FAKE_CUDA_RATE"))
        atomic_store(&fake.rate_bytes, strtoul(getenv("FAKE_CUDA_RATE"), NULL, 10));
    CUresult code = fake_fault("Init");
    if (code != CUDA_SUCCESS)
        return code;
    if (started_by != 0 && started_by != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    choose_visible();
    if (devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    started_by = getpid();
    return CUDA_SUCCESS;
}

FAKE(DriverGetVersion)(int *out)
{
    *out = atomic_load(&fake.version);
    return CUDA_SUCCESS;
}

FAKE(GetErrorName)(CUresult code, const char **out)
{
    static const struct {
        CUresult code;
        const char *name;
    } names[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED"},
        {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
        {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
        {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code) {
            *out = names[i].name;
            return CUDA_SUCCESS;
        }
    *out = "CUDA_ERROR_OF_THE_STAND_IN";
    return CUDA_SUCCESS;
}

FAKE(DeviceGetCount)(int *out)
{
    CUresult code = fake_enter("DeviceGetCount", false);
    *out = devices;
    return code;
}

FAKE(DeviceGet)(CUdevice *out, int ordinal)
{
    CUresult code = fake_enter("DeviceGet", false);
    if (code == CUDA_SUCCESS && (ordinal < 0 || ordinal >= devices))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return code;
}

FAKE(DeviceGetName)(char *out, int bytes, CUdevice which)
{
    snprintf(out, (size_t)bytes, "stand-in %d", which);
    return fake_enter("DeviceGetName", false);
}

FAKE(DeviceGetUuid)(CUuuid *out, CUdevice which)
{
    memcpy(out->bytes, device[which].uuid, 16);
    return fake_enter("DeviceGetUuid", false);
}

FAKE(DeviceGetPCIBusId)(char *out, int bytes, CUdevice which)
{
    snprintf(out, (size_t)bytes, "%s", device[which].bus);
    return fake_enter("DeviceGetPCIBusId", false);
}

FAKE(DeviceGetAttribute)(int *out, CUdevice_attribute attribute, CUdevice which)
{
    *out = attribute == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING ||
           attribute == CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED;
    return fake_enter("DeviceGetAttribute", false);
}

/* ---- contexts: each device's primary one ----------------------------------------------------- */

FAKE(DevicePrimaryCtxRetain)(CUcontext *out, CUdevice which)
{
    CUresult code = fake_enter("DevicePrimaryCtxRetain", false);
    if (code == CUDA_SUCCESS)
        atomic_fetch_add(&retained, 1);
    *out = (CUcontext)(uintptr_t)(0x1000 + which);
    return code;
}

FAKE(DevicePrimaryCtxRelease)(CUdevice which)
{
    if (atomic_fetch_sub(&retained, 1) <= 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return fake_enter("DevicePrimaryCtxRelease", false);
}

FAKE(CtxSetCurrent)(CUcontext context)
{
    CUresult code = fake_enter("CtxSetCurrent", false);
    if (code == CUDA_SUCCESS)
        current = context;
    return code;
}

FAKE(CtxGetStreamPriorityRange)(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return fake_enter("CtxGetStreamPriorityRange", true);
}
