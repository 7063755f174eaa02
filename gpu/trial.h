#ifndef SPW_GPU_TRIAL_H
#define SPW_GPU_TRIAL_H
/*
 * Copies of a group are tried end to end before anybody's chunk depends on them: a pattern is written into
 * two of its blocks, read back and compared, by each way that its copies may go. What was there is put back.
 * Private to the worker's thread; nothing is left but what the group may use.
 */
#include "gpu/kv.h"

/**
 * Try @group of @blocks blocks, @block_bytes each in all its planes. A kernel or a batch call that fails or
 * moves other bytes is left out from then on, and so are both where host memory can't be registered, which
 * @group says; a call a piece must work.
 *
 * @stream  one that nothing else runs on
 *
 * 0, or a negative errno with words in @err that go on from "a trial copy of group N".
 */
int spw_trial(struct spw_kv_group *group, uint64_t block_bytes, uint32_t blocks,
              struct spw_mover *mover, CUstream stream, struct spw_error *err);

#endif
