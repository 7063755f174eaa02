/* Facts of a host against the needs of a pool; see host.h. Pure. */
#include "tools/host.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define FILES_NEEDED 64u /* objects are mapped one by one; what stays open are locks and bells */

struct judge {
    const struct spw_host *host;
    const struct spw_config *config;
    const struct spw_plan *plan;
    struct spw_host_finding *out;
    uint32_t count;
};

const char *spw_host_severity_word(enum spw_host_severity severity)
{
    static const char *const words[] = {"ok", "note", "warning", "error"};
    return words[severity];
}

__attribute__((format(printf, 4, 5))) static struct spw_host_finding *
find(struct judge *judge, enum spw_host_severity severity, const char *what, const char *format,
     ...)
{
    struct spw_host_finding *finding = &judge->out[judge->count++];
    va_list args;
    *finding = (struct spw_host_finding){.severity = severity, .what = what};
    va_start(args, format);
    vsnprintf(finding->value, sizeof finding->value, format, args);
    va_end(args);
    return finding;
}

__attribute__((format(printf, 2, 3))) static void remedy(struct spw_host_finding *finding,
                                                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->remedy, sizeof finding->remedy, format, args);
    va_end(args);
}

static void count(struct spw_host_finding *finding, uint64_t needed, uint64_t available)
{
    finding->counted = true;
    finding->needed = needed;
    finding->available = available;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 0x1p20;
}

/* What of the pool's bytes isn't there yet as those of a pool before. */
static uint64_t new_bytes(const struct judge *judge)
{
    uint64_t needed = judge->plan->total_bytes, own = judge->host->own_bytes;
    return needed > own ? needed - own : 0;
}

static void judge_shm(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    const char *dir = judge->config->shm_dir;
    uint64_t needed = judge->plan->total_bytes;
    uint64_t available = host->shm_free == SPW_HOST_UNLIMITED ? SPW_HOST_UNLIMITED
                                                              : host->shm_free + host->own_bytes;
    struct spw_host_finding *finding;
    if (available >= needed) {
        finding = find(judge, SPW_HOST_OK, "shm", "%.1f MiB needed in %s", mib(needed), dir);
    } else {
        finding = find(judge, SPW_HOST_ERROR, "shm", "%.1f MiB needed in %s, %.1f MiB available",
                       mib(needed), dir, mib(available));
        remedy(finding,
               "make it larger (mount -o remount,size=... %s; in a container --shm-size), or the "
               "pool smaller (--capacity-chunks, --kv-blocks)",
               dir);
    }
    count(finding, needed, available);
    if (host->shm_error) {
        finding = find(judge, SPW_HOST_ERROR, "shm-access", "objects can't be made in %s: %s", dir,
                       strerror(host->shm_error));
        remedy(finding, "let this user write there, or name another with --shm-dir");
    }
    if (!host->shm_is_memory) {
        finding = find(judge, SPW_HOST_WARNING, "shm-type", "%s is no tmpfs", dir);
        remedy(finding, "name a tmpfs with --shm-dir: on a disk, the pool is written to it");
    }
}

static void judge_memory(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    uint64_t needed = new_bytes(judge);
    struct spw_host_finding *finding;
    if (host->memory_total == 0) {
        find(judge, SPW_HOST_NOTE, "memory", "the host doesn't say how much it has");
        return;
    }
    enum spw_host_severity severity = needed > host->memory_total       ? SPW_HOST_ERROR
                                      : needed > host->memory_available ? SPW_HOST_WARNING
                                                                        : SPW_HOST_OK;
    finding = find(judge, severity, "memory", "%.1f MiB of %.1f MiB are available",
                   mib(host->memory_available), mib(host->memory_total));
    if (severity != SPW_HOST_OK)
        remedy(finding, "make the pool smaller, or end what holds the memory: %.1f MiB are needed",
               mib(needed));
    count(finding, needed, host->memory_available);
}

static void judge_cgroup(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    uint64_t needed = new_bytes(judge), limit = host->cgroup_limit;
    if (limit == SPW_HOST_UNLIMITED) {
        find(judge, SPW_HOST_OK, "cgroup", "no memory limit");
        return;
    }
    uint64_t available = limit > host->cgroup_used ? limit - host->cgroup_used : 0;
    enum spw_host_severity severity = needed > limit       ? SPW_HOST_ERROR
                                      : needed > available ? SPW_HOST_WARNING
                                                           : SPW_HOST_OK;
    struct spw_host_finding *finding =
        find(judge, severity, "cgroup", "limit of %.1f MiB, %.1f MiB used (%s)", mib(limit),
             mib(host->cgroup_used), host->cgroup_file);
    if (severity != SPW_HOST_OK)
        remedy(finding,
               "raise the limit (MemoryMax=, --memory): shared memory counts, and %.1f MiB more "
               "are needed",
               mib(needed));
    count(finding, needed, available);
}

