/*
 * The closed loop's format: a table of conversations. A row is checked whole before anything of it
 * is kept, but for the place in the conversation, which nobody sees once a row is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "tools/trace_impl.h"

#define SECOND_NS   1000000000
#define SECONDS_MAX 1000000000
#define HEADER      "#session\treq\tdepth\tt_s\tthink_s\tapi_s\tin_tokens\tout_tokens\tranges"

enum column {
    CONVERSATION,
    REQ,
    DEPTH,
    T_S,
    THINK_S,
    API_S,
    IN_TOKENS,
    OUT_TOKENS,
    RANGES,
    COLUMNS
};

static const char *const names[COLUMNS] = {
    "#session", "req", "depth", "t_s", "think_s", "api_s", "in_tokens", "out_tokens", "ranges"};

struct text {
    const char *at;
    size_t len;
};

/* A row as it is in the file, then as numbers. */
struct row {
    struct spw_trace_lines *lines;
    struct text column[COLUMNS];
    bool begins_conversation;
    int64_t req, depth, input, output;
    int64_t t_ns;
    int64_t think_ns; /* -1: missing */
    int64_t api_ns;   /* 0 if missing */
};

bool spw_trace_is_table(const char *line, size_t len)
{
    return len >= strlen("#session") && memcmp(line, "#session", strlen("#session")) == 0;
}

int spw_trace_begin_table(struct spw_trace_lines *lines, const char *line, size_t len,
                          const struct spw_trace *trace)
{
    if (len != strlen(HEADER) || memcmp(line, HEADER, len) != 0)
        return spw_trace_refuse(
            lines, -EINVAL, "the columns are \"%.*s\"; they must be \"" HEADER "\", parted by tabs",
            (int)(len < 200 ? len : 200), line);
    if (trace->block_tokens % SPW_TRACE_TABLE_TOKENS != 0)
        return spw_trace_refuse(lines, -EINVAL,
                                "blocks of %u tokens; this format needs a multiple of %u",
                                trace->block_tokens, SPW_TRACE_TABLE_TOKENS);
    return 0;
}

/* ---- values --------------------------------------------------------------------------------- */

static int refuse_value(const struct row *row, enum column column, const char *want)
{
    const struct text *value = &row->column[column];

    return spw_trace_refuse(
        row->lines, -EINVAL, "field \"%s\" is \"%.*s\"; it must be %s", names[column],
        (int)(value->len < SPW_TRACE_VALUE_SHOWN ? value->len : SPW_TRACE_VALUE_SHOWN), value->at,
        want);
}

/* Take the whole number that @text begins with, 0 to @max, off it. */
static bool cut_number(struct text *text, int64_t max, int64_t *out_value)
{
    int64_t value = 0;
    size_t i;

    for (i = 0; i < text->len && text->at[i] >= '0' && text->at[i] <= '9'; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text->at[i] - '0', &value) || value > max)
            return false;
    text->at += i;
    text->len -= i;
    *out_value = value;
    return i > 0;
}

static bool cut_letter(struct text *text, char letter)
{
    if (text->len == 0 || text->at[0] != letter)
        return false;
    text->at++;
    text->len--;
    return true;
}

