/* See place.h. The decisions; words for people are in place_words.c. */
#include "tools/place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/gpu_identity.h"
#include "tools/config_place.h"

/* Workers about which there is the same to say. */
struct told {
    struct spw_set gpu_missing, gpu_unseen, node_unknown, node_unfit, no_cpus, elsewhere,
        unfit_named, cut_cpus;
};

struct decision {
    const struct spw_topology *topology;
    const struct spw_config *config;
    struct spw_place *place;
    struct spw_topology_gpu visible[SPW_TOPOLOGY_GPUS_MAX]; /* by ordinal */
    uint32_t visible_count;
    struct spw_set excluded, fit; /* fit: nodes that get shares by themselves */
    struct told told;
};

/* ---- notes -------------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static void note(struct decision *d,
                                                       enum spw_place_severity severity,
                                                       const char *remedy, const char *format, ...)
{
    va_list args;
    if (d->place->notes == SPW_PLACE_NOTES_MAX)
        return;
    struct spw_place_note *note = &d->place->note[d->place->notes++];
    note->severity = severity;
    snprintf(note->remedy, sizeof note->remedy, "%s", remedy);
    va_start(args, format);
    vsnprintf(note->words, sizeof note->words, format, args);
    va_end(args);
}

/* "worker 3", "workers 0-7" */
static const char *workers(const struct spw_set *set, char out[80])
{
    char list[64];
    snprintf(out, 80, "worker%s %s", spw_set_count(set) == 1 ? "" : "s",
             spw_set_print(set, list, sizeof list));
    return out;
}

static const char *print(const struct spw_set *set, char out[SPW_PLACE_TEXT_BYTES])
{
    return spw_set_print(set, out, SPW_PLACE_TEXT_BYTES);
}

/* ---- which GPU ---------------------------------------------------------------------------------- */

static struct spw_gpu_identity identity_of(const struct spw_topology_gpu *gpu, int ordinal)
{
    struct spw_gpu_identity identity = {.bus = gpu->bus, .ordinal = ordinal};
    memcpy(identity.uuid, gpu->uuid, sizeof identity.uuid);
    return identity;
}

/* An entry of CUDA_VISIBLE_DEVICES: an ordinal, or a UUID or its beginning. NULL: something else. */
static const struct spw_topology_gpu *visible_one(const struct spw_topology *topology,
                                                  const char *entry, size_t bytes)
{
    char uuid[SPW_GPU_UUID_TEXT];
    if (bytes > 0 && strspn(entry, "0123456789") >= bytes) {
        unsigned long ordinal = strtoul(entry, NULL, 10);
        return ordinal < topology->gpu_count ? &topology->gpu[ordinal] : NULL;
    }
    for (uint32_t i = 0; i < topology->gpu_count; i++) {
        spw_gpu_uuid_print(topology->gpu[i].uuid, uuid);
        if (topology->gpu[i].has_uuid && bytes > 4 && strncasecmp(uuid, entry, bytes) == 0)
            return &topology->gpu[i];
    }
    return NULL;
}

/* What the driver counts. It stops at the first entry that it doesn't know. */
static void find_visible(struct decision *d, const char *visible)
{
    if (!visible) {
        d->visible_count = d->topology->gpu_count;
        memcpy(d->visible, d->topology->gpu, sizeof d->visible);
        return;
    }
    while (*visible && d->visible_count < SPW_TOPOLOGY_GPUS_MAX) {
        size_t bytes = strcspn(visible, ",");
        const struct spw_topology_gpu *gpu = visible_one(d->topology, visible, bytes);
        if (!gpu)
            return;
        d->visible[d->visible_count++] = *gpu;
        visible += bytes + (visible[bytes] == ',');
    }
}

/* The one that @which names. A GPU that only a device file is seen of is named by its ordinal. */
static const struct spw_topology_gpu *find_gpu(const struct decision *d, const char *which)
{
    for (uint32_t i = 0; i < d->visible_count; i++) {
        const struct spw_gpu_identity identity = identity_of(&d->visible[i], (int)i);
        if (spw_gpu_matches(&identity, which))
            return &d->visible[i];
    }
    return NULL;
}

