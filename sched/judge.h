#ifndef SPW_SCHED_JUDGE_H
#define SPW_SCHED_JUDGE_H
/*
 * From a chunk's word in the replica to its verdict for one space: of every rank some worker must
 * have its part, and the weakest part decides (MISS > RETRY > PENDING > HIT). A part that only the tier
 * below has is PENDING: whoever waits for it has it brought up (sched/promote.c). Pure.
 *
 * Masks have the low bit of each worker's pair.
 */
#include "sched/replica.h"
#include "sched/verdict.h"
#include "shm/base.h"

struct spw_judge {
    uint64_t live;                /* both bits of workers whose view may be used            */
    uint64_t up;                  /* workers that are up: what others write or keep below is lost */
    uint64_t parts;               /* workers that keep parts of this space                  */
    uint32_t ranks;               /* 1 and an empty mask: everything is MISS                */
    uint64_t mask[SPW_RANKS_MAX]; /* workers that keep parts of each rank     */
};

static inline uint8_t spw_judge_word(const struct spw_judge *judge, uint64_t word)
{
    uint64_t ready = spw_replica_ready(word & judge->live);
    uint64_t pending = word & judge->live & judge->up; /* PENDING or COLD: those with a low bit */
    uint8_t verdict = SPW_HIT;
    for (uint32_t r = 0; r < judge->ranks; r++) {
        if (ready & judge->mask[r])
            continue;
        if (!(pending & judge->mask[r]))
            return SPW_MISS;
        verdict = SPW_PENDING;
    }
    return verdict;
}

static inline void spw_judge_words(const struct spw_judge *judge, const uint64_t *words,
                                   uint64_t count, uint8_t *out_verdicts)
{
    if (judge->ranks == 1) { /* the same without a branch a chunk */
        uint64_t mask = judge->live & judge->mask[0], up = mask & judge->up;
        for (uint64_t i = 0; i < count; i++) {
            uint32_t hit = (spw_replica_ready(words[i]) & mask) != 0;
            uint32_t pending = (words[i] & up) != 0;
            out_verdicts[i] = (uint8_t)(hit ? SPW_HIT : pending * SPW_PENDING);
        }
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        out_verdicts[i] = spw_judge_word(judge, words[i]);
}

/** Bit k of @workers to the low bit of pair k. */
static inline uint64_t spw_judge_pairs(uint64_t workers)
{
    uint64_t x = workers & 0xffffffffull;
    x = (x | x << 16) & 0x0000ffff0000ffffull;
    x = (x | x << 8) & 0x00ff00ff00ff00ffull;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0full;
    x = (x | x << 2) & 0x3333333333333333ull;
    return (x | x << 1) & SPW_REPLICA_LOW_BITS;
}

#endif
