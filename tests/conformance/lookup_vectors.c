/*
 * Conformance of spw_decide() with vector files: lookup_vectors FILE...
 *
 * A file holds one JSON object a line, plain or gzipped. Prints each case that differs and what
 * differs, and each line that is no case; last "N passed, N failed". Exits 0 only if none failed:
 * a file that can't be read, or holds no case, is a failure, too.
 */
#include "sched/decide.h"
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct group_states {
    const char *states;
    json_t *loading;
};

/* One case, borrowing from its JSON; answers what spw_decide() asks. */
struct vector_case {
    struct spw_lookup_source source;
    struct spw_groups groups;
    struct spw_decide_input in;
    struct group_states group[SPW_GROUPS_MAX];
    json_t *tail;
    uint8_t *verdicts; /* backs in.lookup.chunks[] */
};

/* Where we are and how it goes. */
struct report {
    const char *file;
    unsigned line;
    const char *id;
    bool failing; /* the current case */
    unsigned passed;
    unsigned failed;
};

__attribute__((format(printf, 2, 3))) static void fail(struct report *report, const char *format,
                                                       ...)
{
    va_list args;

    va_start(args, format);
    if (report->id != NULL)
        printf("%s (%s:%u): ", report->id, report->file, report->line);
    else if (report->line != 0)
        printf("%s:%u: ", report->file, report->line);
    else
        printf("%s: ", report->file);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    report->failing = true;
}

static int verdict_of(char letter)
{
    switch (letter) {
    case 'H':
        return SPW_HIT;
    case 'P':
        return SPW_PENDING;
    case 'R':
        return SPW_RETRY;
    case 'M':
        return SPW_MISS;
    default:
        return -1;
    }
}

static bool only_letters(const char *states)
{
    return states[strspn(states, "HPRM")] == '\0';
}

static int kind_of(const char *name)
{
    static const char *const names[] = {
        [SPW_GROUP_FULL] = "full",
        [SPW_GROUP_SLIDING] = "sliding",
        [SPW_GROUP_CHUNKED] = "chunked",
        [SPW_GROUP_STATE] = "state",
    };

    for (int kind = 0; kind < (int)(sizeof(names) / sizeof(names[0])); kind++)
        if (strcmp(names[kind], name) == 0)
            return kind;
    return -1;
}

static void fetch(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t count,
                  uint8_t *out_verdicts)
{
    const struct vector_case *c = (const struct vector_case *)source;

    for (uint64_t i = 0; i < count; i++)
        out_verdicts[i] = (uint8_t)verdict_of(c->group[group].states[first + i]);
}

static uint64_t loading(struct spw_lookup_source *source, uint32_t group, uint64_t first,
                        uint64_t end)
{
    const struct vector_case *c = (const struct vector_case *)source;
    uint64_t lowest = end;
    json_t *value;
    size_t i;

    json_array_foreach(c->group[group].loading, i, value)
    {
        uint64_t chunk = (uint64_t)json_integer_value(value);
        if (chunk >= first && chunk < lowest)
            lowest = chunk;
    }
    return lowest;
}

static bool tail(struct spw_lookup_source *source, uint64_t above, uint64_t at_most,
                 uint64_t *out_boundary, uint8_t *out_verdicts)
{
    const struct vector_case *c = (const struct vector_case *)source;

    for (size_t i = json_array_size(c->tail); i-- > 0;) {
        json_t *entry = json_array_get(c->tail, i);
        uint64_t boundary = (uint64_t)json_integer_value(json_object_get(entry, "boundary"));
        if (boundary <= above || boundary > at_most)
            continue;
        *out_boundary = boundary;
        const char *states = json_string_value(json_object_get(entry, "states"));
        for (uint32_t g = 0; g < c->groups.count; g++)
            out_verdicts[g] = (uint8_t)verdict_of(states[g]);
        return true;
    }
    return false;
}

/* Read groups[@g] of a case; its geometry goes to *out_shape. NULL, or what is wrong. */
static const char *parse_group(struct vector_case *c, uint32_t g, json_t *json,
                               struct spw_group_shape *out_shape, json_int_t *out_blocks,
                               json_int_t out_given[2])
{
    const char *kind_name;
    json_int_t block, window;
    json_t *value;
    size_t i;

    if (json_unpack(json, "{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:o}", "kind", &kind_name,
                    "block_tokens", &block, "blocks_per_chunk", out_blocks, "chunk_tokens",
                    &out_given[0], "window_tokens", &window, "window_chunks", &out_given[1],
                    "states", &c->group[g].states, "loading", &c->group[g].loading) != 0)
        return "a group lacks a field, or one is of another type";
    if (kind_of(kind_name) < 0)
        return "unknown kind of group";
    if (!only_letters(c->group[g].states))
        return "a state isn't one of H, P, R, M";
    if (!json_is_array(c->group[g].loading))
        return "loading isn't an array";
    json_array_foreach(c->group[g].loading, i, value) if (
        !json_is_integer(value)) return "loading holds something else than chunk indexes";
    *out_shape = (struct spw_group_shape){.kind = (uint8_t)kind_of(kind_name),
                                          .block_tokens = (uint64_t)block,
                                          .window_tokens = (uint64_t)window};
    return NULL;
}

