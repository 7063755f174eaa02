#ifndef SPW_SCHED_WAITS_H
#define SPW_SCHED_WAITS_H
/*
 * Waits: how long a request may wait for chunks, and how long it did. Time is passed in, of any
 * clock that doesn't go back. The histograms lie in client.c: written by its client alone, read by
 * anyone; a client that dies in an add leaves a sum without its bucket, or nothing.
 *
 *   clock    limits. Runs from an evaluation that defers for chunks to the next evaluation, for
 *            PENDING and RETRY apart, and is charged to the prefix waited for. It is never put back
 *            while that prefix is waited for: not by progress within it, not by a write that fails
 *            and is tried again. A wait for chunks behind all those charged is another prefix, and
 *            begins at 0. Past the limit what is charged reads MISS, for this request alone
 *   sample   what is shown: from the first evaluation that defers, for chunks or for another
 *            request's load, to the first one that doesn't, or the request's end. Evaluations
 *            that defer for a transfer of the request itself count as none. A request can wait
 *            several times: several samples
 */
#include "sched/spillway.h"
#include "shm/layout.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- limits ---------------------------------------------------------------------------------- */

enum spw_wait_kind { SPW_WAIT_FOR_PENDING, SPW_WAIT_FOR_RETRY, SPW_WAIT_KINDS };

struct spw_wait_limits {
    uint64_t ns[SPW_WAIT_KINDS]; /* 0: never wait; UINT64_MAX: for ever */
};

/** A request's; all zeros at first. */
struct spw_wait_clock {
    uint64_t upto_tokens[SPW_WAIT_KINDS]; /* end of the furthest chunk charged */
    uint64_t waited_ns[SPW_WAIT_KINDS];   /* for the prefix that ends there    */
    uint64_t since_ns;
    bool runs;
    uint8_t kind; /* which one runs */
};

/**
 * An evaluation at @now_ns deferred: run the clock of @kind (and no other).
 *
 * @first_tokens  where the first chunk waited for begins, from the request's start
 * @end_tokens    where the furthest of them ends
 */
void spw_wait_begin(struct spw_wait_clock *clock, enum spw_wait_kind kind, uint64_t first_tokens,
                    uint64_t end_tokens, uint64_t now_ns);

/** An evaluation comes, at @now_ns: stop, and charge. Fine for one that doesn't run. */
void spw_wait_pause(struct spw_wait_clock *clock, uint64_t now_ns);

/** When the wait that runs reaches its limit; UINT64_MAX: never, or none runs. */
uint64_t spw_wait_deadline(const struct spw_wait_clock *clock,
                           const struct spw_wait_limits *limits);

/** Chunks that end at or before this token have no wait of @kind left, and read MISS instead;
 * 0: none. Of a clock that is paused. */
uint64_t spw_wait_expired_tokens(const struct spw_wait_clock *clock, enum spw_wait_kind kind,
                                 const struct spw_wait_limits *limits);

/* ---- samples --------------------------------------------------------------------------------- */

/** A request's; all zeros at first. */
struct spw_wait_sample {
    uint64_t since_ns;
    bool runs;
    uint8_t reason; /* of the last evaluation that deferred */
};

/** How a wait ended: its last evaluation deferred for @deferred, the next one says this. */
enum spw_wait_outcome spw_wait_outcome_of(enum spw_action action, enum spw_reason reason,
                                          enum spw_reason deferred);

/** "hit", "cut", ...; NULL for what is none. */
const char *spw_wait_outcome_name(uint32_t outcome);

/**
 * An evaluation at @now_ns said this. True: it ended a wait, which is in the out-parameters; they
 * are left alone otherwise.
 */
bool spw_wait_evaluated(struct spw_wait_sample *sample, enum spw_action action,
                        enum spw_reason reason, uint64_t now_ns, uint64_t *out_waited_ns,
                        enum spw_wait_outcome *out_outcome);

/** How long the wait took up to @now_ns; 0 if there is none. */
uint64_t spw_wait_sample_ns(const struct spw_wait_sample *sample, uint64_t now_ns);

/** The request ends. True: it was waiting, for so long; the outcome is SPW_WAIT_CANCELLED. */
bool spw_wait_cancelled(struct spw_wait_sample *sample, uint64_t now_ns, uint64_t *out_waited_ns);

/* ---- histograms ------------------------------------------------------------------------------ */

/** Add a wait of @ns. The record's one writer only. */
void spw_wait_record_add(struct spw_wait_record *record, uint64_t ns);

/** Any process. Waits added meanwhile may be in some of the numbers and not in others. */
void spw_wait_record_read(const struct spw_wait_record *record, struct spw_wait_histogram *out);

/** Estimate of a percentile, 0 < @share <= 1, evenly spread within a bucket; 0 if there are none.
 * The last bucket has no end: its beginning is answered. */
uint64_t spw_wait_percentile_ns(const struct spw_wait_histogram *summary, double share);

#endif
