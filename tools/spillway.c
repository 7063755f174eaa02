/*
 * spillway: the command-line tool; a table of commands. Inspection maps a pool read-only.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/guard.h"
#include "tools/command.h"
#include "tools/units.h"

struct command {
    const char *name;
    int (*run)(int argc, char *const *argv);
    const char *about; /* NULL: internal, not told */
};

static const struct command commands[] = {
    {"stat", spw_cmd_stat, "what a pool holds, does and counts"},
    {"ls", spw_cmd_ls, "the tiers of a pool, what they hold, and whose it is"},
    {"explain", spw_cmd_explain, "why a client's last requests were loaded, computed or deferred"},
    {"fsck", spw_cmd_fsck, "audit a pool, living or dead, and say what is damaged"},
    {"check", spw_cmd_check, "could a pool start on this host, and what would hamper it"},
    {"reset", spw_cmd_reset, "empty spaces of a living pool"},
    {"shares", spw_cmd_shares, "change what a space of a living pool may take"},
    {"stop", spw_cmd_stop, "stop a pool"},
    {"rm", spw_cmd_rm, "remove what a pool left that nobody holds any more"},
    {"replay", spw_cmd_replay, "replay a trace of requests through a pool of its own"},
    {"replay-exec", spw_cmd_replay_exec, NULL},
    {"replay-engine", spw_cmd_replay_engine, NULL},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static const struct spw_option pool_options[] = {
    {"pool", NULL, SPW_OPTION_TEXT, offsetof(struct spw_pool_args, pool), 0,
     sizeof((struct spw_pool_args *)0)->pool, NULL, "spillway", "name of the pool"},
    {"shm-dir", NULL, SPW_OPTION_TEXT, offsetof(struct spw_pool_args, shm_dir), 0,
     sizeof((struct spw_pool_args *)0)->shm_dir, NULL, "/dev/shm", "where its objects are"},
    {"uid", NULL, SPW_OPTION_COUNT, offsetof(struct spw_pool_args, uid), 0, UINT32_MAX, NULL, NULL,
     "user that the pool belongs to; by default the one who asks"},
    {"json", NULL, SPW_OPTION_SWITCH, offsetof(struct spw_pool_args, json), 0, 0, NULL, "no",
     "print JSON"},
    {"help", NULL, SPW_OPTION_SWITCH, offsetof(struct spw_pool_args, help), 0, 0, NULL, "no",
     "print this"},
};
#define POOL_OPTIONS (sizeof pool_options / sizeof pool_options[0])

int spw_command_args_read(int argc, char *const *argv, const struct spw_command_form *form,
                          struct spw_pool_args *args, const char **out_word)
{
    struct spw_option table[POOL_OPTIONS + SPW_COMMAND_OPTIONS_MAX];
    struct spw_options options;
    char err[512];
    assert(form->more_count <= SPW_COMMAND_OPTIONS_MAX);
    memcpy(table, pool_options, sizeof pool_options);
    for (size_t i = 0; i < form->more_count; i++)
        table[POOL_OPTIONS + i] = form->more[i];
    spw_options_init(&options, table, POOL_OPTIONS + form->more_count, args);
    int words =
        spw_options_read_args(&options, argc, argv, out_word, form->word ? 1 : 0, err, sizeof err);
    if (words < 0) {
        fprintf(stderr, "spillway %s: %s\n", argv[0], err);
        return SPW_EXIT_USAGE;
    }
    if (spw_options_origin(&options, "uid") == SPW_ORIGIN_DEFAULT)
        args->uid = geteuid();
    if (args->help) {
        printf("usage: spillway %s [options]%s%s: %s\n\n", argv[0], form->word ? " " : "",
               form->word ? form->word : "", form->about);
        spw_options_help(&options, stdout);
        return SPW_EXIT_OK;
    }
    if (form->word && words == 0) {
        fprintf(stderr, "spillway %s: %s is missing; see spillway %s --help\n", argv[0], form->word,
                argv[0]);
        return SPW_EXIT_USAGE;
    }
    return -1;
}

int spw_pool_args_read(int argc, char *const *argv, const char *about, struct spw_pool_args *args)
{
    return spw_command_args_read(argc, argv, &(struct spw_command_form){.about = about}, args,
                                 NULL);
}

int spw_exit_of(int error)
{
    switch (error) {
    case -ENOENT:
        return SPW_EXIT_NO_POOL;
    case -EOWNERDEAD:
        return SPW_EXIT_STALE;
    case -EBADMSG:
    case -EPROTONOSUPPORT:
        return SPW_EXIT_DAMAGED;
    case -EINVAL:
        return SPW_EXIT_USAGE;
    default:
        return SPW_EXIT_FAILED;
    }
}

static void usage(FILE *out)
{
    fputs("usage: spillway COMMAND [options]\n\n", out);
    for (size_t i = 0; i < COMMANDS && commands[i].about; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].about);
    fputs("\nspillway COMMAND --help tells a command's options; spillway --version the version.\n"
          "exit status: 0 fine, 1 failed, 2 usage, 3 stale, 4 stuck, 5 no such pool, 6 damaged\n",
          out);
}

int main(int argc, char **argv)
{
    const char *names[COMMANDS];
    size_t told = 0;
    spw_guard_install(); /* clients may cut what we look at */
    if (argc < 2) {
        usage(stderr);
        return SPW_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return SPW_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("spillway " SPW_VERSION);
        return SPW_EXIT_OK;
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
        if (commands[i].about)
            names[told++] = commands[i].name;
    }
    const char *near = spw_units_nearest(argv[1], names, told);
    fprintf(stderr, "spillway: no command \"%s\"%s%s%s; see spillway --help\n", argv[1],
            near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    return SPW_EXIT_USAGE;
}

int spw_command_on_pool(const char *command, const struct spw_pool_args *args,
                        int (*does)(struct spw_pool *pool, void *ctx, struct spw_error *err),
                        void *ctx)
{
    struct spw_error err = {0};
    struct spw_pool_path path;
    struct spw_pool *pool = calloc(1, sizeof *pool);
    if (!pool) {
        fprintf(stderr, "spillway %s: out of memory\n", command);
        return SPW_EXIT_FAILED;
    }
    int rc = spw_pool_path_init(&path, args->shm_dir, args->pool, (uint32_t)args->uid, &err);
    if (!rc)
        rc = spw_pool_attach(&path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, pool, &err);
    if (!rc) {
        rc = does(pool, ctx, &err);
        spw_pool_detach(pool);
    }
    if (rc < 0)
        fprintf(stderr, "spillway %s: %s\n", command, err.text);
    free(pool);
    return rc == -ETIMEDOUT ? SPW_EXIT_STUCK : rc < 0 ? spw_exit_of(rc) : SPW_EXIT_OK;
}
