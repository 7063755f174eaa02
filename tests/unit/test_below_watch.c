/* tools/below_watch: what the daemon says of a tier below, by a clock of the test's own. */
#include "tools/below_watch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tier/counters.h"
#include "tools/log.h"

TestSuite(below_watch, .timeout = 20);

#define MS 1000000ull
#define S  1000000000ull

static struct spw_feed_head feed;
static struct spw_below_watch watch;
static uint64_t now = 100 * S;
static char *text;
static size_t text_bytes;
static FILE *out;

static uint64_t fake_now(void)
{
    return now;
}

static void begin(void)
{
    out = open_memstream(&text, &text_bytes);
    spw_log_open(&(struct spw_log_config){.program = "prog", .out = out, .now_ns = fake_now});
    spw_store_relaxed(&feed.counter[SPW_WORKER_cold_found], 7); /* of the pool before */
    spw_store_relaxed(&feed.counter[SPW_WORKER_cold_corrupt], 3);
    spw_below_watch_start(&watch, &feed, now);
}

static void end(void)
{
    fclose(out);
}

static bool look(uint64_t later_ns, uint32_t state, const char *why)
{
    char words[sizeof feed.tier_text] = "";
    now += later_ns;
    snprintf(words, sizeof words, "%s", why);
    memcpy(feed.tier_text, words, sizeof words);
    spw_store_relaxed(&feed.tier[SPW_TIER_NVME].state, state);
    return spw_below_watch_look(&watch, 4, &feed, now);
}

/* What was said since the last look, good until the next one. */
static const char *said(void)
{
    static char copy[8192];
    fflush(out);
    snprintf(copy, sizeof copy, "%s", text);
    rewind(out);
    memset(text, 0, text_bytes);
    return copy;
}

static void expect(const char *words)
{
    const char *is = said();
    cr_expect(strcmp(is, words) == 0, "\"%s\"\nwanted \"%s\"", is, words);
}

static void found(uint64_t more)
{
    spw_add_own(&feed.counter[SPW_WORKER_cold_found], more);
}

static void become_up(void)
{
    look(10 * MS, SPW_TIER_UP, "");
    said();
}

Test(below_watch, what_a_start_found_is_told_once_it_is_read, .init = begin, .fini = end)
{
    cr_expect(look(10 * MS, SPW_TIER_SCANNING, ""));
    expect("");
    found(2000);
    cr_expect(!look(20 * MS, SPW_TIER_UP, ""));
    expect("prog: notice: worker 4: 2000 chunks found below, 0.03 s after its start\n");
    look(20 * MS, SPW_TIER_UP, "");
    expect("");
}

Test(below_watch, trouble_right_after_a_start_is_told_at_once, .init = begin, .fini = end)
{
    become_up();
    look(100 * MS, SPW_TIER_DOWN, "why");
    expect("prog: warning: worker 4: the tier below is down, all there is a miss: why\n");
}

Test(below_watch, a_reading_that_takes_long_is_told_with_its_reason, .init = begin, .fini = end)
{
    found(1);
    look(10 * MS, SPW_TIER_SCANNING, "");
    look(SPW_BELOW_SAY_NS, SPW_TIER_SCANNING, "a dead process's writes may still come");
    expect("prog: notice: worker 4: the tier below takes no chunks yet, 1 found so far: a dead "
           "process's writes may still come\n");
    look(60 * S, SPW_TIER_UP, "");
    expect("prog: notice: worker 4: 1 chunk found below, 65.01 s after its start\n");
}

Test(below_watch, full_and_down_are_told_with_the_reason_and_so_is_the_way_back, .init = begin,
     .fini = end)
{
    become_up();
    look(10 * S, SPW_TIER_FULL, "the disk of /x has no room left");
    expect("prog: warning: worker 4: the tier below takes no more chunks: the disk of /x has no "
           "room left\n");
    look(10 * S, SPW_TIER_UP, "");
    expect("prog: notice: worker 4: the tier below has room again\n");
    look(10 * S, SPW_TIER_DOWN, "open /x/: No such file or directory");
    expect("prog: warning: worker 4: the tier below is down, all there is a miss: open /x/: No "
           "such file or directory\n");
    look(10 * S, SPW_TIER_SCANNING, "");
    found(40);
    look(10 * MS, SPW_TIER_UP, "");
    expect("prog: notice: worker 4: the tier below is up again, 40 chunks found\n");
}

Test(below_watch, a_tier_that_comes_and_goes_is_a_line_in_five_seconds, .init = begin, .fini = end)
{
    uint32_t lines = 0;
    become_up();
    for (uint32_t i = 0; i < 200; i++)
        look(100 * MS, i % 2 ? SPW_TIER_UP : SPW_TIER_DOWN, "flaps");
    for (const char *c = said(); *c; c++)
        lines += *c == '\n';
    cr_expect(lines >= 2 && lines <= 4, "%u lines in 20 s", lines);
    look(SPW_BELOW_SAY_NS, SPW_TIER_DOWN, "stays");
    look(SPW_BELOW_SAY_NS, SPW_TIER_DOWN, "stays");
    cr_expect_eq(watch.said, SPW_TIER_DOWN, "the last state is told");
}

Test(below_watch, wrong_bytes_are_told_at_once_then_once_a_minute, .init = begin, .fini = end)
{
    become_up();
    spw_add_own(&feed.counter[SPW_WORKER_cold_corrupt], 1);
    look(S, SPW_TIER_UP, "");
    expect("prog: warning: worker 4: 1 chunk below had other bytes than were written, and was "
           "dropped (4 in all)\n");
    for (uint32_t i = 0; i < 50; i++) {
        spw_add_own(&feed.counter[SPW_WORKER_cold_corrupt], 1);
        look(S, SPW_TIER_UP, "");
    }
    expect("");
    look(10 * S, SPW_TIER_UP, "");
    expect("prog: warning: worker 4: 50 chunks below had other bytes than were written, and were "
           "dropped (54 in all)\n");
    look(300 * S, SPW_TIER_UP, "");
    expect("");
}

Test(below_watch, a_successor_tells_what_it_found_and_no_old_wrong_bytes, .init = begin,
     .fini = end)
{
    spw_add_own(&feed.counter[SPW_WORKER_cold_corrupt], 1);
    become_up();
    spw_below_watch_start(&watch, &feed, now);
    found(5);
    look(100 * MS, SPW_TIER_UP, "");
    expect("prog: notice: worker 4: 5 chunks found below, 0.10 s after its start\n");
}

Test(below_watch, a_pool_without_such_a_tier_and_noise_say_nothing, .init = begin, .fini = end)
{
    cr_expect(!look(S, SPW_TIER_NONE, ""));
    look(10 * S, 77, "noise");
    expect("");
}
