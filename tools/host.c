/* What is so on this host; see host.h. Reads /proc, /sys, /dev and limits; changes nothing but for a
 * moment: a trial ring. */
#include "tools/host.h"
#include "tools/host_impl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/pool_remove.h"
#include "tools/set.h"

#define PATH_BYTES   512
#define CAP_IPC_LOCK 14
#define V1_UNLIMITED (1ull << 62) /* cgroup v1 writes "no limit" as 2^63 less a page */

/* ---- files ----------------------------------------------------------------------------------- */

bool spw_host_read_line(const char *root, const char *path, char *out, size_t bytes)
{
    char full[PATH_BYTES];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "re");
    out[0] = 0;
    if (!file)
        return false;
    bool read = fgets(out, (int)bytes, file) != NULL;
    fclose(file);
    out[strcspn(out, "\n")] = 0;
    return read;
}

void spw_host_read_key(const char *root, const char *path, const char *key, char *out, size_t bytes)
{
    char full[PATH_BYTES], line[256];
    size_t length = strlen(key);
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "re");
    out[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != ':')
            continue;
        const char *value = line + length + 1;
        value += strspn(value, " \t");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file)
        fclose(file);
}

uint64_t spw_host_read_number(const char *root, const char *path, uint64_t otherwise)
{
    char line[64];
    return spw_host_read_line(root, path, line, sizeof line) && isdigit((unsigned char)line[0])
               ? strtoull(line, NULL, 10)
               : otherwise;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void gather_memory(const char *root, struct spw_host *host)
{
    char text[64];
    spw_host_read_key(root, "/proc/meminfo", "MemTotal", text, sizeof text);
    host->memory_total = strtoull(text, NULL, 10) * 1024;
    spw_host_read_key(root, "/proc/meminfo", "MemAvailable", text, sizeof text);
    host->memory_available = strtoull(text, NULL, 10) * 1024;
}

/* The limits of @group and of all groups above it, under the mount @mount. */
static void gather_group(const char *root, const char *mount, const char *group, const char *limit,
                         const char *used, struct spw_host *host)
{
    char at[256], path[PATH_BYTES];
    snprintf(at, sizeof at, "%s", group);
    for (;;) {
        snprintf(path, sizeof path, "%s%s/%s", mount, strcmp(at, "/") ? at : "", limit);
        uint64_t bytes =
            spw_host_read_number(root, path, SPW_HOST_UNLIMITED); /* "max" is no number */
        if (bytes < V1_UNLIMITED && bytes < host->cgroup_limit) {
            host->cgroup_limit = bytes;
            snprintf(host->cgroup_file, sizeof host->cgroup_file, "%.*s",
                     (int)sizeof host->cgroup_file - 1, path);
            snprintf(path, sizeof path, "%s%s/%s", mount, strcmp(at, "/") ? at : "", used);
            host->cgroup_used = spw_host_read_number(root, path, 0);
        }
        char *slash = strrchr(at, '/');
        if (!slash || strcmp(at, "/") == 0)
            break;
        slash[slash == at] = 0; /* the one above; above "/a" comes "/" */
    }
}

/* Lines "0::/GROUP" (v2) and "N:memory,...:/GROUP" (v1) of /proc/self/cgroup. */
static void gather_cgroup(const char *root, struct spw_host *host)
{
    char full[PATH_BYTES], line[256];
    host->cgroup_limit = SPW_HOST_UNLIMITED;
    snprintf(full, sizeof full, "%s/proc/self/cgroup", root);
    FILE *file = fopen(full, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        if (names[1] == 0)
            gather_group(root, "/sys/fs/cgroup", group, "memory.max", "memory.current", host);
        else if (strstr(names, "memory"))
            gather_group(root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                         "memory.usage_in_bytes", host);
    }
    if (file)
        fclose(file);
}

static void gather_pages(const char *root, struct spw_host *host)
{
    char text[128];
    struct utsname name;
    const char *huge = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    snprintf(text, sizeof text, "%s/nr_hugepages", huge);
    host->huge_total = spw_host_read_number(root, text, 0);
    snprintf(text, sizeof text, "%s/free_hugepages", huge);
    host->huge_free = spw_host_read_number(root, text, 0);
    /* "always within_size advise [never] deny force": the one in brackets holds */
    if (spw_host_read_line(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", text,
                           sizeof text) &&
        strchr(text, '['))
        snprintf(host->shmem_thp, sizeof host->shmem_thp, "%.*s",
                 (int)strcspn(strchr(text, '[') + 1, "]"), strchr(text, '[') + 1);
    if (uname(&name) == 0)
        sscanf(name.release, "%u.%u", &host->kernel_major, &host->kernel_minor);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static uint64_t limit_of(__rlimit_resource_t what)
{
    struct rlimit limit;
    if (getrlimit(what, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return SPW_HOST_UNLIMITED;
    return limit.rlim_cur;
}

static void gather_limits(const char *root, struct spw_host *host)
{
    char text[64];
    struct io_uring_params params = {0};
    host->memlock_limit = limit_of(RLIMIT_MEMLOCK);
    host->files_limit = limit_of(RLIMIT_NOFILE);
    spw_host_read_key(root, "/proc/self/status", "CapEff", text, sizeof text);
    host->may_lock = strtoull(text, NULL, 16) >> CAP_IPC_LOCK & 1;
    host->uring_forbidden =
        (int)(int64_t)spw_host_read_number(root, "/proc/sys/kernel/io_uring_disabled", UINT64_MAX);
    int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
    host->uring_error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
}

/* ---- placement ------------------------------------------------------------------------------- */

/* How many numbers "0-3,8" names. */
static uint32_t count_list(const char *list)
{
    struct spw_set set = {{0}};
    spw_set_parse(list, strlen(list), &set);
    return spw_set_count(&set);
}

static void gather_cpus(const char *root, struct spw_host *host)
{
    char text[256];
    spw_host_read_key(root, "/proc/self/status", "Cpus_allowed_list", text, sizeof text);
    host->cpus_allowed = count_list(text);
    spw_host_read_line(root, "/sys/devices/system/cpu/online", text, sizeof text);
    host->cpus_online = count_list(text);
    spw_host_read_key(root, "/proc/self/status", "Mems_allowed_list", text, sizeof text);
    host->nodes = count_list(text);
    snprintf(host->nodes_allowed, sizeof host->nodes_allowed, "%.*s",
             (int)sizeof host->nodes_allowed - 1, text);
}

/* ---- the directory --------------------------------------------------------------------------- */

static void gather_room(const struct spw_config *config, struct spw_host *host)
{
    struct statvfs fs;
    struct statfs kind;
    host->shm_total = host->shm_free = SPW_HOST_UNLIMITED;
    if (statvfs(config->shm_dir, &fs) == 0 && fs.f_blocks != 0) {
        host->shm_total = (uint64_t)fs.f_blocks * fs.f_frsize;
        host->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    }
    if (statfs(config->shm_dir, &kind) == 0)
        host->shm_is_memory = kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC;
    if (faccessat(AT_FDCWD, config->shm_dir, R_OK | W_OK | X_OK, AT_EACCESS))
        host->shm_error = errno;
}

/* Who holds the pool @name: true if there is a lock object; lives of daemon and others. */
static bool ask_locks(const struct spw_config *config, const char *name, bool *out_daemon,
                      bool *out_others)
{
    struct spw_pool_path path;
    if (spw_pool_path_init(&path, config->shm_dir, name, (uint32_t)geteuid(), NULL))
        return false;
    int fd = spw_lock_open(&path, false, 0, -1, NULL);
    if (fd < 0)
        return false;
    *out_daemon = spw_lock_held(fd, SPW_LOCK_DAEMON) == 1;
    *out_others = false;
    for (uint32_t byte = SPW_LOCK_DAEMON + 1; byte < SPW_LOCK_CLIENT(SPW_CLIENTS_MAX); byte++)
        *out_others |= spw_lock_held(fd, byte) == 1;
    spw_lock_close(fd);
    return true;
}

static uint64_t daemon_pid(const struct spw_config *config)
{
    struct spw_pool_path path;
    struct spw_region region = {0};
    uint64_t pid = 0;
    if (!spw_pool_path_init(&path, config->shm_dir, config->name, (uint32_t)geteuid(), NULL) &&
        !spw_region_attach(&path, SPW_REGION_CTL, 0, false, sizeof(struct spw_ctl), &region, NULL))
        pid = spw_load_relaxed(&((const struct spw_ctl *)(const void *)region.header)->daemon_pid);
    spw_region_detach(&region);
    return pid;
}

static uint64_t bytes_of(const struct spw_config *config)
{
    struct spw_pool_path path;
    return spw_pool_path_init(&path, config->shm_dir, config->name, (uint32_t)geteuid(), NULL)
               ? 0
               : spw_pool_left_bytes(&path);
}

static void gather_pools(const struct spw_config *config, struct spw_host *host)
{
    char prefix[32];
    bool alive, others;
    snprintf(prefix, sizeof prefix, "spillway-%u-", (unsigned)geteuid());
    host->left_over = ask_locks(config, config->name, &alive, &others);
    host->daemon_alive = host->left_over && alive;
    host->survivors = host->left_over && !alive && others;
    host->daemon_pid = host->daemon_alive ? daemon_pid(config) : 0;
    if (!host->daemon_alive)
        host->own_bytes = bytes_of(config);
    host->left_over = !host->daemon_alive && (host->left_over || host->own_bytes);
    DIR *dir = opendir(config->shm_dir);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[SPW_CONFIG_NAME_MAX + 1];
        size_t length = strlen(entry->d_name), head = strlen(prefix);
        if (length <= head + 5 || length - head - 5 >= sizeof name ||
            strncmp(entry->d_name, prefix, head) || strcmp(entry->d_name + length - 5, ".lock"))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - head - 5), entry->d_name + head);
        if (strcmp(name, config->name) && ask_locks(config, name, &alive, &others) && !alive &&
            !others && host->stale_pools++ == 0)
            memcpy(host->stale_pool, name, sizeof name);
    }
    if (dir)
        closedir(dir);
}

/* A name without a folder is the loader's to find. */
static void gather_cuda(const struct spw_config *config, struct spw_host *host)
{
#ifdef SPW_HAVE_CUDA
    host->cuda_built = true;
#endif
    if (strchr(config->cuda_library, '/') && access(config->cuda_library, R_OK))
        host->cuda_error = errno;
}

void spw_host_gather(const char *root, const struct spw_config *config, struct spw_host *out_host)
{
    *out_host = (struct spw_host){0};
    gather_room(config, out_host);
    gather_memory(root, out_host);
    gather_cgroup(root, out_host);
    gather_limits(root, out_host);
    gather_pages(root, out_host);
    gather_cpus(root, out_host);
    spw_host_gather_gpus(root, out_host);
    gather_cuda(config, out_host);
    gather_pools(config, out_host);
    spw_host_gather_nvme(config, out_host);
}
