/*
 * Memory of the GPUs of a host as files. In the folder FAKE_CUDA_STATE each is held by a lock of every
 * process that has it open, so that what a dead one held is free again once nobody else has it; without
 * that folder a file has no name, and only this process counts.
 *
 *   DIR/gpuN-PID-K   its size counts while it's locked; DIR/new-PID-K isn't locked yet
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

#define PATH_BYTES 512

static int create_named(const char *dir, int device)
{
    static atomic_int made;
    char unlocked[PATH_BYTES], path[PATH_BYTES];
    int number = atomic_fetch_add(&made, 1);
    snprintf(unlocked, sizeof unlocked, "%s/new-%d-%d", dir, getpid(), number);
    snprintf(path, sizeof path, "%s/gpu%d-%d-%d", dir, device, getpid(), number);
    int fd = open(unlocked, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && (flock(fd, LOCK_SH) < 0 || rename(unlocked, path) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

int fake_state_create(int device, size_t bytes)
{
    const char *dir = fake_env("FAKE_CUDA_STATE");
    int fd = dir ? create_named(dir, device) : memfd_create("fake-cuda", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void fake_state_hold(int fd)
{
    flock(fd, LOCK_SH);
}

/* Bytes of a file that somebody holds; one that nobody does is removed. */
static uint64_t held_bytes(const char *path)
{
    struct stat state = {.st_size = 0};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(path);
    else
        fstat(fd, &state);
    close(fd);
    return (uint64_t)state.st_size;
}

uint64_t fake_state_used(int device)
{
    const char *name = fake_env("FAKE_CUDA_STATE");
    DIR *dir = name ? opendir(name) : NULL;
    char prefix[16], path[PATH_BYTES];
    uint64_t bytes = 0;
    if (!dir)
        return spw_load_relaxed(&fake.allocated);
    snprintf(prefix, sizeof prefix, "gpu%d-", device);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%.200s", name, entry->d_name);
        bytes += held_bytes(path);
    }
    closedir(dir);
    return bytes;
}
