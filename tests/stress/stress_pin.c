/*
 * Memory that is pinned and let go of while a worker serves from it: the pin thread moves the frontier, the
 * worker hands out slots, stores into them and copies from another shard, somebody else's registrations
 * take the turn, pinning is switched off or refused now and then, and all is closed at any time. What is
 * registered is plain memory, so ThreadSanitizer sees each registration that a copy could still use.
 *
 * Shared: the pinning, a record of it, the turn; the shard's table is the worker's alone.
 */
#include "tests/stress/stress.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/pin_impl.h"
#include "shm/alive.h"
#include "shm/text.h"
#include "tests/stress/pin_mutants.h"
#include "tests/support/tiny_pool.h"

#define SHARDS      2u /* the worker's own, and another one that it only reads */
#define SLOTS       64u
#define CAPACITY    58u
#define SLOT_BYTES  4096u
#define PIECE_SLOTS 4u
#define FLIGHTS     8u
#define KEYS        200u

#ifdef SPW_MUTANTS
static const char *const mutants[] = {PIN_MUTANTS, NULL};
#else
static const char *const mutants[] = {NULL};
#endif

static struct stress run;
static struct tiny_pool tiny;
static struct spw_shard *shard;
static struct spw_pin *pin;
static uint8_t *payload[SHARDS];
static uint8_t registered[SHARDS][SLOTS]; /* a page each; the pin thread writes, copies read */
static uint32_t held;                     /* likewise                                        */
static uint32_t fail_at, adds;            /* of a round; 0: none fails                       */
static pthread_mutex_t in_turn = PTHREAD_MUTEX_INITIALIZER;
static uint64_t overlaps; /* likewise */
static spw_atomic32 over;
static spw_atomic64 words[SPW_GPU_TEXT_WORDS];
static struct spw_gpu_record record;
static spw_atomic32 pinning;

static struct {
    uint64_t rounds, copies, others, undone, unpinned;
    uint64_t
        wrong; /* a copy whose memory isn't registered, or a slot that was handed out and isn't */
} seen;

/* ---- what registers -------------------------------------------------------------------------- */

/* False: somebody else is in a turn of theirs. */
static bool enter_turn(void)
{
    return pthread_mutex_trylock(&in_turn) == 0;
}

static void leave_turn(bool entered)
{
    if (entered)
        pthread_mutex_unlock(&in_turn);
}

static uint8_t *flags_of(const uint8_t *start)
{
    uint32_t s = start >= payload[1] && start < payload[1] + (size_t)SLOTS * SLOT_BYTES;
    return &registered[s][(start - payload[s]) / SLOT_BYTES];
}

static int add(void *ctx, void *start, uint64_t bytes, bool writable, const char **out_name)
{
    bool entered = enter_turn();
    sched_yield();
    overlaps += !entered;
    bool fails = ++adds == fail_at;
    if (!fails)
        memset(flags_of(start), 1, bytes / SLOT_BYTES);
    held += !fails;
    *out_name = "refused";
    leave_turn(entered);
    return fails ? -ENOMEM : 0;
}

static void remove_piece(void *ctx, void *start)
{
    memset(flags_of(start), 0, PIECE_SLOTS);
    held--;
}

static void say(void *ctx, const char *text)
{
    spw_text_store(words, SPW_GPU_TEXT_WORDS, text);
}

/* ---- somebody else's turns ------------------------------------------------------------------- */

