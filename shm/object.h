#ifndef SPW_SHM_OBJECT_H
#define SPW_SHM_OBJECT_H
/*
 * Names in the shared-memory directory, as region.c, alive.c and pool.c open and remove them.
 * Inside shm only. Nothing here waits: FIFOs and symbolic links are refused, not followed.
 */
#include "shm/region.h"

/** Open @name without creating it; a descriptor or -errno with owner and mode in @err. The object
 * is a regular file of @path's user or of root. */
int spw_object_open(const struct spw_pool_path *path, const char *name, bool writable,
                    struct spw_error *err);

/** Create @name, which must not exist, with exactly these rights whatever the umask is. */
int spw_object_create(const struct spw_pool_path *path, const char *name, uint32_t mode,
                      int64_t gid, struct spw_error *err);

/** Set mode and group (-1 = leave) of an opened object. */
int spw_object_set_rights(int fd, const char *name, uint32_t mode, int64_t gid,
                          struct spw_error *err);

/** True if @name still names the file behind @fd. */
bool spw_object_current(int fd, const char *name);

/** True if @name names another file for certain, or none; not where it only can't be told. */
bool spw_object_displaced(int fd, const char *name);

/** Unlink @name if it still names the file behind @fd. 0 also when it doesn't. */
int spw_object_unlink(int fd, const char *name, struct spw_error *err);

/** Let @to name what @from names, in one step; what @to named before is gone then. */
int spw_object_rename(const char *from, const char *to, struct spw_error *err);

/** Is there room for @bytes more in the pool's directory? 0 or -ENOSPC with wanted, available,
 * path and remedy in @err. */
int spw_object_room(const struct spw_pool_path *path, uint64_t bytes, struct spw_error *err);

#endif