static void judge_limits(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    uint64_t needed = judge->plan->payload_bytes / judge->config->workers;
    struct spw_host_finding *finding;
    if (host->may_lock || host->memlock_limit >= needed) {
        finding = find(judge, SPW_HOST_OK, "memlock", "no limit binds");
    } else {
        finding = find(judge, SPW_HOST_NOTE, "memlock",
                       "%.1f MiB may be locked, a worker's payload is %.1f MiB",
                       mib(host->memlock_limit), mib(needed));
        remedy(finding, "raise it (LimitMEMLOCK=, ulimit -l) before memory is pinned for a GPU or "
                        "registered with io_uring; the host copier needs none");
    }
    count(finding, needed, host->may_lock ? SPW_HOST_UNLIMITED : host->memlock_limit);
    bool enough = host->files_limit >= FILES_NEEDED;
    finding = find(judge, enough ? SPW_HOST_OK : SPW_HOST_ERROR, "files",
                   "%" PRIu64 " files may be open", host->files_limit);
    if (!enough)
        remedy(finding, "raise it (LimitNOFILE=, ulimit -n) to %u at least", FILES_NEEDED);
    count(finding, FILES_NEEDED, host->files_limit);
}

static void judge_uring(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    if (host->uring_error == 0) {
        find(judge, SPW_HOST_OK, "io_uring", "available");
        return;
    }
    struct spw_host_finding *finding =
        find(judge, SPW_HOST_NOTE, "io_uring", "not available: %s%s", strerror(host->uring_error),
             host->uring_forbidden > 0 ? ", kernel.io_uring_disabled is set" : "");
    remedy(finding,
           host->uring_forbidden > 0
               ? "sysctl kernel.io_uring_disabled=0, if an NVMe tier is wanted"
               : "let the container's seccomp profile allow it, if an NVMe tier is wanted");
}

static void judge_nvme(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    const char *dir = judge->config->nvme_dir;
    uint64_t needed = judge->config->nvme_bytes, available = host->nvme_free + host->nvme_own;
    struct spw_host_finding *finding;
    if (!host->nvme_wanted)
        return;
    if (host->nvme_error) {
        finding = find(judge, SPW_HOST_ERROR, "nvme", "%.120s can't be used: %s", dir,
                       strerror(host->nvme_error));
        remedy(finding, "make it a directory that this user can write, or name another with "
                        "--nvme-dir");
        return;
    }
    finding = find(judge, available >= needed ? SPW_HOST_OK : SPW_HOST_WARNING, "nvme",
                   "%.1f MiB needed in %s, %.1f MiB available", mib(needed), dir, mib(available));
    if (available < needed)
        remedy(finding,
               "make room, or lower --nvme-bytes: a full file system takes no more chunks");
    count(finding, needed, available);
    finding = find(judge, host->nvme_direct ? SPW_HOST_OK : SPW_HOST_NOTE, "nvme-direct",
                   host->nvme_direct ? "direct I/O works in %s"
                                     : "direct I/O doesn't work in %s: the page cache will be used",
                   dir);
    if (!host->nvme_direct)
        remedy(finding, "name a directory of ext4 or XFS on a local drive");
    if (host->nvme_others) {
        finding = find(judge, SPW_HOST_WARNING, "nvme-shards",
                       "%u %s in %.110s: of workers that this pool hasn't; %.1f "
                       "MiB beyond --nvme-bytes",
                       host->nvme_others, host->nvme_others == 1 ? "shard" : "shards", dir,
                       mib(host->nvme_others_bytes));
        remedy(finding,
               "remove shard-%" PRIu64 " and up there, or start with as many --workers again",
               judge->config->workers);
    }
    if (host->nvme_held) {
        finding = find(judge, SPW_HOST_ERROR, "nvme-lock", "%s is in use by a daemon", dir);
        remedy(finding, "stop that daemon, or name another directory with --nvme-dir");
    }
}

static void judge_pages(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    bool can = host->kernel_major > 6 || (host->kernel_major == 6 && host->kernel_minor >= 1);
    uint64_t wanted = judge->config->huge_pages;
    if (wanted != SPW_HUGE_PAGES_NEVER && !can) {
        struct spw_host_finding *finding = find(
            judge, wanted == SPW_HUGE_PAGES_ALWAYS ? SPW_HOST_ERROR : SPW_HOST_WARNING,
            "huge-pages", "Linux %u.%u can't make them", host->kernel_major, host->kernel_minor);
        remedy(finding, "take Linux 6.1 or later, or --huge-pages never");
        return;
    }
    find(judge, SPW_HOST_OK, "huge-pages",
         "Linux %u.%u %s; not used are hugetlb ones (%" PRIu64 " of %" PRIu64
         " free) and transparent ones for shared memory (%s)",
         host->kernel_major, host->kernel_minor, can ? "makes them on request" : "can't make them",
         host->huge_free, host->huge_total, host->shmem_thp[0] ? host->shmem_thp : "unknown");
}

