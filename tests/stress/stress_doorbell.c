/*
 * Doorbell, case 34: a worker that sleeps as soon as it can and a thread that posts for one client
 * or another at any moment. A post that was rung well before a sleep's time was over, and did not
 * end that sleep, is a lost wake. Shared: per client a slot and a tail, as in a lane, and the
 * worker's `asleep`.
 */
#include "tests/stress/stress.h"

#include "shm/doorbell.h"
#include "tests/stress/mutants.h"

#include <pthread.h>
#include <sched.h>

#ifdef SPW_MUTANTS
/* clear_early: the sleeper clears `asleep` before it waits; tail_first: a client moves its tail
 * before its slot can be seen; no_ring: it doesn't ring, now and then; the other:
 * doorbell_mutants.c */
static const char *const mutants[] = {"look_first", "clear_early", "tail_first", "no_ring", NULL};
#else
static const char *const mutants[] = {NULL};
#endif

#define CLIENTS   2
#define SLEEP_NS  200000000ull
#define MARGIN_NS 50000000ull

static struct {
    alignas(64) spw_atomic32 asleep;
    struct {
        alignas(64) spw_atomic64 slot;
        alignas(64) spw_atomic64 tail;
        alignas(64) spw_atomic64 rung_ns; /* when the ring of the newest post had returned */
        alignas(64) spw_atomic64 taken;
    } client[CLIENTS];
} shared;

static struct stress run; /* fixed before the threads start */
static spw_atomic32 stop;
static bool clear_early, tail_first, no_ring;
static uint64_t worker_state; /* of the sleeper's random numbers */

static void spin(uint64_t turns)
{
    while (turns-- > 0)
        spw_cpu_relax();
}

static bool has_work(void *ctx)
{
    for (int c = 0; c < CLIENTS; c++) {
        if (spw_load_acquire(&shared.client[c].slot) != spw_load_relaxed(&shared.client[c].taken))
            return true;
    }
    uint64_t dice = stress_random(&worker_state);
    spin(dice & 7 ? dice >> 8 & 7 : dice >> 8 & 1023); /* seldom as long as a system call */
    if (clear_early)
        spw_store_relaxed(&shared.asleep, 0);
    return false;
}

/* For tail_first, whose moment has to be met: has a tail moved whose post is not taken? */
static bool tail_is_ahead(void)
{
    for (int c = 0; c < CLIENTS; c++) {
        if (spw_load_relaxed(&shared.client[c].tail) != spw_load_relaxed(&shared.client[c].taken))
            return true;
    }
    return false;
}

static bool worker_is_asleep(void)
{
    return spw_load_relaxed(&shared.asleep);
}

/* Wait for a few milliseconds at most. */
static void wait_until(bool (*is_true)(void))
{
    for (uint32_t polls = 1; polls < 40000 && !is_true(); polls++) {
        if (polls % 1024 == 0)
            sched_yield();
        spw_cpu_relax();
    }
}

static void wait_until_taken(uint64_t c, uint64_t n)
{
    for (uint32_t polls = 1; spw_load_acquire(&shared.client[c].taken) != n; polls++) {
        if (spw_load_relaxed(&stop))
            return;
        if (polls % 4096 == 0)
            sched_yield();
        spw_cpu_relax();
    }
}

/* One post at a time, by any of the clients: another post would end the sleep that misses this
 * one, and hide it. */
static void *post(void *arg)
{
    uint64_t state = *(uint64_t *)arg, n[CLIENTS] = {0};
    stress_pin(&run, 1);
    for (uint64_t posts = 1; !spw_load_relaxed(&stop); posts++) {
        uint64_t c = stress_random(&state) % CLIENTS;
        n[c]++;
        if (tail_first) {
            spw_store_release(&shared.client[c].tail, n[c]);
            wait_until(worker_is_asleep); /* about to look, that is */
        }
        spin(stress_random(&state) & 7);
        spw_store_release(&shared.client[c].slot, n[c]);
        if (!tail_first)
            spw_store_release(&shared.client[c].tail, n[c]);
        if (!no_ring || posts % 4)
            spw_doorbell_ring(spw_doorbell_low_half(&shared.client[c].tail), &shared.asleep);
        spw_store_release(&shared.client[c].rung_ns, stress_now_ns());
        wait_until_taken(c, n[c]);
    }
    return NULL;
}

/* Posts that were rung in time for a sleep that began at @start_ns, and didn't end it. */
static uint64_t lost_wakes(uint64_t start_ns)
{
    uint64_t lost = 0;
    for (int c = 0; c < CLIENTS; c++) {
        uint64_t slot = spw_load_acquire(&shared.client[c].slot);
        uint64_t rung_ns = spw_load_acquire(&shared.client[c].rung_ns);
        lost += slot != spw_load_relaxed(&shared.client[c].taken) && rung_ns > start_ns &&
                rung_ns + MARGIN_NS < start_ns + SLEEP_NS;
    }
    return lost;
}

static uint64_t take_all(void)
{
    uint64_t taken = 0;
    for (int c = 0; c < CLIENTS; c++) {
        uint64_t slot = spw_load_acquire(&shared.client[c].slot);
        taken += slot - spw_load_relaxed(&shared.client[c].taken);
        spw_store_release(&shared.client[c].taken, slot);
    }
    return taken;
}

int main(int argc, char **argv)
{
    run = stress_arguments(argc, argv, mutants);
    stress_pin(&run, 0);
    struct spw_doorbell bell = {.count = CLIENTS};
    uint64_t taken = 0, lost = 0, sleeps = 0;
    uint64_t end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    pthread_t thread;
    char counts[96];
    uint64_t post_seed = run.seed * 977 | 1;
    worker_state = run.seed * 2654435761u | 1;
#ifdef SPW_MUTANTS
    doorbell_mutant_set_up(run.mutate);
    clear_early = strcmp(run.mutate, "clear_early") == 0;
    tail_first = strcmp(run.mutate, "tail_first") == 0;
    no_ring = strcmp(run.mutate, "no_ring") == 0;
#endif
    for (uint64_t c = 0; c < CLIENTS; c++)
        bell.word[c] = spw_doorbell_low_half(&shared.client[c].tail);
    pthread_create(&thread, NULL, post, &post_seed);
    while (stress_now_ns() < end_ns && lost == 0) {
        uint64_t start_ns = stress_now_ns();
        int rc = spw_doorbell_sleep(&bell, &shared.asleep, SLEEP_NS, has_work, NULL);
        if (rc == -ETIMEDOUT)
            lost += lost_wakes(start_ns);
        taken += take_all();
        spin(stress_random(&worker_state) & 31);
        if (tail_first)
            wait_until(tail_is_ahead);
        sleeps++;
    }
    spw_store_relaxed(&stop, 1);
    pthread_join(thread, NULL);
    snprintf(counts, sizeof counts, "%" PRIu64 " posts, %" PRIu64 " sleeps", taken, sleeps);
    return stress_end(&run, lost + (taken == 0), counts);
}
