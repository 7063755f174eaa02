#ifndef SPW_TESTS_SUPPORT_DENY_H
#define SPW_TESTS_SUPPORT_DENY_H
/*
 * A kernel that refuses one system call: a seccomp filter, for the rest of the process's life.
 * Use it in a forked child.
 */

/** System call @number fails with @error from now on. 0 or a negative errno. */
int support_deny(long number, int error);

/** The same for calls whose argument @index (0..5) is @value, in its low 32 bits; others pass. */
int support_deny_argument(long number, unsigned index, unsigned value, int error);

#endif
