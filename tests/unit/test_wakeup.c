/* Wake-ups: each case by hand, then all of it at random against a plain model. */
#include "sched/wakeup.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(wakeup, .timeout = 20);

#define NEVER UINT64_MAX

static struct spw_wakeup wakeup;

static void begin(void)
{
    cr_assert_eq(spw_wakeup_init(&wakeup), 0);
}

static void end(void)
{
    spw_wakeup_fini(&wakeup);
}

TestSuite(wakeup_one, .timeout = 20, .init = begin, .fini = end);

static void wait_one(struct spw_waiter *waiter, uint64_t tag, uint64_t deadline)
{
    spw_wakeup_wait(&wakeup, waiter, &tag, 1, deadline);
}

static void expect_next(struct spw_waiter *waiter)
{
    cr_assert_eq(spw_wakeup_next(&wakeup), waiter);
}

static uint64_t bits_set(void)
{
    uint64_t bits = 0;
    for (uint64_t b = 0; b <= wakeup.mask; b++) {
        uint32_t of_tags = 0;
        for (const struct spw_watch *watch = wakeup.bucket[b]; watch; watch = watch->next)
            of_tags |= spw_wakeup_bit(watch->tag);
        cr_assert_eq(wakeup.map[b], of_tags, "bucket %lu", (unsigned long)b);
        bits += (uint64_t)__builtin_popcount(of_tags);
    }
    return bits;
}

Test(wakeup_one, a_record_wakes_its_watchers_once_and_in_order)
{
    struct spw_waiter a = {0}, b = {0}, c = {0};
    wait_one(&a, 7, NEVER);
    wait_one(&b, 7, NEVER);
    wait_one(&c, 8, NEVER);
    expect_next(NULL);
    spw_wakeup_record(&wakeup, 9);
    spw_wakeup_record(&wakeup, 8);
    spw_wakeup_record(&wakeup, 7);
    spw_wakeup_record(&wakeup, 7);
    cr_assert(spw_waiter_woken(&a) && !spw_waiter_waiting(&a));
    expect_next(&c);
    expect_next(&a);
    cr_assert(spw_waiter_woken(&a)); /* handed out, until it waits anew */
    expect_next(&b);
    expect_next(NULL);
    spw_wakeup_record(&wakeup, 7);
    expect_next(NULL);
    wait_one(&a, 7, NEVER);
    cr_assert(!spw_waiter_woken(&a) && spw_waiter_waiting(&a));
    spw_wakeup_record(&wakeup, 7);
    expect_next(&a);
    spw_wakeup_forget(&wakeup, &a);
    spw_wakeup_forget(&wakeup, &b);
    spw_wakeup_forget(&wakeup, &c);
    cr_assert_eq(bits_set(), 0);
}

Test(wakeup_one, one_waiter_may_watch_a_tag_twice)
{
    struct spw_waiter a = {0}, b = {0};
    const uint64_t tags[] = {7, 7, 9, 7};
    spw_wakeup_wait(&wakeup, &a, tags, 4, NEVER);
    spw_wakeup_wait(&wakeup, &b, tags, 4, NEVER);
    spw_wakeup_record(&wakeup, 7);
    expect_next(&a);
    expect_next(&b);
    expect_next(NULL);
    spw_wakeup_record(&wakeup, 9); /* still watched by woken ones: nothing */
    expect_next(NULL);
    spw_wakeup_wait(&wakeup, &a, tags, 4, NEVER);
    spw_wakeup_forget(&wakeup, &b);
    spw_wakeup_forget(&wakeup, &a);
    cr_assert_eq(bits_set(), 0);
}

Test(wakeup_one, tags_of_one_bucket_are_told_apart)
{
    struct spw_waiter a = {0}, b = {0}, c = {0};
    uint64_t step = wakeup.mask + 1;
    wait_one(&a, 5, NEVER);
    wait_one(&b, 5 + step, NEVER);
    wait_one(&c, 5 + 2 * step, NEVER);
    spw_wakeup_record(&wakeup, 5 + 3 * step);
    expect_next(NULL);
    spw_wakeup_record(&wakeup, 5 + step);
    expect_next(&b);
    spw_wakeup_forget(&wakeup, &a);
    cr_assert_eq(bits_set(), 1);
    spw_wakeup_record(&wakeup, 5);
    expect_next(NULL);
    spw_wakeup_record(&wakeup, 5 + 2 * step);
    expect_next(&c);
    cr_assert_eq(bits_set(), 0);
}

