/* See pin.h. Written: the worker's record of its GPU, by the pin thread while there is one. */
#include "gpu/pin.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/pin_pieces.h"
#include "gpu/touch.h"
#include "shm/alive.h"

#define TURN_NS         1000000ull   /* between two tries to get the turn                    */
#define PAUSE_NS        3000000ull   /* after a registration, for others to get it           */
#define IDLE_NS         100000000ull /* between two looks at ctl.pinning                     */
#define TOUCHERS        4u
#define WORDS_BYTES     200u
#define USABLE_ALL      UINT64_MAX
#define BITS(count)     (((count) + 63u) / 64u)
#define LIMIT_OF(limit) ((limit) ? spw_monotonic_ns() + (limit) : UINT64_MAX)

struct shard {
    struct spw_pin_memory memory;
    struct spw_pin_pieces pieces;
    spw_atomic64 *is_pinned; /* a bit a piece; written by the pin thread           */
    spw_atomic64 *is_wanted; /* likewise, of others' shards; written by the worker */
    uint64_t *is_held;       /* registered; the pin thread's own                   */
    uint64_t *is_refused;    /* likewise                                           */
};

struct spw_pin {
    struct spw_pin_config config;
    cpu_set_t cpus;
    struct shard shard[SPW_WORKERS_MAX];
    spw_atomic64 usable_bytes; /* of the own shard, or USABLE_ALL; written by the pin thread */
    spw_atomic64 used, ended;  /* copies begun and ended on pinned memory; by the worker     */
    spw_atomic64 lost;         /* by the pin thread                                          */
    spw_atomic32 stop;         /* by the worker                                              */
    uint64_t until_ns;         /* the limit, for the own shard                               */
    uint64_t touched_before;   /* of the pieces before                                       */
    bool runs;                 /* the thread does                                            */
    bool dropped;              /* for good                                                   */
    pthread_t thread;
    pthread_mutex_t lock; /* of the bell alone */
    pthread_cond_t bell;  /* something is wanted, or stop */
};

/* ---- which memory ---------------------------------------------------------------------------- */

static struct shard *own_shard(struct spw_pin *pin)
{
    return &pin->shard[pin->config.k];
}

