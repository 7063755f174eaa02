#ifndef SPW_TOOLS_DAEMON_H
#define SPW_TOOLS_DAEMON_H
/*
 * The daemon's own work: make the pool or go on with one, answer mailboxes, stop; tools/workers.h for its workers.
 *
 *   roles     writes ctl, alone; never maps payload for itself, never loads a GPU driver
 *   crash     workers go on while clients live; nothing in ctl is half-true: a space is whole
 *             before `ready`, a reply before its seq, a worker is UP only with the incarnation it
 *             stored
 *   pairs     [WS-1] incarnation before a worker's phase -> the client's look at a step
 *             [PH-1] everything before the pool's phase -> attach
 */
#include "shm/atomic.h"
#include "tools/config.h"

/** Run a pool in the foreground until *stop is raised; raised again, the end is hurried. @argv[0] is
 * the workers' name, too.
 * Exit status: 0 clean, 1 failed (words on stderr). */
int spw_daemon_run(const struct spw_config *config, char *const *argv, const spw_atomic32 *stop);

#endif