Test(wakeup_one, what_is_forgotten_is_not_handed_out)
{
    struct spw_waiter a = {0}, b = {0};
    spw_wakeup_forget(&wakeup, &a); /* never waited */
    wait_one(&a, 7, 10);
    wait_one(&b, 7, 10);
    spw_wakeup_record(&wakeup, 7);
    spw_wakeup_forget(&wakeup, &a); /* among the woken */
    spw_wakeup_forget(&wakeup, &a);
    cr_assert(!spw_waiter_woken(&a) && !spw_waiter_waiting(&a));
    expect_next(&b);
    wait_one(&a, 7, 10);
    spw_wakeup_forget(&wakeup, &a);
    spw_wakeup_record(&wakeup, 7); /* the late answer wakes nobody */
    spw_wakeup_due(&wakeup, 100);
    spw_wakeup_all(&wakeup);
    expect_next(NULL);
    spw_wakeup_forget(&wakeup, &b);
    cr_assert_eq(wakeup.deadlines, 0);
}

Test(wakeup_one, waiting_anew_while_woken_takes_the_wake_up_back)
{
    struct spw_waiter a = {0};
    wait_one(&a, 7, NEVER);
    spw_wakeup_record(&wakeup, 7);
    wait_one(&a, 8, NEVER);
    expect_next(NULL);
    spw_wakeup_record(&wakeup, 7);
    expect_next(NULL);
    spw_wakeup_record(&wakeup, 8);
    expect_next(&a);
    expect_next(NULL);
}

Test(wakeup_one, those_without_tags_wait_for_loads)
{
    struct spw_waiter a = {0}, b = {0};
    wait_one(&a, 7, NEVER);
    spw_wakeup_wait(&wakeup, &b, NULL, 0, NEVER);
    spw_wakeup_record(&wakeup, 7);
    spw_wakeup_loading(&wakeup);
    expect_next(&a);
    expect_next(&b);
    spw_wakeup_wait(&wakeup, &a, NULL, 0, NEVER);
    wait_one(&b, 7, NEVER);
    spw_wakeup_loading(&wakeup);
    expect_next(&a);
    expect_next(NULL);
    spw_wakeup_all(&wakeup);
    expect_next(&b);
    expect_next(NULL);
}

Test(wakeup_one, deadlines_wake_when_they_come)
{
    struct spw_waiter a = {0}, b = {0}, c = {0}, d = {0};
    wait_one(&a, 1, 50);
    wait_one(&b, 2, 50);
    wait_one(&c, 3, 20);
    wait_one(&d, 4, NEVER);
    spw_wakeup_due(&wakeup, 19);
    expect_next(NULL);
    spw_wakeup_due(&wakeup, 20);
    expect_next(&c);
    wait_one(&c, 3, 10); /* long past */
    expect_next(NULL);
    spw_wakeup_due(&wakeup, 21);
    expect_next(&c);
    wait_one(&c, 3, 60);
    wait_one(&c, 3, NEVER);
    spw_wakeup_due(&wakeup, 50);
    cr_assert(spw_waiter_woken(&a) && spw_waiter_woken(&b));
    spw_wakeup_next(&wakeup);
    spw_wakeup_next(&wakeup);
    spw_wakeup_due(&wakeup, UINT64_MAX - 1);
    expect_next(NULL);
    cr_assert_eq(wakeup.deadlines, 0);
}

