#ifndef SPW_TESTS_SUPPORT_DENY_H
#define SPW_TESTS_SUPPORT_DENY_H
/*
 * A kernel that refuses one system call: a seccomp filter, for the rest of the process's life.
 * Use it in a forked child.
 */

/** System call @number fails with @error from now on. 0 or a negative errno. */
int support_deny(long number, int error);

#endif
