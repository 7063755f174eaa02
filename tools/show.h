#ifndef SPW_TOOLS_SHOW_H
#define SPW_TOOLS_SHOW_H
/*
 * What `spillway stat` shows: gathered into plain numbers, then printed.
 */
#include "sched/counters.h"
#include "sched/waits.h"
#include "shm/pool.h"
#include "tier/counters.h"
#include "tier/eta.h"
#include "tools/tiers.h"

struct spw_show_worker {
    uint32_t phase;
    uint64_t incarnation, pid, restarts, tail;
    struct spw_stream_sample stream;
    uint64_t backlog_bytes, awaited_bytes; /* of the stream: still to be stored, awaited of these */
    uint64_t eta_ns;                       /* of a new store; SPW_ETA_UNKNOWN                     */
    bool stalled;                          /* has something to store, and makes no progress       */
    uint32_t filling, ready, retired;
    bool alive, moves;
    uint64_t inside_pid; /* of the engine whose thread it is or was last; 0: its own process */
    bool out_of_service; /* its GPU failed too often: it is not started any more */
    uint64_t counter[SPW_WORKER_COUNTER_COUNT];
};

struct spw_show_client {
    uint32_t c;
    uint64_t generation, pid, step;
    bool in_step;
    char label[48];
    uint64_t wait_limit_ns, retry_limit_ns; /* of the space opened last; 0: none was         */
    uint64_t budget_tokens;                 /* likewise; UINT64_MAX: auto                    */
    struct spw_wait_histogram wait[SPW_WAIT_OUTCOMES];
    uint64_t counter[SPW_CLIENT_COUNTER_COUNT];
};

/* What all clients asked and all workers did; of clients, those attached and the last holder of each
 * other place. */
struct spw_show_totals {
    uint64_t lookups, hits, hit_tokens; /* hits: lookups that ended in a load              */
    uint64_t chunks_stored, chunks_loaded;
    uint64_t bytes_stored, bytes_loaded;
    uint64_t huge_bytes; /* payload on huge pages                                         */
};

#define SPW_SHOW_WARNINGS_MAX 2
#define SPW_SHOW_TEXT_BYTES   200

struct spw_show_view {
    bool daemon_alive;
    bool daemon_moves;   /* its loop went round while it was looked at    */
    uint64_t updated_ns; /* CLOCK_REALTIME of its last round, 0: none yet */
    struct spw_show_totals totals;
    struct spw_tiers_view tiers;
    uint32_t warnings;
    char warning[SPW_SHOW_WARNINGS_MAX][SPW_SHOW_TEXT_BYTES];
    uint32_t phase;
    uint64_t daemon_pid;
    uint32_t clients, spaces;
    struct spw_show_worker worker[SPW_WORKERS_MAX];
    struct spw_show_client client[SPW_CLIENTS_MAX];
};

void spw_show_print_text(const struct spw_pool *pool, const struct spw_show_view *view);
void spw_show_print_json(const struct spw_pool *pool, const struct spw_show_view *view);

#endif
