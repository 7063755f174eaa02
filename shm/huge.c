/* See huge.h. */
#include "shm/huge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shm/base.h"

#define REFUSED_MAX 16u /* pieces in a row: then there are no more to be had */

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

void *spw_huge_map(int fd, int protection, uint64_t bytes)
{
    /* an address range to choose from, then the file over the part of it that is aligned */
    uint64_t room = bytes + SPW_HUGE_BYTES;
    uint8_t *range =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return MAP_FAILED;
    uint8_t *start = range + (SPW_HUGE_BYTES - (uintptr_t)range % SPW_HUGE_BYTES) % SPW_HUGE_BYTES;
    uint8_t *at = mmap(start, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
        int error = errno;
        munmap(range, room);
        errno = error;
        return MAP_FAILED;
    }
    uint64_t mapped = spw_align_up(bytes, 4096), before = (uint64_t)(at - range);
    if (before)
        munmap(range, before);
    if (room > before + mapped)
        munmap(at + mapped, room - before - mapped);
    return at;
}

int spw_huge_collapse(void *start, uint64_t bytes)
{
    int error = 0;
    uint32_t refused = 0;
    for (uint64_t off = 0; off + SPW_HUGE_BYTES <= bytes && refused < REFUSED_MAX;
         off += SPW_HUGE_BYTES) {
        bool done = madvise((uint8_t *)start + off, SPW_HUGE_BYTES, MADV_COLLAPSE) == 0;
        error = done ? error : -errno;
        refused = done ? 0 : refused + 1;
    }
    return error;
}

/* "7f0000000000-7f0000200000 rw-s ..." begins a mapping; lines "Name:  12 kB" follow. */
uint64_t spw_mapping_bytes(const void *start, const char *name)
{
    size_t length = strlen(name);
    char line[512];
    uint64_t kib = 0;
    bool ours = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *end;
        uintptr_t from = (uintptr_t)strtoull(line, &end, 16);
        if (*end == '-')
            ours = from == (uintptr_t)start;
        else if (ours && strncmp(line, name, length) == 0 && line[length] == ':')
            kib = strtoull(line + length + 1, NULL, 10);
    }
    if (file)
        fclose(file);
    return kib * 1024;
}

uint64_t spw_huge_mapped(const void *start)
{
    return spw_mapping_bytes(start, "ShmemPmdMapped");
}
