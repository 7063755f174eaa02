/* See slow_disk.h. */
#include "tests/process/slow_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define HIERARCHY "/sys/fs/cgroup/blkio"
#define THROTTLE  "blkio.throttle.read_bps_device"
#define RATE_PATH 192

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

/* On the disk, not in its cache alone; beside the test's own files, which are no tmpfs. */
static int make_file(struct slow_disk *disk, uint64_t bytes, uint8_t byte)
{
    static uint8_t block[65536];
    snprintf(disk->file, sizeof disk->file, "slow_disk.%d", getpid());
    int fd = open(disk->file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    memset(block, byte, sizeof block);
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < bytes; at += sizeof block)
        rc = write(fd, block, sizeof block) == (ssize_t)sizeof block ? 0 : -EIO;
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

static int make_group(struct slow_disk *disk)
{
    const char *hierarchy = HIERARCHY;
    if (access(HIERARCHY "/cgroup.procs", F_OK) < 0) {
        snprintf(disk->mounted, sizeof disk->mounted, "/tmp/blkio.%d", getpid());
        hierarchy = disk->mounted;
        if (mkdir(hierarchy, 0700) < 0 || mount("none", hierarchy, "cgroup", 0, "blkio") < 0)
            return -errno;
    }
    snprintf(disk->group, sizeof disk->group, "%s/spillway.%d", hierarchy, getpid());
    return mkdir(disk->group, 0700) < 0 ? -errno : 0;
}

static int set_rate(const struct slow_disk *disk, uint64_t bytes_per_s)
{
    char path[RATE_PATH], rate[64];
    struct stat st;
    if (stat(disk->file, &st) < 0)
        return -errno;
    snprintf(path, sizeof path, "%s/" THROTTLE, disk->group);
    snprintf(rate, sizeof rate, "%u:%u %llu", major(st.st_dev), minor(st.st_dev),
             (unsigned long long)bytes_per_s);
    return write_text(path, rate);
}

bool slow_disk_open(struct slow_disk *disk, uint64_t bytes, uint8_t byte, uint64_t bytes_per_s,
                    char *out_why, size_t why_bytes)
{
    const char *what = "a file on the disk";
    *disk = (struct slow_disk){0};
    int rc = make_file(disk, bytes, byte);
    if (rc == 0) {
        what = "a cgroup of its own below blkio (needs root and cgroup v1)";
        rc = make_group(disk);
    }
    if (rc == 0) {
        what = "a read rate on the disk of the build folder (needs a block device)";
        rc = set_rate(disk, bytes_per_s);
    }
    if (rc < 0) {
        snprintf(out_why, why_bytes, "there is not %s: %s", what, strerror(-rc));
        slow_disk_close(disk);
    }
    return rc == 0;
}

int slow_disk_enter(const struct slow_disk *disk)
{
    char path[RATE_PATH];
    snprintf(path, sizeof path, "%s/cgroup.procs", disk->group);
    return write_text(path, "0");
}

void slow_disk_close(struct slow_disk *disk)
{
    if (disk->group[0])
        rmdir(disk->group);
    if (disk->mounted[0]) {
        umount(disk->mounted);
        rmdir(disk->mounted);
    }
    if (disk->file[0])
        unlink(disk->file);
}
