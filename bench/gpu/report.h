#ifndef SPW_BENCH_GPU_REPORT_H
#define SPW_BENCH_GPU_REPORT_H
/*
 * What spw-gpu-check has found so far: sections, and lines in them. A section's verdict is the worst of
 * its lines; one without lines has not run.
 *
 *   roles     the main thread adds; the watchdog, who ends a run that hangs, prints what is there
 *   crash     nothing is written before the end
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* From what says nothing to what is worst. */
enum check_verdict {
    CHECK_FIGURE,  /* measured, not judged                                   */
    CHECK_SKIPPED, /* what this host doesn't have and nothing needs          */
    CHECK_HELD,    /* right, or the target was reached                       */
    CHECK_MISSED,  /* right, but below its target                            */
    CHECK_NOT_RUN, /* nothing is known: no time left, or it can't be done    */
    CHECK_WRONG,   /* wrong bytes, a wrong order, or a call that was refused */
};

#define CHECK_LINES_MAX    48u
#define CHECK_SECTIONS_MAX 8u

struct check_line {
    char name[56];
    enum check_verdict verdict;
    const char *unit; /* "bytes/s", "ns" or "rounds"; NULL: there is no figure */
    double value;
    const char *beside; /* what it is held against, NULL = nothing */
    double beside_value;
    double target; /* for value / beside_value; 0 = none */
    char words[200];
};

struct check_section {
    const char *name;
    const char *about;
    bool is_asked;
    uint64_t ns;
    uint32_t lines;
    struct check_line line[CHECK_LINES_MAX];
};

struct check_report {
    pthread_mutex_t lock; /* of all below */
    char gpu[160];
    int driver_version;
    bool is_short;
    int64_t kernel_below_bytes; /* -1: not known */
    uint32_t sections;
    uint32_t current;
    struct check_section section[CHECK_SECTIONS_MAX];
};

/** Add a line to the current section; what is judged against a target gets its verdict here. */
void check_report_add(struct check_report *report, const struct check_line *line);
/** The same for a line that is words alone. */
void check_report_say(struct check_report *report, const char *name, enum check_verdict verdict,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

const char *check_verdict_word(enum check_verdict verdict);
enum check_verdict check_section_verdict(const struct check_section *section);
/** The worst of the sections that were asked for. */
enum check_verdict check_report_verdict(const struct check_report *report);

/* The caller holds the lock, or is alone. */
void check_report_print(const struct check_report *report, FILE *out);
void check_report_print_json(const struct check_report *report, FILE *out);

#endif
