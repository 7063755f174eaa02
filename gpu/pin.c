/* See pin.h: what the worker calls. Written: what is wanted, copies begun and ended; the worker's record of
 * its GPU while there is no thread. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/pin_impl.h"
#include "shm/alive.h"

/* ---- which memory ---------------------------------------------------------------------------- */

/* The shard and the piece that holds all of it. */
static bool find(const struct spw_pin *pin, const void *start, uint64_t bytes, uint32_t *out_shard,
                 uint32_t *out_piece)
{
    for (uint32_t s = 0; s < pin->config.shards; s++) {
        const struct spw_pin_shard *shard = &pin->shard[s];
        uint64_t off = (uint64_t)((uintptr_t)start - (uintptr_t)shard->memory.start);
        if (!shard->memory.start || off >= shard->memory.bytes)
            continue;
        *out_shard = s;
        return spw_pin_pieces_find(&shard->pieces, off, bytes, out_piece);
    }
    return false;
}

static bool is_pinned(const struct spw_pin_shard *shard, uint32_t piece)
{
    /* [PN-1] acquire: the registration before its bit */
    return spw_load_acquire(&shard->is_pinned[piece / 64]) >> (piece % 64) & 1;
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
    if (bytes == SPW_PIN_USABLE_ALL)
        return UINT32_MAX;
    return (uint32_t)(bytes / pin->config.slot_bytes) << pin->config.cell_shift;
}

int spw_pin_health(const struct spw_pin *pin)
{
    return spw_load_relaxed(&pin->lost) ? -ENODEV : 0;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_shard(struct spw_pin *pin, uint32_t s)
{
    const struct spw_pin_config *config = &pin->config;
    struct spw_pin_shard *shard = &pin->shard[s];
    shard->memory = config->memory[s];
    if (!shard->memory.start)
        return 0;
    spw_pin_pieces_init(&shard->pieces, shard->memory.bytes, config->slot_bytes,
                        config->piece_bytes ? config->piece_bytes : SPW_PIN_PIECE_BYTES);
    size_t words = SPW_PIN_BITS(shard->pieces.count);
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

/* Without it, or what a forked child would keep: none. */
static int open_host(const char *dir)
{
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0 && spw_lock_adopt(fd)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int spw_pin_open(const struct spw_pin_config *config, struct spw_pin **out_pin,
                 struct spw_error *err)
{
    struct spw_pin *pin = calloc(1, sizeof *pin);
    int status = pin ? 0 : -ENOMEM;
    if (!pin)
        return spw_fail(err, status, "no memory to pin memory");
    pin->config = *config;
    pin->host_fd = open_host(config->host_dir);
    init_bell(pin);
    for (uint32_t s = 0; s < config->shards && status == 0; s++)
        status = open_shard(pin, s);
    bool wanted = status == 0 && !spw_pin_is_off(pin);
    spw_pin_show_touched(pin, 0);
    spw_pin_show_bytes(pin, 0);
    spw_store_relaxed(&config->record->pin_total_bytes, config->memory[config->k].bytes);
    pin->until_ns = config->limit_ns ? spw_monotonic_ns() + config->limit_ns : UINT64_MAX;
    spw_store_relaxed(&pin->usable_bytes, wanted ? 0 : SPW_PIN_USABLE_ALL);
    spw_pin_show_state(pin, wanted ? SPW_PIN_RUNNING : SPW_PIN_NONE);
    if (wanted) {
        pin->runs = pthread_create(&pin->thread, NULL, spw_pin_main, pin) == 0;
        status = pin->runs ? 0 : -ENOMEM;
    }
    if (status < 0) {
        spw_pin_show_state(pin, SPW_PIN_NONE);
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
        spw_pin_show_bytes(pin, 0);
        if (spw_load_relaxed(&pin->config.record->pin_state) != SPW_PIN_REFUSED)
            spw_pin_show_state(pin, SPW_PIN_NONE);
    }
    spw_lock_close(pin->host_fd);
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
