/* See place_map.h. */
#include "tools/place_map.h"

#include <inttypes.h>
#include <stdio.h>

#include "tier/gpu_identity.h"

static const char *uuid_of(const struct spw_place_worker *worker, char out[SPW_GPU_UUID_TEXT])
{
    if (!worker->gpu_found || !worker->gpu.has_uuid)
        return NULL;
    spw_gpu_uuid_print(worker->gpu.uuid, out);
    return out;
}

static const char *bus_of(const struct spw_place_worker *worker, char out[SPW_GPU_BUS_TEXT])
{
    if (!worker->gpu_found || worker->gpu.bus == SPW_TOPOLOGY_UNKNOWN)
        return NULL;
    spw_gpu_bus_print(worker->gpu.bus, out);
    return out;
}

static const char *or_dash(const char *text)
{
    return text ? text : "-";
}

void spw_place_map_print(const struct spw_place *place)
{
    printf("\n%6s %-40s %-12s %4s %-11s %-12s %-12s %s\n", "worker", "GPU", "address", "node",
           "because", "CPUs", "because", "memory");
    for (uint32_t k = 0; k < place->workers; k++) {
        const struct spw_place_worker *worker = &place->worker[k];
        char uuid[SPW_GPU_UUID_TEXT], bus[SPW_GPU_BUS_TEXT], node[12] = "-";
        char cpus[SPW_PLACE_TEXT_BYTES] = "any", memory[SPW_PLACE_TEXT_BYTES] = "";
        struct spw_set nodes = spw_place_memory_nodes(&worker->memory);
        if (worker->node_known)
            snprintf(node, sizeof node, "%" PRIu32, worker->node);
        if (worker->cpus_why != SPW_PLACE_ANYWHERE)
            spw_set_print(&worker->cpus, cpus, sizeof cpus);
        if (worker->memory.kind != SPW_MEMORY_ANY)
            spw_set_print(&nodes, memory, sizeof memory);
        printf("%6u %-40s %-12s %4s %-11s %-12s %-12s %s%s%s\n", k, or_dash(uuid_of(worker, uuid)),
               or_dash(bus_of(worker, bus)), node, spw_place_source_word(worker->source), cpus,
               spw_place_cpus_word(worker->cpus_why), spw_place_memory_word(worker->memory.kind),
               memory[0] ? " " : "", memory);
    }
}

static json_t *set_json(const struct spw_set *set)
{
    char text[4 * SPW_PLACE_TEXT_BYTES];
    return json_string(spw_set_print(set, text, sizeof text));
}

static json_t *worker_json(const struct spw_place_worker *worker, uint32_t k)
{
    char uuid[SPW_GPU_UUID_TEXT], bus[SPW_GPU_BUS_TEXT];
    struct spw_set nodes = spw_place_memory_nodes(&worker->memory);
    bool any_cpus = worker->cpus_why == SPW_PLACE_ANYWHERE;
    bool any_memory = worker->memory.kind == SPW_MEMORY_ANY;
    return json_pack(
        "{s:i, s:b, s:s?, s:s?, s:o, s:s, s:o, s:s, s:s, s:o}", "worker", (int)k, "has_gpu",
        worker->has_gpu, "gpu", uuid_of(worker, uuid), "address", bus_of(worker, bus), "node",
        worker->node_known ? json_integer(worker->node) : json_null(), "node_from",
        spw_place_source_word(worker->source), "cpus",
        any_cpus ? json_null() : set_json(&worker->cpus), "cpus_from",
        spw_place_cpus_word(worker->cpus_why), "memory", spw_place_memory_word(worker->memory.kind),
        "memory_nodes", any_memory ? json_null() : set_json(&nodes));
}

json_t *spw_place_map_json(const struct spw_place *place)
{
    json_t *map = json_array();
    for (uint32_t k = 0; k < place->workers; k++)
        json_array_append_new(map, worker_json(&place->worker[k], k));
    return map;
}
