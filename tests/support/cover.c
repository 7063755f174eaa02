/* A mount namespace of the test's own; see cover.h. */
#include "tests/support/cover.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

int support_cover(const char *path, const char *with)
{
    static bool apart;
    if (!apart && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)))
        return -errno;
    apart = true;
    return mount(with, path, NULL, MS_BIND, NULL) ? -errno : 0;
}

int support_put(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "we");
    if (!file)
        return -errno;
    fputs(text, file);
    return fclose(file) ? -errno : 0;
}
