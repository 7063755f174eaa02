#ifndef SPW_SCHED_EXPLAIN_H
#define SPW_SCHED_EXPLAIN_H
/*
 * A client's last decisions, in its client.c: what `spillway explain` shows.
 *
 *   roles     written by the client alone, one thread; read by anyone who maps the object, read-only
 *   progress  a write is wait-free, without a system call; a read looks at a record once
 *   order     record n lies at n mod SPW_DECISION_RECORDS: seq 0, words, seq n + 1; then `decisions`
 *             n + 1. A reader looks at `decisions`, copies the words, then looks at seq: n + 1 says
 *             that they are those of n, and not yet those of a lap later
 *   numbers   go on from one holder of the object to the next, so that none stands for two records;
 *             a holder's own begin at decision_base (shm/client.h)
 *   pairs     [EX-1] seq 0 -> words -> copy -> look    [EX-2] record -> decisions -> first look
 *
 *   the client dies after   readers see
 *   seq 0, some words       one record fewer: that of a lap ago; the next holder writes it anew
 *   seq n + 1               nothing new: `decisions` is what says that it is there
 *   decisions               the record
 */
#include <stdint.h>

#include "shm/layout.h"

#define SPW_EXPLAINED_NO_GROUP UINT32_MAX /* group: no group decided                        */
#define SPW_EXPLAINED_NO_ETA   UINT64_MAX /* eta_ns: not known                              */
#define SPW_EXPLAINED_AUTO     UINT64_MAX /* budget_tokens: priced, not counted             */
#define SPW_EXPLAINED_AWAITED  1u         /* flags: the store of what it waits for is asked for */

/** One decision, as it was made. */
struct spw_explained {
    uint64_t time_ns; /* CLOCK_MONOTONIC                                              */
    uint64_t tag;     /* the engine's own id of the request                           */
    uint64_t request; /* its number in this client, from 1                            */
    uint64_t step;
    uint64_t computed_tokens;
    uint64_t hit_tokens;
    uint64_t recomputed_tokens;
    uint64_t chunk;         /* that decided, if a group did                                 */
    uint64_t eta_ns;        /* until what is waited for, or was given up, is ready          */
    uint64_t waited_ns;     /* by this request so far                                       */
    uint64_t tail_boundary; /* 0 = none                                                     */
    uint64_t budget_tokens;
    uint32_t group; /* that decided                                                 */
    uint32_t space; /* number of the space in the pool                              */
    uint8_t action; /* enum spw_action                                              */
    uint8_t reason; /* enum spw_reason                                              */
    uint8_t flags;
};

/** Client: write its next record. Wait-free. [EX-1] [EX-2] release. */
void spw_explain_write(struct spw_client_head *head, const struct spw_explained *explained);

/** The holder's records are those numbered [first, end); at most SPW_DECISION_RECORDS, the oldest of
 * which may be overwritten at any time. Any process. [EX-2] acquire. */
void spw_explain_range(const struct spw_client_head *head, uint64_t *out_first, uint64_t *out_end);

/**
 * Read record @n. Any process; never waits, trusts no byte.
 *
 * -ENOENT  it isn't there: not made yet, another holder's, or overwritten
 * -EAGAIN  it is being overwritten
 * -EBADMSG it makes no sense
 */
int spw_explain_read(const struct spw_client_head *head, uint64_t n,
                     struct spw_explained *out_explained);

#endif
