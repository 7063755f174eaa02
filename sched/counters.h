#ifndef SPW_SCHED_COUNTERS_H
#define SPW_SCHED_COUNTERS_H
/*
 * What a client counts, in its client.c; written by it alone, shown by `spillway stat`. Each lookup
 * counts once under its reason, so lookups = the sum of load_*, miss_* and defer_*; those come first,
 * in the order of enum spw_reason.
 */
#include "shm/layout.h"

#define SPW_CLIENT_COUNTERS(X)                                                                     \
    X(load_complete, "lookups: load, complete chunks")                                             \
    X(load_cut, "lookups: load, cut before a pending run")                                         \
    X(load_tail, "lookups: load, up to a boundary inside a chunk")                                 \
    X(miss_short, "lookups: miss, less than a chunk was left")                                     \
    X(miss_group_miss, "lookups: miss, a group had nothing usable")                                \
    X(miss_leading_pending, "lookups: miss, the first chunk pending and within the budget")        \
    X(miss_skip, "lookups: miss, the request doesn't read")                                        \
    X(defer_retry, "lookups: deferred, a place isn't known yet")                                   \
    X(defer_pending, "lookups: deferred, a pending chunk is worth the wait")                       \
    X(defer_loading, "lookups: deferred, a chunk is being loaded for another request")             \
    X(defer_transfer, "lookups: deferred, a transfer of the request is in flight")                 \
    X(defer_tail_retry, "lookups: deferred, the place of a tail isn't known yet")                  \
    X(defer_tail_pending, "lookups: deferred, a pending tail is worth the wait")                   \
    X(load_limit, "lookups: load, cut at a chunk whose wait ran into its limit")                   \
    X(miss_limit, "lookups: miss, at a chunk whose wait ran into its limit")                       \
    X(load_not_promoted, "lookups: load, cut at a chunk that the tier below won't bring")          \
    X(miss_not_promoted, "lookups: miss, at a chunk that the tier below won't bring")              \
    X(lookups, "decisions asked for")                                                              \
    X(decided, "of those, ended: load or miss")                                                    \
    X(repeated, "of those, deferred again at once: no news")                                       \
    X(hit_tokens, "tokens that decisions said to load")                                            \
    X(recomputed_tokens, "tokens that the budget gave up")                                         \
    X(waits_expired, "waits that ended by their limit")                                            \
    X(woken, "deferred requests handed out as perhaps changed")                                    \
    X(awaited, "slots marked: their stores go first")                                              \
    X(promotes, "chunks that the tier below was asked to bring")                                   \
    X(promotes_refused, "of those, such that won't come")                                          \
    X(probed, "chunks asked about by probes")                                                      \
    X(steps, "steps begun")                                                                        \
    X(records, "records drained from the update rings")                                            \
    X(gaps, "update rings that lapped this client")                                                \
    X(resyncs, "shards read anew from their tables")                                               \
    X(replica_full, "shards that held more chunks than they have slots")                           \
    X(reserves, "store halves sent: reserves")                                                     \
    X(begins, "load halves sent: begins")                                                          \
    X(runs, "second halves sent: runs")                                                            \
    X(cancels, "cancels sent")                                                                     \
    X(resets, "resets sent")                                                                       \
    X(lanes_full, "commands refused here because a lane was full")                                 \
    X(jobs_full, "commands refused here because too many jobs are open")                           \
    X(sources_gone, "chunks of a decision that no table had")                                      \
    X(sources_unclear, "chunks of a decision whose table entry was just being written")            \
    X(touched, "chunks sent to be made most recent")                                               \
    X(touches_dropped, "of those to be sent, left out because a lane was full")                    \
    X(completions, "completions handed out")                                                       \
    X(late_completions, "answers to jobs that are no more, dropped")                               \
    X(double_releases, "cancels of a job that was cancelled before")                               \
    X(owner_dead, "jobs ended because their worker died")                                          \
    X(doorbells, "workers woken")

enum spw_client_counter {
#define X(name, text) SPW_CLIENT_##name,
    SPW_CLIENT_COUNTERS(X)
#undef X
        SPW_CLIENT_COUNTER_COUNT
};

/** What the process that holds this client object has counted; what those before it counted is in
 * the object's counter, too. Relaxed: a picture. */
static inline uint64_t spw_client_counted(const struct spw_client_head *head, uint32_t counter)
{
    return spw_load_relaxed(&head->counter[counter]) -
           spw_load_relaxed(&head->counter_base[counter]);
}

/** Short name and meaning of a counter; static strings, NULL for what is none. */
const char *spw_client_counter_name(uint32_t counter);
const char *spw_client_counter_text(uint32_t counter);

#endif
