#ifndef SPW_TESTS_CRASH_TORTURE_H
#define SPW_TESTS_CRASH_TORTURE_H
/*
 * A busy pool whose processes are killed and stopped, and what must hold all the same.
 *
 *   roles     the torturer: one thread; it starts the daemon and the clients, maps what a tool maps,
 *             kills, and compares. It writes nothing that belongs to the pool
 *   lost      a part (a rank's bytes of a chunk, in one shard) that was READY in the table when it
 *             was looked at last, and is not READY there now, though nothing made it go: neither an
 *             eviction (counter `evicted` of that worker) nor a reset of its space (generation in
 *             the feed). Tables are compared every few ms, exactly at each death of a worker: a dead
 *             worker's table is read before its successor adopts it, and what was READY then must
 *             be READY afterwards. Only between the last look and a death one part may be missing
 *             more than was counted: who died between retiring and counting. At a quiet point a
 *             client of its own looks up every key: a READY chunk that isn't a HIT, or can't be
 *             loaded, is lost too
 *   below     with a tier below a lookup brings chunks up, which makes others go: what a quiet look
 *             misses may have been evicted since, and what it finds need not be READY before. Its
 *             own bytes are never corrupt, whoever dies, and some of them are used
 *   wrong     chunks loaded whose bytes are not those of their key, space and rank
 *   leaked    copying bits of anybody and pin bits of living clients, once nobody does anything;
 *             stuck: entries FILLING or RETIRED then
 *   recovery  worker: from its death until its successor serves; client: until its successor is
 *             attached; daemon: from the start of its successor until a client could attach;
 *             everything: likewise, and all that was READY is a HIT. A stopped or dead daemon
 *             restarts nobody: then clocks run from its return
 *   ends      every wait has a limit; what the torturer started dies with it
 */
#include "tests/crash/torture_board.h"
#include "tests/process/proc.h"

#define TORTURE_WORKERS_MAX 8u
#define TORTURE_SLOTS_MAX   512u
#define TORTURE_SAMPLES_MAX 512u

enum torture_role {
    TORTURE_WORKER,
    TORTURE_CLIENT,
    TORTURE_DAEMON,
    TORTURE_EVERYTHING,
    TORTURE_ROLES
};

struct torture_options {
    uint64_t seconds, seed;
    uint32_t workers, clients, slots;
    uint32_t victims; /* bits of enum torture_role */
    uint32_t bounds;  /* deaths of each role to measure; 0: torture */
    bool below;       /* with a tier below */
    bool json;
};

/** Read the command line. 0; 1 help was printed; 2 refused, with words. */
int torture_options_parse(int argc, char **argv, struct torture_options *out);

/* ---- what was there -------------------------------------------------------------------------- */

struct torture_part {
    uint64_t digest[2], number, fill;
    uint32_t space, rank, slot;
};

/** A shard as it was at one moment. */
struct torture_shard {
    uint32_t count;
    uint64_t evicted;
    uint64_t generation[SPW_SPACES_MAX];
    uint64_t begun; /* resets, by the generations; `ended` of them were counted, and `torn` died */
    uint64_t ended, torn;
    struct torture_part part[TORTURE_SLOTS_MAX];
};

struct torture_findings {
    uint64_t kills, stops, restarts, sweeps, checked, wrong, lost, leaked_pins, stuck, lost_answers;
    uint64_t promoted;                 /* chunks that came up from a tier below */
    uint64_t unexpected, uneven, slow; /* slow: recoveries beyond their limit */
    uint64_t deaths[TORTURE_ROLES];
    uint64_t worst_ms[TORTURE_ROLES];
    uint32_t samples[TORTURE_ROLES];
    uint64_t sample_ms[TORTURE_ROLES][TORTURE_SAMPLES_MAX]; /* the first recoveries */
};

/* ---- the pool -------------------------------------------------------------------------------- */

struct torture_client {
    pid_t pid;           /* 0: none runs */
    uint64_t attaches;   /* of its line when it was started */
    uint64_t killed_ms;  /* its successor's clock; 0: none runs */
    uint64_t stopped_ms; /* until when it is stopped; 0: it isn't */
    bool dies;           /* by itself: who armed it looks after it */
};

struct torture_worker {
    uint64_t incarnation; /* of the one that died     */
    uint64_t killed_ms;   /* 0: it is up              */
    uint64_t stopped_ms;
    bool dies;
};

struct torture {
    struct torture_options options;
    struct proc_pool pool;
    char below[SUPPORT_PATH_BYTES]; /* "": no tier below */
    char board_path[SUPPORT_PATH_BYTES + 16];
    struct torture_board *board;
    struct torture_client client[TORTURE_CLIENTS_MAX];
    struct torture_worker worker[TORTURE_WORKERS_MAX];
    uint64_t daemon_stopped_ms;
    struct torture_shard shard[TORTURE_WORKERS_MAX]; /* as they were looked at last */
    struct torture_findings found;
    uint64_t seed, pauses, spawned;
};

/** Start the pool and its clients. False, with words. */
bool torture_open(struct torture *torture, const struct torture_options *options);
/** End all of it; what doesn't end as it should, and objects that are left, are found. */
void torture_close(struct torture *torture);

void torture_start_client(struct torture *torture, uint32_t i, const char *crash_point);
void torture_start_clients(struct torture *torture);
/** The pid of worker @k if it holds its lock byte; else 0. */
pid_t torture_worker_pid(const struct torture *torture, uint32_t k);
/** Ask the daemon for a stop that keeps the pool, and wait. */
void torture_stop_daemon(struct torture *torture);
/** After a daemon's end: start the next one and look at its pool. ms until a client could attach,
 * or a negative errno. */
int64_t torture_restart_daemon(struct torture *torture);

/** Look at everybody: SIGCONT what was stopped long enough, end clocks, start clients that died,
 * compare tables. */
void torture_tick(struct torture *torture);
/** SIGCONT to all that are stopped. */
void torture_continue(struct torture *torture);

void torture_recovered(struct torture *torture, enum torture_role role, uint64_t ms);
/** Its name in words. */
const char *torture_role_name(enum torture_role role);
/** Longest recovery that isn't counted as slow. */
uint64_t torture_limit_ms(enum torture_role role);

/* ---- comparing ------------------------------------------------------------------------------- */

/** Look at shard @k without comparing. */
void torture_look(struct torture *torture, uint32_t k);
/** Compare shard @k with what it was, then remember it as it is. @uncounted: parts that may be
 * missing beyond what was counted. */
void torture_compare(struct torture *torture, uint32_t k, uint32_t uncounted);
/** Stop all activity, wait until all is settled, compare tables, pins, accounts, sweep; go on. */
void torture_quiet(struct torture *torture);

/* ---- victims --------------------------------------------------------------------------------- */

/** One kill or stop, chosen by the seed. */
void torture_strike(struct torture *torture);
void torture_kill_worker(struct torture *torture, uint32_t k);
/** @followed: a successor is started at once; else after the next quiet point. */
void torture_kill_client(struct torture *torture, uint32_t i, bool followed);
void torture_kill_daemon(struct torture *torture);
void torture_kill_everything(struct torture *torture);

/* ---- reports --------------------------------------------------------------------------------- */

/** Deaths of each role one by one on a pool that is busy, and a table of their recoveries. */
void torture_bounds(struct torture *torture);
/** Add what clients counted to the findings; once. True if all of it was as it must be. */
bool torture_sum_up(struct torture *torture);
/** Say what was found; true likewise. */
bool torture_report(struct torture *torture);

#endif
