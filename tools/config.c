/* spillwayd's table of options, and how they must go together. */
#include "tools/config.h"
#include "tools/config_impl.h"

#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/plan.h"
#include "tools/units.h"

#define FIELD(name)    offsetof(struct spw_config, name)
#define TEXT_MAX(name) sizeof(((struct spw_config *)0)->name)
#define SECOND_NS      1000000000ull
#define DESCRIBE_BYTES 320

static const char *const on_stop_names[] = {"keep", "remove", NULL};
static const char *const huge_pages_names[] = {"auto", "always", "never", NULL};

static const char *const evict_names[] = {"lru", "fifo", NULL};
static const char *const copier_names[] = {"auto", "cuda", "host", NULL};
static const char *const pin_names[] = {"relaxed", "strict", "never", NULL};
static const char *const placement_names[] = {"relaxed", "strict", NULL};
static const char *const nvme_write_names[] = {"through", "back", NULL};
static const char *const nvme_engine_names[] = {"auto", "uring", "threads", NULL};
static const char *const nvme_direct_names[] = {"auto", "never", NULL};
static const char *const nvme_sync_names[] = {"none", "data", NULL};
static const char *const nvme_checksum_names[] = {"down", "store", "off", NULL};

static const struct spw_option table[] = {
    {"config", NULL, SPW_OPTION_TEXT, FIELD(config_path), 0, TEXT_MAX(config_path), NULL, NULL,
     "file with sections of key = value; a flag beats it"},
    {"check", NULL, SPW_OPTION_SWITCH, FIELD(check), 0, 0, NULL, NULL,
     "check everything, print the effective values and the plan, and stop"},
    {"cold", NULL, SPW_OPTION_SWITCH, FIELD(cold), 0, 0, NULL, NULL,
     "start with empty shards, even if those of a daemon before could be gone on with"},
    {"help", NULL, SPW_OPTION_SWITCH, FIELD(help), 0, 0, NULL, NULL, "print this"},
    {"version", NULL, SPW_OPTION_SWITCH, FIELD(version), 0, 0, NULL, NULL, "print the version"},

    {"name", "pool", SPW_OPTION_TEXT, FIELD(name), 0, TEXT_MAX(name), NULL, "spillway",
     "name of the pool: letters, digits, '.', '_', '-', no leading '.'"},
    {"shm-dir", "pool", SPW_OPTION_TEXT, FIELD(shm_dir), 0, TEXT_MAX(shm_dir), NULL, "/dev/shm",
     "directory of the shared memory objects"},
    {"mode", "pool", SPW_OPTION_OCTAL, FIELD(mode), 0600, 0666, NULL, NULL,
     "permission bits of the objects (default 0600, with --group 0660)"},
    {"group", "pool", SPW_OPTION_TEXT, FIELD(group), 0, TEXT_MAX(group), NULL, NULL,
     "group that owns the objects, by name or number"},
    {"allow-world", "pool", SPW_OPTION_SWITCH, FIELD(allow_world), 0, 0, NULL, "no",
     "let --mode have bits for everyone on the host"},
    {"workers", "pool", SPW_OPTION_COUNT, FIELD(workers), 1, SPW_CONFIG_WORKERS_MAX, NULL, "1",
     "worker processes, one a GPU"},
    {"inside", "pool", SPW_OPTION_TEXT, FIELD(inside), 0, TEXT_MAX(inside), NULL, NULL,
     "of these, the ones that engines run as threads of theirs, like 0-1,3: they are not started"},
    {"capacity-chunks", "pool", SPW_OPTION_COUNT, FIELD(capacity_chunks), 1, 1ull << 24, NULL,
     "1024", "resident chunks that each worker holds"},
    {"chunk-bytes", "pool", SPW_OPTION_BYTES, FIELD(chunk_bytes), 64, 2ull << 30, NULL, "64KiB",
     "payload of a chunk, a multiple of 64"},
    {"kv-blocks", "pool", SPW_OPTION_COUNT, FIELD(kv_blocks), 0, 1ull << 24, NULL, "256",
     "KV blocks of chunk-bytes in host memory, for each of max-clients; copied from and to; 0: "
     "none, where engines register GPU memory"},
    {"on-stop", "pool", SPW_OPTION_CHOICE, FIELD(on_stop), 0, 0, on_stop_names, "keep",
     "what a clean stop does with the memory: the next start goes on with what is kept"},
    {"huge-pages", "pool", SPW_OPTION_CHOICE, FIELD(huge_pages), 0, 0, huge_pages_names, "never",
     "payload on huge pages: where there are any, or else don't start; takes a start 3 ms a MiB"},
    {"smallest-chunk-bytes", "pool", SPW_OPTION_BYTES, FIELD(smallest_chunk_bytes), 0, 2ull << 30,
     NULL, "0",
     "chunks down to this size take their own size of memory, smaller ones this; 0 for "
     "chunk-bytes"},
    {"evict", "pool", SPW_OPTION_CHOICE, FIELD(evict), 0, 0, evict_names, "lru",
     "which chunk goes to make room: the least recently used, or the one that came first"},
    {"quiet", "pool", SPW_OPTION_SWITCH, FIELD(quiet), 0, 0, NULL, "no",
     "print errors and warnings only"},

    {"copier", "copier", SPW_OPTION_CHOICE, FIELD(copier), 0, 0, copier_names, "auto",
     "who copies: cuda, a GPU for each worker; host, memory alone; auto: cuda where there is a "
     "driver with GPUs"},
    {"cuda-library", "copier", SPW_OPTION_TEXT, FIELD(cuda_library), 0, TEXT_MAX(cuda_library),
     NULL, NULL, "the driver's library, by default libcuda.so.1 where the loader finds it"},
    {"gpu-kernel-below", "copier", SPW_OPTION_BYTES, FIELD(gpu_kernel_below), 0, 1ull << 30, NULL,
     "32KiB", "pieces of KV up to this size are moved by a kernel, 0 for never"},
    {"pin", "copier", SPW_OPTION_CHOICE, FIELD(pin), 0, 0, pin_names, "relaxed",
     "pin payload for GPUs: strict, in all workers or the pool ends; relaxed, in all or in none; "
     "never"},
    {"pin-limit", "copier", SPW_OPTION_DURATION, FIELD(pin_limit_ns), 1000000,
     24 * 3600 * SECOND_NS, NULL, "10min",
     "how long pinning may take in each worker, from its start, turns of others included: allow "
     "for the whole pool"},
    {"pin-piece", "copier", SPW_OPTION_BYTES, FIELD(pin_piece), 4096, 1ull << 30, NULL, "1GiB",
     "bytes that one call pins at most, but one chunk-bytes at least"},
    {"gpu-restarts", "copier", SPW_OPTION_COUNT, FIELD(gpu_restarts), 0, 1000, NULL, "5",
     "restarts of a worker whose GPU fails, before it is out of service; 10 minutes without "
     "failure start the count anew"},
    {"store-rate", "copier", SPW_OPTION_RATE, FIELD(store_rate), 0, 1ull << 50, NULL, "0",
     "bytes a second that each worker stores, 0 for no limit"},
    {"load-rate", "copier", SPW_OPTION_RATE, FIELD(load_rate), 0, 1ull << 50, NULL, "0",
     "bytes a second that each worker loads, 0 for no limit"},
    {"queue-chunks", "copier", SPW_OPTION_COUNT, FIELD(queue_chunks), 1, 1ull << 24, NULL, "4096",
     "stores that may wait in each worker's queue"},

    {"gpu", "placement", SPW_OPTION_TEXT, FIELD(gpu), 0, TEXT_MAX(gpu), NULL, NULL,
     "the GPU of each worker: UUID, PCI address or ordinal, with commas; by default worker K's is "
     "that of ordinal K by PCI address"},
    {"gpu-node", "placement", SPW_OPTION_TEXT, FIELD(gpu_node), 0, TEXT_MAX(gpu_node), NULL, NULL,
     "the NUMA node of each worker's GPU, or auto, with commas; beats what the host says"},
    {"worker-cpus", "placement", SPW_OPTION_TEXT, FIELD(worker_cpus), 0, TEXT_MAX(worker_cpus),
     NULL, NULL,
     "CPUs of each worker like 0-3,8, or auto, with slashes; by default all of its GPU's node"},
    {"exclude-cpus", "placement", SPW_OPTION_TEXT, FIELD(exclude_cpus), 0, TEXT_MAX(exclude_cpus),
     NULL, NULL, "CPUs that no worker runs on unless --worker-cpus names them: 0-3,8"},
    {"placement", "placement", SPW_OPTION_CHOICE, FIELD(placement), 0, 0, placement_names,
     "relaxed",
     "when memory can't be put on its node: relaxed, a warning; strict, the pool doesn't start"},
    {"topology", "placement", SPW_OPTION_TEXT, FIELD(topology), 0, TEXT_MAX(topology), NULL, NULL,
     "of another host, to plan for: FILE.xml of lstopo, or synthetic:STRING; nothing is bound"},

    {"nvme-dir", "nvme", SPW_OPTION_TEXT, FIELD(nvme_dir), 0, TEXT_MAX(nvme_dir), NULL, NULL,
     "directory for chunks that leave memory, for this pool alone, there and writable; a relative "
     "one "
     "begins where the daemon is started; none: no such tier"},
    {"nvme-bytes", "nvme", SPW_OPTION_BYTES, FIELD(nvme_bytes), 0, 1ull << 50, NULL, "0",
     "bytes on disk at most, everything included, of all workers; must be given with nvme-dir"},
    {"nvme-chunks", "nvme", SPW_OPTION_COUNT, FIELD(nvme_chunks), 0, 1ull << 28, NULL, "0",
     "chunks on disk that each worker can list, 0 for its bytes / chunk-bytes"},
    {"nvme-write", "nvme", SPW_OPTION_CHOICE, FIELD(nvme_write), 0, 0, nvme_write_names, "through",
     "when chunks go down: once they are stored, or before they are evicted"},
    {"nvme-admit", "nvme", SPW_OPTION_COUNT, FIELD(nvme_admit), 1, 255, NULL, "1",
     "requests that must have used a chunk before it goes down"},
    {"nvme-write-budget", "nvme", SPW_OPTION_BYTES, FIELD(nvme_write_budget), 0, 1ull << 50, NULL,
     "0", "bytes that each worker writes down in a day, 0 for no limit"},
    {"nvme-queue", "nvme", SPW_OPTION_COUNT, FIELD(nvme_queue), 1, 1ull << 20, NULL, "256",
     "writes that may wait in each worker; beyond it they are dropped until half are done"},
    {"nvme-depth", "nvme", SPW_OPTION_COUNT, FIELD(nvme_depth), 1, 4096, NULL, "32",
     "reads and writes of each worker in flight"},
    {"nvme-promote-share", "nvme", SPW_OPTION_COUNT, FIELD(nvme_promote_share), 1, 100, NULL, "50",
     "percent of capacity-chunks that chunks read up may hold before they are loaded"},
    {"nvme-promote-hold", "nvme", SPW_OPTION_DURATION, FIELD(nvme_promote_hold_ns), 1000000,
     3600 * SECOND_NS, NULL, "2s", "how long a chunk read up is kept though nobody waits for it"},
    {"nvme-evict", "nvme", SPW_OPTION_CHOICE, FIELD(nvme_evict), 0, 0, evict_names, "lru",
     "which chunk on disk goes to make room"},
    {"nvme-engine", "nvme", SPW_OPTION_CHOICE, FIELD(nvme_engine), 0, 0, nvme_engine_names, "auto",
     "how files are read and written: io_uring, or a pool of threads"},
    {"nvme-direct", "nvme", SPW_OPTION_CHOICE, FIELD(nvme_direct), 0, 0, nvme_direct_names, "auto",
     "past the page cache where the file system can do that, or never"},
    {"nvme-sync", "nvme", SPW_OPTION_CHOICE, FIELD(nvme_sync), 0, 0, nvme_sync_names, "none",
     "whether a chunk is durable (fdatasync) before it is listed"},
    {"nvme-checksum", "nvme", SPW_OPTION_CHOICE, FIELD(nvme_checksum), 0, 0, nvme_checksum_names,
     "down",
     "checksums are made when a chunk goes down, or was stored, and checked when it comes up"},
    {"nvme-deadline", "nvme", SPW_OPTION_DURATION, FIELD(nvme_deadline_ns), 1000000,
     3600 * SECOND_NS, NULL, "10s",
     "a read or write that takes longer: the tier is out of service"},

    {"max-clients", "clients", SPW_OPTION_COUNT, FIELD(max_clients), 2, SPW_CONFIG_CLIENTS_MAX,
     NULL, "16", "processes that may be attached at a time, one of them a tool"},
    {"update-ring-records", "clients", SPW_OPTION_POWER, FIELD(update_records), 2, 1ull << 26, NULL,
     "65536", "records in each worker's update ring"},
    {"command-ring-slots", "clients", SPW_OPTION_POWER, FIELD(command_slots), 4, 1ull << 20, NULL,
     "1024", "slots in each ring from a client to a worker"},
    {"completion-ring-slots", "clients", SPW_OPTION_POWER, FIELD(completion_slots), 2, 1ull << 20,
     NULL, "1024", "slots in each ring from a worker to a client"},

    {"overtake-limit", "limits", SPW_OPTION_DURATION, FIELD(overtake_limit_ns), 1000000,
     3600 * SECOND_NS, NULL, "5s",
     "how long a worker's oldest store may be passed over for awaited ones"},
    {"run-limit", "limits", SPW_OPTION_DURATION, FIELD(run_limit_ns), 1000000, 3600 * SECOND_NS,
     NULL, "10s", "how long a reserve or begin may stay without its run"},
    {"event-limit", "limits", SPW_OPTION_DURATION, FIELD(event_limit_ns), 0, 24 * 3600 * SECOND_NS,
     NULL, "60s",
     "how long a copy waits for the GPU work that it must follow, 0 for as long as its client "
     "lives"},
    {"fence-limit", "limits", SPW_OPTION_DURATION, FIELD(fence_limit_ns), 1000000, 3600 * SECOND_NS,
     NULL, "1s", "how long a client may stay inside one step"},
    {"orphan", "limits", SPW_OPTION_DURATION, FIELD(orphan_ns), 0, 24 * 3600 * SECOND_NS, NULL,
     "60s", "how long workers live on without daemon and clients"},
    {"drain-limit", "limits", SPW_OPTION_DURATION, FIELD(drain_limit_ns), 0, 3600 * SECOND_NS, NULL,
     "5s", "how long a clean stop waits for the copies that are running"},
    {"io-quarantine", "limits", SPW_OPTION_DURATION, FIELD(io_quarantine_ns), 0, 3600 * SECOND_NS,
     NULL, "60s", "how long memory that a dead worker's disk I/O may still write stays out of use"},
};

