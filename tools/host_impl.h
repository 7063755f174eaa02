#ifndef SPW_TOOLS_HOST_IMPL_H
#define SPW_TOOLS_HOST_IMPL_H
/*
 * Parts of the gathering of facts: host.c has the rest.
 */
#include "tools/host.h"

/** First line of a file, without its newline; "" and false if it can't be read. */
bool spw_host_read_line(const char *root, const char *path, char *out, size_t bytes);
/** "KEY: value" of a file like /proc/meminfo: what follows key and blanks; "" if there is none. */
void spw_host_read_key(const char *root, const char *path, const char *key, char *out,
                       size_t bytes);
/** The number at the beginning of a file; @otherwise if there is none. */
uint64_t spw_host_read_number(const char *root, const char *path, uint64_t otherwise);

/** Is a PCI device of this vendor and class one that the driver may have? */
bool spw_host_is_gpu(unsigned long vendor, unsigned long class);
/** Facts of the tier below's directory, if @config names one. */
void spw_host_gather_nvme(const struct spw_config *config, struct spw_host *host);

#endif
