/* See show_place.h. */
#include "tools/show_place.h"

#include <inttypes.h>
#include <stdio.h>

struct place {
    uint64_t node, memory_node; /* 1 + node, 0 = none */
    uint64_t near_permille, cpus, cpu_bind, memory_bind;
};

static struct place read_place(const struct spw_pool *pool, uint32_t k)
{
    const struct spw_gpu_record *record = &pool->feed[k]->gpu;
    /* relaxed: a picture, each word whole */
    return (struct place){.node = spw_load_relaxed(&record->node),
                          .memory_node = spw_load_relaxed(&record->memory_node),
                          .near_permille = spw_load_relaxed(&record->near_permille),
                          .cpus = spw_load_relaxed(&record->cpus),
                          .cpu_bind = spw_load_relaxed(&record->cpu_bind),
                          .memory_bind = spw_load_relaxed(&record->memory_bind)};
}

static const char *bind_word(uint64_t state)
{
    static const char *const words[] = {[SPW_BIND_NONE] = "unbound",
                                        [SPW_BIND_DONE] = "bound",
                                        [SPW_BIND_DENIED] = "denied",
                                        [SPW_BIND_ELSEWHERE] = "elsewhere",
                                        [SPW_BIND_INTERLEAVED] = "interleaved"};
    return state < sizeof words / sizeof words[0] ? words[state] : "?";
}

static bool is_placed(const struct place *place)
{
    return place->node || place->cpu_bind != SPW_BIND_NONE || place->memory_bind != SPW_BIND_NONE;
}

static bool near_is_known(const struct place *place)
{
    return place->node && place->near_permille <= 1000;
}

/* "1", "unknown (interleaved)", "-" */
static const char *node_words(const struct place *place, char out[32])
{
    if (place->node)
        snprintf(out, 32, "%" PRIu64, place->node - 1);
    else if (place->memory_bind == SPW_BIND_INTERLEAVED)
        snprintf(out, 32, "unknown (interleaved)");
    else
        snprintf(out, 32, place->memory_bind == SPW_BIND_DENIED ? "unknown" : "-");
    return out;
}

void spw_show_place_print(const struct spw_pool *pool)
{
    bool any = false;
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        struct place place = read_place(pool, k);
        char node[32], near[16] = "-";
        if (!is_placed(&place))
            continue;
        if (near_is_known(&place))
            snprintf(near, sizeof near, "%.1f %%", (double)place.near_permille / 10);
        if (!any)
            printf("\n%6s %-22s %6s %-12s %-12s %s\n", "worker", "node", "CPUs", "cpu_bind",
                   "mem_bind", "memory on its node");
        any = true;
        printf("%6u %-22s %6" PRIu64 " %-12s %-12s %s\n", k, node_words(&place, node), place.cpus,
               bind_word(place.cpu_bind), bind_word(place.memory_bind), near);
    }
}

static json_t *node_json(uint64_t node)
{
    return node ? json_integer((json_int_t)node - 1) : json_null();
}

json_t *spw_show_place_json(const struct spw_pool *pool, uint32_t k)
{
    struct place place = read_place(pool, k);
    return json_pack(
        "{s:i, s:o, s:o, s:I, s:s, s:s, s:o}", "worker", (int)k, "node", node_json(place.node),
        "memory_node", node_json(place.memory_node), "cpus", (json_int_t)place.cpus, "cpu_bind",
        bind_word(place.cpu_bind), "mem_bind", bind_word(place.memory_bind), "near_permille",
        near_is_known(&place) ? json_integer((json_int_t)place.near_permille) : json_null());
}

json_t *spw_show_place_list_json(const struct spw_pool *pool)
{
    json_t *list = json_array();
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        json_array_append_new(list, spw_show_place_json(pool, k));
    return list;
}
