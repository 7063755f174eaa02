/* The ring of a client's last decisions: laps, records in the making, bytes that make no sense. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "sched/explain.h"
#include "sched/verdict.h"
#include "shm/client.h"
#include "tests/support/explained.h"

TestSuite(explain, .timeout = 20);

static const struct spw_geometry geometry = {
    .workers = 1,
    .clients = 1,
    .capacity_chunks = 4,
    .slots = 8,
    .slot_bytes = 64,
    .update_records = 8,
    .gate_records = 2,
    .command_slots = 8,
    .completion_slots = 8,
    .index_buckets = 8,
};

static struct spw_client_view view;
static struct spw_client_head *head;

static void start(void)
{
    struct spw_client_map map;
    spw_client_map_init(&geometry, &map);
    void *bytes = aligned_alloc(64, map.size_bytes);
    memset(bytes, 0, map.size_bytes);
    spw_client_view_init(&view, bytes, &geometry);
    head = view.head;
}

static void stop(void)
{
    free(head);
}

static void write_up_to(uint64_t end)
{
    for (uint64_t n = spw_load_relaxed(&head->decisions); n != end; n++) {
        struct spw_explained explained = explained_stamp(n);
        spw_explain_write(head, &explained);
    }
}

static bool same(const struct spw_explained *a, const struct spw_explained *b)
{
    return memcmp(a, b, offsetof(struct spw_explained, group)) == 0 && a->group == b->group &&
           a->space == b->space && a->action == b->action && a->reason == b->reason &&
           a->flags == b->flags;
}

/* Is exactly [first, end) there, each as it was written? */
static bool holds(uint64_t first, uint64_t end)
{
    struct spw_explained got;
    uint64_t seen_first, seen_end;
    spw_explain_range(head, &seen_first, &seen_end);
    bool right = seen_first == first && seen_end == end &&
                 spw_explain_read(head, first - 1, &got) == -ENOENT &&
                 spw_explain_read(head, end, &got) == -ENOENT &&
                 spw_explain_read(head, first + (1ull << 63), &got) == -ENOENT;
    for (uint64_t n = first; right && n != end; n++) {
        struct spw_explained want = explained_stamp(n);
        right = spw_explain_read(head, n, &got) == 0 && same(&got, &want);
    }
    return right;
}

Test(explain, records_are_read_as_written_over_laps, .init = start, .fini = stop)
{
    const uint64_t ends[] = {1,
                             2,
                             SPW_DECISION_RECORDS - 1,
                             SPW_DECISION_RECORDS,
                             SPW_DECISION_RECORDS + 1,
                             SPW_DECISION_RECORDS * 3 + 7};
    cr_expect(holds(0, 0), "none in a new object");
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        write_up_to(ends[i]);
        cr_expect(
            holds(ends[i] > SPW_DECISION_RECORDS ? ends[i] - SPW_DECISION_RECORDS : 0, ends[i]),
            "%zu", i);
    }
}

Test(explain, unknown_and_none_keep_their_values, .init = start, .fini = stop)
{
    struct spw_explained got, want = explained_stamp(5);
    want.group = SPW_EXPLAINED_NO_GROUP;
    want.eta_ns = SPW_EXPLAINED_NO_ETA;
    want.budget_tokens = SPW_EXPLAINED_AUTO;
    spw_explain_write(head, &want);
    cr_assert_eq(spw_explain_read(head, 0, &got), 0);
    cr_expect(same(&got, &want));
}

