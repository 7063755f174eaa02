#ifndef SPW_TOOLS_HOST_IMPL_H
#define SPW_TOOLS_HOST_IMPL_H
/*
 * Parts of the gathering of facts: host.c has the rest.
 */
#include "tools/host.h"

/** Facts of the tier below's directory, if @config names one. */
void spw_host_gather_nvme(const struct spw_config *config, struct spw_host *host);

#endif
