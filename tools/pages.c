/* See pages.h. Written: page tables; a worker's counter of what it got. */
#include "tools/pages.h"

#include <inttypes.h>
#include <string.h>

#include "shm/huge.h"
#include "tier/counters.h"
#include "tools/log.h"
#include "tools/placing.h"

static uint64_t whole_huge(uint64_t bytes)
{
    return bytes / SPW_HUGE_BYTES * SPW_HUGE_BYTES;
}

int spw_pages_make(const struct spw_config *config, const struct spw_pool *pool)
{
    uint64_t needed = 0, got = 0;
    int error = 0;
    if (config->huge_pages == SPW_HUGE_PAGES_NEVER)
        return 0;
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        const struct spw_region *region = &pool->region_data[k];
        int rc = spw_huge_collapse(region->header, region->size_bytes);
        error = rc ? rc : error;
        needed += whole_huge(region->size_bytes);
        got += spw_huge_mapped(region->header);
    }
    if (got >= needed)
        return 0;
    if (config->huge_pages == SPW_HUGE_PAGES_AUTO) {
        spw_log(SPW_LOG_WARNING,
                "huge pages: %" PRIu64 " of %" PRIu64
                " bytes obtained (%s); the pool works on normal pages for the rest",
                got, needed, strerror(-error));
        return 0;
    }
    spw_log(SPW_LOG_ERROR,
            "huge pages: needed %" PRIu64 " bytes, available %" PRIu64
            " (%s); free memory, or start with --huge-pages auto",
            needed, got, strerror(-error));
    return -ENOMEM;
}

void spw_pages_use(const struct spw_config *config, const struct spw_pool *pool, uint32_t k)
{
    const struct spw_region *region = &pool->region_data[k];
    if (config->huge_pages != SPW_HUGE_PAGES_NEVER) {
        spw_huge_collapse(region->header, region->size_bytes);
        spw_placing_look(pool, k); /* what was put together may lie elsewhere now */
    }
    spw_store_relaxed(&pool->feed[k]->counter[SPW_WORKER_huge_bytes],
                      spw_huge_mapped(region->header));
}
