/* See pin_watch.h. Written: the log. */
#include "tools/pin_watch.h"

#include <string.h>

#include "tier/counters.h"
#include "tools/gpu_words.h"
#include "tools/log.h"

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Relaxed, here and below: numbers to look at. */
static uint64_t touched(const struct spw_feed_head *feed)
{
    return spw_load_relaxed(&feed->counter[SPW_WORKER_touched_bytes]);
}

static double rate(uint64_t bytes, uint64_t ns)
{
    return ns ? mib(bytes) * 1e9 / (double)ns : 0;
}

void spw_pin_watch_start(struct spw_pin_watch *watch)
{
    *watch = (struct spw_pin_watch){0};
}

static void say_progress(struct spw_pin_watch *watch, uint32_t k, const struct spw_feed_head *feed,
                         uint64_t now_ns)
{
    char name[SPW_GPU_NAME_BYTES];
    uint64_t bytes = touched(feed), before = watch->said_bytes < bytes ? watch->said_bytes : bytes;
    if (now_ns - watch->said_ns < SPW_PIN_SAY_NS)
        return;
    spw_log(SPW_LOG_NOTICE, "%s: %.1f of %.1f MiB touched, %.1f pinned, %.1f MiB/s",
            spw_gpu_words_name(feed, k, name), mib(bytes),
            mib(spw_load_relaxed(&feed->gpu.pin_total_bytes)),
            mib(spw_load_relaxed(&feed->gpu.pinned_bytes)),
            rate(bytes - before, now_ns - watch->said_ns));
    watch->said_ns = now_ns;
    watch->said_bytes = bytes;
}

static void say_done(const struct spw_pin_watch *watch, uint32_t k,
                     const struct spw_feed_head *feed, uint64_t now_ns)
{
    char name[SPW_GPU_NAME_BYTES];
    uint64_t total = spw_load_relaxed(&feed->gpu.pin_total_bytes), ns = now_ns - watch->start_ns;
    spw_log(SPW_LOG_NOTICE, "%s: %.1f MiB pinned in %.2f s, %.1f MiB/s",
            spw_gpu_words_name(feed, k, name), mib(total), (double)ns / 1e9, rate(total, ns));
}

/* One that could not decides for all. */
static int refused(uint32_t k, struct spw_pool *pool, uint64_t mode)
{
    const struct spw_feed_head *feed = pool->feed[k];
    char name[SPW_GPU_NAME_BYTES], text[SPW_GPU_WORDS_BYTES];
    spw_gpu_words_name(feed, k, name);
    spw_gpu_words_text(feed, text);
    const char *remedy = strstr(text, "wasn't pinned within")
                             ? "a longer --pin-limit"
                             : "see ulimit -l and the container's limits, or try a smaller "
                               "--pin-piece";
    if (mode == SPW_CONFIG_PIN_STRICT) {
        spw_log(SPW_LOG_ERROR, "%s: %s; %s, or --pin relaxed to go on without", name, text, remedy);
        return -ENOMEM;
    }
    if (spw_load_relaxed(&pool->ctl->pinning) != SPW_PINNING_OFF) {
        spw_log(SPW_LOG_WARNING, "%s: %s; all workers go on with memory that isn't pinned; %s",
                name, text, remedy);
        spw_store_relaxed(&pool->ctl->pinning, SPW_PINNING_OFF); /* workers look now and then */
    }
    return 0;
}

int spw_pin_watch_look(struct spw_pin_watch *watch, uint32_t k, struct spw_pool *pool,
                       uint64_t mode)
{
    const struct spw_feed_head *feed = pool->feed[k];
    uint64_t now_ns = spw_monotonic_ns();
    /* [PN-4] acquire: words and numbers before the state */
    uint64_t state = spw_load_acquire(&feed->gpu.pin_state);
    if (watch->start_ns == 0)
        watch->start_ns = watch->said_ns = now_ns;
    if (state == SPW_PIN_RUNNING)
        say_progress(watch, k, feed, now_ns);
    bool is_new = state != watch->seen;
    watch->seen = state;
    if (is_new && state == SPW_PIN_DONE)
        say_done(watch, k, feed, now_ns);
    return is_new && state == SPW_PIN_REFUSED ? refused(k, pool, mode) : 0;
}
