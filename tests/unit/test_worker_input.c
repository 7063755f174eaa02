/* tier/worker: commands are input. What makes no sense is refused, counted, and hurts nobody. */
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(worker_input, .timeout = 60);

static struct rig rig;
static struct rig_client bad, good;
static uint8_t body[255 * SPW_LANE_PAYLOAD_BYTES];

static void start(const struct rig_config *config)
{
    rig_open(&rig, config);
    rig_attach(&rig, &bad);
    rig_attach(&rig, &good);
}

/* A job of the good client that every bad command must leave alone. */
static uint64_t good_ticket(void)
{
    cr_assert(rig_reserve(&rig, &good, 0, 1000, 2));
    return rig_answer(&rig, &good, 0).ticket;
}

static void finish_good(uint64_t ticket)
{
    cr_assert(rig_run(&rig, &good, 0, SPW_CMD_STORE, ticket, 2, 0));
    struct spw_done done = rig_answer(&rig, &good, 0);
    cr_expect(done.kind == SPW_DONE_STORE && done.status == 0 && done.mask == 0);
    cr_expect(rig_open_chunks(&rig, 0) == 0);
    cr_expect(rig_claims(&rig, 0) == 0);
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0);
}

static void put_key(uint32_t at, uint32_t group, uint32_t key_bytes, uint64_t number)
{
    uint8_t key[128] = {0};
    struct spw_reserve_key raw = {.group = group, .key_bytes = key_bytes};
    memcpy(key, &number, sizeof(number));
    memcpy(raw.key, key, sizeof(raw.key));
    if (key_bytes >= 1 && key_bytes <= 64)
        spw_chunk_digest(RIG_SPACE, group, key, key_bytes, raw.digest);
    memcpy(body + at * SPW_LANE_PAYLOAD_BYTES, &raw, sizeof(raw));
}

static struct spw_done send(struct spw_command *head)
{
    head->cookie = ++bad.cookie;
    cr_assert(rig_send(&bad, 0, head, body));
    return rig_answer(&rig, &bad, 0);
}

static struct spw_command reserve_head(uint32_t count)
{
    struct spw_command head = rig_head(&rig, &bad, 0, SPW_CMD_RESERVE);
    memset(body, 0, sizeof(body));
    for (uint32_t i = 0; i < count; i++)
        put_key(i, 0, 16, i);
    head.count = (uint16_t)count;
    head.body_slots = (uint8_t)count;
    return head;
}

static void expect_bad_reserve(struct spw_command *head, const char *what)
{
    uint64_t before = rig_count(&rig, 0, SPW_WORKER_commands_bad);
    struct spw_done done = send(head);
    cr_expect(done.kind == SPW_DONE_RESERVE && done.status == -EINVAL && done.count == 0 &&
                  done.ticket == 0,
              "%s", what);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_commands_bad) == before + 1, "%s", what);
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 2, "%s", what);
}

Test(worker_input, reserves_that_make_no_sense_are_refused_whole)
{
    struct spw_command head = {0};
    start(&(struct rig_config){.capacity = 80});
    uint64_t ticket = good_ticket();

    head = reserve_head(2);
    struct spw_done control = send(&head);
    cr_expect(control.count == 2, "the control is accepted");
    cr_assert(rig_cancel(&rig, &bad, 0, control.ticket));
    rig_settle(&rig);

    head = reserve_head(0);
    expect_bad_reserve(&head, "no key");
    head = reserve_head(65);
    expect_bad_reserve(&head, "too many keys");
    head = reserve_head(2);
    head.count = UINT16_MAX;
    expect_bad_reserve(&head, "more keys than slots");
    head = reserve_head(2);
    head.body_slots = 3;
    expect_bad_reserve(&head, "a slot too many");
    head = reserve_head(3);
    head.body_slots = 2;
    expect_bad_reserve(&head, "a slot too few");
    head = reserve_head(1);
    put_key(0, 0, 33, 1);
    expect_bad_reserve(&head, "second half of a long key is missing");
    head = reserve_head(1);
    put_key(0, 0, 0, 1);
    expect_bad_reserve(&head, "empty key");
    head = reserve_head(2);
    put_key(0, 0, 65, 1);
    expect_bad_reserve(&head, "key too long");
    head = reserve_head(2);
    put_key(1, 2, 16, 1);
    expect_bad_reserve(&head, "no such group");
    head = reserve_head(2);
    put_key(1, UINT32_MAX, 16, 1);
    expect_bad_reserve(&head, "group far out");
    head = reserve_head(2);
    body[0] ^= 1;
    expect_bad_reserve(&head, "digest of another key");
    head = reserve_head(2);
    head.arg = 2;
    expect_bad_reserve(&head, "no such rank");
    for (uint32_t space = 0; space < 100; space += space == 2 ? 2 : 1) {
        head = reserve_head(1);
        head.space = space < 99 ? space : UINT32_MAX;
        expect_bad_reserve(&head, "no such space");
    }
    finish_good(ticket);
    rig_close(&rig);
}

