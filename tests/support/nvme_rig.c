#include "tests/support/nvme_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/env.h"

#define SECOND        1000000000ull
#define PATIENCE_NS   (10 * SECOND)
#define STRIDE        (NVME_RIG_ROOM + 8192u)
#define GUARD_BYTE    0xe7
#define EVENTS_A_POLL 32 /* as a worker takes them */

static void give_up(const char *what)
{
    fprintf(stderr, "nvme_rig: %s\n", what);
    abort();
}

/* ---- chunks ---------------------------------------------------------------------------------- */

void nvme_rig_name(uint64_t n, struct spw_cold_name *out)
{
    *out = (struct spw_cold_name){
        .space = {0x5057, n >> 32}, .group = n & 3, .rank = 1, .key_bytes = 24};
    memcpy(out->key, &n, sizeof n);
    memset(out->key + 8, (int)(n * 7 + 1), 16);
}

bool nvme_rig_named(const struct spw_cold_name *name, uint64_t n)
{
    struct spw_cold_name want;
    nvme_rig_name(n, &want);
    return memcmp(name->space, want.space, sizeof want.space) == 0 && name->group == want.group &&
           name->rank == want.rank && name->key_bytes == want.key_bytes &&
           memcmp(name->key, want.key, sizeof want.key) == 0;
}

