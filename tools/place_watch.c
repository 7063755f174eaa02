/* See place_watch.h. Written: the log. */
#include "tools/place_watch.h"

#include <errno.h>

#include "tier/gpu_identity.h"
#include "tools/log.h"
#include "tools/placing.h"

/* Relaxed, here and below: for display; whoever says that a worker is up has read behind [GR-1]. */
static void tell_unbound(struct spw_place_watch *watch, uint32_t k,
                         const struct spw_feed_head *feed)
{
    if (watch->told_unbound || spw_load_relaxed(&feed->gpu.cpu_bind) != SPW_BIND_DENIED)
        return;
    watch->told_unbound = true;
    spw_log(SPW_LOG_WARNING,
            "placement: worker %u can't be bound to its CPUs: a seccomp profile denies "
            "sched_setaffinity, or they are no longer there; it runs anywhere",
            k);
}

/* The driver may count otherwise than this host's lists: fewer GPUs in a container, another order. */
static void tell_moved(struct spw_place_watch *watch, const struct spw_place *place, uint32_t k,
                       const struct spw_feed_head *feed)
{
    const struct spw_place_worker *worker = &place->worker[k];
    char placed[SPW_GPU_BUS_TEXT], opened[SPW_GPU_BUS_TEXT];
    uint64_t bus = spw_load_relaxed(&feed->gpu.bus);
    if (!place->carried_out || !worker->gpu_found || spw_set_has(&watch->told_moved, k))
        return;
    if (spw_load_relaxed(&feed->gpu.kind) != SPW_COPIER_CUDA || bus == worker->gpu.bus ||
        bus == SPW_BUS_UNKNOWN || worker->gpu.bus == SPW_TOPOLOGY_UNKNOWN)
        return;
    spw_set_add(&watch->told_moved, k);
    spw_gpu_bus_print(worker->gpu.bus, placed);
    spw_gpu_bus_print(bus, opened);
    spw_log(SPW_LOG_WARNING,
            "placement: worker %u copies by the GPU at %s, but its place was chosen for the one at "
            "%s; name GPUs by UUID or PCI address (--gpu)",
            k, opened, placed);
}

void spw_place_watch_up(struct spw_place_watch *watch, const struct spw_place *place, uint32_t k,
                        const struct spw_feed_head *feed)
{
    tell_unbound(watch, k, feed);
    tell_moved(watch, place, k, feed);
}

int spw_place_watch_look(struct spw_place_watch *watch, const struct spw_config *config,
                         const struct spw_place *place, uint32_t k,
                         const struct spw_feed_head *feed)
{
    bool strict = config->placement == SPW_PLACEMENT_STRICT;
    /* [PN-4] acquire: what was seen of pages before the state that says they are pinned */
    bool early = spw_load_acquire(&feed->gpu.pin_state) == SPW_PIN_RUNNING;
    uint64_t near = spw_load_relaxed(&feed->gpu.near_permille);
    if (early || spw_load_relaxed(&feed->gpu.memory_bind) != SPW_BIND_DONE || near > 1000 ||
        near >= SPW_PLACING_NEAR_PERMILLE || spw_set_has(&place->far, k) ||
        spw_set_has(&watch->told_far, k))
        return 0;
    spw_set_add(&watch->told_far, k);
    spw_log(strict ? SPW_LOG_ERROR : SPW_LOG_WARNING,
            "placement: %.1f %% of sampled pages of worker %u lie on its node %u now that it has "
            "touched them",
            (double)near / 10, k, place->worker[k].node);
    return strict ? -EREMOTE : 0;
}
