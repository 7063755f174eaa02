#ifndef SPW_TOOLS_MAIL_H
#define SPW_TOOLS_MAIL_H
/*
 * What clients ask the daemon by their mailboxes, and its replies in ctl.
 *
 *   roles     mailbox: written by its client, and input; reply: written by the daemon alone
 *   crash     a reply without its seq is written again by nobody: the client's wait ends by the
 *             daemon's lock
 *   pairs     [MB-1] the request before its seq -> the daemon's look
 *             [MB-2] the reply before its seq -> the client that waits
 */
#include "shm/pool.h"

/**
 * Answer the request @seq of client @c, whose object is @client. Whatever its bytes are, the client
 * gets a reply: what was asked, or why not.
 *
 * Returns true if the pool is to stop.
 */
bool spw_mail_answer(struct spw_ctl *ctl, const struct spw_geometry *geometry, uint32_t c,
                     const struct spw_client_head *client, uint64_t seq);

#endif
