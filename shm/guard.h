#ifndef SPW_SHM_GUARD_H
#define SPW_SHM_GUARD_H
/*
 * Mappings of objects that a client may cut. It owns its client.c and kv.c and may truncate them
 * while daemon, workers and tools have them mapped: their next touch beyond the new end is SIGBUS.
 * With the guard installed, such a touch finds zero pages over the whole region instead, and the
 * region is marked lost; any other SIGBUS goes where it went before, or has its default action.
 *
 *   roles     process-local. Programs install it once, and engines that run a worker inside; shm/region.c registers what it maps of
 *             clients' objects. The client library installs nothing: an engine's signals are its own
 *   progress  the handler is async-signal-safe, bounded, and takes no lock; any thread may fault
 *   order     lost, then the zero pages: whoever has read one of their bytes finds it lost [GD-1]
 *   limits    a page that a cut leaves in part reads zero behind it and faults nobody, and so does
 *             a hole: as good as zeros that the client wrote itself
 *   crash     nothing is left
 *   pairs     [GD-1] lost before the zero pages -> lost after the reading
 *             [GD-2] an area's bounds before its start -> the handler
 */
#include "shm/atomic.h"

#include <stdbool.h>
#include <stdint.h>

#define SPW_GUARD_AREAS_MAX 4096u

/** Handle SIGBUS from now on, in all threads; once more is fine. 0 or -errno. */
int spw_guard_install(void);

/** Watch [@start, @start + @bytes), whole pages. Returns its number (from 1), or -EMFILE: too many
 * are watched already. Any thread; takes a lock. */
int spw_guard_add(void *start, uint64_t bytes, bool writable);
/** Watch it no more: before it is unmapped. 0 is fine. */
void spw_guard_drop(int area);

/** Was one of its bytes found missing? Ask after reading. No system call. */
bool spw_guard_lost(int area);
/** Say that it is lost, though nobody has touched it; or whole, since it was mapped anew. */
void spw_guard_set_lost(int area, bool lost);

#endif
