/* Shared-memory objects: the creator reserves, fills the header and publishes; attachers check
 * every header field before they use it. Shared: the header; its version is stored last. */
#include "shm/region.h"

#include "shm/alive.h"
#include "shm/crash_point.h"
#include "shm/guard.h"
#include "shm/huge.h"
#include "shm/object.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOCATE_STEP_BYTES (64ull << 20) /* a signal undoes at most one step */
#define BLOCK_BYTES         512u          /* of st_blocks                     */
#define BESIDE              ".new"

static const char *const kind_names[] = {
    [SPW_REGION_CTL] = "ctl", [SPW_REGION_FEED] = "feed", [SPW_REGION_CLIENT] = "client",
    [SPW_REGION_KV] = "kv",   [SPW_REGION_DATA] = "data",
};

int spw_pool_path_init(struct spw_pool_path *out_path, const char *shm_dir, const char *name,
                       uint32_t uid, struct spw_error *err)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *dir = shm_dir ? shm_dir : "/dev/shm";
    size_t dir_bytes = strlen(dir), name_bytes = strlen(name);
    struct spw_pool_path path = {.uid = uid};
    while (dir_bytes > 1 && dir[dir_bytes - 1] == '/')
        dir_bytes--;
    if (dir[0] != '/' || dir_bytes >= sizeof path.shm_dir)
        return spw_fail(err, -EINVAL, "directory \"%.60s\": not an absolute path of 1..%zu bytes",
                        dir, sizeof path.shm_dir - 1);
    if (name_bytes < 1 || name_bytes > SPW_POOL_NAME_BYTES)
        return spw_fail(err, -EINVAL, "pool name \"%.60s\" has %zu bytes, not 1..%u", name,
                        name_bytes, SPW_POOL_NAME_BYTES);
    if (strspn(name, allowed) != name_bytes || name[0] == '.')
        return spw_fail(err, -EINVAL,
                        "pool name \"%s\": only A-Z a-z 0-9 . _ - are allowed, and no leading dot",
                        name);
    memcpy(path.shm_dir, dir, dir_bytes);
    memcpy(path.name, name, name_bytes);
    *out_path = path;
    return 0;
}

void spw_lock_name(const struct spw_pool_path *path, char *out)
{
    snprintf(out, SPW_PATH_BYTES, "%s/spillway-%" PRIu32 "-%s.lock", path->shm_dir, path->uid,
             path->name);
}

void spw_region_name(const struct spw_pool_path *path, enum spw_region_kind kind, uint32_t index,
                     char *out)
{
    int bytes = snprintf(out, SPW_PATH_BYTES, "%s/spillway-%" PRIu32 "-%s.%s", path->shm_dir,
                         path->uid, path->name, kind_names[kind]);
    if (kind != SPW_REGION_CTL)
        snprintf(out + bytes, SPW_PATH_BYTES - (size_t)bytes, ".%" PRIu32, index);
}

/* Reserve every byte now, so that no later touch can fail. */
static int allocate(int fd, const char *name, const struct spw_region_config *config,
                    uint64_t bytes, struct spw_error *err)
{
    int rc = spw_object_room(config->path, bytes, err);
    if (rc)
        return rc;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t step = bytes - at < ALLOCATE_STEP_BYTES ? bytes - at : ALLOCATE_STEP_BYTES;
        if (fallocate(fd, 0, (off_t)at, (off_t)step) == 0) {
            at += step;
        } else if (errno == ENOSPC) {
            /* taken by somebody else since it was asked: ask again for the words */
            rc = spw_object_room(config->path, bytes - at, err);
            return rc ? rc
                      : spw_fail(err, -ENOSPC,
                                 "%s: wanted %" PRIu64 " bytes, the kernel gave %" PRIu64
                                 "; make %s larger or the pool smaller",
                                 name, bytes, at, config->path->shm_dir);
        } else if (errno != EINTR) {
            return spw_fail(err, -errno, "%s: can't reserve %" PRIu64 " bytes: %s", name, bytes,
                            strerror(errno));
        }
    }
    return 0;
}

