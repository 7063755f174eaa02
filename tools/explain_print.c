/* Decisions as sentences, and as JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "sched/decide.h"
#include "tools/explain.h"
#include "tools/look.h"

/* "deferred, " BEFORE "group 0 chunk 12" AFTER. */
enum place { NO_PLACE, CHUNK, TAIL };
static const struct words {
    enum place place;
    const char *before;
    const char *after;
} words[SPW_REASON_COUNT] = {
    [SPW_REASON_COMPLETE] = {NO_PLACE, "complete chunks", ""},
    [SPW_REASON_CUT] = {CHUNK, "cut before ", ", which is pending and not worth the wait"},
    [SPW_REASON_TAIL] = {NO_PLACE, "up to a token inside a chunk", ""},
    [SPW_REASON_SHORT] = {NO_PLACE, "less than one chunk was left", ""},
    [SPW_REASON_GROUP_MISS] = {CHUNK, "", " isn't stored"},
    [SPW_REASON_LEADING_PENDING] = {CHUNK, "", " is pending and not worth the wait"},
    [SPW_REASON_SKIP] = {NO_PLACE, "it doesn't read cached prefixes", ""},
    [SPW_REASON_RETRY] = {CHUNK, "the place of ", " isn't known yet"},
    [SPW_REASON_PENDING] = {CHUNK, "", " is pending"},
    [SPW_REASON_LOADING] = {CHUNK, "", " is being loaded for another request"},
    [SPW_REASON_TRANSFER] = {NO_PLACE, "a transfer of its own is in flight", ""},
    [SPW_REASON_TAIL_RETRY] = {TAIL, "the place of ", " isn't known yet"},
    [SPW_REASON_TAIL_PENDING] = {TAIL, "", " is pending"},
    [SPW_REASON_LOAD_LIMIT] = {CHUNK, "cut before ", ", whose wait ran into its limit"},
    [SPW_REASON_MISS_LIMIT] = {CHUNK, "the wait for ", " ran into its limit"},
};

static void print_place(const struct spw_explained *e, enum place place)
{
    if (place == TAIL && e->group == SPW_EXPLAINED_NO_GROUP)
        fputs("the tail", stdout);
    else if (place == TAIL)
        printf("the tail of group %" PRIu32, e->group);
    else if (e->group == SPW_EXPLAINED_NO_GROUP)
        fputs("a chunk", stdout);
    else
        printf("group %" PRIu32 " chunk %" PRIu64, e->group, e->chunk);
}

/* Of all that is waited for, or was given up; the chunk that is named may be ready long before. */
static void print_eta(const struct spw_explained *e)
{
    char text[SPW_LOOK_DURATION_BYTES];
    if (e->reason != SPW_REASON_PENDING && e->reason != SPW_REASON_TAIL_PENDING &&
        e->recomputed_tokens == 0)
        return;
    if (e->eta_ns == SPW_EXPLAINED_NO_ETA)
        fputs(", nobody knows when all is ready", stdout);
    else
        printf(", all ready in %s", spw_look_duration(e->eta_ns, text));
}

static void print_sentence(const struct spw_explained *e)
{
    static const char *const done[] = {"load", "compute", "deferred"};
    const struct words *w = &words[e->reason];
    char text[SPW_LOOK_DURATION_BYTES];
    printf("request %" PRIu64 " (tag %" PRIu64 "): %s, %s", e->request, e->tag, done[e->action],
           w->before);
    if (w->place != NO_PLACE)
        print_place(e, w->place);
    fputs(w->after, stdout);
    print_eta(e);
    if (e->waited_ns)
        printf("; waited %s%s", spw_look_duration(e->waited_ns, text),
               e->action == SPW_ACTION_DEFER ? " so far" : "");
}

static uint64_t age_ns(const struct spw_explain_view *view, const struct spw_explained *e)
{
    return view->now_ns > e->time_ns ? view->now_ns - e->time_ns : 0;
}

