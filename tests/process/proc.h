#ifndef SPW_TESTS_PROCESS_PROC_H
#define SPW_TESTS_PROCESS_PROC_H
/*
 * Real spillwayd processes in a folder of the test's own, and a look at them from outside.
 *
 *   roles     one thread of the test; the daemon and its workers are processes of their own
 *   ends      every wait has a limit; a test that dies takes the daemon with it, its workers leave
 *             by themselves a second later (--orphan)
 *   errors    negative errnos or false; what a helper can't go on without ends the test's process
 */
#include "shm/pool.h"
#include "tests/support/env.h"

#define PROC_LIMIT_MS 20000
#define PROC_EXTRA    16

/** What a test wants of its pool; zero means the default named. */
struct proc_config {
    const char *name;             /* "pool"  */
    uint32_t workers;             /* 1       */
    uint32_t capacity;            /* 64      */
    uint32_t chunk_bytes;         /* 1024    */
    uint32_t clients;             /* 8       */
    uint32_t kv_blocks;           /* 256     */
    uint32_t update_records;      /* 1024    */
    uint32_t lane_slots;          /* 256     */
    const char *store_rate;       /* "0"     */
    const char *load_rate;        /* "0"     */
    const char *run_limit;        /* "10s"   */
    const char *on_stop;          /* "remove" */
    const char *more[PROC_EXTRA]; /* further arguments, ends with NULL */
    bool group;                   /* in a process group of its own, which has the daemon's pid */
    bool listen;                  /* to all that it says, see proc_said() */
};

struct proc_pool {
    struct proc_config config;
    char dir[SUPPORT_PATH_BYTES];
    pid_t daemon;          /* 0: none of ours runs */
    struct spw_pool *seen; /* mapped like a tool, NULL when not up */
    int words_fd;          /* 0: nobody listens */
    char words[16384];     /* of the daemon spawned last and its workers, so far */
};

/** A folder for pools; both of these end the process where the machine refuses. */
void proc_open(struct proc_pool *pool, const struct proc_config *config);
/** End whatever still runs of it, and remove the folder. */
void proc_close(struct proc_pool *pool);

/** Start a daemon and wait for nothing. Its words go to the test's standard error. */
void proc_spawn(struct proc_pool *pool);
/** Wait until the pool serves, then look at it as a tool. 0; 1000 + exit status: the daemon ended;
 * -ETIMEDOUT. */
int proc_await(struct proc_pool *pool);
/** proc_open, proc_spawn and proc_await; false with words on standard error. */
bool proc_start(struct proc_pool *pool, const struct proc_config *config);
/** Ask for a stop by @signal and wait for the end: its exit status as of support_wait. All that it said
 * is heard then. */
int proc_stop(struct proc_pool *pool, int signal);
/** Kill the daemon alone, by SIGKILL. */
void proc_kill_daemon(struct proc_pool *pool);

/** Kill the daemon and all its workers at once, and wait until their locks are free. */
void proc_kill_all(struct proc_pool *pool);
/** Has a daemon that is listened to said @words, or does within a second? */
bool proc_said(struct proc_pool *pool, const char *words);
/** How often it has said them so far; after proc_stop(), in all. What must not be said is asked here. */
uint32_t proc_said_count(struct proc_pool *pool, const char *words);

/** The next line of a child's output is @want; else false, with what it is on standard error. */
bool proc_reads_line(int fd, const char *want);

/** Send @signal to worker @k. */
void proc_signal_worker(const struct proc_pool *pool, uint32_t k, int signal);
uint64_t proc_incarnation(const struct proc_pool *pool, uint32_t k);
/** Wait until worker @k is up again with another incarnation than @before. */
bool proc_await_successor(const struct proc_pool *pool, uint32_t k, uint64_t before);
/** Entries of shard @k in @state; copying bits of all workers; a counter of worker @k. */
uint32_t proc_entries(const struct proc_pool *pool, uint32_t k, uint32_t state);
uint32_t proc_claims(const struct proc_pool *pool);
uint64_t proc_count(const struct proc_pool *pool, uint32_t k, uint32_t counter);
/** For proc_eventually(): each chunk that worker 0 of @pool wanted below was written there, or is
 * counted by why it wasn't. */
bool proc_settled_below(void *pool);

/** Run a program to its end with both outputs in @out (closed by NUL). Exit status as of
 * support_wait; -ETIMEDOUT: killed. */
int proc_run(const char *const argv[], char *out, size_t bytes, int timeout_ms);
/** spillway COMMAND --pool NAME --shm-dir DIR [--json] on this pool. */
int proc_spillway(const struct proc_pool *pool, const char *command, bool json, char *out,
                  size_t bytes);
/** Start "peer DIR NAME ARGS..." with its standard output at *out_fd. */
pid_t proc_peer(const struct proc_pool *pool, int *out_fd, const char *const args[]);
/** Start a peer, read to its end: its exit status. */
int proc_peer_run(const struct proc_pool *pool, const char *const args[], char *out, size_t bytes);

/** Files in the pool's folder. */
uint32_t proc_files(const struct proc_pool *pool);
/** utime + stime of a process, in ms; RSS in KiB. */
uint64_t proc_cpu_ms(pid_t pid);
uint64_t proc_rss_kib(pid_t pid);
uint64_t proc_now_ms(void);
/** Poll @holds every ms until it is true or @limit_ms are over. */
bool proc_eventually(bool (*holds)(void *ctx), void *ctx, int limit_ms);

#endif
