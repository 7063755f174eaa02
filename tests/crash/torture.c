/*
 * torture --seconds S --seed N [--json]: kills and stops random processes of a busy pool for that
 * long, and says what came of it; torture.h says what is looked at.
 *
 * Exit status: 0 nothing was wrong, lost or leaked and every limit was kept; 1; 2 usage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/crash/torture.h"

#define STRIKE_MS   25   /* mean time between two strikes is a few times this */
#define QUIET_MS    2500 /* between two sweeps */
#define WIDE_KEYS   400u /* many evictions, laps and wraps ... */
#define NARROW_KEYS 24u  /* ... and none, so that all that is gone was lost */

static uint64_t next_strike(struct torture *torture)
{
    uint64_t gap = torture_draw(&torture->seed) % 8;
    return proc_now_ms() + STRIKE_MS * (1 + gap);
}

static void change_keys(struct torture *torture)
{
    bool wide = spw_load_relaxed(&torture->board->keys) == NARROW_KEYS;
    spw_store_relaxed(&torture->board->keys, wide ? WIDE_KEYS : NARROW_KEYS);
}

static void go_on(struct torture *torture)
{
    uint64_t end = proc_now_ms() + torture->options.seconds * 1000;
    uint64_t strike = next_strike(torture), quiet = proc_now_ms() + QUIET_MS / 2;
    while (proc_now_ms() < end) {
        torture_tick(torture);
        if (proc_now_ms() >= strike) {
            torture_strike(torture);
            strike = next_strike(torture);
        }
        if (proc_now_ms() >= quiet) {
            torture_quiet(torture);
            change_keys(torture);
            quiet = proc_now_ms() + QUIET_MS;
        }
        usleep(1000);
    }
    torture_quiet(torture);
}

int main(int argc, char **argv)
{
    static struct torture torture;
    struct torture_options options;
    int rc = torture_options_parse(argc, argv, &options);
    if (rc)
        return rc == 1 ? 0 : 2;
    if (!torture_open(&torture, &options))
        return 1;
    if (options.bounds)
        torture_bounds(&torture);
    else
        go_on(&torture);
    torture_close(&torture);
    return torture_report(&torture) ? 0 : 1;
}