static int check_name(const struct spw_config *config, char *err, size_t err_bytes)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-";

    if (config->name[0] != '.' && config->name[strspn(config->name, allowed)] == '\0')
        return 0;
    snprintf(err, err_bytes,
             "--name: \"%s\" is no pool name; allowed are 1 to %d of A-Z, a-z, 0-9, '.', '_', '-', "
             "and no leading '.'",
             config->name, SPW_CONFIG_NAME_MAX);
    return -EINVAL;
}

static int check_shm_dir(const struct spw_config *config, char *err, size_t err_bytes)
{
    struct stat st;

    if (config->shm_dir[0] != '/') {
        snprintf(err, err_bytes, "--shm-dir: \"%s\" is no absolute path", config->shm_dir);
        return -EINVAL;
    }
    if (stat(config->shm_dir, &st) < 0) {
        int rc = -errno;

        snprintf(err, err_bytes, "--shm-dir: \"%s\" can't be used: %s", config->shm_dir,
                 strerror(-rc));
        return rc;
    }
    if (!S_ISDIR(st.st_mode)) {
        snprintf(err, err_bytes, "--shm-dir: \"%s\" is no directory", config->shm_dir);
        return -ENOTDIR;
    }
    return 0;
}

/* By name, else by number: as chown does it. */
static int find_group(struct spw_config *config, char *err, size_t err_bytes)
{
    const struct spw_range range = {SPW_UNIT_COUNT, 0, UINT32_MAX - 1};
    const struct group *group;
    char ignored[8];
    uint64_t gid;

    config->gid = -1;
    if (config->group[0] == '\0')
        return 0;
    group = getgrnam(config->group);
    if (group) {
        config->gid = group->gr_gid;
    } else if (spw_units_parse_in("", config->group, &range, &gid, ignored, sizeof(ignored)) == 0) {
        config->gid = (int64_t)gid;
    } else {
        snprintf(err, err_bytes, "--group: \"%s\" is neither a group of this host nor a number",
                 config->group);
        return -EINVAL;
    }
    return 0;
}

