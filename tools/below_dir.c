/* See below_dir.h. */
#include "tools/below_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD   "shard-"
#define SEGMENT "segment-"

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Blocks that the files of a shard have, in bytes; 0 if none of them is for chunks. */
static uint64_t shard_bytes(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    uint64_t bytes = 0;
    bool any = false;
    struct stat st;
    if (!list && fd >= 0)
        close(fd);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode))
            continue;
        bytes += (uint64_t)st.st_blocks * 512;
        any |= begins(entry->d_name, SEGMENT);
    }
    if (list)
        closedir(list);
    return any ? bytes : 0;
}

uint32_t spw_below_shards(const char *dir, uint64_t first, uint64_t *out_bytes)
{
    DIR *list = opendir(dir);
    uint32_t count = 0;
    *out_bytes = 0;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        const char *number = entry->d_name + strlen(SHARD);
        if (!begins(entry->d_name, SHARD) || *number < '0' || *number > '9' ||
            strtoull(number, NULL, 10) < first)
            continue;
        uint64_t bytes = shard_bytes(dirfd(list), entry->d_name);
        *out_bytes += bytes;
        count += bytes != 0;
    }
    if (list)
        closedir(list);
    return count;
}
