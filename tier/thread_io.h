#ifndef SPW_TIER_THREAD_IO_H
#define SPW_TIER_THREAD_IO_H
/*
 * I/O engine of plain system calls in a pool of threads: works wherever files do.
 */
#include "tier/io.h"

/** @why is what its mode says: why it isn't another engine, "" = nothing. 0, -EINVAL, -ENOMEM, or why
 * no thread could be made. Nothing is registered here. */
int spw_thread_io_open(const struct spw_io_config *config, const char *why,
                       struct spw_io_handle *out_io);

#endif
