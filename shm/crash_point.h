#ifndef SPW_SHM_CRASH_POINT_H
#define SPW_SHM_CRASH_POINT_H
/*
 * Named places where a test kills the process by SIGKILL, to see what its survivors see. They
 * exist only in builds with -DSPW_CRASH_POINTS (meson -Dcrash_points=true), elsewhere they are
 * nothing. One place is armed at a time, for the whole process.
 */
#include <stdint.h>

#ifdef SPW_CRASH_POINTS

/** Die at the @nth time (from 1) that @name is passed; NULL disarms. @name is borrowed. */
void spw_crash_arm(const char *name, uint32_t nth);

void spw_crash_pass(const char *name);
#define SPW_CRASH_POINT(name) spw_crash_pass(name)

#else
#define SPW_CRASH_POINT(name) ((void)0)
#endif

#endif
