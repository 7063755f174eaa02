/*
 * inside_engine DIR NAME K [GPU]: a process that is worker K of pool NAME in DIR by a thread. Does what the
 * lines of its standard input say, and answers each by one:
 *
 *   start      "up", or "refused STATUS WORDS"
 *   runs       "runs", or "ended WORDS"
 *   stop       "stopped STATUS"
 *   fork       "forked": a child that does nothing outlives this process by three seconds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/inside.h"

static struct spw_inside *inside;
static char words[256];

static void start(const struct spw_inside_options *options)
{
    int rc = spw_inside_start(options, &inside, words, sizeof words);
    if (rc == 0)
        puts("up");
    else
        printf("refused %d %s\n", rc, words);
}

static void outlive(void)
{
    pid_t child = fork();
    if (child == 0) {
        sleep(3);
        _exit(0);
    }
    puts(child > 0 ? "forked" : "no child");
}

int main(int argc, char **argv)
{
    char line[64];
    if (argc < 4)
        return 2;
    struct spw_inside_options options = {.size_bytes = sizeof options,
                                         .worker = (uint32_t)strtoul(argv[3], NULL, 10),
                                         .pool = argv[2],
                                         .shm_dir = argv[1],
                                         .gpu = argc > 4 ? argv[4] : NULL};
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "start\n") == 0)
            start(&options);
        else if (strcmp(line, "fork\n") == 0)
            outlive();
        else if (!inside)
            puts("no worker");
        else if (strcmp(line, "stop\n") == 0) {
            printf("stopped %d\n", spw_inside_stop(inside));
            inside = NULL;
        } else if (spw_inside_runs(inside, words, sizeof words))
            puts("runs");
        else
            printf("ended %s\n", words);
        fflush(stdout);
    }
    spw_inside_stop(inside);
    return 0;
}
