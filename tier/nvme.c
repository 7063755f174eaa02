/*
 * The NVMe tier: its interface and its loop. Files are changed by the engine's threads alone; what a
 * dead process leaves is told in nvme_jobs.c, nvme_blocks.c and nvme_resets.c.
 */
#include "tier/nvme.h"
#include "shm/alive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "shm/layout.h"
#include "tier/nvme_impl.h"

#define ENDS_A_POLL  32
#define EVENTS_MORE  1024u
#define CLOSE_NAP_NS 200000L

uint64_t spw_nvme_sum(const void *payload, uint64_t bytes)
{
    return XXH3_64bits(payload, bytes);
}

/* ---- the engine ------------------------------------------------------------------------------ */

int spw_nvme_submit(struct spw_cold *nvme, struct spw_nvme_op *op, struct spw_io *io)
{
    io->tag = op;
    int rc = nvme->config.io.ops->submit(nvme->config.io.engine, io);
    nvme->open_ops += rc == 0;
    nvme->engine_full = rc == -EAGAIN;
    return rc;
}

int spw_nvme_call(struct spw_cold *nvme, struct spw_nvme_call *which, int64_t (*call)(void *arg),
                  void *arg)
{
    struct spw_io io = {.op = SPW_IO_CALL, .call = call, .arg = arg};
    int rc = spw_nvme_submit(nvme, &which->op, &io);
    which->busy = rc == 0;
    return rc;
}

static void poll_engine(struct spw_cold *nvme)
{
    struct spw_io_end end[ENDS_A_POLL];
    int count;
    do {
        count = nvme->config.io.ops->poll(nvme->config.io.engine, end, ENDS_A_POLL);
        for (int i = 0; i < count; i++) {
            struct spw_nvme_op *op = end[i].tag;
            nvme->open_ops--;
            nvme->engine_full = false;
            op->ended(nvme, op, &end[i]);
        }
    } while (count == ENDS_A_POLL);
}

/* ---- events ---------------------------------------------------------------------------------- */

void spw_nvme_event(struct spw_cold *nvme, enum spw_cold_event_kind kind, uint32_t id, int status,
                    void *tag)
{
    uint32_t at = (nvme->event_first + nvme->events++) % nvme->event_room;
    nvme->event[at] = (struct spw_cold_event){.kind = kind, .id = id, .status = status, .tag = tag};
}

/* Each job under way may still give two, each reset one. */
bool spw_nvme_event_room(const struct spw_cold *nvme, uint32_t count)
{
    return nvme->events + 2 * nvme->leased + SPW_SPACES_MAX + count <= nvme->event_room;
}

/* What was found may have gone since, and its id may be another one's. */
static bool still_true(struct spw_cold *nvme, const struct spw_cold_event *event)
{
    if (event->kind != SPW_COLD_FOUND)
        return true;
    bool found = nvme->chunk[event->id].found;
    nvme->chunk[event->id].found = false;
    return found;
}

static int take_events(struct spw_cold *nvme, struct spw_cold_event *out, int max)
{
    int count = 0;
    for (; count < max && nvme->events != 0; nvme->events--) {
        out[count] = nvme->event[nvme->event_first];
        nvme->event_first = (nvme->event_first + 1) % nvme->event_room;
        count += still_true(nvme, &out[count]);
    }
    return count;
}

/* ---- loop ------------------------------------------------------------------------------------ */

static void pump(struct spw_cold *nvme)
{
    poll_engine(nvme);
    spw_nvme_mount_pump(nvme);
    spw_nvme_resets_pump(nvme);
    if (nvme->phase != SPW_NVME_SERVES)
        return;
    spw_nvme_jobs_pump(nvme);
    if (nvme->now_ns >= nvme->write_ns)
        spw_nvme_blocks_pump(nvme);
    spw_nvme_segments_leave(nvme);
}

