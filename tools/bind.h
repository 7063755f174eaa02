#ifndef SPW_TOOLS_BIND_H
#define SPW_TOOLS_BIND_H
/*
 * A worker's place carried out: its threads are bound to CPUs. Memory is placed when its objects are
 * made (shm/region.h), and looked at afterwards (shm/near.h).
 *
 * Threads and memory are bound apart: either may be denied (a container without CAP_SYS_NICE, a
 * seccomp profile), and the other goes on.
 */
#include "tools/set.h"

/** Bind the calling thread, and threads that it starts, to @cpus. 0 or a negative errno. */
int spw_bind_cpus(const struct spw_set *cpus);

/** What is to be done about @rc of a refused binding: what is missing. Static. */
const char *spw_bind_missing(int rc);

#endif
