/* Crash points of test builds. Process-local. */
#include "shm/crash_point.h"

#ifdef SPW_CRASH_POINTS

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char *armed;
static uint32_t passes_left;

void spw_crash_arm(const char *name, uint32_t nth)
{
    armed = name;
    passes_left = nth;
}

void spw_crash_pass(const char *name)
{
    if (armed && strcmp(armed, name) == 0 && --passes_left == 0)
        kill(getpid(), SIGKILL);
}

#else
typedef int spw_crash_points_are_left_out;
#endif
