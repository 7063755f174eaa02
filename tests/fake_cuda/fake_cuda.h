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
 *   FAKE_CUDA_RATE      bytes a second of a stream (default 0: not limited)
 *   FAKE_CUDA_FAULTS    as .faults below
 *   FAKE_CUDA_TURN      a file: two registrations at a time on the host, and the later one fails
 *
 * What it models: streams that are threads and keep their order, events, errors that come later and
 * stick, memory that only copies reach (the host's own touch is a SIGSEGV), memory and events shared
 * between processes, the rules of registered host memory. What it can't show: speed, and the bugs of
 * real drivers.
 */
#include <stdatomic.h>
#include <stdint.h>

struct fake_cuda {
    /* counted */
    atomic_ulong copies; /* executed pieces */
    atomic_ulong copied_bytes;
    atomic_ulong batches, launches;
    atomic_ulong unpinned;      /* pieces from or to memory that isn't registered */
    atomic_ulong registered;    /* ranges of host memory                          */
    atomic_ulong registrations; /* calls that registered                          */
    atomic_ulong unregistrations;
    atomic_ulong open_handles; /* memory of other processes                       */
    atomic_ulong allocated;    /* bytes of this process                           */
    atomic_ulong events;       /* that exist */
    /* set */
    atomic_ulong rate_bytes;       /* a second, of each stream; 0 = not limited        */
    atomic_ulong registration_cap; /* bytes of one call, 0 = none                      */
    atomic_ulong ns_per_mib;       /* that a registration takes                        */
    atomic_int version;
    /* "NAME:N:CODE,...": the Nth call of cuNAME from now on gives CODE, "N-" all from the Nth on. NAME
       "copy": the Nth piece that is copied, which the next call tells. Codes that a context doesn't
       survive, and those of "copy", are what every call of the process gives from then on, and
       nothing is copied any more */
    void (*set_faults)(const char *faults);
};

struct fake_cuda *fake_cuda_control(void);

#endif
