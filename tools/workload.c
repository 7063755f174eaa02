/* A made-up workload. First every turn of every conversation is drawn, then they go by arrival. */
#include "tools/workload.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS          1000000000ull
#define CONTEXT_TOKENS_MAX 131072u
#define READER_GAP_NS      (30 * SECOND_NS) /* at most, between two readers of a document */

/* What a block's tokens belong to; first field of its raw id. */
enum content { CONTENT_SYSTEM, CONTENT_DOCUMENT, CONTENT_TALK, CONTENT_PARTIAL };

/* One conversation: whose system prompt, which document, and what it has grown to. */
struct talk {
    uint32_t number;
    uint32_t assistant;
    uint32_t document; /* 0 for none */
    uint32_t system_tokens;
    uint32_t document_tokens;
    uint32_t context_tokens;
};

/* One request to be: the context of a conversation at one turn. */
struct turn {
    uint64_t arrival_ns;
    struct talk talk;
    uint32_t output_tokens;
};

struct turns {
    struct turn *items;
    size_t count, room;
};

/* One line of a table to draw from: a value in low..high with the weight given. */
struct bucket {
    uint32_t weight;
    uint32_t low, high;
};

/* weights of a table add up to 100 */
static const struct bucket message_tokens[] = {
    {35, 100, 800}, {35, 800, 3000}, {22, 3000, 8000}, {8, 8000, 20000}};
static const struct bucket answer_tokens[] = {
    {40, 20, 150}, {40, 150, 600}, {17, 600, 1500}, {3, 1500, 4000}};
static const struct bucket think_ms[] = {
    {30, 8000, 25000}, {45, 25000, 60000}, {25, 60000, 180000}};
static const struct bucket document_tokens[] = {{70, 8000, 20000}, {30, 20000, 40000}};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t draw(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    return mix(*state);
}

static uint64_t draw_between(uint64_t *state, uint64_t low, uint64_t high)
{
    return low + draw(state) % (high - low + 1);
}

static uint32_t draw_from(uint64_t *state, const struct bucket *table)
{
    uint32_t at = (uint32_t)draw_between(state, 0, 99);

    while (at >= table->weight) {
        at -= table->weight;
        table++;
    }
    return (uint32_t)draw_between(state, table->low, table->high);
}

static int add_turn(struct turns *turns, const struct turn *turn)
{
    if (turns->count == turns->room) {
        size_t room = turns->room ? turns->room * 2 : 1024;
        struct turn *moved = realloc(turns->items, room * sizeof(*moved));

        if (!moved)
            return -ENOMEM;
        turns->items = moved;
        turns->room = room;
    }
    turns->items[turns->count++] = *turn;
    return 0;
}

/* All turns of one conversation that begins at @at_ns; adds up the tokens nobody had before. */
static int add_talk(const struct spw_workload *w, uint64_t *state, uint64_t at_ns, struct talk talk,
                    struct turns *turns, uint64_t *new_tokens)
{
    uint64_t count = draw_between(state, 1, w->turns_max);
    uint32_t answered = 0;

    talk.context_tokens = talk.system_tokens + talk.document_tokens;
    for (uint64_t i = 0; i < count && at_ns < w->duration_ns; i++) {
        uint32_t grown = answered + draw_from(state, message_tokens);
        struct turn turn = {.arrival_ns = at_ns, .output_tokens = draw_from(state, answer_tokens)};
        int rc;

        if (talk.context_tokens + grown > CONTEXT_TOKENS_MAX)
            break;
        talk.context_tokens += grown;
        turn.talk = talk;
        rc = add_turn(turns, &turn);
        if (rc < 0)
            return rc;
        *new_tokens += grown;
        answered = turn.output_tokens;
        at_ns += draw_from(state, think_ms) * (SECOND_NS / 1000);
    }
    return 0;
}

static uint32_t system_tokens_of(const struct spw_workload *w, uint32_t assistant)
{
    uint64_t own = mix(w->seed ^ ((uint64_t)assistant << 32 | 0x5ca1ab1e));

    return (uint32_t)draw_between(&own, 1000, 6000);
}

/*
 * Conversations begin as fast as what they bring keeps to the rate asked for, so a burst of
 * documents is followed by a lull, and the load is the same for every seed.
 */
