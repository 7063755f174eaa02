/* See below_start.h. Written: a lock on the directory; the log. */
#include "tools/below_start.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "tier/nvme.h"
#include "tools/below_dir.h"
#include "tools/log.h"

#define OTHERS_NS 2000000000ull /* for workers of before to let go of what is below */

int spw_below_lock(const struct spw_config *config)
{
    struct spw_error err = {0};
    if (config->nvme_dir[0] == '\0')
        return 0;
    int fd = spw_nvme_lock(config->nvme_dir, SPW_NVME_DAEMON, &err);
    if (fd < 0)
        spw_log(fd == -EBUSY ? SPW_LOG_ERROR : SPW_LOG_WARNING, "%s", err.text);
    return fd == -EBUSY ? fd : 0;
}

int spw_below_await_others(const struct spw_config *config)
{
    uint64_t until = spw_monotonic_ns() + OTHERS_NS;
    if (config->nvme_dir[0] == '\0')
        return 0;
    while (spw_nvme_held(config->nvme_dir, true)) {
        if (spw_monotonic_ns() >= until) {
            spw_log(SPW_LOG_ERROR,
                    "%s is in use by another daemon's worker; stop that one, or give each pool a "
                    "directory of its own",
                    config->nvme_dir);
            return -EBUSY;
        }
        usleep(10000);
    }
    return 0;
}

void spw_below_tell_left(const struct spw_config *config)
{
    uint64_t bytes;
    uint32_t others =
        config->nvme_dir[0] ? spw_below_shards(config->nvme_dir, config->workers, &bytes) : 0;
    if (others)
        spw_log(SPW_LOG_WARNING,
                "%u %s in %s: of workers that this pool hasn't, %.1f MB beyond "
                "--nvme-bytes: remove shard-%" PRIu64
                " and up there, or start with as many --workers again",
                others, others == 1 ? "shard" : "shards", config->nvme_dir, (double)bytes / 1e6,
                config->workers);
}
