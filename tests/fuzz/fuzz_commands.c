/*
 * A client that writes nonsense beside one that works, as a worker takes their commands. The input
 * says what the bad one does: right commands, damaged ones, raw slots, anything anywhere in its own
 * object, registering memory, dying and coming back. Every job of the good client ends once, with the right bytes, and
 * when the bad one is gone nothing of it is left: no chunk open, no claim, no slot that isn't free
 * or ready.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/support/stub_kv.h"

#define GOOD_KEYS 40u
#define BAD_KEYS  40u
#define MOVES_MAX 64u
#define JOBS_KEPT 4u

static struct rig rig;
static struct rig_client good, bad;
static struct spw_done bad_job[JOBS_KEPT]; /* answers that gave a ticket, the latest first */
static uint64_t turn;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    rig_open(&rig, &(struct rig_config){.capacity = 6,
                                        .wrap = stub_kv_wrap,
                                        .event_limit_ns = RIG_SECOND / 2,
                                        .command_slots = 64,
                                        .completion_slots = 16,
                                        .copier.rate_bytes = {200000, 200000}});
    rig_attach(&rig, &good);
    rig_attach(&rig, &bad);
    return 0;
}

/* ---- the good client ------------------------------------------------------------------------ */

static uint8_t byte_of(uint64_t key, uint32_t block)
{
    return (uint8_t)(key * 7 + block + 1);
}

static struct spw_done answer(uint8_t kind)
{
    struct spw_done done = {0};
    for (int i = 0; i < 1000; i++) {
        rig_advance(&rig, RIG_SECOND / 2000);
        rig_pass(&rig);
        if (!rig_reap(&good, 0, &done))
            continue;
        fuzz_expect(done.cookie == good.cookie && done.kind == kind,
                    "an answer to another command");
        return done;
    }
    fuzz_expect(false, "each command of the good client is answered");
    return done;
}

/* The bad client may reset the space: a job that it cuts short says so. */
static bool cut_short(const struct spw_done *done, uint64_t resets_before)
{
    return (done->status == -ESTALE || done->status == -ENOENT) &&
           rig_count(&rig, 0, SPW_WORKER_resets) != resets_before;
}

static void good_store(uint64_t key)
{
    uint64_t resets = rig_count(&rig, 0, SPW_WORKER_resets);
    rig_reserve(&rig, &good, 0, key, 1);
    struct spw_done done = answer(SPW_DONE_RESERVE);
    if (done.ticket == 0)
        return;
    memset(good.pool.kv[good.c], byte_of(key, 0), RIG_BLOCK_BYTES);
    memset(good.pool.kv[good.c] + RIG_BLOCK_BYTES, byte_of(key, 1), RIG_BLOCK_BYTES);
    rig_run(&rig, &good, 0, SPW_CMD_STORE, done.ticket, 1, 0);
    done = answer(SPW_DONE_STORE);
    fuzz_expect((done.status == 0 && done.mask == 0) || cut_short(&done, resets),
                "a store of the good client ends well");
}

static void good_load(uint64_t key)
{
    const uint8_t *kv = good.pool.kv[good.c] + 10 * RIG_BLOCK_BYTES;
    if (rig_state(&rig, 0, key, NULL) != SPW_READY)
        return;
    rig_begin(&rig, &good, 0, 0, key, 1);
    struct spw_done done = answer(SPW_DONE_BEGIN);
    if (done.count == 0)
        return;
    rig_run(&rig, &good, 0, SPW_CMD_LOAD, done.ticket, 1, 10);
    done = answer(SPW_DONE_LOAD);
    fuzz_expect(done.status == 0 && done.mask == 0, "a load of the good client ends well");
    for (uint32_t i = 0; i < 2 * RIG_BLOCK_BYTES; i++)
        fuzz_expect(kv[i] == byte_of(key, i / RIG_BLOCK_BYTES), "it brings what was stored");
}

/* ---- the bad client ------------------------------------------------------------------------- */

static void put_key(uint8_t *slot, uint8_t number)
{
    struct spw_reserve_key raw = {.group = number % 2, .key_bytes = 32};
    memset(raw.key, 0xee, sizeof raw.key); /* never one of the good client's */
    raw.key[1] = number % BAD_KEYS;
    spw_chunk_digest(RIG_SPACE, raw.group, raw.key, raw.key_bytes, raw.digest);
    memcpy(slot, &raw, sizeof raw);
}

