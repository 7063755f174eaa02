#ifndef SPW_TOOLS_CONFIG_H
#define SPW_TOOLS_CONFIG_H
/*
 * spillwayd's configuration: flags, one file, defaults; checked as a whole before anything is made.
 *
 * All sizes are bytes, all times nanoseconds, all rates bytes a second (0: not limited). Values
 * that are "a worker" count for each worker process; the plan that is printed shows the host total.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/options.h"

#define SPW_CONFIG_NAME_MAX    48
#define SPW_CONFIG_WORKERS_MAX 32
#define SPW_CONFIG_CLIENTS_MAX 127

/** What spillwayd was asked to do. */
enum spw_config_action { SPW_CONFIG_RUN, SPW_CONFIG_CHECK, SPW_CONFIG_HELP, SPW_CONFIG_VERSION };

/** What happens to the pool's memory at a clean stop. */
enum spw_config_on_stop { SPW_ON_STOP_KEEP, SPW_ON_STOP_REMOVE };

/** Whether payload is put on huge pages; always: or the pool doesn't start. */
enum spw_config_huge_pages { SPW_HUGE_PAGES_AUTO, SPW_HUGE_PAGES_ALWAYS, SPW_HUGE_PAGES_NEVER };

/** Which chunk goes first: the least recently used one, or the one that came first. */
enum spw_config_evict { SPW_EVICT_LRU, SPW_EVICT_FIFO };
/** Who moves chunks: the GPU where there is one, or else this host's processor. */
enum spw_config_copier { SPW_CONFIG_COPIER_AUTO, SPW_CONFIG_COPIER_CUDA, SPW_CONFIG_COPIER_HOST };
/** Whether payload is pinned for GPUs; strict: in all workers, or the pool ends. */
enum spw_config_pin { SPW_CONFIG_PIN_RELAXED, SPW_CONFIG_PIN_STRICT, SPW_CONFIG_PIN_NEVER };
/** What a shard's memory on other nodes than wanted means: a warning, or no start. */
enum spw_config_placement { SPW_PLACEMENT_RELAXED, SPW_PLACEMENT_STRICT };
enum spw_config_nvme_write { SPW_NVME_WRITE_THROUGH, SPW_NVME_WRITE_BACK };
enum spw_config_nvme_checksum {
    SPW_NVME_CHECKSUM_DOWN,
    SPW_NVME_CHECKSUM_STORE,
    SPW_NVME_CHECKSUM_OFF
};
enum spw_config_nvme_direct { SPW_NVME_DIRECT_AUTO, SPW_NVME_DIRECT_NEVER };
enum spw_config_nvme_sync { SPW_NVME_SYNC_NONE, SPW_NVME_SYNC_DATA };

struct spw_config {
    enum spw_config_action action;

    char name[SPW_CONFIG_NAME_MAX + 1];
    char shm_dir[256];             /* absolute */
    uint64_t mode;                 /* permission bits of the shared objects */
    char group[64];                /* as given, "" for none */
    int64_t gid;                   /* of group, -1 for none */
    bool allow_world;              /* mode may have bits for everyone */
    uint64_t workers;              /* 1..SPW_CONFIG_WORKERS_MAX */
    char inside[128];              /* workers that are threads of engines: "0-1,3" */
    uint64_t capacity_chunks;      /* resident chunks a worker */
    uint64_t chunk_bytes;          /* payload of a slot, a multiple of 64 */
    uint64_t kv_blocks;            /* host KV blocks a client, for the host copier; 0: none */
    uint64_t on_stop;              /* enum spw_config_on_stop */
    uint64_t huge_pages;           /* enum spw_config_huge_pages */
    uint64_t smallest_chunk_bytes; /* down to here chunks take their own size, 0: chunk_bytes */
    uint64_t evict;                /* enum spw_config_evict */

    uint64_t copier;           /* enum spw_config_copier */
    char cuda_library[256];    /* of the driver, "": wherever the loader finds libcuda.so.1 */
    uint64_t gpu_kernel_below; /* bytes of a piece up to which a kernel gathers, 0: never */
    uint64_t pin;              /* enum spw_config_pin */
    uint64_t pin_limit_ns;     /* for all of a worker's shard */
    uint64_t pin_piece;        /* bytes of one registration at most */
    uint64_t gpu_restarts;     /* of a worker whose GPU fails, before it is given up */