Test(explain, numbers_go_on_where_they_wrap, .init = start, .fini = stop)
{
    struct spw_explained got;
    spw_store_relaxed(&head->decisions, UINT64_MAX - 1);
    spw_store_relaxed(&head->decision_base, UINT64_MAX - 1);
    write_up_to(3);
    uint64_t first, end;
    spw_explain_range(head, &first, &end);
    cr_expect_eq(first, UINT64_MAX - 1);
    cr_expect_eq(end, 3);
    cr_expect_eq(spw_explain_read(head, UINT64_MAX - 1, &got), 0);
    cr_expect_eq(spw_explain_read(head, UINT64_MAX, &got), -EAGAIN, "the one that reads as open");
    cr_expect_eq(spw_explain_read(head, 0, &got), 0);
    cr_expect_eq(got.tag, explained_stamp(0).tag);
}

Test(explain, a_record_in_the_making_or_overwritten_is_told_apart, .init = start, .fini = stop)
{
    struct spw_explained got = {.tag = 99};
    write_up_to(10);
    spw_store_relaxed(&head->decision[4].seq, 0);
    cr_expect_eq(spw_explain_read(head, 4, &got), -EAGAIN);
    spw_store_relaxed(&head->decision[4].seq, 4 + SPW_DECISION_RECORDS + 1);
    cr_expect_eq(spw_explain_read(head, 4, &got), -ENOENT);
    spw_store_relaxed(&head->decision[4].seq, 4);
    cr_expect_eq(spw_explain_read(head, 4, &got), -ENOENT);
    cr_expect_eq(got.tag, 99, "untouched");
    spw_store_relaxed(&head->decision[4].seq, 5);
    cr_expect_eq(spw_explain_read(head, 4, &got), 0);
    cr_expect_eq(got.tag, explained_stamp(4).tag);
}

Test(explain, what_makes_no_sense_is_refused, .init = start, .fini = stop)
{
    static const struct {
        uint32_t word;
        uint64_t bits;
    } bad[] = {
        {12, 16},                    /* group */
        {12, UINT32_MAX - 1},        /* group */
        {12, 64ull << 32},           /* space */
        {13, 3},                     /* action */
        {13, SPW_REASON_COUNT << 8}, /* reason */
        {13, 1ull << 24},            /* beyond the flags */
        {13, 0x0100000000000000ull},
    };
    struct spw_explained got, zero = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spw_explain_write(head, &zero);
        cr_expect_eq(spw_explain_read(head, i, &got), 0);
        spw_store_relaxed(&head->decision[i].word[bad[i].word], bad[i].bits);
        cr_expect_eq(spw_explain_read(head, i, &got), -EBADMSG, "%zu", i);
    }
}

/* Whatever the bytes are, what is handed out is within its bounds. */
Test(explain, any_bytes_are_read_safely, .init = start, .fini = stop)
{
    uint64_t state = 88172645463325252ull, good = 0, bad = 0;
    uint8_t *bytes = (uint8_t *)head->decision;
    struct spw_explained got;
    write_up_to(SPW_DECISION_RECORDS);
    for (uint32_t i = 0; i < 40000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[state % sizeof head->decision] ^= (uint8_t)(1u << (state >> 32) % 8);
        if (i % 1000 == 0)
            spw_store_relaxed(&head->decision_base, state);
        int rc = spw_explain_read(head, state >> 40 & 255, &got);
        good += rc == 0;
        bad += rc == -EBADMSG;
        cr_assert(rc != 0 ||
                  (got.action <= SPW_ACTION_DEFER && got.reason < SPW_REASON_COUNT &&
                   (got.group < SPW_GROUP_COUNT_MAX || got.group == SPW_EXPLAINED_NO_GROUP)));
    }
    cr_expect_gt(good, 100);
    cr_expect_gt(bad, 100);
}

Test(explain, a_new_holder_begins_with_none, .init = start, .fini = stop)
{
    struct spw_explained got;
    write_up_to(300);
    spw_client_take_over(&view);
    cr_expect(holds(300, 300));
    cr_expect_eq(spw_explain_read(head, 299, &got), -ENOENT);
    write_up_to(302);
    cr_expect(holds(300, 302), "and numbers its own from there on");
    spw_client_take_over(&view);
    cr_expect(holds(302, 302));
}
