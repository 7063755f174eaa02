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
int spw_cmd_ls(int argc, char *const *argv);
int spw_cmd_explain(int argc, char *const *argv);
int spw_cmd_fsck(int argc, char *const *argv);
int spw_cmd_check(int argc, char *const *argv);
int spw_cmd_reset(int argc, char *const *argv);
int spw_cmd_shares(int argc, char *const *argv);
int spw_cmd_stop(int argc, char *const *argv);
int spw_cmd_rm(int argc, char *const *argv);
int spw_cmd_replay(int argc, char *const *argv);
int spw_cmd_replay_exec(int argc,
                        char *const *argv); /* internal: run a program that dies with us */
int spw_cmd_replay_engine(int argc, char *const *argv); /* internal: one engine of a replay */

/** What a command takes besides a pool. */
struct spw_command_form {
    const char *about;
    const char *word;              /* its one argument, as help names it; NULL: none         */
    const struct spw_option *more; /* options of its own: of a struct that begins with
                                      struct spw_pool_args; at most SPW_COMMAND_OPTIONS_MAX  */
    size_t more_count;
};
#define SPW_COMMAND_OPTIONS_MAX 8

/**
 * Read @argv into @args. Returns -1 to go on, or the exit status: usage error, or help was printed.
 */
int spw_pool_args_read(int argc, char *const *argv, const char *about, struct spw_pool_args *args);

/** The same for a command that takes more; @out_word: the argument, borrowed from @argv. */
int spw_command_args_read(int argc, char *const *argv, const struct spw_command_form *form,
                          struct spw_pool_args *args, const char **out_word);

/** Attach to the pool of @args without a place among its clients, do it, detach. @does returns a negative
 * errno with words, which are said as @command's. Returns what the process exits with. */
int spw_command_on_pool(const char *command, const struct spw_pool_args *args,
                        int (*does)(struct spw_pool *pool, void *ctx, struct spw_error *err),
                        void *ctx);

/** Exit status for a failed attach. */
int spw_exit_of(int error);

#endif
