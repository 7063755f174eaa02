/*
 * A client object with any bytes in it, as `spillway explain` and `stat` read it. Nothing is
 * written, what passes the check has names for all it holds, and a record is never shown under
 * another one's number.
 */
#include "sched/decide.h"
#include "sched/explain.h"
#include "sched/verdict.h"
#include "sched/waits.h"
#include "tests/fuzz/guarded.h"

static struct guarded_pool pool;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct spw_client_head *head;
    guarded_pool_make(&pool);
    head = pool.pool.client[0].head;
    for (uint64_t n = 0; n < SPW_DECISION_RECORDS + 20; n++) {
        const struct spw_explained explained = {.time_ns = n,
                                                .request = n / 2,
                                                .group = SPW_EXPLAINED_NO_GROUP,
                                                .eta_ns = SPW_EXPLAINED_NO_ETA,
                                                .reason = (uint8_t)(n % SPW_REASON_COUNT)};
        spw_explain_write(head, &explained);
    }
    for (uint32_t outcome = 0; outcome < SPW_WAIT_OUTCOMES_MAX; outcome++)
        spw_wait_record_add(&head->wait[outcome], 1000ull << outcome);
    guarded_save(&pool.client[0]);
    return 0;
}

static void check_explained(const struct spw_explained *explained)
{
    fuzz_expect(spw_reason_name(explained->reason) != NULL, "a reason without name");
    fuzz_expect(explained->action <= SPW_ACTION_DEFER && explained->space < SPW_SPACES_MAX,
                "what there isn't");
    fuzz_expect(explained->group < SPW_GROUP_COUNT_MAX ||
                    explained->group == SPW_EXPLAINED_NO_GROUP,
                "a group that there isn't");
}

static void explain(const struct spw_client_head *head, uint64_t beyond)
{
    struct spw_explained explained;
    uint64_t first, end;
    spw_explain_range(head, &first, &end);
    fuzz_expect(end - first <= SPW_DECISION_RECORDS, "more records than there is room for");
    for (uint64_t n = first - beyond; n != end + beyond; n++) {
        int rc = spw_explain_read(head, n, &explained);
        fuzz_expect(rc == 0 || rc == -ENOENT || rc == -EAGAIN || rc == -EBADMSG, "no such answer");
        fuzz_expect(rc != 0 || n - first < end - first, "a record beyond the range");
        if (rc == 0)
            check_explained(&explained);
        fuzz_expect(rc != 0 ||
                        spw_load_relaxed(&head->decision[n % SPW_DECISION_RECORDS].seq) == n + 1,
                    "another one's record");
    }
}

static void waits(const struct spw_client_head *head)
{
    static const double share[] = {0.0001, 0.5, 0.99, 1};
    for (uint32_t outcome = 0; outcome < SPW_WAIT_OUTCOMES_MAX; outcome++) {
        struct spw_wait_histogram waits;
        uint64_t last = 0;
        spw_wait_record_read(&head->wait[outcome], &waits);
        for (uint32_t i = 0; i < sizeof share / sizeof share[0]; i++) {
            uint64_t ns = spw_wait_percentile_ns(&waits, share[i]);
            fuzz_expect(ns >= last || waits.count > UINT32_MAX, "percentiles grow");
            last = ns;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct spw_client_head *head = pool.pool.client[0].head;
    const struct spw_client_head *readers = pool.readers.client[0].head;
    const struct fuzz_window window[] = {
        {(void *)&head->decisions, 64},
        {head->decision, sizeof head->decision},
        {head->wait, sizeof head->wait},
    };
    guarded_restore(&pool.client[0]);
    uint8_t beyond = fuzz_u8(&in);
    while (in.left)
        fuzz_damage(&in, window, 3);
    explain(readers, beyond);
    waits(readers);
    return 0;
}