static void put_entry(uint8_t *slot, uint8_t op, uint8_t number)
{
    struct spw_table_view table;
    struct spw_entry_copy entry = {0};
    spw_table_view_init(&table, rig.daemon.feed[0], &rig.daemon.feed_map, &rig.daemon.geometry);
    (void)spw_table_read(&table, number % rig.daemon.geometry.slots, false, &entry);
    const struct spw_load_source source = {.fill = entry.fill, .slot = entry.slot};
    if (op == SPW_CMD_BEGIN)
        memcpy(slot, &source, sizeof source);
    else
        memcpy(slot, &entry.digest[0], sizeof entry.digest[0]);
}

/* Ids of blocks, there or far beyond. */
static void put_blocks(uint8_t *slot, uint8_t number)
{
    uint32_t id[SPW_BLOCKS_PER_SLOT];
    for (uint32_t i = 0; i < SPW_BLOCKS_PER_SLOT; i++)
        id[i] = number & 1 ? (uint32_t)number << 12 : number + i;
    memcpy(slot, id, sizeof id);
}

/* A command that would be right, in its head and body, with some damage to both. */
static void send_damaged(struct fuzz_input *in)
{
    static uint64_t body[8 * 7], head_words[7];
    struct spw_command head = rig_head(&rig, &bad, 0, 1 + fuzz_u8(in) % 8);
    const struct fuzz_window window[] = {{head_words, sizeof head_words}, {body, sizeof body}};
    const struct spw_done *job = &bad_job[fuzz_u8(in) % JOBS_KEPT];
    uint8_t slots = fuzz_u8(in) % 4, number = fuzz_u8(in), pieces = fuzz_u8(in) % 4;
    memset(body, 0, sizeof body);
    head.ticket = job->ticket;
    head.body_slots = slots;
    head.count = slots;
    head.arg = head.op == SPW_CMD_BEGIN
                   ? 0
                   : spw_load_relaxed(&rig.daemon.feed[0]->space_generation[RIG_SPACE]) << 8;
    if (head.op == SPW_CMD_STORE || head.op == SPW_CMD_LOAD) {
        head.count = (uint16_t)(2 * job->count);
        head.arg = number % 4 == 2 ? 1 + number / 4 % 6 : 0;
        head.arg |= number & 64 ? SPW_RUN_REGISTERED : 0;
    }
    if (head.op == SPW_CMD_TOUCH)
        head.count = (uint16_t)(SPW_TOUCHES_PER_SLOT * slots);
    if (head.op == SPW_CMD_BEGIN)
        head.body_slots = head.count = slots != 0;
    for (uint8_t i = 0; i < slots; i++) {
        uint8_t *slot = (uint8_t *)body + i * SPW_LANE_PAYLOAD_BYTES;
        if (head.op == SPW_CMD_RESERVE)
            put_key(slot, (uint8_t)(number + i));
        else if (head.op == SPW_CMD_BEGIN || head.op == SPW_CMD_TOUCH)
            put_entry(slot, head.op, (uint8_t)(number + i));
        else
            put_blocks(slot, number);
    }
    memcpy(head_words, &head, sizeof head);
    while (pieces--)
        fuzz_damage(in, window, 2);
    memcpy(&head, head_words, sizeof head);
    if (head.body_slots <= 8)
        rig_send(&bad, 0, &head, body);
}

/* Slots that look published, with anything in them. */
static void send_raw(struct fuzz_input *in)
{
    uint8_t payload[SPW_LANE_PAYLOAD_BYTES];
    uint32_t count = 1 + fuzz_u8(in) % 8;
    if (spw_lane_room(&bad.command[0], count) < count)
        return;
    for (uint32_t i = 0; i < count; i++) {
        fuzz_take(in, payload, sizeof payload);
        spw_lane_write(&bad.command[0], i, payload, sizeof payload);
    }
    spw_lane_send(&bad.command[0], count);
}