static int poll(struct spw_cold *nvme, uint64_t now_ns, struct spw_cold_event *out, int max)
{
    nvme->now_ns = now_ns;
    pump(nvme);
    return take_events(nvme, out, max);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t due_ns(struct spw_cold *nvme, uint64_t now_ns)
{
    if (nvme->events != 0 || (nvme->phase == SPW_NVME_READING && nvme->scan_more) ||
        (nvme->phase == SPW_NVME_SERVES && now_ns >= nvme->write_ns && spw_nvme_blocks_wait(nvme)))
        return now_ns;
    uint64_t due = nvme->phase == SPW_NVME_OPENING || nvme->phase == SPW_NVME_READING
                       ? nvme->open_until_ns
                   : nvme->phase == SPW_NVME_IS_DOWN && nvme->open_ops != 0 ? UINT64_MAX
                                                                            : nvme->retry_ns;
    due = earlier(due, spw_nvme_resets_due_ns(nvme));
    for (uint32_t i = 0; nvme->leased != 0 && i < nvme->jobs; i++)
        if (nvme->job[i].state != SPW_NVME_IDLE && nvme->job[i].state != SPW_NVME_LATE)
            due = earlier(due, nvme->job[i].deadline_ns);
    return due;
}

static uint32_t tier_state(const struct spw_cold *nvme)
{
    switch (nvme->phase) {
    case SPW_NVME_IS_DOWN:
        return SPW_TIER_DOWN;
    case SPW_NVME_SERVES:
        return nvme->now_ns < nvme->write_ns  ? SPW_TIER_SCANNING
               : nvme->now_ns < nvme->full_ns ? SPW_TIER_FULL
                                              : SPW_TIER_UP;
    default:
        return SPW_TIER_SCANNING;
    }
}

static void gauge(struct spw_cold *nvme, struct spw_cold_gauge *out)
{
    struct spw_io_mode mode;
    nvme->config.io.ops->mode(nvme->config.io.engine, &mode);
    *out = (struct spw_cold_gauge){
        .capacity_bytes = nvme->config.cap_bytes,
        .used_bytes = nvme->mount ? SPW_NVME_OVERHEAD + nvme->file_bytes : 0,
        .entries = nvme->held,
        .leased = nvme->leased,
        .unlisted = nvme->unlisted_ever,
        .evictable = nvme->held - (nvme->reads < nvme->held ? nvme->reads : nvme->held),
        .state = tier_state(nvme),
        .mode = (mode.uring ? SPW_TIER_URING : 0) | (mode.registered ? SPW_TIER_REGISTERED : 0) |
                (nvme->mount && nvme->mount->direct ? SPW_TIER_DIRECT : 0),
    };
    if (out->state == SPW_TIER_FULL && nvme->text[0] == '\0')
        snprintf(mode.why, sizeof mode.why, "the disk of %.100s has no room left", nvme->dir);
    if (nvme->unlisted != 0)
        snprintf(mode.why, sizeof mode.why,
                 "%u chunks there are larger, or more, than this pool was started for; they stay "
                 "until their room is needed",
                 nvme->unlisted);
    if (nvme->removal_text[0] != '\0')
        snprintf(mode.why, sizeof mode.why, "%s", nvme->removal_text);
    if (nvme->phase == SPW_NVME_SERVES && nvme->now_ns < nvme->write_ns)
        snprintf(mode.why, sizeof mode.why,
                 "nothing is written yet: a dead process's writes may still come");
    if (nvme->text[0] == '\0' && mode.why[0] != '\0')
        snprintf(nvme->engine_text, sizeof nvme->engine_text, "%s", mode.why);
    out->text = nvme->text[0] != '\0' ? nvme->text : mode.why[0] != '\0' ? nvme->engine_text : "";
}

static uint32_t in_flight(struct spw_cold *nvme)
{
    return nvme->leased;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void release(struct spw_cold *nvme)
{
    for (uint32_t i = 0; nvme->job && i < nvme->jobs; i++)
        free(nvme->job[i].bounce);
    for (uint32_t i = 0; i < SPW_NVME_BLOCK_IOS; i++)
        free(nvme->block_io[i].copy);
    spw_nvme_index_clear(nvme);
    free(nvme->segment);
    spw_ages_fini(&nvme->ages);
    spw_slot_links_fini(&nvme->links);
    free(nvme->chunk);
    free(nvme->job);
    free(nvme->spaces_copy);
    free(nvme->event);
    spw_lock_close(nvme->lock_fd);
    free(nvme);
}

static void marked_ended(struct spw_cold *nvme, struct spw_nvme_op *op,
                         const struct spw_io_end *end)
{
    (void)nvme;
    (void)end;
    ((struct spw_nvme_call *)op)->busy = false;
}

/* Poll until nothing is with the engine, or @until_ns of CLOCK_MONOTONIC. */
static bool settle(struct spw_cold *nvme, uint64_t until_ns)
{
    static const struct timespec nap = {.tv_nsec = CLOSE_NAP_NS};
    for (;;) {
        poll_engine(nvme);
        if (nvme->phase == SPW_NVME_SERVES) {
            spw_nvme_jobs_pump(nvme);
            spw_nvme_blocks_pump(nvme);
        }
        spw_nvme_resets_pump(nvme);
        if (nvme->open_ops == 0 && !nvme->dirty_first && nvme->leased == 0)
            return true;
        if (spw_monotonic_ns() >= until_ns ||
            (nvme->phase != SPW_NVME_SERVES && nvme->open_ops == 0))
            return nvme->open_ops == 0;
        nanosleep(&nap, NULL);
    }
}

/* Descriptors are closed only when nothing uses them. */
static int close_tier(struct spw_cold *nvme, uint64_t limit_ns)
{
    if (!nvme)
        return 0;
    uint64_t until_ns = spw_monotonic_ns() + limit_ns;
    nvme->closing = true;
    bool quiet = settle(nvme, until_ns);
    if (quiet && nvme->mount && nvme->mount->shard_fd >= 0) {
        struct spw_nvme_end end = {.shard_fd = nvme->mount->shard_fd};
        nvme->end_call.op.ended = marked_ended;
        if (spw_nvme_call(nvme, &nvme->end_call, spw_nvme_end, &end) == 0)
            while (nvme->end_call.busy && settle(nvme, until_ns) && nvme->end_call.busy)
                ;
        quiet = nvme->open_ops == 0;
    }
    uint64_t now_ns = spw_monotonic_ns();
    int rc = nvme->config.io.ops->close(nvme->config.io.engine,
                                        now_ns < until_ns ? until_ns - now_ns : 0);
    if (!quiet || rc < 0)
        return -ETIMEDOUT; /* what is under way needs all of it */
    spw_nvme_unmount(nvme);
    release(nvme);
    return 0;
}

static const struct spw_cold_ops ops = {
    .put = spw_nvme_put,
    .get = spw_nvme_get,
    .drop = spw_nvme_drop,
    .touch = spw_nvme_touch,
    .demote = spw_nvme_demote,
    .name = spw_nvme_name,
    .reset = spw_nvme_reset,
    .share = spw_nvme_share,
    .poll = poll,
    .due_ns = due_ns,
    .gauge = gauge,
    .in_flight = in_flight,
    .close = close_tier,
};

static int check(const struct spw_nvme_config *config, struct spw_error *err)
{
    if (config->dir[0] != '/' || strlen(config->dir) >= SPW_NVME_PATH_BYTES)
        return spw_fail(err, -EINVAL, "\"%.100s\" is no absolute path of fewer than %u bytes",
                        config->dir, SPW_NVME_PATH_BYTES);
    if (config->cap_bytes < SPW_NVME_CAP_MIN)
        return spw_fail(err, -EINVAL,
                        "%llu bytes on disk for a worker are too few; give at least %u",
                        (unsigned long long)config->cap_bytes, SPW_NVME_CAP_MIN);
    if (config->ids == 0 || config->reads == 0 || config->writes == 0 ||
        config->chunk_bytes_max == 0 || config->chunk_bytes_max > UINT32_MAX)
        return spw_fail(err, -EINVAL, "the tier below needs room for chunks, reads and writes");
    return 0;
}

static int memory(struct spw_cold *nvme)
{
    nvme->jobs = nvme->config.reads + SPW_NVME_PUTS(nvme);
    nvme->event_room = 4 * nvme->jobs + SPW_SPACES_MAX + EVENTS_MORE;
    nvme->chunk = calloc(nvme->config.ids, sizeof *nvme->chunk);
    nvme->job = calloc(nvme->jobs, sizeof *nvme->job);
    nvme->event = calloc(nvme->event_room, sizeof *nvme->event);
    if (!nvme->chunk || !nvme->job || !nvme->event ||
        spw_slot_links_init(&nvme->links, nvme->config.ids) < 0 ||
        spw_ages_init(&nvme->ages, &nvme->links) < 0 ||
        posix_memalign((void **)&nvme->spaces_copy, SPW_NVME_BLOCK, SPW_NVME_BLOCK) != 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < SPW_NVME_BLOCK_IOS; i++)
        if (posix_memalign((void **)&nvme->block_io[i].copy, SPW_NVME_BLOCK, SPW_NVME_BLOCK) != 0)
            return -ENOMEM;
    spw_slot_list_init(&nvme->free_ids, &nvme->links);
    for (uint32_t id = 0; id < nvme->config.ids; id++)
        spw_slot_list_add(&nvme->free_ids, id);
    return 0;
}

int spw_nvme_open(const struct spw_nvme_config *config, struct spw_cold_handle *out_cold,
                  struct spw_error *err)
{
    int rc = check(config, err);
    struct spw_cold *nvme = rc == 0 ? calloc(1, sizeof *nvme) : NULL;
    if (nvme) {
        nvme->config = *config;
        nvme->lock_fd = -1;
        if (nvme->config.retry_ns == 0)
            nvme->config.retry_ns = 1000000000ull;
        nvme->retry_wait_ns = nvme->config.retry_ns;
        snprintf(nvme->dir, sizeof nvme->dir, "%s", config->dir);
        nvme->config.dir = nvme->dir;
        nvme->now_ns = config->now_ns;
        nvme->phase = SPW_NVME_IS_DOWN; /* the first poll opens the directory */
        nvme->retry_ns = nvme->now_ns;
    }
    if (rc == 0 && (!nvme || memory(nvme) < 0))
        rc = spw_fail(err, -ENOMEM, "no memory to list %u chunks of the tier below", config->ids);
    if (rc < 0) {
        config->io.ops->close(config->io.engine, 1000000000ull);
        if (nvme)
            release(nvme);
        return rc;
    }
    *out_cold = (struct spw_cold_handle){&ops, nvme};
    return 0;
}
