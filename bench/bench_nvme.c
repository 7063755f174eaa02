/*
 * Chunks to and from the tier below, a full store with records, checksums and O_DIRECT, in turns with
 * fio on a file in the same folder, of the same size, at the same depth; what the checksum costs; what
 * a read waits while writes keep the disk busy.
 * The folder is $SPW_BENCH_NVME_DIR, or one made here; what this puts in it is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench/below.h"
#include "bench/bench.h"
#include "bench/fio.h"

#define GIB    1073741824.0
#define ROUNDS 5
#define PUTS   3u /* for each payload being written: before and after it a record is */
#define MIXED  8u /* depth while writes keep the disk busy                     */
#define WRITES                                                                                     \
    16u /* under way then: more than that, and with their records and
                          a read not more than the engine takes */
#define PEER_BLOCK (1u << 20)

struct disk {
    struct spw_bench_run *run;
    char folder[PATH_MAX / 2], ours[PATH_MAX], theirs[PATH_MAX];
    bool made, fio;
    uint64_t bytes;       /* of the store, and of fio's file */
    uint64_t round_ns;    /* how long each moves chunks      */
    uint64_t rest_ns;     /* how long fio took to start and end, last */
    uint64_t chunk_bytes; /* in the store there is           */
    uint64_t random;
};

/* One way of moving chunks. */
struct job {
    const char *name;
    uint64_t chunk_bytes;
    uint32_t depth;
    bool writes, unsummed;
};

struct result {
    double rate, cpu; /* bytes a second, seconds a GiB */
};

static double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

