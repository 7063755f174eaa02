/*
 * What of a host matters to the tier below: its directory's file system, and who uses it. Reads, and
 * tries direct I/O on a file without a name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tier/nvme.h"
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

/* Blocks that the files of a shard have, in bytes. */
static uint64_t shard_bytes(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    uint64_t bytes = 0;
    struct stat st;
    if (!list && fd >= 0)
        close(fd);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    if (list)
        closedir(list);
    return bytes;
}

static uint64_t own_bytes(const char *dir)
{
    DIR *list = opendir(dir);
    uint64_t bytes = 0;
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strncmp(entry->d_name, "shard-", 6) == 0)
            bytes += shard_bytes(dirfd(list), entry->d_name);
    if (list)
        closedir(list);
    return bytes;
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
    host->nvme_own = own_bytes(config->nvme_dir);
    host->nvme_direct = try_direct(config->nvme_dir);
    host->nvme_held = spw_nvme_held(config->nvme_dir, false);
}
