/* Registered memory and fences, as a worker deals with them; the copier around the host's says what it
 * is asked for, and has the KV. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/worker_rig.h"

TestSuite(worker_kv, .timeout = 30);

#define BLOCKS   40u /* that are registered; the pool's host KV has more */
#define LIMIT_NS (2 * RIG_SECOND)
#define FIRST    3u /* block of the runs here */

/* ---- the copier ------------------------------------------------------------------------------ */

static struct {
    struct spw_copier_handle host;
    uint32_t opens, closes, open_now;
    uint32_t steps; /* -EAGAIN so often */
    int status;     /* then this */
    struct spw_kv_record seen;
    uint64_t seen_hash;
    uint64_t less; /* bytes of a block than the space's */
    int fired;     /* of every fence */
    uint32_t asked;
    bool lost;
    uint32_t registered_copies;
    uint8_t kv[BLOCKS * RIG_BLOCK_BYTES];
} stub;

static uint64_t hash(const void *bytes, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum = sum * 31 + ((const uint8_t *)bytes)[i];
    return sum;
}

static int stub_kv_open(struct spw_copier *copier, uint32_t client,
                        const struct spw_kv_record *record, struct spw_kv_shape *out_shape,
                        struct spw_error *err)
{
    if (stub.opens++ == 0 || stub.open_now == 0)
        stub.open_now = 1;
    stub.seen = *record;
    stub.seen_hash =
        hash(record, spw_kv_record_bytes(record->memories, record->tensors, record->fences));
    if (stub.steps > 0) {
        stub.steps--;
        return -EAGAIN;
    }
    if (stub.status < 0) {
        stub.open_now = 0;
        return spw_fail(err, stub.status, "memory 0: CUDA_ERROR_MAP_FAILED");
    }
    *out_shape = (struct spw_kv_shape){.block_bytes = {RIG_BLOCK_BYTES - stub.less},
                                       .blocks = {BLOCKS, BLOCKS},
                                       .fences = record->fences};
    return 0;
}

static void stub_kv_close(struct spw_copier *copier, uint32_t client)
{
    stub.closes++;
    stub.open_now = 0;
}

static int stub_fence_fired(struct spw_copier *copier, uint32_t client, uint32_t fence)
{
    stub.asked++;
    return stub.fired;
}

static int stub_submit(struct spw_copier *copier, const struct spw_copy *copy)
{
    struct spw_copy mine = *copy;
    if (stub.lost)
        return -ENODEV;
    if (!copy->kv) {
        stub.registered_copies++;
        mine.kv = stub.kv;
        mine.kv_block_bytes = RIG_BLOCK_BYTES;
    }
    return stub.host.ops->submit(copier, &mine);
}

static int stub_health(struct spw_copier *copier)
{
    return stub.lost ? -ENODEV : 0;
}

static struct spw_copier_ops stub_ops;

static struct spw_copier_handle wrap(struct spw_copier_handle host)
{
    stub.host = host;
    stub_ops = *host.ops;
    stub_ops.submit = stub_submit;
    stub_ops.health = stub_health;
    stub_ops.kv_open = stub_kv_open;
    stub_ops.kv_close = stub_kv_close;
    stub_ops.fence_fired = stub_fence_fired;
    return (struct spw_copier_handle){.ops = &stub_ops, .copier = host.copier};
}

/* ---- a client that registers ----------------------------------------------------------------- */

static struct rig rig;
static struct rig_client one, two;

static void start(void)
{
    struct rig_config config = {.wrap = wrap, .event_limit_ns = LIMIT_NS};
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    for (uint32_t i = 0; i < sizeof stub.kv; i++)
        stub.kv[i] = (uint8_t)(i * 3);
}

static struct spw_kv_words *words_of(const struct rig_client *client)
{
    return &client->view->head->kv_words[0];
}

static struct spw_kv_record *mail_of(const struct rig_client *client)
{
    return (struct spw_kv_record *)client->view->head->mailbox.bytes;
}

static bool send(struct rig_client *client, uint64_t bytes)
{
    struct spw_command head = rig_head(&rig, client, 0, SPW_CMD_REGISTER);
    head.arg = bytes;
    return rig_send(client, 0, &head, NULL);
}

static uint64_t write_mail(const struct rig_client *client, uint32_t fences)
{
    struct spw_kv_record *record = mail_of(client);
    uint64_t bytes = spw_kv_record_bytes(1, 2, fences);
    memset(record, 0x5c, bytes);
    *record = (struct spw_kv_record){.memories = 1, .tensors = 2, .fences = fences};
    return bytes;
}

static bool is_answered(const struct rig_client *client)
{
    return spw_load_acquire(&words_of(client)->answered) == client->cookie;
}

static int64_t status_of(const struct rig_client *client)
{
    return (int64_t)spw_load_relaxed(&words_of(client)->status);
}

