#ifndef SPW_TESTS_UNIT_LOOKUP_SCENE_H
#define SPW_TESTS_UNIT_LOOKUP_SCENE_H
/*
 * A small request for spw_decide(): a string of letters (H, P, R, M) a group, and what was asked
 * about it. One scene at a time: verdict bytes are shared.
 */
#include "sched/decide.h"
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#define SCENE_CHUNKS_MAX 8192

struct scene {
    struct spw_lookup_source source;
    struct spw_group_shape shapes[SPW_GROUPS_MAX];
    struct spw_groups groups;
    struct spw_decide_input in;
    uint64_t hash_unit;
    const char *states[SPW_GROUPS_MAX];
    uint64_t loading[SPW_GROUPS_MAX]; /* the one chunk being loaded */
    uint64_t tail_boundary;           /* the one tail there is, and its states */
    const char *tail_states;
    int tail_loading;
    uint64_t eta_ns[SPW_GROUPS_MAX]; /* of all that pends in a group */
    uint64_t tail_eta_ns;
    uint64_t asked[SPW_GROUPS_MAX]; /* chunks */
    uint64_t calls;
    struct spw_chunk_range eta_of[SPW_GROUPS_MAX]; /* the last one asked about */
    uint64_t eta_calls;
};

/** A prompt of @tokens, nothing computed, no groups yet. */
struct scene prompt_of(uint64_t tokens, uint64_t budget);

/** The same for the priced rule, ETAs 0: a token is worth a wait of 4000 ns. */
struct scene priced_prompt_of(uint64_t tokens);

/** One more group, of chunks of @block tokens. */
void add_group(struct scene *scene, uint8_t kind, uint64_t block, uint64_t window,
               const char *states);

struct spw_decision_core decide(struct scene *scene);

/** One full group, chunks of 16. */
struct spw_decision_core decide_full(const char *states, uint64_t budget);

void expect_outcome(const struct spw_decision_core *got, uint8_t reason, uint64_t hit);
void expect_decider(const struct spw_decision_core *got, int group, uint64_t chunk);
void expect_wait(const struct spw_decision_core *got, uint32_t i, uint32_t group, uint64_t chunk,
                 uint64_t boundary);

#endif
