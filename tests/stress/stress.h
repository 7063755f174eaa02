#ifndef SPW_TESTS_STRESS_STRESS_H
#define SPW_TESTS_STRESS_STRESS_H
/*
 * What the stress programs share: arguments, random numbers, the clock, and how a run ends.
 *
 *   PROGRAM [--seconds S] [--seed N] [--cpus N]       0: nothing wrong was seen, 1: something was
 *   PROGRAM_mutants --mutate NAME [...]               0: the seeded mistake was found, 1: it wasn't
 *
 * A mutant is the product's own source with operations of shm/atomic.h replaced, or its user with
 * a rule broken; the plain program links the product. Threads share one mapping: ThreadSanitizer
 * takes two mappings of a page for unrelated memory.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct stress {
    double seconds;
    uint64_t seed;
    uint32_t cpus;      /* threads are spread over as many, if there are */
    const char *mutate; /* NULL in a plain run */
};

/** Read the arguments; @mutants is a list of names that ends with NULL, empty in a plain program.
 * Ends the program with 2 when they make no sense. */
static inline struct stress stress_arguments(int argc, char **argv, const char *const *mutants)
{
    struct stress run = {.seconds = 2, .seed = 1, .cpus = 64};
    bool known = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            run.seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            run.seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--cpus") == 0)
            run.cpus = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--mutate") == 0)
            run.mutate = argv[i + 1];
        else
            argc = 0;
    }
    for (size_t i = 0; run.mutate && mutants[i]; i++)
        known = known || strcmp(run.mutate, mutants[i]) == 0;
    if (argc % 2 == 0 || run.cpus == 0 || known == !mutants[0]) {
        fprintf(stderr, "usage: %s [--seconds S] [--seed N] [--cpus N]%s\n", argv[0],
                mutants[0] ? " --mutate NAME" : "");
        for (size_t i = 0; mutants[i]; i++)
            fprintf(stderr, "  %s\n", mutants[i]);
        exit(2);
    }
    return run;
}

static inline uint64_t stress_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/** Keep the calling thread on one CPU: the @i-th of those allowed, counted around. Left to itself the
 * scheduler likes to put a sleeper beside who wakes it, where the two never meet. */
static inline void stress_pin(const struct stress *run, uint32_t i)
{
    static cpu_set_t allowed; /* as the program found it */
    static bool is_known;
    cpu_set_t one;
    if (!is_known)
        is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    uint32_t count = (uint32_t)CPU_COUNT(&allowed);
    uint32_t left = i % (count < run->cpus ? count : run->cpus);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && left-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

/** xorshift; @state is not 0. */
static inline uint64_t stress_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/** The exit code, and a line about it. @wrong: what was seen that must not be. */
static inline int stress_end(const struct stress *run, uint64_t wrong, const char *counts)
{
    printf("%s; %" PRIu64 " wrong (seed %" PRIu64 "%s%s)\n", counts, wrong, run->seed,
           run->mutate ? ", mutant " : "", run->mutate ? run->mutate : "");
    return run->mutate ? wrong == 0 : wrong != 0;
}

#endif
