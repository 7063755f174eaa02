#ifndef SPW_TOOLS_TOPOLOGY_H
#define SPW_TOOLS_TOPOLOGY_H
/*
 * Where a host's CPUs, memory and GPUs are: loaded with hwloc, and what that doesn't tell of GPUs from
 * the driver's list and sysfs. Nothing else includes hwloc; what comes out is plain values.
 *
 * A topology may be that of another host, for planning and tests. Then nothing of it may be bound to.
 */
#include "shm/base.h"
#include "tools/set.h"

#define SPW_TOPOLOGY_NODES_MAX 128u
#define SPW_TOPOLOGY_GPUS_MAX  32u
#define SPW_TOPOLOGY_UNKNOWN   UINT64_MAX

/** A NUMA node. */
struct spw_topology_node {
    uint32_t number;
    bool normal;              /* memory for everything, not that of a device alone              */
    uint64_t available_bytes; /* free, or page cache; SPW_TOPOLOGY_UNKNOWN                      */
    struct spw_set cpus;      /* its own: CPUs that are near to several nodes are of the first  */
};

/** Who says on which node a GPU is. */
enum spw_topology_source { SPW_TOPOLOGY_NOBODY, SPW_TOPOLOGY_HWLOC, SPW_TOPOLOGY_SYSFS };

struct spw_topology_gpu {
    uint64_t bus; /* SPW_TOPOLOGY_UNKNOWN: only a device file is seen */
    bool has_uuid;
    uint8_t uuid[16];
    enum spw_topology_source source; /* NOBODY: node says nothing */
    uint32_t node;
};

struct spw_topology {
    bool here;                  /* this host: may be bound to                      */
    struct spw_set cpus, nodes; /* that this process may use                       */
    uint32_t node_count, gpu_count;
    bool gpus_listed; /* by the driver: there are no others              */
    struct spw_topology_node node[SPW_TOPOLOGY_NODES_MAX];
    struct spw_topology_gpu gpu[SPW_TOPOLOGY_GPUS_MAX]; /* by PCI address */
};

struct spw_topology_config {
    const char
        *source; /* "" or NULL: this host; "PATH.xml" as lstopo writes it; "synthetic:STRING" */
    const char
        *root; /* in front of /proc, /sys and /dev; NULL: what hwloc doesn't tell is unknown */
};

/** Load it. May take a tenth of a second. 0, or a negative errno with words: -EINVAL hwloc can't make
 * sense of the source. */
int spw_topology_load(const struct spw_topology_config *config, struct spw_topology *out,
                      struct spw_error *err);

/** Its node of that number, or NULL. */
const struct spw_topology_node *spw_topology_node(const struct spw_topology *topology,
                                                  uint32_t number);

#endif
