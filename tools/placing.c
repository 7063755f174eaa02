/* See placing.h. */
#include "tools/placing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/log.h"

int spw_placing_decide(const struct spw_config *config, struct spw_place *out_place,
                       struct spw_error *err)
{
    struct spw_topology_config source = {.source = config->topology,
                                         .root = config->topology[0] ? NULL : ""};
    struct spw_topology *topology = malloc(sizeof *topology);
    int rc = topology ? spw_topology_load(&source, topology, err)
                      : spw_fail(err, -ENOMEM, "placement: out of memory");
    if (rc == 0)
        rc = spw_place_decide(topology, config,
                              topology->here ? getenv("CUDA_VISIBLE_DEVICES") : NULL, out_place);
    free(topology);
    for (uint32_t i = 0; rc == -EINVAL && i < out_place->notes; i++)
        if (out_place->note[i].severity == SPW_PLACE_ERROR)
            return spw_fail(err, rc, "%s; %s", out_place->note[i].words, out_place->note[i].remedy);
    return rc;
}

void spw_placing_apply(const struct spw_place *place, struct spw_pool_config *pool_config)
{
    for (uint32_t k = 0; place->carried_out && k < place->workers; k++)
        pool_config->shard_memory[k] = place->worker[k].memory;
}

static bool is_anything(const struct spw_place *place)
{
    for (uint32_t k = 0; k < place->workers; k++)
        if (place->worker[k].source != SPW_PLACE_NO_GPU ||
            place->worker[k].cpus_why != SPW_PLACE_ANYWHERE)
            return true;
    return false;
}

void spw_placing_print(const struct spw_place *place, FILE *out)
{
    char line[SPW_PLACE_LINE_BYTES];
    for (uint32_t k = 0; is_anything(place) && k < place->workers; k++)
        fprintf(out, "; place: %s\n", spw_place_line(place, k, line));
}

void spw_placing_tell(const struct spw_place *place)
{
    if (!place->carried_out)
        spw_log(SPW_LOG_WARNING, "--topology is that of another host, for planning: nothing is "
                                 "placed");
    for (uint32_t i = 0; is_anything(place) && i < place->notes; i++) {
        const struct spw_place_note *note = &place->note[i];
        if (note->severity == SPW_PLACE_INFO)
            spw_log(SPW_LOG_INFO, "placement: %s", note->words);
        else
            spw_log(SPW_LOG_WARNING, "placement: %s; %s", note->words, note->remedy);
    }
}

/* ---- was it done? ------------------------------------------------------------------------------- */

/* Nodes of a shard that can be asked for page by page. */
static bool is_checked(const struct spw_place_worker *worker)
{
    return worker->memory.kind == SPW_MEMORY_BIND || worker->memory.kind == SPW_MEMORY_PREFER;
}

/* The first worker whose memory couldn't be placed, with the errno; SPW_WORKERS_MAX. */
static uint32_t refused(const struct spw_place *place, const struct spw_pool *pool, int *out_rc)
{
    for (uint32_t k = 0; k < place->workers; k++) {
        *out_rc = pool->region_data[k].memory_rc ? pool->region_data[k].memory_rc
                                                 : pool->region_feed[k].memory_rc;
        if (*out_rc)
            return k;
    }
    return SPW_WORKERS_MAX;
}

static int check_pages(struct spw_place *place, enum spw_log_severity level,
                       const struct spw_pool *pool, spw_near_where *where, void *ctx)
{
    int result = 0;
    for (uint32_t k = 0; k < place->workers; k++) {
        const struct spw_place_worker *worker = &place->worker[k];
        const struct spw_region *region = &pool->region_data[k];
        struct spw_set nodes = spw_place_memory_nodes(&worker->memory);
        struct spw_near_sample sample;
        if (!is_checked(worker))
            continue;
        int rc = spw_near_look(region->header, region->size_bytes, nodes.word, where, ctx, &sample);
        if (rc) {
            spw_log(level, "placement: where memory of worker %u lies can't be seen (%s): %s", k,
                    strerror(-rc), spw_bind_missing(rc));
            return rc;
        }
        if (spw_near_permille(&sample) >= SPW_PLACING_NEAR_PERMILLE)
            continue;
        spw_set_add(&place->far, k);
        spw_log(level, "placement: %.1f %% of sampled pages of worker %u lie on its node %u%s",
                (double)spw_near_permille(&sample) / 10, k, worker->node,
                pool->warm ? "; they are those of a daemon before: --cold places them anew" : "");
        result = -EREMOTE;
    }
    return result;
}

