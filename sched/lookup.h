#ifndef SPW_SCHED_LOOKUP_H
#define SPW_SCHED_LOOKUP_H
/*
 * Lookup: how far the stored chunks of all groups of a request reach, together.
 *
 * Pure: no clock, no allocation, no I/O. What a chunk is, is asked from a source, lazily and at
 * most once an evaluation: chunks may change while it runs, and the search ends only because
 * what it has read stays what it was. docs/lookup.md has the rules; their codes stand in the
 * code. sched/decide.h puts an evaluation together; call that.
 */
#include "sched/groups.h"

#define SPW_NOT_READ 0xff /* in place of an enum spw_verdict: not asked yet */

/** What an evaluation asks. Driven by one thread; the functions don't keep their pointers. */
struct spw_lookup_source {
    /**
     * Write the verdicts (enum spw_verdict) of chunks @first .. @first + @count - 1 of @group.
     * Full groups are asked for from the left, in growing batches, up to the first MISS;
     * the others from the right, up to the first window found.
     */
    void (*fetch)(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t count,
                  uint8_t *out_verdicts);
    /**
     * The lowest chunk in [@first, @end) of @group that is being loaded to the GPU for another
     * request, else @end. NULL: GPU prefix caching is off, loads are of no use to others.
     */
    uint64_t (*loading)(struct spw_lookup_source *source, uint32_t group, uint64_t first,
                        uint64_t end);
    /**
     * Find the highest boundary in (@above, @at_most], a multiple of the hash unit, whose objects
     * aren't known to be MISS in all groups; write it and the verdict of each group's object.
     * Returns false if there is none. NULL: no partial tails are kept.
     */
    bool (*tail)(struct spw_lookup_source *source, uint64_t above, uint64_t at_most,
                 uint64_t *out_boundary, uint8_t *out_verdicts);
    /**
     * The lowest group whose object ending at @boundary is being loaded for another request,
     * else -1. May be NULL, as loading.
     */
    int (*tail_loading)(struct spw_lookup_source *source, uint64_t boundary);
    /**
     * Nanoseconds until every chunk in [@first, @end) of @group that was read as PENDING is
     * ready, UINT64_MAX if that isn't known. Such chunks stand at both ends of the range; others
     * in it may be anything, or not have been read. NULL: never known.
     */
    uint64_t (*eta)(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t end);
    /** The same for the objects of all groups that end at @boundary. */
    uint64_t (*tail_eta)(struct spw_lookup_source *source, uint64_t boundary);
};

/** Keys of one group. */
struct spw_lookup_chunks {
    uint64_t count;    /* chunks that have a key, at most num_tokens / chunk_tokens          */
    uint8_t *verdicts; /* count bytes, the caller's, working memory of one evaluation; after
                          it: what was read, SPW_NOT_READ elsewhere                          */
};

/** One request. Token counts and the budget are at most SPW_TOKENS_MAX. */
struct spw_lookup_input {
    const struct spw_groups *groups;
    uint64_t num_tokens;          /* all tokens the request holds now                         */
    uint64_t num_prompt_tokens;   /* of these, its prompt                                     */
    uint64_t num_computed_tokens; /* of these, resident on the GPU, counted from 0            */
    uint64_t budget_tokens;       /* recompute at most so many rather than wait; 0: wait      */
    struct spw_lookup_chunks chunks[SPW_GROUPS_MAX]; /* by group index */
};

/** What one group waits for. */
struct spw_lookup_wait {
    bool waits;
    struct spw_chunk_range searched; /* each RETRY in here                                    */
    struct spw_chunk_range run;      /* and each PENDING in here, a part of searched; also if
                                        PENDING was read as HIT                               */
};

/** Outcome of the search over complete chunks. */
struct spw_lookup_result {
    uint8_t action; /* enum spw_action                                                        */
    uint8_t reason; /* enum spw_reason                                                        */
    bool cut;       /* the budget cut at least once on the way, even if the result is a miss  */
    uint64_t end;   /* load: tokens covered; miss: num_computed_tokens; defer: the position at
                       which the groups agree to wait                                         */
    int32_t group;  /* load: the group that ended the hit, or cut it; miss: the group that
                       missed; -1: no group did                                               */
    uint64_t chunk; /* and its chunk: the first one not used, the first one looked at         */
    struct spw_lookup_wait wait[SPW_GROUPS_MAX]; /* by group index; for a defer               */
};

/** 0, or -EINVAL if @in makes no sense. */
int spw_lookup_check(const struct spw_lookup_input *in);

/** Start an evaluation: nothing of @in's chunks is known. */
void spw_lookup_begin(const struct spw_lookup_input *in);

/**
 * Search the complete chunks of all groups.
 *
 * @in               checked and begun; what was read before in this evaluation is used again
 * @pending_as_hit   read every PENDING as HIT: where would the hit end if all writes had ended?
 */
void spw_lookup_complete(const struct spw_lookup_input *in, struct spw_lookup_source *source,
                         bool pending_as_hit, struct spw_lookup_result *out_result);

/**
 * Find a chunk that a load up to token @end needs and that is being loaded for another request.
 * Returns its group and writes the chunk, or -1.
 */
int spw_lookup_loading(const struct spw_lookup_input *in, struct spw_lookup_source *source,
                       uint64_t end, uint64_t *out_chunk);

#endif
