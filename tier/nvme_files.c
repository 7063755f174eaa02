/* See nvme_files.h. */
#include "tier/nvme_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIAL_NAME  "trial"
#define SPACES_NAME "spaces"
#define BUSY_NAME   "busy"
#define OPEN_FLAGS  (O_RDWR | O_CLOEXEC | O_NOFOLLOW)

void spw_nvme_segment_name(uint32_t number, char out[32])
{
    snprintf(out, 32, "segment-%06u", number);
}

/* Words for a failed call; returns -errno. */
static int say(char text[200], const char *call, const char *dir, const char *name)
{
    int rc = -errno;
    snprintf(text, 200, "%s %.100s/%.40s: %s", call, dir, name, strerror(-rc));
    return rc;
}

/* ---- directories ----------------------------------------------------------------------------- */

static void shard_name(uint32_t shard, char out[32])
{
    snprintf(out, 32, "shard-%u", shard);
}

static int open_shard_dir(struct spw_nvme_mount *mount)
{
    char name[32];
    shard_name(mount->shard, name);
    int dir = open(mount->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return say(mount->text, "open", mount->dir, "");
    int rc = spw_nvme_lock_keep(dir, mount->dir, mount->shard, &mount->lock_fd, mount->text);
    if (rc == 0 && mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        rc = say(mount->text, "mkdir", mount->dir, name);
    if (rc == 0) {
        mount->shard_fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (mount->shard_fd < 0)
            rc = say(mount->text, "open", mount->dir, name);
    }
    close(dir);
    return rc;
}

/* ---- who wrote here last --------------------------------------------------------------------- */

static void read_boot_id(char out[64])
{
    memset(out, 0, 64);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t got = read(fd, out, 63);
    if (got < 36)
        memset(out, 0, 64);
    close(fd);
}

/* A mark of this boot: its writer died, or never ended cleanly. Of another boot: nothing of it can
 * still be under way. */
static int mark_busy(struct spw_nvme_mount *mount)
{
    char now[64], then[64] = {0};
    read_boot_id(now);
    int fd = openat(mount->shard_fd, BUSY_NAME, OPEN_FLAGS | O_CREAT, 0600);
    if (fd < 0)
        return say(mount->text, "open", mount->dir, BUSY_NAME);
    ssize_t got = pread(fd, then, sizeof then - 1, 0);
    mount->unclean = got > 0 && memcmp(now, then, sizeof now) == 0;
    int rc = 0;
    if (pwrite(fd, now, strlen(now) + 1, 0) < 0)
        rc = say(mount->text, "write", mount->dir, BUSY_NAME);
    close(fd);
    return rc;
}

int64_t spw_nvme_end(void *arg)
{
    struct spw_nvme_end *end = arg;
    return unlinkat(end->shard_fd, BUSY_NAME, 0) < 0 ? -errno : 0;
}

/* ---- direct I/O ------------------------------------------------------------------------------ */

/* A real write and read of @bytes at an address that is a multiple of it, but of no more. */
static bool trial(int fd, uint32_t bytes)
{
    uint8_t *memory = NULL;
    if (posix_memalign((void **)&memory, 2 * SPW_NVME_BLOCK, 3 * SPW_NVME_BLOCK) != 0)
        return false;
    uint8_t *at = memory + bytes, *back = memory + SPW_NVME_BLOCK + bytes;
    memset(at, 0x5a, bytes);
    memset(back, 0, bytes);
    bool works = pwrite(fd, at, bytes, bytes) == (ssize_t)bytes &&
                 pread(fd, back, bytes, bytes) == (ssize_t)bytes && memcmp(at, back, bytes) == 0;
    free(memory);
    return works;
}

static int try_direct(struct spw_nvme_mount *mount)
{
    mount->align = 1;
    if (!mount->want_direct)
        return 0;
    int fd = openat(mount->shard_fd, TRIAL_NAME, OPEN_FLAGS | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    if (fd >= 0) {
        mount->direct = true;
        mount->align = trial(fd, 512) ? 512 : SPW_NVME_BLOCK;
        if (mount->align == SPW_NVME_BLOCK && !trial(fd, SPW_NVME_BLOCK))
            mount->direct = false;
        close(fd);
        unlinkat(mount->shard_fd, TRIAL_NAME, 0);
    }
    if (mount->direct)
        return 0;
    mount->align = 1;
    snprintf(mount->text, sizeof mount->text,
             "direct I/O doesn't work in %.120s; the page cache is used", mount->dir);
    return 0;
}

/* ---- segments -------------------------------------------------------------------------------- */

static int open_segment(int shard_fd, const char *name, bool direct, int more_flags)
{
    return openat(shard_fd, name, OPEN_FLAGS | more_flags | (direct ? O_DIRECT : 0), 0600);
}

/* Blocks at the start of a file, whatever alignment direct I/O asks for. */
static int read_block(int fd, uint64_t offset, void *out)
{
    void *block = NULL;
    if (posix_memalign(&block, SPW_NVME_BLOCK, SPW_NVME_BLOCK) != 0)
        return -ENOMEM;
    ssize_t got = pread(fd, block, SPW_NVME_BLOCK, (off_t)offset);
    int rc = got < 0 ? -errno : got == SPW_NVME_BLOCK ? 0 : -EBADMSG;
    if (rc == 0)
        memcpy(out, block, SPW_NVME_BLOCK);
    free(block);
    return rc;
}

static int write_block(int fd, uint64_t offset, const void *from)
{
    void *block = NULL;
    if (posix_memalign(&block, SPW_NVME_BLOCK, SPW_NVME_BLOCK) != 0)
        return -ENOMEM;
    memcpy(block, from, SPW_NVME_BLOCK);
    ssize_t put = pwrite(fd, block, SPW_NVME_BLOCK, (off_t)offset);
    int rc = put < 0 ? -errno : put == SPW_NVME_BLOCK ? 0 : -ENOSPC;
    free(block);
    return rc;
}

/* "segment-" and six digits, and nothing else. */
static bool parse_name(const char *name, uint32_t *out_number)
{
    char again[32];
    unsigned number;
    if (sscanf(name, "segment-%6u", &number) != 1 || number >= SPW_NVME_SEGMENTS_MAX)
        return false;
    spw_nvme_segment_name(number, again);
    *out_number = number;
    return strcmp(name, again) == 0;
}

/* -EBADMSG: it is none of ours any more, or was never finished. */
static int take_file(struct spw_nvme_mount *mount, const char *name, struct spw_nvme_file *file)
{
    struct stat st;
    file->fd = open_segment(mount->shard_fd, name, mount->direct, 0);
    if (file->fd < 0)
        return errno == ELOOP ? -EBADMSG : say(mount->text, "open", mount->dir, name);
    int rc = fstat(file->fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EBADMSG;
    file->bytes = (uint64_t)st.st_size;
    if (rc == 0)
        rc = read_block(file->fd, 0, &file->head);
    if (rc == 0)
        rc = spw_nvme_head_check(&file->head, file->number, file->bytes);
    if (rc < 0)
        close(file->fd);
    return rc;
}

static int add_file(struct spw_nvme_mount *mount, const char *name)
{
    uint32_t number;
    if (!parse_name(name, &number))
        return 0; /* not ours: left alone */
    struct spw_nvme_file *more =
        realloc(mount->file, (mount->files + 1) * sizeof *mount->file); /* a handful a gigabyte */
    if (!more)
        return -ENOMEM;
    mount->file = more;
    struct spw_nvme_file *file = &mount->file[mount->files];
    *file = (struct spw_nvme_file){.number = number, .fd = -1};
    int rc = take_file(mount, name, file);
    if (rc == -EBADMSG) {
        mount->removed++;
        return unlinkat(mount->shard_fd, name, 0) < 0 ? say(mount->text, "unlink", mount->dir, name)
                                                      : 0;
    }
    mount->files += rc == 0;
    return rc;
}

static int list_files(struct spw_nvme_mount *mount)
{
    int fd = openat(mount->shard_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        int rc = say(mount->text, "open", mount->dir, ".");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(list)))
        rc = add_file(mount, entry->d_name);
    closedir(list);
    return rc;
}

static int open_spaces(struct spw_nvme_mount *mount)
{
    struct stat st;
    mount->spaces_fd = open_segment(mount->shard_fd, SPACES_NAME, mount->direct, O_CREAT);
    if (mount->spaces_fd < 0 || fstat(mount->spaces_fd, &st) < 0)
        return say(mount->text, "open", mount->dir, SPACES_NAME);
    static const struct spw_nvme_spaces none;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t at = (uint64_t)i * SPW_NVME_BLOCK;
        int rc = (uint64_t)st.st_size < at + SPW_NVME_BLOCK
                     ? write_block(mount->spaces_fd, at, &none)
                     : read_block(mount->spaces_fd, at, &mount->spaces[i]);
        if (rc < 0) {
            errno = -rc;
            return say(mount->text, "use", mount->dir, SPACES_NAME);
        }
    }
    return 0;
}

int64_t spw_nvme_mount(void *arg)
{
    struct spw_nvme_mount *mount = arg;
    mount->shard_fd = mount->spaces_fd = -1;
    int rc = open_shard_dir(mount);
    if (rc == 0)
        rc = mark_busy(mount);
    if (rc == 0)
        rc = try_direct(mount);
    if (rc == 0)
        rc = open_spaces(mount);
    if (rc == 0)
        rc = list_files(mount);
    if (rc < 0)
        spw_nvme_mount_fini(mount);
    return rc;
}

void spw_nvme_mount_fini(struct spw_nvme_mount *mount)
{
    for (uint32_t i = 0; i < mount->files; i++)
        if (mount->file[i].fd >= 0) /* else a segment's by now */
            close(mount->file[i].fd);
    free(mount->file);
    mount->file = NULL;
    mount->files = 0;
    if (mount->spaces_fd >= 0)
        close(mount->spaces_fd);
    if (mount->shard_fd >= 0)
        close(mount->shard_fd);
    mount->shard_fd = mount->spaces_fd = -1;
}

/* Real lack of room is told; a file system that can't reserve goes on without. */
static int reserve(int fd, uint64_t bytes)
{
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return 0;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return -errno;
    return ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
}

/* Its bytes, or those of fewer cells where the disk has no room for all. */
static int reserve_cells(struct spw_nvme_file *file)
{
    for (;;) {
        file->bytes = spw_nvme_segment_bytes(file->head.cell_bytes, file->head.cells);
        int rc = reserve(file->fd, file->bytes);
        if (rc == 0 || file->head.cells == 1 || ftruncate(file->fd, 0) < 0)
            return rc;
        file->head.cells /= 2;
    }
}

int64_t spw_nvme_create(void *arg)
{
    struct spw_nvme_create *create = arg;
    struct spw_nvme_file *file = &create->file;
    char name[32];
    spw_nvme_segment_name(file->number, name);
    file->fd = open_segment(create->shard_fd, name, create->direct, O_CREAT | O_EXCL);
    if (file->fd < 0)
        return -errno;
    uint64_t id[2];
    if (getrandom(id, sizeof id, 0) != sizeof id)
        memset(id, (int)file->number, sizeof id);
    int rc = reserve_cells(file);
    if (rc == 0) {
        spw_nvme_head_make(&file->head, file->number, id);
        rc = write_block(file->fd, 0, &file->head);
    }
    if (rc == 0)
        return 0;
    unlinkat(create->shard_fd, name, 0);
    close(file->fd);
    file->fd = -1;
    return rc;
}

int64_t spw_nvme_remove(void *arg)
{
    struct spw_nvme_remove *remove = arg;
    char name[32];
    spw_nvme_segment_name(remove->number, name);
    int rc = unlinkat(remove->shard_fd, name, 0) < 0 ? -errno : 0;
    if (remove->fd >= 0)
        close(remove->fd);
    remove->fd = -1;
    return rc;
}

/* ---- looking after it ------------------------------------------------------------------------ */

/* Somebody may have removed it. */
static int look_at_lock(struct spw_nvme_look *look)
{
    int dir = open(look->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return say(look->text, "open", look->dir, "");
    int rc = spw_nvme_lock_keep(dir, look->dir, look->shard, &look->lock_fd, look->text);
    close(dir);
    return rc;
}

int64_t spw_nvme_look(void *arg)
{
    struct spw_nvme_look *look = arg;
    struct stat open_one, there;
    char path[SPW_NVME_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/shard-%u", look->dir, look->shard);
    if (fstat(look->shard_fd, &open_one) < 0 || stat(path, &there) < 0)
        return say(look->text, "look at", look->dir, "");
    if (open_one.st_ino != there.st_ino || open_one.st_dev != there.st_dev) {
        snprintf(look->text, sizeof look->text, "%.120s is another directory than it was",
                 look->dir);
        return -ENOENT;
    }
    if (faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) < 0)
        return say(look->text, "use", look->dir, "");
    int rc = look_at_lock(look);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < look->count; i++) {
        struct stat st;
        look->file[i].gone = fstat(look->file[i].fd, &st) < 0 || st.st_nlink == 0 ||
                             (uint64_t)st.st_size < look->file[i].bytes;
    }
    return 0;
}
