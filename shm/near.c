/* See near.h. Written: page tables. */
#include "shm/near.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

#define GOLDEN                                                                                     \
    0x9e3779b97f4a7c15ull /* steps by it are even over any range, and no multiple of nodes */

static bool is_in(const uint64_t nodes[SPW_NODE_WORDS], int node)
{
    return node >= 0 && node < (int)SPW_NODES_MAX && nodes[node / 64] >> node % 64 & 1;
}

static int ask_one_by_one(void *const *page, uint32_t count, int *out_node)
{
    for (uint32_t i = 0; i < count; i++)
        if (syscall(SYS_get_mempolicy, &out_node[i], NULL, 0ul, page[i],
                    (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)))
            return -errno;
    return 0;
}

/* Into this process's page table, by which nodes are told. By a call where the kernel has it: copies may
 * write the bytes meanwhile. */
static void page_in(void *page)
{
    if (madvise(page, 1, MADV_POPULATE_READ))
        (void)*(volatile const uint8_t *)page;
}

int spw_near_where_kernel(void *ctx, void *const *page, uint32_t count, int *out_node)
{
    (void)ctx;
    for (uint32_t i = 0; i < count; i++)
        page_in(page[i]);
    if (syscall(SYS_move_pages, 0, (unsigned long)count, page, NULL, out_node, 0) == 0)
        return 0;
    return ask_one_by_one(page, count, out_node);
}

int spw_near_look(void *start, uint64_t bytes, const uint64_t nodes[SPW_NODE_WORDS],
                  spw_near_where *where, void *ctx, struct spw_near_sample *out_sample)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), pages = bytes / page_bytes;
    uint32_t count = pages < SPW_NEAR_SAMPLE ? (uint32_t)pages : SPW_NEAR_SAMPLE;
    struct spw_near_sample sample = {0};
    void *page[SPW_NEAR_SAMPLE];
    int node[SPW_NEAR_SAMPLE];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t nth = pages <= SPW_NEAR_SAMPLE
                           ? i
                           : (uint64_t)((unsigned __int128)(i * GOLDEN) * pages >> 64);
        page[i] = (uint8_t *)start + nth * page_bytes;
    }
    int rc = count ? where(ctx, page, count, node) : -ENODATA;
    for (uint32_t i = 0; !rc && i < count; i++) {
        if (node[i] < 0)
            continue;
        sample.looked++;
        sample.near += is_in(nodes, node[i]);
    }
    if (!rc && sample.looked == 0)
        rc = -ENODATA;
    if (!rc)
        *out_sample = sample;
    return rc;
}

uint32_t spw_near_permille(const struct spw_near_sample *sample)
{
    return sample->looked ? sample->near * 1000 / sample->looked : 0;
}
