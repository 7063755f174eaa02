/*
 * A client dies at every step of writing a decision. Readers then see whole records only: those
 * before, and the new one once it is counted. The next holder's records are all seen.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/mman.h>

#include "sched/explain.h"
#include "shm/crash_point.h"
#include "tests/support/env.h"

TestSuite(explain_crash, .timeout = 60);

#define LAP SPW_DECISION_RECORDS

static struct spw_client_head *head;

static void write_one(uint64_t n)
{
    const struct spw_explained explained = {
        .tag = n, .budget_tokens = ~n, .group = (uint32_t)(n % SPW_GROUP_COUNT_MAX)};
    spw_explain_write(head, &explained);
}

static bool is_whole(const struct spw_explained *explained, uint64_t n)
{
    return explained->tag == n && explained->budget_tokens == ~n &&
           explained->group == n % SPW_GROUP_COUNT_MAX;
}

static int write_and_die(void *point)
{
    spw_crash_arm(point, 1);
    write_one(spw_load_relaxed(&head->decisions));
    return 0;
}

/* How many of the holder's records can be read; all of these must be whole. */
static uint64_t readable(void)
{
    struct spw_explained got;
    uint64_t first, end, whole = 0;
    spw_explain_range(head, &first, &end);
    for (uint64_t n = first; n != end; n++) {
        int rc = spw_explain_read(head, n, &got);
        cr_assert(rc == 0 || rc == -EAGAIN || rc == -ENOENT, "%d", rc);
        cr_assert(rc != 0 || is_whole(&got, n));
        whole += rc == 0;
    }
    return whole;
}

Test(explain_crash, a_death_in_a_write_costs_one_record_and_spoils_none)
{
    static const struct {
        char point[32];
        uint64_t lost, counted;
    } death[] = {
        {"explain.seq_cleared", 1, 0},
        {"explain.word_stored", 1, 0},
        {"explain.seq_stored", 1, 0}, /* overwritten, and the new one isn't counted */
        {"explain.decisions_stored", 0, 1},
    };
    head = mmap(NULL, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(head, MAP_FAILED);
    for (uint64_t n = 0; n < LAP + 9; n++)
        write_one(n);
    for (size_t i = 0; i < sizeof death / sizeof death[0]; i++) {
        uint64_t before = spw_load_relaxed(&head->decisions);
        int status = support_wait(support_fork(write_and_die, (void *)death[i].point), 10000);
        cr_assert_eq(status, SUPPORT_SIGNALLED + SIGKILL, "%s: %d", death[i].point, status);
        cr_expect_eq(spw_load_relaxed(&head->decisions) - before, death[i].counted);
        cr_expect_eq(readable(), LAP - death[i].lost, "%s", death[i].point);
        for (uint64_t n = spw_load_relaxed(&head->decisions); n < before + 3; n++)
            write_one(n);
        cr_expect_eq(readable(), LAP, "%s: the next holder", death[i].point);
    }
}
