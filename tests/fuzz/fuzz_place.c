/*
 * Where workers go, on any host: options and CUDA_VISIBLE_DEVICES in text, then a topology in bytes, as
 * hwloc, sysfs and the driver's list may have told it. What comes out lies within what is there and
 * allowed, or is refused in words; all of it can be printed.
 *
 *   a line of CUDA_VISIBLE_DEVICES; flags in lines of their own; an empty line; bytes
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "tools/config_place.h"
#include "tools/place.h"
#include "tools/place_map.h"

#define FLAGS_MAX 12

/* The next number of @bytes bytes. */
static uint64_t take(struct fuzz_input *in, uint32_t bytes)
{
    uint64_t value = 0;
    fuzz_take(in, &value, bytes);
    return value;
}

/* Numbers that are near to each other, or anything. */
static uint32_t take_node(struct fuzz_input *in)
{
    uint32_t how = (uint32_t)take(in, 1);
    return how < 250 ? how % 8 : (uint32_t)take(in, 4);
}

static void take_topology(struct fuzz_input *in, struct spw_topology *out)
{
    uint32_t flags = (uint32_t)take(in, 1);
    *out = (struct spw_topology){.here = flags & 1, .gpus_listed = flags >> 1 & 1};
    out->cpus.word[flags >> 2 & 15] = take(in, 4);
    out->nodes.word[0] = take(in, 2);
    out->node_count = (uint32_t)take(in, 1) % (SPW_TOPOLOGY_NODES_MAX + 1);
    for (uint32_t i = 0; i < out->node_count; i++) {
        struct spw_topology_node *node = &out->node[i];
        node->number = take_node(in);
        node->normal = take(in, 1) & 1;
        node->available_bytes = take(in, 1) & 1 ? take(in, 8) : SPW_TOPOLOGY_UNKNOWN;
        node->cpus.word[flags >> 2 & 15] = take(in, 4);
    }
    out->gpu_count = (uint32_t)take(in, 1) % (SPW_TOPOLOGY_GPUS_MAX + 1);
    for (uint32_t i = 0; i < out->gpu_count; i++) {
        struct spw_topology_gpu *gpu = &out->gpu[i];
        uint32_t how = (uint32_t)take(in, 1);
        gpu->bus = how & 1 ? SPW_TOPOLOGY_UNKNOWN : take(in, 2) << 3;
        gpu->has_uuid = how >> 1 & 1;
        gpu->source = (enum spw_topology_source)((how >> 2) % 3);
        gpu->node = take_node(in);
        gpu->uuid[15] = (uint8_t)take(in, 1);
    }
}

static bool is_within(const struct spw_set *inner, const struct spw_set *outer)
{
    const struct spw_set rest = spw_set_minus(inner, outer);
    return spw_set_is_empty(&rest);
}

static void check_memory(const struct spw_topology *topology, const struct spw_place_worker *worker)
{
    const struct spw_set nodes = spw_place_memory_nodes(&worker->memory);
    switch (worker->memory.kind) {
    case SPW_MEMORY_ANY:
        fuzz_expect(spw_set_is_empty(&nodes), "no nodes where none are wanted");
        return;
    case SPW_MEMORY_INTERLEAVE:
        fuzz_expect(!spw_set_is_empty(&nodes), "spread over something");
        break;
    default:
        fuzz_expect(worker->node_known && !worker->elsewhere && spw_set_count(&nodes) == 1 &&
                        spw_set_has(&nodes, worker->node),
                    "bound to its node alone");
    }
    fuzz_expect(is_within(&nodes, &topology->nodes), "memory where it is allowed");
}

static void check_worker(const struct spw_topology *topology, const struct spw_config *config,
                         const struct spw_place_worker *worker)
{
    const struct spw_set excluded = spw_config_exclude_cpus(config);
    const struct spw_set wrong = spw_set_and(&worker->cpus, &excluded);
    fuzz_expect(is_within(&worker->cpus, &topology->cpus), "CPUs that are allowed");
    fuzz_expect(worker->cpus_why == SPW_PLACE_CPUS_GIVEN || spw_set_is_empty(&wrong),
                "none that are excluded");
    fuzz_expect((worker->cpus_why == SPW_PLACE_ANYWHERE) == spw_set_is_empty(&worker->cpus) ||
                    spw_set_is_empty(&topology->cpus),
                "bound to some, or not");
    fuzz_expect(!worker->node_known || spw_topology_node(topology, worker->node),
                "a node that there is");
    check_memory(topology, worker);
}

static void check(const struct spw_topology *topology, const struct spw_config *config, int rc,
                  const struct spw_place *place)
{
    char line[SPW_PLACE_LINE_BYTES];
    uint32_t errors = 0;
    fuzz_expect(place->notes <= SPW_PLACE_NOTES_MAX, "notes that there are");
    for (uint32_t i = 0; i < place->notes; i++) {
        errors += place->note[i].severity == SPW_PLACE_ERROR;
        fuzz_expect(place->note[i].words[0] &&
                        (place->note[i].severity == SPW_PLACE_INFO || place->note[i].remedy[0]),
                    "words, and what is to be done");
    }
    fuzz_expect(rc == (errors ? -EINVAL : 0), "refused by an error, and by nothing else");
    for (uint32_t k = 0; k < place->workers; k++) {
        fuzz_expect(spw_place_line(place, k, line)[0] != 0, "a line");
        if (rc == 0)
            check_worker(topology, config, &place->worker[k]);
    }
    json_t *map = spw_place_map_json(place);
    fuzz_expect(json_array_size(map) == place->workers, "a map");
    json_decref(map);
}

/* The text up to the end of its line, cut there; @at goes behind it. */
static char *take_line(char **at, char *end)
{
    char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    *at = stop ? stop + 1 : end;
    if (stop)
        *stop = 0;
    return line;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct spw_topology topology;
    static struct spw_config config;
    static struct spw_place place;
    char *text = malloc(size + 1), *at = text, err[512] = "";
    char *argv[FLAGS_MAX + 1] = {(char *)"spillwayd"};
    int argc = 1;
    fuzz_expect(text != NULL, "memory");
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    char *visible = take_line(&at, text + size);
    while (argc < FLAGS_MAX + 1 && at < text + size) {
        char *flag = take_line(&at, text + size);
        if (flag[0] == '\0')
            break;
        argv[argc++] = flag;
    }
    struct fuzz_input in = {(const uint8_t *)at, (size_t)(text + size - at)};
    if (spw_config_parse(argc, argv, &config, err, sizeof err) == 0 &&
        config.action == SPW_CONFIG_RUN) {
        take_topology(&in, &topology);
        int rc = spw_place_decide(&topology, &config, visible[0] == '!' ? NULL : visible, &place);
        check(&topology, &config, rc, &place);
    }
    free(text);
    return 0;
}
