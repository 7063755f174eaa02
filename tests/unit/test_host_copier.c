/* tier/host_copier: bytes go where they should, the rate is exact, faults do what they say. */
#include "tier/host_copier.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(host_copier, .timeout = 20);

#define SECOND 1000000000ull

static const struct spw_host_faults no_faults;

static struct spw_copier_handle open_copier(uint64_t store_rate, uint64_t load_rate,
                                            uint32_t in_flight, struct spw_host_faults faults)
{
    struct spw_host_copier_config config = {
        .rate_bytes = {store_rate, load_rate},
        .in_flight = {in_flight, in_flight},
        .faults = faults,
    };
    struct spw_copier_handle handle;
    cr_assert(spw_host_copier_open(&config, &handle) == 0);
    return handle;
}

/* One block of 64 bytes from block 0 of @kv to @slot, or back. */
static struct spw_copy small_copy(enum spw_copy_kind kind, uint8_t *kv, uint8_t *slot,
                                  uint64_t nominal_bytes, uint64_t offered_ns, void *tag)
{
    static const uint32_t first_block[1] = {0};
    return (struct spw_copy){.kind = kind,
                             .pieces = 1,
                             .piece_bytes = 64,
                             .blocks = first_block,
                             .kv = kv,
                             .kv_block_bytes = 64,
                             .slot = slot,
                             .nominal_bytes = nominal_bytes,
                             .offered_ns = offered_ns,
                             .tag = tag};
}

static uint8_t kv[4096], slot[4096];

Test(host_copier, gathers_blocks_and_scatters_them_back)
{
    struct spw_copier_handle h = open_copier(0, 0, 4, no_faults);
    const uint32_t from[] = {3, 0, 7}, to[] = {1, 2, 5};
    for (int i = 0; i < 8; i++)
        memset(kv + i * 128, 'a' + i, 128);
    struct spw_copy copy = {.kind = SPW_COPY_STORE,
                            .pieces = 3,
                            .piece_bytes = 96,
                            .blocks = from,
                            .kv = kv,
                            .kv_block_bytes = 128,
                            .slot = slot,
                            .nominal_bytes = 288,
                            .tag = slot};
    struct spw_copy_end end[4];
    cr_assert(h.ops->submit(h.copier, &copy) == 0);
    cr_assert(h.ops->due_ns(h.copier, 0) == 0);
    cr_assert(h.ops->poll(h.copier, 0, end, 4) == 1);
    cr_expect(end[0].tag == slot && end[0].status == 0);
    cr_expect(slot[0] == 'd' && slot[95] == 'd' && slot[96] == 'a' && slot[191] == 'a' &&
              slot[192] == 'h' && slot[287] == 'h' && slot[288] == 0);

    copy.kind = SPW_COPY_LOAD;
    copy.blocks = to;
    cr_assert(h.ops->submit(h.copier, &copy) == 0);
    cr_assert(h.ops->poll(h.copier, 0, end, 4) == 1);
    cr_expect(kv[128] == 'd' && kv[128 + 95] == 'd' && kv[128 + 96] == 'b');
    cr_expect(kv[256] == 'a' && kv[5 * 128] == 'h' && kv[3 * 128] == 'd');
    cr_expect(h.ops->due_ns(h.copier, 0) == UINT64_MAX);
    h.ops->close(h.copier);
}

Test(host_copier, refuses_more_than_its_stream_holds)
{
    struct spw_copier_handle h = open_copier(1, 1, 2, no_faults);
    struct spw_copy store = small_copy(SPW_COPY_STORE, kv, slot, 64, 0, NULL);
    struct spw_copy load = small_copy(SPW_COPY_LOAD, kv, slot, 64, 0, NULL);
    cr_expect(h.ops->submit(h.copier, &store) == 0);
    cr_expect(h.ops->submit(h.copier, &store) == 0);
    cr_expect(h.ops->submit(h.copier, &store) == -EAGAIN);
    cr_expect(h.ops->submit(h.copier, &load) == 0, "streams are separate");
    h.ops->close(h.copier);
}

Test(host_copier, nothing_moves_before_it_is_due)
{
    struct spw_copier_handle h = open_copier(64, 0, 2, no_faults);
    struct spw_copy store = small_copy(SPW_COPY_STORE, kv, slot, 64, 5 * SECOND, NULL);
    struct spw_copy_end end[2];
    memset(kv, 'x', 64);
    cr_assert(h.ops->submit(h.copier, &store) == 0);
    cr_expect(h.ops->due_ns(h.copier, 5 * SECOND) == 6 * SECOND);
    cr_expect(h.ops->poll(h.copier, 6 * SECOND - 1, end, 2) == 0);
    cr_expect(slot[0] == 0);
    cr_expect(h.ops->poll(h.copier, 6 * SECOND, end, 2) == 1);
    cr_expect(slot[63] == 'x');
    h.ops->close(h.copier);
}

