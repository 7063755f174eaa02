#ifndef SPW_TESTS_SUPPORT_NOSYS_H
#define SPW_TESTS_SUPPORT_NOSYS_H
/*
 * Proof that code makes no system call, in two ways.
 *
 *   run     in a forked child under a seccomp filter that lets exit_group through and nothing
 *           else: nothing can escape it, whatever library it hides in. Forked children don't have
 *           spillway's mappings, so the child attaches for itself, in @prepare
 *   watch   in this thread, by syscall user dispatch: for code that can't run in a child
 *
 * Page faults are no system calls; clock_gettime is none where the vDSO serves it. A use of these
 * needs its control: the same body with one system call in it must be caught. Write it so that the
 * compiler can't leave it out.
 */

/**
 * Run @prepare, then @body with system calls forbidden, in a child.
 *
 * @prepare      returns 0, or what ends the child before @body is run; may be NULL
 * @body         returns 0 if it saw what it expected; what it writes is lost with the child
 * @out_number   the number of the first system call made by @body, if it made one
 *
 * Returns 0: @body returned 0 and made no system call; 1: it made one, and was ended there;
 * -ECANCELED: @prepare or @body returned another value than 0; -ECHILD: it crashed; -ETIMEDOUT:
 * it took over 60 s; other negative errnos: this machine doesn't let us fork or filter.
 */
int spw_nosys_run(int (*prepare)(void *arg), int (*body)(void *arg), void *arg, long *out_number);

/**
 * Watch this thread for its next system call, until spw_nosys_watch_end. The call is let through
 * and ends the watch. One watch at a time in a process.
 *
 * Returns 0 or a negative errno: -ENOTSUP, -EINVAL where the machine can't.
 */
int spw_nosys_watch_begin(void);

/**
 * End the watch.
 *
 * Returns 0: no system call since spw_nosys_watch_begin; 1: at least one, @out_number is the first.
 */
int spw_nosys_watch_end(long *out_number);

#endif
