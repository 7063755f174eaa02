#ifndef SPW_TOOLS_COMMAND_H
#define SPW_TOOLS_COMMAND_H
/*
 * Commands of `spillway`: each reads its own options and answers with an exit status.
 */
#include "shm/pool.h"
#include "tools/options.h"

enum spw_exit {
    SPW_EXIT_OK = 0,
    SPW_EXIT_FAILED = 1,
    SPW_EXIT_USAGE = 2,
    SPW_EXIT_STALE = 3,   /* the daemon is gone, its objects are not  */
    SPW_EXIT_STUCK = 4,   /* alive, but makes no progress             */
    SPW_EXIT_NO_POOL = 5, /* no pool of that name                     */
    SPW_EXIT_DAMAGED = 6, /* its objects make no sense                */
};

/** What most commands take: which pool, and JSON instead of text. */
struct spw_pool_args {
    char pool[SPW_POOL_NAME_BYTES + 1];
    char shm_dir[128];
    uint64_t uid; /* of the pool's owner */
    bool json;
    bool help;
};

int spw_cmd_stat(int argc, char *const *argv);
int spw_cmd_stop(int argc, char *const *argv);
int spw_cmd_replay(int argc, char *const *argv);
int spw_cmd_replay_exec(int argc,
                        char *const *argv); /* internal: run a program that dies with us */
int spw_cmd_replay_engine(int argc, char *const *argv); /* internal: one engine of a replay */

/**
 * Read @argv into @args. Returns -1 to go on, or the exit status: usage error, or help was printed.
 */
int spw_pool_args_read(int argc, char *const *argv, const char *about, struct spw_pool_args *args);

/** Exit status for a failed attach. */
int spw_exit_of(int error);

#endif
