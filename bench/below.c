/* See below.h. A chunk is called by a number, which its payload begins and ends with. */
#include "bench/below.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shm/layout.h"
#include "tier/nvme.h"

#define MORE_BYTES (1u << 20) /* for heads, tables and small files */
#define LIMIT_NS   30000000000ull
#define EVENTS     32

/* One put or get. */
struct place {
    uint8_t *payload;
    uint64_t number;
    uint64_t begin_ns;
    bool put, open;
};

/* Reads as urgent as writes: stands before the engine. */
struct spw_io_engine {
    struct spw_io_handle under;
};

struct spw_bench_below {
    struct spw_bench_below_config config;
    struct spw_cold_handle cold;
    struct spw_io_engine before;
    bool registered;
    sem_t bell;
    int memory_fd;
    uint8_t *memory;
    uint64_t memory_bytes;
    struct place *place;
    uint32_t open;    /* of them */
    uint64_t *number; /* of chunk id, 0 = none */
    uint32_t ids, held;
    uint64_t next; /* number of the next put */
    uint64_t evicted;
    uint64_t random;
};

/* ---- reads that don't overtake --------------------------------------------------------------- */

static int queue_submit(struct spw_io_engine *engine, const struct spw_io *io)
{
    struct spw_io plain = *io;
    plain.urgent = false;
    return engine->under.ops->submit(engine->under.engine, &plain);
}

static int queue_poll(struct spw_io_engine *engine, struct spw_io_end *out, int max)
{
    return engine->under.ops->poll(engine->under.engine, out, max);
}

static void queue_mode(struct spw_io_engine *engine, struct spw_io_mode *out)
{
    engine->under.ops->mode(engine->under.engine, out);
}

static int queue_close(struct spw_io_engine *engine, uint64_t limit_ns)
{
    return engine->under.ops->close(engine->under.engine, limit_ns);
}

static const struct spw_io_ops queue_ops = {queue_submit, queue_poll, queue_mode, queue_close};

/* ---- chunks ---------------------------------------------------------------------------------- */

static void mark(const struct spw_bench_below *below, struct place *place)
{
    uint64_t last = below->config.chunk_bytes - sizeof place->number;
    memcpy(place->payload, &place->number, sizeof place->number);
    memcpy(place->payload + last, &place->number, sizeof place->number);
}

static bool marked(const struct spw_bench_below *below, const struct place *place)
{
    uint64_t last = below->config.chunk_bytes - sizeof place->number;
    return memcmp(place->payload, &place->number, sizeof place->number) == 0 &&
           memcmp(place->payload + last, &place->number, sizeof place->number) == 0;
}

static void hold(struct spw_bench_below *below, uint32_t id, uint64_t number)
{
    below->held += below->number[id] == 0;
    below->number[id] = number;
    if (number >= below->next)
        below->next = number + 1;
}

static void on_gone(void *ctx, uint32_t id, enum spw_cold_why why)
{
    struct spw_bench_below *below = ctx;
    below->held -= below->number[id] != 0;
    below->number[id] = 0;
    below->evicted += why == SPW_COLD_EVICTED;
}

static int begin_put(struct spw_bench_below *below, struct place *place)
{
    struct spw_cold_put put = {.name = {.space = {1, 2}, .key_bytes = sizeof place->number},
                               .payload = place->payload,
                               .bytes = below->config.chunk_bytes,
                               .tag = place};
    place->number = below->next;
    memcpy(put.name.key, &place->number, sizeof place->number);
    mark(below, place);
    int rc = below->cold.ops->put(below->cold.cold, &put);
    below->next += rc == 0;
    return rc;
}

static int begin_get(struct spw_bench_below *below, struct place *place)
{
    uint32_t id;
    if (below->held == 0)
        return -ENOENT;
    do
        id = (uint32_t)(spw_bench_random(&below->random) % below->ids);
    while (below->number[id] == 0);
    place->number = below->number[id];
    memset(place->payload, 0, sizeof place->number);
    return below->cold.ops->get(below->cold.cold, id, place->payload, below->config.chunk_bytes,
                                place);
}