int spw_config_refuse_pair(const struct spw_config *config, const char *first, const char *why,
                           const char *second, char *err, size_t err_bytes)
{
    char a[DESCRIBE_BYTES], b[DESCRIBE_BYTES];

    snprintf(err, err_bytes, "%s %s %s",
             spw_options_describe(&config->options, first, a, sizeof(a)), why,
             spw_options_describe(&config->options, second, b, sizeof(b)));
    return -EINVAL;
}

static int check_mode(struct spw_config *config, char *err, size_t err_bytes)
{
    if (config->mode == 0)
        config->mode = config->gid >= 0 ? 0660 : 0600;
    if ((config->mode & 0600) != 0600 || (config->mode & ~(uint64_t)0666) != 0) {
        snprintf(err, err_bytes,
                 "--mode: \"%04llo\" must have 0600 and no bits but read and write (0600 to 0666)",
                 (unsigned long long)config->mode);
        return -EINVAL;
    }
    if ((config->mode & 0006) && !config->allow_world)
        return spw_config_refuse_pair(config, "mode", "opens the pool to everyone, which needs",
                                      "allow-world", err, err_bytes);
    if (!(config->mode & 0006) && config->allow_world)
        return spw_config_refuse_pair(config, "allow-world", "has no effect with", "mode", err,
                                      err_bytes);
    if (!(config->mode & 0060) && config->gid >= 0)
        return spw_config_refuse_pair(config, "group", "has no effect with", "mode", err,
                                      err_bytes);
    return 0;
}

