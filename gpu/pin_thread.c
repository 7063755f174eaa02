/* See pin.h: what pins, and lets go. Written: bits of what is pinned, the frontier, the worker's record of
 * its GPU. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "gpu/pin_impl.h"
#include "gpu/touch.h"
#include "shm/alive.h"
#include "shm/crash_point.h"

#define TURN_NS      1000000ull     /* between two tries to get the turn  */
#define PAUSE_NS     3000000ull     /* after a registration, for others to get it */
#define IDLE_NS      100000000ull   /* between two looks at ctl.pinning   */
#define HOST_TURN_NS 10000000000ull /* for another pool's turn to end */
#define TOUCHERS     4u
#define WORDS_BYTES  200u

static struct spw_pin_shard *own_shard(struct spw_pin *pin)
{
    return &pin->shard[pin->config.k];
}

static bool has(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* 0, or why pinning should not go on. */
static int look(const struct spw_pin *pin, uint64_t until_ns)
{
    if (spw_pin_is_stopped(pin) || spw_pin_is_off(pin))
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
    if (!spw_pin_is_stopped(pin))
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
        spw_pin_show_touched(attempt->pin, attempt->pin->touched_before + touched_bytes);
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
    cpu_set_t own; /* as whoever opened it */
    if (pin->config.threads)
        return pin->config.threads < SPW_TOUCH_THREADS_MAX ? pin->config.threads
                                                           : SPW_TOUCH_THREADS_MAX;
    uint32_t cpus = sched_getaffinity(0, sizeof own, &own) < 0
                        ? TOUCHERS /* more of them than fit */
                        : (uint32_t)CPU_COUNT(&own);
    return cpus < TOUCHERS ? cpus : TOUCHERS;
}

static void touch_piece(struct attempt *attempt, uint8_t *start, uint64_t bytes)
{
    struct spw_pin *pin = attempt->pin;
    struct spw_touch_config touch = {.threads = touchers(pin),
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

static void drop_turn(struct spw_pin *pin)
{
    if (pin->host_fd >= 0)
        flock(pin->host_fd, LOCK_UN);
    spw_lock_drop(pin->config.lock_fd, SPW_LOCK_PINNING);
}

/* Among the pools of the host, with the turn among this one's workers. */
static void take_host(struct attempt *attempt)
{
    struct spw_pin *pin = attempt->pin;
    uint64_t until_ns = spw_monotonic_ns() + HOST_TURN_NS;
    while (flock(pin->host_fd, LOCK_EX | LOCK_NB) && spw_monotonic_ns() < until_ns) {
        attempt->status = look(pin, attempt->until_ns);
        if (attempt->status != 0) {
            drop_turn(pin);
            return;
        }
        rest(pin, TURN_NS);
    }
}

/* Touch, register, tell who copies. */
static void pin_piece(struct attempt *attempt, struct spw_pin_shard *shard, uint32_t piece)
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
    if (attempt->status == 0 && pin->host_fd >= 0)
        take_host(attempt);
    if (attempt->status != 0)
        return;
    SPW_CRASH_POINT("pin.turn_taken");
    attempt->status = backend->add(backend->ctx, shard->memory.start + from, to - from,
                                   attempt->own, &attempt->name);
    drop_turn(pin);
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
        for (uint32_t w = 0;
             pin->shard[s].is_pinned && w < SPW_PIN_BITS(pin->shard[s].pieces.count); w++)
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
        struct spw_pin_shard *shard = &pin->shard[s];
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
    spw_store_relaxed(&pin->usable_bytes, SPW_PIN_USABLE_ALL);
    forget(pin);
    while (in_use(pin) && !spw_pin_is_stopped(pin))
        rest(pin, TURN_NS);
    remove_all(pin);
    spw_pin_show_bytes(pin, 0);
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
    bool lost = attempt->status == -ENODEV, canceled = attempt->status == -ECANCELED;
    if (lost)
        spw_store_relaxed(&pin->lost, 1); /* first: copies on their way end by it */
    drop(pin);
    if (!canceled)
        say_refused(pin, attempt, pinned);
    /* a lost GPU says nothing of memory: the next process, which has it anew, pins anew */
    spw_pin_show_state(pin, lost || canceled ? SPW_PIN_NONE : SPW_PIN_REFUSED);
}

static void pin_own(struct spw_pin *pin)
{
    struct spw_pin_shard *own = own_shard(pin);
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
        spw_pin_show_touched(pin, pinned);
        spw_pin_show_bytes(pin, pinned);
        spw_store_relaxed(&pin->usable_bytes, pinned);
        if (i + 1 < own->pieces.count)
            rest(pin, PAUSE_NS);
    }
    spw_store_relaxed(&pin->usable_bytes, SPW_PIN_USABLE_ALL);
    if (pin->config.done)
        pin->config.done(pin->config.ctx);
    spw_pin_show_state(pin, SPW_PIN_DONE);
}

/* ---- others' shards -------------------------------------------------------------------------- */

/* A piece that somebody wants, is not pinned, and was never refused. */
static bool next_wanted(const struct spw_pin *pin, uint32_t *out_shard, uint32_t *out_piece)
{
    for (uint32_t s = 0; s < pin->config.shards; s++) {
        const struct spw_pin_shard *shard = &pin->shard[s];
        for (uint32_t w = 0; shard->memory.start && w < SPW_PIN_BITS(shard->pieces.count); w++) {
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
    while (!spw_pin_is_stopped(pin) && !spw_pin_is_off(pin) && next_wanted(pin, &s, &piece)) {
        struct attempt attempt = {.pin = pin, .until_ns = UINT64_MAX};
        pin_piece(&attempt, &pin->shard[s], piece);
        if (attempt.status == -ENODEV)
            spw_store_relaxed(&pin->lost, 1);
        if (attempt.status != -ECANCELED && !has(pin->shard[s].is_held, piece))
            pin->shard[s].is_refused[piece / 64] |= 1ull << (piece % 64);
        rest(pin, PAUSE_NS);
    }
}

void *spw_pin_main(void *arg)
{
    struct spw_pin *pin = arg;
    const struct spw_pin_backend *backend = &pin->config.backend;
    struct attempt entered = {.pin = pin,
                              .status = backend->enter ? backend->enter(backend->ctx) : 0};
    if (entered.status < 0)
        refuse(pin, &entered, 0);
    else
        pin_own(pin);
    while (!pin->dropped && !spw_pin_is_stopped(pin)) {
        pin_others(pin);
        if (spw_pin_is_off(pin)) {
            drop(pin);
            spw_pin_show_state(pin, SPW_PIN_NONE);
        } else {
            rest(pin, IDLE_NS);
        }
    }
    forget(pin);
    remove_all(pin);
    return NULL;
}