static bool has(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

/* The shard and the piece that holds all of it. */
static bool find(const struct spw_pin *pin, const void *start, uint64_t bytes, uint32_t *out_shard,
                 uint32_t *out_piece)
{
    for (uint32_t s = 0; s < pin->config.shards; s++) {
        const struct shard *shard = &pin->shard[s];
        uint64_t off = (uint64_t)((uintptr_t)start - (uintptr_t)shard->memory.start);
        if (!shard->memory.start || off >= shard->memory.bytes)
            continue;
        *out_shard = s;
        return spw_pin_pieces_find(&shard->pieces, off, bytes, out_piece);
    }
    return false;
}

static bool is_pinned(const struct shard *shard, uint32_t piece)
{
    /* [PN-1] acquire: the registration before its bit */
    return spw_load_acquire(&shard->is_pinned[piece / 64]) >> (piece % 64) & 1;
}

bool spw_pin_covers(const struct spw_pin *pin, const void *start, uint64_t bytes)
{
    uint32_t s, piece;
    return find(pin, start, bytes, &s, &piece) && is_pinned(&pin->shard[s], piece);
}

static void ring(struct spw_pin *pin)
{
    pthread_mutex_lock(&pin->lock);
    pthread_cond_signal(&pin->bell);
    pthread_mutex_unlock(&pin->lock);
}

/* The pin thread looks at it in a while, at the latest; rung for once a piece. */
static void want(struct spw_pin *pin, uint32_t s, uint32_t piece)
{
    if (s == pin->config.k || spw_bit_test(pin->shard[s].is_wanted, piece))
        return;
    spw_bit_set(pin->shard[s].is_wanted, piece);
    ring(pin);
}

bool spw_pin_use(struct spw_pin *pin, const void *start, uint64_t bytes)
{
    uint32_t s, piece;
    if (!find(pin, start, bytes, &s, &piece))
        return false;
    if (!is_pinned(&pin->shard[s], piece)) {
        want(pin, s, piece);
        return false;
    }
    spw_add_own(&pin->used, 1);
    spw_fence_full(); /* [PN-2] full: the use is counted before the bit is looked at again */
    if (is_pinned(&pin->shard[s], piece))
        return true;
    spw_pin_done(pin);
    return false;
}

void spw_pin_done(struct spw_pin *pin)
{
    /* [PN-3] release: the copy before its end */
    spw_store_release(&pin->ended, spw_load_relaxed(&pin->ended) + 1);
}

uint32_t spw_pin_usable_slots(void *of)
{
    const struct spw_pin *pin = of;
    /* relaxed: whether a slot's memory is pinned is asked for each copy */
    uint64_t bytes = spw_load_relaxed(&pin->usable_bytes);
    if (bytes == USABLE_ALL)
        return UINT32_MAX;
    return (uint32_t)(bytes / pin->config.slot_bytes) << pin->config.cell_shift;
}

int spw_pin_health(const struct spw_pin *pin)
{
    return spw_load_relaxed(&pin->lost) ? -ENODEV : 0;
}

/* ---- what the pin thread says ---------------------------------------------------------------- */

static void show_state(struct spw_pin *pin, enum spw_pin_state state)
{
    /* [PN-4] release: words and numbers before the state */
    spw_store_release(&pin->config.record->pin_state, state);
}

static void show_bytes(struct spw_pin *pin, uint64_t bytes)
{
    spw_store_relaxed(&pin->config.record->pinned_bytes, bytes); /* a number to look at */
}

static void show_touched(struct spw_pin *pin, uint64_t bytes)
{
    if (pin->config.touched)
        spw_store_relaxed(pin->config.touched, bytes);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool is_stopped(const struct spw_pin *pin)
{
    return spw_load_relaxed(&pin->stop) != 0; /* it only has to be seen some time */
}

static bool is_off(const struct spw_pin *pin)
{
    return spw_load_relaxed(pin->config.pinning) == SPW_PINNING_OFF; /* likewise */
}

/* 0, or why pinning should not go on. */
static int look(const struct spw_pin *pin, uint64_t until_ns)
{
    if (is_stopped(pin) || is_off(pin))
        return -ECANCELED;
    return spw_monotonic_ns() >= until_ns ? -ETIMEDOUT : 0;
}

/* Until somebody rings, or so long. */
static void rest(struct spw_pin *pin, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ns;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&pin->lock);
    if (!is_stopped(pin))
        pthread_cond_timedwait(&pin->bell, &pin->lock, &until);
    pthread_mutex_unlock(&pin->lock);
}

/* ---- one piece ------------------------------------------------------------------------------- */

/* What one piece came to, for words. */
struct attempt {
    struct spw_pin *pin;
    uint64_t until_ns;
    uint64_t touched; /* bytes of this piece */
    int status;
    const char *name; /* of the driver's error, or NULL */
    bool own;
};

static bool go_on(void *ctx, uint64_t touched_bytes)
{
    struct attempt *attempt = ctx;
    attempt->touched = touched_bytes;
    if (attempt->own)
        show_touched(attempt->pin, attempt->pin->touched_before + touched_bytes);
    if (attempt->status == 0)
        attempt->status = look(attempt->pin, attempt->until_ns);
    return attempt->status == 0;
}

static int touch_own_way(void *ctx, uint8_t *start, uint64_t bytes)
{
    struct spw_pin_config *config = &((struct attempt *)ctx)->pin->config;
    return config->touch(config->ctx, start, bytes);
}

static uint32_t touchers(const struct spw_pin *pin)
{
    uint32_t cpus = (uint32_t)CPU_COUNT(&pin->cpus);
    if (pin->config.threads)
        return pin->config.threads < SPW_TOUCH_THREADS_MAX ? pin->config.threads
                                                           : SPW_TOUCH_THREADS_MAX;
    return cpus == 0 ? 1 : cpus < TOUCHERS ? cpus : TOUCHERS;
}

static void touch_piece(struct attempt *attempt, uint8_t *start, uint64_t bytes)
{
    struct spw_pin *pin = attempt->pin;
    struct spw_touch_config touch = {.threads = touchers(pin),
                                     .cpus = CPU_COUNT(&pin->cpus) ? &pin->cpus : NULL,
                                     .writable = attempt->own,
                                     .go_on = go_on,
                                     .touch = pin->config.touch ? touch_own_way : NULL,
                                     .ctx = attempt};
    int status = spw_touch_pages(&touch, start, bytes);
    if (attempt->status == 0)
        attempt->status = status;
    if (status == 0)
        attempt->touched = bytes;
}

static void take_turn(struct attempt *attempt)
{
    struct spw_pin *pin = attempt->pin;
    while ((attempt->status = look(pin, attempt->until_ns)) == 0) {
        int status = spw_lock_take(pin->config.lock_fd, SPW_LOCK_PINNING);
        if (status != -EBUSY) {
            attempt->status = status;
            return;
        }
        rest(pin, TURN_NS);
    }
}

/* Touch, register, tell who copies. */
static void pin_piece(struct attempt *attempt, struct shard *shard, uint32_t piece)
{
    struct spw_pin *pin = attempt->pin;
    const struct spw_pin_backend *backend = &pin->config.backend;
    uint64_t from, to;
    spw_pin_piece_pages(&shard->pieces, piece, &from, &to);
    if (from == to) /* a slot or two that share their pages: never pinned */
        return;
    touch_piece(attempt, shard->memory.start + from, to - from);
    if (attempt->status == 0)
        take_turn(attempt);
    if (attempt->status != 0)
        return;
    attempt->status = backend->add(backend->ctx, shard->memory.start + from, to - from,
                                   attempt->own, &attempt->name);
    spw_lock_drop(pin->config.lock_fd, SPW_LOCK_PINNING);
    if (attempt->status != 0)
        return;
    shard->is_held[piece / 64] |= 1ull << (piece % 64);
    /* [PN-1] release: the registration before its bit */
    spw_store_release(&shard->is_pinned[piece / 64],
                      spw_load_relaxed(&shard->is_pinned[piece / 64]) | 1ull << (piece % 64));
}

/* ---- letting go ------------------------------------------------------------------------------ */

static void forget(struct spw_pin *pin)
{
    for (uint32_t s = 0; s < pin->config.shards; s++)
        for (uint32_t w = 0; pin->shard[s].is_pinned && w < BITS(pin->shard[s].pieces.count); w++)
            spw_store_relaxed(&pin->shard[s].is_pinned[w], 0);
    spw_fence_full(); /* [PN-2] full: bits cleared before uses are counted */
}

static bool in_use(const struct spw_pin *pin)
{
    /* [PN-3] acquire: ends first; a use that came after is in the other number then */
    uint64_t ended = spw_load_acquire(&pin->ended);
    return spw_load_relaxed(&pin->used) != ended;
}

static void remove_all(struct spw_pin *pin)
{
    const struct spw_pin_backend *backend = &pin->config.backend;
    for (uint32_t s = 0; s < pin->config.shards; s++) {
        struct shard *shard = &pin->shard[s];
        for (uint32_t i = 0; shard->memory.start && i < shard->pieces.count; i++) {
            uint64_t from, to;
            if (!has(shard->is_held, i))
                continue;
            spw_pin_piece_pages(&shard->pieces, i, &from, &to);
            backend->remove(backend->ctx, shard->memory.start + from);
            shard->is_held[i / 64] &= ~(1ull << (i % 64));
        }
    }
}

/* Nobody begins to use it any more; it goes once nobody does, or at the stop, when nobody can. */
static void drop(struct spw_pin *pin)
{
    pin->dropped = true;
    spw_store_relaxed(&pin->usable_bytes, USABLE_ALL);
    forget(pin);
    while (in_use(pin) && !is_stopped(pin))
        rest(pin, TURN_NS);
    remove_all(pin);
    show_bytes(pin, 0);
}

/* ---- the own shard --------------------------------------------------------------------------- */

static void say_refused(struct spw_pin *pin, const struct attempt *attempt, uint64_t pinned)
{
    uint64_t total = own_shard(pin)->memory.bytes;
    char words[WORDS_BYTES];
    if (attempt->status == -ETIMEDOUT)
        snprintf(words, sizeof words,
                 "memory wasn't pinned within %.1f s: %" PRIu64 " of %" PRIu64
                 " bytes touched, %" PRIu64 " pinned",
                 (double)pin->config.limit_ns / 1e9, pin->touched_before + attempt->touched, total,
                 pinned);
    else
        snprintf(words, sizeof words,
                 "memory can't be pinned at offset %" PRIu64 ": %s; %" PRIu64 " of %" PRIu64
                 " bytes were",
                 pinned, attempt->name ? attempt->name : strerrorname_np(-attempt->status), pinned,
                 total);
    if (pin->config.say)
        pin->config.say(pin->config.ctx, words);
}

static void refuse(struct spw_pin *pin, const struct attempt *attempt, uint64_t pinned)
{
    if (attempt->status == -ENODEV)
        spw_store_relaxed(&pin->lost, 1);
    drop(pin);
    if (attempt->status == -ECANCELED) {
        show_state(pin, SPW_PIN_NONE);
        return;
    }
    say_refused(pin, attempt, pinned);
    show_state(pin, SPW_PIN_REFUSED);
}

static void pin_own(struct spw_pin *pin)
{
    struct shard *own = own_shard(pin);
    uint64_t pinned = 0;
    for (uint32_t i = 0; i < own->pieces.count; i++) {
        struct attempt attempt = {.pin = pin, .until_ns = pin->until_ns, .own = true};
        attempt.status = look(pin, pin->until_ns);
        if (attempt.status == 0)
            pin_piece(&attempt, own, i);
        if (attempt.status != 0) {
            refuse(pin, &attempt, pinned);
            return;
        }
        pinned = spw_pin_piece_end(&own->pieces, i);
        pin->touched_before = pinned;
        show_touched(pin, pinned);
        show_bytes(pin, pinned);
        spw_store_relaxed(&pin->usable_bytes, pinned);
        if (i + 1 < own->pieces.count)
            rest(pin, PAUSE_NS);
    }
    spw_store_relaxed(&pin->usable_bytes, USABLE_ALL);
    if (pin->config.done)
        pin->config.done(pin->config.ctx);
    show_state(pin, SPW_PIN_DONE);
}

/* ---- others' shards -------------------------------------------------------------------------- */

/* A piece that somebody wants, is not pinned, and was never refused. */
static bool next_wanted(const struct spw_pin *pin, uint32_t *out_shard, uint32_t *out_piece)
{
    for (uint32_t s = 0; s < pin->config.shards; s++) {
        const struct shard *shard = &pin->shard[s];
        for (uint32_t w = 0; shard->memory.start && w < BITS(shard->pieces.count); w++) {
            uint64_t bits =
                spw_load_relaxed(&shard->is_wanted[w]) & ~shard->is_held[w] & ~shard->is_refused[w];
            if (bits == 0)
                continue;
            *out_shard = s;
            *out_piece = w * 64 + (uint32_t)__builtin_ctzll(bits);
            return true;
        }
    }
    return false;
}

static void pin_others(struct spw_pin *pin)
{
    uint32_t s, piece;
    while (!is_stopped(pin) && !is_off(pin) && next_wanted(pin, &s, &piece)) {
        struct attempt attempt = {.pin = pin, .until_ns = UINT64_MAX};
        pin_piece(&attempt, &pin->shard[s], piece);
        if (attempt.status == -ENODEV)
            spw_store_relaxed(&pin->lost, 1);
        if (attempt.status != -ECANCELED && !has(pin->shard[s].is_held, piece))
            pin->shard[s].is_refused[piece / 64] |= 1ull << (piece % 64);
        rest(pin, PAUSE_NS);
    }
}

static void *pin_main(void *arg)
{
    struct spw_pin *pin = arg;
    const struct spw_pin_backend *backend = &pin->config.backend;
    struct attempt entered = {.pin = pin,
                              .status = backend->enter ? backend->enter(backend->ctx) : 0};
    if (entered.status < 0)
        refuse(pin, &entered, 0);
    else
        pin_own(pin);
    while (!pin->dropped && !is_stopped(pin)) {
        pin_others(pin);
        if (is_off(pin)) {
            drop(pin);
            show_state(pin, SPW_PIN_NONE);
        } else {
            rest(pin, IDLE_NS);
        }
    }
    forget(pin);
    remove_all(pin);
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_shard(struct spw_pin *pin, uint32_t s)
{
    const struct spw_pin_config *config = &pin->config;
    struct shard *shard = &pin->shard[s];
    shard->memory = config->memory[s];
    if (!shard->memory.start)
        return 0;
    spw_pin_pieces_init(&shard->pieces, shard->memory.bytes, config->slot_bytes,
                        config->piece_bytes ? config->piece_bytes : SPW_PIN_PIECE_BYTES);
    size_t words = BITS(shard->pieces.count);
    shard->is_pinned = calloc(words, sizeof *shard->is_pinned);
    shard->is_wanted = calloc(words, sizeof *shard->is_wanted);
    shard->is_held = calloc(words, sizeof *shard->is_held);
    shard->is_refused = calloc(words, sizeof *shard->is_refused);
    return shard->is_pinned && shard->is_wanted && shard->is_held && shard->is_refused ? 0
                                                                                       : -ENOMEM;
}

static void init_bell(struct spw_pin *pin)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pin->bell, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&pin->lock, NULL);
}

