#ifndef SPW_TOOLS_HOST_H
#define SPW_TOOLS_HOST_H
/*
 * What of a host matters to a pool: gathered as plain facts, then judged against what the pool
 * needs. Gathering reads files and asks the kernel; judging is pure, so that tests judge machines
 * that aren't there.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tools/config.h"
#include "tools/plan.h"

#define SPW_HOST_UNLIMITED    UINT64_MAX
#define SPW_HOST_GPUS_MAX     32u
#define SPW_HOST_LIST_BYTES   64u
#define SPW_HOST_FINDINGS_MAX 32u

struct spw_host_gpu {
    char bus_id[16]; /* "0000:3b:00.0", or "" where only a device file is seen */
    int32_t node;    /* NUMA node, -1 = the host doesn't say                   */
    char uuid[48];   /* "GPU-...", or "" where the driver doesn't say          */
};

struct spw_host {
    /* where the objects go */
    uint64_t shm_total, shm_free; /* SPW_HOST_UNLIMITED: a file system without a limit */
    bool shm_is_memory;           /* tmpfs or the like                                 */
    int shm_error;                /* why objects can't be made there: an errno, or 0   */
    uint64_t own_bytes;           /* of left-overs of this pool: a start takes them over */

    /* where chunks go that leave memory; all else is 0 unless it is wanted */
    bool nvme_wanted, nvme_direct, nvme_held; /* held: by a daemon that lives */
    int nvme_error;                           /* why it can't be used: an errno, or 0 */
    uint64_t nvme_free, nvme_own;             /* own: of a pool that used it before */
    uint32_t nvme_others;                     /* shards there of workers that this pool hasn't */
    uint64_t nvme_others_bytes;

    /* memory */
    uint64_t memory_total, memory_available;
    uint64_t cgroup_limit, cgroup_used; /* the tightest of those that apply */
    char cgroup_file[160];

    /* what the kernel lets this user do */
    uint64_t memlock_limit;
    bool may_lock; /* CAP_IPC_LOCK: the limit doesn't bind */
    uint64_t files_limit;
    int uring_error;     /* 0, or the errno of a trial */
    int uring_forbidden; /* kernel.io_uring_disabled: 0, 1, 2; -1 no such setting */

    /* pages */
    uint64_t huge_total, huge_free; /* reserved ones of 2 MiB                 */
    char shmem_thp[16];             /* never, advise, always, ...; "" unknown */
    uint32_t kernel_major, kernel_minor;

    /* placement */
    uint32_t cpus_allowed, cpus_online;
    char nodes_allowed[SPW_HOST_LIST_BYTES]; /* "0-1" */
    uint32_t nodes;                          /* in that list */
    bool cuda_built;                         /* these programs can use a GPU */
    int cuda_error;                          /* why --cuda-library can't be read: an errno, or 0 */
    uint32_t gpus;
    bool gpus_listed; /* by the driver: there are no others */
    struct spw_host_gpu gpu[SPW_HOST_GPUS_MAX];

    /* the name */
    bool daemon_alive, survivors; /* survivors: workers or clients of a dead daemon */
    bool left_over;
    uint64_t daemon_pid;
    uint32_t stale_pools; /* of this user in this directory, others than this one */
    char stale_pool[SPW_CONFIG_NAME_MAX + 1]; /* one of them                      */
};

/**
 * Look at this host. @root is put in front of /proc, /sys and /dev: "" for the real one.
 * Whatever can't be found out is left at "unknown" or "no limit"; nothing fails.
 */
void spw_host_gather(const char *root, const struct spw_config *config, struct spw_host *out_host);

/** The same of its GPUs alone, in the order of their PCI addresses, which is the driver's with
 * CUDA_DEVICE_ORDER=PCI_BUS_ID. */
void spw_host_gather_gpus(const char *root, struct spw_host *host);

enum spw_host_severity { SPW_HOST_OK, SPW_HOST_NOTE, SPW_HOST_WARNING, SPW_HOST_ERROR };

struct spw_host_finding {
    enum spw_host_severity severity;
    const char *what; /* "shm", "cgroup", ... static */
    char value[320];  /* what is so                  */
    char remedy[200]; /* "" where nothing is to be done */
    bool counted;     /* needed and available say something, in the unit of what */
    uint64_t needed, available;
};

/**
 * Judge @host for a pool that needs @plan. Pure. Returns the number of findings, in a fixed order,
 * at most SPW_HOST_FINDINGS_MAX; an ERROR means that spillwayd could not start, or not stay.
 */
uint32_t spw_host_judge(const struct spw_host *host, const struct spw_config *config,
                        const struct spw_plan *plan,
                        struct spw_host_finding out[SPW_HOST_FINDINGS_MAX]);

/** "ok", "note", "warning", "error". */
const char *spw_host_severity_word(enum spw_host_severity severity);

#endif
