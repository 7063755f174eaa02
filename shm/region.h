#ifndef SPW_SHM_REGION_H
#define SPW_SHM_REGION_H
/*
 * Shared-memory objects: create, publish, attach, unlink.
 *
 *   roles     the daemon creates, adopts and unlinks; workers and clients only attach
 *   progress  system calls; never on the hot path
 *   crash     a creator that dies leaves an object whose version is 0: attachers answer
 *             "not ready", the next daemon removes it
 *   pairs     [RG-1] publish -> attach
 */
#include "shm/layout.h"

#include <sys/types.h>

#define SPW_POOL_NAME_BYTES 48u
#define SPW_PATH_BYTES      256u

/** Where a pool's objects are. Plain data; `shm_dir` without a trailing slash. */
struct spw_pool_path {
    char shm_dir[128];
    char name[SPW_POOL_NAME_BYTES + 1];
    uint32_t uid;
};

#define SPW_NODE_WORDS 16u
#define SPW_NODES_MAX  (64u * SPW_NODE_WORDS)

/** Where an object's pages are to lie. */
enum spw_memory_kind {
    SPW_MEMORY_ANY,       /* wherever who touches them first runs            */
    SPW_MEMORY_BIND,      /* on the nodes alone                              */
    SPW_MEMORY_PREFER,    /* on the first of the nodes while it has room     */
    SPW_MEMORY_INTERLEAVE /* page by page on one after the other             */
};

struct spw_memory {
    uint32_t kind;                 /* enum spw_memory_kind                    */
    uint64_t node[SPW_NODE_WORDS]; /* bit n % 64 of word n / 64: NUMA node n  */
};

/** A mapped object. Process-local; a zeroed one is valid for spw_region_detach(). */
struct spw_region {
    struct spw_region_header *header; /* = start of the mapping */
    uint64_t size_bytes;
    bool writable;
    uint32_t forked; /* spw_forked() of the process that mapped it        */
    int guard;       /* its area (shm/guard.h), where a client may cut it */
    uint64_t inode;  /* of the object, 0 for a stand-in                   */
    int memory_rc;   /* creator: what became of config's memory: 0, or a negative errno: it lies
                        anywhere                                          */
};

struct spw_region_config {
    const struct spw_pool_path *path;
    enum spw_region_kind kind;
    uint32_t index;      /* k or c, 0 for ctl                                             */
    uint64_t size_bytes; /* rounded up to whole pages by the callee                       */
    uint32_t mode;       /* permission bits, set on the descriptor whatever the umask is  */
    int64_t gid;         /* group, -1 = leave                                             */
    uint64_t pool_id[2];
    bool beside; /* made under the name and ".new", beside an object of that name */
    const struct spw_memory *memory; /* NULL = anywhere. It goes before the bytes are reserved, and
                                        holds for every process for as long as the object lives */
};

/**
 * Check a pool's name and directory and fill @out_path. @shm_dir NULL = "/dev/shm".
 * Names: 1..48 of [A-Za-z0-9._-], no leading dot. -EINVAL names what is wrong.
 */
int spw_pool_path_init(struct spw_pool_path *out_path, const char *shm_dir, const char *name,
                       uint32_t uid, struct spw_error *err);

/** Write the path of an object ("... .feed.3") into @out, SPW_PATH_BYTES long. */
void spw_region_name(const struct spw_pool_path *path, enum spw_region_kind kind, uint32_t index,
                     char *out);
/** The same for the lock object. */
void spw_lock_name(const struct spw_pool_path *path, char *out);

/**
 * Create an object with all its bytes reserved, mapped read-write and MADV_DONTFORK; version is
 * still 0. Payload kinds (KV, DATA) are left out of core dumps.
 *
 * -ENOSPC: wanted bytes, available bytes, mount point and remedy are in @err, nothing is left
 * behind. -EEXIST: an object of that name is there. -EACCES and the like as the kernel says.
 */
int spw_region_create(const struct spw_region_config *config, struct spw_region *out_region,
                      struct spw_error *err);

