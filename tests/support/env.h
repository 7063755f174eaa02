#ifndef SPW_TESTS_SUPPORT_ENV_H
#define SPW_TESTS_SUPPORT_ENV_H
/*
 * What tests need of the machine: child processes that can't outlive the test, folders that are
 * gone afterwards, a small file system of one's own.
 *
 *   roles     called by the test's process, from one thread; nothing here uses Criterion
 *   crash     a test that dies takes its children with it (PR_SET_PDEATHSIG); a folder that it
 *             made stays behind then
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SUPPORT_SKIP       77  /* exit status: the machine doesn't allow what is to be tested */
#define SUPPORT_SIGNALLED  256 /* support_wait: + the number of the signal that ended it      */
#define SUPPORT_PATH_BYTES 128 /* room for a path of support_shm_dir                          */

/**
 * Start a program that dies with the calling thread.
 *
 * @argv            argv[0] is a path, or a name to look up in PATH; ends with NULL
 * @out_stdout_fd   the reading end of its standard output, close it yourself; NULL: its output
 *                  goes to standard error, since a test's own output speaks TAP
 *
 * Returns the pid, for support_wait or support_kill; else a negative errno. A program that can't
 * be run shows as exit status 127.
 */
pid_t support_spawn(const char *const argv[], int *out_stdout_fd);

/**
 * Fork a child that runs @body, exits with what it returns, and dies with the calling thread.
 *
 * The child must use no cr_ macro and, where the parent has several threads, no malloc.
 * Returns the pid, for support_wait or support_kill; else a negative errno.
 */
pid_t support_fork(int (*body)(void *arg), void *arg);

/**
 * Wait for a child and reap it; kill it when @timeout_ms is over.
 *
 * Returns its exit status 0..255, SUPPORT_SIGNALLED + n when signal n ended it, -ETIMEDOUT when
 * it had to be killed, or another negative errno.
 */
int support_wait(pid_t pid, int timeout_ms);

/** End a child by SIGKILL and reap it. Returns like support_wait. */
int support_kill(pid_t pid);

/**
 * Read one line, without its newline, from a child's output.
 *
 * Returns its length; -ETIMEDOUT, -EPIPE at the end of the output, -EMSGSIZE when it has no
 * newline within @bytes.
 */
int support_read_line(int fd, char *line, size_t bytes, int timeout_ms);

/** Names in a folder, or a negative errno. */
int support_count_names(const char *dir);

/**
 * Make a folder for shared memory objects, on the file system of shared memory where there is one.
 *
 * @out_path  caller's array of SUPPORT_PATH_BYTES
 *
 * The folder and all in it is removed when the process that made it exits, or by
 * support_remove_dir. Returns 0 or a negative errno.
 */
int support_shm_dir(char *out_path);

/** Remove a folder and all in it. A folder that isn't there is fine. */
void support_remove_dir(const char *path);

/**
 * Mount an empty tmpfs of @size_bytes over the folder @path, seen by this process and its children
 * only and gone with them. Call it in a child of your own: it leaves the mount namespace.
 *
 * Returns 0 or a negative errno; -EPERM: not allowed here, exit with SUPPORT_SKIP.
 */
int support_private_tmpfs(const char *path, uint64_t size_bytes);

#endif
