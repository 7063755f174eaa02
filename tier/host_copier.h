#ifndef SPW_TIER_HOST_COPIER_H
#define SPW_TIER_HOST_COPIER_H
/*
 * Copy engine over plain memory, the default where there is no GPU: memcpy in the worker's own
 * thread, paced in *nominal* bytes a second so that a small payload can play a large chunk.
 *
 *   pacing    absolute: a copy is due at max(end of the one before, offered) + nominal / rate, so
 *             late polls are caught up and the achieved rate is the configured one
 *   faults    a test's table: fail the n-th copy of a kind, delay it, never end it
 *   crash     copies end with the process
 */
#include "tier/copier.h"

struct spw_host_faults {
    uint64_t fail_every[2];  /* by kind: every n-th copy ends with fail_status, 0 = none */
    int fail_status;         /* negative errno                                          */
    uint64_t delay_ns[2];    /* added to each copy's end                                */
    uint64_t stick_every[2]; /* every n-th never ends                                   */
};

struct spw_host_copier_config {
    uint64_t rate_bytes[2]; /* nominal bytes a second by kind, 0 = as fast as memory   */
    uint32_t in_flight[2];  /* limit of each stream, >= 1                              */
    struct spw_host_faults faults;
};

/** Move @copy's pieces between host KV and slot, now. */
void spw_host_copy_pieces(const struct spw_copy *copy);

int spw_host_copier_open(const struct spw_host_copier_config *config,
                         struct spw_copier_handle *out_handle);

#endif