static void judge_placement(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    uint64_t processes = judge->config->workers;
    bool enough = host->cpus_allowed >= processes;
    struct spw_host_finding *finding = find(judge, enough ? SPW_HOST_OK : SPW_HOST_WARNING, "cpus",
                                            "%u of %u allowed, %" PRIu64 " workers",
                                            host->cpus_allowed, host->cpus_online, processes);
    if (!enough)
        remedy(finding, "allow more (AllowedCPUs=, --cpuset-cpus), or start fewer workers");
    count(finding, processes, host->cpus_allowed);
    find(judge, SPW_HOST_OK, "nodes", "%u allowed (%s)", host->nodes,
         host->nodes_allowed[0] ? host->nodes_allowed : "unknown");
}

/* Why no worker can have a GPU; "" if one may. A library that was named may know GPUs that nobody
 * else sees. */
static const char *without_gpus(const struct judge *judge, char out[128])
{
    const struct spw_host *host = judge->host;
    bool named = judge->config->cuda_library[0] != '\0';
    out[0] = '\0';
    if (!host->cuda_built)
        snprintf(out, 128, "built without CUDA");
    else if (host->cuda_error)
        snprintf(out, 128, "--cuda-library can't be read: %s", strerror(host->cuda_error));
    else if (host->gpus == 0 && !named)
        snprintf(out, 128, "no GPU found");
    return out;
}

/* Workers are their own judges of a GPU; that there is none at all is seen before. */
static void judge_copier(struct judge *judge)
{
    uint64_t copier = judge->config->copier;
    bool asked = judge->config->gpu[0] || judge->config->pin == SPW_CONFIG_PIN_STRICT;
    struct spw_host_finding *finding;
    char why[128];
    if (without_gpus(judge, why)[0] == '\0' || copier == SPW_CONFIG_COPIER_HOST)
        return;
    if (copier == SPW_CONFIG_COPIER_CUDA) {
        finding =
            find(judge, SPW_HOST_ERROR, "copier", "%s, and --copier cuda needs one a worker", why);
        remedy(finding, judge->host->cuda_built
                            ? "install the driver, or --copier auto or host"
                            : "build with the headers of CUDA 12.8, or --copier auto or host");
    } else {
        finding =
            find(judge, asked ? SPW_HOST_WARNING : SPW_HOST_NOTE, "copier", "%s: the host copies%s",
                 why, asked ? ", whatever --gpu and --pin ask for" : "");
        remedy(finding,
               "--copier cuda refuses to start without a GPU; --copier host looks for none");
    }
}

static void judge_gpus(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    if (host->gpus == 0)
        find(judge, SPW_HOST_NOTE, "gpus", "none found");
    for (uint32_t i = 0; i < host->gpus && judge->count < SPW_HOST_FINDINGS_MAX - 8; i++) {
        const struct spw_host_gpu *gpu = &host->gpu[i];
        char node[40] = "a node that the host doesn't tell";
        if (gpu->node >= 0)
            snprintf(node, sizeof node, "node %d", gpu->node);
        find(judge, SPW_HOST_NOTE, "gpus", "GPU %u%s%s on %s", i, gpu->bus_id[0] ? " at " : "",
             gpu->bus_id, node);
    }
}

static void judge_name(struct judge *judge)
{
    const struct spw_host *host = judge->host;
    const char *name = judge->config->name;
    struct spw_host_finding *finding;
    if (host->daemon_alive) {
        finding = find(judge, SPW_HOST_ERROR, "name", "pool %s is in use by a daemon, pid %" PRIu64,
                       name, host->daemon_pid);
        remedy(finding, "spillway stop --pool %s ends it; or take another --name", name);
    } else if (host->left_over) {
        finding =
            find(judge, SPW_HOST_NOTE, "name", "pool %s has left %.1f MiB%s", name,
                 mib(host->own_bytes), host->survivors ? ", and processes that still hold it" : "");
        remedy(finding,
               "the next start takes them over or makes them anew; spillway rm %s removes "
               "what nobody holds",
               name);
    } else {
        find(judge, SPW_HOST_OK, "name", "pool %s is free", name);
    }
    if (host->stale_pools) {
        finding = find(judge, SPW_HOST_NOTE, "stale", "%u other pools in %s have no process",
                       host->stale_pools, judge->config->shm_dir);
        remedy(finding, "spillway rm %s removes what the first of them left", host->stale_pool);
    }
}

uint32_t spw_host_judge(const struct spw_host *host, const struct spw_config *config,
                        const struct spw_plan *plan,
                        struct spw_host_finding out[SPW_HOST_FINDINGS_MAX])
{
    struct judge judge = {.host = host, .config = config, .plan = plan, .out = out};
    judge_shm(&judge);
    judge_memory(&judge);
    judge_cgroup(&judge);
    judge_limits(&judge);
    judge_uring(&judge);
    judge_nvme(&judge);
    judge_pages(&judge);
    if (config->topology[0] == '\0') { /* or else another host is meant */
        judge_placement(&judge);
        judge_gpus(&judge);
        judge_copier(&judge);
    }
    judge_name(&judge);
    return judge.count;
}
