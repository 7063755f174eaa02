/*
 * spillwayd: runs a pool in the foreground. Reads its configuration, then becomes the daemon; the
 * same program, started by the daemon as "spillwayd worker K ...", is a worker.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/crash_point.h"
#include "shm/guard.h"
#include "tools/config.h"
#include "tools/config_impl.h"
#include "tools/daemon.h"
#include "tools/log.h"
#include "tools/placing.h"
#include "tools/worker_main.h"

static spw_atomic32 stop; /* signals that asked for an end */

static void on_stop(int sig)
{
    (void)sig;
    uint32_t before =
        spw_load_relaxed(&stop); /* a free-standing number, lock-free: a handler may */
    if (before < UINT32_MAX)
        spw_store_relaxed(&stop, before + 1);
}

static void on_child(int sig)
{
    (void)sig; /* only ends a sleep */
}

/* The daemon stops on both, at once on a second one; a worker follows the daemon, not the terminal. */
static void handle_signals(bool worker)
{
    struct sigaction action = {.sa_handler = on_stop};
    sigaction(SIGTERM, &action, NULL);
    if (worker)
        action.sa_handler = SIG_IGN;
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = on_child;
    sigaction(SIGCHLD, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL); /* a limit of file sizes is refused with words */
    sigset_t ready;                    /* the daemon starts its workers with these blocked */
    sigemptyset(&ready);
    sigaddset(&ready, SIGINT);
    sigaddset(&ready, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &ready, NULL);
}

/* Test builds: SPW_CRASH_DAEMON=POINT:N in the environment kills the daemon, not its workers, at
 * the Nth pass of that point. With SPW_CRASH_WORKERS=DIR a worker K that finds a file .crash.K in
 * DIR takes the order in it, POINT:N, and the file: its successor lives. */
#ifdef SPW_CRASH_POINTS
static const char *worker_order(const char *which, char *text, size_t bytes)
{
    char path[256];
    const char *dir = getenv("SPW_CRASH_WORKERS");
    snprintf(path, sizeof path, "%s/.crash.%lu", dir ? dir : "", strtoul(which, NULL, 10));
    FILE *file = dir ? fopen(path, "r") : NULL;
    size_t n = file ? fread(text, 1, bytes - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    return n > 0 && unlink(path) == 0 ? text : NULL;
}

static void arm_crash_point(const char *worker)
{
    static char order[80];
    const char *text =
        worker ? worker_order(worker, order, sizeof order) : getenv("SPW_CRASH_DAEMON");
    static char name[64];
    const char *nth = text ? strchr(text, ':') : NULL;
    if (!nth || (size_t)(nth - text) >= sizeof name)
        return;
    memcpy(name, text, (size_t)(nth - text));
    spw_crash_arm(name, (uint32_t)strtoul(nth + 1, NULL, 10));
}
#else
static void arm_crash_point(const char *worker)
{
    (void)worker;
}
#endif

static void print_warning(void *ctx, const char *words)
{
    (void)ctx;
    fprintf(stderr, "spillwayd: warning: %s\n", words);
}

static void log_warning(void *ctx, const char *words)
{
    (void)ctx;
    spw_log(SPW_LOG_WARNING, "%s", words);
}

/* 0, or the exit status. */
static int print_place(const struct spw_config *config)
{
    static struct spw_place place;
    struct spw_error err = {0};
    if (spw_placing_decide(config, &place, &err)) {
        fprintf(stderr, "spillwayd: %s\n", err.text);
        return 2;
    }
    spw_placing_print(&place, stdout);
    for (uint32_t i = 0; i < place.notes; i++)
        if (place.note[i].severity != SPW_PLACE_INFO)
            print_warning(NULL, place.note[i].words);
    return 0;
}

/* "K:ID:FD": its number, the pool's id, the file of places; or less of it. */
static int be_worker(const struct spw_config *config, const char *text)
{
    struct spw_worker_end end;
    char *id, *file = NULL;
    struct spw_worker_which which = {.k = (uint32_t)strtoul(text, &id, 10), .place_fd = -1};
    if (*id == ':')
        which.pool_id = strtoull(id + 1, &file, 16);
    if (file && *file == ':')
        which.place_fd = (int)strtol(file + 1, NULL, 10);
    spw_worker_main(config, &which, &stop, &end);
    if (end.status)
        spw_log(SPW_LOG_ERROR, "%s", end.err.text);
    return end.status;
}

int main(int argc, char **argv)
{
    struct spw_config config;
    char err[1024] = "";
    bool worker = argc >= 3 && strcmp(argv[1], "worker") == 0;
    int skip = worker ? 2 : 0;
    if (spw_config_parse(argc - skip, argv + skip, &config, err, sizeof err)) {
        fprintf(stderr, "spillwayd: %s\n", err);
        return 2;
    }
    bool starts = config.action == SPW_CONFIG_RUN || config.action == SPW_CONFIG_CHECK;
    if (!worker && starts && spw_config_look_below(&config, err, sizeof err)) {
        fprintf(stderr, "spillwayd: %s\n", err);
        return 2;
    }
    switch (config.action) {
    case SPW_CONFIG_HELP:
        spw_config_help(&config, stdout);
        return 0;
    case SPW_CONFIG_VERSION:
        puts("spillwayd " SPW_VERSION);
        return 0;
    case SPW_CONFIG_CHECK:
        spw_config_print(&config, stdout);
        spw_config_warn(&config, print_warning, NULL);
        return print_place(&config);
    case SPW_CONFIG_RUN:
        break;
    }
    arm_crash_point(worker ? argv[2] : NULL);
    handle_signals(worker);
    spw_guard_install(); /* refused only for a signal that there isn't */
    spw_log_open(&(struct spw_log_config){.quiet = config.quiet});
    if (!worker && !config.quiet)
        spw_config_print(&config, stderr);
    if (!worker)
        spw_config_warn(&config, log_warning, NULL);
    int status = worker ? be_worker(&config, argv[2]) : spw_daemon_run(&config, argv, &stop);
    spw_log_close();
    return status;
}
