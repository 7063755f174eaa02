/* Decisions that explain themselves; see explain.h. */
#include "sched/explain.h"

#include "sched/verdict.h"
#include "shm/crash_point.h"

#include <string.h>

/* A record's words: the struct's wide fields as they are, then two that hold the narrow ones. */
enum {
    WIDE_WORDS = 12,
    WORD_PLACE = WIDE_WORDS,
    WORD_KIND,
    WORD_COUNT,
};
_Static_assert(offsetof(struct spw_explained, group) == WIDE_WORDS * sizeof(uint64_t),
               "wide fields come first");
_Static_assert(WORD_COUNT <= SPW_DECISION_WORDS, "a record has room for them");

static uint64_t word_of(const struct spw_explained *explained, uint32_t i)
{
    uint64_t word;
    switch (i) {
    case WORD_PLACE:
        return (uint64_t)explained->space << 32 | explained->group;
    case WORD_KIND:
        return (uint64_t)explained->flags << 16 | (uint64_t)explained->reason << 8 |
               explained->action;
    default: /* one by one: they have just been stored so, and wider loads would wait for that */
        memcpy(&word, (const uint8_t *)explained + i * sizeof(word), sizeof(word));
        return word;
    }
}

static int unpack(const uint64_t *word, struct spw_explained *out_explained)
{
    struct spw_explained explained = {
        .group = (uint32_t)word[WORD_PLACE],
        .space = (uint32_t)(word[WORD_PLACE] >> 32),
        .action = (uint8_t)word[WORD_KIND],
        .reason = (uint8_t)(word[WORD_KIND] >> 8),
        .flags = (uint8_t)(word[WORD_KIND] >> 16),
    };
    memcpy(&explained, word, WIDE_WORDS * sizeof(word[0]));
    if (explained.action > SPW_ACTION_DEFER || explained.reason >= SPW_REASON_COUNT ||
        word[WORD_KIND] >> 24 != 0 || explained.space >= SPW_SPACES_MAX ||
        (explained.group >= SPW_GROUP_COUNT_MAX && explained.group != SPW_EXPLAINED_NO_GROUP))
        return -EBADMSG;
    *out_explained = explained;
    return 0;
}

static uint32_t place_of(uint64_t n)
{
    return (uint32_t)(n % SPW_DECISION_RECORDS);
}

void spw_explain_write(struct spw_client_head *head, const struct spw_explained *explained)
{
    uint64_t n = spw_load_relaxed(&head->decisions); /* relaxed: only this process writes it */
    struct spw_decision_record *record = &head->decision[place_of(n)];
    spw_store_relaxed(&record->seq, 0);
    /* [EX-1] release: seq 0 before any word */
    spw_fence_release();
    SPW_CRASH_POINT("explain.seq_cleared");
    for (uint32_t i = 0; i < WORD_COUNT; i++) {
        spw_store_relaxed(&record->word[i], word_of(explained, i));
        SPW_CRASH_POINT("explain.word_stored");
    }
    spw_store_relaxed(&record->seq, n + 1); /* relaxed: nobody looks before it is counted */
    SPW_CRASH_POINT("explain.seq_stored");
    /* [EX-2] release: the record before the count of it */
    spw_store_release(&head->decisions, n + 1);
    SPW_CRASH_POINT("explain.decisions_stored");
}

void spw_explain_range(const struct spw_client_head *head, uint64_t *out_first, uint64_t *out_end)
{
    /* [EX-2] acquire: the count before the records it counts */
    uint64_t end = spw_load_acquire(&head->decisions);
    /* relaxed: a base from before a hand-over shows what the last holder left, which is whole too */
    uint64_t kept = end - spw_load_relaxed(&head->decision_base);
    if (kept > SPW_DECISION_RECORDS)
        kept = SPW_DECISION_RECORDS;
    *out_first = end - kept;
    *out_end = end;
}

int spw_explain_read(const struct spw_client_head *head, uint64_t n,
                     struct spw_explained *out_explained)
{
    const struct spw_decision_record *record = &head->decision[place_of(n)];
    uint64_t word[WORD_COUNT], first, end;
    spw_explain_range(head, &first, &end);
    if (n - first >= end - first)
        return -ENOENT;
    for (uint32_t i = 0; i < WORD_COUNT; i++)
        word[i] = spw_load_relaxed(&record->word[i]);
    /* [EX-1] acquire: the words before the look that says whose they are */
    spw_fence_acquire();
    uint64_t seq = spw_load_relaxed(&record->seq);
    if (seq == 0)
        return -EAGAIN;
    if (seq != n + 1)
        return -ENOENT;
    return unpack(word, out_explained);
}
