#ifndef SPW_TESTS_SUPPORT_STUB_KV_H
#define SPW_TESTS_SUPPORT_STUB_KV_H
/*
 * A copy engine around the host's that takes registrations: memory of its own stands for what a client
 * has on its GPU, and fences fire when the test says so. One worker at a time; rig_config.wrap.
 */
#include "tests/support/worker_rig.h"

#define STUB_KV_BLOCKS 40u /* of each client; the rig's host KV has more */

struct stub_kv {
    struct spw_copier_handle host;
    uint32_t steps; /* -EAGAIN so often, then refused or not */
    int refusal;    /* with the words "memory 0: refused"    */
    int fired[RIG_CLIENTS][SPW_KV_FENCES_MAX];
    int fires_next; /* what a fence says once it was asked so and so often ... */
    uint32_t fires_at;
    uint32_t asked; /* ... of this count */
    bool lost;
    bool open[RIG_CLIENTS];
    uint32_t closes;
    uint32_t copies; /* from or to registered memory */
    struct spw_kv_record seen;
    uint8_t bytes[SPW_MAILBOX_BYTES]; /* of the record that was seen last, whole */
    uint8_t kv[RIG_CLIENTS][STUB_KV_BLOCKS * RIG_BLOCK_BYTES];
    uint32_t order[64]; /* first blocks of the copies, as they came */
};

extern struct stub_kv stub_kv;

/** Forget everything, and be what rig_config.wrap wants. */
void stub_kv_reset(void);
struct spw_copier_handle stub_kv_wrap(struct spw_copier_handle host);

#endif
