/* A worker's place in words; see place.h. */
#include "tools/place.h"

#include <stdio.h>
#include <string.h>

#include "tier/gpu_identity.h"

const char *spw_place_source_word(uint32_t source)
{
    static const char *const words[] = {
        [SPW_PLACE_NO_GPU] = "none",       [SPW_PLACE_CONFIGURED] = "configured",
        [SPW_PLACE_DETECTED] = "detected", [SPW_PLACE_SYSFS] = "sysfs",
        [SPW_PLACE_ONLY] = "only node",    [SPW_PLACE_UNKNOWN] = "unknown"};
    return words[source];
}

const char *spw_place_cpus_word(uint32_t cpus_why)
{
    static const char *const words[] = {[SPW_PLACE_ANYWHERE] = "not bound",
                                        [SPW_PLACE_CPUS_GIVEN] = "given",
                                        [SPW_PLACE_CPUS_OF_NODE] = "of its node",
                                        [SPW_PLACE_CPUS_ALLOWED] = "all allowed",
                                        [SPW_PLACE_CPUS_LEFT] = "not excluded"};
    return words[cpus_why];
}

const char *spw_place_memory_word(uint32_t kind)
{
    static const char *const words[] = {[SPW_MEMORY_ANY] = "any",
                                        [SPW_MEMORY_BIND] = "bind",
                                        [SPW_MEMORY_PREFER] = "prefer",
                                        [SPW_MEMORY_INTERLEAVE] = "interleave"};
    return words[kind];
}

struct spw_set spw_place_memory_nodes(const struct spw_memory *memory)
{
    struct spw_set set;
    memcpy(set.word, memory->node, sizeof set.word);
    return set;
}
_Static_assert(sizeof(struct spw_set) == sizeof((struct spw_memory *)0)->node, "nodes are a set");

const char *spw_place_gpu_words(const struct spw_place_worker *worker,
                                char out[2 * SPW_PLACE_TEXT_BYTES])
{
    char uuid[SPW_GPU_UUID_TEXT], bus[SPW_GPU_BUS_TEXT];
    const size_t bytes = 2 * SPW_PLACE_TEXT_BYTES;
    if (!worker->has_gpu) {
        snprintf(out, bytes, "no GPU");
    } else if (!worker->gpu_found) {
        snprintf(out, bytes, "GPU %s, not seen", worker->which);
    } else {
        spw_gpu_uuid_print(worker->gpu.uuid, uuid);
        spw_gpu_bus_print(worker->gpu.bus, bus);
        snprintf(out, bytes, "%s at %s", worker->gpu.has_uuid ? uuid : "GPU", bus);
    }
    return out;
}

static void memory_words(const struct spw_place_worker *worker, char out[2 * SPW_PLACE_TEXT_BYTES])
{
    static const char *const words[] = {[SPW_MEMORY_ANY] = "memory anywhere",
                                        [SPW_MEMORY_BIND] = "memory on node",
                                        [SPW_MEMORY_PREFER] = "memory on node",
                                        [SPW_MEMORY_INTERLEAVE] = "memory spread over nodes"};
    struct spw_set nodes = spw_place_memory_nodes(&worker->memory);
    char list[SPW_PLACE_TEXT_BYTES];
    if (worker->memory.kind == SPW_MEMORY_ANY)
        snprintf(out, 2 * SPW_PLACE_TEXT_BYTES, "%s", words[SPW_MEMORY_ANY]);
    else
        snprintf(out, 2 * SPW_PLACE_TEXT_BYTES, "%s %s%s", words[worker->memory.kind],
                 spw_set_print(&nodes, list, sizeof list),
                 worker->memory.kind == SPW_MEMORY_PREFER ? " while it has room" : "");
}

const char *spw_place_line(const struct spw_place *place, uint32_t k,
                           char out[SPW_PLACE_LINE_BYTES])
{
    const struct spw_place_worker *worker = &place->worker[k];
    char gpu[2 * SPW_PLACE_TEXT_BYTES], node[SPW_PLACE_TEXT_BYTES] = "node unknown";
    char list[2 * SPW_PLACE_TEXT_BYTES], memory[2 * SPW_PLACE_TEXT_BYTES];
    if (worker->node_known)
        snprintf(node, sizeof node, "node %u (%s)", worker->node,
                 spw_place_source_word(worker->source));
    else if (worker->source == SPW_PLACE_NO_GPU)
        snprintf(node, sizeof node, "no node");
    memory_words(worker, memory);
    spw_set_print(&worker->cpus, list, sizeof list);
    snprintf(out, SPW_PLACE_LINE_BYTES, "worker %u: %s, %s, CPUs %s (%s), %s", k,
             spw_place_gpu_words(worker, gpu), node,
             worker->cpus_why == SPW_PLACE_ANYWHERE ? "any" : list,
             spw_place_cpus_word(worker->cpus_why), memory);
    return out;
}
