#ifndef SPW_TESTS_SUPPORT_STUB_COLD_H
#define SPW_TESTS_SUPPORT_STUB_COLD_H
/*
 * A tier below in memory, on whatever clock poll is told: as slow, small, late or failing as a test
 * says. What it holds outlives the worker that opened it, as a medium does.
 */
#include "shm/atomic.h"
#include "tier/cold.h"

#define STUB_CHUNKS 2048u
#define STUB_BYTES  128u /* of a chunk at most */

struct stub_chunk {
    bool held;
    struct spw_cold_name name;
    uint64_t bytes;
    uint64_t age;
    uint8_t payload[STUB_BYTES];
};

struct stub_transfer {
    bool open, put;
    uint32_t id;
    uint64_t due_ns;
    uint8_t *payload;
    void *tag;
};

struct spw_cold {
    /* what the test sets; zero: at once, all there is, no failures */
    uint64_t put_ns, get_ns;    /* of a transfer; puts go one after the other           */
    uint32_t puts_max;          /* under way, 0 = 64                                    */
    uint32_t capacity;          /* chunks, 0 = STUB_CHUNKS                              */
    int put_refusal;            /* what put answers                                     */
    int put_status, get_status; /* of ends                                            */
    int close_status;           /* if negative, what close answers: transfers go on     */
    bool never;                 /* no transfer ends                                     */
    bool down;
    bool absent;            /* it can't be opened                               */
    bool reset_waits;       /* resets don't end                                     */
    spw_atomic32 held_back; /* 1: no transfer ends, and none is due; any thread clears it */
    /* what the test reads */
    uint32_t puts, gets, in_flight, held, opens;
    uint32_t shares; /* told; the last one: .share; it makes room for all alike */
    struct spw_share share;
    void *reset_tag; /* of the last reset */
    bool summed;     /* the last put came with a checksum: .sum */
    uint64_t sum;
    char order[64]; /* of transfers that were taken: p or g; the first 63 */
    /* its own */
    struct spw_cold_listener listener;
    void (*wake)(void *ctx); /* the worker's */
    void *wake_ctx;
    uint64_t now_ns, free_ns, age;
    uint32_t found; /* chunks below it were told, or came since */
    struct stub_chunk chunk[STUB_CHUNKS];
    struct stub_transfer transfer[64];
    struct spw_cold_event event[256];
    uint32_t events;
};

/** As spw_worker_config.open_cold; @ctx is a struct spw_cold. */
int stub_cold_open(void *ctx, const struct spw_cold_listener *listener, void (*wake)(void *ctx),
                   void *wake_ctx, struct spw_cold_handle *out_cold, struct spw_error *err);
/** The medium knows of the reset with this tag. */
void stub_cold_end_reset(struct spw_cold *stub, void *tag);
/** What timed out is over now. */
void stub_cold_release_all(struct spw_cold *stub);

#endif
