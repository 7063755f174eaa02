#ifndef SPW_TOOLS_OPTIONS_IMPL_H
#define SPW_TOOLS_OPTIONS_IMPL_H
/* What options.c and options_file.c share; nobody else includes this. */
#include "tools/options.h"

/**
 * Check @text and, unless a stronger origin has set the option already, store it. @label names the
 * option in the message. Returns 0 or -EINVAL with a message in @err.
 */
int spw_options_set(struct spw_options *options, size_t index, const char *label, const char *text,
                    enum spw_option_origin origin, char *err, size_t err_bytes);

/** The key of @option in a file: its name with _ for -; returns @out_key. */
char *spw_options_key(const struct spw_option *option, char *out_key, size_t key_bytes);

#endif
