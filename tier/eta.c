/* See eta.h. Every value comes from another process: sums saturate, differences stop at 0. */
#include "tier/eta.h"

void spw_stream_read(const struct spw_stream *stream, struct spw_stream_sample *out_sample)
{
    *out_sample = (struct spw_stream_sample){
        .done_bytes = spw_load_relaxed(&stream->bytes_done),
        .queued_bytes = spw_load_relaxed(&stream->bytes_queued),
        .awaited_bytes = spw_load_relaxed(&stream->bytes_awaited),
        .rate_bytes_per_s = spw_load_relaxed(&stream->rate_bytes_per_s),
        .progress_ns = spw_load_relaxed(&stream->progress_ns),
    };
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t beyond(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t copy_ns(uint64_t bytes, uint64_t rate_bytes_per_s)
{
    unsigned __int128 ns = (unsigned __int128)bytes * 1000000000u / rate_bytes_per_s;
    return ns < SPW_ETA_UNKNOWN ? (uint64_t)ns : SPW_ETA_UNKNOWN - 1;
}

uint64_t spw_stream_place_awaited(const struct spw_stream_sample *sample, uint64_t ahead_bytes)
{
    uint64_t from =
        sample->awaited_bytes > sample->done_bytes ? sample->awaited_bytes : sample->done_bytes;
    return add(from, ahead_bytes);
}

uint64_t spw_stream_eta(const struct spw_stream_sample *sample, uint64_t place_bytes,
                        uint64_t chunk_bytes, uint64_t now_ns)
{
    if (sample->rate_bytes_per_s == 0)
        return SPW_ETA_UNKNOWN;
    uint64_t one_ns = copy_ns(chunk_bytes, sample->rate_bytes_per_s);
    uint64_t since_ns = beyond(now_ns, sample->progress_ns);
    bool busy = sample->queued_bytes > sample->done_bytes;
    if (place_bytes == 0)
        place_bytes = add(sample->queued_bytes, chunk_bytes);
    if (busy && since_ns > SPW_STALL_NS && (since_ns - SPW_STALL_NS) / 4 > one_ns)
        return SPW_ETA_UNKNOWN;
    uint64_t left_ns = copy_ns(beyond(place_bytes, sample->done_bytes), sample->rate_bytes_per_s);
    return busy ? beyond(left_ns, since_ns < one_ns ? since_ns : one_ns) : left_ns;
}
