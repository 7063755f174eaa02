/*
 * Recency: tell each worker which of a request's chunks are to be made most recent, deepest
 * first, so that the start of the prompt ends up as the most recent and the deepest chunk is
 * evicted first. A lane without room gets fewer of them, the deepest left out: those stay older.
 * Written: command lanes, through send.c.
 */
#include "sched/handle.h"

#define LANE_SHARE 8u /* so much of a lane is left for what matters more */

/* The message that is being written into a lane. */
struct stream {
    uint64_t wanted; /* chunks that this worker has ready           */
    uint64_t skip;   /* of these, the deepest ones without room     */
    uint32_t words;  /* in this message                             */
    uint32_t most;   /* words a message takes                       */
    uint64_t word[SPW_TOUCHES_PER_SLOT];
};

struct touch {
    struct spw_client *client;
    struct spw_space *space;
    struct stream stream[SPW_WORKERS_MAX];
};

static uint64_t ready_pairs(const struct touch *touch, uint64_t word)
{
    const struct spw_judge *judge = &touch->space->judge;
    return spw_replica_ready(word & judge->live) & judge->parts & judge->up;
}

/* ---- one worker's stream --------------------------------------------------------------------- */

/* Words that fit into @slots lane slots as messages of at most @most words. */
static uint64_t words_in(uint64_t slots, uint32_t most)
{
    uint64_t whole = 1 + most / SPW_TOUCHES_PER_SLOT;
    uint64_t rest = slots % whole;
    return slots / whole * most + (rest > 0 ? rest - 1 : 0) * SPW_TOUCHES_PER_SLOT;
}

static void open_stream(struct touch *touch, uint32_t k)
{
    struct stream *stream = &touch->stream[k];
    struct spw_client *client = touch->client;
    uint32_t all = client->own->command_slots;
    uint32_t body = all - 1 < UINT8_MAX ? all - 1 : UINT8_MAX;
    stream->most = body * SPW_TOUCHES_PER_SLOT;
    uint64_t want = stream->wanted / SPW_TOUCHES_PER_SLOT + stream->wanted / stream->most + 2;
    uint32_t kept = all / LANE_SHARE;
    /* what is kept is asked for too: else a stale look at the lane that covers @want alone would do
     */
    uint32_t room = spw_command_room(client, k, want < all - kept ? (uint32_t)want + kept : all);
    uint64_t fits = room > kept ? words_in(room - kept, stream->most) : 0;
    stream->skip = stream->wanted > fits ? stream->wanted - fits : 0;
    spw_count(client, SPW_CLIENT_touches_dropped, stream->skip);
    spw_count(client, SPW_CLIENT_touched, stream->wanted - stream->skip);
}

static void write_words(struct touch *touch, uint32_t k, uint32_t slot, uint32_t words)
{
    spw_lane_write(&touch->client->command[k], slot, touch->stream[k].word,
                   words * (uint32_t)sizeof(uint64_t));
}

static void close_message(struct touch *touch, uint32_t k)
{
    struct stream *stream = &touch->stream[k];
    uint32_t left = stream->words % SPW_TOUCHES_PER_SLOT;
    uint32_t slots = stream->words / SPW_TOUCHES_PER_SLOT + (left > 0);
    if (stream->words == 0)
        return;
    if (left > 0)
        write_words(touch, k, slots, left);
    struct spw_command command =
        spw_command_make(touch->client, SPW_CMD_TOUCH, touch->client->views.view[k].incarnation);
    command.space = touch->space->number;
    command.body_slots = (uint8_t)slots;
    command.count = (uint16_t)stream->words;
    spw_command_send(touch->client, k, &command);
    stream->words = 0;
}

static void put_tag(struct touch *touch, uint32_t k, uint64_t tag)
{
    struct stream *stream = &touch->stream[k];
    if (stream->skip > 0) {
        stream->skip--;
        return;
    }
    stream->word[stream->words % SPW_TOUCHES_PER_SLOT] = tag;
    stream->words++;
    if (stream->words % SPW_TOUCHES_PER_SLOT == 0)
        write_words(touch, k, stream->words / SPW_TOUCHES_PER_SLOT, SPW_TOUCHES_PER_SLOT);
    if (stream->words == stream->most)
        close_message(touch, k);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static void count_chunk(struct touch *touch, uint64_t word)
{
    for (uint64_t left = ready_pairs(touch, word); left != 0; left &= left - 1)
        touch->stream[(uint32_t)__builtin_ctzll(left) / 2].wanted++;
}

static void put_chunk(struct touch *touch, uint64_t word, uint64_t tag)
{
    for (uint64_t left = ready_pairs(touch, word); left != 0; left &= left - 1)
        put_tag(touch, (uint32_t)__builtin_ctzll(left) / 2, tag);
}

/* The group whose next chunk, from the end, ends deepest; the first group comes last. */
static uint32_t deepest(const struct spw_space *space, const struct spw_touch_range *range,
                        const uint64_t *next)
{
    uint32_t found = SPW_MAX_GROUPS;
    uint64_t depth = 0;
    for (uint32_t g = space->groups.count; g-- > 0;) {
        uint64_t end = next[g] * space->groups.group[g].chunk_tokens;
        if (next[g] > range[g].first && end > depth) {
            depth = end;
            found = g;
        }
    }
    return found;
}

/* Chunks of one group, from its end down to @first. */
static void put_run(struct touch *touch, struct spw_request *request, uint32_t g, uint64_t first,
                    uint64_t *next)
{
    const uint64_t *word = touch->client->scratch[g].word, *tag = request->keys[g].tag;
    for (; *next > first; --*next)
        put_chunk(touch, word[*next - 1], tag[*next - 1]);
}

static void put_all(struct touch *touch, struct spw_request *request,
                    const struct spw_touch_range *range)
{
    uint64_t next[SPW_MAX_GROUPS];
    uint32_t g, left = 0;
    for (g = 0; g < touch->space->groups.count; g++) {
        next[g] = range[g].end;
        left += next[g] > range[g].first;
    }
    while (left > 0) {
        g = deepest(touch->space, range, next);
        put_run(touch, request, g, left == 1 ? range[g].first : next[g] - 1, &next[g]);
        left -= next[g] == range[g].first;
    }
}

void spw_touch_ranges(struct spw_request *request, const struct spw_touch_range *range,
                      uint64_t boundary)
{
    struct touch touch = {.client = request->client, .space = request->space};
    const struct spw_boundary *tail =
        boundary ? spw_request_find_boundary(request, boundary) : NULL;
    uint64_t tail_word[SPW_MAX_GROUPS];
    uint32_t groups = request->space->groups.count;
    for (uint32_t g = 0; g < groups; g++) {
        for (uint64_t i = range[g].first; i < range[g].end; i++)
            count_chunk(&touch, touch.client->scratch[g].word[i]);
        if (!tail)
            continue;
        tail_word[g] = spw_replica_get(&touch.client->views.replica, tail->group[g].digest[0]);
        count_chunk(&touch, tail_word[g]);
    }
    for (uint32_t k = 0; k < touch.client->workers; k++)
        if (touch.stream[k].wanted > 0)
            open_stream(&touch, k);
    for (uint32_t g = groups; tail && g-- > 0;)
        put_chunk(&touch, tail_word[g], tail->group[g].digest[0]);
    put_all(&touch, request, range);
    for (uint32_t k = 0; k < touch.client->workers; k++)
        close_message(&touch, k);
}