static const char *parse_groups(struct vector_case *c, json_int_t hash_unit, json_t *json)
{
    struct spw_group_shape shapes[SPW_GROUPS_MAX];
    json_int_t blocks[SPW_GROUPS_MAX], given[SPW_GROUPS_MAX][2];
    const size_t count = json_array_size(json);
    const char *wrong;

    if (count == 0 || count > SPW_GROUPS_MAX)
        return "no groups, or too many";
    for (uint32_t g = 0; g < count; g++) {
        wrong = parse_group(c, g, json_array_get(json, g), &shapes[g], &blocks[g], given[g]);
        if (wrong != NULL)
            return wrong;
        if (blocks[g] != blocks[0] || blocks[g] <= 0 || blocks[g] > UINT32_MAX)
            return "blocks_per_chunk isn't one positive number for all groups";
    }
    if (spw_groups_init(&c->groups, (uint64_t)hash_unit, (uint32_t)blocks[0], shapes,
                        (uint32_t)count) != 0)
        return "the groups are refused";
    for (uint32_t g = 0; g < count; g++)
        if ((uint64_t)given[g][0] != c->groups.group[g].chunk_tokens ||
            (uint64_t)given[g][1] != c->groups.group[g].window_chunks)
            return "chunk_tokens or window_chunks contradict the other fields";
    return NULL;
}

static const char *parse_tail(const struct vector_case *c)
{
    const char *states;
    json_int_t boundary;
    json_t *entry;
    size_t i;

    if (!json_is_array(c->tail))
        return "tail isn't an array";
    json_array_foreach(c->tail, i,
                       entry) if (json_unpack(entry, "{s:I, s:s}", "boundary", &boundary, "states",
                                              &states) != 0 ||
                                  boundary < 0 || strlen(states) != c->groups.count ||
                                  !only_letters(states)) return "an entry of tail makes no sense";
    return NULL;
}

static const char *parse_input(struct vector_case *c, json_t *json)
{
    json_int_t hash_unit, tokens, prompt, computed, budget;
    int skip, inflight;
    json_t *groups;
    const char *wrong;

    if (json_unpack(json, "{s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o}", "hash_unit_tokens",
                    &hash_unit, "num_tokens", &tokens, "num_prompt_tokens", &prompt,
                    "num_computed_tokens", &computed, "budget_tokens", &budget, "skip", &skip,
                    "inflight", &inflight, "groups", &groups, "tail", &c->tail) != 0)
        return "input lacks a field, or one is of another type";
    if ((wrong = parse_groups(c, hash_unit, groups)) != NULL || (wrong = parse_tail(c)) != NULL)
        return wrong;
    c->in.lookup.groups = &c->groups;
    c->in.lookup.num_tokens = (uint64_t)tokens;
    c->in.lookup.num_prompt_tokens = (uint64_t)prompt;
    c->in.lookup.num_computed_tokens = (uint64_t)computed;
    c->in.lookup.budget_tokens = (uint64_t)budget;
    c->in.skip = skip;
    c->in.inflight = inflight;
    return NULL;
}

/* Give each group its working memory. */
static int make_room(struct vector_case *c)
{
    size_t total = 0;

    for (uint32_t g = 0; g < c->groups.count; g++)
        total += c->in.lookup.chunks[g].count = strlen(c->group[g].states);
    c->verdicts = malloc(total + 1);
    if (c->verdicts == NULL)
        return -ENOMEM;
    total = 0;
    for (uint32_t g = 0; g < c->groups.count; g++) {
        c->in.lookup.chunks[g].verdicts = c->verdicts + total;
        total += c->in.lookup.chunks[g].count;
    }
    return 0;
}

static void compare_need(struct report *report, const struct vector_case *c, json_t *expect,
                         const struct spw_decision_core *got)
{
    const size_t count = got->action == SPW_ACTION_LOAD ? c->groups.count : 0;
    json_int_t first, end;

    if (json_array_size(expect) != count) {
        fail(report, "need has %zu groups, expected %zu", count, json_array_size(expect));
        return;
    }
    for (size_t g = 0; g < count; g++) {
        if (json_unpack(json_array_get(expect, g), "[I, I]", &first, &end) != 0)
            fail(report, "need isn't made of pairs");
        else if ((uint64_t)first != got->need[g].first || (uint64_t)end != got->need[g].end)
            fail(report, "group %zu needs [%llu,%llu], expected [%lld,%lld]", g,
                 (unsigned long long)got->need[g].first, (unsigned long long)got->need[g].end,
                 (long long)first, (long long)end);
    }
}

