/*
 * A client that writes nonsense beside one that works: fuzz_commands [ROUNDS [SEED]]. The bad one
 * sends damaged commands, raw bytes and wrong positions, scribbles over its whole side of its
 * object, dies and comes back. The worker must not crash, and every job of the good client must end
 * once and carry the right bytes. Afterwards nothing is left open. Exits 1 at the first that
 * differs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/worker_rig.h"

#define GOOD_KEYS 40u

static struct rig rig;
static struct rig_client good, bad;
static uint64_t seed, state, current;
static struct spw_done bad_job[8]; /* answers that gave a ticket, the latest first */
static uint64_t loads_checked;

static uint64_t next(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t limit)
{
    return next() % limit;
}

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    printf("round %" PRIu64 " of seed %" PRIu64 ": %s\n", current, seed, what);
    exit(1);
}

/* ---- the good client ------------------------------------------------------------------------ */

static uint8_t byte_of(uint64_t key, uint32_t block)
{
    return (uint8_t)(key * 7 + block + 1);
}

static bool wait_answer(struct spw_done *done)
{
    for (int i = 0; i < 1000; i++) {
        rig_advance(&rig, RIG_SECOND / 2000);
        rig_pass(&rig);
        if (rig_reap(&good, 0, done)) {
            expect(done->cookie == good.cookie, "an answer to another command");
            return true;
        }
    }
    return false;
}

/* The bad client may reset the space: a job that it cuts short says so. */
static bool cut_short(const struct spw_done *done, uint64_t resets_before)
{
    return (done->status == -ESTALE || done->status == -ENOENT) &&
           rig_count(&rig, 0, SPW_WORKER_resets) != resets_before;
}

static void good_store(uint64_t key)
{
    struct spw_done done;
    uint64_t resets = rig_count(&rig, 0, SPW_WORKER_resets);
    rig_reserve(&rig, &good, 0, key, 1);
    expect(wait_answer(&done) && done.kind == SPW_DONE_RESERVE, "a reserve got no answer");
    if (done.ticket == 0)
        return;
    memset(good.pool.kv[good.c], byte_of(key, 0), RIG_BLOCK_BYTES);
    memset(good.pool.kv[good.c] + RIG_BLOCK_BYTES, byte_of(key, 1), RIG_BLOCK_BYTES);
    rig_run(&rig, &good, 0, SPW_CMD_STORE, done.ticket, 1, 0);
    expect(wait_answer(&done) && done.kind == SPW_DONE_STORE, "a store got no completion");
    expect((done.status == 0 && done.mask == 0) || cut_short(&done, resets), "a store failed");
}

static void good_load(uint64_t key)
{
    struct spw_done done;
    const uint8_t *kv = good.pool.kv[good.c] + 10 * RIG_BLOCK_BYTES;
    if (rig_state(&rig, 0, key, NULL) != SPW_READY)
        return;
    rig_begin(&rig, &good, 0, 0, key, 1);
    expect(wait_answer(&done) && done.kind == SPW_DONE_BEGIN, "a begin got no answer");
    if (done.count == 0)
        return;
    rig_run(&rig, &good, 0, SPW_CMD_LOAD, done.ticket, 1, 10);
    expect(wait_answer(&done) && done.kind == SPW_DONE_LOAD, "a load got no completion");
    expect(done.status == 0 && done.mask == 0, "a load failed");
    for (uint32_t i = 0; i < 2 * RIG_BLOCK_BYTES; i++)
        expect(kv[i] == byte_of(key, i / RIG_BLOCK_BYTES), "a load brought other bytes");
    loads_checked++;
}

/* ---- the bad client ------------------------------------------------------------------------- */

static void fill_random(void *at, uint64_t bytes)
{
    uint8_t *out = at;
    for (uint64_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)next();
}

static void damage(void *at, uint64_t bytes)
{
    uint8_t *out = at;
    for (uint64_t n = below(4); n != 0; n--)
        out[below(bytes)] = (uint8_t)next();
}

