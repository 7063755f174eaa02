/* The list of faults, and the error that sticks: of the process, which has one context of use here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake_cuda/fake.h"

#define FAULTS_MAX 16
#define ANY_DEVICE (-1)

struct fault {
    char name[40];
    unsigned long nth, calls;
    bool from_then_on, sticky;
    int code;
    int device; /* of the host, or ANY_DEVICE */
};

static struct fault faults[FAULTS_MAX];
static int fault_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int poison;

static bool read_fault(const char *entry, struct fault *out)
{
    struct fault fault = {.device = ANY_DEVICE};
    char nth[16] = "";
    int length = 0;
    if (sscanf(entry, "%39[^:]:%15[^:]:%d%n", fault.name, nth, &fault.code, &length) != 3)
        return false;
    const char *device = strchr(entry + length, '@');
    if (device)
        fault.device = atoi(device + 1);
    fault.nth = strtoul(nth, NULL, 10);
    fault.from_then_on = strchr(nth, '-') != NULL;
    fault.sticky = strncmp(entry + length, ":sticky", 7) == 0;
    *out = fault;
    return true;
}

void fake_set_faults(const char *text)
{
    char copy[512];
    char *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    pthread_mutex_lock(&lock);
    fault_count = 0;
    for (char *entry; (entry = strsep(&rest, ",")) && fault_count < FAULTS_MAX;)
        if (read_fault(entry, &faults[fault_count]))
            fault_count++;
    pthread_mutex_unlock(&lock);
}

/* What no context survives. */
static bool is_sticky(CUresult code)
{
    return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_FAILED ||
           code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_ILLEGAL_INSTRUCTION ||
           code == CUDA_ERROR_MISALIGNED_ADDRESS || code == CUDA_ERROR_ASSERT;
}

/* One more call of its name. */
static bool is_due(struct fault *fault, const char *name, int device)
{
    if (strcmp(fault->name, name) != 0 || (fault->device != ANY_DEVICE && fault->device != device))
        return false;
    fault->calls++;
    return fault->calls == fault->nth || (fault->from_then_on && fault->calls > fault->nth);
}

CUresult fake_fault(const char *name)
{
    CUresult code = CUDA_SUCCESS;
    bool sticky = strcmp(name, "copy") == 0;
    int device = fake_device_current();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < fault_count; i++) {
        if (!is_due(&faults[i], name, device))
            continue;
        code = (CUresult)faults[i].code;
        sticky = sticky || faults[i].sticky;
    }
    pthread_mutex_unlock(&lock);
    if (code != CUDA_SUCCESS && (sticky || is_sticky(code)))
        fake_set_poison(code);
    return code;
}

void fake_spoil(void *to, size_t bytes)
{
    unsigned char *at = to; /* raised, so that there and back doesn't undo it */
    if (fake_fault("byte") != CUDA_SUCCESS)
        at[bytes / 2]++;
    if (fake_fault("behind") != CUDA_SUCCESS)
        at[bytes]++;
}

CUresult fake_poison(void)
{
    return (CUresult)atomic_load(&poison);
}

void fake_set_poison(CUresult code)
{
    int none = CUDA_SUCCESS; /* the first one stays */
    atomic_compare_exchange_strong(&poison, &none, (int)code);
}
