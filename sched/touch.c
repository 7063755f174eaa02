/*
 * Recency: tell each worker which of a request's chunks are to be made most recent, deepest
 * first, so that the start of the prompt ends up as the most recent and the deepest chunk is
 * evicted first. A lane without room gets fewer of them, the deepest left out: those stay older.
 * Written: command lanes, through send.c.
 */
#include "sched/handle.h"

#include <string.h>

#define LANE_SHARE 8u /* so much of a lane is left for what matters more */

/* The message that is being written into a lane. */
struct stream {
    uint64_t fits;   /* words that the lane takes now               */
    uint64_t wanted; /* chunks that this worker has ready           */
    uint64_t skip;   /* of these, the deepest ones without room     */
    uint64_t put;    /* of these, those sent                        */
    uint32_t words;  /* gathered in word[]                          */
    uint32_t slots;  /* of the body, written to the lane            */
    uint32_t most;   /* slots a body has                            */
    uint64_t word[SPW_TOUCHES_PER_SLOT];
};

struct touch {
    struct spw_client *client;
    struct spw_space *space;
    uint64_t usable; /* low bit of each worker's pair: its ready chunks are touched */
    struct stream stream[SPW_WORKERS_MAX];
};

/* ---- one worker's stream --------------------------------------------------------------------- */

/* Words that fit into @slots lane slots as messages with at most @most body slots. */
static uint64_t words_in(uint64_t slots, uint32_t most)
{
    uint64_t rest = slots % (most + 1);
    return (slots / (most + 1) * most + (rest > 0 ? rest - 1 : 0)) * SPW_TOUCHES_PER_SLOT;
}

/* How many of at most @most_wanted words the lane takes. */
static void open_stream(struct touch *touch, uint32_t k, uint64_t most_wanted)
{
    struct stream *stream = &touch->stream[k];
    uint32_t all = touch->client->own->command_slots;
    stream->most = all - 1 < UINT8_MAX ? all - 1 : UINT8_MAX;
    uint64_t body = most_wanted / SPW_TOUCHES_PER_SLOT + 1;
    uint64_t want = body + body / stream->most + 1;
    uint32_t kept = all / LANE_SHARE;
    /* what is kept is asked for too: else a stale look at the lane that covers @want alone would do
     */
    uint32_t room =
        spw_command_room(touch->client, k, want < all - kept ? (uint32_t)want + kept : all);
    stream->fits = room > kept ? words_in(room - kept, stream->most) : 0;
}

static void write_slot(struct touch *touch, uint32_t k)
{
    struct stream *stream = &touch->stream[k];
    spw_lane_write(&touch->client->command[k], ++stream->slots, stream->word,
                   stream->words * (uint32_t)sizeof(uint64_t));
    stream->words = 0;
}

static void close_message(struct touch *touch, uint32_t k)
{
    struct stream *stream = &touch->stream[k];
    uint32_t count = stream->slots * SPW_TOUCHES_PER_SLOT + stream->words;
    if (count == 0)
        return;
    if (stream->words > 0)
        write_slot(touch, k);
    struct spw_command command =
        spw_command_make(touch->client, SPW_CMD_TOUCH, touch->client->views.view[k].incarnation);
    command.space = touch->space->number;
    command.body_slots = (uint8_t)stream->slots;
    command.count = (uint16_t)count;
    spw_command_send(touch->client, k, &command);
    stream->put += count;
    stream->slots = 0;
}

