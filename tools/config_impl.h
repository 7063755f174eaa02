#ifndef SPW_TOOLS_CONFIG_IMPL_H
#define SPW_TOOLS_CONFIG_IMPL_H
/*
 * Parts of the check of a configuration: config.c has the table and the rest.
 */
#include "tools/config.h"

/** Write "--first (value) WHY --second (value)" into @err; returns -EINVAL. */
int spw_config_refuse_pair(const struct spw_config *config, const char *first, const char *why,
                           const char *second, char *err, size_t err_bytes);

/** That the options of [nvme] make sense together and with the others; nvme_dir is made absolute. 0
 * or a negative errno. */
int spw_config_check_nvme(struct spw_config *config, char *err, size_t err_bytes);

/** That the lists with an entry a worker have as many, of the right form. 0 or a negative errno. */
int spw_config_check_place(const struct spw_config *config, char *err, size_t err_bytes);

typedef void spw_config_say(void *ctx, const char *words);

/** @say each thing that can't be meant but works: value and remedy. */
void spw_config_warn(const struct spw_config *config, spw_config_say *say, void *ctx);

#endif
