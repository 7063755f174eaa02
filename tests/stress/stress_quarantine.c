/*
 * Transfers that outlive their worker. One worker stores into a small shard, another copies out of
 * it; each dies now and then in the middle of a transfer, which goes on in a thread of its own until
 * shortly before the successor's quarantine is over. Late writes land in no chunk that anybody can
 * load, and a late read finds the chunk that it began with. Payload is plain memory, so
 * ThreadSanitizer sees each byte that is used again too early.
 *
 * Shared: one pool in plain memory. A transfer's fields belong to its worker while it is IDLE, to its
 * own thread while it is RUNNING. Each worker has a clock of its own, which stops short of the end
 * of the quarantine while a late transfer runs: that they end in time is what quarantines rest on.
 *
 *   pairs   [QU-1] a transfer's order before RUNNING -> its thread
 *           [QU-2] the transfer's bytes before IDLE -> its worker
 */
#include "tests/stress/stress.h"

#include "tests/stress/tier_mutants.h"
#include "tests/support/tiny_pool.h"

#include <pthread.h>
#include <sched.h>

#define CAPACITY      3u
#define SLOTS         5u
#define KEYS          7u
#define WORDS         8u
#define STEPS_MAX     24u
#define QUARANTINE_NS 1000u
#define TICK_NS       97u
#define ROUND_NS      150000000ull

#ifdef SPW_MUTANTS
static const char *const mutants[] = {QUARANTINE_MUTANTS, NULL};
#else
static const char *const mutants[] = {NULL};
#endif

enum { IDLE, RUNNING, OVER };

struct transfer {
    spw_atomic32 state;
    bool writes;
    uint32_t slot, steps;
    uint64_t n;    /* reads: the key; writes: the word */
    uint64_t read; /* transfers out of a slot that ended */
    uint64_t wrong;
};

struct worker {
    uint32_t k;
    uint64_t seed;
    struct spw_shard *shard;
    uint64_t now_ns, until_ns; /* until: of the quarantine */
    bool late;                 /* the transfer is a predecessor's */
    bool open;                 /* the transfer is ours, and hasn't been ended */
    uint64_t serial, deaths;
    struct transfer transfer;
};

static struct tiny_pool tiny;
static uint64_t round_end_ns;

