#ifndef SPW_TOOLS_BIND_H
#define SPW_TOOLS_BIND_H
/*
 * A worker's place carried out, and looked at afterwards: threads are bound to CPUs, and a sample of
 * pages is asked where it lies. Memory itself is placed when its objects are made (shm/region.h).
 *
 * Threads and memory are bound apart: either may be denied (a container without CAP_SYS_NICE, a
 * seccomp profile), and the other goes on.
 */
#include "shm/region.h"
#include "tools/set.h"

/** Bind the calling thread, and threads that it starts, to @cpus. 0 or a negative errno. */
int spw_bind_cpus(const struct spw_set *cpus);

/** Say in @out_node[i] where page @page[i] of this process lies, or a negative errno of that page. 0 or
 * a negative errno of all. */
typedef int spw_bind_where(void *ctx, void *const *page, uint32_t count, int *out_node);
/** What the kernel says: each page is read once, so that it is there. */
spw_bind_where spw_bind_where_kernel;

#define SPW_BIND_SAMPLE 256u

struct spw_bind_sample {
    uint32_t looked; /* pages of which the node is known */
    uint32_t near;   /* of these on the nodes            */
};

/**
 * Look at up to SPW_BIND_SAMPLE pages, all over [@start, @start + @bytes), which are reserved.
 * 0, or a negative errno where nothing can be known, with @out_sample untouched.
 */
int spw_bind_sample(void *start, uint64_t bytes, const struct spw_set *nodes, spw_bind_where *where,
                    void *ctx, struct spw_bind_sample *out_sample);
/** Of @sample in thousandths, rounded down. */
uint32_t spw_bind_permille(const struct spw_bind_sample *sample);

/** What is to be done about @rc of a refused binding: what is missing. Static. */
const char *spw_bind_missing(int rc);

#endif