static void choose_gpu(struct decision *d, uint32_t k, bool wanted)
{
    struct spw_place_worker *worker = &d->place->worker[k];
    spw_config_gpu(d->config, k, worker->which);
    const struct spw_topology_gpu *gpu = wanted ? find_gpu(d, worker->which) : NULL;
    /* auto takes what there is: with fewer GPUs than workers the worker says so itself */
    worker->has_gpu = wanted;
    worker->gpu_found = gpu != NULL;
    if (gpu)
        worker->gpu = *gpu;
    else if (wanted)
        spw_set_add(d->topology->gpus_listed ? &d->told.gpu_missing : &d->told.gpu_unseen, k);
}

/* Two names of one GPU. */
static void check_shared(struct decision *d)
{
    for (uint32_t k = 1; k < d->place->workers; k++)
        for (uint32_t j = 0; j < k; j++) {
            const struct spw_place_worker *a = &d->place->worker[j], *b = &d->place->worker[k];
            if (a->gpu_found && b->gpu_found && a->gpu.bus == b->gpu.bus &&
                a->gpu.bus != SPW_TOPOLOGY_UNKNOWN)
                note(d, SPW_PLACE_ERROR, "name each GPU once", "--gpu: %s and %s are one GPU",
                     a->which, b->which);
        }
}

/* ---- which node --------------------------------------------------------------------------------- */

/* Nodes with CPUs and normal memory. */
static struct spw_set fit_nodes(const struct spw_topology *topology)
{
    struct spw_set fit = {{0}};
    for (uint32_t i = 0; i < topology->node_count; i++)
        if (topology->node[i].normal && !spw_set_is_empty(&topology->node[i].cpus))
            spw_set_add(&fit, topology->node[i].number);
    return fit;
}

static void set_node(struct spw_place_worker *worker, uint32_t source, uint32_t node)
{
    worker->source = source;
    worker->node_known = true;
    worker->node = node;
}

static void choose_node(struct decision *d, uint32_t k)
{
    struct spw_place_worker *worker = &d->place->worker[k];
    const struct spw_topology_gpu *gpu = &worker->gpu;
    uint32_t node;
    char have[SPW_PLACE_TEXT_BYTES];
    worker->source = worker->has_gpu ? SPW_PLACE_UNKNOWN : SPW_PLACE_NO_GPU;
    if (spw_config_gpu_node(d->config, k, &node)) {
        struct spw_set nodes = {{0}};
        for (uint32_t i = 0; i < d->topology->node_count; i++)
            spw_set_add(&nodes, d->topology->node[i].number);
        set_node(worker, SPW_PLACE_CONFIGURED, node);
        if (!spw_set_has(&nodes, node))
            note(d, SPW_PLACE_ERROR, "name one of these, or auto",
                 "--gpu-node: there is no node %u for worker %u, there are %s", node, k,
                 print(&nodes, have));
        else if (!spw_set_has(&d->fit, node))
            spw_set_add(&d->told.unfit_named, k);
    } else if (!worker->has_gpu) {
        return;
    } else if (worker->gpu_found && gpu->source != SPW_TOPOLOGY_NOBODY &&
               spw_set_has(&d->fit, gpu->node)) {
        set_node(worker, gpu->source == SPW_TOPOLOGY_HWLOC ? SPW_PLACE_DETECTED : SPW_PLACE_SYSFS,
                 gpu->node);
    } else if (spw_set_count(&d->fit) == 1) {
        set_node(worker, SPW_PLACE_ONLY, spw_set_next(&d->fit, 0));
    } else if (worker->gpu_found && gpu->source != SPW_TOPOLOGY_NOBODY) {
        spw_set_add(&d->told.node_unfit, k);
    } else {
        spw_set_add(&d->told.node_unknown, k);
    }
}

/* ---- which CPUs --------------------------------------------------------------------------------- */

