/*
 * spillwayd: runs a pool in the foreground. Reads its configuration, then becomes the daemon; the
 * same program, started by the daemon as "spillwayd worker K ...", is a worker.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/config.h"
#include "tools/daemon.h"

static volatile sig_atomic_t stop;

static void on_stop(int sig)
{
    (void)sig;
    stop = 1;
}

static void on_child(int sig)
{
    (void)sig; /* only ends a sleep */
}

/* The daemon stops on both; a worker follows the daemon, not the terminal. */
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
    switch (config.action) {
    case SPW_CONFIG_HELP:
        spw_config_help(&config, stdout);
        return 0;
    case SPW_CONFIG_VERSION:
        puts("spillwayd " SPW_VERSION);
        return 0;
    case SPW_CONFIG_CHECK:
        spw_config_print(&config, stdout);
        return 0;
    case SPW_CONFIG_RUN:
        break;
    }
    handle_signals(worker);
    if (worker)
        return spw_worker_main(&config, (uint32_t)strtoul(argv[2], NULL, 10), &stop);
    if (!config.quiet)
        spw_config_print(&config, stderr);
    return spw_daemon_run(&config, argc, argv, &stop);
}
