#ifndef SPW_TESTS_PROCESS_SLOW_DISK_H
#define SPW_TESTS_PROCESS_SLOW_DISK_H
/*
 * A file on a disk that reads slowly: what processes of a cgroup of its own read from the disk is
 * held to a rate by the kernel (blkio.throttle.read_bps_device).
 *
 *   limits    needs root, the blkio hierarchy of cgroup v1 and a file system on one block device;
 *             where one is missing it says which
 *   ends      file and cgroup are gone after slow_disk_close(); a test that dies leaves them behind
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slow_disk {
    char file[128];
    char group[128];
    char mounted[64]; /* hierarchy that we have mounted, or "" */
};

/** A file of @bytes in the working directory, each of them @byte. False: not on this machine, @out_why says why. */
bool slow_disk_open(struct slow_disk *disk, uint64_t bytes, uint8_t byte, uint64_t bytes_per_s,
                    char *out_why, size_t why_bytes);
/** Let the calling process read slowly from now on. 0 or a negative errno. */
int slow_disk_enter(const struct slow_disk *disk);
void slow_disk_close(struct slow_disk *disk);

#endif
