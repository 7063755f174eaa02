#ifndef SPW_SHM_HUGE_H
#define SPW_SHM_HUGE_H
/*
 * Huge pages under a shard's payload, made of pages that the file has already (MADV_COLLAPSE): all
 * bytes were reserved before, so a shortage leaves normal pages and never a fault. Reserved pages
 * (hugetlb) are not used: mapped beyond their number, they kill who touches them.
 *
 * Nothing is shared; page tables of this process, and the pages of the file, change.
 */
#include <stdint.h>

#define SPW_HUGE_BYTES (2ull << 20)

/** mmap() of a file from its start, shared, at an address that huge pages fit under. MAP_FAILED and
 * errno as mmap(). */
void *spw_huge_map(int fd, int protection, uint64_t bytes);

/**
 * Put whole huge pages of [@start, @start + @bytes) under it; @start as spw_huge_map() gave it.
 * Takes about 3 ms a MiB the first time, next to nothing where others have done it. 0; -errno of the
 * last piece that was refused: its pages stay as they were.
 */
int spw_huge_collapse(void *start, uint64_t bytes);

/** Bytes of the mapping at @start that this process has mapped by huge pages, as the kernel says. */
uint64_t spw_huge_mapped(const void *start);
/** What smaps says of the mapping at @start under @name ("Rss"), in bytes; 0 for nothing. */
uint64_t spw_mapping_bytes(const void *start, const char *name);

#endif