Test(worker_input, runs_that_make_no_sense_are_refused_and_the_job_waits_on)
{
    start(&(struct rig_config){.capacity = 8});
    uint64_t ticket = good_ticket();
    struct spw_command head = rig_head(&rig, &bad, 0, SPW_CMD_STORE);
    memset(body, 0, sizeof(body));
    head.ticket = ticket;
    head.count = 3;
    head.body_slots = 1;
    cr_expect(send(&head).status == -EINVAL, "too few blocks");
    head.count = 5;
    cr_expect(send(&head).status == -EINVAL, "too many blocks");
    head.count = 4;
    head.body_slots = 2;
    cr_expect(send(&head).status == -EINVAL, "a slot too many");
    head.body_slots = 0;
    cr_expect(send(&head).status == -EINVAL, "no body");
    head.body_slots = 1;
    uint32_t ids[4] = {0, 1, RIG_BLOCKS, 3};
    memcpy(body, ids, sizeof(ids));
    struct spw_done done = send(&head);
    cr_expect(done.status == -EINVAL && done.mask == 3, "block id one too high");
    ids[2] = UINT32_MAX;
    memcpy(body, ids, sizeof(ids));
    cr_expect(send(&head).status == -EINVAL, "block id far out");
    cr_expect(rig_count(&rig, 0, SPW_WORKER_commands_bad) == 6);

    memset(body, 0, sizeof(body));
    head.ticket = ticket + 1;
    cr_expect(send(&head).status == -ENOENT, "no such job");
    head.ticket = 0;
    cr_expect(send(&head).status == -ENOENT);
    head.ticket = ticket;
    head.op = SPW_CMD_LOAD;
    done = send(&head);
    cr_expect(done.status == -ENOENT && done.kind == SPW_DONE_LOAD, "a load of a store's ticket");
    cr_expect(rig_count(&rig, 0, SPW_WORKER_runs_refused) == 3);
    finish_good(ticket);
    head = rig_head(&rig, &bad, 0, SPW_CMD_STORE);
    head.ticket = ticket;
    head.count = 4;
    head.body_slots = 1;
    cr_expect(send(&head).status == -ENOENT, "run a second time");
    rig_close(&rig);
}

static struct spw_done send_begin(struct spw_command *head, uint64_t fill, uint32_t slot,
                                  uint32_t shard)
{
    struct spw_load_source source = {.fill = fill, .slot = slot, .shard = shard};
    memcpy(body, &source, sizeof(source));
    return send(head);
}

