/*
 * Lanes with a mistake. What x86 can't show is left to the models: head, tail or sequence stored or
 * read without their order.
 *
 *   seq_first    the first slot's sequence is stored before the message
 */
#include "tests/stress/mutants.h"

#include <string.h>

static bool seq_first;
static _Thread_local bool is_producer;
static _Thread_local struct {
    spw_atomic64 *at;
    uint64_t value;
} held[128];
static _Thread_local unsigned held_count;

void lane_mutant_set_up(const char *name)
{
    seq_first = strcmp(name, "seq_first") == 0;
}

void lane_mutant_is_producer(void)
{
    is_producer = true;
}

static void mutant_store(spw_atomic64 *at, uint64_t value)
{
    if (!seq_first || !is_producer) {
        spw_store_relaxed(at, value);
        return;
    }
    held[held_count].at = at;
    held[held_count++].value = value;
}

static void mutant_store_release(spw_atomic64 *at, uint64_t value)
{
    spw_store_release(at, value);
    for (unsigned i = 0; i < held_count; i++)
        spw_store_relaxed(held[i].at, held[i].value);
    held_count = 0;
}

#undef spw_store_relaxed
#undef spw_store_release
#define spw_store_relaxed(at, value) mutant_store(at, value)
#define spw_store_release(at, value) mutant_store_release(at, value)

#include "shm/lane.c"
