#ifndef SPW_TIER_ETA_H
#define SPW_TIER_ETA_H
/*
 * When a store will have ended: from its place in its worker's stream and what that stream says of
 * itself (struct spw_stream). Pure but for the reads; any process, no system call.
 *
 *   place     bytes of the stream up to and with the chunk, in the order in which it goes on now;
 *             0: not queued yet, it will go behind everything that is
 *   awaited   a chunk that nobody awaits yet would go ahead of all such chunks if somebody did: its
 *             place would then be spw_stream_place_awaited()
 */
#include <stdbool.h>

#include "shm/layout.h"

#define SPW_ETA_UNKNOWN UINT64_MAX
#define SPW_STALL_NS    1000000000ull /* no progress for so long, a few chunks' time besides */

/** What was read of a stream. */
struct spw_stream_sample {
    uint64_t done_bytes;
    uint64_t queued_bytes;
    uint64_t awaited_bytes;
    uint64_t rate_bytes_per_s;
    uint64_t progress_ns;
};

/** Relaxed reads of one line. */
void spw_stream_read(const struct spw_stream *stream, struct spw_stream_sample *out_sample);

/** The place that @ahead_bytes more of awaited chunks, the last one included, would have. */
uint64_t spw_stream_place_awaited(const struct spw_stream_sample *sample, uint64_t ahead_bytes);

/**
 * Nanoseconds from @now_ns (CLOCK_MONOTONIC) until the chunk at @place_bytes is stored.
 *
 * @place_bytes  its place; 0 = not queued yet
 * @chunk_bytes  its own nominal bytes
 *
 * SPW_ETA_UNKNOWN: no copy has ended yet, or the stream has made no progress for SPW_STALL_NS and
 * four times what such a chunk takes. Never overflows, whatever the bytes say.
 */
uint64_t spw_stream_eta(const struct spw_stream_sample *sample, uint64_t place_bytes,
                        uint64_t chunk_bytes, uint64_t now_ns);

#endif
