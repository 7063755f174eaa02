#ifndef SPW_SCHED_VERDICT_H
#define SPW_SCHED_VERDICT_H
/*
 * The words of a lookup: what one chunk is, and what one request should do. Installed; plain C
 * that compiles as C++ too. The values are fixed: they are stored in bytes and sent to programs.
 */

/** What is known of one chunk, for all ranks of an engine together. */
enum spw_verdict {
    SPW_MISS = 0,    /* stored nowhere                                   */
    SPW_HIT = 1,     /* readable now                                     */
    SPW_PENDING = 2, /* present, its write hasn't ended, or only below   */
    SPW_RETRY = 3,   /* not known yet: a lower tier has still to answer  */
};

/** How the layers of a KV-cache group use the tokens before them. */
enum spw_group_kind {
    SPW_GROUP_FULL = 0,    /* full attention: every token before                           */
    SPW_GROUP_SLIDING = 1, /* sliding window: the last window_tokens                       */
    SPW_GROUP_CHUNKED = 2, /* chunked local attention: at most the last window_tokens      */
    SPW_GROUP_STATE = 3,   /* recurrent state: the one state at the resume point           */
};

/** What the engine should do with the request now. */
enum spw_action {
    SPW_ACTION_LOAD = 0,  /* load what is stored, compute the rest                      */
    SPW_ACTION_MISS = 1,  /* nothing to load: schedule and compute                      */
    SPW_ACTION_DEFER = 2, /* decide nothing: skip the request this step, ask again later */
};

/** Why; each reason belongs to one action. */
enum spw_reason {
    /* load */
    SPW_REASON_COMPLETE = 0, /* complete chunks, no budget cut                          */
    SPW_REASON_CUT,          /* complete chunks, cut before a pending run               */
    SPW_REASON_TAIL,         /* up to a boundary inside a chunk                         */
    /* miss */
    SPW_REASON_SHORT,           /* less than one chunk of some group was left            */
    SPW_REASON_GROUP_MISS,      /* a group had nothing usable at its first chunk         */
    SPW_REASON_LEADING_PENDING, /* the first chunk is pending and within the budget      */
    SPW_REASON_SKIP,            /* the request doesn't read cached prefixes              */
    /* defer */
    SPW_REASON_RETRY,        /* a chunk's place isn't known yet                          */
    SPW_REASON_PENDING,      /* a pending chunk is worth the wait, or can't be cut away  */
    SPW_REASON_LOADING,      /* a needed chunk is being loaded for another request       */
    SPW_REASON_TRANSFER,     /* a transfer of this request is in flight                  */
    SPW_REASON_TAIL_RETRY,   /* as RETRY, for the end of a partial tail                  */
    SPW_REASON_TAIL_PENDING, /* as PENDING, for the end of a partial tail                */
    /* after a wait that ran into its limit: such a chunk reads MISS for this request    */
    SPW_REASON_LOAD_LIMIT, /* load, cut before such a chunk                              */
    SPW_REASON_MISS_LIMIT, /* miss, for such a chunk                                     */
    /* the tier below has a chunk and won't bring it: it reads MISS for this request     */
    SPW_REASON_LOAD_NOT_PROMOTED, /* load, cut before such a chunk                       */
    SPW_REASON_MISS_NOT_PROMOTED, /* miss, for such a chunk                              */
    SPW_REASON_COUNT
};

/** How a wait ended, from the first evaluation that deferred to the first one that doesn't. */
enum spw_wait_outcome {
    SPW_WAIT_HIT = 0,       /* in a load that gave up nothing, or on the GPU by then      */
    SPW_WAIT_CUT = 1,       /* by budget or price: what still pended was given up        */
    SPW_WAIT_EXPIRED = 2,   /* by its limit                                              */
    SPW_WAIT_CANCELLED = 3, /* the request was finished                                  */
    SPW_WAIT_RETRY = 4,     /* what wasn't known turned out to be missing                */
    SPW_WAIT_LOST = 5,      /* what was pending failed, went away, or isn't brought      */
    SPW_WAIT_OUTCOMES
};

/** Whose loss the recompute budget bounds. */
enum spw_recompute_scope {
    SPW_SCOPE_REQUEST = 0, /* the request's, all groups together (default)  */
    SPW_SCOPE_GROUP = 1,   /* each full group's alone                       */
};

#endif
