/* See bind.h. Written: affinity of the calling thread. */
#include "tools/bind.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

int spw_bind_cpus(const struct spw_set *cpus)
{
    /* the kernel's masks are words of bits, like a set */
    return syscall(SYS_sched_setaffinity, 0, sizeof cpus->word, cpus->word) < 0 ? -errno : 0;
}

const char *spw_bind_missing(int rc)
{
    switch (rc) {
    case -EPERM:
    case -EACCES:
        return "CAP_SYS_NICE is missing, or a seccomp profile denies it (docker: --cap-add "
               "SYS_NICE)";
    case -ENOSYS:
        return "a seccomp profile denies it, or the kernel has no NUMA support";
    default:
        return "the system says it can't be";
    }
}