static void text_of(const struct rig_client *client, char out[SPW_KV_TEXT_WORDS * 8 + 1])
{
    memset(out, 0, SPW_KV_TEXT_WORDS * 8 + 1);
    memcpy(out, (const void *)words_of(client)->text, SPW_KV_TEXT_WORDS * 8);
}

static void register_it(struct rig_client *client, uint32_t fences)
{
    cr_assert(send(client, write_mail(client, fences)));
    rig_settle(&rig);
    cr_assert(is_answered(client));
    cr_assert_eq(status_of(client), 0);
}

static uint64_t reserve(uint64_t key)
{
    cr_assert(rig_reserve(&rig, &one, 0, key, 1));
    struct spw_done done = rig_answer(&rig, &one, 0);
    cr_assert_eq(done.status, 0);
    return done.ticket;
}

static void run(uint64_t ticket, uint64_t fence)
{
    rig.fence = fence;
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, ticket, 1, FIRST));
    rig.fence = 0;
    rig_settle(&rig);
}

static int ends_with(void)
{
    struct spw_done done;
    cr_assert(rig_reap(&one, 0, &done), "it hasn't ended");
    cr_expect_eq(done.kind, SPW_DONE_STORE);
    return done.status;
}

static bool has_ended(void)
{
    struct spw_done done;
    return spw_lane_peek(&one.completion[0], &done);
}

static uint32_t state(uint64_t key)
{
    struct spw_entry_copy entry;
    return rig_state(&rig, 0, key, &entry);
}

/* ---- registering ----------------------------------------------------------------------------- */

Test(worker_kv, a_registration_goes_on_in_steps_while_others_are_served)
{
    start();
    stub.steps = 3;
    uint64_t bytes = write_mail(&one, 2);
    uint64_t sent = hash(mail_of(&one), bytes);
    cr_assert(send(&one, bytes));
    rig_pass(&rig);
    cr_assert_eq(stub.opens, 1);
    memset(mail_of(&one), 0xff, bytes); /* what it writes now is nobody's business */
    cr_expect(!is_answered(&one));
    cr_assert(rig_reserve(&rig, &two, 0, 50, 1));
    rig_pass(&rig);
    struct spw_done done;
    cr_expect(rig_reap(&two, 0, &done) && done.status == 0, "served meanwhile");
    for (int i = 0; i < 10; i++) {
        rig_advance(&rig, RIG_SECOND / 1000);
        rig_pass(&rig);
    }
    cr_expect(is_answered(&one));
    cr_expect_eq(status_of(&one), 0);
    cr_expect_eq(stub.opens, 4);
    cr_expect_eq(stub.seen_hash, sent, "the record is copied once");
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_kv_registered), 1);
    rig_close(&rig);
    cr_expect_eq(stub.open_now, 0);
}

Test(worker_kv, CU_8_a_refusal_comes_with_the_copiers_words)
{
    char text[SPW_KV_TEXT_WORDS * 8 + 1];
    start();
    stub.status = -EIO;
    cr_assert(send(&one, write_mail(&one, 0)));
    rig_settle(&rig);
    cr_assert(is_answered(&one));
    cr_expect_eq(status_of(&one), -EIO);
    text_of(&one, text);
    cr_expect_str_eq(text, "memory 0: CUDA_ERROR_MAP_FAILED");
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_kv_refused), 1);
    run(reserve(1), 0);
    cr_expect_eq(ends_with(), 0, "host KV as before");
    cr_expect_eq(stub.registered_copies, 0);
    rig_close(&rig);
}

Test(worker_kv, a_copier_of_host_memory_takes_none)
{
    char text[SPW_KV_TEXT_WORDS * 8 + 1];
    rig_open(&rig, &(struct rig_config){.capacity = 4});
    rig_attach(&rig, &one);
    cr_assert(send(&one, write_mail(&one, 0)));
    rig_settle(&rig);
    cr_assert(is_answered(&one));
    cr_expect_eq(status_of(&one), -EOPNOTSUPP);
    text_of(&one, text);
    cr_expect(strstr(text, "no GPU"), "%s", text);
    rig_close(&rig);
}