static int check_sizes(struct spw_config *config, char *err, size_t err_bytes)
{
    char text[SPW_UNITS_TEXT_BYTES];

    if (config->chunk_bytes % 64 != 0) {
        snprintf(err, err_bytes, "--chunk-bytes: \"%s\" is no multiple of 64",
                 spw_units_format(SPW_UNIT_BYTES, config->chunk_bytes, text));
        return -EINVAL;
    }
    if (config->smallest_chunk_bytes > config->chunk_bytes)
        return spw_config_refuse_pair(config, "smallest-chunk-bytes", "is larger than",
                                      "chunk-bytes", err, err_bytes);
    return 0;
}

/* A GPU isn't paced; without it, no driver is loaded. */
static int check_copier(struct spw_config *config, char *err, size_t err_bytes)
{
    if (config->copier == SPW_CONFIG_COPIER_HOST && config->cuda_library[0])
        return spw_config_refuse_pair(config, "cuda-library", "has no effect with", "copier", err,
                                      err_bytes);
    if (config->copier == SPW_CONFIG_COPIER_HOST && config->kv_blocks == 0)
        return spw_config_refuse_pair(config, "kv-blocks", "leaves nothing to copy from with",
                                      "copier", err, err_bytes);
    if (config->copier == SPW_CONFIG_COPIER_CUDA && config->store_rate)
        return spw_config_refuse_pair(config, "store-rate", "paces host copies alone, not with",
                                      "copier", err, err_bytes);
    if (config->copier == SPW_CONFIG_COPIER_CUDA && config->load_rate)
        return spw_config_refuse_pair(config, "load-rate", "paces host copies alone, not with",
                                      "copier", err, err_bytes);
    return 0;
}

