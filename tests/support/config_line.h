#ifndef SPW_TESTS_SUPPORT_CONFIG_LINE_H
#define SPW_TESTS_SUPPORT_CONFIG_LINE_H
/*
 * Configurations of spillwayd from a line or a file, as tests write them. One thread.
 */
#include "tools/config.h"

#define CONFIG_PATH_BYTES 32

/** Parse what "a b c" stands for as a command line; no quoting, 12 words at most. As spw_config_parse(). */
int config_line(const char *line, struct spw_config *config, char *err, size_t err_bytes);
/** A new file with @text; the caller unlinks it. A host that refuses ends the process. */
void config_write(char path[CONFIG_PATH_BYTES], const char *text);
/** Parse a file of @text, and @flags behind it. */
int config_file(const char *text, const char *flags, struct spw_config *config, char *err,
                size_t err_bytes);

#endif
