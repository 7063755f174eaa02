/*
 * What of a host matters to the tier below: its directory's file system, and who uses it. Reads, and
 * tries direct I/O on a file without a name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tier/nvme.h"
#include "tools/below_dir.h"
#include "tools/host_impl.h"

#define TRIAL_BYTES 4096u

static bool try_direct(const char *dir)
{
    void *block = NULL;
    int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    bool works = fd >= 0 && posix_memalign(&block, TRIAL_BYTES, TRIAL_BYTES) == 0;
    if (works) {
        memset(block, 0, TRIAL_BYTES);
        works = pwrite(fd, block, TRIAL_BYTES, 0) == TRIAL_BYTES &&
                pread(fd, block, TRIAL_BYTES, 0) == TRIAL_BYTES;
    }
    free(block);
    if (fd >= 0)
        close(fd);
    return works;
}

void spw_host_gather_nvme(const struct spw_config *config, struct spw_host *host)
{
    struct statvfs room;
    host->nvme_wanted = config->nvme_dir[0] != '\0';
    if (!host->nvme_wanted)
        return;
    host->nvme_error = -spw_config_dir_usable(config->nvme_dir);
    if (host->nvme_error == 0 && statvfs(config->nvme_dir, &room) < 0)
        host->nvme_error = errno;
    if (host->nvme_error)
        return;
    host->nvme_free = (uint64_t)room.f_bavail * room.f_frsize;
    uint64_t all_bytes;
    spw_below_shards(config->nvme_dir, 0, &all_bytes);
    host->nvme_others =
        spw_below_shards(config->nvme_dir, config->workers, &host->nvme_others_bytes);
    host->nvme_own = all_bytes - host->nvme_others_bytes;
    host->nvme_direct = try_direct(config->nvme_dir);
    host->nvme_held = spw_nvme_held(config->nvme_dir, false);
}