static int check_all(struct spw_config *config, char *err, size_t err_bytes)
{
    int rc = check_name(config, err, err_bytes);

    if (rc == 0)
        rc = check_shm_dir(config, err, err_bytes);
    if (rc == 0)
        rc = find_group(config, err, err_bytes);
    if (rc == 0)
        rc = check_mode(config, err, err_bytes);
    if (rc == 0)
        rc = check_sizes(config, err, err_bytes);
    if (rc == 0)
        rc = check_copier(config, err, err_bytes);
    if (rc == 0)
        rc = spw_config_check_place(config, err, err_bytes);
    if (rc == 0)
        rc = spw_config_check_nvme(config, err, err_bytes);
    return rc;
}

static enum spw_config_action action_of(const struct spw_config *config)
{
    if (config->help)
        return SPW_CONFIG_HELP;
    if (config->version)
        return SPW_CONFIG_VERSION;
    return config->check ? SPW_CONFIG_CHECK : SPW_CONFIG_RUN;
}

int spw_config_parse(int argc, char *const *argv, struct spw_config *out_config, char *err,
                     size_t err_bytes)
{
    struct spw_config *config = out_config;
    int rc;

    memset(config, 0, sizeof(*config));
    spw_options_init(&config->options, table, sizeof(table) / sizeof(table[0]), config);
    rc = spw_options_read_args(&config->options, argc, argv, NULL, 0, err, err_bytes);
    if (rc < 0)
        return rc;
    config->action = action_of(config);
    if (config->action == SPW_CONFIG_HELP || config->action == SPW_CONFIG_VERSION)
        return 0;
    if (config->config_path[0]) {
        rc = spw_options_read_file(&config->options, config->config_path, err, err_bytes);
        if (rc < 0)
            return rc;
    }
    return check_all(config, err, err_bytes);
}

