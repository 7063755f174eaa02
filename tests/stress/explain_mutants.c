/*
 * The ring of decisions with a mistake. What x86 can't show is left out: it keeps the order of two
 * loads and of two stores without a fence.
 *
 *   no_clear      the writer leaves the old seq while it stores the words
 *   words_last    it stores seq and count before the words
 *   early_look    the reader looks at seq before it copies the words
 */
#include "tests/stress/mutants.h"

#include <string.h>

static bool no_clear, words_last, early_look;
static struct spw_client_head *ring;
static _Thread_local uint64_t look;
static _Thread_local struct {
    spw_atomic64 *at;
    uint64_t value;
} held[SPW_DECISION_WORDS];
static _Thread_local unsigned held_count;

void explain_mutant_set_up(const char *name, struct spw_client_head *head)
{
    ring = head;
    no_clear = strcmp(name, "no_clear") == 0;
    words_last = strcmp(name, "words_last") == 0;
    early_look = strcmp(name, "early_look") == 0;
}

/* Which word of a record: 0 is its seq; -1: it is none of a record's. */
static int index_in_record(const spw_atomic64 *at)
{
    uintptr_t off = (uintptr_t)at - (uintptr_t)ring->decision;
    return off < sizeof ring->decision ? (int)(off % sizeof ring->decision[0] / 8) : -1;
}

static void mutant_store(spw_atomic64 *at, uint64_t value)
{
    if (no_clear && index_in_record(at) == 0 && value == 0)
        return;
    if (!words_last || index_in_record(at) < 1) {
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

static uint64_t mutant_load(const spw_atomic64 *at)
{
    int index = index_in_record(at);
    if (early_look && index == 1)
        look = spw_load_relaxed(at - 1);
    return early_look && index == 0 ? look : spw_load_relaxed(at);
}

#undef spw_load_relaxed
#undef spw_store_relaxed
#undef spw_store_release
#define spw_load_relaxed(at)         mutant_load(at)
#define spw_store_relaxed(at, value) mutant_store(at, value)
#define spw_store_release(at, value) mutant_store_release(at, value)

#include "sched/explain.c"