static bool is_payload(enum spw_region_kind kind)
{
    return kind == SPW_REGION_KV || kind == SPW_REGION_DATA;
}

/* What a client owns it may cut at any time. */
static bool is_clients(enum spw_region_kind kind)
{
    return kind == SPW_REGION_CLIENT || kind == SPW_REGION_KV;
}

/* Map @bytes of @fd, or zero pages where it is -1. Forked children don't get it; payload stays out
 * of core dumps. */
static int map(int fd, const char *name, enum spw_region_kind kind, bool writable, uint64_t bytes,
               struct spw_region *out_region, struct spw_error *err)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void *at = kind == SPW_REGION_DATA && fd >= 0 ? spw_huge_map(fd, protection, bytes)
                                                  : mmap(NULL, bytes, protection, flags, fd, 0);
    if (at == MAP_FAILED)
        return spw_fail(err, -errno, "%s: can't map %" PRIu64 " bytes: %s", name, bytes,
                        strerror(errno));
    int guard = is_clients(kind) ? spw_guard_add(at, bytes, writable) : 0;
    int error = guard < 0 ? -guard : 0;
    if (!error && (madvise(at, bytes, MADV_DONTFORK) ||
                   (is_payload(kind) && madvise(at, bytes, MADV_DONTDUMP))))
        error = errno;
    if (error) {
        spw_guard_drop(guard);
        munmap(at, bytes);
        return spw_fail(err, -error, "%s: can't be mapped as it must be: %s", name,
                        strerror(error));
    }
    *out_region = (struct spw_region){.header = at,
                                      .size_bytes = bytes,
                                      .writable = writable,
                                      .forked = spw_forked(),
                                      .guard = guard};
    return 0;
}

static uint64_t inode_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : st.st_ino;
}

static void fill_header(struct spw_region_header *header, const struct spw_region_config *config,
                        uint64_t size_bytes, uint32_t page_bytes)
{
    header->magic = SPW_REGION_MAGIC;
    header->layout_hash = spw_layout_hash();
    header->size_bytes = size_bytes;
    memcpy(header->pool_id, config->pool_id, sizeof header->pool_id);
    header->kind = config->kind;
    header->index = config->index;
    header->page_bytes = page_bytes;
    header->endian = SPW_ENDIAN_MARK;
}

/* The name under which @config's object is made. */
static void name_of(const struct spw_region_config *config, char *out)
{
    spw_region_name(config->path, config->kind, config->index, out);
    if (config->beside)
        strcat(out, BESIDE); /* SPW_PATH_BYTES leaves room for it */
}

/* Reserving takes the pages, so their policy goes before: it is the object's, whoever maps it. */
static int place(int fd, const struct spw_region_config *config, uint64_t bytes)
{
    if (!config->memory || config->memory->kind == SPW_MEMORY_ANY)
        return 0;
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    int rc = spw_region_place(at, bytes, config->memory);
    munmap(at, bytes);
    return rc;
}

int spw_region_create(const struct spw_region_config *config, struct spw_region *out_region,
                      struct spw_error *err)
{
    char name[SPW_PATH_BYTES];
    struct spw_region region;
    uint32_t page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = spw_align_up(config->size_bytes, page_bytes);
    if (config->size_bytes < sizeof(struct spw_region_header) || bytes > INT64_MAX)
        return spw_fail(err, -EINVAL, "a region of %" PRIu64 " bytes can't be", config->size_bytes);
    name_of(config, name);
    int fd = spw_object_create(config->path, name, config->mode, config->gid, err);
    if (fd < 0)
        return fd;
    int placed = place(fd, config, bytes);
    SPW_CRASH_POINT("region.created");
    int rc = allocate(fd, name, config, bytes, err);
    SPW_CRASH_POINT("region.allocated");
    if (!rc)
        rc = map(fd, name, config->kind, true, bytes, &region, err);
    if (rc) {
        spw_object_unlink(fd, name, NULL);
    } else {
        region.inode = inode_of(fd);
        region.memory_rc = placed;
        fill_header(region.header, config, bytes, page_bytes);
        *out_region = region;
    }
    close(fd);
    SPW_CRASH_POINT("region.filled");
    return rc;
}