Test(worker_kv, counts_that_are_not_those_of_the_length_are_refused)
{
    start();
    const struct {
        uint32_t memories, tensors, fences;
        int64_t more;
    } bad[] = {{1, 2, 0, 1},
               {1, 2, 0, -1},
               {SPW_KV_MEMORIES_MAX + 1, 0, 0, 0},
               {0, SPW_KV_TENSORS_MAX + 1, 0, 0},
               {0, 0, SPW_KV_FENCES_MAX + 1, 0},
               {UINT32_MAX, UINT32_MAX, UINT32_MAX, 0},
               {0, 0, 0, -48},
               {0, 0, 0, SPW_MAILBOX_BYTES}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *mail_of(&one) = (struct spw_kv_record){
            .memories = bad[i].memories, .tensors = bad[i].tensors, .fences = bad[i].fences};
        uint64_t bytes = spw_kv_record_bytes(bad[i].memories, bad[i].tensors, bad[i].fences) +
                         (uint64_t)bad[i].more;
        cr_assert(send(&one, bytes));
        rig_settle(&rig);
        cr_assert(is_answered(&one));
        cr_expect_eq(status_of(&one), -EINVAL, "case %zu", i);
    }
    cr_expect_eq(stub.opens, 0);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_commands_bad), sizeof bad / sizeof bad[0]);
    rig_close(&rig);
}

Test(worker_kv, LC_4_what_a_client_registered_is_let_go_when_it_is_gone)
{
    start();
    register_it(&one, 0);
    cr_expect_eq(stub.closes, 0);
    rig_die(&one);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(stub.closes, 1);
    rig_close(&rig);
    cr_expect_eq(stub.closes, 1, "once");
}

Test(worker_kv, LC_4_one_that_dies_while_it_registers_leaves_nothing_open)
{
    start();
    stub.steps = 1000000;
    cr_assert(send(&one, write_mail(&one, 0)));
    rig_pass(&rig);
    rig_die(&one);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(stub.closes, 1);
    cr_expect_eq(stub.open_now, 0);
    rig_close(&rig);
}

Test(worker_kv, registering_anew_waits_for_no_run_and_replaces)
{
    start();
    register_it(&one, 1);
    stub.fired = 0;
    uint64_t ticket = reserve(1);
    run(ticket, 1);
    cr_assert(send(&one, write_mail(&one, 0)));
    rig_settle(&rig);
    cr_assert(is_answered(&one));
    cr_expect_eq(status_of(&one), -EBUSY, "a run is unfinished");
    stub.fired = 1;
    rig_advance(&rig, RIG_SECOND / 1000);
    rig_settle(&rig);
    cr_expect_eq(ends_with(), 0);
    register_it(&one, 0);
    cr_expect_eq(stub.closes, 1);
    rig_close(&rig);
}

/* ---- runs ------------------------------------------------------------------------------------ */

Test(worker_kv, runs_copy_what_is_registered_and_ids_are_checked_against_it)
{
    start();
    register_it(&one, 0);
    run(reserve(1), 0);
    cr_expect_eq(ends_with(), 0);
    cr_expect_eq(stub.registered_copies, 1);
    cr_expect_eq(state(1), SPW_READY);
    uint64_t ticket = reserve(2);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, ticket, 1, BLOCKS - 1));
    rig_settle(&rig);
    cr_expect_eq(ends_with(), -EINVAL, "the second block lies beyond");
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, ticket, 1, BLOCKS - 2));
    rig_settle(&rig);
    cr_expect_eq(ends_with(), 0);
    rig_close(&rig);
}

Test(worker_kv, runs_of_a_space_whose_blocks_have_another_size_are_refused)
{
    start();
    stub.less = 16;
    register_it(&one, 0);
    run(reserve(1), 0);
    cr_expect_eq(ends_with(), -EINVAL);
    cr_expect_eq(stub.registered_copies, 0);
    stub.less = 0;
    rig_advance(&rig, 20 * RIG_SECOND); /* the reserve's limit */
    rig_settle(&rig);
    register_it(&one, 0);
    run(reserve(2), 0);
    cr_expect_eq(ends_with(), 0);
    rig_close(&rig);
}

/* ---- fences ---------------------------------------------------------------------------------- */

Test(worker_kv, CU_4_a_store_is_not_ready_before_its_fence_has_fired_and_holds_nobody_up)
{
    start();
    register_it(&one, 2);
    uint64_t waits = reserve(1), passes = reserve(2);
    run(waits, 2);
    for (int i = 0; i < 50; i++) {
        rig_advance(&rig, RIG_SECOND / 1000);
        rig_settle(&rig);
        cr_assert_eq(state(1), SPW_FILLING);
    }
    cr_expect_eq(stub.registered_copies, 0);
    run(passes, 0);
    cr_expect_eq(ends_with(), 0, "one without a fence goes by");
    cr_expect_eq(state(2), SPW_READY);
    memset(stub.kv, 2, sizeof stub.kv); /* written just before the event */
    stub.fired = 1;
    rig_advance(&rig, RIG_SECOND / 1000);
    rig_settle(&rig);
    cr_expect_eq(ends_with(), 0);
    struct spw_entry_copy entry;
    cr_expect_eq(rig_state(&rig, 0, 1, &entry), SPW_READY);
    const uint8_t *slot =
        rig.pool[0].data[0] + spw_slot_off(&rig.pool[0].geometry, entry.slot, entry.chunk_bytes);
    for (uint32_t i = 0; i < 2 * RIG_BLOCK_BYTES; i++)
        cr_assert_eq(slot[i], 2);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_fences_waited), 1);
    rig_close(&rig);
}