/* Evaluate with @scope; compare what @expect has. @when goes in front of what differs. */
static void evaluate(struct report *report, struct vector_case *c, uint8_t scope, json_t *expect,
                     const char *when)
{
    struct spw_decision_core got;
    const char *action, *reason;
    json_int_t hit, boundary;
    json_t *need;

    c->in.scope = scope;
    if (json_unpack(expect, "{s:s, s:I, s:s}", "action", &action, "hit_tokens", &hit, "reason",
                    &reason) != 0) {
        fail(report, "%sexpect lacks a field, or one is of another type", when);
        return;
    }
    if (spw_decide(&c->in, &c->source, &got) != 0) {
        fail(report, "%sthe input is refused", when);
        return;
    }
    if (strcmp(action, spw_action_name(got.action)) != 0)
        fail(report, "%saction %s, expected %s", when, spw_action_name(got.action), action);
    if ((uint64_t)hit != got.hit_tokens)
        fail(report, "%shit_tokens %llu, expected %lld", when, (unsigned long long)got.hit_tokens,
             (long long)hit);
    if (strcmp(reason, spw_reason_name(got.reason)) != 0)
        fail(report, "%sreason %s, expected %s", when, spw_reason_name(got.reason), reason);
    if (*when != '\0')
        return; /* the outcome without the guard is given in short */
    if (json_unpack(expect, "{s:I, s:o}", "tail_boundary", &boundary, "need", &need) != 0)
        fail(report, "expect lacks tail_boundary or need");
    else if ((uint64_t)boundary != got.tail_boundary)
        fail(report, "tail_boundary %llu, expected %lld", (unsigned long long)got.tail_boundary,
             (long long)boundary);
    else
        compare_need(report, c, need, &got);
}

static void check_case(struct report *report, json_t *json)
{
    struct vector_case c = {.source = {.fetch = fetch, .loading = loading, .tail = tail}};
    json_t *input, *expect, *without_guard = NULL;
    const char *wrong;

    if (json_unpack(json, "{s:s, s:o, s:o, s?o}", "id", &report->id, "input", &input, "expect",
                    &expect, "without_guard", &without_guard) != 0)
        fail(report, "no id, input or expect");
    else if ((wrong = parse_input(&c, input)) != NULL)
        fail(report, "%s", wrong);
    else if (make_room(&c) != 0)
        fail(report, "out of memory");
    else if (without_guard == NULL)
        evaluate(report, &c, SPW_SCOPE_GROUP, expect, "");
    else {
        evaluate(report, &c, SPW_SCOPE_REQUEST, expect, "");
        evaluate(report, &c, SPW_SCOPE_GROUP, without_guard, "without guard: ");
    }
    free(c.verdicts);
}

static void count_case(struct report *report)
{
    report->passed += !report->failing;
    report->failed += report->failing;
    report->failing = false;
    report->id = NULL;
}

static void check_line(struct report *report, const char *line, size_t length)
{
    json_error_t error;
    json_t *json = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);

    if (json == NULL)
        fail(report, "not JSON: %s", error.text);
    else
        check_case(report, json);
    count_case(report);
    json_decref(json);
}

/* The next line, without its end, in *line, which grows. Its length, -1 at the end of the file. */
static ssize_t read_line(gzFile in, char **line, size_t *size)
{
    size_t length = 0;
    int byte;

    while ((byte = gzgetc(in)) >= 0 && byte != '\n') {
        if (length == *size) {
            char *larger = realloc(*line, *size = 2 * *size + 4096);
            if (larger == NULL)
                abort();
            *line = larger;
        }
        (*line)[length++] = (char)byte;
    }
    return byte < 0 && length == 0 ? -1 : (ssize_t)length;
}

static void check_file(struct report *report, const char *name)
{
    size_t size = 4096;
    char *line = malloc(size);
    gzFile in = gzopen(name, "rb");
    ssize_t length;
    int error = Z_OK;

    report->file = name;
    report->line = 0;
    errno = in == NULL && errno == 0 ? ENOMEM : errno;
    if (in == NULL || line == NULL) {
        fail(report, "can't be opened: %s", strerror(errno));
    } else {
        while ((length = read_line(in, &line, &size)) >= 0) {
            report->line++;
            check_line(report, line, (size_t)length);
        }
        const char *text = gzerror(in, &error);
        if (error != Z_OK && error != Z_STREAM_END)
            fail(report, "can't be read on: %s", text);
        else if (report->line == 0)
            fail(report, "no cases");
    }
    if (report->failing)
        count_case(report);
    if (in != NULL)
        gzclose(in);
    free(line);
}

int main(int argc, char **argv)
{
    struct report report = {0};

    if (argc < 2) {
        fprintf(stderr, "usage: lookup_vectors FILE...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++)
        check_file(&report, argv[i]);
    printf("%u passed, %u failed\n", report.passed, report.failed);
    return report.failed != 0;
}
