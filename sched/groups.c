/*
 * Pure functions over a space's groups; see groups.h. Nothing is shared, nothing is left behind.
 */
#include "sched/groups.h"
#include <errno.h>
#include <string.h>

static uint64_t div_up(uint64_t value, uint64_t unit)
{
    return value / unit + (value % unit != 0);
}

static bool has_window(uint8_t kind)
{
    return kind == SPW_GROUP_SLIDING || kind == SPW_GROUP_CHUNKED;
}

static int init_group(struct spw_group *group, const struct spw_group_shape *shape,
                      uint64_t hash_unit_tokens, uint32_t blocks_per_chunk)
{
    if (shape->kind > SPW_GROUP_STATE || shape->block_tokens == 0 ||
        shape->block_tokens > SPW_TOKENS_MAX / blocks_per_chunk ||
        shape->block_tokens % hash_unit_tokens != 0 || shape->window_tokens > SPW_TOKENS_MAX ||
        has_window(shape->kind) != (shape->window_tokens != 0))
        return -EINVAL;
    group->kind = shape->kind;
    group->chunk_tokens = shape->block_tokens * blocks_per_chunk;
    group->window_tokens = shape->window_tokens;
    group->window_chunks =
        shape->kind == SPW_GROUP_STATE ? 1 : div_up(shape->window_tokens, group->chunk_tokens);
    return 0;
}

/* Does @a come before @b? Full groups first, then the largest window; equals keep their order. */
static bool comes_before(const struct spw_group *a, const struct spw_group *b)
{
    if ((a->kind == SPW_GROUP_FULL) != (b->kind == SPW_GROUP_FULL))
        return a->kind == SPW_GROUP_FULL;
    return a->window_chunks > b->window_chunks;
}

static void insert_in_order(struct spw_groups *groups, uint32_t index)
{
    uint32_t at = index;
    for (; at > 0 && comes_before(&groups->group[index], &groups->group[groups->order[at - 1]]);
         at--)
        groups->order[at] = groups->order[at - 1];
    groups->order[at] = (uint8_t)index;
}

/* Tails need one block a chunk, one block size, full and state groups only, and a state that
 * can end inside a block. */
static bool tails_possible(const struct spw_groups *groups, uint32_t blocks_per_chunk)
{
    if (blocks_per_chunk != 1 || groups->state_tokens <= groups->hash_unit_tokens)
        return false;
    for (uint32_t g = 0; g < groups->count; g++)
        if (has_window(groups->group[g].kind) ||
            groups->group[g].chunk_tokens != groups->group[0].chunk_tokens)
            return false;
    return true;
}

int spw_groups_init(struct spw_groups *out_groups, uint64_t hash_unit_tokens,
                    uint32_t blocks_per_chunk, const struct spw_group_shape *shapes, uint32_t count)
{
    struct spw_groups groups;

    if (count == 0 || count > SPW_GROUPS_MAX || hash_unit_tokens == 0 || blocks_per_chunk == 0)
        return -EINVAL;
    memset(&groups, 0, sizeof(groups));
    groups.hash_unit_tokens = hash_unit_tokens;
    groups.count = count;
    for (uint32_t g = 0; g < count; g++) {
        struct spw_group *group = &groups.group[g];
        if (init_group(group, &shapes[g], hash_unit_tokens, blocks_per_chunk) != 0)
            return -EINVAL;
        if (group->kind == SPW_GROUP_STATE) {
            if (groups.state_tokens != 0 && groups.state_tokens != group->chunk_tokens)
                return -EINVAL;
            groups.state_tokens = group->chunk_tokens;
        }
        groups.full_count += group->kind == SPW_GROUP_FULL;
        insert_in_order(&groups, g);
    }
    groups.tails = tails_possible(&groups, blocks_per_chunk);
    *out_groups = groups;
    return 0;
}

struct spw_chunk_range spw_group_need(const struct spw_group *group, uint64_t start, uint64_t end)
{
    const uint64_t chunk = group->chunk_tokens;
    struct spw_chunk_range need = {start / chunk, start / chunk};
    uint64_t window = group->window_chunks;

    if (end <= start)
        return need;
    need.end = div_up(end, chunk);
    if (group->kind == SPW_GROUP_FULL)
        return need;
    if (group->kind == SPW_GROUP_SLIDING) {
        /* a window that ends inside a chunk can begin one chunk further down */
        uint64_t oldest = end + 1 > group->window_tokens ? end + 1 - group->window_tokens : 0;
        uint64_t reach = need.end - oldest / chunk;
        window = reach > window ? reach : window;
    }
    if (need.end - need.first > window)
        need.first = need.end - window;
    return need;
}
