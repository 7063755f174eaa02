#ifndef SPW_TOOLS_ARRIVALS_H
#define SPW_TOOLS_ARRIVALS_H
/*
 * When each request of a trace comes. One for all engines: an answer of one brings a request that
 * may go to another.
 *
 *   open loop    at its arrival_ns, whatever the engines do
 *   closed loop  a user or agent waits for the answer, thinks, and asks again. At most so many
 *                conversations run at a time, those at the head of the file from time 0 on; as the
 *                last answer of one ends, the next of the file starts
 *
 * An answer ends output_tokens / decode_rate after its first token. No I/O and no clock in here;
 * whoever drives it hands in the times (nanoseconds of the trace):
 *
 *   while (spw_arrivals_take(a, now, &arrival))       in the order of time, then of the trace
 *       give arrival.request to an engine
 *   spw_arrivals_answered(a, request, first_token)    once for each request, in any order
 *
 * The same calls give the same arrivals: whole numbers, no chance.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tools/trace.h"

#define SPW_ARRIVALS_NONE INT64_MAX

struct spw_arrivals_options {
    uint64_t conversations; /* closed loop: at most so many at a time, at least 1 */
    uint64_t decode_rate;   /* closed loop: tokens a second of one answer, at least 1 */
};

struct spw_arrival {
    int64_t at_ns;
    uint32_t request; /* index in the trace */
};

/** What is known of one conversation of a closed loop. */
struct spw_arrivals_conversation {
    uint32_t first, end;    /* its requests in the trace */
    uint32_t unanswered;    /* of them */
    int64_t answers_end_ns; /* of those answered, the latest */
};

struct spw_arrivals {
    const struct spw_trace *trace; /* borrowed */
    uint64_t decode_rate;
    uint64_t taken;          /* requests handed out */
    struct spw_arrival *due; /* closed loop: a heap of those whose time is known */
    uint32_t due_count;
    uint32_t next_conversation; /* of the file, to be started */
    struct spw_arrivals_conversation *conversation;
    uint32_t *first_follower, *next_follower; /* 1 + index, by request; 0: none */
};

/**
 * Begin at time 0.
 *
 * @trace    borrowed until spw_arrivals_fini()
 * @options  not looked at for an open loop; may be NULL then
 *
 * Returns 0 or -ENOMEM. Nothing is allocated later.
 */
int spw_arrivals_init(struct spw_arrivals *arrivals, const struct spw_trace *trace,
                      const struct spw_arrivals_options *options);
void spw_arrivals_fini(struct spw_arrivals *arrivals);

/** When the next request comes; SPW_ARRIVALS_NONE if none is known before another answer. */
int64_t spw_arrivals_next_ns(const struct spw_arrivals *arrivals);

/** Take the next request that has come by @now_ns; false if there is none. */
bool spw_arrivals_take(struct spw_arrivals *arrivals, int64_t now_ns,
                       struct spw_arrival *out_arrival);

/**
 * Say when the first token of a request taken earlier was there. It may bring requests, none of
 * them before @first_token_ns.
 */
void spw_arrivals_answered(struct spw_arrivals *arrivals, uint32_t request, int64_t first_token_ns);

/** Whether every request was taken: no more will come, whatever is answered. */
bool spw_arrivals_at_end(const struct spw_arrivals *arrivals);

#endif
