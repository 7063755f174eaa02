#ifndef SPW_TOOLS_SPACES_H
#define SPW_TOOLS_SPACES_H
/*
 * Spaces of a pool: who may share chunks. The daemon writes them into ctl when a client asks.
 *
 *   roles     writer: the daemon; readers: clients and workers, after `ready`
 *   crash     a record without `ready` is written over by the next request
 *   pairs     [SP-1] the record before `ready` -> clients and workers that look at the space
 */
#include "shm/pool.h"

/** Could a space be like this in a pool of that geometry? 0, or -EINVAL with the field and its
 * limits in @text. @record: a copy of one's own; whoever wrote it may be anybody. */
int spw_spaces_check(const struct spw_geometry *geometry, const struct spw_space_record *record,
                     char *text, size_t text_bytes);

/**
 * Find or add the space that @asked describes, enter its ranks' workers, and set its shares unless
 * they are 0. @asked: a copy of one's own.
 *
 * @text  on failure, what differs or which value is out of range
 * Returns its number; -EINVAL values that make no sense, or the fingerprint of a space with another
 * geometry; -EBUSY a worker keeps parts of another rank of this space; -ENOSPC no room, or what is to
 * be guaranteed is promised to others.
 */
int spw_spaces_open(struct spw_ctl *ctl, const struct spw_geometry *geometry,
                    const struct spw_open_space_mail *asked, char *text, size_t text_bytes);

/**
 * Set those shares of a space that @asked names. @asked: a copy of one's own.
 *
 * Returns its number; -ESRCH there is none of that fingerprint; -EINVAL values that make no sense;
 * -ENOSPC what is to be guaranteed is promised to others. @text says why.
 */
int spw_spaces_share(struct spw_ctl *ctl, const struct spw_shares_mail *asked, char *text,
                     size_t text_bytes);

/**
 * Warm start: take @old, which another daemon's ctl held in place @s, over into a ctl that nobody
 * else sees yet. It is checked as if a client asked for it, against its seal, and against those
 * that were taken over before; shares that can't be are dropped.
 *
 * 0, or -EBADMSG: damaged; @text says how.
 */
int spw_spaces_keep(struct spw_ctl *ctl, const struct spw_geometry *geometry, uint32_t s,
                    const struct spw_space_slot *old, char *text, size_t text_bytes);

#endif
