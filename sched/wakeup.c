/* See wakeup.h. */
#include "sched/wakeup.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define ROOM_MIN 64u /* waiters */

static struct spw_watch *watch_at(struct spw_link *same)
{
    return SPW_LINKED(same, struct spw_watch, same);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* What points to the first watch for @tag, or would. */
static struct spw_watch **find(struct spw_wakeup *wakeup, uint64_t tag)
{
    struct spw_watch **at = &wakeup->bucket[tag & wakeup->mask];
    while (*at && (*at)->tag != tag)
        at = &(*at)->next;
    return at;
}

/* Say in the map what is in the bucket of @tag. */
static void mark(struct spw_wakeup *wakeup, uint64_t tag)
{
    uint64_t b = tag & wakeup->mask;
    uint32_t bits = 0;
    for (const struct spw_watch *watch = wakeup->bucket[b]; watch; watch = watch->next)
        bits |= spw_wakeup_bit(watch->tag);
    wakeup->map[b] = (uint16_t)bits;
}

static void put_watch(struct spw_wakeup *wakeup, struct spw_watch *watch)
{
    struct spw_watch **at = find(wakeup, watch->tag);
    spw_link_init(&watch->same);
    watch->stands = true;
    if (*at) {
        spw_list_append(&(*at)->same, &watch->same);
        return;
    }
    watch->next = NULL;
    *at = watch;
    mark(wakeup, watch->tag);
}

static void take_watch(struct spw_wakeup *wakeup, struct spw_watch *watch)
{
    if (!watch->stands)
        return;
    struct spw_watch **at = find(wakeup, watch->tag);
    watch->stands = false;
    if (*at == watch && spw_list_empty(&watch->same)) {
        *at = watch->next;
        mark(wakeup, watch->tag);
    } else if (*at == watch) {
        *at = watch_at(watch->same.after);
        (*at)->next = watch->next;
    }
    spw_list_remove(&watch->same);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void set_place(struct spw_wakeup *wakeup, uint32_t i, struct spw_wakeup_deadline deadline)
{
    wakeup->deadline[i] = deadline;
    deadline.waiter->place = i + 1;
}

/* Put @deadline at @i, or at whichever place above or below is its own; @i is free. */
static void sift(struct spw_wakeup *wakeup, uint32_t i, struct spw_wakeup_deadline deadline)
{
    struct spw_wakeup_deadline *heap = wakeup->deadline;
    for (; i > 0 && deadline.at_ns < heap[(i - 1) / 2].at_ns; i = (i - 1) / 2)
        set_place(wakeup, i, heap[(i - 1) / 2]);
    for (uint32_t child; (child = 2 * i + 1) < wakeup->deadlines; i = child) {
        if (child + 1 < wakeup->deadlines && heap[child + 1].at_ns < heap[child].at_ns)
            child++;
        if (heap[child].at_ns >= deadline.at_ns)
            break;
        set_place(wakeup, i, heap[child]);
    }
    set_place(wakeup, i, deadline);
}

static void take_deadline(struct spw_wakeup *wakeup, struct spw_waiter *waiter)
{
    if (waiter->place == 0)
        return;
    uint32_t i = waiter->place - 1;
    struct spw_wakeup_deadline last = wakeup->deadline[--wakeup->deadlines];
    waiter->place = 0;
    if (last.waiter != waiter)
        sift(wakeup, i, last);
}

static void set_deadline(struct spw_wakeup *wakeup, struct spw_waiter *waiter, uint64_t at_ns)
{
    if (at_ns == UINT64_MAX) {
        take_deadline(wakeup, waiter);
        return;
    }
    if (waiter->place == 0) {
        assert(wakeup->deadlines < wakeup->room);
        waiter->place = ++wakeup->deadlines;
    }
    sift(wakeup, waiter->place - 1, (struct spw_wakeup_deadline){at_ns, waiter});
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void move_watches(struct spw_wakeup *to, const struct spw_wakeup *from)
{
    for (uint64_t b = 0; b <= from->mask; b++)
        for (struct spw_watch *watch = from->bucket[b], *next; watch; watch = next) {
            struct spw_watch **at = &to->bucket[watch->tag & to->mask];
            next = watch->next;
            watch->next = *at;
            *at = watch;
            mark(to, watch->tag);
        }
}

/* Empty, with a bucket for each watch and more. */
static int allocate(struct spw_wakeup *wakeup, uint64_t waiters)
{
    uint64_t buckets = 64;
    while (buckets < waiters * SPW_DECIDE_WAITS_MAX)
        buckets *= 2;
    *wakeup = (struct spw_wakeup){
        .map = calloc(buckets, sizeof(wakeup->map[0])),
        .mask = buckets - 1,
        .bucket = calloc(buckets, sizeof(wakeup->bucket[0])),
        .deadline = calloc(waiters, sizeof(wakeup->deadline[0])),
        .room = (uint32_t)waiters,
    };
    if (wakeup->map && wakeup->bucket && wakeup->deadline)
        return 0;
    spw_wakeup_fini(wakeup);
    return -ENOMEM;
}

int spw_wakeup_init(struct spw_wakeup *wakeup)
{
    int rc = allocate(wakeup, ROOM_MIN);
    spw_link_init(&wakeup->watching);
    spw_link_init(&wakeup->loading);
    spw_link_init(&wakeup->woken);
    return rc;
}

void spw_wakeup_fini(struct spw_wakeup *wakeup)
{
    free(wakeup->map);
    free(wakeup->bucket);
    free(wakeup->deadline);
    wakeup->map = NULL;
    wakeup->bucket = NULL;
    wakeup->deadline = NULL;
}

int spw_wakeup_room(struct spw_wakeup *wakeup, uint32_t waiters)
{
    struct spw_wakeup now;
    uint64_t twice = 2 * (uint64_t)wakeup->room;
    if (waiters <= wakeup->room)
        return 0;
    int rc = allocate(&now, waiters > twice || twice > UINT32_MAX ? waiters : twice);
    if (rc < 0)
        return rc;
    move_watches(&now, wakeup);
    for (uint32_t i = 0; i < wakeup->deadlines; i++)
        now.deadline[i] = wakeup->deadline[i];
    spw_wakeup_fini(wakeup);
    wakeup->map = now.map;
    wakeup->mask = now.mask;
    wakeup->bucket = now.bucket;
    wakeup->deadline = now.deadline;
    wakeup->room = now.room;
    return 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void take_watches(struct spw_wakeup *wakeup, struct spw_waiter *waiter)
{
    for (uint32_t i = 0; i < waiter->count; i++)
        take_watch(wakeup, &waiter->watch[i]);
    waiter->count = 0;
}

void spw_wakeup_wait(struct spw_wakeup *wakeup, struct spw_waiter *waiter, const uint64_t *tags,
                     uint32_t count, uint64_t deadline_ns)
{
    assert(count <= SPW_DECIDE_WAITS_MAX);
    if (waiter->state != SPW_WAITER_IDLE)
        spw_list_remove(&waiter->link);
    take_watches(wakeup, waiter);
    set_deadline(wakeup, waiter, deadline_ns);
    waiter->state = SPW_WAITER_WAITING;
    waiter->count = count;
    spw_list_append(count > 0 ? &wakeup->watching : &wakeup->loading, &waiter->link);
    for (uint32_t i = 0; i < count; i++) {
        waiter->watch[i].tag = tags[i];
        waiter->watch[i].waiter = waiter;
        put_watch(wakeup, &waiter->watch[i]);
    }
}

void spw_wakeup_forget(struct spw_wakeup *wakeup, struct spw_waiter *waiter)
{
    if (waiter->state == SPW_WAITER_IDLE)
        return;
    spw_list_remove(&waiter->link);
    take_watches(wakeup, waiter);
    take_deadline(wakeup, waiter);
    waiter->state = SPW_WAITER_IDLE;
}

/* ---- waking ---------------------------------------------------------------------------------- */

void spw_wakeup_one(struct spw_wakeup *wakeup, struct spw_waiter *waiter)
{
    if (waiter->state != SPW_WAITER_WAITING)
        return;
    waiter->state = SPW_WAITER_WOKEN;
    spw_list_remove(&waiter->link);
    spw_list_append(&wakeup->woken, &waiter->link);
}

static void wake_list(struct spw_wakeup *wakeup, struct spw_link *list)
{
    while (!spw_list_empty(list))
        spw_wakeup_one(wakeup, SPW_LINKED(list->after, struct spw_waiter, link));
}

void spw_wakeup_all(struct spw_wakeup *wakeup)
{
    wake_list(wakeup, &wakeup->watching);
    wake_list(wakeup, &wakeup->loading);
}

void spw_wakeup_loading(struct spw_wakeup *wakeup)
{
    wake_list(wakeup, &wakeup->loading);
}

/* The whole circle leaves the table at once. */
void spw_wakeup_wake_tag(struct spw_wakeup *wakeup, uint64_t tag)
{
    struct spw_watch **at = find(wakeup, tag), *first = *at;
    if (!first)
        return;
    *at = first->next;
    mark(wakeup, tag);
    while (!spw_list_empty(&first->same)) {
        struct spw_watch *watch = first;
        first = watch_at(watch->same.after);
        spw_list_remove(&watch->same);
        watch->stands = false;
        spw_wakeup_one(wakeup, watch->waiter);
    }
    first->stands = false;
    spw_wakeup_one(wakeup, first->waiter);
}

void spw_wakeup_wake_due(struct spw_wakeup *wakeup, uint64_t now_ns)
{
    while (wakeup->deadlines > 0 && wakeup->deadline[0].at_ns <= now_ns) {
        struct spw_waiter *waiter = wakeup->deadline[0].waiter;
        take_deadline(wakeup, waiter);
        spw_wakeup_one(wakeup, waiter);
    }
}

struct spw_waiter *spw_wakeup_next(struct spw_wakeup *wakeup)
{
    if (spw_list_empty(&wakeup->woken))
        return NULL;
    struct spw_waiter *waiter = SPW_LINKED(wakeup->woken.after, struct spw_waiter, link);
    spw_list_remove(&waiter->link);
    return waiter;
}
