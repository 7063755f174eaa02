/* See fault_io.h. */
#include "tests/support/fault_io.h"

#include <stdlib.h>

#define RULES_MAX 16u
#define OPS       4

enum item_state { FREE, HELD, BELOW, DONE };

struct item {
    struct spw_io io; /* as the engine below gets it, but for its tag */
    struct spw_io_end end;
    enum item_state state;
    bool hangs;
    uint64_t due_ns;
    uint64_t ended; /* order of ends */
};

struct fault_io {
    struct spw_io_handle below;
    void (*wake)(void *ctx);
    void *wake_ctx;
    struct item *item;
    uint32_t items;
    uint32_t open, held, done;
    uint64_t ends;
    struct fault_io_rule rule[RULES_MAX];
    uint64_t seen[RULES_MAX]; /* transfers that a rule's op names */
    uint32_t rules;
    uint64_t count[OPS];
    struct fault_io_asked log[FAULT_IO_LOG_MAX];
    uint32_t logged;
    const uint64_t *now_ns;
    uint64_t random;
    bool shuffles;
};

static struct fault_io *of(struct spw_io_engine *engine)
{
    return (struct fault_io *)engine;
}

static uint64_t now(const struct fault_io *fault)
{
    return fault->now_ns ? *fault->now_ns : spw_monotonic_ns();
}

static uint64_t chance(struct fault_io *fault)
{
    fault->random ^= fault->random << 13;
    fault->random ^= fault->random >> 7;
    fault->random ^= fault->random << 17;
    return fault->random;
}

static const struct fault_io_rule *rule_for(struct fault_io *fault, const struct spw_io *io)
{
    const struct fault_io_rule *found = NULL;
    for (uint32_t i = 0; i < fault->rules; i++) {
        const struct fault_io_rule *rule = &fault->rule[i];
        if (rule->op != FAULT_IO_ANY && rule->op != (int)io->op)
            continue;
        uint64_t number = ++fault->seen[i], first = rule->first ? rule->first : 1;
        bool named = number >= first && (rule->count == 0 || number - first < rule->count);
        if (named && rule->one_in > 1)
            named = chance(fault) % rule->one_in == 0;
        if (named && !found)
            found = rule;
    }
    return found;
}

static void ended(struct fault_io *fault, struct item *item)
{
    item->state = DONE;
    item->ended = fault->ends++;
    fault->done++;
}

/* To the engine below. 0 or -EAGAIN. */
static int pass_on(struct fault_io *fault, struct item *item)
{
    struct spw_io io = item->io;
    io.tag = item;
    int rc = fault->below.ops->submit(fault->below.engine, &io);
    if (rc == 0)
        item->state = BELOW;
    return rc;
}

static void hold(struct fault_io *fault, struct item *item)
{
    item->state = HELD;
    fault->held++;
}

static int apply(struct fault_io *fault, struct item *item, const struct fault_io_rule *rule)
{
    if (!rule)
        return pass_on(fault, item);
    switch (rule->kind) {
    case FAULT_IO_SHORT:
        if (item->io.bytes > rule->bytes) {
            item->io.bytes = rule->bytes;
            item->io.sum_bytes = 0; /* not all bytes will have moved */
        }
        return pass_on(fault, item);
    case FAULT_IO_ERROR:
        item->end.result = rule->error;
        ended(fault, item);
        if (fault->wake)
            fault->wake(fault->wake_ctx);
        return 0;
    case FAULT_IO_DELAY:
        item->due_ns = now(fault) + rule->delay_ns;
        hold(fault, item);
        return 0;
    default:
        item->hangs = true;
        hold(fault, item);
        return 0;
    }
}

static void note(struct fault_io *fault, const struct spw_io *io)
{
    fault->count[io->op]++;
    if (fault->logged < FAULT_IO_LOG_MAX)
        fault->log[fault->logged++] =
            (struct fault_io_asked){io->op, io->fd, io->offset, io->bytes, io->urgent};
}

static int submit(struct spw_io_engine *engine, const struct spw_io *io)
{
    struct fault_io *fault = of(engine);
    struct item *item = NULL;
    for (uint32_t i = 0; i < fault->items && !item; i++)
        if (fault->item[i].state == FREE)
            item = &fault->item[i];
    if (!item)
        return -EAGAIN;
    *item = (struct item){.io = *io, .end = {.tag = io->tag}};
    int rc = apply(fault, item, rule_for(fault, io));
    if (rc < 0)
        return rc;
    fault->open++;
    note(fault, io);
    return 0;
}

