/* A prefix cache with exact LRU: a list in order of recency over the sorted ids of the trace. */
#include "tests/support/prefix_oracle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct entry {
    uint32_t newer, older; /* neighbours in the list, NONE at its ends */
    bool resident;
    bool wanted; /* FIFO: absent when the request that is served was looked up */
};

struct spw_oracle {
    const struct spw_trace *trace;
    uint64_t capacity;
    bool fifo;
    uint64_t *ids; /* sorted, each once; entries[i] is of ids[i] */
    struct entry *entries;
    uint32_t id_count;
    uint32_t newest, oldest;
    uint64_t held;
    struct spw_oracle_result result;
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

struct spw_oracle *spw_oracle_open(const struct spw_trace *trace, uint64_t capacity, bool fifo)
{
    struct spw_oracle *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    *o = (struct spw_oracle){
        .trace = trace, .capacity = capacity, .fifo = fifo, .newest = NONE, .oldest = NONE};
    o->ids = malloc((trace->id_count + 1) * sizeof(*o->ids));
    o->entries = calloc(trace->id_count + 1, sizeof(*o->entries));
    if (!o->ids || !o->entries) {
        spw_oracle_close(o);
        return NULL;
    }
    memcpy(o->ids, trace->ids, trace->id_count * sizeof(*o->ids));
    qsort(o->ids, trace->id_count, sizeof(*o->ids), by_value);
    for (uint64_t i = 0; i < trace->id_count; i++)
        if (i == 0 || o->ids[i] != o->ids[o->id_count - 1])
            o->ids[o->id_count++] = o->ids[i];
    return o;
}

void spw_oracle_close(struct spw_oracle *oracle)
{
    if (!oracle)
        return;
    free(oracle->ids);
    free(oracle->entries);
    free(oracle);
}

static uint32_t find(const struct spw_oracle *o, uint64_t id)
{
    const uint64_t *at = bsearch(&id, o->ids, o->id_count, sizeof(id), by_value);

    return at ? (uint32_t)(at - o->ids) : NONE;
}

static void take_out(struct spw_oracle *o, uint32_t at)
{
    struct entry *e = &o->entries[at];

    *(e->newer == NONE ? &o->newest : &o->entries[e->newer].older) = e->older;
    *(e->older == NONE ? &o->oldest : &o->entries[e->older].newer) = e->newer;
    e->resident = false;
    o->held--;
}

static void put_newest(struct spw_oracle *o, uint32_t at)
{
    o->entries[at] = (struct entry){.newer = NONE, .older = o->newest, .resident = true};
    *(o->newest == NONE ? &o->oldest : &o->entries[o->newest].newer) = at;
    o->newest = at;
    o->held++;
}

static void see(struct spw_oracle *o, uint32_t at)
{
    if (o->entries[at].resident)
        take_out(o, at);
    put_newest(o, at);
    while (o->held > o->capacity)
        take_out(o, o->oldest);
}

static void mark(struct spw_oracle *o, uint64_t id)
{
    struct entry *e = &o->entries[find(o, id)];
    e->wanted = !e->resident;
}

void spw_oracle_step(struct spw_oracle *oracle, uint64_t index, uint32_t *out_hit,
                     uint32_t *out_resident)
{
    const struct spw_trace_request *request = &oracle->trace->requests[index];
    const uint64_t *ids = oracle->trace->ids + request->ids_off;
    uint32_t hit = 0, resident = 0;

    for (uint32_t i = 0; i < request->id_count; i++) {
        bool there = spw_oracle_holds(oracle, ids[i]);

        hit += there && hit == i;
        resident += there;
    }
    uint64_t seen = request->id_count;
    if (oracle->fifo && seen > oracle->capacity)
        seen = oracle->capacity;
    for (uint64_t i = 0; oracle->fifo && i < seen; i++)
        mark(oracle, ids[i]);
    for (uint64_t i = seen; i-- > 0;)
        if (!oracle->fifo || oracle->entries[find(oracle, ids[i])].wanted)
            see(oracle, find(oracle, ids[i]));

    oracle->result.requests++;
    oracle->result.blocks += request->id_count;
    oracle->result.hit_blocks += hit;
    oracle->result.resident_blocks += resident;
    *out_hit = hit;
    *out_resident = resident;
}

bool spw_oracle_holds(const struct spw_oracle *oracle, uint64_t id)
{
    uint32_t at = find(oracle, id);

    return at != NONE && oracle->entries[at].resident;
}

struct spw_oracle_result spw_oracle_result(const struct spw_oracle *oracle)
{
    return oracle->result;
}

int spw_oracle_run(const struct spw_trace *trace, uint64_t capacity, bool fifo,
                   struct spw_oracle_result *out_result)
{
    struct spw_oracle *oracle = spw_oracle_open(trace, capacity, fifo);
    uint32_t hit, resident;

    if (!oracle)
        return -ENOMEM;
    for (uint64_t i = 0; i < trace->request_count; i++)
        spw_oracle_step(oracle, i, &hit, &resident);
    *out_result = oracle->result;
    spw_oracle_close(oracle);
    return 0;
}
