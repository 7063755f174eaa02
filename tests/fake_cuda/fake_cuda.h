#ifndef SPW_TESTS_FAKE_CUDA_FAKE_CUDA_H
#define SPW_TESTS_FAKE_CUDA_FAKE_CUDA_H
/*
 * A stand-in for the CUDA driver: a libcuda.so.1 of this project's own, for tests alone, that is loaded
 * by its full path and never installed. What a test may set and read; it gets it by
 * dlsym("fake_cuda_control"). Processes that a test starts are told by the environment instead:
 *
 *   FAKE_CUDA_DEVICES   UUID@PCI,...: the GPUs of the host (default one)
 *   CUDA_VISIBLE_DEVICES ordinals or UUIDs: which of them this process sees, and in which order
 *   FAKE_CUDA_VERSION   of the driver (default 13000); FAKE_CUDA_HIDE=NAME,...: functions it lacks
 *   FAKE_CUDA_RATE, FAKE_CUDA_REGISTRATION_CAP, FAKE_CUDA_NS_PER_MIB, FAKE_CUDA_STREAM_CAPACITY
 *                       what is set below, from the start
 *   FAKE_CUDA_FAULTS    as set_faults() below
 *   FAKE_CUDA_UNPINNABLE a number: the GPU of the host that registers no memory that processes share
 *   FAKE_CUDA_TURN      a file: two registrations of such memory at a time, by whatever processes, and the
 *                       later one fails
 *   FAKE_CUDA_STATE     a folder: how much memory of a GPU is free counts what every process holds
 *
 * What it models: streams that are threads and keep their order, events, errors that come later and
 * stick, memory that only copies reach (the host's own touch is a SIGSEGV), memory and events shared
 * between processes, the rules of registered host memory. What it can't show: speed, and the bugs of
 * real drivers.
 */
#include "shm/atomic.h"

struct fake_cuda {
    /* counted */
    spw_atomic64 copies; /* executed pieces */
    spw_atomic64 copied_bytes;
    spw_atomic64 copied_at; /* priority of the stream of the last piece, a signed number */
    spw_atomic64 batches, launches;
    spw_atomic64 unpinned;         /* pieces from or to memory that isn't registered   */
    spw_atomic64 registered;       /* ranges of host memory                            */
    spw_atomic64 registrations;    /* calls that registered                            */
    spw_atomic64 unregistrations;  /* and that undid it                                */
    spw_atomic64 open_handles;     /* memory of other processes                        */
    spw_atomic64 allocated;        /* bytes of this process                            */
    spw_atomic64 events;           /* that exist                                       */
    spw_atomic64 full_waits;       /* calls that waited for room on their stream       */
    spw_atomic64 given_back_early; /* memory that a stream still had work for: always
                                      the caller's mistake; the call waits            */
    /* set */
    spw_atomic64 rate_bytes;       /* a second, of each stream; 0 = not limited       */
    spw_atomic64 registration_cap; /* bytes of one call, 0 = none                     */
    spw_atomic64 ns_per_mib;       /* that a registration takes                       */
    spw_atomic64 stream_capacity;  /* operations on a stream, then calls wait         */
    spw_atomic64 version;
    /* "NAME:N:CODE[:sticky][@GPU],...": the Nth call of cuNAME from now on gives CODE, "N-" all from
       the Nth on. NAME "copy": the Nth piece that is copied, which the next call tells. Sticky ones,
       those of "copy", and codes that no context survives are what every call of the process gives
       from then on, and nothing is copied any more. NAMEs that no call ever tells, whatever CODE but 0
       is: "byte", the Nth piece gets a wrong byte; "behind", the byte behind it is changed, which must
       be somebody's; "early", the Nth event that is recorded has happened at once;
       "stall", the Nth copy doesn't end; "stall-kernel", nor does the Nth kernel. GPU: only in processes
       whose GPU is that one of FAKE_CUDA_DEVICES, from 0 */
    void (*set_faults)(const char *faults);
};

/* The library's one name that the real one doesn't have. */
struct fake_cuda *fake_cuda_control(void);

#endif
