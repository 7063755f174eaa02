/* tools/host: facts read from made-up hosts, and hosts that aren't there judged. */
#include "tier/nvme.h"
#include "tools/host.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/support/env.h"

TestSuite(host, .timeout = 30);

#define MIB (1ull << 20)

static char root[SUPPORT_PATH_BYTES];
static struct spw_config config;
static struct spw_host host;

/* A file of the made-up host, with the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file, "%s", full);
    fputs(text, file);
    fclose(file);
}

static void begin(void)
{
    char err[512];
    char *argv[] = {(char *)"check", (char *)"--shm-dir", root, NULL};
    cr_assert_eq(support_shm_dir(root), 0);
    cr_assert_eq(spw_config_parse(3, argv, &config, err, sizeof err), 0, "%s", err);
}

Test(host, an_empty_root_is_all_unknown_and_no_limit, .init = begin)
{
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.cgroup_limit, SPW_HOST_UNLIMITED);
    cr_expect_eq(host.memory_total, 0);
    cr_expect_eq(host.gpus, 0);
    cr_expect_eq(host.uring_forbidden, -1);
    cr_expect_eq(host.cpus_allowed, 0);
    cr_expect(!host.left_over && !host.daemon_alive && host.stale_pools == 0);
}

Test(host, the_tightest_limit_of_cgroup_v2_counts, .init = begin)
{
    put("/proc/self/cgroup", "0::/pod/engine\n");
    put("/sys/fs/cgroup/pod/engine/memory.max", "max\n");
    put("/sys/fs/cgroup/pod/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/pod/memory.current", "4096\n");
    put("/sys/fs/cgroup/memory.max", "2147483648\n");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.cgroup_limit, 1073741824);
    cr_expect_eq(host.cgroup_used, 4096);
    cr_expect_str_eq(host.cgroup_file, "/sys/fs/cgroup/pod/memory.max");
}

Test(host, a_container_sees_its_own_limit_at_the_root_of_the_mount, .init = begin)
{
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "268435456\n");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.cgroup_limit, 268435456);
}

Test(host, cgroup_v1_has_a_folder_of_its_own_and_a_number_for_no_limit, .init = begin)
{
    put("/proc/self/cgroup", "9:cpu,cpuacct:/x\n5:memory:/docker/abc\n1:name=systemd:/\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.cgroup_limit, SPW_HOST_UNLIMITED);
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "536870912\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "1000\n");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.cgroup_limit, 536870912);
    cr_expect_eq(host.cgroup_used, 1000);
}

Test(host, memory_pages_cpus_and_limits_are_read, .init = begin)
{
    put("/proc/meminfo", "MemTotal:       1024 kB\nMemFree: 5 kB\nMemAvailable:    512 kB\n");
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nCpus_allowed_list:\t0-3,8\nMems_"
                             "allowed_list:\t0-1\n");
    put("/sys/devices/system/cpu/online", "0-15\n");
    put("/proc/sys/kernel/io_uring_disabled", "2\n");
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "10\n");
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "7\n");
    put("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size [advise] never deny force\n");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.memory_total, MIB);
    cr_expect_eq(host.memory_available, MIB / 2);
    cr_expect(host.may_lock);
    cr_expect_eq(host.cpus_allowed, 5);
    cr_expect_eq(host.cpus_online, 16);
    cr_expect_eq(host.nodes, 2);
    cr_expect_str_eq(host.nodes_allowed, "0-1");
    cr_expect_eq(host.uring_forbidden, 2);
    cr_expect_eq(host.huge_total, 10);
    cr_expect_eq(host.huge_free, 7);
    cr_expect_str_eq(host.shmem_thp, "advise");
}

Test(host, gpus_are_found_by_bus_id_or_by_device_file, .init = begin)
{
    put("/dev/nvidia0", "");
    put("/dev/nvidia1", "");
    put("/dev/nvidiactl", "");
    put("/dev/nvidia-uvm", "");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.gpus, 2);
    cr_expect_eq(host.gpu[0].node, -1);
    put("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "");
    put("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.gpus, 2);
    cr_expect_str_eq(host.gpu[0].bus_id, "0000:3b:00.0");
    cr_expect_eq(host.gpu[0].node, 1);
}

/* ---- judging --------------------------------------------------------------------------------- */

static const struct spw_plan plan = {.payload_bytes = 90 * MIB, .total_bytes = 100 * MIB};
static struct spw_host_finding finding[SPW_HOST_FINDINGS_MAX];
static uint32_t findings;

/* A host that lacks nothing. */
static void good_host(void)
{
    begin();
    host = (struct spw_host){
        .shm_total = 200 * MIB,
        .shm_free = 200 * MIB,
        .shm_is_memory = true,
        .memory_total = 1000 * MIB,
        .memory_available = 500 * MIB,
        .cgroup_limit = SPW_HOST_UNLIMITED,
        .memlock_limit = SPW_HOST_UNLIMITED,
        .files_limit = 1024,
        .uring_forbidden = -1,
        .kernel_major = 6,
        .kernel_minor = 1,
        .cpus_allowed = 8,
        .cpus_online = 8,
        .nodes = 1,
        .nodes_allowed = "0",
        .cuda_built = true,
        .gpus = 1,
        .gpu = {{.bus_id = "0000:3b:00.0"}},
    };
}

