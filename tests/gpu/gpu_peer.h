#ifndef SPW_TESTS_GPU_GPU_PEER_H
#define SPW_TESTS_GPU_GPU_PEER_H
/* Another process with device memory, peer_gpu.c, as a test sees it. What fails there fails the test. */
#include <sys/types.h>

#include "gpu/gpu_impl.h"

#define PEER_MEMORIES 3u
#define PEER_FENCES   2u

struct gpu_peer {
    pid_t pid;
    int to, from;
    uint8_t uuid[16]; /* of the GPU that it has as its first */
    CUipcMemHandle memory[PEER_MEMORIES];
    CUipcEventHandle fence[PEER_FENCES];
};

/** @memories of @bytes each, filled; it sees this process's environment. */
void gpu_peer_spawn(struct gpu_peer *peer, uint32_t memories, uint32_t bytes);
/** Give it an order, a letter of peer_gpu.c's, and return its answer. */
char gpu_peer_ask(struct gpu_peer *peer, char order);
/** End it, or kill it; it is gone when this returns. */
void gpu_peer_end(struct gpu_peer *peer, bool kill_it);

#endif
