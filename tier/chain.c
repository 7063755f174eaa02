/* See chain.h. Keys in an open hash table of node numbers, each in a list of those right behind the
 * same one. */
#include "tier/chain.h"

#include <stdlib.h>

#define NONE UINT32_MAX

struct node {
    uint64_t tag;
    uint32_t before;       /* NONE: the first, or not known    */
    uint32_t first;        /* of those right behind it         */
    uint32_t older, newer; /* among those behind the same one; free ones: newer */
};

struct spw_chain {
    struct node *node;
    uint32_t *cell; /* node + 1, 0 = empty */
    uint32_t cells; /* a power of two, at least twice the keys */
    uint32_t free;
};

struct spw_chain *spw_chain_open(uint32_t keys)
{
    struct spw_chain *chain = calloc(1, sizeof *chain);
    if (!chain)
        return NULL;
    for (chain->cells = 2; chain->cells < 2 * (uint64_t)keys; chain->cells *= 2)
        ;
    chain->node = malloc((size_t)keys * sizeof *chain->node);
    chain->cell = calloc(chain->cells, sizeof *chain->cell);
    if (!chain->node || !chain->cell) {
        spw_chain_close(chain);
        return NULL;
    }
    chain->free = NONE;
    for (uint32_t i = keys; i-- > 0;) {
        chain->node[i].newer = chain->free;
        chain->free = i;
    }
    return chain;
}

void spw_chain_close(struct spw_chain *chain)
{
    if (!chain)
        return;
    free(chain->node);
    free(chain->cell);
    free(chain);
}

/* ---- table ----------------------------------------------------------------------------------- */

static uint32_t home_of(const struct spw_chain *chain, uint64_t tag)
{
    return (uint32_t)(tag >> 32) & (chain->cells - 1);
}

/* The cell of @tag, or the empty one where it would go. */
static uint32_t cell_of(const struct spw_chain *chain, uint64_t tag)
{
    uint32_t at = home_of(chain, tag);
    while (chain->cell[at] != 0 && chain->node[chain->cell[at] - 1].tag != tag)
        at = (at + 1) & (chain->cells - 1);
    return at;
}

static uint32_t find(const struct spw_chain *chain, uint64_t tag)
{
    uint32_t cell = chain->cell[cell_of(chain, tag)];
    return cell == 0 ? NONE : cell - 1;
}

/* Cells behind it that would no longer be found move up. */
static void empty_cell(struct spw_chain *chain, uint32_t at)
{
    uint32_t mask = chain->cells - 1;
    for (uint32_t next = (at + 1) & mask; chain->cell[next] != 0; next = (next + 1) & mask) {
        uint32_t home = home_of(chain, chain->node[chain->cell[next] - 1].tag);
        if (((next - home) & mask) < ((next - at) & mask))
            continue; /* its home lies behind the gap */
        chain->cell[at] = chain->cell[next];
        at = next;
    }
    chain->cell[at] = 0;
}

static uint32_t find_or_add(struct spw_chain *chain, uint64_t tag)
{
    uint32_t at = cell_of(chain, tag);
    if (chain->cell[at] != 0)
        return chain->cell[at] - 1;
    uint32_t n = chain->free;
    if (n == NONE)
        return NONE;
    chain->free = chain->node[n].newer;
    chain->node[n] =
        (struct node){.tag = tag, .before = NONE, .first = NONE, .older = NONE, .newer = NONE};
    chain->cell[at] = n + 1;
    return n;
}

static void remove_node(struct spw_chain *chain, uint32_t n)
{
    empty_cell(chain, cell_of(chain, chain->node[n].tag));
    chain->node[n].newer = chain->free;
    chain->free = n;
}

/* ---- links ----------------------------------------------------------------------------------- */

static void cut(struct spw_chain *chain, uint32_t n)
{
    struct node *node = &chain->node[n];
    if (node->before == NONE)
        return;
    if (node->older != NONE)
        chain->node[node->older].newer = node->newer;
    else
        chain->node[node->before].first = node->newer;
    if (node->newer != NONE)
        chain->node[node->newer].older = node->older;
    node->before = node->older = node->newer = NONE;
}

/* @n, which is behind none, stands right behind @before. */
static void hang(struct spw_chain *chain, uint32_t n, uint32_t before)
{
    struct node *node = &chain->node[n];
    node->before = before;
    node->newer = chain->node[before].first;
    if (node->newer != NONE)
        chain->node[node->newer].older = n;
    chain->node[before].first = n;
}

void spw_chain_link(struct spw_chain *chain, uint64_t before, uint64_t tag)
{
    uint32_t b = find_or_add(chain, before), n = find_or_add(chain, tag);
    if (b == NONE || n == NONE || b == n || chain->node[n].before == b)
        return;
    cut(chain, n);
    hang(chain, n, b);
}

bool spw_chain_needed(const struct spw_chain *chain, uint64_t tag)
{
    uint32_t n = find(chain, tag);
    return n != NONE && chain->node[n].first != NONE;
}

static uint32_t take_first(struct spw_chain *chain, uint32_t n)
{
    uint32_t first = chain->node[n].first;
    if (first != NONE)
        cut(chain, first);
    return first;
}

void spw_chain_lose(struct spw_chain *chain, uint64_t tag, void (*each)(void *ctx, uint64_t tag),
                    void *ctx)
{
    uint32_t root = find(chain, tag), n;
    if (root == NONE)
        return;
    cut(chain, root);
    /* whoever is told is cut off, and what hung on it hangs on the root instead: each is told once,
     * even where links went in a circle */
    while ((n = take_first(chain, root)) != NONE) {
        each(ctx, chain->node[n].tag);
        for (uint32_t child; (child = take_first(chain, n)) != NONE;)
            hang(chain, child, root);
    }
    remove_node(chain, root);
}

void spw_chain_forget(struct spw_chain *chain, uint64_t tag)
{
    uint32_t n = find(chain, tag);
    if (n == NONE)
        return;
    cut(chain, n);
    while (take_first(chain, n) != NONE)
        ;
    remove_node(chain, n);
}