static const struct spw_host_finding *judge(const char *what)
{
    findings = spw_host_judge(&host, &config, &plan, finding);
    for (uint32_t i = 0; i < findings; i++)
        if (strcmp(finding[i].what, what) == 0)
            return &finding[i];
    cr_assert(false, "nothing about %s", what);
    return NULL;
}

static void expect(const char *what, enum spw_host_severity severity, const char *remedy)
{
    const struct spw_host_finding *about = judge(what);
    cr_expect_eq(about->severity, severity, "%s: %s", what, about->value);
    cr_expect(strstr(about->remedy, remedy), "%s: %s", what, about->remedy);
    for (uint32_t i = 0; i < findings; i++)
        if (finding[i].severity >= SPW_HOST_NOTE && strcmp(finding[i].what, "gpus"))
            cr_expect(finding[i].remedy[0], "%s has no remedy", finding[i].what);
}

Test(host, a_host_that_lacks_nothing_has_no_error_and_no_warning, .init = good_host)
{
    judge("shm");
    for (uint32_t i = 0; i < findings; i++)
        cr_expect_leq(finding[i].severity, SPW_HOST_NOTE, "%s: %s", finding[i].what,
                      finding[i].value);
}

Test(host, room_is_judged_with_needed_and_available, .init = good_host)
{
    host.shm_free = 99 * MIB;
    expect("shm", SPW_HOST_ERROR, "remount,size=");
    cr_expect_eq(judge("shm")->needed, 100 * MIB);
    cr_expect_eq(judge("shm")->available, 99 * MIB);
    host.own_bytes = MIB;
    expect("shm", SPW_HOST_OK, "");
    host.shm_free = SPW_HOST_UNLIMITED;
    expect("shm", SPW_HOST_OK, "");
    host.shm_error = EROFS;
    expect("shm-access", SPW_HOST_ERROR, "--shm-dir");
    host.shm_is_memory = false;
    expect("shm-type", SPW_HOST_WARNING, "--shm-dir");
}

Test(host, memory_and_cgroup_are_judged_by_what_is_new, .init = good_host)
{
    host.memory_available = 99 * MIB;
    expect("memory", SPW_HOST_WARNING, "smaller");
    host.own_bytes = MIB;
    expect("memory", SPW_HOST_OK, "");
    host.memory_total = 98 * MIB;
    expect("memory", SPW_HOST_ERROR, "smaller");
    host.cgroup_limit = 150 * MIB;
    host.cgroup_used = 60 * MIB;
    expect("cgroup", SPW_HOST_WARNING, "MemoryMax");
    host.cgroup_limit = 90 * MIB;
    expect("cgroup", SPW_HOST_ERROR, "MemoryMax");
    cr_expect_eq(judge("cgroup")->available, 30 * MIB);
    host.cgroup_used = 100 * MIB;
    cr_expect_eq(judge("cgroup")->available, 0, "more used than allowed");
}

Test(host, the_directory_of_the_tier_below_is_judged, .init = good_host)
{
    findings = spw_host_judge(&host, &config, &plan, finding);
    for (uint32_t i = 0; i < findings; i++)
        cr_expect(strncmp(finding[i].what, "nvme", 4) != 0, "not wanted: %s", finding[i].what);
    host.nvme_wanted = host.nvme_direct = true;
    host.nvme_free = 60 * MIB;
    host.nvme_own = 40 * MIB;
    config.nvme_bytes = 100 * MIB;
    strcpy(config.nvme_dir, "/mnt/nvme");
    expect("nvme", SPW_HOST_OK, "");
    expect("nvme-direct", SPW_HOST_OK, "");
    host.nvme_own--;
    expect("nvme", SPW_HOST_WARNING, "--nvme-bytes");
    host.nvme_direct = false;
    expect("nvme-direct", SPW_HOST_NOTE, "ext4");
    host.nvme_others = 2;
    expect("nvme-shards", SPW_HOST_WARNING, "shard-1 and up");
    host.nvme_held = true;
    expect("nvme-lock", SPW_HOST_ERROR, "--nvme-dir");
    host.nvme_error = EACCES;
    expect("nvme", SPW_HOST_ERROR, "--nvme-dir");
}

