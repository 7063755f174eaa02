#ifndef SPW_GPU_KV_H
#define SPW_GPU_KV_H
/*
 * One client's registered GPU memory in this process: mapped, checked, tried, expanded into planes.
 * Private to the worker's thread; the record is input from another process and every value of it is
 * checked here. Mappings go with kv_close, or with the process.
 */
#include "gpu/mover.h"

/** Planes of one group, in the order of the tensors. */
struct spw_kv_group {
    struct spw_plane *plane;
    uint32_t planes;
    uint32_t vector_bytes;
    CUdeviceptr planes_there; /* 0: no kernel for this group                        */
    bool one_by_one;          /* a call a piece                                     */
    uint32_t failed;          /* ways whose trial failed: SPW_GPU_BATCH_FAILED, ..._KERNEL_... */
    CUresult code;            /* of the first of them; CUDA_SUCCESS: other bytes    */
};

enum spw_kv_phase { SPW_KV_NONE, SPW_KV_MAPPING, SPW_KV_FENCES, SPW_KV_TRYING, SPW_KV_OPEN };

struct spw_kv {
    enum spw_kv_phase phase;
    uint32_t next; /* of the memories, fences or tensors */
    struct spw_kv_shape shape;
    struct spw_kv_group group[SPW_GROUP_COUNT_MAX];
    CUdeviceptr memory[SPW_KV_MEMORIES_MAX];
    uint64_t memory_bytes[SPW_KV_MEMORIES_MAX]; /* that may be used from its address on        */
    bool mapped[SPW_KV_MEMORIES_MAX]; /* by this record, and not by an earlier equal one */
    CUevent fence[SPW_KV_FENCES_MAX];
    bool imported; /* fences are ours to destroy */
    uint32_t memories, fences;
};

/** One step: -EAGAIN there are more, 0 all is open, else refused with words and nothing is left.
 * @stream  one that nothing else runs on */
int spw_kv_step(struct spw_kv *kv, struct spw_mover *mover, const struct spw_kv_record *record,
                CUstream stream, struct spw_error *err);
/** Let go of everything, however far it came. */
void spw_kv_close(struct spw_kv *kv, struct spw_mover *mover);
/** Memory that is mapped. */
uint32_t spw_kv_handles(const struct spw_kv *kv);

#endif
