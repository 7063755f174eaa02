/*
 * The update ring with a mistake. What x86 can't show is left to tests/model: a missing release or
 * acquire fence and a relaxed sequence (its stores and its loads keep their order anyway).
 *
 *   no_check      the reader takes what it copied, whatever the gate says
 *   early_check   it looks at the gate before it copies
 *   seq_first     the writer stores a slot's sequence before its payload
 *   gate_late     it moves the gate after the payload
 */
#include "tests/stress/mutants.h"

#include <string.h>

static bool no_check, early_check, seq_first, gate_late;
static struct spw_feed_head *ring_head;

static _Thread_local bool is_writer, is_reader;
static _Thread_local uint64_t early_gate;

/* the writer's stores that wait for a later one to go first */
static _Thread_local struct {
    spw_atomic64 *at;
    uint64_t value;
} held[4];
static _Thread_local unsigned held_count;

void ring_mutant_set_up(const char *name, struct spw_feed_head *head)
{
    ring_head = head;
    no_check = strcmp(name, "no_check") == 0;
    early_check = strcmp(name, "early_check") == 0;
    seq_first = strcmp(name, "seq_first") == 0;
    gate_late = strcmp(name, "gate_late") == 0;
}

void ring_mutant_is_writer(void)
{
    is_writer = true;
}

void ring_mutant_is_reader(void)
{
    is_reader = true;
}

static bool mutant_pos_before(uint64_t a, uint64_t b)
{
    return (no_check && is_reader) || spw_pos_before(a, b);
}

static void let_go(void)
{
    for (unsigned i = 0; i < held_count; i++)
        spw_store_relaxed(held[i].at, held[i].value);
    held_count = 0;
}

static void mutant_store(spw_atomic64 *at, uint64_t value)
{
    bool is_gate = ring_head && at == &ring_head->gate;
    if (is_writer && (is_gate ? gate_late : seq_first)) {
        held[held_count].at = at;
        held[held_count++].value = value;
    } else {
        spw_store_relaxed(at, value);
    }
}

static void mutant_store_release(spw_atomic64 *at, uint64_t value)
{
    spw_store_release(at, value);
    if (!gate_late || at == &ring_head->tail)
        let_go();
}

static uint64_t mutant_load_acquire(const spw_atomic64 *at)
{
    if (early_check)
        early_gate = spw_load_acquire(&ring_head->gate);
    return spw_load_acquire(at);
}

static uint64_t mutant_load(const spw_atomic64 *at)
{
    if (early_check && is_reader && at == &ring_head->gate)
        return early_gate;
    return spw_load_relaxed(at);
}

#undef spw_load_relaxed
#undef spw_load_acquire
#undef spw_store_relaxed
#undef spw_store_release
#define spw_load_relaxed(at)         mutant_load(at)
#define spw_load_acquire(at)         mutant_load_acquire(at)
#define spw_store_relaxed(at, value) mutant_store(at, value)
#define spw_store_release(at, value) mutant_store_release(at, value)
#define spw_pos_before(a, b)         mutant_pos_before(a, b)

#include "shm/bcast_ring.c"