/** Store the version: from now on others may attach. [RG-1] release. */
void spw_region_publish(struct spw_region *region);

/**
 * Creator: write the header anew if it isn't what it was published as, because somebody who may
 * write to the object damaged it. @config names kind, index and pool as at creation. Returns true
 * if something was mended.
 */
bool spw_region_mend(struct spw_region *region, const struct spw_region_config *config);

/**
 * Map an existing object; never creates, resizes or unlinks. Checked in this order, the first
 * difference is named in @err: -ENOENT no such object; -EACCES owner and mode; -EAGAIN its creator
 * has not published it (or died before); -EBADMSG magic, kind, index, size, page size, endianness
 * make no sense; -EPROTONOSUPPORT version or layout hash, both values given.
 * @want_bytes 0, or the least size the caller will use.
 */
int spw_region_attach(const struct spw_pool_path *path, enum spw_region_kind kind, uint32_t index,
                      bool writable, uint64_t want_bytes, struct spw_region *out_region,
                      struct spw_error *err);

/**
 * Zero pages in the place of a client's object that isn't there or can't be used: a region that is
 * lost from the beginning. @size_bytes as config's. 0 or a negative errno with words.
 */
int spw_region_stand_in(enum spw_region_kind kind, uint64_t size_bytes, bool writable,
                        struct spw_region *out_region, struct spw_error *err);

/** Is a client's object cut, or was it never there? What was read of it is worth nothing; asked
 * after the reading. No system call. */
bool spw_region_lost(const struct spw_region *region);

/** What is mapped of a client's object is another one than its name means, or only half of what
 * belongs together: as if it had been cut. */
void spw_region_set_lost(struct spw_region *region);

/** Does the object still have its name and its size? One system call. */
bool spw_region_intact(const struct spw_region *region, const struct spw_pool_path *path,
                       enum spw_region_kind kind, uint32_t index);

/**
 * Map what the object's name means now in the place of @region: same address, same size, not lost
 * any more. Answers as spw_region_attach(); then @region is as it was.
 */
int spw_region_renew(struct spw_region *region, const struct spw_pool_path *path,
                     enum spw_region_kind kind, uint32_t index, struct spw_error *err);

/** Map @from, which is gone then, in the place of @region, which was of the same size. */
int spw_region_take_place(struct spw_region *region, struct spw_region *from,
                          struct spw_error *err);

/** Unmap. NULL and zeroed regions are fine; in a forked child, which has no mapping, only the
 * struct is cleared. */
void spw_region_detach(struct spw_region *region);

/**
 * Creator's successor: map an object to go on with it, and give it the rights of @config. All that
 * spw_region_attach() checks, and -EBADMSG if it hasn't exactly @config's size, isn't wholly
 * reserved, or another creation made it: pool_id[1] differs.
 */
int spw_region_adopt(const struct spw_region_config *config, struct spw_region *out_region,
                     struct spw_error *err);

/** Give an object that was made beside another its name; whoever has the other one mapped keeps
 * that. 0 or -errno; a process that dies in it leaves the one or the other. */
int spw_region_take_name(const struct spw_region_config *config, struct spw_error *err);
/** Unlink what a creator left beside an object, if anything. */
int spw_region_unlink_beside(const struct spw_pool_path *path, enum spw_region_kind kind,
                             struct spw_error *err);

/**
 * Unlink the name of an object, if it still names the object with @pool_id (NULL = whatever is
 * there, also a half-made one). 0 also when there is none, or another pool's. What belongs to
 * another user is left alone: -EACCES, owner and path are named.
 */
int spw_region_unlink(const struct spw_pool_path *path, enum spw_region_kind kind, uint32_t index,
                      const uint64_t *pool_id, struct spw_error *err);

/** Have pages of [start, start + bytes) that aren't there yet lie as @memory says; those that are
 * stay where they are. 0 or -errno: -EPERM and -ENOSYS where the system lets nobody choose, -EINVAL
 * for nodes that there aren't or that aren't allowed. */
int spw_region_place(void *start, uint64_t bytes, const struct spw_memory *memory);

#endif