/* A store of chunks of another size is not what a full one of these looks like. */
static int fresh_store(struct disk *disk)
{
    nftw(disk->ours, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return mkdir(disk->ours, 0700) == 0 ? 0 : -errno;
}

/* All of fio's file is written: else it would measure holes. */
static int fill_file(struct disk *disk)
{
    uint8_t *block = aligned_alloc(4096, PEER_BLOCK);
    int fd = block ? open(disk->theirs, O_WRONLY | O_CREAT | O_CLOEXEC | O_DIRECT, 0600) : -1;
    int rc = block ? 0 : -ENOMEM;
    if (block && fd < 0)
        rc = -errno;
    for (uint64_t at = 0; rc == 0 && at < PEER_BLOCK; at += 8)
        memcpy(block + at, &(uint64_t){spw_bench_random(&disk->random)}, 8);
    for (uint64_t at = 0; rc == 0 && at < disk->bytes; at += PEER_BLOCK) {
        ssize_t written = pwrite(fd, block, PEER_BLOCK, (off_t)at);
        if (written != PEER_BLOCK)
            rc = written < 0 ? -errno : -ENOSPC;
    }
    if (fd >= 0)
        close(fd);
    free(block);
    return rc;
}

static int open_disk(struct disk *disk)
{
    const char *folder = getenv("SPW_BENCH_NVME_DIR");
    char here[PATH_MAX / 2 - 32];
    if (!folder && !getcwd(here, sizeof here))
        return -errno;
    int length = folder ? snprintf(disk->folder, sizeof disk->folder, "%s", folder)
                        : snprintf(disk->folder, sizeof disk->folder, "%s/spw-bench-nvme", here);
    if (length >= (int)sizeof disk->folder || disk->folder[0] != '/' ||
        strchr(disk->folder, '\'')) {
        fprintf(stderr, "spw-bench: nvme: the folder must be an absolute path without quotes\n");
        return -EINVAL;
    }
    snprintf(disk->ours, sizeof disk->ours, "%s/ours", disk->folder);
    snprintf(disk->theirs, sizeof disk->theirs, "%s/theirs", disk->folder);
    disk->made = mkdir(disk->folder, 0700) == 0;
    disk->fio = !spw_bench_smoke(disk->run) && spw_bench_fio_found();
    if (!disk->fio && !spw_bench_smoke(disk->run))
        fprintf(stderr, "spw-bench: nvme: no fio on the path, nothing to hold it against\n");
    return disk->fio ? fill_file(disk) : 0;
}

static void close_disk(struct disk *disk)
{
    nftw(disk->ours, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    unlink(disk->theirs);
    if (disk->made)
        rmdir(disk->folder);
}

/* ---- one round ------------------------------------------------------------------------------- */

static struct spw_bench_below *open_store(const struct disk *disk, const struct job *job)
{
    return spw_bench_below_open(&(struct spw_bench_below_config){.folder = disk->ours,
                                                                 .store_bytes = disk->bytes,
                                                                 .chunk_bytes = job->chunk_bytes,
                                                                 .depth = job->depth,
                                                                 .places = PUTS * job->depth,
                                                                 .checksum = !job->unsummed});
}

static int run_ours(struct disk *disk, const struct job *job, struct spw_bench_below *below,
                    struct result *out)
{
    uint64_t moved, begin = spw_bench_now_ns();
    double cpu = cpu_seconds();
    int rc = spw_bench_below_run(below, job->writes ? PUTS * job->depth : 0,
                                 job->writes ? 0 : job->depth, disk->round_ns, &moved, NULL);
    double seconds = 1e-9 * (double)(spw_bench_now_ns() - begin);
    if (rc == 0)
        *out =
            (struct result){(double)moved / seconds, (cpu_seconds() - cpu) * GIB / (double)moved};
    return rc;
}

static int run_fio(struct disk *disk, const struct job *job, const struct spw_bench_below *below,
                   struct result *out)
{
    struct spw_bench_fio fio = {.path = disk->theirs,
                                .file_bytes = disk->bytes,
                                .block_bytes = job->chunk_bytes,
                                .depth = job->depth,
                                .seconds = (uint32_t)(disk->round_ns / 1000000000u),
                                .writes = job->writes,
                                .registered = spw_bench_below_registered(below),
                                .memory_fd = spw_bench_below_memory(below)};
    struct spw_bench_fio_result result;
    int rc = spw_bench_fio_run(&fio, &result);
    if (rc < 0)
        fprintf(stderr, "spw-bench: nvme: fio failed at %s\n", job->name);
    else
        *out = (struct result){result.rate, result.cpu};
    return rc;
}

/* A disk that is shared lets bytes through that it saved up while idle, and fio is idle while it starts
 * and ends: ours begins after as long a rest. */
static void rest(uint64_t ns)
{
    const struct timespec nap = {.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&nap, NULL);
}

/* Each goes first in turn. */
static int run_both(struct disk *disk, const struct job *job, struct spw_bench_below *below,
                    bool ours_first, struct result *ours, struct result *theirs)
{
    int rc = 0;
    if (!disk->fio)
        return run_ours(disk, job, below, ours);
    for (int i = 0; i < 2 && rc == 0; i++) {
        uint64_t begin = spw_bench_now_ns();
        if ((i == 0) == ours_first) {
            rest(disk->rest_ns);
            rc = run_ours(disk, job, below, ours);
        } else {
            rc = run_fio(disk, job, below, theirs);
            uint64_t took = spw_bench_now_ns() - begin;
            disk->rest_ns = took > disk->round_ns ? took - disk->round_ns : 0;
        }
    }
    return rc;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void report(struct disk *disk, const char *name, const char *what, const char *unit,
                   const struct spw_bench_series *ours, const char *against,
                   const struct spw_bench_series *theirs)
{
    char full[80];
    snprintf(full, sizeof full, "%s%s", name, what);
    spw_bench_report(disk->run,
                     &(struct spw_bench_line){"nvme", full, unit, ours, against, theirs});
}

static int bench_job(struct disk *disk, const struct job *job)
{
    static struct spw_bench_series rate[2], cpu[2], ratio;
    const char *peer = disk->fio ? "fio" : NULL;
    struct spw_bench_below *below = open_store(disk, job);
    if (!below)
        return -EIO;
    rate[0].count = rate[1].count = cpu[0].count = cpu[1].count = ratio.count = 0;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(disk->run, ROUNDS, 1); i++) {
        struct result ours = {0}, theirs = {0};
        rc = run_both(disk, job, below, i % 2 != 0, &ours, &theirs);
        spw_bench_add(&rate[0], ours.rate);
        spw_bench_add(&rate[1], theirs.rate);
        spw_bench_add(&cpu[0], ours.cpu);
        spw_bench_add(&cpu[1], theirs.cpu);
        spw_bench_add(&ratio, theirs.rate > 0 ? ours.rate / theirs.rate : 0);
    }
    int closed = spw_bench_below_close(below);
    if (rc < 0 || closed < 0)
        return rc < 0 ? rc : closed;
    report(disk, job->name, "", "bytes/s", &rate[0], peer, &rate[1]);
    report(disk, job->name, "_cpu", "s/GiB", &cpu[0], peer, &cpu[1]);
    if (disk->fio)
        report(disk, job->name, "_ratio", "ratio", &ratio, NULL, NULL);
    return 0;
}

static int cpu_of(struct disk *disk, const struct job *job, struct spw_bench_series *series)
{
    struct result result;
    struct spw_bench_below *below = open_store(disk, job);
    if (!below)
        return -EIO;
    int rc = run_ours(disk, job, below, &result);
    int closed = spw_bench_below_close(below);
    if (rc == 0)
        spw_bench_add(series, result.cpu);
    return rc < 0 ? rc : closed;
}

/* The store is opened anew for each: it makes and checks checksums, or doesn't. */
static int bench_sum(struct disk *disk, const struct job *job)
{
    static struct spw_bench_series with, without;
    struct job bare = *job;
    int rc = 0;
    bare.unsummed = true;
    with.count = without.count = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(disk->run, ROUNDS, 1); i++) {
        rc = cpu_of(disk, job, &with);
        if (rc == 0)
            rc = cpu_of(disk, &bare, &without);
    }
    if (rc == 0)
        report(disk, job->name, "", "s/GiB", &with, "no checksum", &without);
    return rc;
}

static int read_in_writes(struct disk *disk, uint64_t chunk_bytes, bool reads_queue,
                          struct spw_bench_series *get_ns)
{
    uint64_t moved;
    struct spw_bench_below *below =
        spw_bench_below_open(&(struct spw_bench_below_config){.folder = disk->ours,
                                                              .store_bytes = disk->bytes,
                                                              .chunk_bytes = chunk_bytes,
                                                              .depth = MIXED,
                                                              .places = WRITES + 1,
                                                              .checksum = true,
                                                              .reads_queue = reads_queue});
    if (!below)
        return -EIO;
    int rc = spw_bench_below_run(below, WRITES, 1, 2 * disk->round_ns, &moved, get_ns);
    int closed = spw_bench_below_close(below);
    return rc < 0 ? rc : closed;
}

static int bench_mixed(struct disk *disk, const char *name, uint64_t chunk_bytes)
{
    static struct spw_bench_series first, queued;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(disk->run, 6, 2); i++)
        rc = read_in_writes(disk, chunk_bytes, i % 2, i % 2 ? &queued : &first);
    if (rc < 0)
        return rc;
    report(disk, name, "", "ns", &first, "in the queue", &queued);
    report(disk, name, "_queued", "ns", &queued, NULL, NULL);
    return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* A store of chunks of this size, and fio's file, the first time that one is wanted. */
static int begin_size(struct disk *disk, uint64_t chunk_bytes)
{
    int rc = 0;
    if (disk->chunk_bytes == chunk_bytes)
        return 0;
    if (disk->chunk_bytes == 0)
        rc = open_disk(disk);
    disk->chunk_bytes = chunk_bytes;
    return rc < 0 ? rc : fresh_store(disk);
}

static int bench_size(struct disk *disk, char megabytes, uint64_t chunk_bytes)
{
    static const uint32_t depths[] = {1, 8, 32};
    char name[32];
    int rc = 0;
    for (int i = 0; i < 6 && rc == 0; i++) {
        struct job job = {name, chunk_bytes, depths[i % 3], i >= 3, false};
        snprintf(name, sizeof name, "%s_%cM_d%u", job.writes ? "write" : "read", megabytes,
                 job.depth);
        if (!spw_bench_wants(disk->run, "nvme", name))
            continue;
        rc = begin_size(disk, chunk_bytes);
        if (rc == 0)
            rc = bench_job(disk, &job);
    }
    return rc;
}

/* What needs no peer. */
static int bench_alone(struct disk *disk, uint64_t chunk_bytes)
{
    static const char *const mixed = "read_1M_in_writes";
    const struct job sums[] = {{"read_1M_d8_sum", chunk_bytes, 8, false, false},
                               {"write_1M_d8_sum", chunk_bytes, 8, true, false}};
    int rc = 0;
    if (spw_bench_wants(disk->run, "nvme", mixed)) {
        rc = begin_size(disk, chunk_bytes);
        if (rc == 0)
            rc = bench_mixed(disk, mixed, chunk_bytes);
    }
    for (int i = 0; i < 2 && rc == 0; i++) {
        if (!spw_bench_wants(disk->run, "nvme", sums[i].name))
            continue;
        rc = begin_size(disk, chunk_bytes);
        if (rc == 0)
            rc = bench_sum(disk, &sums[i]);
    }
    return rc;
}

int spw_bench_nvme(struct spw_bench_run *run)
{
    const uint64_t small = spw_bench_size(run, 1u << 20, 65536);
    struct disk disk = {.run = run, .random = 0x9e3779b97f4a7c15ull};
    disk.bytes = spw_bench_size(run, 1u << 30, 4u << 20);
    disk.round_ns = spw_bench_size(run, 1000000000u, 2000000u);
    int rc = bench_size(&disk, '1', small);
    if (rc == 0)
        rc = bench_size(&disk, '4', spw_bench_size(run, 4u << 20, 131072));
    if (rc == 0)
        rc = bench_alone(&disk, small);
    if (disk.chunk_bytes != 0)
        close_disk(&disk);
    if (rc < 0)
        fprintf(stderr, "spw-bench: nvme: %s\n", strerror(-rc));
    return rc;
}
