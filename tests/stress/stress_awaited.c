/*
 * Awaited bits that change at full speed while a worker orders a tiny queue by them: every store
 * ends exactly once, the oldest one within the overtake limit, and when the bits rest the order is
 * theirs. The clock is the program's own. Shared: one client's awaited bits and change count, in the
 * worker's mapping.
 */
#include "tests/stress/stress.h"

#include <pthread.h>
#include <sched.h>

#include "tests/stress/tier_mutants.h"
#include "tests/support/worker_rig.h"

#ifdef SPW_MUTANTS
/* count_first: the client tells of its bits before it sets them; the others: queue_mutants.c */
static const char *const mutants[] = {AWAITED_MUTANTS, "count_first", NULL};
#else
static const char *const mutants[] = {NULL};
#endif

#define CAPACITY 12u
#define SLOTS    (CAPACITY + 1)
#define QUEUE    8u
#define ROUNDS   3000u
#define LIMIT_NS (5 * RIG_SECOND) /* a copy takes a second */
/* with the copier, its own copy, and the steps of the clock in between */
#define LATE_NS (LIMIT_NS + 4 * RIG_SECOND)

static struct stress run; /* fixed before the threads start */
static bool count_first;
static struct rig rig;
static struct rig_client client;     /* stores */
static struct spw_client_view *view; /* of who waits, in the worker's mapping */
static struct rig_client waiter;     /* who waits: its lock and generation */
static spw_atomic64 asked, answered; /* while it is odd the bits rest */
static spw_atomic64 pattern;         /* bits as they rest */
static spw_atomic32 over;

/* ---- who waits -------------------------------------------------------------------------------- */