static int add_talks(const struct spw_workload *w, struct turns *turns)
{
    uint64_t state = mix(w->seed), new_tokens = 0, clock_ns = 0;
    uint32_t talks = 0, documents = 0;
    int rc = 0;

    while (rc == 0 && clock_ns < w->duration_ns) {
        bool reads = draw_between(&state, 0, 99) < w->document_percent;
        uint64_t people = reads ? draw_between(&state, 1, w->readers_max) : 1;
        uint64_t at_ns = clock_ns + draw_between(&state, 0, SECOND_NS);
        struct talk talk = {.assistant = (uint32_t)draw_between(&state, 0, w->assistants - 1)};

        talk.system_tokens = system_tokens_of(w, talk.assistant);
        if (reads) {
            talk.document = ++documents;
            talk.document_tokens = draw_from(&state, document_tokens);
            new_tokens += talk.document_tokens;
        }
        for (uint64_t i = 0; rc == 0 && i < people; i++) {
            talk.number = talks++;
            rc = add_talk(w, &state, at_ns, talk, turns, &new_tokens);
            at_ns += draw_between(&state, 0, READER_GAP_NS);
        }
        clock_ns = (uint64_t)((unsigned __int128)new_tokens * SECOND_NS / w->new_tokens_per_s);
    }
    return rc;
}

/* The raw id of block @i: equal for two conversations iff all its tokens are. */
static uint64_t raw_id(const struct talk *talk, uint32_t i, uint32_t block_tokens)
{
    uint64_t end = (uint64_t)(i + 1) * block_tokens;
    uint64_t shared = talk->system_tokens + talk->document_tokens;

    if (end > talk->context_tokens)
        return mix((uint64_t)CONTENT_PARTIAL << 60 | (uint64_t)talk->number << 20 |
                   talk->context_tokens);
    if (end <= talk->system_tokens)
        return mix((uint64_t)CONTENT_SYSTEM << 60 | (uint64_t)talk->assistant << 20 | i);
    if (end <= shared && talk->document)
        return mix((uint64_t)CONTENT_DOCUMENT << 60 | (uint64_t)talk->document << 20 | i);
    return mix((uint64_t)CONTENT_TALK << 60 | (uint64_t)talk->number << 20 | i);
}

static int by_arrival(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;

    if (x->arrival_ns != y->arrival_ns)
        return x->arrival_ns < y->arrival_ns ? -1 : 1;
    return (x->talk.number > y->talk.number) - (x->talk.number < y->talk.number);
}

static int append_all(const struct turns *turns, uint32_t block_tokens, struct spw_trace *trace)
{
    uint64_t *raw = malloc((CONTEXT_TOKENS_MAX / block_tokens + 1) * sizeof(*raw));
    int rc = raw ? 0 : -ENOMEM;

    for (size_t t = 0; rc == 0 && t < turns->count; t++) {
        const struct turn *turn = &turns->items[t];
        uint32_t count = spw_trace_blocks(turn->talk.context_tokens, block_tokens);

        for (uint32_t i = 0; i < count; i++)
            raw[i] = raw_id(&turn->talk, i, block_tokens);
        rc = spw_trace_append(trace, (int64_t)(turn->arrival_ns - turns->items[0].arrival_ns),
                              turn->talk.context_tokens, turn->output_tokens, raw);
    }
    free(raw);
    return rc;
}

static bool makes_sense(const struct spw_workload *w)
{
    return w->block_tokens > 0 && w->assistants > 0 && w->readers_max > 0 && w->turns_max > 0 &&
           w->document_percent <= 100 && w->duration_ns >= SPW_WORKLOAD_DURATION_NS_MIN &&
           w->duration_ns <= SPW_WORKLOAD_DURATION_NS_MAX && w->new_tokens_per_s > 0 &&
           w->new_tokens_per_s <= SPW_WORKLOAD_TOKENS_PER_S_MAX;
}

int spw_trace_generate(const struct spw_workload *workload, struct spw_trace *out_trace)
{
    struct turns turns = {0};
    struct spw_trace trace;
    int rc;

    if (!makes_sense(workload))
        return -EINVAL;
    spw_trace_init(&trace, workload->block_tokens);
    rc = add_talks(workload, &turns);
    if (rc == 0 && turns.count == 0)
        rc = -EINVAL;
    if (rc == 0) {
        qsort(turns.items, turns.count, sizeof(*turns.items), by_arrival);
        rc = append_all(&turns, workload->block_tokens, &trace);
    }
    free(turns.items);
    if (rc < 0)
        spw_trace_fini(&trace);
    else
        *out_trace = trace;
    return rc;
}
