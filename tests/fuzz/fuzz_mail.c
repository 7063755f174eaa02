/*
 * A mailbox with any bytes in it, as the daemon reads it. Every request gets its reply, with words
 * that end; the mailbox is only read; and whatever ctl holds as a space afterwards is in range, is
 * no other's twin, and never changes again but for workers that are added to its ranks. Then the ctl
 * is an old one, with damage, out of which the next daemon keeps spaces: these are such spaces too.
 */
#include "tests/fuzz/guarded.h"
#include <xxhash.h>

#include "tools/log.h"
#include "tools/mail.h"
#include "tools/spaces.h"

#define REQUESTS_MAX 80u /* more than there are spaces */
#define ASKED_BYTES  sizeof(struct spw_open_space_mail)

static struct guarded_pool pool;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static struct spw_log_config quiet = {.program = "fuzz", .quiet = true};
    struct spw_mailbox *mail;
    quiet.out = stderr;
    spw_log_open(&quiet);
    guarded_pool_make(&pool);
    guarded_pool_fill(&pool); /* with space 0 */
    mail = &pool.pool.client[0].head->mailbox;
    spw_store_relaxed(&mail->kind, SPW_MAIL_OPEN_SPACE);
    spw_store_relaxed(&mail->length_bytes, ASKED_BYTES);
    spw_store_relaxed(&pool.pool.client[0].head->generation, 7);
    memcpy(mail->bytes, &pool.pool.ctl->space[0].record, sizeof(struct spw_space_record));
    guarded_pool_save(&pool);
    return 0;
}

static void check_group(const struct spw_space_record *record, uint32_t g)
{
    const struct spw_group_record *group = &record->group[g];
    fuzz_expect(group->kind <= 3 && group->block_tokens > 0 && group->chunk_bytes > 0 &&
                    group->chunk_bytes <= pool.pool.geometry.slot_bytes &&
                    group->chunk_bytes % record->blocks_per_chunk == 0,
                "a group out of range");
}

static void check_space(uint32_t s)
{
    const struct spw_space_slot *space = &pool.pool.ctl->space[s];
    const struct spw_space_record *record = &space->record;
    uint64_t kept = 0;
    fuzz_expect(record->fingerprint[0] && memchr(record->fingerprint, 0, 256), "a fingerprint");
    fuzz_expect(record->blocks_per_chunk >= 1 && record->blocks_per_chunk <= SPW_CHUNK_BLOCKS_MAX &&
                    record->hash_unit_tokens >= 1 && record->groups >= 1 &&
                    record->groups <= SPW_GROUP_COUNT_MAX && record->ranks >= 1 &&
                    record->ranks <= SPW_RANKS_MAX,
                "a space out of range");
    for (uint32_t g = 0; g < record->groups; g++)
        check_group(record, g);
    for (uint32_t r = 0; r < SPW_RANKS_MAX; r++) {
        uint64_t workers = spw_load_relaxed(&space->rank_workers[r]);
        fuzz_expect(workers >> GUARDED_WORKERS == 0 && (r < record->ranks || workers == 0),
                    "a rank kept by a worker that there isn't");
        fuzz_expect((kept & workers) == 0, "two ranks at one worker");
        kept |= workers;
    }
    uint64_t shares = spw_load_relaxed(&space->shares);
    uint32_t largest = SPW_SHARES_LARGEST(shares);
    fuzz_expect(largest <= SPW_SHARES_ALL &&
                    SPW_SHARES_GUARANTEED(shares) <= (largest ? largest : SPW_SHARES_ALL),
                "a share out of range");
    for (uint32_t other = 0; other < s; other++)
        fuzz_expect(strcmp(record->fingerprint, pool.pool.ctl->space[other].record.fingerprint),
                    "two spaces of one fingerprint");
}

static bool uses(const struct spw_space_slot *space, uint32_t k)
{
    uint64_t workers = 0;
    for (uint32_t r = 0; r < SPW_RANKS_MAX; r++)
        workers |= spw_load_relaxed(&space->rank_workers[r]);
    return workers >> k & 1;
}

static void check_promises(void)
{
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++) {
        uint32_t promised = 0;
        for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
            const struct spw_space_slot *space = &pool.pool.ctl->space[s];
            if (spw_load_relaxed(&space->ready) == 1 && uses(space, k))
                promised += SPW_SHARES_GUARANTEED(spw_load_relaxed(&space->shares));
        }
        fuzz_expect(promised <= SPW_SHARES_ALL, "more than all is promised");
    }
}

