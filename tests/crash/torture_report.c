/* What the torture program says; see torture.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/crash/torture.h"

#define SCHEMA 1

/* A worker that lived for five seconds is started 100 ms after its death, one that didn't later
 * and later: of one worker, deaths further apart than that are measured. */
#define APART_MS   5200u
#define RECOVER_MS 30000
#define BETWEEN_MS 60 /* of two deaths of clients, for some work */

static uint64_t sum(const struct torture *torture, const spw_atomic64 *first)
{
    const struct torture_line *line = torture->board->line;
    size_t field = (size_t)(first - (const spw_atomic64 *)(const void *)line);
    uint64_t total = 0;
    for (uint32_t i = 0; i <= TORTURE_CLIENTS_MAX; i++)
        total += spw_load_relaxed(&((const spw_atomic64 *)(const void *)&line[i])[field]);
    return total;
}

static bool is_well(const struct torture_findings *found)
{
    return !(found->wrong || found->lost || found->leaked_pins || found->stuck ||
             found->lost_answers || found->unexpected || found->uneven || found->slow);
}

static uint64_t worst(const struct torture_findings *found)
{
    uint64_t ms = 0;
    for (int role = 0; role < TORTURE_ROLES; role++)
        ms = found->worst_ms[role] > ms ? found->worst_ms[role] : ms;
    return ms;
}

static void print_json(const struct torture *torture, const uint64_t work[4])
{
    const struct torture_findings *found = &torture->found;
    printf("{\"schema\": %d, \"seed\": %" PRIu64 ", \"seconds\": %" PRIu64 ", \"kills\": %" PRIu64
           ", \"stops\": %" PRIu64 ", \"clean_restarts\": %" PRIu64 ", \"sweeps\": %" PRIu64
           ", \"chunks_stored\": %" PRIu64 ", \"chunks_checked\": %" PRIu64 ", \"wrong\": %" PRIu64
           ", \"lost\": %" PRIu64 ", \"leaked_pins\": %" PRIu64,
           SCHEMA, torture->options.seed, torture->options.seconds, found->kills, found->stops,
           found->restarts, found->sweeps, work[0], found->checked, found->wrong, found->lost,
           found->leaked_pins);
    printf(", \"stuck_pending\": %" PRIu64 ", \"lost_answers\": %" PRIu64
           ", \"unexpected_errors\": %" PRIu64 ", \"uneven_counters\": %" PRIu64
           ", \"slow_recoveries\": %" PRIu64 ", \"waits\": %" PRIu64 ", \"resets\": %" PRIu64
           ", \"explained_errors\": %" PRIu64 ", \"worst_recovery_ms\": %" PRIu64,
           found->stuck, found->lost_answers, found->unexpected, found->uneven, found->slow,
           work[1], work[2], work[3], worst(found));
    if (torture->options.below)
        printf(", \"promoted\": %" PRIu64, found->promoted);
    for (int role = 0; role < TORTURE_ROLES; role++)
        printf("%s\"%s\": {\"deaths\": %" PRIu64 ", \"worst_recovery_ms\": %" PRIu64 "}",
               role ? ", " : ", \"roles\": {", torture_role_name(role), found->deaths[role],
               found->worst_ms[role]);
    puts("}}");
}

static void print_text(const struct torture *torture, const uint64_t work[4])
{
    const struct torture_findings *found = &torture->found;
    printf("seed %" PRIu64 ": %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64
           " clean restarts, %" PRIu64 " sweeps\n",
           torture->options.seed, found->kills, found->stops, found->restarts, found->sweeps);
    for (int role = 0; role < TORTURE_ROLES; role++)
        printf("  %-11s %5" PRIu64 " deaths, worst recovery %5" PRIu64 " ms\n",
               torture_role_name(role), found->deaths[role], found->worst_ms[role]);
    printf("%" PRIu64 " chunks stored, %" PRIu64 " loaded and compared, %" PRIu64 " waits, %" PRIu64
           " resets, %" PRIu64 " errors that deaths explain\n",
           work[0], found->checked, work[1], work[2], work[3]);
    if (torture->options.below)
        printf("%" PRIu64 " chunks came up from below\n", found->promoted);
    printf("wrong %" PRIu64 ", lost %" PRIu64 ", leaked pins %" PRIu64 ", stuck %" PRIu64
           ", answers lost %" PRIu64 ", errors unexplained %" PRIu64 ", counters uneven %" PRIu64
           ", recoveries too slow %" PRIu64 "\n",
           found->wrong, found->lost, found->leaked_pins, found->stuck, found->lost_answers,
           found->unexpected, found->uneven, found->slow);
}

bool torture_sum_up(struct torture *torture)
{
    struct torture_findings *found = &torture->found;
    const struct torture_line *line = torture->board->line;
    found->checked += sum(torture, &line->checked);
    found->wrong += sum(torture, &line->wrong);
    found->lost_answers += sum(torture, &line->lost_answers);
    found->unexpected += sum(torture, &line->unexpected);
    return is_well(found);
}

bool torture_report(struct torture *torture)
{
    const struct torture_line *line = torture->board->line;
    const uint64_t work[4] = {sum(torture, &line->stored), sum(torture, &line->deferred),
                              sum(torture, &line->resets), sum(torture, &line->failed)};
    bool well = torture_sum_up(torture);
    if (torture->options.json)
        print_json(torture, work);
    else
        print_text(torture, work);
    return well;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

struct recovery {
    struct torture *torture;
    enum torture_role role;
    uint32_t samples;
};

static bool has_recovered(void *ctx)
{
    const struct recovery *recovery = ctx;
    torture_tick(recovery->torture);
    return recovery->torture->found.samples[recovery->role] > recovery->samples;
}

static void die(struct torture *torture, enum torture_role role, uint32_t n)
{
    const struct torture_options *options = &torture->options;
    struct recovery recovery = {torture, role, torture->found.samples[role]};
    uint64_t until =
        proc_now_ms() + (role == TORTURE_WORKER ? APART_MS / options->workers : BETWEEN_MS);
    if (role == TORTURE_WORKER)
        torture_kill_worker(torture, n % options->workers);
    else if (role == TORTURE_CLIENT)
        torture_kill_client(torture, n % options->clients, true);
    else if (role == TORTURE_DAEMON)
        torture_kill_daemon(torture);
    else
        torture_kill_everything(torture);
    if (!proc_eventually(has_recovered, &recovery, RECOVER_MS))
        torture->found.slow++;
    for (; proc_now_ms() < until; usleep(1000))
        torture_tick(torture);
}

static int by_size(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

static void print_bounds(struct torture *torture)
{
    static const char *const bound[TORTURE_ROLES] = {"1000", "1000", "5000", "1000"};
    struct torture_findings *found = &torture->found;
    puts("| who        | deaths | median ms | worst ms | bound ms |\n"
         "|------------|-------:|----------:|---------:|---------:|");
    for (int role = 0; role < TORTURE_ROLES; role++) {
        uint32_t n = found->samples[role];
        uint64_t *ms = found->sample_ms[role];
        qsort(ms, n, sizeof *ms, by_size);
        if (n)
            printf("| %-10s | %6u | %9" PRIu64 " | %8" PRIu64 " | %8s |\n", torture_role_name(role),
                   n, ms[n / 2], ms[n - 1], bound[role]);
    }
}

void torture_bounds(struct torture *torture)
{
    for (enum torture_role role = 0; role < TORTURE_ROLES; role++)
        for (uint32_t n = 0; n < torture->options.bounds; n++)
            if (torture->options.victims >> role & 1)
                die(torture, role, n);
    torture_quiet(torture);
    print_bounds(torture);
}