Test(worker_kv, CU_4_a_load_is_copied_only_after_its_fence)
{
    start();
    register_it(&one, 1);
    run(reserve(1), 0);
    cr_expect_eq(ends_with(), 0);
    cr_assert(rig_begin(&rig, &one, 0, 0, 1, 1));
    struct spw_done done = rig_answer(&rig, &one, 0);
    memset(stub.kv, 0xaa, sizeof stub.kv);
    rig.fence = 1;
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 1, FIRST));
    rig_settle(&rig);
    cr_expect(!has_ended());
    cr_expect_eq(stub.kv[FIRST * RIG_BLOCK_BYTES], 0xaa);
    cr_expect_eq(rig_claims(&rig, 0), 1);
    stub.fired = 1;
    rig_advance(&rig, RIG_SECOND / 1000);
    rig_settle(&rig);
    cr_expect(rig_reap(&one, 0, &done) && done.status == 0);
    cr_expect_neq(stub.kv[FIRST * RIG_BLOCK_BYTES], 0xaa);
    cr_expect_eq(rig_claims(&rig, 0), 0);
    rig_close(&rig);
}

Test(worker_kv, a_fence_that_is_not_known_is_refused)
{
    start();
    register_it(&one, 2);
    uint64_t ticket = reserve(1);
    run(ticket, 3);
    cr_expect_eq(ends_with(), -EINVAL);
    run(ticket, 1ull << 32 | 1);
    cr_expect_eq(ends_with(), -EINVAL);
    stub.fired = 1;
    run(ticket, 2);
    cr_expect_eq(ends_with(), 0);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_fences_waited), 0, "it had fired");
    rig_close(&rig);
}

Test(worker_kv, a_fence_that_does_not_fire_ends_the_run_at_the_limit)
{
    start();
    register_it(&one, 1);
    run(reserve(1), 1);
    rig_advance(&rig, LIMIT_NS - 1);
    rig_settle(&rig);
    cr_assert(!has_ended());
    rig_advance(&rig, 1);
    rig_settle(&rig);
    cr_expect_eq(ends_with(), -ETIMEDOUT);
    cr_expect_neq(state(1), SPW_READY);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_fences_late), 1);
    cr_expect_eq(rig_open_chunks(&rig, 0), 0);
    rig_close(&rig);
}

Test(worker_kv, a_fence_that_is_lost_ends_the_run)
{
    start();
    register_it(&one, 1);
    run(reserve(1), 1);
    stub.fired = -EIO;
    rig_advance(&rig, RIG_SECOND / 1000);
    rig_settle(&rig);
    cr_expect_eq(ends_with(), -EIO);
    cr_expect_eq(rig_open_chunks(&rig, 0), 0);
    rig_close(&rig);
}

Test(worker_kv, what_waits_for_a_fence_is_cancelled_reset_and_ended_like_any_other)
{
    start();
    register_it(&one, 1);
    uint64_t ticket = reserve(1);
    run(ticket, 1);
    cr_assert(rig_cancel(&rig, &one, 0, ticket));
    rig_settle(&rig);
    cr_expect_eq(ends_with(), -ECANCELED);
    run(reserve(2), 1);
    struct spw_command head = rig_head(&rig, &two, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&two, 0, &head, NULL));
    rig_settle(&rig);
    cr_expect_eq(ends_with(), -ESTALE);
    cr_expect_eq(rig_open_chunks(&rig, 0), 0);
    rig_close(&rig);
}

Test(worker_kv, LC_4_a_client_that_dies_before_its_fence_fires_ends_at_once)
{
    start();
    register_it(&one, 1);
    run(reserve(1), 1);
    rig_die(&one);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(stub.closes, 1, "nothing on the GPU waits for it");
    cr_expect_eq(rig_open_chunks(&rig, 0), 0);
    uint32_t asked = stub.asked;
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(stub.asked, asked);
    rig_close(&rig);
}

/* ---- a copier that is lost ------------------------------------------------------------------- */

Test(worker_kv, CU_5_when_the_copier_is_lost_jobs_are_answered_and_the_worker_leaves)
{
    spw_atomic32 stop = 0;
    start();
    register_it(&one, 1);
    uint64_t waits = reserve(1), queued = reserve(2);
    run(waits, 1);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, queued, 1, FIRST));
    stub.lost = true;
    cr_expect_eq(spw_worker_run(rig.worker[0], &stop), -ENODEV);
    int first = ends_with();
    cr_expect_lt(first, 0);
    cr_expect_eq(rig_open_chunks(&rig, 0), 0);
    rig_close(&rig);
}
