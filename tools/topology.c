/* See topology.h. The one file that names hwloc's types. */
#include "tools/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tier/gpu_identity.h"
#include "tools/host_impl.h"

#define SYNTHETIC "synthetic:"
#define NODES_DIR "/sys/devices/system/node"

/* ---- hwloc ------------------------------------------------------------------------------------ */

static struct spw_set set_of(hwloc_const_bitmap_t bitmap)
{
    struct spw_set set = {{0}};
    for (int n = bitmap ? hwloc_bitmap_first(bitmap) : -1; n >= 0 && n < (int)SPW_SET_MAX;
         n = hwloc_bitmap_next(bitmap, n))
        spw_set_add(&set, (uint32_t)n);
    return set;
}

static bool is_synthetic(const char *source)
{
    return source && strncmp(source, SYNTHETIC, strlen(SYNTHETIC)) == 0;
}

static int set_source(hwloc_topology_t topology, const char *source)
{
    if (source[0] == '\0')
        return 0;
    return is_synthetic(source) ? hwloc_topology_set_synthetic(topology, source + strlen(SYNTHETIC))
                                : hwloc_topology_set_xml(topology, source);
}

/* With devices, which are left out by default, and with what this process may not use. */
static int open_topology(const char *source, hwloc_topology_t *out, struct spw_error *err)
{
    hwloc_topology_t topology = NULL;
    if (source[0] && !is_synthetic(source) && access(source, R_OK))
        return spw_fail(err, -EINVAL,
                        "topology \"%.200s\": %s; give a file of lstopo, or "
                        "synthetic:STRING",
                        source, strerror(errno));
    if (hwloc_topology_init(&topology))
        return spw_fail(err, -ENOMEM, "topology: out of memory");
    if (set_source(topology, source) ||
        hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) ||
        hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
        hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return spw_fail(err, -EINVAL, "topology \"%.200s\": hwloc can't make sense of it%s",
                        source[0] ? source : "of this host",
                        source[0] ? "; give a file of lstopo, or synthetic:STRING" : "");
    }
    *out = topology;
    return 0;
}

static void take_nodes(hwloc_topology_t topology, bool synthetic, struct spw_topology *out)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) &&
           out->node_count < SPW_TOPOLOGY_NODES_MAX) {
        struct spw_topology_node *node = &out->node[out->node_count++];
        node->number = object->os_index;
        /* hwloc gives a node of a synthetic one no memory where its string doesn't say */
        node->normal = synthetic || object->attr->numanode.local_memory > 0;
        node->available_bytes = SPW_TOPOLOGY_UNKNOWN;
        node->cpus = set_of(object->cpuset);
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t left = ((const struct spw_topology_node *)a)->number;
    uint32_t right = ((const struct spw_topology_node *)b)->number;
    return left < right ? -1 : left > right;
}

/* hwloc counts CPUs to a node without CPUs that are near to it: they are those of another one. */
static void give_cpus_once(struct spw_topology *out)
{
    struct spw_set taken = {{0}};
    for (uint32_t i = 0; i < out->node_count; i++) {
        out->node[i].cpus = spw_set_minus(&out->node[i].cpus, &taken);
        for (uint32_t w = 0; w < SPW_SET_WORDS; w++)
            taken.word[w] |= out->node[i].cpus.word[w];
    }
}

/* The one node with CPUs near @object, if there is exactly one. */
static bool node_near(const struct spw_topology *topology, hwloc_obj_t object, uint32_t *out)
{
    struct spw_set near = set_of(object->nodeset);
    uint32_t count = 0, last = 0;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        const struct spw_topology_node *node = &topology->node[i];
        if (!spw_set_has(&near, node->number) || spw_set_is_empty(&node->cpus))
            continue;
        last = node->number;
        count++;
    }
    if (count == 1)
        *out = last;
    return count == 1;
}

/* ---- GPUs ------------------------------------------------------------------------------------- */

static struct spw_topology_gpu *gpu_at(struct spw_topology *topology, uint64_t bus)
{
    for (uint32_t i = 0; i < topology->gpu_count; i++)
        if (topology->gpu[i].bus == bus && bus != SPW_TOPOLOGY_UNKNOWN)
            return &topology->gpu[i];
    return NULL;
}

static struct spw_topology_gpu *add_gpu(struct spw_topology *topology, uint64_t bus)
{
    if (topology->gpu_count == SPW_TOPOLOGY_GPUS_MAX)
        return NULL;
    struct spw_topology_gpu *gpu = &topology->gpu[topology->gpu_count++];
    *gpu = (struct spw_topology_gpu){.bus = bus};
    return gpu;
}

static uint64_t bus_of(const struct hwloc_pcidev_attr_s *device)
{
    return (uint64_t)device->domain << 16 | (uint64_t)device->bus << 8 |
           (uint64_t)device->dev << 3 | device->func;
}

/* What the driver lists is all there is; without its list it is what looks like a GPU. */
static void take_gpus(hwloc_topology_t topology, bool listed, struct spw_topology *out)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_pcidev(topology, object))) {
        const struct hwloc_pcidev_attr_s *device = &object->attr->pcidev;
        uint64_t bus = bus_of(device);
        struct spw_topology_gpu *gpu = gpu_at(out, bus);
        if (!gpu && !listed && spw_host_is_gpu(device->vendor_id, device->class_id))
            gpu = add_gpu(out, bus);
        if (gpu && node_near(out, hwloc_get_non_io_ancestor_obj(topology, object), &gpu->node))
            gpu->source = SPW_TOPOLOGY_HWLOC;
    }
}