Test(host, a_directory_of_the_tier_below_is_looked_at)
{
    char dir[SUPPORT_PATH_BYTES], path[SUPPORT_PATH_BYTES + 32];
    begin();
    cr_assert_eq(support_shm_dir(dir), 0);
    strcpy(config.nvme_dir, dir);
    snprintf(path, sizeof path, "%s/shard-0", dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/shard-0/segment-000000", dir);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    cr_assert(fd >= 0 && posix_fallocate(fd, 0, 1 << 20) == 0);
    close(fd);
    config.workers = 1;
    spw_host_gather("", &config, &host);
    cr_expect(host.nvme_wanted && host.nvme_error == 0 && !host.nvme_held);
    cr_expect_geq(host.nvme_own, 1 << 20);
    cr_expect_gt(host.nvme_free, 0);
    struct spw_error err = {0};
    int lock = spw_nvme_lock(dir, SPW_NVME_DAEMON, &err);
    cr_assert_geq(lock, 0, "%s", err.text);
    spw_host_gather("", &config, &host);
    cr_expect(host.nvme_held);
    spw_lock_close(lock);
    cr_expect_eq(host.nvme_others, 0);
    config.workers = 0; /* as if shard-0 were of a worker that there isn't */
    spw_host_gather("", &config, &host);
    cr_expect(host.nvme_others == 1 && host.nvme_own == 0);
    cr_expect_geq(host.nvme_others_bytes, 1 << 20);
    support_remove_dir(dir);
    spw_host_gather("", &config, &host);
    cr_expect_eq(host.nvme_error, ENOENT);
}

Test(host, limits_and_kernel_are_judged, .init = good_host)
{
    host.memlock_limit = 8 * MIB;
    expect("memlock", SPW_HOST_NOTE, "LimitMEMLOCK");
    host.may_lock = true;
    expect("memlock", SPW_HOST_OK, "");
    host.files_limit = 63;
    expect("files", SPW_HOST_ERROR, "LimitNOFILE");
    host.uring_error = ENOSYS;
    expect("io_uring", SPW_HOST_NOTE, "seccomp");
    host.uring_error = EPERM;
    host.uring_forbidden = 2;
    expect("io_uring", SPW_HOST_NOTE, "kernel.io_uring_disabled");
    config.huge_pages = SPW_HUGE_PAGES_ALWAYS;
    expect("huge-pages", SPW_HOST_OK, "");
    host.kernel_minor = 0;
    expect("huge-pages", SPW_HOST_ERROR, "Linux 6.1");
    config.huge_pages = SPW_HUGE_PAGES_AUTO;
    expect("huge-pages", SPW_HOST_WARNING, "Linux 6.1");
    config.workers = 9;
    expect("cpus", SPW_HOST_WARNING, "cpuset");
}

Test(host, gpus_and_names_are_told, .init = good_host)
{
    expect("gpus", SPW_HOST_NOTE, "");
    cr_expect(strstr(judge("gpus")->value, "GPU 0 at 0000:3b:00.0 on node 0"));
    host.gpus = 0;
    cr_expect(strstr(judge("gpus")->value, "none found"));
    host.gpus = SPW_HOST_GPUS_MAX;
    judge("name");
    cr_expect_leq(findings, SPW_HOST_FINDINGS_MAX);
    host.gpus = 0;
    host.left_over = true;
    expect("name", SPW_HOST_NOTE, "spillway rm spillway");
    host.stale_pools = 1;
    strcpy(host.stale_pool, "old");
    expect("stale", SPW_HOST_NOTE, "spillway rm old");
    host.daemon_alive = true;
    host.daemon_pid = 77;
    expect("name", SPW_HOST_ERROR, "spillway stop");
    cr_expect(strstr(judge("name")->value, "pid 77"));
}

static void nothing_of_copier(void)
{
    findings = spw_host_judge(&host, &config, &plan, finding);
    for (uint32_t i = 0; i < findings; i++)
        cr_expect_str_neq(finding[i].what, "copier");
}

Test(host, CU_7_workers_that_cant_have_a_gpu_are_an_error_where_they_must, .init = good_host)
{
    nothing_of_copier();
    host.gpus = 0;
    expect("copier", SPW_HOST_NOTE, "--copier cuda");
    cr_expect_str_eq(judge("copier")->value, "no GPU found: the host copies");
    config.pin = SPW_CONFIG_PIN_STRICT;
    expect("copier", SPW_HOST_WARNING, "--copier cuda");
    config.copier = SPW_CONFIG_COPIER_CUDA;
    expect("copier", SPW_HOST_ERROR, "install the driver");
    strcpy(config.cuda_library, "libother.so");
    nothing_of_copier();
    host.cuda_error = ENOENT;
    expect("copier", SPW_HOST_ERROR, "install the driver");
    host.cuda_built = false;
    expect("copier", SPW_HOST_ERROR, "headers of CUDA 12.8");
    config.copier = SPW_CONFIG_COPIER_HOST;
    nothing_of_copier();
    config.copier = SPW_CONFIG_COPIER_CUDA;
    strcpy(config.topology, "other.xml");
    nothing_of_copier();
}

Test(host, a_driver_library_that_isnt_there_is_seen, .init = begin)
{
    strcpy(config.cuda_library, "/nonexistent/libcuda.so.1");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.cuda_error, ENOENT);
    strcpy(config.cuda_library, "libcuda.so.1");
    spw_host_gather(root, &config, &host);
    cr_expect_eq(host.cuda_error, 0, "the loader knows where");
}