static int take_number(struct row *row, enum column column, int64_t min, int64_t max,
                       int64_t *out_value)
{
    struct text rest = row->column[column];
    char want[80];

    if (cut_number(&rest, max, out_value) && rest.len == 0 && *out_value >= min)
        return 0;
    snprintf(want, sizeof(want), "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    return refuse_value(row, column, want);
}

/* Seconds such as 12.5 in nanoseconds; @if_empty for a value that is missing, -2: it mustn't be. */
static int take_seconds(struct row *row, enum column column, int64_t if_empty, int64_t *out_ns)
{
    struct text rest = row->column[column];
    int64_t ns, digit_ns = SECOND_NS;

    if (rest.len == 0 && if_empty > -2) {
        *out_ns = if_empty;
        return 0;
    }
    if (!cut_number(&rest, SECONDS_MAX, &ns))
        goto refuse;
    ns *= SECOND_NS;
    if (cut_letter(&rest, '.')) {
        if (rest.len == 0)
            goto refuse;
        for (; rest.len > 0 && digit_ns > 1; rest.at++, rest.len--) {
            if (rest.at[0] < '0' || rest.at[0] > '9')
                goto refuse;
            digit_ns /= 10;
            ns += (rest.at[0] - '0') * digit_ns;
        }
    }
    if (rest.len == 0) {
        *out_ns = ns;
        return 0;
    }
refuse:
    return refuse_value(row, column,
                        if_empty > -2 ? "empty, or seconds from 0 to 1000000000, such as 12.5"
                                      : "seconds from 0 to 1000000000, such as 12.5");
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* Write out the ids of the row, @want of them. */
static int take_ids(struct row *row, uint64_t want, uint64_t *out_ids)
{
    struct text rest = row->column[RANGES];
    uint64_t count = 0;

    while (rest.len > 0) {
        int64_t first, last;

        if ((count > 0 && !cut_letter(&rest, ',')) || !cut_number(&rest, INT64_MAX, &first))
            return refuse_value(row, RANGES, "ids and ranges of ids, such as 1-1112,1120");
        last = first;
        if (cut_letter(&rest, '-') && (!cut_number(&rest, INT64_MAX, &last) || last < first))
            return refuse_value(row, RANGES, "ranges that don't fall, such as 1-1112,1120");
        if ((uint64_t)(last - first) >= want - count)
            return spw_trace_refuse(row->lines, -EINVAL,
                                    "field \"ranges\" has more than %llu ids; so many are needed "
                                    "for \"in_tokens\" %lld, one for each %u whole tokens",
                                    (unsigned long long)want, (long long)row->input,
                                    SPW_TRACE_TABLE_TOKENS);
        for (int64_t left = last - first + 1; left > 0; left--)
            out_ids[count++] = (uint64_t)(last - left + 1);
    }
    if (count < want)
        return spw_trace_refuse(row->lines, -EINVAL,
                                "field \"ranges\" has %llu ids; %llu are needed for \"in_tokens\" "
                                "%lld, one for each %u whole tokens",
                                (unsigned long long)count, (unsigned long long)want,
                                (long long)row->input, SPW_TRACE_TABLE_TOKENS);
    return 0;
}

/*
 * Put an id for each block of the prompt in place of the @count ids that it has: a hash of those
 * in the block, seeded by the conversation. A partial last block has the number of its tokens too,
 * as no id could be.
 */
static void make_blocks(uint64_t *ids, uint64_t count, uint32_t input_tokens, uint32_t block_tokens,
                        uint64_t conversation)
{
    const uint32_t per_block = block_tokens / SPW_TRACE_TABLE_TOKENS;
    const uint32_t full = input_tokens / block_tokens;

    for (uint64_t i = 0; i < full; i++)
        ids[i] = XXH3_64bits_withSeed(ids + i * per_block, per_block * sizeof(*ids), conversation);
    if (input_tokens % block_tokens != 0) {
        const uint64_t *rest = ids + (uint64_t)full * per_block;

        ids[count] = ~(uint64_t)(input_tokens % block_tokens);
        ids[full] = XXH3_64bits_withSeed(rest, (size_t)(ids + count + 1 - rest) * sizeof(*ids),
                                         conversation);
    }
}

/* ---- the row -------------------------------------------------------------------------------- */

static int split(struct row *row, const char *line, size_t len)
{
    struct text rest = {line, len};
    size_t count = 0;

    for (;; count++) {
        const char *tab = rest.len > 0 ? memchr(rest.at, '\t', rest.len) : NULL;
        const size_t here = tab ? (size_t)(tab - rest.at) : rest.len;

        if (count < COLUMNS)
            row->column[count] = (struct text){rest.at, here};
        if (!tab)
            break;
        rest.at += here + 1;
        rest.len -= here + 1;
    }
    if (count + 1 != COLUMNS)
        return spw_trace_refuse(
            row->lines, -EINVAL, "has %zu columns: \"%.*s\"; %d are needed, parted by tabs",
            count + 1, (int)(len < SPW_TRACE_VALUE_SHOWN ? len : SPW_TRACE_VALUE_SHOWN), line,
            COLUMNS);
    return 0;
}

/* Does the row go on with the conversation of the row before, or begin another one? */
static int take_place(struct row *row, const struct spw_trace_place *place)
{
    const struct text *name = &row->column[CONVERSATION];
    char want[120];
    int rc;

    if (name->len == 0 || name->len >= sizeof(place->name))
        return refuse_value(row, CONVERSATION, "a name of 1 to 63 bytes");
    row->begins_conversation =
        name->len != strlen(place->name) || memcmp(name->at, place->name, name->len) != 0;
    if ((rc = take_number(row, REQ, 0, UINT32_MAX - 1, &row->req)) < 0 ||
        (rc = take_number(row, DEPTH, 0, 1, &row->depth)) < 0)
        return rc;
    if (row->begins_conversation && row->req != 0)
        return refuse_value(row, REQ,
                            "0 in a conversation's first row (a conversation's rows lie together)");
    if (!row->begins_conversation && row->req != (int64_t)place->req + 1) {
        snprintf(want, sizeof(want),
                 "%u, one more than in the conversation's row before (is one lost?)",
                 place->req + 1);
        return refuse_value(row, REQ, want);
    }
    if (row->begins_conversation && row->depth != 0)
        return refuse_value(row, DEPTH, "0 in a conversation's first row, the main agent's");
    return 0;
}

static int take_values(struct row *row)
{
    int rc;

    if ((rc = take_seconds(row, T_S, -2, &row->t_ns)) < 0 ||
        (rc = take_seconds(row, THINK_S, -1, &row->think_ns)) < 0 ||
        (rc = take_seconds(row, API_S, 0, &row->api_ns)) < 0 ||
        (rc = take_number(row, IN_TOKENS, 1, SPW_TRACE_TOKENS_MAX, &row->input)) < 0 ||
        (rc = take_number(row, OUT_TOKENS, 0, SPW_TRACE_TOKENS_MAX, &row->output)) < 0)
        return rc;
    return 0;
}

/* Which agent's the row is; a new nested agent starts empty. */
static struct spw_trace_chain *choose_chain(const struct row *row, struct spw_trace_place *place)
{
    struct spw_trace_chain *sub = &place->nested;

    if (row->depth == 0 || row->t_ns == 0 || row->t_ns < sub->sent_ns)
        *sub = (struct spw_trace_chain){0};
    return row->depth == 0 ? &place->main_agent : sub;
}

/* Say whom the request just appended follows, and go on in its chain. */
static void link_up(const struct row *row, struct spw_trace_place *place,
                    struct spw_trace_chain *chain, struct spw_trace *trace)
{
    struct spw_trace_request *request = &trace->requests[trace->request_count - 1];
    const int64_t since_ns = row->t_ns - chain->answered_ns;

    request->conversation = trace->conversation_count - 1;
    request->follows = chain->last > 0 ? chain->last : place->main_agent.last;
    if (request->follows > 0 && row->think_ns >= 0)
        request->think_ns = row->think_ns;
    else if (chain->last > 0)
        request->think_ns = since_ns > 0 ? since_ns : 0;
    chain->last = (uint32_t)trace->request_count;
    chain->sent_ns = row->t_ns;
    chain->answered_ns = row->t_ns + row->api_ns;
}

static void begin_conversation(const struct row *row, struct spw_trace_place *place)
{
    const struct text *name = &row->column[CONVERSATION];

    place->main_agent = place->nested = (struct spw_trace_chain){0};
    memcpy(place->name, name->at, name->len);
    place->name[name->len] = '\0';
}

int spw_trace_take_row(struct spw_trace_lines *lines, const char *line, size_t len,
                       struct spw_trace_place *place, struct spw_trace *trace)
{
    struct row row = {.lines = lines};
    uint64_t count;
    int rc;

    if ((rc = split(&row, line, len)) < 0 || (rc = take_place(&row, place)) < 0 ||
        (rc = take_values(&row)) < 0)
        return rc;
    if (row.begins_conversation)
        begin_conversation(&row, place);
    if (row.depth == 0 && row.t_ns < place->main_agent.sent_ns)
        return refuse_value(&row, T_S, "at least as in the main agent's row before");
    count = (uint64_t)row.input / SPW_TRACE_TABLE_TOKENS;
    rc =
        spw_trace_make_room((void **)&place->ids, &place->ids_room, count + 1, sizeof(*place->ids));
    if (rc < 0)
        return spw_trace_refuse(lines, rc, "out of memory");
    rc = take_ids(&row, count, place->ids);
    if (rc < 0)
        return rc;
    make_blocks(place->ids, count, (uint32_t)row.input, trace->block_tokens,
                trace->conversation_count + row.begins_conversation);
    rc = spw_trace_append(trace, 0, (uint32_t)row.input, (uint32_t)row.output, place->ids);
    if (rc < 0)
        return spw_trace_refuse(lines, rc, "out of memory");
    trace->conversation_count += row.begins_conversation;
    place->req = (uint32_t)row.req;
    link_up(&row, place, choose_chain(&row, place), trace);
    return 0;
}
