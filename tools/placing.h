#ifndef SPW_TOOLS_PLACING_H
#define SPW_TOOLS_PLACING_H
/*
 * Placement in daemon and workers: the daemon decides once at its start, says what it decided, has the
 * memory placed with the pool's objects, looks where it lies, and hands each worker its place; the worker
 * binds itself and says in its feed what came of it.
 *
 *   written   daemon: a pool's configuration, a memory file for its workers; worker: the part of its
 *             own record in its feed that says where it is
 */
#include <stdio.h>

#include "shm/near.h"
#include "shm/pool.h"
#include "tools/bind.h"
#include "tools/place.h"

/** Load the topology that @config names and decide. 0 or a negative errno with words in @err. */
int spw_placing_decide(const struct spw_config *config, struct spw_place *out_place,
                       struct spw_error *err);
/** Daemon: have its pool made accordingly. */
void spw_placing_apply(const struct spw_place *place, struct spw_pool_config *pool_config);
/** Print the place of each worker, a line each; nothing where nothing is known or asked for. */
void spw_placing_print(const struct spw_place *place, FILE *out);
/** Daemon, before its pool is made: log all notes. */
void spw_placing_tell(const struct spw_place *place);
#define SPW_PLACING_NEAR_PERMILLE 990u /* of sampled pages, or it isn't what was asked for */

/**
 * Daemon, once its pool is made: was it done, and do sampled pages lie there? What isn't so is one
 * warning; workers whose pages are elsewhere are in @place's far then. 0; strict: a negative errno, and
 * an error that names what is missing or the share of pages.
 * @where  tells where a page lies: spw_near_where_kernel but in tests
 */
int spw_placing_check(struct spw_place *place, const struct spw_config *config,
                      const struct spw_pool *pool, spw_near_where *where, void *ctx);

/** Daemon: a memory file with the place for its workers, which inherit it. -1 = failed. */
int spw_placing_open(const struct spw_place *place);
/** Worker: its place from such a file. False: it has none. */
bool spw_placing_read(int fd, uint32_t k, struct spw_place_worker *out_place);
/**
 * Worker @k, before it opens its copier or starts a thread, so that each of them runs there: bind, look
 * at its shard, and say so in its feed. A NULL @place says that nothing is wanted.
 */
void spw_placing_take(const struct spw_place_worker *place, struct spw_pool *pool, uint32_t k);
/** Worker @k, any of its threads: look at its shard again, for its feed, now that its pages have been
 * touched, pinned or made huge. */
void spw_placing_look(const struct spw_pool *pool, uint32_t k);

#endif