void spw_region_publish(struct spw_region *region)
{
    /* [RG-1] release: header and contents before version */
    spw_store_release(&region->header->version, SPW_LAYOUT_VERSION);
    SPW_CRASH_POINT("region.published");
}

bool spw_region_mend(struct spw_region *region, const struct spw_region_config *config)
{
    struct spw_region_header good = {0}, *header = region->header;
    fill_header(&good, config, region->size_bytes, (uint32_t)sysconf(_SC_PAGESIZE));
    spw_store_relaxed(&good.version, SPW_LAYOUT_VERSION);
    if (memcmp(header, &good, sizeof good) == 0)
        return false;
    fill_header(header, config, region->size_bytes, good.page_bytes);
    memset(header->reserved, 0, sizeof header->reserved);
    spw_region_publish(region);
    return true;
}

static int bad(struct spw_error *err, const char *name, const char *field, uint64_t got,
               uint64_t want)
{
    return spw_fail(err, -EBADMSG, "%s: %s is %#" PRIx64 ", not %#" PRIx64 "; damaged", name, field,
                    got, want);
}

/* The header is input: each field is compared, the first difference is named. */
static int check_header(const struct spw_region *region, const char *name,
                        enum spw_region_kind kind, uint32_t index, uint64_t want_bytes,
                        struct spw_error *err)
{
    /* [RG-1] acquire: version before header and contents */
    uint64_t version = spw_load_acquire(&region->header->version);
    uint32_t page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
    struct spw_region_header header;
    if (version == 0)
        return spw_fail(err, -EAGAIN, "%s: not ready: its creator is still at it, or died", name);
    memcpy(&header, region->header, sizeof header);
    if (header.magic == __builtin_bswap64(SPW_REGION_MAGIC))
        return bad(err, name, "endianness", header.endian, SPW_ENDIAN_MARK);
    if (header.magic != SPW_REGION_MAGIC)
        return bad(err, name, "magic", header.magic, SPW_REGION_MAGIC);
    if (header.kind != kind)
        return bad(err, name, "kind", header.kind, kind);
    if (header.index != index)
        return bad(err, name, "index", header.index, index);
    if (header.size_bytes != region->size_bytes)
        return bad(err, name, "size in bytes", region->size_bytes, header.size_bytes);
    if (header.page_bytes != page_bytes)
        return bad(err, name, "page size", header.page_bytes, page_bytes);
    if (header.endian != SPW_ENDIAN_MARK)
        return bad(err, name, "endianness", header.endian, SPW_ENDIAN_MARK);
    if (version != SPW_LAYOUT_VERSION)
        return spw_fail(err, -EPROTONOSUPPORT,
                        "%s: has layout version %" PRIu64 ", this program %u; use one release",
                        name, version, SPW_LAYOUT_VERSION);
    if (header.layout_hash != spw_layout_hash())
        return spw_fail(err, -EPROTONOSUPPORT,
                        "%s: version %" PRIu64 " with layout hash %016" PRIx64
                        ", this program version %u with %016" PRIx64 "; use one build",
                        name, version, header.layout_hash, SPW_LAYOUT_VERSION, spw_layout_hash());
    if (region->size_bytes < want_bytes)
        return spw_fail(err, -EBADMSG, "%s: has %" PRIu64 " bytes, %" PRIu64 " are needed; damaged",
                        name, region->size_bytes, want_bytes);
    return 0;
}