int spw_pin_open(const struct spw_pin_config *config, struct spw_pin **out_pin,
                 struct spw_error *err)
{
    struct spw_pin *pin = calloc(1, sizeof *pin);
    int status = pin ? 0 : -ENOMEM;
    if (!pin)
        return spw_fail(err, status, "no memory to pin memory");
    pin->config = *config;
    init_bell(pin);
    for (uint32_t s = 0; s < config->shards && status == 0; s++)
        status = open_shard(pin, s);
    if (config->cpus)
        pin->cpus = *config->cpus;
    else if (sched_getaffinity(0, sizeof pin->cpus, &pin->cpus) < 0)
        CPU_ZERO(&pin->cpus); /* more CPUs than fit: any will do */
    bool wanted = status == 0 && !is_off(pin);
    show_touched(pin, 0);
    show_bytes(pin, 0);
    spw_store_relaxed(&config->record->pin_total_bytes, config->memory[config->k].bytes);
    pin->until_ns = LIMIT_OF(config->limit_ns);
    spw_store_relaxed(&pin->usable_bytes, wanted ? 0 : USABLE_ALL);
    show_state(pin, wanted ? SPW_PIN_RUNNING : SPW_PIN_NONE);
    if (wanted) {
        pin->runs = pthread_create(&pin->thread, NULL, pin_main, pin) == 0;
        status = pin->runs ? 0 : -ENOMEM;
    }
    if (status < 0) {
        show_state(pin, SPW_PIN_NONE);
        spw_pin_close(pin);
        return spw_fail(err, status, "no memory to pin memory, or no thread");
    }
    *out_pin = pin;
    return 0;
}

void spw_pin_close(struct spw_pin *pin)
{
    if (!pin)
        return;
    if (pin->runs) {
        spw_store_relaxed(&pin->stop, 1);
        ring(pin);
        pthread_join(pin->thread, NULL);
        show_bytes(pin, 0);
        if (spw_load_relaxed(&pin->config.record->pin_state) != SPW_PIN_REFUSED)
            show_state(pin, SPW_PIN_NONE);
    }
    for (uint32_t s = 0; s < pin->config.shards; s++) {
        free(pin->shard[s].is_pinned);
        free(pin->shard[s].is_wanted);
        free(pin->shard[s].is_held);
        free(pin->shard[s].is_refused);
    }
    pthread_cond_destroy(&pin->bell);
    pthread_mutex_destroy(&pin->lock);
    free(pin);
}