static void *register_too(void *context)
{
    int fd = *(int *)context;
    uint64_t lost = 0;
    while (!spw_load_relaxed(&over)) {
        if (spw_lock_take(fd, SPW_LOCK_PINNING) == 0) {
            bool entered = enter_turn();
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
            leave_turn(entered);
            lost += !entered;
            spw_lock_drop(fd, SPW_LOCK_PINNING);
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return (void *)(uintptr_t)lost;
}

/* ---- who looks ------------------------------------------------------------------------------- */

static uint64_t unsaid; /* a refusal without words */

static void *look_on(void *context)
{
    char text[SPW_GPU_TEXT_WORDS * 8 + 1];
    while (!spw_load_relaxed(&over)) {
        /* acquire, as the daemon does: words before the state */
        if (spw_load_acquire(&record.pin_state) == SPW_PIN_REFUSED)
            unsaid += strncmp(spw_text_load(words, SPW_GPU_TEXT_WORDS, text),
                              "memory can't be pinned", 22) != 0;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

/* ---- the worker ------------------------------------------------------------------------------ */

struct flight {
    const uint8_t *at;
    uint32_t slot; /* to be READY at the end, or SPW_NO_SLOT_ID */
};

static struct flight flight[FLIGHTS];
static uint32_t flights;

static uint8_t *slot_at(uint32_t s, uint32_t slot)
{
    return payload[s] + (uint64_t)slot * SLOT_BYTES;
}

static void end_one(uint32_t i)
{
    struct flight *of = &flight[i];
    if (of->at) {
        seen.wrong += !*flags_of(of->at);
        spw_pin_done(pin);
    }
    if (of->slot != SPW_NO_SLOT_ID)
        spw_shard_ready(shard, of->slot);
    *of = flight[--flights];
}

/* True: the copy's memory was said to be pinned. */
static bool begin_one(const uint8_t *at, uint32_t slot)
{
    bool pinned = spw_pin_use(pin, at, SLOT_BYTES);
    seen.wrong += pinned && !*flags_of(at);
    flight[flights++] = (struct flight){pinned ? at : NULL, slot};
    seen.copies += pinned;
    return pinned;
}

static void store_one(uint64_t key, bool may_be_undone)
{
    uint32_t slot;
    if (tiny_reserve(shard, key, NULL, &slot) != SPW_RESERVED)
        return;
    slot_at(0, slot)[0]++;
    bool pinned = begin_one(slot_at(0, slot), slot);
    seen.unpinned += !pinned;
    seen.wrong += !pinned && !may_be_undone; /* it was handed out because it is */
}

static void serve(uint64_t *state, uint64_t until_ns, bool may_be_undone)
{
    uint32_t most = stress_random(state) >> 16 & 1 ? FLIGHTS : 1; /* on their way at a time */
    while (stress_now_ns() < until_ns) {
        uint64_t dice = stress_random(state) >> 16;
        spw_shard_reclaim(shard, stress_now_ns());
        if (flights == most)
            end_one((uint32_t)(dice >> 8) % most);
        else if (dice % 8 == 1) /* of a warm start, pinned or not */
            begin_one(slot_at(0, (uint32_t)(dice >> 8) % SLOTS), SPW_NO_SLOT_ID);
        else if (dice % 4 == 0)
            seen.others += begin_one(slot_at(1, (uint32_t)(dice >> 8) % SLOTS), SPW_NO_SLOT_ID);
        else
            store_one((dice >> 8) % KEYS, may_be_undone);
        spw_shard_flush(shard);
        if (dice % 16 == 0)
            sched_yield();
    }
    while (flights != 0)
        end_one(0);
    seen.wrong += spw_load_relaxed(&pin->used) != spw_load_relaxed(&pin->ended);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static uint32_t usable(void *ctx)
{
#ifdef SPW_MUTANTS
    return pin_mutant_usable_slots(pin);
#endif
    return spw_pin_usable_slots(pin);
}

static struct spw_pin_config configured(int lock)
{
    struct spw_pin_config config = {
        .backend = {.add = add, .remove = remove_piece},
        .shards = SHARDS,
        .slot_bytes = SLOT_BYTES,
        .piece_bytes = PIECE_SLOTS * SLOT_BYTES,
        .threads = 2,
        .lock_fd = lock,
        .pinning = &pinning,
        .record = &record,
        .say = say,
    };
    for (uint32_t s = 0; s < SHARDS; s++)
        config.memory[s] = (struct spw_pin_memory){payload[s], (uint64_t)SLOTS * SLOT_BYTES};
    return config;
}

struct off {
    uint64_t at_ns;
};

static void *switch_off(void *context)
{
    struct off *off = context;
    while (stress_now_ns() < off->at_ns)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    spw_store_relaxed(&pinning, SPW_PINNING_OFF);
    return NULL;
}

/* One worker's life: of another length each time; every other one is undone in its course. */
static void live(uint64_t *state, const struct spw_pin_config *config)
{
    struct spw_error err;
    pthread_t thread;
    uint64_t dice = stress_random(state) >> 16, now = stress_now_ns();
    struct off off = {now + (dice >> 8) % 90 * 1000000};
    bool refused = dice % 4 == 0, switched = dice % 4 == 1;
    adds = 0;
    fail_at = refused ? 1 + (uint32_t)(dice >> 8) % 20 : 0;
    spw_store_relaxed(&pinning, SPW_PINNING_ON);
    if (spw_pin_open(config, &pin, &err) < 0 || !(shard = tiny_shard_open(&tiny, 0)))
        exit(1);
    if (switched)
        pthread_create(&thread, NULL, switch_off, &off);
    serve(state, now + (dice >> 20) % 160 * 1000000, refused || switched);
    spw_shard_close(shard);
    if (switched)
        pthread_join(thread, NULL);
    spw_pin_close(pin);
    seen.wrong += held != 0;
    seen.undone += refused || switched;
    seen.rounds++;
}

int main(int argc, char **argv)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, CAPACITY, SLOTS);
    pthread_t other, looker;
    char path[64], counts[160];
    run = stress_arguments(argc, argv, mutants);
#ifdef SPW_MUTANTS
    pin_mutant_set_up(run.mutate);
#endif
    int lock = memfd_create("turns", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", lock);
    int lock_of_other = open(path, O_RDWR | O_CLOEXEC);
    for (uint32_t s = 0; s < SHARDS; s++)
        payload[s] = aligned_alloc(4096, (size_t)SLOTS * SLOT_BYTES);
    if (lock_of_other < 0 || !payload[0] || !payload[1] || tiny_pool_make(&tiny, &geometry) < 0)
        return 1;
    tiny.usable_slots = usable;
    struct spw_pin_config config = configured(lock);
    pthread_create(&other, NULL, register_too, &lock_of_other);
    pthread_create(&looker, NULL, look_on, NULL);
    uint64_t state = run.seed * 31 + 7, until = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    while (stress_now_ns() < until && !(run.mutate && seen.wrong + overlaps))
        live(&state, &config);
    spw_store_relaxed(&over, 1);
    void *lost;
    pthread_join(other, &lost);
    pthread_join(looker, NULL);
    overlaps += (uintptr_t)lost;
    tiny_pool_free(&tiny);
    free(payload[0]);
    free(payload[1]);
    snprintf(counts, sizeof counts,
             "%" PRIu64 " lives, %" PRIu64 " undone, %" PRIu64 " copies, %" PRIu64
             " of another shard, %" PRIu64 " unpinned",
             seen.rounds, seen.undone, seen.copies, seen.others, seen.unpinned);
    bool idle = !run.mutate && (seen.copies == 0 || seen.others == 0);
    return stress_end(&run, seen.wrong + overlaps + unsaid + idle, counts);
}