/* Anything, anywhere in its object but the header, which the daemon mends. */
static void scribble(struct fuzz_input *in)
{
    struct spw_client_head *head = bad.view->head;
    const struct fuzz_window window[] = {
        {&head->lane[0], sizeof head->lane[0]},
        {&head->worker_lane[0], sizeof head->worker_lane[0]},
        {(void *)&head->generation, 192}, /* and the step and applied[] */
        {(void *)head->awaited_changes, 64},
        {(void *)bad.view->pin, 8},
        {(void *)bad.view->awaited, 8},
        {bad.view->command, bad.view->command_slots * (uint32_t)sizeof *bad.view->command},
        {bad.view->completion, bad.view->completion_slots * (uint32_t)sizeof *bad.view->completion},
    };
    fuzz_damage(in, window, sizeof window / sizeof window[0]);
}

/* What the copier will say of it and of the fences, and a record whose counts are right, or damaged. */
static void send_registration(struct fuzz_input *in)
{
    struct spw_kv_record *record = (struct spw_kv_record *)bad.view->head->mailbox.bytes;
    const struct fuzz_window window[] = {{record, sizeof *record}};
    struct spw_command head = rig_head(&rig, &bad, 0, SPW_CMD_REGISTER);
    uint8_t how = fuzz_u8(in), fences = fuzz_u8(in);
    stub_kv.steps = how % 4;
    stub_kv.refusal = how % 8 == 7 ? -EIO : 0;
    for (uint32_t f = 0; f < 4; f++)
        stub_kv.fired[bad.c][f] = (fences >> f & 1) - (fences >> (4 + f) & 1);
    if (how & 64)
        return;
    *record = (struct spw_kv_record){.memories = 1, .tensors = 2, .fences = 4};
    head.arg = spw_kv_record_bytes(1, 2, 4);
    if (how & 32)
        fuzz_damage(in, window, 1);
    if (how & 16)
        head.arg = spw_kv_record_bytes(record->memories, record->tensors, record->fences);
    rig_send(&bad, 0, &head, NULL);
}

static void reap_bad(void)
{
    struct spw_done done;
    for (uint32_t i = 0; i < 16 && rig_reap(&bad, 0, &done); i++) {
        if (done.ticket == 0)
            continue;
        memmove(bad_job + 1, bad_job, sizeof bad_job - sizeof bad_job[0]);
        bad_job[0] = done;
    }
}

/* A store as it should be, half of it or all, so that a copy may be under way at its death. */
static void send_right(struct fuzz_input *in)
{
    rig_reserve(&rig, &bad, 0, GOOD_KEYS + fuzz_u8(in) % BAD_KEYS, 1);
    rig_pass(&rig);
    reap_bad();
    if (fuzz_u8(in) % 4)
        rig_run(&rig, &bad, 0, SPW_CMD_STORE, bad_job[0].ticket, 1, 0);
    rig_pass(&rig);
}

static void bad_move(struct fuzz_input *in)
{
    uint8_t which = fuzz_u8(in), what = which % 16;
    if (which >= 224)
        send_registration(in);
    else if (what < 6)
        send_damaged(in);
    else if (what < 7)
        send_raw(in);
    else if (what < 10)
        scribble(in);
    else if (what < 12)
        send_right(in);
    else if (what < 14)
        reap_bad();
    else if (what < 15)
        rig_advance(&rig, fuzz_u16(in) * (RIG_SECOND / 10000));
    else {
        rig_die(&bad);
        rig_advance(&rig, RIG_SECOND / 5);
        rig_attach(&rig, &bad);
    }
    rig_pass(&rig);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void end_clean(void)
{
    uint32_t c = bad.c;
    rig_die(&bad);
    for (int i = 0; i < 40; i++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
    }
    fuzz_expect(rig_open_chunks(&rig, 0) == 0, "no chunk is open, or counted twice");
    fuzz_expect(rig_claims(&rig, 0) == 0, "no claim is left");
    fuzz_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0, "no slot is filling");
    fuzz_expect(rig_slots_in(&rig, 0, SPW_RETIRED) == 0, "every retired slot was freed");
    fuzz_expect(!stub_kv.open[c], "no registration is left");
    rig_attach(&rig, &bad);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    memset(bad_job, 0, sizeof bad_job);
    memset(stub_kv.fired, 0, sizeof stub_kv.fired);
    stub_kv.steps = 0;
    stub_kv.refusal = 0;
    for (uint32_t move = 0; move < MOVES_MAX && in.left; move++) {
        bad_move(&in);
        uint64_t key = ++turn * 7 % GOOD_KEYS;
        if (turn % 3 == 0)
            good_store(key);
        else if (turn % 3 == 1)
            good_load(key);
    }
    end_clean();
    return 0;
}