static void choose_cpus(struct decision *d, uint32_t k)
{
    struct spw_place_worker *worker = &d->place->worker[k];
    struct spw_set given, free = spw_set_minus(&d->topology->cpus, &d->excluded);
    char a[SPW_PLACE_TEXT_BYTES], b[SPW_PLACE_TEXT_BYTES];
    if (spw_config_worker_cpus(d->config, k, &given)) {
        worker->cpus_why = SPW_PLACE_CPUS_GIVEN;
        worker->cpus = spw_set_and(&given, &d->topology->cpus);
        if (spw_set_is_empty(&worker->cpus))
            note(d, SPW_PLACE_ERROR, "name some that are",
                 "--worker-cpus: of %s for worker %u none is allowed here; %s are",
                 print(&given, a), k, print(&d->topology->cpus, b));
        else if (!spw_set_equal(&worker->cpus, &given))
            spw_set_add(&d->told.cut_cpus, k);
        return;
    }
    if (spw_set_is_empty(&free)) {
        worker->cpus_why = SPW_PLACE_CPUS_LEFT;
        return; /* said once, of all */
    }
    const struct spw_topology_node *node =
        worker->node_known ? spw_topology_node(d->topology, worker->node) : NULL;
    if (node) {
        worker->cpus_why = SPW_PLACE_CPUS_OF_NODE;
        worker->cpus = spw_set_and(&node->cpus, &free);
        if (!spw_set_is_empty(&worker->cpus))
            return;
        worker->cpus_why = SPW_PLACE_CPUS_ALLOWED;
        spw_set_add(&d->told.no_cpus, k);
    } else if (spw_set_is_empty(&d->excluded)) {
        worker->cpus_why = SPW_PLACE_ANYWHERE;
        return;
    } else {
        worker->cpus_why = SPW_PLACE_CPUS_LEFT;
    }
    worker->cpus = free;
}

/* ---- whose memory ------------------------------------------------------------------------------- */

static void spread(struct decision *d, struct spw_place_worker *worker)
{
    struct spw_set nodes = spw_set_and(&d->fit, &d->topology->nodes);
    worker->memory.kind = spw_set_is_empty(&nodes) ? SPW_MEMORY_ANY : SPW_MEMORY_INTERLEAVE;
    memcpy(worker->memory.node, nodes.word, sizeof nodes.word);
}

static void choose_memory(struct decision *d, uint32_t k)
{
    struct spw_place_worker *worker = &d->place->worker[k];
    struct spw_set one = {{0}};
    if (!worker->node_known) {
        if (worker->has_gpu)
            spread(d, worker);
    } else if (!spw_set_has(&d->topology->nodes, worker->node)) {
        worker->elsewhere = true;
        spw_set_add(&d->told.elsewhere, k);
        spread(d, worker);
    } else if (d->topology->node_count > 1 || worker->source == SPW_PLACE_CONFIGURED) {
        spw_set_add(&one, worker->node);
        worker->memory.kind = SPW_MEMORY_BIND;
        memcpy(worker->memory.node, one.word, sizeof one.word);
    }
}

/* Bound to a node that is too small the pool would be killed, not refused. */
static void check_room(struct decision *d)
{
    uint64_t shard_bytes = d->config->capacity_chunks * d->config->chunk_bytes;
    for (uint32_t i = 0; i < d->topology->node_count; i++) {
        const struct spw_topology_node *node = &d->topology->node[i];
        struct spw_set bound = {{0}};
        for (uint32_t k = 0; k < d->place->workers; k++)
            if (d->place->worker[k].memory.kind == SPW_MEMORY_BIND &&
                d->place->worker[k].node == node->number)
                spw_set_add(&bound, k);
        uint64_t needed = shard_bytes * spw_set_count(&bound);
        if (node->available_bytes == SPW_TOPOLOGY_UNKNOWN || needed <= node->available_bytes)
            continue;
        for (uint32_t k = spw_set_next(&bound, 0); k < SPW_SET_MAX; k = spw_set_next(&bound, k + 1))
            d->place->worker[k].memory.kind = SPW_MEMORY_PREFER;
        note(d, SPW_PLACE_WARNING,
             "make the pool smaller (--capacity-chunks), or free memory there",
             "node %u has %.1f MiB available, the shards on it need %.1f MiB: the rest will be on "
             "other nodes",
             node->number, (double)node->available_bytes / 0x1p20, (double)needed / 0x1p20);
    }
}

/* ---- all together ------------------------------------------------------------------------------- */