int spw_placing_check(struct spw_place *place, const struct spw_config *config,
                      const struct spw_pool *pool, spw_near_where *where, void *ctx)
{
    bool strict = config->placement == SPW_PLACEMENT_STRICT;
    enum spw_log_severity level = strict ? SPW_LOG_ERROR : SPW_LOG_WARNING;
    int rc = 0;
    if (!place->carried_out)
        return 0;
    uint32_t k = refused(place, pool, &rc);
    if (k < SPW_WORKERS_MAX)
        spw_log(level,
                "placement: memory can't be put on the nodes chosen (mbind of worker %u: %s): %s%s",
                k, strerror(-rc), spw_bind_missing(rc),
                strict ? "; or take --placement relaxed" : "; it lies where it comes");
    else
        rc = check_pages(place, level, pool, where, ctx);
    return strict ? rc : 0;
}

/* ---- the workers' ------------------------------------------------------------------------------- */

int spw_placing_open(const struct spw_place *place)
{
    int fd = memfd_create("spillwayd-place", 0); /* stays open in workers, under this number */
    size_t bytes = sizeof place->worker[0] * place->workers;
    if (fd >= 0 && place->carried_out && write(fd, place->worker, bytes) != (ssize_t)bytes) {
        close(fd);
        return -1;
    }
    return fd;
}

bool spw_placing_read(int fd, uint32_t k, struct spw_place_worker *out_place)
{
    struct spw_place_worker place;
    if (pread(fd, &place, sizeof place, (off_t)(k * sizeof place)) != (ssize_t)sizeof place)
        return false;
    *out_place = place;
    return true;
}

static enum spw_bind_state cpu_state(const struct spw_place_worker *place)
{
    if (place->cpus_why == SPW_PLACE_ANYWHERE)
        return SPW_BIND_NONE;
    int rc = spw_bind_cpus(&place->cpus);
    if (rc)
        return SPW_BIND_DENIED;
    return place->cpus_why == SPW_PLACE_CPUS_ALLOWED ? SPW_BIND_ELSEWHERE : SPW_BIND_DONE;
}

/* The daemon's call placed it; what the object itself says of that is the same for everybody. */
static enum spw_bind_state memory_state(const struct spw_place_worker *place,
                                        const struct spw_region *region)
{
    if (place->memory.kind == SPW_MEMORY_ANY)
        return SPW_BIND_NONE;
    /* again, for what was taken over and for pages that come later */
    if (spw_region_place(region->header, region->size_bytes, &place->memory))
        return SPW_BIND_DENIED;
    if (place->elsewhere)
        return SPW_BIND_ELSEWHERE;
    return place->memory.kind == SPW_MEMORY_INTERLEAVE ? SPW_BIND_INTERLEAVED : SPW_BIND_DONE;
}

void spw_placing_look(const struct spw_pool *pool, uint32_t k)
{
    struct spw_gpu_record *record = &pool->feed[k]->gpu;
    const struct spw_region *region = &pool->region_data[k];
    uint64_t node = spw_load_relaxed(&record->memory_node), near = SPW_NEAR_UNKNOWN;
    struct spw_set nodes = {{0}};
    struct spw_near_sample sample;
    spw_set_add(&nodes, (uint32_t)node - 1);
    if (node && spw_near_look(region->header, region->size_bytes, nodes.word, spw_near_where_kernel,
                              NULL, &sample) == 0)
        near = spw_near_permille(&sample);
    spw_store_relaxed(&record->near_permille, near); /* for display */
}

void spw_placing_take(const struct spw_place_worker *place, struct spw_pool *pool, uint32_t k)
{
    static const struct spw_place_worker nowhere = {.cpus_why = SPW_PLACE_ANYWHERE};
    struct spw_gpu_record *record = &pool->feed[k]->gpu;
    const struct spw_region *region = &pool->region_data[k];
    if (!place)
        place = &nowhere;
    bool own = place->node_known && !place->elsewhere;
    enum spw_bind_state cpus = cpu_state(place);
    /* relaxed: for display; the record's kind is stored behind it */
    spw_store_relaxed(&record->cpu_bind, cpus);
    spw_store_relaxed(&record->cpus, spw_set_count(&place->cpus));
    spw_store_relaxed(&record->node, place->node_known ? 1 + (uint64_t)place->node : 0);
    spw_store_relaxed(&record->memory_node, own ? 1 + (uint64_t)place->node : 0);
    spw_store_relaxed(&record->memory_bind, memory_state(place, region));
    spw_placing_look(pool, k);
}