static inline void put_tag(struct touch *touch, uint32_t k, uint64_t tag)
{
    struct stream *stream = &touch->stream[k];
    if (stream->skip > 0) {
        stream->skip--;
        return;
    }
    stream->word[stream->words++] = tag;
    if (stream->words < SPW_TOUCHES_PER_SLOT)
        return;
    write_slot(touch, k);
    if (stream->slots == stream->most)
        close_message(touch, k);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static inline void count_chunk(struct touch *touch, uint64_t word)
{
    for (uint64_t left = word >> 1 & ~word & touch->usable; left != 0; left &= left - 1)
        touch->stream[(uint32_t)__builtin_ctzll(left) / 2].wanted++;
}

static inline void put_chunk(struct touch *touch, uint64_t word, uint64_t tag)
{
    for (uint64_t left = word >> 1 & ~word & touch->usable; left != 0; left &= left - 1)
        put_tag(touch, (uint32_t)__builtin_ctzll(left) / 2, tag);
}

/* The group whose next chunk, from the end, ends deepest; the first group comes last. How deep the
 * others reach goes to *out_second. */
static uint32_t deepest(const struct spw_space *space, const struct spw_touch_range *range,
                        const uint64_t *next, uint64_t *out_second)
{
    uint32_t found = SPW_MAX_GROUPS;
    uint64_t depth = 0, second = 0;
    for (uint32_t g = space->groups.count; g-- > 0;) {
        uint64_t end = next[g] * space->groups.group[g].chunk_tokens;
        if (next[g] <= range[g].first)
            continue;
        if (end > depth) {
            second = depth;
            depth = end;
            found = g;
        } else if (end > second) {
            second = end;
        }
    }
    *out_second = second;
    return found;
}

/* Chunks [first, end) of a group, from the end. */
static void put_run(struct touch *touch, const struct spw_request *request, uint32_t g,
                    uint64_t first, uint64_t end)
{
    const uint64_t *word = touch->client->scratch[g].word, *tag = request->keys[g].tag;
    for (uint64_t i = end; i-- > first;)
        put_chunk(touch, word[i], tag[i]);
}

static void put_all(struct touch *touch, const struct spw_request *request,
                    const struct spw_touch_range *range)
{
    uint64_t next[SPW_MAX_GROUPS], second;
    uint32_t g;
    for (g = 0; g < touch->space->groups.count; g++)
        next[g] = range[g].end;
    while ((g = deepest(touch->space, range, next, &second)) < SPW_MAX_GROUPS) {
        uint64_t first = second / touch->space->groups.group[g].chunk_tokens;
        first = first < next[g] ? first : next[g] - 1; /* as deep: one, then the other's turn */
        first = first > range[g].first ? first : range[g].first;
        put_run(touch, request, g, first, next[g]);
        next[g] = first;
    }
}

/* A lane may not take all: the deepest chunks of each worker are left out, so count them. */
static void skip_deepest(struct touch *touch, const struct spw_touch_range *range,
                         const uint64_t *tail_word)
{
    for (uint32_t g = 0; g < touch->space->groups.count; g++) {
        const uint64_t *word = touch->client->scratch[g].word;
        for (uint64_t i = range[g].first; i < range[g].end; i++)
            count_chunk(touch, word[i]);
        count_chunk(touch, tail_word[g]);
    }
    for (uint32_t k = 0; k < touch->client->workers; k++) {
        struct stream *stream = &touch->stream[k];
        stream->skip = stream->wanted > stream->fits ? stream->wanted - stream->fits : 0;
        spw_count(touch->client, SPW_CLIENT_touches_dropped, stream->skip);
    }
}

static void open_streams(struct touch *touch, const struct spw_touch_range *range,
                         const uint64_t *tail_word)
{
    uint64_t most_wanted = 0;
    bool all_fit = true;
    for (uint32_t g = 0; g < touch->space->groups.count; g++)
        most_wanted += range[g].end - range[g].first + (tail_word[g] != 0);
    for (uint64_t left = touch->usable; left != 0; left &= left - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(left) / 2;
        open_stream(touch, k, most_wanted);
        all_fit = all_fit && most_wanted <= touch->stream[k].fits;
    }
    if (!all_fit)
        skip_deepest(touch, range, tail_word);
}

static void init(struct touch *touch, struct spw_request *request)
{
    const struct spw_judge *judge = &request->space->judge;
    touch->client = request->client;
    touch->space = request->space;
    touch->usable = judge->live & judge->parts & judge->up;
    memset(touch->stream, 0, touch->client->workers * sizeof(touch->stream[0]));
}

void spw_touch_ranges(struct spw_request *request, const struct spw_touch_range *range,
                      uint64_t boundary)
{
    struct touch touch;
    const struct spw_replica *replica = &request->client->views.replica;
    const struct spw_boundary *tail =
        boundary ? spw_request_find_boundary(request, boundary) : NULL;
    uint64_t tail_word[SPW_MAX_GROUPS];
    uint32_t groups = request->space->groups.count;
    for (uint32_t g = 0; g < groups; g++)
        tail_word[g] = tail ? spw_replica_get(replica, tail->group[g].digest[0]) : 0;
    init(&touch, request);
    open_streams(&touch, range, tail_word);
    for (uint32_t g = groups; tail && g-- > 0;)
        put_chunk(&touch, tail_word[g], tail->group[g].digest[0]);
    put_all(&touch, request, range);
    for (uint32_t k = 0; k < touch.client->workers; k++) {
        close_message(&touch, k);
        spw_count(touch.client, SPW_CLIENT_touched, touch.stream[k].put);
    }
}