static void set_bits(uint64_t bits)
{
    if (count_first) {
        spw_client_await_changed(view, 0);
        sched_yield();
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        spw_client_await(view, 0, slot, bits >> slot & 1);
    if (!count_first)
        spw_client_await_changed(view, 0);
}

static void *flip(void *arg)
{
    uint64_t state = *(uint64_t *)arg;
    stress_pin(&run, 1);
    while (!spw_load_relaxed(&over)) {
        uint64_t round = spw_load_acquire(&asked);
        uint64_t bits = stress_random(&state) & stress_random(&state);
        set_bits(bits);
        if (round % 2 == 0)
            continue;
        spw_store_relaxed(&pattern, bits);
        spw_store_release(&answered, round);
        while (spw_load_acquire(&asked) == round && !spw_load_relaxed(&over))
            sched_yield();
    }
    return NULL;
}

/* ---- who stores ------------------------------------------------------------------------------- */

struct store {
    uint64_t key;
    bool ended;
};

static struct store store[1u << 20]; /* in the order of their runs */
static uint32_t stores, oldest;
static uint64_t oldest_ns; /* since when it is that */
static uint64_t runs, ends, next_key = 1;
static uint64_t wrong;

static void complain(const char *what)
{
    if (wrong++ == 0)
        printf("%s, at store %u of %u\n", what, oldest, stores);
}

/* What has come back: run what was reserved, count what has ended. */
static void reap(void)
{
    struct spw_done done;
    while (rig_reap(&client, 0, &done)) {
        if (done.kind == SPW_DONE_STORE) {
            ends++;
            if (done.status != 0)
                complain("a store failed");
        } else if (done.count != 0) {
            for (uint32_t i = 0; i < done.count; i++)
                store[stores++].key = done.cookie + i;
            next_key = done.cookie + done.count;
            rig_run(&rig, &client, 0, SPW_CMD_STORE, done.ticket, done.count, 0);
            runs++;
        }
    }
}

/* The command's cookie names its first key. */
static void offer(uint32_t count)
{
    if (stores + QUEUE >= sizeof store / sizeof *store)
        return;
    client.cookie = next_key - 1;
    rig_reserve(&rig, &client, 0, next_key, count);
    rig_pass(&rig);
    reap();
}

/* READY, or READY once and evicted since: no longer FILLING. */
static void look_at_oldest(void)
{
    while (oldest < stores && rig_state(&rig, 0, store[oldest].key, NULL) != SPW_FILLING) {
        oldest++;
        oldest_ns = rig.now_ns;
    }
    if (oldest == stores)
        oldest_ns = rig.now_ns;
    if (rig.now_ns - oldest_ns > LATE_NS)
        complain("the oldest store was passed over for too long");
}

/* The bits rest: what is awaited must stand before what isn't, but for the oldest at its limit. */
static void look_at_order(void)
{
    uint64_t round = spw_load_relaxed(&asked) + 1;
    spw_store_release(&asked, round);
    while (spw_load_acquire(&answered) != round)
        rig_pass(&rig);
    rig_pass(&rig);
    uint64_t bits = spw_load_relaxed(&pattern);
    uint64_t awaited = spw_load_relaxed(&rig.daemon.feed[0]->stream.bytes_awaited);
    uint64_t in_copy = spw_load_relaxed(&rig.daemon.feed[0]->stream.bytes_done) + 1000;
    bool is_first = true; /* of those that wait */
    for (uint32_t i = oldest; i < stores; i++) {
        struct spw_entry_copy entry;
        if (rig_state(&rig, 0, store[i].key, &entry) != SPW_FILLING || entry.place_bytes <= in_copy)
            continue;
        bool excused = is_first && rig.now_ns - oldest_ns >= LIMIT_NS - 3 * RIG_SECOND;
        is_first = false;
        if ((bits >> entry.slot & 1) != (entry.place_bytes <= awaited) && !excused)
            complain("a store stands where its bit doesn't say");
    }
    spw_store_release(&asked, round + 1); /* go on */
}

static bool goes_on(uint64_t round, uint64_t end_ns)
{
    if (stress_now_ns() >= end_ns || (run.mutate && wrong))
        return false;
    return run.mutate || round < ROUNDS;
}

static void drain(void)
{
    for (int i = 0; i < 100; i++) {
        rig_advance(&rig, RIG_SECOND);
        rig_settle(&rig);
        reap();
    }
    if (ends != runs || rig_open_chunks(&rig, 0) != 0 || rig_slots_in(&rig, 0, SPW_FILLING) != 0)
        complain("a store did not end once");
    if (rig_count(&rig, 0, SPW_WORKER_chunks_stored) != stores)
        complain("not all that was run was stored");
}

int main(int argc, char **argv)
{
    char counts[128];
    pthread_t thread;
    uint64_t state, seed, round = 0;
    run = stress_arguments(argc, argv, mutants);
    state = run.seed * 0x9e3779b97f4a7c15ull | 1;
    seed = state ^ 0xabcdef;
#ifdef SPW_MUTANTS
    count_first = strcmp(run.mutate, "count_first") == 0;
    queue_mutant_set_up(run.mutate);
#endif
    rig_open(&rig, &(struct rig_config){.capacity = CAPACITY,
                                        .queue_chunks = QUEUE,
                                        .overtake_limit_ns = LIMIT_NS,
                                        .copier = {.rate_bytes = {1000, 0}, .in_flight = {1, 1}}});
    rig_attach(&rig, &client);
    rig_attach(&rig, &waiter);
    view = &rig.pool[0].client[waiter.c];
    oldest_ns = rig.now_ns;
    uint64_t end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    stress_pin(&run, 0);
    if (pthread_create(&thread, NULL, flip, &seed))
        return 1;
    for (; goes_on(round, end_ns); round++) {
        offer(1 + (uint32_t)(stress_random(&state) % 3));
        rig_advance(&rig, stress_random(&state) % RIG_SECOND);
        rig_pass(&rig);
        reap();
        look_at_oldest();
        if (round % 4 == 0)
            look_at_order();
    }
    spw_store_relaxed(&over, 1);
    pthread_join(thread, NULL);
    drain();
    if (rig_count(&rig, 0, SPW_WORKER_overtaken) == 0 ||
        rig_count(&rig, 0, SPW_WORKER_overtake_limit_hits) == 0)
        wrong += !run.mutate;
    snprintf(counts, sizeof counts, "%u stores, %u overtook, %u at the limit, %u marks", stores,
             (uint32_t)rig_count(&rig, 0, SPW_WORKER_overtaken),
             (uint32_t)rig_count(&rig, 0, SPW_WORKER_overtake_limit_hits),
             (uint32_t)spw_client_awaited_changes(view, 0));
    rig_die(&client);
    rig_die(&waiter);
    rig_close(&rig);
    return stress_end(&run, wrong, counts);
}
