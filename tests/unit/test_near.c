/* shm/near: how much of some memory lies on its nodes, asked of a stand-in host and of the kernel. */
#include "shm/near.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/support/deny.h"
#include "tests/support/env.h"

TestSuite(near, .timeout = 30);

#define PAGE 4096ull

/* Pages of a stand-in host: which node has page n. */
struct pages {
    uint8_t *start;
    uint64_t count;
    uint64_t far_from; /* pages from here on are on node 1 */
    uint64_t stride;   /* else each of this many is */
    int rc, node;      /* node: of all others */
    uint32_t asked;
    uint64_t lowest, highest;
};

static int where(void *ctx, void *const *page, uint32_t count, int *out_node)
{
    struct pages *pages = ctx;
    pages->lowest = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t n = (uint64_t)((uint8_t *)page[i] - pages->start) / PAGE;
        if (n >= pages->count)
            return -EFAULT;
        pages->lowest = n < pages->lowest ? n : pages->lowest;
        pages->highest = n > pages->highest ? n : pages->highest;
        out_node[i] =
            n >= pages->far_from || (pages->stride && n % pages->stride == 0) ? 1 : pages->node;
    }
    pages->asked = count;
    return pages->rc;
}

static int sample(struct pages *pages, struct spw_near_sample *out)
{
    const uint64_t nodes[SPW_NODE_WORDS] = {1};
    pages->start = (uint8_t *)(16 * PAGE); /* nobody touches it */
    return spw_near_look(pages->start, pages->count * PAGE, nodes, where, pages, out);
}

Test(near, TP_1_pages_all_over_the_range_are_looked_at_and_no_more_than_a_sample)
{
    struct pages pages = {.count = 10000000, .far_from = UINT64_MAX};
    struct spw_near_sample got;
    cr_assert_eq(sample(&pages, &got), 0);
    cr_expect_eq(got.looked, SPW_NEAR_SAMPLE);
    cr_expect_eq(spw_near_permille(&got), 1000);
    cr_expect_lt(pages.lowest, 100000);
    cr_expect_gt(pages.highest, 9900000);
    pages = (struct pages){.count = 3, .far_from = UINT64_MAX};
    cr_assert_eq(sample(&pages, &got), 0);
    cr_expect_eq(got.looked, 3, "each page of a small one");
}

Test(near, TP_1_the_share_elsewhere_is_seen_in_a_run_and_in_every_other_page)
{
    struct pages pages = {.count = 1000000, .far_from = 950000};
    struct spw_near_sample got;
    cr_assert_eq(sample(&pages, &got), 0);
    cr_expect(spw_near_permille(&got) > 930 && spw_near_permille(&got) < 970, "%u",
              spw_near_permille(&got));
    for (uint64_t stride = 2; stride <= 8; stride *= 2) {
        pages = (struct pages){.count = 1 << 20, .far_from = UINT64_MAX, .stride = stride};
        cr_assert_eq(sample(&pages, &got), 0);
        uint32_t want = (uint32_t)(1000 - 1000 / stride), is = spw_near_permille(&got);
        cr_expect(is > want - 100 && is < want + 100, "interleaved by %u: %u", (unsigned)stride,
                  is);
    }
}

Test(near, pages_that_cant_be_told_dont_count_and_none_at_all_is_an_error)
{
    struct pages pages = {.count = 1000, .far_from = 500, .node = -EFAULT};
    struct spw_near_sample got;
    cr_assert_eq(sample(&pages, &got), 0);
    cr_expect(got.looked > 100 && got.looked < 150 && got.near == 0);
    pages.far_from = UINT64_MAX;
    cr_expect_eq(sample(&pages, &got), -ENODATA);
    pages.rc = -EPERM;
    cr_expect_eq(sample(&pages, &got), -EPERM);
}

Test(near, what_the_kernel_says_of_real_pages)
{
    uint64_t all[SPW_NODE_WORDS];
    struct spw_near_sample got;
    memset(all, 0xff, sizeof all);
    uint8_t *at = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(at, MAP_FAILED);
    int rc = spw_near_look(at, 64 * PAGE, all, spw_near_where_kernel, NULL, &got);
    if (rc == -EPERM || rc == -ENOSYS)
        cr_skip("denied here");
    cr_assert_eq(rc, 0);
    cr_expect(got.looked == 64 && got.near == 64);
}

static uint8_t *pages_of_mine(void)
{
    return mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static int without_move_pages(void *arg)
{
    const uint64_t node_0[SPW_NODE_WORDS] = {1};
    struct spw_near_sample got = {0};
    (void)arg;
    if (support_deny(SYS_move_pages, EPERM))
        return SUPPORT_SKIP;
    int rc = spw_near_look(pages_of_mine(), 8 * PAGE, node_0, spw_near_where_kernel, NULL, &got);
    if (rc == -ENOSYS)
        return SUPPORT_SKIP;
    if (rc || got.looked != 8)
        return 10;
    if (support_deny(SYS_get_mempolicy, EPERM))
        return SUPPORT_SKIP;
    rc = spw_near_look(pages_of_mine(), 8 * PAGE, node_0, spw_near_where_kernel, NULL, &got);
    return rc == -EPERM ? 0 : 11;
}

Test(near, pages_are_asked_one_by_one_where_they_cant_be_at_once)
{
    int status = support_wait(support_fork(without_move_pages, NULL), 10000);
    if (status == SUPPORT_SKIP)
        cr_skip("this machine doesn't allow it");
    cr_expect_eq(status, 0);
}
