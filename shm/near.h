#ifndef SPW_SHM_NEAR_H
#define SPW_SHM_NEAR_H
/*
 * How much of some memory lies on its NUMA nodes: a sample of its pages is asked. Nothing is written
 * but page tables of this process.
 */
#include "shm/region.h"

/** Say in @out_node[i] where page @page[i] of this process lies, or a negative errno of that page. 0 or
 * a negative errno of all. */
typedef int spw_near_where(void *ctx, void *const *page, uint32_t count, int *out_node);
/** What the kernel says: each page is brought into the page table, so that it is there. */
spw_near_where spw_near_where_kernel;

#define SPW_NEAR_SAMPLE 256u

struct spw_near_sample {
    uint32_t looked; /* pages of which the node is known */
    uint32_t near;   /* of these on the nodes            */
};

/**
 * Look at up to SPW_NEAR_SAMPLE pages, all over [@start, @start + @bytes), which are reserved.
 * @nodes  bits as in spw_memory.node
 *
 * 0, or a negative errno where nothing can be known, with @out_sample untouched.
 */
int spw_near_look(void *start, uint64_t bytes, const uint64_t nodes[SPW_NODE_WORDS],
                  spw_near_where *where, void *ctx, struct spw_near_sample *out_sample);
/** Of @sample in thousandths, rounded down. */
uint32_t spw_near_permille(const struct spw_near_sample *sample);

#endif