Test(worker_input, begins_of_slots_that_are_not_there_copy_nothing)
{
    struct spw_entry_copy entry;
    start(&(struct rig_config){.capacity = 8});
    uint64_t ticket = good_ticket();
    rig_store(&rig, &good, 0, 1, 1);
    rig_state(&rig, 0, 1, &entry);
    struct spw_command head = rig_head(&rig, &bad, 0, SPW_CMD_BEGIN);
    head.count = head.body_slots = 1;
    cr_expect(send_begin(&head, entry.fill, 9, 0).status == -EINVAL, "one slot too high (CE-10)");
    cr_expect(send_begin(&head, entry.fill, UINT32_MAX, 0).status == -EINVAL);
    cr_expect(send_begin(&head, entry.fill, entry.slot, 1).status == -EINVAL, "no such shard");
    cr_expect(send_begin(&head, 0, entry.slot, 0).status == -EINVAL, "never filled");
    head.arg = 2;
    cr_expect(send_begin(&head, entry.fill, entry.slot, 0).status == -EINVAL, "no such rank");
    head.arg = 0;
    head.count = 0;
    cr_expect(send_begin(&head, entry.fill, entry.slot, 0).status == -EINVAL);
    head.count = 4;
    cr_expect(send_begin(&head, entry.fill, entry.slot, 0).status == -EINVAL);
    head.count = 65;
    head.body_slots = 22;
    cr_expect(send_begin(&head, entry.fill, entry.slot, 0).status == -EINVAL);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_commands_bad) == 8);

    head.count = head.body_slots = 1;
    struct spw_done done = send_begin(&head, entry.fill + 1, entry.slot, 0);
    cr_expect(done.status == -ESTALE && done.count == 0 && done.ticket == 0, "another fill");
    cr_expect(rig_count(&rig, 0, SPW_WORKER_loads_stale) == 1);
    done = send_begin(&head, entry.fill, entry.slot, 0);
    cr_expect(done.status == 0 && done.count == 1, "the control");
    cr_assert(rig_cancel(&rig, &bad, 0, done.ticket));
    rig_settle(&rig);
    finish_good(ticket);
    rig_close(&rig);
}

Test(worker_input, the_accepted_prefix_of_a_begin_ends_at_a_stale_source)
{
    start(&(struct rig_config){.capacity = 8});
    rig_store(&rig, &good, 0, 1, 3);
    struct spw_command head = rig_head(&rig, &bad, 0, SPW_CMD_BEGIN);
    struct spw_load_source source[3];
    for (uint64_t i = 0; i < 3; i++) {
        struct spw_entry_copy entry;
        rig_state(&rig, 0, 1 + i, &entry);
        source[i] = (struct spw_load_source){.fill = entry.fill - (i == 1), .slot = entry.slot};
    }
    memcpy(body, source, sizeof(source));
    head.count = 3;
    head.body_slots = 1;
    struct spw_done done = send(&head);
    cr_expect(done.status == -ESTALE && done.count == 1 && done.ticket != 0);
    cr_expect(rig_claims(&rig, 0) == 1);
    cr_assert(rig_run(&rig, &bad, 0, SPW_CMD_LOAD, done.ticket, 1, 0));
    cr_expect(rig_answer(&rig, &bad, 0).status == 0);
    cr_expect(rig_claims(&rig, 0) == 0);
    rig_close(&rig);
}

Test(worker_input, an_entry_that_keeps_changing_is_tried_again_then_given_up)
{
    struct spw_entry_copy entry;
    struct spw_done done;
    start(&(struct rig_config){.capacity = 8});
    rig_store(&rig, &good, 0, 1, 2);
    rig_state(&rig, 0, 2, &entry);
    struct spw_entry *entries = spw_pool_feed_at(&rig.daemon, 0, rig.daemon.feed_map.entry_off);
    spw_atomic64 *seq = &entries[entry.slot].seq;
    uint64_t even = spw_load_relaxed(seq);

    cr_assert(rig_begin(&rig, &bad, 0, 0, 1, 2));
    spw_store_relaxed(seq, even + 1);
    for (int i = 0; i < 50; i++)
        rig_pass(&rig);
    cr_expect(spw_client_has_untaken(bad.view), "the command stays, so the pins count");
    cr_expect(rig_claims(&rig, 0) == 0);
    spw_store_relaxed(seq, even);
    done = rig_answer(&rig, &bad, 0);
    cr_expect(done.count == 2 && done.status == 0);
    rig_cancel(&rig, &bad, 0, done.ticket);
    rig_settle(&rig);

    cr_assert(rig_begin(&rig, &bad, 0, 0, 1, 2));
    spw_store_relaxed(seq, even + 1);
    for (int i = 0; i < 101; i++)
        rig_pass(&rig);
    cr_expect(!spw_client_has_untaken(bad.view));
    spw_store_relaxed(seq, even);
    done = rig_answer(&rig, &bad, 0);
    cr_expect(done.count == 1 && done.status == -EAGAIN && done.ticket != 0);
    rig_close(&rig);
}