void nvme_rig_fill(uint8_t *payload, uint64_t n, uint64_t bytes)
{
    uint64_t word = n * 0x9e3779b97f4a7c15ull + 1;
    for (uint64_t at = 0; at < bytes; at += 8) {
        uint64_t left = bytes - at;
        memcpy(payload + at, at ? &word : &n, left < 8 ? left : 8);
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
}

static bool right(const uint8_t *payload, uint64_t n, uint64_t bytes)
{
    uint8_t *want = malloc(bytes);
    if (!want)
        give_up("no memory");
    nvme_rig_fill(want, n, bytes);
    bool same = memcmp(want, payload, bytes) == 0;
    free(want);
    for (uint32_t i = 0; i < NVME_RIG_GUARD; i++)
        same = same && payload[bytes + i] == GUARD_BYTE;
    return same;
}

int64_t nvme_rig_id(const struct nvme_rig *rig, uint64_t n)
{
    for (uint32_t id = 0; id < rig->options.ids; id++)
        if (rig->holds[id] == n + 1)
            return id;
    return -1;
}

uint32_t nvme_rig_held(const struct nvme_rig *rig)
{
    uint32_t held = 0;
    for (uint32_t id = 0; id < rig->options.ids; id++)
        held += rig->holds[id] != 0;
    return held;
}

static void hold(struct nvme_rig *rig, uint32_t id, uint64_t n)
{
    if (id >= rig->options.ids || rig->holds[id] || nvme_rig_id(rig, n) >= 0) {
        rig->wrong++;
        return;
    }
    rig->holds[id] = n + 1;
}

static void on_gone(void *ctx, uint32_t id, enum spw_cold_why why)
{
    struct nvme_rig *rig = ctx;
    rig->gone[why]++;
    if (id >= rig->options.ids || !rig->holds[id]) {
        rig->wrong++;
        return;
    }
    if (rig->went_count < NVME_RIG_IDS)
        rig->went[rig->went_count++] = rig->holds[id] - 1;
    rig->holds[id] = 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static uint64_t or_else(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void make_dir(struct nvme_rig *rig)
{
    if (rig->options.dir) {
        snprintf(rig->dir, sizeof rig->dir, "%s", rig->options.dir);
        return;
    }
    const char *folder = getenv("TMPDIR");
    snprintf(rig->dir, sizeof rig->dir, "%.80s/spw-nvme-XXXXXX", folder ? folder : "/tmp");
    if (!mkdtemp(rig->dir))
        give_up("no folder");
    rig->own_dir = true;
}

void nvme_rig_open(struct nvme_rig *rig, const struct nvme_rig_options *options)
{
    memset(rig, 0, sizeof *rig);
    rig->options = *options;
    struct nvme_rig_options *o = &rig->options;
    o->cap_bytes = or_else(o->cap_bytes, 16 << 20);
    o->chunk_bytes_max = or_else(o->chunk_bytes_max, 65536);
    o->ids = (uint32_t)or_else(o->ids, 4096);
    o->reads = (uint32_t)or_else(o->reads, 8);
    o->writes = (uint32_t)or_else(o->writes, 8);
    o->deadline_ns = or_else(o->deadline_ns, 5 * SECOND);
    rig->memory = mmap(NULL, (uint64_t)STRIDE * NVME_RIG_JOBS, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rig->memory == MAP_FAILED)
        give_up("no memory");
    make_dir(rig);
    nvme_rig_again(rig);
}

void nvme_rig_again(struct nvme_rig *rig)
{
    const struct nvme_rig_options *o = &rig->options;
    struct spw_error err = {0};
    struct spw_io_handle io;
    struct spw_io_config engine = {.choice = o->engine, .depth = 16};
    if (spw_io_open(&engine, &io, &err) < 0)
        give_up(err.text);
    rig->fault = fault_io_open(io, &engine, 7, &io);
    memset(rig->holds, 0, sizeof rig->holds);
    memset(rig->job, 0, sizeof rig->job);
    struct spw_nvme_config config = {.dir = rig->dir,
                                     .shard = 3,
                                     .cap_bytes = o->cap_bytes,
                                     .ids = o->ids,
                                     .chunk_bytes_max = o->chunk_bytes_max,
                                     .io = io,
                                     .direct = !o->buffered,
                                     .sync = o->sync,
                                     .checksum = !o->no_checksum,
                                     .fifo = o->fifo,
                                     .reads = o->reads,
                                     .writes = o->writes,
                                     .deadline_ns = o->deadline_ns,
                                     .quarantine_ns = o->quarantine_ns,
                                     .now_ns = spw_monotonic_ns() + rig->ahead_ns,
                                     .listener = {.gone = on_gone, .ctx = rig}};
    if (spw_nvme_open(&config, &rig->cold, &err) < 0)
        give_up(err.text);
}

void nvme_rig_start(struct nvme_rig *rig, const struct nvme_rig_options *options)
{
    nvme_rig_open(rig, options);
    nvme_rig_until(rig, SPW_TIER_UP);
}

int nvme_rig_close(struct nvme_rig *rig)
{
    if (!rig->cold.ops)
        return 0;
    int rc = rig->cold.ops->close(rig->cold.cold, 2 * SECOND);
    rig->cold.ops = NULL;
    return rc;
}

void nvme_rig_fini(struct nvme_rig *rig)
{
    nvme_rig_close(rig);
    munmap(rig->memory, (uint64_t)STRIDE * NVME_RIG_JOBS);
    if (rig->own_dir)
        support_remove_dir(rig->dir);
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct nvme_job *job_of(struct nvme_rig *rig, const struct spw_cold_event *event)
{
    struct nvme_job *job = event->tag;
    if (job < rig->job || job >= rig->job + NVME_RIG_JOBS || !job->used)
        give_up("an event of no job");
    return job;
}

static void take_end(struct nvme_rig *rig, const struct spw_cold_event *event)
{
    struct nvme_job *job = job_of(rig, event);
    if (job->ended || job->get != (event->kind == SPW_COLD_GET))
        give_up("two events for one job, or one of the other kind");
    job->ended = true;
    job->status = event->status;
    if (!job->get && event->status == 0) {
        job->id = event->id;
        hold(rig, event->id, job->n);
    }
}

static void take_found(struct nvme_rig *rig, uint32_t id)
{
    struct spw_cold_name name;
    uint64_t n, bytes;
    rig->found++;
    if (rig->cold.ops->name(rig->cold.cold, id, &name, &bytes) < 0) {
        rig->wrong++;
        return;
    }
    memcpy(&n, name.key, sizeof n);
    rig->wrong += !nvme_rig_named(&name, n);
    hold(rig, id, n);
}

static void take(struct nvme_rig *rig, const struct spw_cold_event *event)
{
    switch (event->kind) {
    case SPW_COLD_PUT:
    case SPW_COLD_GET:
        take_end(rig, event);
        break;
    case SPW_COLD_RELEASED:
        if (!job_of(rig, event)->ended || job_of(rig, event)->status != -ETIMEDOUT)
            give_up("RELEASED of a job that wasn't late");
        job_of(rig, event)->released = true;
        break;
    case SPW_COLD_FOUND:
        take_found(rig, event->id);
        break;
    case SPW_COLD_RESET:
        rig->resets++;
        rig->reset_status = event->status;
        break;
    }
}

int nvme_rig_poll(struct nvme_rig *rig)
{
    struct spw_cold_event event[EVENTS_A_POLL];
    uint64_t now_ns = spw_monotonic_ns() + rig->ahead_ns;
    int n = rig->cold.ops->poll(rig->cold.cold, now_ns, event, EVENTS_A_POLL);
    for (int i = 0; i < n; i++)
        take(rig, &event[i]);
    if (rig->sample) {
        uint64_t now = nvme_rig_on_disk(rig->dir);
        rig->most_on_disk = now > rig->most_on_disk ? now : rig->most_on_disk;
    }
    return n;
}

void nvme_rig_until(struct nvme_rig *rig, enum spw_tier_state state)
{
    uint64_t until = spw_monotonic_ns() + PATIENCE_NS;
    while (nvme_rig_poll(rig), nvme_rig_gauge(rig).state != state) {
        if (spw_monotonic_ns() > until) {
            char words[300];
            struct spw_cold_gauge gauge = nvme_rig_gauge(rig);
            snprintf(words, sizeof words, "state is %u, not %d: %s", gauge.state, (int)state,
                     gauge.text);
            give_up(words);
        }
        usleep(50);
    }
    while (nvme_rig_poll(rig) != 0)
        ;
}

static bool jobs_open(const struct nvme_rig *rig)
{
    for (uint32_t i = 0; i < NVME_RIG_JOBS; i++)
        if (rig->job[i].used && !rig->job[i].ended)
            return true;
    return false;
}

void nvme_rig_quiet(struct nvme_rig *rig, uint32_t ms)
{
    uint64_t until = spw_monotonic_ns() + PATIENCE_NS;
    while (nvme_rig_poll(rig) != 0 || jobs_open(rig) || fault_io_open_count(rig->fault) > 0) {
        if (spw_monotonic_ns() > until)
            give_up("it doesn't become quiet");
        usleep(50);
    }
    until = spw_monotonic_ns() + ms * 1000000ull;
    while (spw_monotonic_ns() < until) {
        nvme_rig_poll(rig);
        usleep(100);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct nvme_job *job_begin(struct nvme_rig *rig, uint64_t n, uint64_t bytes, bool get)
{
    for (uint32_t i = 0; i < NVME_RIG_JOBS; i++) {
        struct nvme_job *job = &rig->job[i];
        if (job->used)
            continue;
        *job = (struct nvme_job){.used = true, .get = get, .n = n, .bytes = bytes};
        job->payload = rig->memory + (uint64_t)i * STRIDE + rig->options.skew;
        return job;
    }
    give_up("too many jobs at once");
    return NULL;
}

struct nvme_job *nvme_rig_put_begin(struct nvme_rig *rig, uint64_t n, uint64_t bytes, int *out_rc)
{
    struct nvme_job *job = job_begin(rig, n, bytes, false);
    struct spw_cold_put put = {.payload = job->payload, .bytes = bytes, .tag = job};
    nvme_rig_name(n, &put.name);
    nvme_rig_fill(job->payload, n, bytes);
    *out_rc = rig->cold.ops->put(rig->cold.cold, &put);
    if (*out_rc == 0)
        return job;
    job->used = false;
    return NULL;
}

struct nvme_job *nvme_rig_get_begin(struct nvme_rig *rig, uint64_t n, uint64_t bytes, int *out_rc)
{
    int64_t id = nvme_rig_id(rig, n);
    if (id < 0) {
        *out_rc = -ENOENT;
        return NULL;
    }
    struct nvme_job *job = job_begin(rig, n, bytes, true);
    memset(job->payload, 0xbb, bytes);
    memset(job->payload + bytes, GUARD_BYTE, NVME_RIG_GUARD);
    *out_rc = rig->cold.ops->get(rig->cold.cold, (uint32_t)id, job->payload, bytes, job);
    if (*out_rc == 0)
        return job;
    job->used = false;
    return NULL;
}

int nvme_rig_end(struct nvme_rig *rig, struct nvme_job *job)
{
    uint64_t until = spw_monotonic_ns() + PATIENCE_NS;
    while (!job->ended) {
        nvme_rig_poll(rig);
        if (spw_monotonic_ns() > until)
            give_up(job->get ? "no event of a get" : "no event of a put");
        if (!job->ended)
            usleep(20);
    }
    int status = job->status;
    if (job->get && status == 0 && !right(job->payload, job->n, job->bytes))
        status = -EILSEQ;
    job->used = status == -ETIMEDOUT && !job->released;
    return status;
}

int nvme_rig_put(struct nvme_rig *rig, uint64_t n, uint64_t bytes)
{
    uint64_t until = spw_monotonic_ns() + PATIENCE_NS;
    struct nvme_job *job;
    int rc;
    while (!(job = nvme_rig_put_begin(rig, n, bytes, &rc)) && rc == -EAGAIN) {
        if (spw_monotonic_ns() > until)
            give_up("a put is refused for ever");
        nvme_rig_poll(rig);
        usleep(50);
    }
    return job ? nvme_rig_end(rig, job) : rc;
}

int nvme_rig_get(struct nvme_rig *rig, uint64_t n, uint64_t bytes)
{
    int rc;
    struct nvme_job *job = nvme_rig_get_begin(rig, n, bytes, &rc);
    return job ? nvme_rig_end(rig, job) : rc;
}

void nvme_rig_drop(struct nvme_rig *rig, uint64_t n)
{
    int64_t id = nvme_rig_id(rig, n);
    if (id < 0)
        give_up("dropped what isn't there");
    rig->holds[id] = 0;
    rig->cold.ops->drop(rig->cold.cold, (uint32_t)id);
}

static int reset(struct nvme_rig *rig, const uint64_t *name)
{
    uint32_t before = rig->resets;
    int rc = rig->cold.ops->reset(rig->cold.cold, name, NULL);
    uint64_t until = spw_monotonic_ns() + PATIENCE_NS;
    while (rc == 0 && rig->resets == before) {
        nvme_rig_poll(rig);
        if (spw_monotonic_ns() > until)
            give_up("no event of a reset");
        usleep(50);
    }
    return rc ? rc : rig->reset_status;
}

int nvme_rig_reset(struct nvme_rig *rig, uint32_t space)
{
    const uint64_t name[2] = {0x5057, space};
    return reset(rig, name);
}

int nvme_rig_reset_all(struct nvme_rig *rig)
{
    return reset(rig, NULL);
}

struct spw_cold_gauge nvme_rig_gauge(struct nvme_rig *rig)
{
    struct spw_cold_gauge gauge = {0};
    rig->cold.ops->gauge(rig->cold.cold, &gauge);
    return gauge;
}

/* ---- the medium ------------------------------------------------------------------------------ */

static uint64_t on_disk;

static int add_blocks(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)ftw;
    if (type != FTW_NS) /* else it went between its name and its look, and @st says nothing */
        on_disk += (uint64_t)st->st_blocks * 512;
    return 0;
}

uint64_t nvme_rig_on_disk(const char *dir)
{
    on_disk = 0;
    nftw(dir, add_blocks, 8, FTW_PHYS);
    return on_disk;
}

bool nvme_rig_segment(const struct nvme_rig *rig, uint32_t nth, char out[256])
{
    char dir[160];
    snprintf(dir, sizeof dir, "%s/shard-3", rig->dir);
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort);
    bool there = false;
    for (int i = 0; i < n; i++) {
        if (strncmp(list[i]->d_name, "segment-", 8) == 0 && nth-- == 0) {
            snprintf(out, 256, "%s/%.64s", dir, list[i]->d_name);
            there = true;
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return there;
}

/* Where the cell of chunk @n is: a file opened for reading and writing, and the place in it. */
static int find_cell(struct nvme_rig *rig, uint64_t n, uint64_t bytes, uint64_t *out_at)
{
    char path[256];
    uint8_t *want = malloc(bytes), *there = malloc(bytes);
    if (!want || !there)
        give_up("no memory");
    nvme_rig_fill(want, n, bytes);
    int found = -ENOENT;
    for (uint32_t i = 0; found < 0 && nvme_rig_segment(rig, i, path); i++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        for (uint64_t at = 4096; found < 0 && pread(fd, there, 8, (off_t)at) == 8; at += 4096) {
            if (memcmp(there, want, 8) != 0 ||
                pread(fd, there, bytes, (off_t)at) != (ssize_t)bytes ||
                memcmp(there, want, bytes) != 0)
                continue;
            *out_at = at;
            found = fd;
        }
        if (found < 0)
            close(fd);
    }
    free(want);
    free(there);
    return found;
}

uint64_t nvme_rig_cell(struct nvme_rig *rig, uint64_t n, uint64_t bytes)
{
    uint64_t cell = 0;
    int fd = find_cell(rig, n, bytes, &cell);
    if (fd >= 0)
        close(fd);
    return cell;
}

int nvme_rig_spoil(struct nvme_rig *rig, uint64_t n, uint64_t bytes, uint64_t at)
{
    uint64_t cell;
    uint8_t byte;
    int fd = find_cell(rig, n, bytes, &cell);
    if (fd < 0)
        return fd;
    bool done = pread(fd, &byte, 1, (off_t)(cell + at)) == 1;
    byte ^= 0x10;
    done = done && pwrite(fd, &byte, 1, (off_t)(cell + at)) == 1;
    close(fd);
    return done ? 0 : -EIO;
}

int nvme_rig_swap(struct nvme_rig *rig, uint64_t a, uint64_t b, uint64_t bytes)
{
    uint64_t at_a, at_b;
    int fd_a = find_cell(rig, a, bytes, &at_a), fd_b = find_cell(rig, b, bytes, &at_b);
    uint8_t *payload = malloc(bytes);
    if (fd_a < 0 || fd_b < 0 || !payload)
        give_up("cells to swap aren't there");
    nvme_rig_fill(payload, b, bytes);
    bool done = pwrite(fd_a, payload, bytes, (off_t)at_a) == (ssize_t)bytes;
    nvme_rig_fill(payload, a, bytes);
    done = done && pwrite(fd_b, payload, bytes, (off_t)at_b) == (ssize_t)bytes;
    close(fd_a);
    close(fd_b);
    free(payload);
    return done ? 0 : -EIO;
}