/* Map what @fd is and check its header; @name is for words. */
static int attach_fd(int fd, const char *name, enum spw_region_kind kind, uint32_t index,
                     bool writable, uint64_t want_bytes, struct spw_region *out_region,
                     struct spw_error *err)
{
    struct spw_region region = {0};
    struct stat st;
    if (fstat(fd, &st))
        return spw_fail(err, -errno, "%s: %s", name, strerror(errno));
    if ((uint64_t)st.st_size < sizeof(struct spw_region_header))
        return spw_fail(err, -EAGAIN, "%s: not ready: %" PRId64 " bytes so far", name,
                        (int64_t)st.st_size);
    int rc = map(fd, name, kind, writable, (uint64_t)st.st_size, &region, err);
    if (!rc) {
        region.inode = st.st_ino;
        rc = check_header(&region, name, kind, index, want_bytes, err);
    }
    if (rc) {
        spw_region_detach(&region);
        return rc;
    }
    *out_region = region;
    return 0;
}

int spw_region_attach(const struct spw_pool_path *path, enum spw_region_kind kind, uint32_t index,
                      bool writable, uint64_t want_bytes, struct spw_region *out_region,
                      struct spw_error *err)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(path, kind, index, name);
    int fd = spw_object_open(path, name, writable, err);
    if (fd < 0)
        return fd;
    int rc = attach_fd(fd, name, kind, index, writable, want_bytes, out_region, err);
    close(fd);
    return rc;
}

/* Is the opened object exactly as large as it was made, with nothing cut out of it? */
static int check_whole(int fd, const char *name, uint64_t want_bytes, struct spw_error *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return spw_fail(err, -errno, "%s: %s", name, strerror(errno));
    if ((uint64_t)st.st_size != want_bytes)
        return spw_fail(err, -EBADMSG, "%s: has %" PRId64 " bytes, not %" PRIu64, name,
                        (int64_t)st.st_size, want_bytes);
    uint64_t reserved_bytes = (uint64_t)st.st_blocks * BLOCK_BYTES;
    if (reserved_bytes < want_bytes)
        return spw_fail(err, -EBADMSG, "%s: has holes: %" PRIu64 " of %" PRIu64 " bytes are there",
                        name, reserved_bytes, want_bytes);
    return 0;
}

int spw_region_adopt(const struct spw_region_config *config, struct spw_region *out_region,
                     struct spw_error *err)
{
    char name[SPW_PATH_BYTES];
    struct spw_region region = {0};
    uint64_t bytes = spw_align_up(config->size_bytes, (uint64_t)sysconf(_SC_PAGESIZE));
    name_of(config, name);
    int fd = spw_object_open(config->path, name, true, err);
    if (fd < 0)
        return fd;
    int rc = check_whole(fd, name, bytes, err);
    if (!rc)
        rc = attach_fd(fd, name, config->kind, config->index, true, bytes, &region, err);
    if (!rc && region.header->pool_id[1] != config->pool_id[1])
        rc = spw_fail(err, -EBADMSG, "%s: belongs to another pool", name);
    if (!rc)
        rc = spw_object_set_rights(fd, name, config->mode, config->gid, err);
    close(fd);
    if (rc) {
        spw_region_detach(&region);
        return rc;
    }
    *out_region = region;
    return 0;
}

int spw_region_take_name(const struct spw_region_config *config, struct spw_error *err)
{
    char from[SPW_PATH_BYTES], to[SPW_PATH_BYTES];
    name_of(config, from);
    spw_region_name(config->path, config->kind, config->index, to);
    return spw_object_rename(from, to, err);
}

/* A forked child has no mapping: what lies at that address now is somebody else's. */
void spw_region_detach(struct spw_region *region)
{
    if (!region || !region->header)
        return;
    spw_guard_drop(region->guard);
    if (region->forked == spw_forked())
        munmap(region->header, region->size_bytes);
    *region = (struct spw_region){0};
}

/* ---- objects that their client has cut ------------------------------------------------------- */

int spw_region_stand_in(enum spw_region_kind kind, uint64_t size_bytes, bool writable,
                        struct spw_region *out_region, struct spw_error *err)
{
    uint64_t bytes = spw_align_up(size_bytes, (uint64_t)sysconf(_SC_PAGESIZE));
    struct spw_region region;
    int rc =
        map(-1, "zero pages for an object that is not there", kind, writable, bytes, &region, err);
    if (rc)
        return rc;
    spw_guard_set_lost(region.guard, true);
    *out_region = region;
    return 0;
}