Test(worker_input, unknown_operations_and_other_incarnations_get_no_answer)
{
    struct spw_done done;
    start(&(struct rig_config){.capacity = 8});
    uint64_t ticket = good_ticket();
    memset(body, 0, sizeof(body));
    for (int op = 0; op < 256; op++) {
        if (op >= SPW_CMD_RESERVE && op <= SPW_CMD_REGISTER)
            continue;
        struct spw_command head = rig_head(&rig, &bad, 0, (uint8_t)op);
        cr_assert(rig_send(&bad, 0, &head, NULL));
        rig_settle(&rig);
    }
    cr_expect(!rig_reap(&bad, 0, &done));
    cr_expect(rig_count(&rig, 0, SPW_WORKER_commands_bad) == 256 - 9);

    struct spw_command head = reserve_head(2);
    head.incarnation++;
    cr_assert(rig_send(&bad, 0, &head, body));
    head = reserve_head(2);
    head.generation--;
    cr_assert(rig_send(&bad, 0, &head, body));
    rig_settle(&rig);
    cr_expect(!rig_reap(&bad, 0, &done));
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 2);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_refused_stale) == 4);
    cr_expect(!spw_client_has_untaken(bad.view));
    finish_good(ticket);
    rig_close(&rig);
}

Test(worker_input, bad_touches_and_resets_are_counted)
{
    struct spw_done done;
    start(&(struct rig_config){.capacity = 8});
    struct spw_command head = rig_head(&rig, &bad, 0, SPW_CMD_TOUCH);
    head.count = 8;
    head.body_slots = 1;
    cr_assert(rig_send(&bad, 0, &head, body));
    rig_settle(&rig);
    cr_expect(!rig_reap(&bad, 0, &done), "a touch has no answer");
    head = rig_head(&rig, &bad, 0, SPW_CMD_RESET);
    head.space = 5;
    cr_expect(send(&head).status == -EINVAL);
    head.space = SPW_ALL_SPACES - 1;
    done = send(&head);
    cr_expect(done.status == -EINVAL && done.kind == SPW_DONE_RESET);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_commands_bad) == 3);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_resets) == 0);
    rig_close(&rig);
}

/* A head whose body was never published, and one that claims more slots than the lane has. */
Test(worker_input, an_envelope_that_makes_no_sense_costs_one_slot)
{
    start(&(struct rig_config){.capacity = 8, .command_slots = 64});
    uint64_t ticket = good_ticket();
    struct spw_command head = rig_head(&rig, &bad, 0, SPW_CMD_RESERVE);
    const uint8_t sizes[] = {1, 63, 64, 255};
    for (size_t i = 0; i < sizeof(sizes); i++) {
        head.body_slots = sizes[i];
        spw_lane_write(&bad.command[0], 0, &head, sizeof(head));
        spw_lane_send(&bad.command[0], 1);
        rig_settle(&rig);
        cr_expect(rig_count(&rig, 0, SPW_WORKER_commands_bad) == i + 1);
    }
    cr_expect(!spw_client_has_untaken(bad.view));
    cr_assert(rig_reserve(&rig, &bad, 0, 5, 1));
    struct spw_done done = rig_answer(&rig, &bad, 0);
    cr_expect(done.count == 1, "the lane goes on");
    cr_assert(rig_cancel(&rig, &bad, 0, done.ticket));
    rig_settle(&rig);
    finish_good(ticket);
    rig_close(&rig);
}

/* The number lies in the feed, which may be an old one with damage; a command has 56 bits for it. */
Test(worker_input, a_spaces_generation_of_any_size_refuses_no_store)
{
    start(&(struct rig_config){.capacity = 8});
    spw_store_relaxed(&rig.daemon.feed[0]->space_generation[RIG_SPACE], UINT64_MAX - 5);
    finish_good(good_ticket());
    rig_close(&rig);
}