/* 0, also when it must be tried again. */
static int begin(struct spw_bench_below *below, struct place *place, bool put)
{
    place->put = put;
    place->begin_ns = spw_bench_now_ns();
    int rc = put ? begin_put(below, place) : begin_get(below, place);
    place->open = rc == 0;
    below->open += rc == 0;
    return rc == -EAGAIN || rc == -ENOSPC ? 0 : rc;
}

static int ended(struct spw_bench_below *below, const struct spw_cold_event *event)
{
    struct place *place = event->tag;
    if (event->status < 0)
        return event->status;
    if (event->kind == SPW_COLD_FOUND) {
        struct spw_cold_name name;
        uint64_t bytes, number;
        int rc = below->cold.ops->name(below->cold.cold, event->id, &name, &bytes);
        memcpy(&number, name.key, sizeof number);
        if (rc == 0)
            hold(below, event->id, number);
        return rc == -ENOENT ? 0 : rc; /* gone since */
    }
    place->open = false;
    below->open--;
    if (event->kind == SPW_COLD_PUT)
        hold(below, event->id, place->number);
    return event->kind == SPW_COLD_PUT || marked(below, place) ? 0 : -EBADMSG;
}

/* ---- running --------------------------------------------------------------------------------- */

static void wake(void *ctx)
{
    sem_post(ctx);
}

/* As a worker does: asleep until the engine has something, or the store is due. */
static void sleep_a_while(struct spw_bench_below *below)
{
    uint64_t now_ns = spw_bench_now_ns();
    struct timespec until;
    if (below->cold.ops->due_ns(below->cold.cold, now_ns) <= now_ns)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 10000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    sem_timedwait(&below->bell, &until);
}

/* What has ended; sleeps once if that is nothing. */
static int take(struct spw_bench_below *below, uint64_t *bytes, struct spw_bench_series *get_ns)
{
    struct spw_cold_event event[EVENTS];
    int rc = 0, count = below->cold.ops->poll(below->cold.cold, spw_bench_now_ns(), event, EVENTS);
    if (count == 0)
        sleep_a_while(below);
    for (int i = 0; i < count && rc == 0; i++) {
        const struct place *place = event[i].tag;
        rc = ended(below, &event[i]);
        if (event[i].kind == SPW_COLD_GET && get_ns)
            spw_bench_add(get_ns, (double)(spw_bench_now_ns() - place->begin_ns));
        if (place)
            *bytes += below->config.chunk_bytes;
    }
    return rc;
}

int spw_bench_below_run(struct spw_bench_below *below, uint32_t puts, uint32_t gets, uint64_t ns,
                        uint64_t *out_bytes, struct spw_bench_series *get_ns)
{
    uint64_t now_ns = spw_bench_now_ns(), until_ns = now_ns + ns;
    int rc = 0;
    *out_bytes = 0;
    do {
        for (uint32_t i = 0; i < puts + gets && rc == 0 && now_ns < until_ns; i++)
            if (!below->place[i].open)
                rc = begin(below, &below->place[i], i < puts);
        if (rc == 0)
            rc = take(below, out_bytes, get_ns);
        now_ns = spw_bench_now_ns();
        if (now_ns > until_ns + LIMIT_NS)
            rc = -ETIMEDOUT;
    } while (rc == 0 && (now_ns < until_ns || below->open != 0));
    return rc;
}

/* ---- open and close -------------------------------------------------------------------------- */

static uint32_t state(const struct spw_bench_below *below)
{
    struct spw_cold_gauge gauge;
    below->cold.ops->gauge(below->cold.cold, &gauge);
    return gauge.state;
}

