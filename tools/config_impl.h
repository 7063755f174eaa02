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

/** What can't be right but works, in words; false: nothing. */
bool spw_config_warns(const struct spw_config *config, char *out, size_t room);

#endif
