/* See process.h. Reads /proc; the process is held by a pidfd while it is looked at, so that the
 * one that was looked at is the one that is signalled. */
#include "shm/process.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAT_BYTES 1024

/* Fields of /proc/PID/stat, counted from 1; the first one behind the name, which may hold anything, is
 * the state. */
enum { FIELD_STATE = 3, FIELD_THREADS = 20, FIELD_TICKS = 22, FIELD_STACK = 28 };

/* Is /proc that of this process's own pid namespace? In a new one it may still be the old one's. */
static bool proc_is_ours(void)
{
    char text[32] = "";
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);
    return n > 0 && strtol(text, NULL, 10) == getpid();
}

/* NULL: there are not so many. */
static const char *field_at(const char *behind_name, int field)
{
    const char *at = behind_name;
    for (int i = FIELD_STATE; at && i <= field; i++)
        at = strchr(at + 1, ' ');
    return at ? at + 1 : NULL;
}

/* What stands behind the name of process @pid, in @text; NULL: there is none, or it has ended. */
static const char *read_stat(pid_t pid, char text[STAT_BYTES])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = proc_is_ours() ? fopen(path, "re") : NULL;
    size_t n = file ? fread(text, 1, STAT_BYTES - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    const char *behind_name = strrchr(text, ')');
    const char *state = field_at(behind_name, FIELD_STATE);
    const char *threads = field_at(behind_name, FIELD_THREADS);
    if (!threads || (*state == 'Z' && strtol(threads, NULL, 10) <= 1))
        return NULL;
    return behind_name;
}

uint64_t spw_process_start_ticks(pid_t pid)
{
    char text[STAT_BYTES];
    const char *ticks = field_at(read_stat(pid, text), FIELD_TICKS);
    return ticks ? strtoull(ticks, NULL, 10) : 0;
}

uint64_t spw_process_image(pid_t pid)
{
    char text[STAT_BYTES];
    const char *stack = field_at(read_stat(pid, text), FIELD_STACK);
    return stack ? strtoull(stack, NULL, 10) : 0;
}

uint64_t spw_process_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* The file name of a program, without what the kernel adds to that of a removed file; in @path. */
static const char *program_name(const char *link, char *path)
{
    static const char removed[] = " (deleted)";
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n <= 0)
        return NULL;
    path[n] = '\0';
    char *end = path + n - (sizeof removed - 1);
    if (end > path && strcmp(end, removed) == 0)
        *end = '\0';
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool same_program(pid_t pid)
{
    char link[64], path[2][PATH_MAX];
    snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
    const char *theirs = program_name(link, path[0]);
    const char *ours = program_name("/proc/self/exe", path[1]);
    return theirs && ours && strcmp(theirs, ours) == 0;
}

int spw_process_kill(uint64_t pid, uint64_t start_ticks)
{
    if (pid <= 1 || pid > INT_MAX || (pid_t)pid == getpid() || start_ticks == 0)
        return -ESRCH;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (fd < 0)
        return errno == ENOSYS ? -ESRCH : -errno;
    int rc = -ESRCH;
    if (spw_process_start_ticks((pid_t)pid) == start_ticks && same_program((pid_t)pid))
        rc = syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0 ? 0 : -errno;
    close(fd);
    return rc;
}