static struct spw_entry_copy some_entry(void)
{
    struct spw_table_view table;
    struct spw_entry_copy entry = {0};
    uint32_t slot = (uint32_t)below(rig.daemon.geometry.slots);
    spw_table_view_init(&table, rig.daemon.feed[0], &rig.daemon.feed_map, &rig.daemon.geometry);
    (void)spw_table_read(&table, slot, false, &entry);
    return entry;
}

static void put_source(uint8_t *body)
{
    struct spw_entry_copy entry = some_entry();
    struct spw_load_source source = {.fill = entry.fill, .slot = entry.slot};
    memcpy(body, &source, sizeof(source));
}

static void put_tag(uint8_t *body)
{
    struct spw_entry_copy entry = some_entry();
    memcpy(body, &entry.digest[0], sizeof(entry.digest[0]));
}

static void put_reserve_key(uint8_t *body)
{
    struct spw_reserve_key raw = {.group = (uint32_t)below(2),
                                  .key_bytes = 1 + (uint32_t)below(32)};
    fill_random(raw.key, raw.key_bytes);
    raw.key[0] = 0xee; /* never one of the good client's */
    spw_chunk_digest(RIG_SPACE, raw.group, raw.key, raw.key_bytes, raw.digest);
    memcpy(body, &raw, sizeof(raw));
}

static uint64_t space_generation(void)
{
    return spw_load_relaxed(&rig.daemon.feed[0]->space_generation[RIG_SPACE]);
}

/* A command that would be right, with some bytes of head and body damaged. */
static void send_damaged(void)
{
    static uint8_t body[255 * SPW_LANE_PAYLOAD_BYTES];
    struct spw_command head = rig_head(&rig, &bad, 0, (uint8_t)(1 + below(7)));
    memset(body, 0, sizeof(body));
    const struct spw_done *job = &bad_job[below(2) * below(8)]; /* the latest, mostly */
    head.body_slots = head.count = (uint16_t)below(5);
    head.ticket = job->ticket;
    head.arg = head.op == SPW_CMD_BEGIN ? 0 : space_generation() << 8;
    for (uint32_t i = 0; i < head.body_slots; i++) {
        uint8_t *slot = body + i * SPW_LANE_PAYLOAD_BYTES;
        if (head.op == SPW_CMD_RESERVE)
            put_reserve_key(slot);
        else if (head.op == SPW_CMD_BEGIN)
            put_source(slot);
        else if (head.op == SPW_CMD_TOUCH)
            put_tag(slot);
    }
    if (head.op == SPW_CMD_TOUCH)
        head.count = 7 * head.body_slots;
    if (head.op == SPW_CMD_BEGIN)
        head.count = head.body_slots = head.body_slots != 0;
    if (head.op == SPW_CMD_STORE || head.op == SPW_CMD_LOAD) {
        head.count = 2 * job->count;
        head.body_slots = 1;
    }
    if (head.op == SPW_CMD_RESET && below(20) != 0)
        head.op = SPW_CMD_CANCEL;
    if (below(2))
        damage(body, head.body_slots * (uint64_t)SPW_LANE_PAYLOAD_BYTES + 1);
    if (below(3) == 0) {
        damage((uint8_t *)&head + offsetof(struct spw_command, space), sizeof(head) - 12);
        damage(&head, 4);
    }
    rig_send(&bad, 0, &head, body);
}

static void reap_bad(void)
{
    struct spw_done done;
    while (rig_reap(&bad, 0, &done))
        if (done.ticket != 0)
            bad_job[0] = bad_job[below(8)] = done;
}

/* Slots that look published, with anything in them. */
static void send_raw(void)
{
    uint64_t payload[7];
    uint32_t count = 1 + (uint32_t)below(8);
    if (spw_lane_room(&bad.command[0], count) < count)
        return;
    for (uint32_t i = 0; i < count; i++) {
        fill_random(payload, sizeof(payload));
        if (below(2))
            payload[0] = (payload[0] & 0xffffff00) | (1 + below(6)) | bad.generation << 32;
        spw_lane_write(&bad.command[0], i, payload, sizeof(payload));
    }
    spw_lane_send(&bad.command[0], count);
}