static void request(uint64_t seq)
{
    static struct spw_space_record before[SPW_SPACES_MAX];
    struct spw_ctl *ctl = pool.pool.ctl;
    const struct spw_reply *reply = &ctl->reply[0];
    const struct spw_client_head *client = pool.readers.client[0].head;
    uint32_t spaces = 0;
    for (; spaces < SPW_SPACES_MAX && spw_load_relaxed(&ctl->space[spaces].ready); spaces++)
        before[spaces] = ctl->space[spaces].record;
    bool stop = spw_mail_answer(ctl, &pool.pool.geometry, 0, client, seq);
    fuzz_expect(spw_load_relaxed(&reply->seq) == seq, "a reply to each request");
    fuzz_expect(memchr(reply->text, 0, sizeof reply->text), "its words end");
    int64_t status = (int64_t)spw_load_relaxed(&reply->status);
    fuzz_expect(stop == (spw_load_relaxed(&client->mailbox.kind) == SPW_MAIL_STOP) &&
                    (!stop || status == 0),
                "who asks for it stops the pool");
    fuzz_expect(status == 0 || status == -EINVAL || status == -EBUSY || status == -ENOSPC ||
                    status == -ESRCH,
                "no such answer");
    fuzz_expect(status == 0 || reply->text[0], "a refusal has words");
    fuzz_expect(spw_load_relaxed(&reply->generation) == spw_load_relaxed(&client->generation),
                "a reply to another client");
    uint64_t length = spw_load_relaxed(&client->mailbox.length_bytes);
    fuzz_expect(stop || status < 0 || length == ASKED_BYTES ||
                    length == sizeof(struct spw_shares_mail),
                "what is asked for is there as a whole");
    uint64_t value = spw_load_relaxed(&reply->value);
    fuzz_expect(stop || status < 0 ||
                    (value < SPW_SPACES_MAX && spw_load_relaxed(&ctl->space[value].ready) == 1),
                "a space that there isn't");
    for (uint32_t s = 0; s < spaces; s++)
        fuzz_expect(!memcmp(&before[s], &ctl->space[s].record, sizeof before[s]),
                    "a space that changed");
    if (status == 0 && !stop)
        check_space((uint32_t)value);
    check_promises();
}

/* Half of what is damaged gets the seal that belongs to it, or nothing would come through. */
static void keep(struct fuzz_input *in)
{
    static struct spw_ctl before;
    struct spw_ctl *ctl = pool.pool.ctl;
    const uint8_t which = fuzz_u8(in);
    struct spw_space_slot *slot = &ctl->space[which % 3];
    const struct fuzz_window window[] = {
        {slot, sizeof *slot},
        {(void *)slot->rank_workers, sizeof slot->rank_workers},
        {&slot->record, sizeof slot->record},
    };
    while (in->left)
        fuzz_damage(in, window, 3);
    if (which & 128)
        slot->seal = XXH3_64bits(&slot->record, sizeof slot->record);
    before = *ctl; /* the new one is made in its place: the old one is only read */
    memset(ctl->space, 0, sizeof ctl->space);
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        char text[128] = "";
        int rc = spw_spaces_keep(ctl, &pool.pool.geometry, s, &before.space[s], text, sizeof text);
        fuzz_expect(rc == 0 || text[0], "what isn't kept is told why");
        if (rc == 0)
            check_space(s);
    }
    check_promises();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct spw_mailbox *mail = &pool.pool.client[0].head->mailbox;
    const struct fuzz_window window[] = {
        {(void *)&mail->bell, 64},
        {mail->bytes, 256},                                                /* the fingerprint */
        {mail->bytes + 256, sizeof(struct spw_space_record) - 256},        /* geometry        */
        {mail->bytes + sizeof(struct spw_space_record), sizeof(uint64_t)}, /* shares */
        {mail->bytes + offsetof(struct spw_open_space_mail, rank_worker),
         SPW_RANKS_MAX * sizeof(uint32_t)},
    };
    guarded_restore(&pool.ctl);
    guarded_restore(&pool.client[0]);
    for (uint64_t seq = 1; seq < REQUESTS_MAX && in.left; seq++) {
        uint8_t pieces = fuzz_u8(&in);
        if (pieces == 0xfe)
            keep(&in);
        pieces %= 4;
        while (pieces--)
            fuzz_damage(&in, window, sizeof window / sizeof window[0]);
        request(seq);
    }
    return 0;
}
