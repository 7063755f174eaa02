#ifndef SPW_TIER_COUNTERS_H
#define SPW_TIER_COUNTERS_H
/*
 * What a worker counts, in feed.k; written by it alone, shown by `spillway stat`. A counter counts
 * events of the kind named, once each. Offered = stored + present + refused + cancelled + failed +
 * open, in chunks, at any quiet moment, as long as no worker died with open chunks.
 */
#define SPW_WORKER_COUNTERS(X)                                                                     \
    X(commands, "commands taken")                                                                  \
    X(chunks_offered, "chunks asked for by reserves that were taken")                              \
    X(chunks_stored, "chunks that became READY")                                                   \
    X(chunks_present, "offered, but FILLING or READY here already")                                \
    X(refused_no_slot, "offered, no slot to be had")                                               \
    X(refused_queue_full, "offered, store queue full")                                             \
    X(refused_stale, "offered with an old space generation, step or incarnation")                  \
    X(refused_bad, "offered with values that make no sense")                                       \
    X(stores_cancelled, "reserved, then cancelled or its client gone")                             \
    X(stores_expired, "reserved, no run within the limit")                                         \
    X(stores_failed, "copy, or what it had to wait for, ended with an error")                      \
    X(chunks_loaded, "loads that ended well")                                                      \
    X(loads_stale, "loads whose source was no longer that chunk (fenced client)")                  \
    X(loads_failed, "copy, or what it had to wait for, ended with an error")                       \
    X(loads_cancelled, "begun, then cancelled or its client gone")                                 \
    X(loads_expired, "begun, no run within the limit")                                             \
    X(runs_refused, "runs of a ticket that is gone or not theirs")                                 \
    X(evicted, "READY chunks retired to make room")                                                \
    X(touches, "chunks made most recent")                                                          \
    X(updates, "records published")                                                                \
    X(freed, "slots that became FREE")                                                             \
    X(fences, "clients fenced for staying in a step")                                              \
    X(clients_gone, "client generations found dead or handed over")                                \
    X(late_completions, "ends of copies whose job was gone")                                       \
    X(resets, "spaces reset")                                                                      \
    X(bytes_stored, "payload bytes stored")                                                        \
    X(bytes_loaded, "payload bytes loaded")                                                        \
    X(sleeps, "times the worker slept")                                                            \
    X(commands_bad, "commands of any kind that make no sense")                                     \
    X(store_busy_ns, "time in which a store waited or was copied")                                 \
    X(demoted, "chunks made the next victim: a part elsewhere is lost, or a twin is kept")         \
    X(awaited_stored, "chunks stored that somebody awaited when their copy began")                 \
    X(overtaken, "stores whose copy began before that of an older one")                            \
    X(overtake_limit_hits, "stores passed over for as long as may be, then next")                  \
    X(adopted, "READY chunks in order when a worker took the shard over")                          \
    X(dropped, "entries torn or damaged then, no chunk any more")                                  \
    X(afresh, "times the shard was emptied: its update ring made no sense")                        \
    X(quarantined, "slots put aside: a dead worker's transfers may still write them")              \
    X(quarantine_ended, "slots put aside whose time is over, or whose worker died, too")           \
    X(huge_bytes, "payload bytes on huge pages, as measured when the worker started")              \
    X(orphaned, "chunks made the next victim: the one before them in their prefix is lost")        \
    X(share_refused, "chunks without a slot because what could have gone is promised to spaces")   \
    X(kv_registered, "registrations of GPU memory")                                                \
    X(kv_refused, "registrations refused")                                                         \
    X(fences_waited, "runs whose fence had not fired when they were taken")                        \
    X(fences_late, "of these, fence not fired within the limit")                                   \
    X(touched_bytes, "payload bytes faulted in before they are pinned, by the worker that runs")   \
    X(copies_unpinned, "copies by the GPU from or to memory that is not pinned")                   \
    X(cold_wanted, "chunks that were to go down")                                                  \
    X(cold_written, "chunks written below")                                                        \
    X(cold_bytes_written, "payload bytes written below")                                           \
    X(cold_parked, "wanted below while still pending: went down when they were READY")             \
    X(cold_not_admitted, "READY chunks seen too seldom to go down")                                \
    X(cold_dropped_queue, "wanted below, queue above its mark")                                    \
    X(cold_dropped_budget, "wanted below, the day's write budget is used up")                      \
    X(cold_dropped_full, "wanted below, no room can be made there")                                \
    X(cold_dropped_share, "wanted below, but what could go there is promised to other spaces")     \
    X(cold_dropped_down, "wanted below, the tier is out of service")                               \
    X(cold_dropped_gone, "wanted below, but gone before it was written")                           \
    X(cold_write_failed, "writes that failed or came too late")                                    \
    X(cold_found, "chunks found below at a start, or when the tier came back")                     \
    X(cold_evicted, "chunks that went below to make room there")                                   \
    X(cold_corrupt, "chunks below that weren't what their record says: removed")                   \
    X(cold_lost, "chunks below that were lost for any other reason")                               \
    X(promote_asked, "chunks asked up")                                                            \
    X(promoted, "chunks read up and READY")                                                        \
    X(promoted_bytes, "payload bytes read up")                                                     \
    X(promote_joined, "asked up, but on their way or there already")                               \
    X(promote_refused_share, "asked up, but promotions have their share of host memory")           \
    X(promote_refused_no_slot, "asked up, no slot to be had")                                      \
    X(promote_refused_gone, "asked up, but not below any more, or out of service")                 \
    X(promote_failed, "reads that failed, came too late or gave other bytes")                      \
    X(promote_unwanted, "asked up, but nobody waited any more before the read began")              \
    X(promote_unread, "read up, then let go of without having been loaded")                        \
    X(tier_down, "times the tier below went out of service")                                       \
    X(tier_up, "times it came back")                                                               \
    X(cold_unlisted,                                                                               \
      "good chunks below, seen as it was opened, that this pool is too small to list")

enum spw_worker_counter {
#define X(name, text) SPW_WORKER_##name,
    SPW_WORKER_COUNTERS(X)
#undef X
        SPW_WORKER_COUNTER_COUNT
};

/** Short name and meaning of a counter; static strings. */
const char *spw_worker_counter_name(enum spw_worker_counter counter);
const char *spw_worker_counter_text(enum spw_worker_counter counter);

#endif
