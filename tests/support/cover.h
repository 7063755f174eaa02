#ifndef SPW_TESTS_SUPPORT_COVER_H
#define SPW_TESTS_SUPPORT_COVER_H
/*
 * Folders of sysfs covered by a test's own, so that a real program sees a host that isn't there. Seen by
 * this process and those that it starts, nobody else. Use it in a forked child.
 */

/** What lies at @path is what the folder @with holds, from now on. 0 or a negative errno: not here. */
int support_cover(const char *path, const char *with);

/** Write @text into the file @path below the folder @root, with the folders above it. 0 or a negative
 * errno. */
int support_put(const char *root, const char *path, const char *text);

#endif
