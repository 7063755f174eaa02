/* spw-bench: see bench.h. */
#include "bench/bench.h"

#include "bench/keeper.h"
#include "bench/million.h"

#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

struct spw_bench_run {
    const char *filter;
    bool json;
    bool smoke;
    bool listed; /* the table's head is printed */
};

static const spw_bench_fn families[] = {
    spw_bench_ring,     spw_bench_lane,   spw_bench_lookup, spw_bench_decision,
    spw_bench_deferred, spw_bench_table,  spw_bench_order,  spw_bench_copy,
    spw_bench_path,     spw_bench_wakeup, spw_bench_nvme,
};

static bool asked; /* some case passed the filter */

bool spw_bench_wants(const struct spw_bench_run *run, const char *bench, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s/%s", bench, name);
    bool wanted = !run->filter || strstr(full, run->filter);
    asked |= wanted;
    return wanted;
}

bool spw_bench_smoke(const struct spw_bench_run *run)
{
    return run->smoke;
}

uint64_t spw_bench_size(const struct spw_bench_run *run, uint64_t full, uint64_t smoke)
{
    return run->smoke ? smoke : full;
}

uint64_t spw_bench_now_ns(void)
{
    struct timespec now;
#if defined(__x86_64__)
    __builtin_ia32_lfence(); /* the clock may be read ahead of time otherwise */
#endif
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static cpu_set_t all; /* what this process may use, read once at start */

bool spw_bench_pin(uint32_t i)
{
    cpu_set_t one;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || i--)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return sched_setaffinity(0, sizeof one, &one) == 0;
    }
    return false;
}

void spw_bench_use(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

static void print_json(const struct spw_bench_line *line, double p50, double p99, double max,
                       double against_p50)
{
    struct utsname machine;
    uname(&machine);
    json_t *object = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:s}", "bench", line->bench,
                               "case", line->name, "unit", line->unit, "n", (int)line->ours->count,
                               "p50", p50, "p99", p99, "max", max, "machine", machine.release);
    if (line->against) {
        json_object_set_new(object, "against", json_string(line->against));
        json_object_set_new(object, "against_p50", json_real(against_p50));
        json_object_set_new(object, "ratio", json_real(against_p50 != 0 ? p50 / against_p50 : 0));
    }
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
}

void spw_bench_report(struct spw_bench_run *run, const struct spw_bench_line *line)
{
    struct spw_bench_series *ours = malloc(sizeof *ours), *theirs = malloc(sizeof *theirs);
    if (!ours || !theirs)
        abort();
    *ours = *line->ours;
    if (line->against)
        *theirs = *line->theirs;
    double p50 = spw_bench_percentile(ours, 0.5), p99 = spw_bench_percentile(ours, 0.99);
    double max = spw_bench_percentile(ours, 1);
    double against = line->against ? spw_bench_percentile(theirs, 0.5) : 0;
    if (run->json) {
        print_json(line, p50, p99, max, against);
    } else {
        if (!run->listed)
            printf("%-34s %-10s %6s %12s %12s %12s  %s\n", "case", "unit", "n", "p50", "p99", "max",
                   "beside");
        run->listed = true;
        char name[80];
        snprintf(name, sizeof name, "%s/%s", line->bench, line->name);
        printf("%-34s %-10s %6u %12.4g %12.4g %12.4g", name, line->unit, line->ours->count, p50,
               p99, max);
        if (line->against)
            printf("  %.3f x %s (%.4g)", against != 0 ? p50 / against : 0, line->against, against);
        putchar('\n');
    }
    fflush(stdout);
    free(ours);
    free(theirs);
}

static void usage(FILE *out)
{
    fputs("usage: spw-bench [--filter SUBSTRING] [--json] [--smoke]\n"
          "Measures each case beside its floor or peer in the same run.\n"
          "  --filter S   only cases whose bench/case name has S\n"
          "  --json       one JSON object a line\n"
          "  --smoke      tiny sizes: checks that every case runs and its results are right\n",
          out);
}

static int run_families(void *ctx)
{
    int status = 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (families[i](ctx))
            status = 1;
    spw_million_close();
    if (!asked) {
        fprintf(stderr, "spw-bench: no case has that in its name\n");
        return 2;
    }
    return status;
}

int main(int argc, char **argv)
{
    struct spw_bench_run run = {0};
    if (sched_getaffinity(0, sizeof all, &all))
        return 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            run.json = true;
        } else if (strcmp(argv[i], "--smoke") == 0) {
            run.smoke = true;
        } else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
            run.filter = argv[++i];
        } else if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        } else {
            fprintf(stderr, "spw-bench: unknown option %s\n", argv[i]);
            usage(stderr);
            return 2;
        }
    }
    return spw_keeper_run(run_families, &run);
}