static bool wants_gpus(const struct decision *d)
{
    return d->config->copier == SPW_CONFIG_COPIER_CUDA ||
           (d->config->copier == SPW_CONFIG_COPIER_AUTO &&
            (d->topology->gpu_count > 0 || d->config->gpu[0]));
}

/* Each thing is said once, of all workers that it is about. */
static void tell(struct decision *d)
{
    struct told *told = &d->told;
    struct spw_set spread_over = spw_set_and(&d->fit, &d->topology->nodes);
    char who[80], list[SPW_PLACE_TEXT_BYTES];
    if (!spw_set_is_empty(&told->gpu_missing))
        note(d, SPW_PLACE_WARNING,
             "see spillway check for those that there are; name them by --gpu",
             "the GPU of %s is none of the %u that this host's driver lists",
             workers(&told->gpu_missing, who), d->topology->gpu_count);
    if (!spw_set_is_empty(&told->gpu_unseen))
        note(d, SPW_PLACE_INFO, "",
             "the GPU of %s is not seen here; the driver may know it all the same",
             workers(&told->gpu_unseen, who));
    if (!spw_set_is_empty(&told->node_unknown))
        note(d, SPW_PLACE_WARNING, "name the nodes by --gpu-node",
             "the NUMA node of the GPU of %s is unknown: its memory is spread over nodes %s",
             workers(&told->node_unknown, who), print(&spread_over, list));
    if (!spw_set_is_empty(&told->node_unfit))
        note(d, SPW_PLACE_WARNING, "name a node by --gpu-node",
             "the GPU of %s is said to be on a node without CPUs or normal memory: its memory is "
             "spread over nodes %s",
             workers(&told->node_unfit, who), print(&spread_over, list));
    if (!spw_set_is_empty(&told->unfit_named))
        note(d, SPW_PLACE_WARNING, "name one that has both, if that wasn't meant",
             "--gpu-node of %s names a node without CPUs or normal memory",
             workers(&told->unfit_named, who));
    if (!spw_set_is_empty(&told->no_cpus))
        note(d, SPW_PLACE_INFO, "",
             "%s: none of its node's CPUs may be used; it runs on all that may",
             workers(&told->no_cpus, who));
    if (!spw_set_is_empty(&told->cut_cpus))
        note(d, SPW_PLACE_WARNING, "name CPUs that are allowed",
             "--worker-cpus of %s: some are not allowed here and are left out",
             workers(&told->cut_cpus, who));
    if (!spw_set_is_empty(&told->elsewhere))
        note(d, SPW_PLACE_WARNING, "allow the node's memory (AllowedMemoryNodes=, --cpuset-mems)",
             "%s: the memory of its node may not be used; it is spread over nodes %s",
             workers(&told->elsewhere, who), print(&spread_over, list));
}

static bool has_error(const struct spw_place *place)
{
    for (uint32_t i = 0; i < place->notes; i++)
        if (place->note[i].severity == SPW_PLACE_ERROR)
            return true;
    return false;
}

int spw_place_decide(const struct spw_topology *topology, const struct spw_config *config,
                     const char *visible, struct spw_place *out_place)
{
    struct decision d = {.topology = topology,
                         .config = config,
                         .place = out_place,
                         .excluded = spw_config_exclude_cpus(config),
                         .fit = fit_nodes(topology)};
    struct spw_set free = spw_set_minus(&topology->cpus, &d.excluded);
    *out_place = (struct spw_place){.carried_out = topology->here && config->topology[0] == '\0',
                                    .workers = (uint32_t)config->workers};
    find_visible(&d, visible);
    if (spw_set_is_empty(&free) && !spw_set_is_empty(&d.excluded))
        note(&d, SPW_PLACE_ERROR, "exclude fewer", "--exclude-cpus: no CPU is left");
    for (uint32_t k = 0; k < out_place->workers; k++) {
        choose_gpu(&d, k, wants_gpus(&d));
        choose_node(&d, k);
        choose_cpus(&d, k);
        choose_memory(&d, k);
    }
    check_shared(&d);
    check_room(&d);
    tell(&d);
    return has_error(out_place) ? -EINVAL : 0;
}