static void scribble(void)
{
    struct spw_client_head *head = bad.view->head;
    switch (below(6)) {
    case 0:
        spw_store_relaxed(&head->lane[0].command_tail, next());
        break;
    case 1:
        spw_store_relaxed(&head->lane[0].command_base, next());
        break;
    case 2:
        spw_store_relaxed(&head->lane[0].completion_head, next());
        break;
    case 3:
        spw_store_relaxed(&head->applied[0], below(100));
        break;
    case 4:
        spw_store_relaxed(&bad.view->pin[0], next());
        break;
    default:
        spw_store_relaxed(&bad.view->command[below(bad.view->command_slots)].seq,
                          spw_load_relaxed(&head->worker_lane[0].command_head) + below(8));
    }
}

/* Do one thing right, so that a copy is under way when it dies. */
static void run_right(void)
{
    struct spw_done done;
    rig_reserve(&rig, &bad, 0, GOOD_KEYS + below(GOOD_KEYS), 1);
    rig_pass(&rig);
    while (rig_reap(&bad, 0, &done))
        if (done.kind == SPW_DONE_RESERVE && done.ticket != 0 && done.cookie == bad.cookie)
            rig_run(&rig, &bad, 0, SPW_CMD_STORE, done.ticket, 1, 0);
    rig_pass(&rig);
}

static void bad_move(void)
{
    uint64_t what = below(100);
    if (what < 70)
        send_damaged();
    else if (what < 90)
        send_raw();
    else if (what < 97)
        scribble();
    else {
        run_right();
        rig_die(&bad);
        rig_advance(&rig, RIG_SECOND / 5);
        rig_attach(&rig, &bad);
    }
    if (below(4) != 0)
        reap_bad();
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void end_clean(void)
{
    rig_die(&bad);
    for (int i = 0; i < 40; i++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
    }
    expect(rig_open_chunks(&rig, 0) == 0, "chunks are still open, or counted twice");
    expect(rig_claims(&rig, 0) == 0, "a claim is left");
    expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0, "a slot is still filling");
    expect(rig_slots_in(&rig, 0, SPW_RETIRED) == 0, "a slot was never freed");
    expect(loads_checked != 0, "no load was checked");
    expect(rig_count(&rig, 0, SPW_WORKER_chunks_loaded) > loads_checked, "no bad load ever ran");
    expect(rig_count(&rig, 0, SPW_WORKER_resets) != 0, "nothing was ever reset");
    expect(rig_count(&rig, 0, SPW_WORKER_late_completions) != 0, "nothing ended late");
    expect(rig_count(&rig, 0, SPW_WORKER_loads_stale) != 0, "no load was stale");
    expect(rig_count(&rig, 0, SPW_WORKER_touches) != 0, "nothing was touched");
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    seed = state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    rig_open(&rig, &(struct rig_config){.capacity = 6,
                                        .command_slots = 64,
                                        .completion_slots = 16,
                                        .copier.rate_bytes = {200000, 200000}});
    rig_attach(&rig, &good);
    rig_attach(&rig, &bad);
    for (current = 0; current < rounds; current++) {
        bad_move();
        rig_pass(&rig);
        uint64_t key = below(GOOD_KEYS);
        if (current % 3 == 0)
            good_store(key);
        else if (current % 3 == 1)
            good_load(key);
        rig_advance(&rig, below(RIG_SECOND / 100));
    }
    end_clean();
    printf("%" PRIu64 " rounds, %" PRIu64 " bad commands, %" PRIu64 " loads checked\n", rounds,
           rig_count(&rig, 0, SPW_WORKER_commands_bad), loads_checked);
    rig_close(&rig);
    return 0;
}