static void plan_of(const struct spw_config *config, struct spw_geometry *out_geometry,
                    struct spw_plan *out_plan)
{
    struct spw_pool_config pool = {0};

    spw_plan_pool(config, &pool);
    spw_plan_bytes(&pool.geometry, out_plan);
    *out_geometry = pool.geometry;
}

/* Shared memory besides payload: what a worker has below is listed there, so a large tier takes much of
 * it. */
static void print_tables(const struct spw_config *config, FILE *out)
{
    struct spw_config without = *config;
    struct spw_geometry geometry, ignored;
    struct spw_plan plan, less;
    char bytes[SPW_UNITS_TEXT_BYTES];

    plan_of(config, &geometry, &plan);
    fprintf(out, "; plan: %.1f MB of tables and rings\n", (double)plan.control_bytes / 1e6);
    if (config->nvme_dir[0] == '\0')
        return;
    without.nvme_dir[0] = '\0';
    plan_of(&without, &ignored, &less);
    fprintf(
        out,
        "; plan: at most %s on disk in %s; each worker lists %u chunks of it, which takes %.1f MB "
        "of those tables in all\n",
        spw_units_format(SPW_UNIT_BYTES, config->nvme_bytes, bytes), config->nvme_dir,
        geometry.cold_chunks, (double)(plan.control_bytes - less.control_bytes) / 1e6);
}

void spw_config_print(const struct spw_config *config, FILE *out)
{
    uint64_t worker_bytes = config->capacity_chunks * config->chunk_bytes;
    uint64_t kv_bytes = config->kv_blocks * config->chunk_bytes * config->max_clients;
    char one[SPW_UNITS_TEXT_BYTES], all[SPW_UNITS_TEXT_BYTES], kv[SPW_UNITS_TEXT_BYTES];

    spw_options_print(&config->options, out);
    fprintf(out,
            "; plan: %s of payload a worker, %s in all on this host, "
            "and %s of KV blocks for clients\n",
            spw_units_format(SPW_UNIT_BYTES, worker_bytes, one),
            spw_units_format(SPW_UNIT_BYTES, worker_bytes * config->workers, all),
            spw_units_format(SPW_UNIT_BYTES, kv_bytes, kv));
    print_tables(config, out);
}

void spw_config_help(const struct spw_config *config, FILE *out)
{
    fputs(
        "usage: spillwayd [--config FILE] [--OPTION VALUE]...\n\n"
        "Runs a pool of KV-cache workers in the foreground. In the file, --store-rate is the key\n"
        "store_rate of its section; --check prints all of them, as such a file. Sizes are written\n"
        "64KiB or 2GB, times 250ms or 1min; switches take no value here, yes or no in the "
        "file.\n\n",
        out);
    spw_options_help(&config->options, out);
}