Test(wakeup_one, ten_thousand_watch_one_tag)
{
    enum { MANY = 10000 };
    struct spw_waiter *waiter = calloc(MANY, sizeof *waiter);
    cr_assert_not_null(waiter);
    cr_assert_eq(spw_wakeup_room(&wakeup, MANY), 0);
    cr_assert_geq(wakeup.room, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        wait_one(&waiter[i], 7, MANY - i);
    cr_assert_eq(bits_set(), 1);
    for (uint32_t i = 0; i < MANY; i += 2)
        spw_wakeup_forget(&wakeup, &waiter[i]);
    spw_wakeup_record(&wakeup, 7);
    for (uint32_t i = 1; i < MANY; i += 2)
        expect_next(&waiter[i]);
    expect_next(NULL);
    cr_assert_eq(bits_set(), 0);
    free(waiter);
}

Test(wakeup_one, growing_loses_nothing)
{
    struct spw_waiter a = {0};
    wait_one(&a, 7, 5);
    uint32_t room = wakeup.room;
    cr_assert_eq(spw_wakeup_room(&wakeup, room), 0);
    cr_assert_eq(wakeup.room, room);
    spw_wakeup_record(&wakeup, 8);
    cr_assert(spw_waiter_waiting(&a));
    cr_assert_eq(spw_wakeup_room(&wakeup, room + 1), 0);
    cr_assert_geq(wakeup.room, room + 1);
    spw_wakeup_due(&wakeup, 5);
    expect_next(&a);
    wait_one(&a, 7, 5);
    spw_wakeup_record(&wakeup, 7);
    expect_next(&a);
}

/* ---- against a model ------------------------------------------------------------------------- */

#define WAITERS 300u
#define TAGS    120u

struct model {
    bool stands;
    bool woken;
    uint64_t handed; /* 0: not in line; else the turn at which it was woken */
    uint64_t deadline;
    uint32_t count;
    uint64_t tag[SPW_DECIDE_WAITS_MAX];
};

static struct spw_waiter waiter[WAITERS];
static struct model model[WAITERS];
static uint64_t turn;

static uint64_t random_below(uint64_t below)
{
    static uint64_t x = 88172645463325252ull;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (x >> 11) % below;
}

/* Few buckets and many tags in each, some far apart. */
static uint64_t random_tag(void)
{
    uint64_t tag = random_below(TAGS);
    return tag % 40 + (tag / 40 << 32) + (tag % 7 << 60);
}

static void model_wake(uint32_t i)
{
    if (!model[i].stands || model[i].woken)
        return;
    model[i].woken = true;
    model[i].handed = turn;
}

static bool model_watches(const struct model *one, uint64_t tag)
{
    for (uint32_t i = 0; i < one->count; i++)
        if (one->tag[i] == tag)
            return true;
    return false;
}

static void wait_randomly(uint32_t i, uint64_t now)
{
    struct model *one = &model[i];
    *one = (struct model){.stands = true, .deadline = NEVER};
    one->count = (uint32_t)random_below(SPW_DECIDE_WAITS_MAX + 1);
    if (random_below(2))
        one->deadline = now + random_below(60) - (now > 10 ? 10 : now);
    for (uint32_t t = 0; t < one->count; t++)
        one->tag[t] = random_tag();
    spw_wakeup_wait(&wakeup, &waiter[i], one->tag, one->count, one->deadline);
}

static void tell_randomly(uint64_t now)
{
    uint64_t tag = random_tag(), what = random_below(100);
    if (what == 0)
        spw_wakeup_all(&wakeup);
    else if (what < 4)
        spw_wakeup_loading(&wakeup);
    else if (what < 20)
        spw_wakeup_due(&wakeup, now);
    else
        spw_wakeup_record(&wakeup, tag);
    for (uint32_t i = 0; i < WAITERS; i++)
        if (what == 0 || (what < 4 && model[i].count == 0) ||
            (what >= 4 && what < 20 && model[i].deadline <= now) ||
            (what >= 20 && model_watches(&model[i], tag)))
            model_wake(i);
}

/* Hands out one of those that were woken first. */
static void hand_out(void)
{
    uint64_t oldest = NEVER;
    struct spw_waiter *next = spw_wakeup_next(&wakeup);
    for (uint32_t i = 0; i < WAITERS; i++)
        if (model[i].handed != 0 && model[i].handed < oldest)
            oldest = model[i].handed;
    cr_assert_eq(next == NULL, oldest == NEVER);
    if (next) {
        cr_assert_eq(model[next - waiter].handed, oldest);
        model[next - waiter].handed = 0;
    }
}

static void check_all(void)
{
    for (uint32_t i = 0; i < WAITERS; i++) {
        cr_assert_eq(spw_waiter_woken(&waiter[i]), model[i].woken, "waiter %u", i);
        cr_assert_eq(spw_waiter_waiting(&waiter[i]), model[i].stands && !model[i].woken);
    }
    for (uint32_t i = 0; i < wakeup.deadlines; i++) {
        cr_assert_eq(wakeup.deadline[i].waiter->place, i + 1);
        cr_assert_leq(wakeup.deadline[i > 0 ? (i - 1) / 2 : 0].at_ns, wakeup.deadline[i].at_ns);
    }
    bits_set();
}

Test(wakeup, does_what_a_plain_model_does)
{
    begin();
    for (turn = 1; turn <= 40000; turn++) {
        uint64_t now = turn / 8;
        uint32_t open = turn < 10000 ? 40 : WAITERS, i = (uint32_t)random_below(open);
        if (turn == 10000)
            cr_assert_eq(spw_wakeup_room(&wakeup, WAITERS), 0); /* with all that stands */
        switch (random_below(8)) {
        case 0:
        case 1:
        case 2:
            wait_randomly(i, now);
            break;
        case 3:
            spw_wakeup_forget(&wakeup, &waiter[i]);
            model[i] = (struct model){.deadline = NEVER};
            break;
        case 4:
        case 5:
            tell_randomly(now);
            break;
        default:
            hand_out();
        }
        if (turn % 64 == 0)
            check_all();
    }
    for (uint32_t i = 0; i < WAITERS; i++)
        spw_wakeup_forget(&wakeup, &waiter[i]);
    cr_assert_eq(bits_set(), 0);
    cr_assert_eq(wakeup.deadlines, 0);
    cr_assert(spw_list_empty(&wakeup.woken) && spw_list_empty(&wakeup.watching));
    end();
}