    char gpu[1400];         /* of each worker: UUID, PCI address or ordinal; "": ordinal k     */
    char gpu_node[256];     /* of each worker: a NUMA node, or auto; "": auto                  */
    char worker_cpus[1024]; /* of each worker: CPUs, or auto; "": auto                         */
    char exclude_cpus[256]; /* that no worker runs on, "": none                                */
    uint64_t placement;     /* enum spw_config_placement                                       */
    char topology[256];     /* of another host, for planning; "": this one                     */

    uint64_t store_rate; /* nominal bytes a second a worker, 0: not limited */
    uint64_t load_rate;
    uint64_t queue_chunks; /* stores that may wait in one worker's queue */

    uint64_t max_clients;      /* 2..SPW_CONFIG_CLIENTS_MAX, the last one is kept for tools */
    uint64_t update_records;   /* of one worker's update ring, a power of two */
    uint64_t command_slots;    /* of one client's ring to one worker, a power of two */
    uint64_t completion_slots; /* of one worker's ring to one client, a power of two */

    uint64_t overtake_limit_ns; /* the oldest store passed over for awaited ones */
    uint64_t run_limit_ns;      /* from reserve or begin to its run */
    uint64_t event_limit_ns;    /* for what a run must wait for on its GPU, 0: none */
    uint64_t fence_limit_ns;    /* inside one step, before the client is fenced */
    uint64_t orphan_ns;         /* workers' life without daemon and clients */
    uint64_t drain_limit_ns;    /* for copies that run at a clean stop */
    uint64_t io_quarantine_ns;  /* how long a dead worker's I/O may go on */

    char nvme_dir[256];          /* absolute, "" for no tier below */
    uint64_t nvme_bytes;         /* on disk, everything, all workers together */
    uint64_t nvme_chunks;        /* that a worker can list, 0: nvme_bytes / workers / chunk_bytes */
    uint64_t nvme_write;         /* enum spw_config_nvme_write */
    uint64_t nvme_admit;         /* sightings */
    uint64_t nvme_write_budget;  /* bytes a day a worker, 0: not limited */
    uint64_t nvme_queue;         /* writes that may wait a worker */
    uint64_t nvme_depth;         /* transfers in flight a worker */
    uint64_t nvme_promote_share; /* percent of capacity_chunks */
    uint64_t nvme_promote_hold_ns;
    uint64_t nvme_evict;       /* enum spw_config_evict */
    uint64_t nvme_engine;      /* enum spw_io_choice */
    uint64_t nvme_direct;      /* enum spw_config_nvme_direct */
    uint64_t nvme_sync;        /* enum spw_config_nvme_sync */
    uint64_t nvme_checksum;    /* enum spw_config_nvme_checksum */
    uint64_t nvme_deadline_ns; /* of a transfer */

    bool quiet; /* print errors and warnings only */

    char config_path[256]; /* "" for none */
    bool check;
    bool cold; /* nothing of a daemon before is gone on with */
    bool help;
    bool version;
    struct spw_options options; /* the table behind it, with origins; points into this struct */
};

/**
 * Fill @out_config from the command line and the file that it names. Creates nothing, prints
 * nothing, and doesn't look at nvme_dir: spw_config_look_below() does.
 *
 * @out_config  caller's; must stay where it is as long as its options are printed
 *
 * For SPW_CONFIG_HELP and SPW_CONFIG_VERSION nothing else is checked. Returns 0, or a negative
 * errno with a message in @err that has option, value and remedy: exit with status 2.
 */
int spw_config_parse(int argc, char *const *argv, struct spw_config *out_config, char *err,
                     size_t err_bytes);

/** Can the directory of the tier below be used now, if @config names one? It may be away for a while
 * under a pool that runs. 0, or a negative errno with words like spw_config_parse(). */
int spw_config_look_below(const struct spw_config *config, char *err, size_t err_bytes);

/** Is @dir a directory that this user reads and writes? 0 or a negative errno. */
int spw_config_dir_usable(const char *dir);

/** Print the effective values with their origin, then the plan: what that is in memory. */
void spw_config_print(const struct spw_config *config, FILE *out);

/** Print the usage text of spillwayd. */
void spw_config_help(const struct spw_config *config, FILE *out);

#endif
