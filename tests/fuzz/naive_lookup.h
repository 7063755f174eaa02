#ifndef SPW_TESTS_FUZZ_NAIVE_LOOKUP_H
#define SPW_TESTS_FUZZ_NAIVE_LOOKUP_H
/*
 * The lookup rules a second time: written from the rules' text, sharing no code with sched/, slow
 * and with all states at hand as letters H, P, R, M. Only for comparing.
 */
#include <stdbool.h>
#include <stdint.h>

#define NAIVE_GROUPS 4
#define NAIVE_CHUNKS 40
#define NAIVE_TAILS  16

enum naive_kind { NAIVE_FULL, NAIVE_SLIDING, NAIVE_CHUNKED, NAIVE_STATE };

struct naive_group {
    enum naive_kind kind;
    int64_t block;
    int64_t window_tokens;
    char states[NAIVE_CHUNKS + 1];
    bool loading[NAIVE_CHUNKS];
    int64_t eta_ns[NAIVE_CHUNKS]; /* of a P; -1: unknown */
};

struct naive_case {
    int64_t hash_unit, blocks_per_chunk;
    int64_t tokens, prompt, computed, budget;
    bool skip, inflight;
    bool guard;
    bool priced; /* with the guard: by price and rate, not by budget */
    int64_t price, rate;
    int groups;
    struct naive_group group[NAIVE_GROUPS];
    int tails; /* ascending boundaries */
    int64_t tail_boundary[NAIVE_TAILS];
    char tail_states[NAIVE_TAILS][NAIVE_GROUPS + 1];
    int64_t tail_eta_ns[NAIVE_TAILS];
};

struct naive_answer {
    const char *action;
    const char *reason;
    int64_t hit;
    int64_t tail_boundary;
    int64_t need[NAIVE_GROUPS][2];
    int64_t recomputed;
    bool cut;
    bool await[NAIVE_GROUPS][NAIVE_CHUNKS]; /* P that a defer for "retry" or "pending" waits for */
    bool await_any;         /* the wait is for whatever P was read: none is needed up to the end */
    int64_t await_boundary; /* of the tail objects in P that a defer waits for */
    int64_t eta_ns;         /* -1: unknown */
};

struct naive_answer naive_lookup(const struct naive_case *c);

#endif
