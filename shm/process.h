#ifndef SPW_SHM_PROCESS_H
#define SPW_SHM_PROCESS_H
/*
 * Other processes of this host: is the one with this pid still that one, and an end for it. Pids
 * decide nothing here either: that somebody is there is told by a lock, and these only say whom to
 * signal. Nothing is shared.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** When process @pid began, in ticks since the host's start, as field 22 of its stat says it; no
 * two processes of a pid have the same. 0: there is none, it has ended with all its threads and only its parent
 * has not heard of it yet, or /proc isn't this namespace's. */
uint64_t spw_process_start_ticks(pid_t pid);

/** A number of the program that process @pid runs: after an exec it has nearly always another one. 0: there is no
 * such process, or this one may not know. */
uint64_t spw_process_image(pid_t pid);

/** Inode of this process's pid namespace: pids mean the same where it is the same. 0: unknown. */
uint64_t spw_process_namespace(void);

/**
 * End process @pid by SIGKILL if it is the one that began at @start_ticks and runs the program that
 * this process runs, or one of its file name. Doesn't wait for its end.
 * 0; -ESRCH: no such process (any more), it is another one, or it can't be told; -EPERM.
 */
int spw_process_kill(uint64_t pid, uint64_t start_ticks);

#endif
