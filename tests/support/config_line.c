/* See config_line.h. */
#include "tests/support/config_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MAX 12

int config_line(const char *line, struct spw_config *config, char *err, size_t err_bytes)
{
    char words[1024];
    char *argv[ARGS_MAX + 2] = {(char *)"spillwayd"};
    int argc = 1;

    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word && argc <= ARGS_MAX; word = strtok(NULL, " "))
        argv[argc++] = word;
    return spw_config_parse(argc, argv, config, err, err_bytes);
}

void config_write(char path[CONFIG_PATH_BYTES], const char *text)
{
    snprintf(path, CONFIG_PATH_BYTES, "/tmp/spw-config-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        perror(path);
        abort();
    }
    close(fd);
}

int config_file(const char *text, const char *flags, struct spw_config *config, char *err,
                size_t err_bytes)
{
    char path[CONFIG_PATH_BYTES], line[256];
    config_write(path, text);
    snprintf(line, sizeof line, "--config %s %s", path, flags);
    int rc = config_line(line, config, err, err_bytes);
    unlink(path);
    return rc;
}
