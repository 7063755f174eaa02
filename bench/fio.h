#ifndef SPW_BENCH_FIO_H
#define SPW_BENCH_FIO_H
/*
 * fio, which moves blocks to and from a file with io_uring and O_DIRECT: what a disk gives.
 */
#include <stdbool.h>
#include <stdint.h>

struct spw_bench_fio {
    const char *path; /* written before; absolute */
    uint64_t file_bytes, block_bytes;
    uint32_t depth, seconds;
    bool writes;
    bool registered; /* buffers, with the kernel */
    int memory_fd;   /* that they lie in */
};

struct spw_bench_fio_result {
    double rate; /* bytes a second       */
    double cpu;  /* seconds of it, a GiB */
};

/** Is there one? */
bool spw_bench_fio_found(void);
/** Blocks at random places. 0, or -EIO: it failed or said nothing that makes sense. */
int spw_bench_fio_run(const struct spw_bench_fio *fio, struct spw_bench_fio_result *out);

#endif