static void let_go(struct fault_io *fault)
{
    for (uint32_t i = 0; i < fault->items && fault->held != 0; i++) {
        struct item *item = &fault->item[i];
        if (item->state == HELD && !item->hangs && now(fault) >= item->due_ns &&
            pass_on(fault, item) == 0)
            fault->held--;
    }
}

static void take_ends(struct fault_io *fault)
{
    struct spw_io_end end[64];
    int count;
    while ((count = fault->below.ops->poll(fault->below.engine, end, 64)) > 0) {
        for (int i = 0; i < count; i++) {
            struct item *item = end[i].tag;
            item->end.result = end[i].result;
            item->end.sum = end[i].sum;
            ended(fault, item);
        }
    }
}

/* The one that ended first, or any. */
static struct item *next_end(struct fault_io *fault)
{
    struct item *best = NULL;
    uint64_t pick = fault->shuffles && fault->done ? chance(fault) % fault->done : 0;
    for (uint32_t i = 0; i < fault->items; i++) {
        struct item *item = &fault->item[i];
        if (item->state != DONE)
            continue;
        if (fault->shuffles && pick-- == 0)
            return item;
        if (!fault->shuffles && (!best || item->ended < best->ended))
            best = item;
    }
    return best;
}

static int poll(struct spw_io_engine *engine, struct spw_io_end *out, int max)
{
    struct fault_io *fault = of(engine);
    int count = 0;
    let_go(fault);
    take_ends(fault);
    while (count < max && fault->done != 0) {
        if (fault->shuffles && chance(fault) % 2)
            break;
        struct item *item = next_end(fault);
        out[count++] = item->end;
        item->state = FREE;
        fault->done--;
        fault->open--;
    }
    if (fault->done != 0 && count < max && fault->wake)
        fault->wake(fault->wake_ctx);
    return count;
}

static void mode(struct spw_io_engine *engine, struct spw_io_mode *out)
{
    of(engine)->below.ops->mode(of(engine)->below.engine, out);
}

static int close_engine(struct spw_io_engine *engine, uint64_t limit_ns)
{
    struct fault_io *fault = of(engine);
    if (!fault)
        return 0;
    int rc = fault->below.ops->close(fault->below.engine, limit_ns);
    if (fault->held != 0) /* as a kernel that hangs would have it */
        rc = -ETIMEDOUT;
    if (rc == 0) {
        free(fault->item);
        free(fault);
    }
    return rc;
}

static const struct spw_io_ops ops = {
    .submit = submit, .poll = poll, .mode = mode, .close = close_engine};

struct fault_io *fault_io_open(struct spw_io_handle below, const struct spw_io_config *config,
                               uint64_t seed, struct spw_io_handle *out_io)
{
    struct fault_io *fault = calloc(1, sizeof *fault);
    uint32_t items = config->depth * SPW_IO_WAITING;
    struct item *item = calloc(items, sizeof *item);
    if (!fault || !item)
        abort();
    fault->below = below;
    fault->wake = config->wake;
    fault->wake_ctx = config->wake_ctx;
    fault->item = item;
    fault->items = items;
    fault->random = seed * 0x9e3779b97f4a7c15ull | 1;
    *out_io = (struct spw_io_handle){&ops, (struct spw_io_engine *)fault};
    return fault;
}

void fault_io_rule(struct fault_io *fault, struct fault_io_rule rule)
{
    if (fault->rules == RULES_MAX)
        abort();
    fault->seen[fault->rules] = 0;
    fault->rule[fault->rules++] = rule;
}

void fault_io_clear(struct fault_io *fault)
{
    fault->rules = 0;
}

void fault_io_clock(struct fault_io *fault, const uint64_t *now_ns)
{
    fault->now_ns = now_ns;
}

void fault_io_shuffle(struct fault_io *fault)
{
    fault->shuffles = true;
}

void fault_io_release(struct fault_io *fault)
{
    for (uint32_t i = 0; i < fault->items; i++)
        fault->item[i].hangs = false;
}

uint64_t fault_io_count(const struct fault_io *fault, int op)
{
    uint64_t sum = 0;
    for (int i = 0; i < OPS; i++)
        sum += op == FAULT_IO_ANY || op == i ? fault->count[i] : 0;
    return sum;
}

uint32_t fault_io_open_count(const struct fault_io *fault)
{
    return fault->open;
}

uint32_t fault_io_held_count(const struct fault_io *fault)
{
    return fault->held;
}

uint32_t fault_io_log(const struct fault_io *fault, const struct fault_io_asked **out_first)
{
    *out_first = fault->log;
    return fault->logged;
}