static void take_host_gpus(const struct spw_host *host, struct spw_topology *out)
{
    for (uint32_t i = 0; i < host->gpus; i++) {
        uint64_t bus = SPW_TOPOLOGY_UNKNOWN;
        spw_gpu_bus_parse(host->gpu[i].bus_id, &bus);
        struct spw_topology_gpu *gpu = add_gpu(out, bus);
        if (!gpu)
            return;
        gpu->has_uuid = spw_gpu_uuid_parse(host->gpu[i].uuid, gpu->uuid);
        if (host->gpu[i].node >= 0) {
            gpu->source = SPW_TOPOLOGY_SYSFS;
            gpu->node = (uint32_t)host->gpu[i].node;
        }
    }
}

static int by_bus(const void *a, const void *b)
{
    uint64_t left = ((const struct spw_topology_gpu *)a)->bus;
    uint64_t right = ((const struct spw_topology_gpu *)b)->bus;
    return left < right ? -1 : left > right;
}

/* ---- what sysfs knows better -------------------------------------------------------------------- */

static bool read_set(const char *root, const char *path, struct spw_set *out)
{
    char line[512];
    return spw_host_read_line(root, path, line, sizeof line) &&
           spw_set_parse(line, strlen(line), out);
}

/* "Node 0 MemFree:   123 kB" */
static uint64_t kib_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static uint64_t available_bytes(const char *root, uint32_t number)
{
    char path[512], line[128];
    uint64_t kib = 0;
    snprintf(path, sizeof path, "%s" NODES_DIR "/node%u/meminfo", root, number);
    FILE *file = fopen(path, "re");
    if (!file)
        return SPW_TOPOLOGY_UNKNOWN;
    while (fgets(line, sizeof line, file))
        kib += kib_of(line, " MemFree:") + kib_of(line, " Active(file):") +
               kib_of(line, " Inactive(file):");
    fclose(file);
    return kib * 1024;
}

/* Nodes of a device's memory look like others to hwloc. */
static void ask_sysfs(const char *root, struct spw_topology *out)
{
    struct spw_set with_cpus, normal;
    bool knows_cpus = read_set(root, NODES_DIR "/has_cpu", &with_cpus);
    bool knows_normal = read_set(root, NODES_DIR "/has_normal_memory", &normal);
    for (uint32_t i = 0; i < out->node_count; i++) {
        struct spw_topology_node *node = &out->node[i];
        if (knows_cpus && !spw_set_has(&with_cpus, node->number))
            node->cpus = (struct spw_set){{0}};
        if (knows_normal)
            node->normal &= spw_set_has(&normal, node->number);
        node->available_bytes = available_bytes(root, node->number);
    }
}

/* What the process inherited (taskset, a job's cpuset) is narrower than what the host allows. */
static void narrow(const char *root, struct spw_topology *out)
{
    char list[256];
    struct spw_set nodes;
    spw_host_read_key(root ? root : "", "/proc/self/status", "Mems_allowed_list", list,
                      sizeof list);
    if (list[0] && spw_set_parse(list, strlen(list), &nodes))
        out->nodes = spw_set_and(&out->nodes, &nodes);
    cpu_set_t *mask = CPU_ALLOC(SPW_SET_MAX);
    size_t bytes = CPU_ALLOC_SIZE(SPW_SET_MAX);
    struct spw_set own = {{0}};
    if (mask && sched_getaffinity(0, bytes, mask) == 0) {
        for (uint32_t n = 0; n < SPW_SET_MAX; n++)
            if (CPU_ISSET_S(n, bytes, mask))
                spw_set_add(&own, n);
        out->cpus = spw_set_and(&out->cpus, &own);
    }
    CPU_FREE(mask);
}

/* ---- all together ------------------------------------------------------------------------------- */

int spw_topology_load(const struct spw_topology_config *config, struct spw_topology *out,
                      struct spw_error *err)
{
    hwloc_topology_t topology = NULL;
    struct spw_host *host = calloc(1, sizeof *host);
    if (!host)
        return spw_fail(err, -ENOMEM, "topology: out of memory");
    int rc = open_topology(config->source ? config->source : "", &topology, err);
    if (rc)
        goto out;
    *out = (struct spw_topology){.here = hwloc_topology_is_thissystem(topology),
                                 .cpus = set_of(hwloc_topology_get_allowed_cpuset(topology)),
                                 .nodes = set_of(hwloc_topology_get_allowed_nodeset(topology))};
    take_nodes(topology, is_synthetic(config->source), out);
    qsort(out->node, out->node_count, sizeof out->node[0], by_number);
    if (config->root)
        ask_sysfs(config->root, out);
    give_cpus_once(out);
    if (out->here)
        narrow(config->root, out);
    if (config->root)
        spw_host_gather_gpus(config->root, host);
    out->gpus_listed = host->gpus_listed;
    take_host_gpus(host, out);
    take_gpus(topology, host->gpus_listed, out);
    qsort(out->gpu, out->gpu_count, sizeof out->gpu[0], by_bus);
    hwloc_topology_destroy(topology);
out:
    free(host);
    return rc;
}

const struct spw_topology_node *spw_topology_node(const struct spw_topology *topology,
                                                  uint32_t number)
{
    for (uint32_t i = 0; i < topology->node_count; i++)
        if (topology->node[i].number == number)
            return &topology->node[i];
    return NULL;
}
