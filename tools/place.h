#ifndef SPW_TOOLS_PLACE_H
#define SPW_TOOLS_PLACE_H
/*
 * Where each worker runs and where the memory of its shard lies: decided from a topology and from what
 * was asked for, with the reason of each choice. Pure; tools/bind.h carries it out.
 *
 *   GPU     --gpu, by default the worker's number; an ordinal counts those that
 *           CUDA_VISIBLE_DEVICES leaves, in the order of their PCI addresses
 *   node    --gpu-node, else what hwloc or sysfs say of the GPU, else unknown: a value of its own,
 *           never a number
 *   CPUs    --worker-cpus, else those of the node, less --exclude-cpus, within what is allowed; where
 *           that leaves none, all that are allowed
 *   memory  on the node; spread over all that are allowed where none is known or it isn't allowed.
 *           Nodes without CPUs or without normal memory get none unless they are named
 */
#include "shm/region.h"
#include "tools/config.h"
#include "tools/topology.h"

/** Why a worker's node is what it is. */
enum spw_place_source {
    SPW_PLACE_NO_GPU, /* nothing is known, nothing is asked for */
    SPW_PLACE_CONFIGURED,
    SPW_PLACE_DETECTED, /* by hwloc                               */
    SPW_PLACE_SYSFS,
    SPW_PLACE_ONLY, /* there is but this one                  */
    SPW_PLACE_UNKNOWN
};

enum spw_place_cpus {
    SPW_PLACE_ANYWHERE, /* not bound                               */
    SPW_PLACE_CPUS_GIVEN,
    SPW_PLACE_CPUS_OF_NODE,
    SPW_PLACE_CPUS_ALLOWED, /* the node has none that is allowed       */
    SPW_PLACE_CPUS_LEFT     /* no node is known: all but the excluded  */
};

/** A worker's place. */
struct spw_place_worker {
    bool has_gpu; /* it is to have one, whether it was found or not            */
    bool gpu_found;
    struct spw_topology_gpu gpu; /* where found                                            */
    char which[48];              /* as the driver is asked for it                             */
    uint32_t source;             /* enum spw_place_source                                     */
    bool node_known;
    uint32_t node;            /* where known                                               */
    uint32_t cpus_why;        /* enum spw_place_cpus                                       */
    struct spw_set cpus;      /* where bound                                               */
    bool elsewhere;           /* its node's memory isn't allowed: it is on others          */
    struct spw_memory memory; /* of its shard                                              */
};

enum spw_place_severity { SPW_PLACE_INFO, SPW_PLACE_WARNING, SPW_PLACE_ERROR };

#define SPW_PLACE_NOTES_MAX 16u

struct spw_place_note {
    enum spw_place_severity severity;
    char words[320];
    char remedy[160]; /* "" where nothing is to be done */
};

struct spw_place {
    bool carried_out; /* false: of another host, for planning */
    uint32_t workers;
    struct spw_place_worker worker[SPW_CONFIG_WORKERS_MAX];
    uint32_t notes; /* each thing once, however many workers it is about */
    struct spw_place_note note[SPW_PLACE_NOTES_MAX];
    struct spw_set far; /* workers whose pages were seen elsewhere, and that was said (placing.h) */
};

/**
 * Decide.
 * @visible  CUDA_VISIBLE_DEVICES, NULL if it isn't set
 *
 * 0; -EINVAL: what is asked for can't be on such a host; the note that is an ERROR says why.
 */
int spw_place_decide(const struct spw_topology *topology, const struct spw_config *config,
                     const char *visible, struct spw_place *out_place);

#define SPW_PLACE_TEXT_BYTES 64u
#define SPW_PLACE_LINE_BYTES 640u

/** "detected", "configured", ... of enum spw_place_source. */
const char *spw_place_source_word(uint32_t source);
/** "node", "given", ... of enum spw_place_cpus. */
const char *spw_place_cpus_word(uint32_t cpus_why);
/** "any", "bind", "prefer", "interleave". */
const char *spw_place_memory_word(uint32_t kind);
/** The nodes of @memory as a set. */
struct spw_set spw_place_memory_nodes(const struct spw_memory *memory);
/** "GPU-... at 0000:3b:00.0", what was asked for where it wasn't found, "no GPU"; returns @out. */
const char *spw_place_gpu_words(const struct spw_place_worker *worker,
                                char out[2 * SPW_PLACE_TEXT_BYTES]);
/** One line: GPU, node, CPUs, memory, and why; returns @out. */
const char *spw_place_line(const struct spw_place *place, uint32_t k,
                           char out[SPW_PLACE_LINE_BYTES]);

#endif
