/* See bind.h. Written: affinity of the calling thread; page tables, by reading. */
#include "tools/bind.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GOLDEN                                                                                     \
    0x9e3779b97f4a7c15ull /* steps by it are even over any range, and no multiple of nodes */

int spw_bind_cpus(const struct spw_set *cpus)
{
    /* the kernel's masks are words of bits, like a set */
    return syscall(SYS_sched_setaffinity, 0, sizeof cpus->word, cpus->word) < 0 ? -errno : 0;
}

static int ask_one_by_one(void *const *page, uint32_t count, int *out_node)
{
    for (uint32_t i = 0; i < count; i++)
        if (syscall(SYS_get_mempolicy, &out_node[i], NULL, 0ul, page[i],
                    (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)))
            return -errno;
    return 0;
}

int spw_bind_where_kernel(void *ctx, void *const *page, uint32_t count, int *out_node)
{
    (void)ctx;
    for (uint32_t i = 0; i < count; i++)
        (void)*(volatile const uint8_t *)page[i];
    if (syscall(SYS_move_pages, 0, (unsigned long)count, page, NULL, out_node, 0) == 0)
        return 0;
    return ask_one_by_one(page, count, out_node);
}

int spw_bind_sample(void *start, uint64_t bytes, const struct spw_set *nodes, spw_bind_where *where,
                    void *ctx, struct spw_bind_sample *out_sample)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), pages = bytes / page_bytes;
    uint32_t count = pages < SPW_BIND_SAMPLE ? (uint32_t)pages : SPW_BIND_SAMPLE;
    struct spw_bind_sample sample = {0};
    void *page[SPW_BIND_SAMPLE];
    int node[SPW_BIND_SAMPLE];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t nth = pages <= SPW_BIND_SAMPLE
                           ? i
                           : (uint64_t)((unsigned __int128)(i * GOLDEN) * pages >> 64);
        page[i] = (uint8_t *)start + nth * page_bytes;
    }
    int rc = count ? where(ctx, page, count, node) : -ENODATA;
    for (uint32_t i = 0; !rc && i < count; i++) {
        if (node[i] < 0)
            continue;
        sample.looked++;
        sample.near += spw_set_has(nodes, (uint32_t)node[i]);
    }
    if (!rc && sample.looked == 0)
        rc = -ENODATA;
    if (!rc)
        *out_sample = sample;
    return rc;
}

uint32_t spw_bind_permille(const struct spw_bind_sample *sample)
{
    return sample->looked ? sample->near * 1000 / sample->looked : 0;
}

const char *spw_bind_missing(int rc)
{
    switch (rc) {
    case -EPERM:
    case -EACCES:
        return "CAP_SYS_NICE is missing, or a seccomp profile denies it (docker: --cap-add "
               "SYS_NICE)";
    case -ENOSYS:
        return "a seccomp profile denies it, or the kernel has no NUMA support";
    default:
        return "the system says it can't be";
    }
}