/* Until it serves, and as full as it gets. */
static int fill(struct spw_bench_below *below)
{
    uint64_t moved = 0, until_ns = spw_bench_now_ns() + LIMIT_NS;
    int rc = take(below, &moved, NULL);
    while (rc == 0 && state(below) != SPW_TIER_UP && spw_bench_now_ns() < until_ns)
        rc = take(below, &moved, NULL);
    bool full = below->held >= below->ids;
    while (rc == 0 && !full && below->evicted == 0 && spw_bench_now_ns() < until_ns)
        rc = spw_bench_below_run(below, below->config.places, 0, 1000000, &moved, NULL);
    return rc == 0 && spw_bench_now_ns() >= until_ns ? -ETIMEDOUT : rc;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int open_store(struct spw_bench_below *below, struct spw_error *err)
{
    const struct spw_bench_below_config *config = &below->config;
    const struct iovec memory = {below->memory, below->memory_bytes};
    struct spw_io_config engine = {.depth = config->depth,
                                   .memory = &memory,
                                   .memory_count = 1,
                                   .part_bytes = config->chunk_bytes,
                                   .wake = wake,
                                   .wake_ctx = &below->bell};
    struct spw_nvme_config store = {.dir = config->folder,
                                    .cap_bytes = config->store_bytes + MORE_BYTES,
                                    .ids = below->ids,
                                    .chunk_bytes_max = config->chunk_bytes,
                                    .direct = true,
                                    .checksum = config->checksum,
                                    .reads = config->places,
                                    .writes = least(config->places, config->depth),
                                    .deadline_ns = LIMIT_NS,
                                    .now_ns = spw_bench_now_ns(),
                                    .listener = {on_gone, below}};
    struct spw_io_mode mode;
    int rc = spw_io_open(&engine, &store.io, err);
    if (rc < 0)
        return rc;
    store.io.ops->mode(store.io.engine, &mode);
    below->registered = mode.registered;
    if (config->reads_queue) {
        below->before.under = store.io;
        store.io = (struct spw_io_handle){&queue_ops, &below->before};
    }
    return spw_nvme_open(&store, &below->cold, err);
}

/* Shared, as a pool is. */
static int get_memory(struct spw_bench_below *below)
{
    below->place = calloc(below->config.places, sizeof *below->place);
    below->number = calloc(below->ids, sizeof *below->number);
    below->memory_fd = memfd_create("spw-bench-below", MFD_CLOEXEC);
    if (!below->place || !below->number)
        return -ENOMEM;
    if (below->memory_fd < 0 || ftruncate(below->memory_fd, (off_t)below->memory_bytes) < 0)
        return -errno;
    below->memory =
        mmap(NULL, below->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, below->memory_fd, 0);
    if (below->memory == MAP_FAILED)
        return -errno;
    for (uint64_t at = 0; at < below->memory_bytes; at += 8) /* no disk makes this smaller */
        memcpy(below->memory + at, &(uint64_t){spw_bench_random(&below->random)}, 8);
    for (uint32_t i = 0; i < below->config.places; i++)
        below->place[i].payload = below->memory + i * below->config.chunk_bytes;
    return 0;
}

static void release(struct spw_bench_below *below)
{
    sem_destroy(&below->bell);
    free(below->number);
    free(below->place);
    if (below->memory != MAP_FAILED)
        munmap(below->memory, below->memory_bytes);
    if (below->memory_fd >= 0)
        close(below->memory_fd);
    free(below);
}

struct spw_bench_below *spw_bench_below_open(const struct spw_bench_below_config *config)
{
    struct spw_bench_below *below = calloc(1, sizeof *below);
    struct spw_error err = {0};
    if (!below)
        return NULL;
    below->config = *config;
    below->memory = MAP_FAILED;
    below->memory_fd = -1;
    below->memory_bytes = config->places * config->chunk_bytes;
    below->ids = (uint32_t)(config->store_bytes / config->chunk_bytes);
    below->next = 1;
    below->random = 0x9e3779b97f4a7c15ull;
    sem_init(&below->bell, 0, 0);
    int rc = get_memory(below);
    if (rc == 0)
        rc = open_store(below, &err);
    if (rc == 0 && (rc = fill(below)) == 0)
        return below;
    fprintf(stderr, "spw-bench: nvme: the store can't be used: %s %s\n", strerror(-rc), err.text);
    if (!below->cold.ops || below->cold.ops->close(below->cold.cold, LIMIT_NS) == 0)
        release(below);
    return NULL;
}

int spw_bench_below_close(struct spw_bench_below *below)
{
    int rc = below->cold.ops->close(below->cold.cold, LIMIT_NS);
    if (rc == 0) /* else transfers still use it */
        release(below);
    return rc;
}

bool spw_bench_below_registered(const struct spw_bench_below *below)
{
    return below->registered;
}

int spw_bench_below_memory(const struct spw_bench_below *below)
{
    return below->memory_fd;
}
