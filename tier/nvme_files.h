#ifndef SPW_TIER_NVME_FILES_H
#define SPW_TIER_NVME_FILES_H
/*
 * The calls of the NVMe tier that may block: made by a thread of the I/O engine, through
 * SPW_IO_CALL, on an argument that is the call's alone until it has ended.
 *
 *   names     only files of our own names are touched, relative to descriptors, never through links
 *   crash     a segment that was made but not headed is removed by the next mount; so is a directory
 *             entry whose head makes no sense
 */
#include "tier/nvme_medium.h"

#define SPW_NVME_PATH_BYTES 512u

/* A segment's file as mount found it. */
struct spw_nvme_file {
    uint32_t number;
    int fd;
    uint64_t bytes; /* of the file */
    struct spw_nvme_head head;
};

struct spw_nvme_mount {
    char dir[SPW_NVME_PATH_BYTES]; /* in: the pool's */
    uint32_t shard;
    bool want_direct;
    int lock_fd; /* in: the lock held, or -1; out: the one held now, whatever else failed */
    /* out */
    int shard_fd; /* -1: not there */
    int spaces_fd;
    bool direct;
    bool unclean;     /* another process of this boot may still be writing */
    uint32_t align;   /* of addresses and lengths of transfers; 1 when not direct */
    uint64_t removed; /* files that were no segments */
    struct spw_nvme_file *file;
    uint32_t files;
    struct spw_nvme_spaces spaces[2];
    char text[200]; /* what isn't as asked for, or why it failed */
};

/** Open everything, once the lock is ours: makes DIR/shard-K where it isn't there, tries direct I/O, reads heads and resets.
 * 0 or a negative errno with .text; then nothing is open. */
int64_t spw_nvme_mount(void *mount);
/** Give back what an ended mount holds, its descriptors too. */
void spw_nvme_mount_fini(struct spw_nvme_mount *mount);

struct spw_nvme_create {
    int shard_fd;
    bool direct;
    struct spw_nvme_file file; /* in: number, head's sizes and owner; out: fd, bytes, head */
    char text[200];
};

/** Make a segment: reserve its bytes, write its head; its records read zero. 0, -ENOSPC, ... */
int64_t spw_nvme_create(void *create);

struct spw_nvme_remove {
    int shard_fd;
    int fd; /* closed, and -1 from then on: it may be tried again */
    uint32_t number;
};

int64_t spw_nvme_remove(void *remove);

/* Is what is open still what lies there? */
struct spw_nvme_look {
    char dir[SPW_NVME_PATH_BYTES];
    uint32_t shard;
    int shard_fd;
    int lock_fd; /* in and out, as of mount */
    uint32_t count;
    struct {
        int fd;
        uint64_t bytes;
        bool gone; /* out */
    } * file;
    char text[200];
};

/** 0, or a negative errno with .text: the directory isn't there, or another one. */
int64_t spw_nvme_look(void *look);

struct spw_nvme_end {
    int shard_fd;
};

/** Nothing is under way any more: takes the mark `busy` away. */
int64_t spw_nvme_end(void *end);

/** Hold the lock of shard @shard on the directory open as @dir (called @path in words): @fd is the one
 * held so far, or -1, and stays as it is if this fails. 0, or a negative errno with @text. In
 * nvme_lock.c. */
int spw_nvme_lock_keep(int dir, const char *path, uint32_t shard, int *fd, char text[200]);

/** Name of a segment's file. */
void spw_nvme_segment_name(uint32_t number, char out[32]);

#endif