static uint64_t *payload_of(uint32_t slot)
{
    return (uint64_t *)(void *)(tiny.pool.data[0] + (uint64_t)slot * tiny.pool.geometry.slot_bytes);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static void write_on(const struct transfer *transfer)
{
    for (uint32_t w = 0; w < WORDS; w++)
        payload_of(transfer->slot)[w] = transfer->n;
}

static bool reads_another(const struct transfer *transfer)
{
    const uint64_t *payload = payload_of(transfer->slot);
    bool differs = payload[0] % KEYS != transfer->n;
    for (uint32_t w = 1; w < WORDS; w++)
        differs |= payload[w] != payload[0];
    return differs;
}

static void *transfer_bytes(void *arg)
{
    struct transfer *transfer = arg;
    uint32_t state;
    /* [QU-1] acquire: what is to be done */
    while ((state = spw_load_acquire(&transfer->state)) != OVER) {
        bool wrong = false;
        for (uint32_t i = 0; state == RUNNING && i < transfer->steps; i++) {
            if (transfer->writes)
                write_on(transfer);
            else
                wrong |= reads_another(transfer);
            sched_yield();
        }
        if (state == RUNNING) {
            transfer->read += !transfer->writes;
            transfer->wrong += wrong;
            spw_store_release(&transfer->state, IDLE); /* [QU-2] release: the bytes are done with */
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void begin(struct worker *worker, uint32_t slot, bool writes, uint64_t n)
{
    struct transfer *transfer = &worker->transfer;
    transfer->slot = slot;
    transfer->writes = writes;
    transfer->n = n;
    transfer->steps = 1 + (uint32_t)(stress_random(&worker->seed) >> 32) % STEPS_MAX;
    worker->open = true;
    spw_store_release(&transfer->state, RUNNING); /* [QU-1] release */
}

static bool is_running(const struct worker *worker)
{
    return spw_load_acquire(&worker->transfer.state) == RUNNING; /* [QU-2] acquire */
}

/* ---- workers --------------------------------------------------------------------------------- */

static bool nobody_lives(void *ctx, uint32_t c, uint64_t generation)
{
    (void)ctx, (void)c, (void)generation;
    return true;
}

static void adopt(struct worker *worker)
{
    const struct spw_shard_config config = {.pool = &tiny.pool,
                                            .k = worker->k,
                                            .fence_limit_ns = TINY_FENCE_NS,
                                            .client_dead = nobody_lives,
                                            .now_ns = worker->now_ns,
                                            .io_quarantine_ns = QUARANTINE_NS,
                                            .transfers_linger = true};
    if (spw_shard_open(&config, &worker->shard, NULL) != 0)
        abort();
    worker->until_ns = worker->now_ns + QUARANTINE_NS;
}

static void die(struct worker *worker)
{
    spw_shard_close(worker->shard);
    worker->late = true;
    worker->open = false;
    worker->deaths++;
    adopt(worker);
}

/* Time goes on, but not past the quarantine of a transfer that still runs. */
static void tick(struct worker *worker)
{
    worker->late = worker->late && is_running(worker);
    worker->now_ns += TICK_NS;
    if (worker->late && worker->now_ns >= worker->until_ns)
        worker->now_ns = worker->until_ns - 1;
    spw_shard_flush(worker->shard);
    spw_shard_reclaim(worker->shard, worker->now_ns);
}

/* By a transfer, or at once, while a dead one's goes on. */
static void store(struct worker *worker)
{
    uint64_t n = (stress_random(&worker->seed) >> 32) % KEYS, word = ++worker->serial * KEYS + n;
    uint32_t slot;
    if (tiny_reserve(worker->shard, n, NULL, &slot) != SPW_RESERVED)
        return;
    if (!worker->late) {
        begin(worker, slot, true, word);
        return;
    }
    for (uint32_t w = 0; w < WORDS; w++)
        payload_of(slot)[w] = word;
    spw_shard_ready(worker->shard, slot);
}

static void copy(struct worker *worker, const struct spw_table_view *table)
{
    struct spw_entry_copy entry;
    uint32_t slot = (uint32_t)(stress_random(&worker->seed) >> 32) % SLOTS;
    uint64_t n;
    if (worker->late || spw_table_read(table, slot, true, &entry) < 0 || entry.state != SPW_READY ||
        spw_shard_claim(worker->shard, 0, slot, entry.fill) < 0)
        return;
    memcpy(&n, entry.key, sizeof n);
    begin(worker, slot, false, n);
}

static void end(struct worker *worker)
{
    if (worker->k == 0)
        spw_shard_ready(worker->shard, worker->transfer.slot);
    else
        spw_shard_unclaim(worker->shard, 0, worker->transfer.slot);
    worker->open = false;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct tiny_view view;
    if (tiny_view_init(&view, &tiny.pool, 0) < 0)
        abort();
    while (stress_now_ns() < round_end_ns || is_running(worker)) {
        tick(worker);
        if (worker->open && !is_running(worker))
            end(worker);
        else if (worker->open && (stress_random(&worker->seed) >> 32 & 7) == 0)
            die(worker);
        if (!worker->open && worker->k == 0)
            store(worker);
        else if (!worker->open)
            copy(worker, &view.table);
        if ((stress_random(&worker->seed) >> 32 & 3) == 0)
            sched_yield();
    }
    return NULL;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

struct total {
    uint64_t read, deaths, wrong;
};

static void run_round(uint64_t *seed, struct total *total)
{
    static struct worker worker[2];
    pthread_t thread[2], transfers[2];
    struct spw_geometry geometry = tiny_geometry(2, 1, CAPACITY, SLOTS);
    if (tiny_pool_make(&tiny, &geometry) < 0)
        abort();
    round_end_ns = stress_now_ns() + ROUND_NS;
    for (uint32_t k = 0; k < 2; k++) {
        worker[k] = (struct worker){.k = k, .seed = stress_random(seed), .now_ns = 1};
        adopt(&worker[k]);
    }
    for (uint32_t k = 0; k < 2; k++) {
        pthread_create(&transfers[k], NULL, transfer_bytes, &worker[k].transfer);
        pthread_create(&thread[k], NULL, work, &worker[k]);
    }
    for (uint32_t k = 0; k < 2; k++) {
        pthread_join(thread[k], NULL);
        spw_store_release(&worker[k].transfer.state, OVER);
        pthread_join(transfers[k], NULL);
        spw_shard_close(worker[k].shard);
        total->read += worker[k].transfer.read;
        total->wrong += worker[k].transfer.wrong;
        total->deaths += worker[k].deaths;
    }
    tiny_pool_free(&tiny);
}

int main(int argc, char **argv)
{
    struct stress run = stress_arguments(argc, argv, mutants);
    struct total total = {0};
    uint64_t seed = run.seed, end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    char counts[160];
#ifdef SPW_MUTANTS
    quarantine_mutant_set_up(run.mutate);
#endif
    while (stress_now_ns() < end_ns && total.wrong == 0)
        run_round(&seed, &total);
    snprintf(counts, sizeof counts, "%" PRIu64 " transfers read, %" PRIu64 " workers died",
             total.read, total.deaths);
    return stress_end(&run, total.wrong + (total.read == 0 || total.deaths == 0), counts);
}