bool spw_region_lost(const struct spw_region *region)
{
    return spw_guard_lost(region->guard);
}

void spw_region_set_lost(struct spw_region *region)
{
    spw_guard_set_lost(region->guard, true);
}

bool spw_region_intact(const struct spw_region *region, const struct spw_pool_path *path,
                       enum spw_region_kind kind, uint32_t index)
{
    char name[SPW_PATH_BYTES];
    struct stat st;
    spw_region_name(path, kind, index, name);
    return lstat(name, &st) == 0 && st.st_ino == region->inode &&
           (uint64_t)st.st_size == region->size_bytes && S_ISREG(st.st_mode);
}

int spw_region_take_place(struct spw_region *region, struct spw_region *from, struct spw_error *err)
{
    if (from->size_bytes != region->size_bytes)
        return spw_fail(err, -EBADMSG, "an object has %" PRIu64 " bytes instead of %" PRIu64,
                        from->size_bytes, region->size_bytes);
    if (mremap(from->header, from->size_bytes, region->size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               region->header) == MAP_FAILED)
        return spw_fail(err, -errno, "an object can't be mapped where it was: %s", strerror(errno));
    spw_guard_drop(from->guard);
    region->inode = from->inode;
    *from = (struct spw_region){0};
    spw_guard_set_lost(region->guard, false);
    return 0;
}

int spw_region_renew(struct spw_region *region, const struct spw_pool_path *path,
                     enum spw_region_kind kind, uint32_t index, struct spw_error *err)
{
    struct spw_region now = {0};
    int rc = spw_region_attach(path, kind, index, region->writable, region->size_bytes, &now, err);
    if (rc == 0 && (rc = spw_region_take_place(region, &now, err)))
        spw_region_detach(&now);
    return rc;
}

/* Unlink @name if it holds an object of @pool_id; NULL = whatever it holds. */
static int unlink_name(const struct spw_pool_path *path, const char *name, const uint64_t *pool_id,
                       struct spw_error *err)
{
    struct spw_error why;
    uint64_t id[2];
    int fd = spw_object_open(path, name, false, &why);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return spw_fail(err, fd, "%s", why.text);
    int rc = 0;
    bool ours = !pool_id;
    if (pool_id)
        ours = pread(fd, id, sizeof id, offsetof(struct spw_region_header, pool_id)) ==
                   (ssize_t)sizeof id &&
               memcmp(id, pool_id, sizeof id) == 0;
    if (ours)
        rc = spw_object_unlink(fd, name, err);
    close(fd);
    return rc;
}

int spw_region_unlink(const struct spw_pool_path *path, enum spw_region_kind kind, uint32_t index,
                      const uint64_t *pool_id, struct spw_error *err)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(path, kind, index, name);
    return unlink_name(path, name, pool_id, err);
}

int spw_region_unlink_beside(const struct spw_pool_path *path, enum spw_region_kind kind,
                             struct spw_error *err)
{
    char name[SPW_PATH_BYTES];
    name_of(&(struct spw_region_config){.path = path, .kind = kind, .beside = true}, name);
    return unlink_name(path, name, NULL, err);
}

int spw_region_place(void *start, uint64_t bytes, const struct spw_memory *memory)
{
    static const int modes[] = {[SPW_MEMORY_ANY] = MPOL_DEFAULT,
                                [SPW_MEMORY_BIND] = MPOL_BIND,
                                [SPW_MEMORY_PREFER] = MPOL_PREFERRED,
                                [SPW_MEMORY_INTERLEAVE] = MPOL_INTERLEAVE};
    bool any = memory->kind == SPW_MEMORY_ANY;
    /* the kernel takes one node less than it is told of */
    if (syscall(SYS_mbind, start, bytes, modes[memory->kind], any ? NULL : memory->node,
                any ? 0ul : SPW_NODES_MAX + 1ul, 0u))
        return -errno;
    return 0;
}
