/* See waits.h. */
#include "sched/waits.h"

#include "shm/atomic.h"

_Static_assert(SPW_WAIT_BUCKETS == sizeof(((struct spw_wait_histogram *)0)->bucket) / 8,
               "as installed");
_Static_assert((unsigned)SPW_WAIT_OUTCOMES <= SPW_WAIT_OUTCOMES_MAX, "client.c has room for them");

static const char *const outcome_names[SPW_WAIT_OUTCOMES] = {
    [SPW_WAIT_HIT] = "hit",         [SPW_WAIT_CUT] = "cut",
    [SPW_WAIT_EXPIRED] = "expired", [SPW_WAIT_CANCELLED] = "cancelled",
    [SPW_WAIT_RETRY] = "retry",     [SPW_WAIT_LOST] = "lost",
};

static uint64_t span(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* ---- limits ---------------------------------------------------------------------------------- */

void spw_wait_begin(struct spw_wait_clock *clock, enum spw_wait_kind kind, uint64_t first_tokens,
                    uint64_t end_tokens, uint64_t now_ns)
{
    spw_wait_pause(clock, now_ns);
    if (first_tokens >= clock->upto_tokens[kind])
        clock->waited_ns[kind] = 0;
    if (end_tokens > clock->upto_tokens[kind])
        clock->upto_tokens[kind] = end_tokens;
    clock->since_ns = now_ns;
    clock->kind = (uint8_t)kind;
    clock->runs = true;
}

void spw_wait_pause(struct spw_wait_clock *clock, uint64_t now_ns)
{
    if (!clock->runs)
        return;
    clock->runs = false;
    clock->waited_ns[clock->kind] =
        add(clock->waited_ns[clock->kind], span(clock->since_ns, now_ns));
}

uint64_t spw_wait_deadline(const struct spw_wait_clock *clock, const struct spw_wait_limits *limits)
{
    if (!clock->runs || limits->ns[clock->kind] == UINT64_MAX)
        return UINT64_MAX;
    return add(clock->since_ns, span(clock->waited_ns[clock->kind], limits->ns[clock->kind]));
}

uint64_t spw_wait_expired_tokens(const struct spw_wait_clock *clock, enum spw_wait_kind kind,
                                 const struct spw_wait_limits *limits)
{
    if (limits->ns[kind] == 0)
        return UINT64_MAX;
    return clock->waited_ns[kind] >= limits->ns[kind] ? clock->upto_tokens[kind] : 0;
}

/* ---- samples --------------------------------------------------------------------------------- */

enum spw_wait_outcome spw_wait_outcome_of(enum spw_action action, enum spw_reason reason,
                                          enum spw_reason deferred)
{
    if (reason == SPW_REASON_LOAD_LIMIT || reason == SPW_REASON_MISS_LIMIT)
        return SPW_WAIT_EXPIRED;
    if (reason == SPW_REASON_LOAD_NOT_PROMOTED || reason == SPW_REASON_MISS_NOT_PROMOTED)
        return SPW_WAIT_LOST;
    if (reason == SPW_REASON_CUT || reason == SPW_REASON_LEADING_PENDING)
        return SPW_WAIT_CUT;
    if (action == SPW_ACTION_LOAD)
        return SPW_WAIT_HIT;
    return deferred == SPW_REASON_RETRY || deferred == SPW_REASON_TAIL_RETRY ? SPW_WAIT_RETRY
                                                                             : SPW_WAIT_LOST;
}

const char *spw_wait_outcome_name(uint32_t outcome)
{
    return outcome < SPW_WAIT_OUTCOMES ? outcome_names[outcome] : NULL;
}

bool spw_wait_evaluated(struct spw_wait_sample *sample, enum spw_action action,
                        enum spw_reason reason, uint64_t now_ns, uint64_t *out_waited_ns,
                        enum spw_wait_outcome *out_outcome)
{
    if (action == SPW_ACTION_DEFER) {
        if (reason == SPW_REASON_TRANSFER)
            return false;
        if (!sample->runs)
            sample->since_ns = now_ns;
        sample->runs = true;
        sample->reason = (uint8_t)reason;
        return false;
    }
    if (!sample->runs)
        return false;
    sample->runs = false;
    *out_waited_ns = span(sample->since_ns, now_ns);
    *out_outcome = spw_wait_outcome_of(action, reason, (enum spw_reason)sample->reason);
    return true;
}

uint64_t spw_wait_sample_ns(const struct spw_wait_sample *sample, uint64_t now_ns)
{
    return sample->runs ? span(sample->since_ns, now_ns) : 0;
}

bool spw_wait_cancelled(struct spw_wait_sample *sample, uint64_t now_ns, uint64_t *out_waited_ns)
{
    if (!sample->runs)
        return false;
    sample->runs = false;
    *out_waited_ns = span(sample->since_ns, now_ns);
    return true;
}

/* ---- histograms ------------------------------------------------------------------------------ */

static uint32_t bucket_of(uint64_t ns)
{
    uint64_t us = ns / 1000;
    uint32_t b = us == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(us);
    return b < SPW_WAIT_BUCKETS ? b : SPW_WAIT_BUCKETS - 1;
}

static uint64_t bucket_begin_ns(uint32_t b)
{
    return b == 0 ? 0 : 1000ull << (b - 1);
}

void spw_wait_record_add(struct spw_wait_record *record, uint64_t ns)
{
    spw_add_own(&record->sum_ns, ns);
    spw_add_own(&record->bucket[bucket_of(ns)], 1);
}

void spw_wait_record_read(const struct spw_wait_record *record, struct spw_wait_histogram *out)
{
    *out = (struct spw_wait_histogram){.sum_ns = spw_load_relaxed(&record->sum_ns)};
    for (uint32_t b = 0; b < SPW_WAIT_BUCKETS; b++) {
        out->bucket[b] = spw_load_relaxed(&record->bucket[b]);
        out->count += out->bucket[b];
    }
}

uint64_t spw_wait_percentile_ns(const struct spw_wait_histogram *summary, double share)
{
    double rank = share * (double)summary->count, below = 0;
    if (summary->count == 0)
        return 0;
    uint32_t b = 0;
    while (b < SPW_WAIT_BUCKETS - 1 && below + (double)summary->bucket[b] < rank)
        below += (double)summary->bucket[b++];
    uint64_t begin = bucket_begin_ns(b);
    if (b == SPW_WAIT_BUCKETS - 1 || summary->bucket[b] == 0)
        return begin;
    double part = (rank - below) / (double)summary->bucket[b];
    return begin + (uint64_t)(part * (double)(bucket_begin_ns(b + 1) - begin));
}
