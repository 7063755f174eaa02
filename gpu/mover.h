#ifndef SPW_GPU_MOVER_H
#define SPW_GPU_MOVER_H
/*
 * Puts one chunk's pieces on a stream, in the best way that this driver has: a kernel where pieces are
 * small, one batch call, or a call a piece. Private to the worker's thread; what it puts there ends in
 * the order of the stream.
 */
#include "gpu/gpu_impl.h"
#include "gpu/pieces.h"
#include "tier/copier.h"

struct spw_mover {
    struct spw_gpu *gpu;
    CUmodule module; /* NULL: no kernel */
    CUfunction gather, scatter;
    uint32_t kernel_below_bytes;
    uint64_t slot_bytes;     /* no block is larger; 0 = not limited */
    struct spw_piece *piece; /* and the lists of a batch, all with room for piece_max */
    CUdeviceptr *to, *from;
    size_t *bytes;
    uint32_t piece_max;
};

/** What to move: @planes of @count blocks, between KV and the slot. */
struct spw_move {
    enum spw_copy_kind kind;
    const struct spw_plane *plane;
    uint32_t planes;
    CUdeviceptr planes_there; /* the same in device memory, 0: no kernel */
    uint32_t vector_bytes;    /* that all of them are multiples of: 16 or 1 */
    const uint32_t *blocks;
    uint32_t
        *blocks_seen; /* room for them that the device reads until the move has ended, or NULL */
    uint32_t count;
    uint8_t *slot;
    bool pinned;     /* the slot; a batch call and a kernel take nothing else */
    bool one_by_one; /* a call a piece, even so */
};

/** @kernel_below_bytes 0, or a driver that can't: no kernel, which is no error. 0 or -ENOMEM. */
int spw_mover_init(struct spw_mover *mover, struct spw_gpu *gpu, uint32_t kernel_below_bytes);
void spw_mover_fini(struct spw_mover *mover);
/** Make room for chunks of @planes planes. 0 or -ENOMEM. */
int spw_mover_room(struct spw_mover *mover, uint32_t planes);
/** Has the driver a call for many pieces? */
bool spw_mover_has_batch(const struct spw_mover *mover);
/** Would the pieces of these planes go by the kernel? */
bool spw_mover_takes_kernel(const struct spw_mover *mover, const struct spw_plane *plane,
                            uint32_t planes);
/** Queue it. Refused: what was queued before the refusal is still on the stream. */
CUresult spw_mover_queue(struct spw_mover *mover, const struct spw_move *move, bool kernel,
                         CUstream stream);

#endif