void spw_explain_print_text(const struct spw_explain_view *view)
{
    char text[SPW_LOOK_DURATION_BYTES];
    printf("client %" PRIu32 " \"%s\" (pid %" PRIu64 "%s): %" PRIu64 " %s, the last %" PRIu32 "\n",
           view->client, view->label, view->pid, view->attached ? "" : ", gone", view->made,
           view->made == 1 ? "decision" : "decisions", view->count);
    if (view->count)
        printf("\n%8s %9s %9s %10s\n", "ago", "computed", "hit", "recomputed");
    for (uint32_t i = 0; i < view->count; i++) {
        const struct spw_explained *e = &view->line[i].explained;
        printf("%8s %9" PRIu64 " %9" PRIu64 " %10" PRIu64 "  ",
               spw_look_duration(age_ns(view, e), text), e->computed_tokens, e->hit_tokens,
               e->recomputed_tokens);
        print_sentence(e);
        putchar('\n');
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *whole(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *unless(uint64_t none, uint64_t value)
{
    return value == none ? json_null() : whole(value);
}

static json_t *line_json(const struct spw_explain_view *view, const struct spw_explain_line *line)
{
    const struct spw_explained *e = &line->explained;
    bool placed = e->group != SPW_EXPLAINED_NO_GROUP;
    char tag[24]; /* an id, beyond what a JSON number holds */
    snprintf(tag, sizeof tag, "%" PRIu64, e->tag);
    return json_pack(
        "{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:b, s:b}",
        "decision", whole(line->n), "time_ns", whole(e->time_ns), "age_ns", whole(age_ns(view, e)),
        "tag", tag, "request", whole(e->request), "step", whole(e->step), "space", whole(e->space),
        "action", spw_action_name(e->action), "reason", spw_reason_name(e->reason), "group",
        unless(SPW_EXPLAINED_NO_GROUP, e->group), "chunk", placed ? whole(e->chunk) : json_null(),
        "computed_tokens", whole(e->computed_tokens), "hit_tokens", whole(e->hit_tokens),
        "recomputed_tokens", whole(e->recomputed_tokens), "tail_boundary", whole(e->tail_boundary),
        "eta_ns", unless(SPW_EXPLAINED_NO_ETA, e->eta_ns), "waited_ns", whole(e->waited_ns),
        "budget_tokens", unless(SPW_EXPLAINED_AUTO, e->budget_tokens), "priced",
        e->budget_tokens == SPW_EXPLAINED_AUTO, "awaited", (e->flags & SPW_EXPLAINED_AWAITED) != 0);
}

/* Of the decisions that are shown. */
static json_t *totals_json(const struct spw_explain_view *view)
{
    uint64_t of[SPW_ACTION_DEFER + 1] = {0}, hit = 0, recomputed = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        of[view->line[i].explained.action]++;
        hit += view->line[i].explained.hit_tokens;
        recomputed += view->line[i].explained.recomputed_tokens;
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "shown", whole(view->count), "passed",
                     whole(view->passed), "load", whole(of[SPW_ACTION_LOAD]), "miss",
                     whole(of[SPW_ACTION_MISS]), "defer", whole(of[SPW_ACTION_DEFER]), "hit_tokens",
                     whole(hit), "recomputed_tokens", whole(recomputed));
}

int spw_explain_print_json(const struct spw_explain_view *view)
{
    json_t *lines = json_array();
    for (uint32_t i = 0; i < view->count; i++)
        json_array_append_new(lines, line_json(view, &view->line[i]));
    json_t *root = json_pack("{s:i, s:s, s:b, s:i, s:b, s:o, s:o, s:s, s:o, s:o, s:o, s:o}",
                             "schema", 1, "pool", view->pool, "daemon_alive", view->daemon_alive,
                             "client", (int)view->client, "attached", view->attached, "generation",
                             whole(view->generation), "pid", whole(view->pid), "label", view->label,
                             "now_ns", whole(view->now_ns), "made", whole(view->made), "totals",
                             totals_json(view), "decisions", lines);
    int rc = root && json_dumpf(root, stdout, JSON_INDENT(1)) == 0 ? 0 : -ENOMEM;
    putchar('\n');
    json_decref(root);
    return rc;
}
