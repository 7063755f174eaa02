/*
 * trampoline PARENT_PID PROGRAM [ARGUMENT...]: becomes PROGRAM, which the kernel kills when the
 * thread that started it ends. posix_spawn can't ask for that by itself.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)atoi(argv[1]))
        return 1; /* it ended before we asked */
    execvp(argv[2], argv + 2);
    return 127;
}