/* A rate that does not divide a second, copies that don't either: no rounding adds up. */
Test(host_copier, rate_is_exact_over_many_copies_and_late_polls)
{
    const uint64_t rate = 7, nominal = 3, copies = 7000;
    struct spw_copier_handle h = open_copier(rate, 0, 3, no_faults);
    struct spw_copy store = small_copy(SPW_COPY_STORE, kv, slot, nominal, 0, NULL);
    struct spw_copy_end end[8];
    uint64_t submitted = 0, ended = 0, now = 0, last_end = 0;
    srand(1);
    while (ended < copies) {
        while (submitted < copies && h.ops->submit(h.copier, &store) == 0)
            submitted++;
        int n = h.ops->poll(h.copier, now, end, 8);
        ended += (uint64_t)n;
        uint64_t due = h.ops->due_ns(h.copier, now);
        if (due == UINT64_MAX)
            continue;
        if (n == 0)
            now = due + (uint64_t)rand() % (SECOND / 2); /* always late */
        last_end = due != 0 ? due : last_end;
    }
    /* 7000 x 3 bytes at 7 bytes a second: exactly 3000 s, whatever the polls were */
    cr_expect(last_end == 3000 * SECOND, "last end at %llu ns", (unsigned long long)last_end);
    h.ops->close(h.copier);
}

Test(host_copier, an_idle_stream_earns_no_credit)
{
    struct spw_copier_handle h = open_copier(64, 64, 2, no_faults);
    struct spw_copy_end end[2];
    struct spw_copy first = small_copy(SPW_COPY_STORE, kv, slot, 64, 0, NULL);
    struct spw_copy later = small_copy(SPW_COPY_STORE, kv, slot, 64, 100 * SECOND, NULL);
    cr_assert(h.ops->submit(h.copier, &first) == 0);
    cr_assert(h.ops->poll(h.copier, SECOND, end, 2) == 1);
    cr_assert(h.ops->submit(h.copier, &later) == 0);
    cr_expect(h.ops->due_ns(h.copier, 100 * SECOND) == 101 * SECOND);
    struct spw_copy load = small_copy(SPW_COPY_LOAD, kv, slot, 32, 100 * SECOND, NULL);
    cr_assert(h.ops->submit(h.copier, &load) == 0);
    cr_expect(h.ops->due_ns(h.copier, 100 * SECOND) == 100 * SECOND + SECOND / 2,
              "loads have a rate of their own");
    h.ops->close(h.copier);
}

Test(host_copier, ends_in_order_of_submit_with_loads_first)
{
    struct spw_copier_handle h = open_copier(0, 0, 4, no_faults);
    struct spw_copy_end end[8];
    int tag[4];
    for (int i = 0; i < 4; i++) {
        struct spw_copy copy =
            small_copy(i % 2 ? SPW_COPY_LOAD : SPW_COPY_STORE, kv, slot, 64, 0, &tag[i]);
        cr_assert(h.ops->submit(h.copier, &copy) == 0);
    }
    cr_assert(h.ops->poll(h.copier, 0, end, 3) == 3, "no more than asked for");
    cr_expect(end[0].tag == &tag[1] && end[1].tag == &tag[3] && end[2].tag == &tag[0]);
    cr_assert(h.ops->poll(h.copier, 0, end, 3) == 1);
    cr_expect(end[0].tag == &tag[2]);
    h.ops->close(h.copier);
}

Test(host_copier, faults_fail_delay_and_stick)
{
    struct spw_host_faults faults = {
        .fail_every = {2, 0}, .fail_status = -EIO, .delay_ns = {10, 0}, .stick_every = {0, 2}};
    struct spw_copier_handle h = open_copier(0, 0, 4, faults);
    struct spw_copy_end end[8];
    memset(kv, 'y', 64);
    memset(slot, 0, 64);
    for (int i = 0; i < 2; i++) {
        struct spw_copy store = small_copy(SPW_COPY_STORE, kv, slot + i * 64, 64, 100, NULL);
        cr_assert(h.ops->submit(h.copier, &store) == 0);
    }
    cr_expect(h.ops->poll(h.copier, 109, end, 8) == 0, "delayed");
    cr_assert(h.ops->poll(h.copier, 110, end, 8) == 2);
    cr_expect(end[0].status == 0 && end[1].status == -EIO);
    cr_expect(slot[0] == 'y' && slot[64] == 0, "a failed copy moved nothing");

    for (int i = 0; i < 3; i++) {
        struct spw_copy load = small_copy(SPW_COPY_LOAD, kv, slot, 64, 0, NULL);
        cr_assert(h.ops->submit(h.copier, &load) == 0);
    }
    cr_expect(h.ops->poll(h.copier, UINT64_MAX - 1, end, 8) == 1, "the second never ends");
    cr_expect(h.ops->due_ns(h.copier, 200) == UINT64_MAX);
    h.ops->close(h.copier);
}

Test(host_copier, refuses_a_stream_without_room)
{
    struct spw_host_copier_config config = {.in_flight = {1, 0}};
    struct spw_copier_handle handle;
    cr_expect(spw_host_copier_open(&config, &handle) == -EINVAL);
}
