/*
 * Both I/O engines at once: for each a thread that submits and polls, the engine's own threads, and a
 * file. Transfers of random sizes, urgent or not, with syncs and calls between them. Each read must
 * give what was last written there, with its checksum, and each transfer must end once. Shared: an
 * engine's lists; cells and what is known of them are the submitting thread's.
 */
#include "tests/stress/stress.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <xxhash.h>

#include "shm/atomic.h"
#include "tier/io.h"

static const char *const mutants[] = {NULL};

#define DEPTH      8u
#define CELLS      (DEPTH * SPW_IO_WAITING)
#define CELL_BYTES 16384u
#define STALL_NS   20000000000ull

static struct stress run; /* fixed before the threads start */

enum cell_state { IDLE, WRITES, READS };

struct cell {
    enum cell_state state;
    uint32_t bytes; /* last written, or being written */
    uint64_t stamp; /* what they are                  */
    uint8_t buffer[CELL_BYTES];
};

struct side {
    enum spw_io_choice engine;
    struct spw_io_handle io;
    int fd;
    uint64_t state, transfers, wrong;
    uint32_t open, others; /* transfers; syncs and calls among them */
    spw_atomic64 wakes;    /* there were some */
    struct cell cell[CELLS];
};

static void note_wake(void *ctx)
{
    /* relaxed: threads of the engine all store the same */
    spw_store_relaxed(&((struct side *)ctx)->wakes, 1);
}

static int64_t make_call(void *arg)
{
    return ((struct side *)arg)->fd < 0 ? -EBADF : 7;
}

static uint8_t byte_of(uint64_t stamp, uint32_t at)
{
    return (uint8_t)((stamp + at / 64) * 0x9e3779b97f4a7c15ull >> 56);
}

/* Any idle cell: a write of what is new, or a read of what was written. */
static void begin(struct side *side, struct cell *cell)
{
    uint64_t random = stress_random(&side->state);
    bool reads = cell->bytes != 0 && random % 2;
    struct spw_io io = {.op = reads ? SPW_IO_READ : SPW_IO_WRITE,
                        .fd = side->fd,
                        .offset = (uint64_t)(cell - side->cell) * CELL_BYTES,
                        .buffer = cell->buffer,
                        .urgent = (random >> 8 & 1) != 0,
                        .tag = cell};
    uint32_t bytes = reads ? cell->bytes : 1 + (uint32_t)(random >> 16) % CELL_BYTES;
    uint64_t stamp = reads ? cell->stamp : random;
    for (uint32_t i = 0; i < bytes; i++)
        cell->buffer[i] = reads ? 0 : byte_of(stamp, i);
    io.sum_base = cell->buffer;
    io.bytes = io.sum_bytes = bytes;
    if (side->io.ops->submit(side->io.engine, &io) < 0)
        return; /* a sync or a call has its place */
    cell->state = reads ? READS : WRITES;
    cell->bytes = bytes;
    cell->stamp = stamp;
    side->open++;
}

static void begin_other(struct side *side, uint64_t random)
{
    struct spw_io io = {.op = random & 1 ? SPW_IO_CALL : SPW_IO_SYNC, .fd = side->fd};
    io.call = make_call;
    io.arg = side;
    if (side->io.ops->submit(side->io.engine, &io) < 0)
        return;
    side->open++;
    side->others++;
}

static void check_end(struct side *side, const struct spw_io_end *end)
{
    struct cell *cell = end->tag;
    side->open--;
    side->transfers++;
    if (!cell) {
        side->wrong += side->others == 0 || (end->result != 0 && end->result != 7);
        side->others--;
        return;
    }
    side->wrong += cell->state == IDLE || end->result != (int64_t)cell->bytes;
    side->wrong += end->sum != XXH3_64bits(cell->buffer, cell->bytes);
    for (uint32_t i = 0; i < cell->bytes; i++) {
        if (cell->buffer[i] != byte_of(cell->stamp, i)) {
            side->wrong++;
            break;
        }
    }
    cell->state = IDLE;
}

static void *churn(void *arg)
{
    struct side *side = arg;
    struct spw_io_end end[8];
    uint64_t until = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    while (side->open != 0 || stress_now_ns() < until) {
        uint64_t random = stress_random(&side->state);
        struct cell *cell = &side->cell[random % CELLS];
        bool begins = stress_now_ns() < until;
        if (begins && (random >> 32) % 64 == 0)
            begin_other(side, random >> 40);
        else if (begins && cell->state == IDLE)
            begin(side, cell);
        int count = side->io.ops->poll(side->io.engine, end, 8);
        for (int i = 0; i < count; i++)
            check_end(side, &end[i]);
        if (count == 0)
            sched_yield();
        if (stress_now_ns() > until + STALL_NS) {
            side->wrong += side->open;
            break;
        }
    }
    return NULL;
}

static int open_side(struct side *side, enum spw_io_choice engine, uint64_t seed)
{
    char path[256];
    const char *folder = getenv("TMPDIR");
    const struct iovec memory = {side->cell, sizeof side->cell};
    struct spw_io_config config = {.choice = engine,
                                   .depth = DEPTH,
                                   .memory = &memory,
                                   .memory_count = 1,
                                   .wake = note_wake,
                                   .wake_ctx = side};
    snprintf(path, sizeof path, "%s/spw-io-XXXXXX", folder ? folder : "/tmp");
    side->engine = engine;
    side->state = seed * 0x9e3779b97f4a7c15ull | 1;
    side->fd = mkostemp(path, O_CLOEXEC);
    if (side->fd < 0)
        return -errno;
    unlink(path);
    return spw_io_open(&config, &side->io, NULL);
}

int main(int argc, char **argv)
{
    static struct side side[2];
    pthread_t thread[2];
    char counts[160];
    uint64_t wrong = 0;
    run = stress_arguments(argc, argv, mutants);
    if (open_side(&side[1], SPW_IO_THREADS, run.seed + 1) < 0)
        return 1;
    if (open_side(&side[0], SPW_IO_URING, run.seed) < 0)
        return 77; /* no io_uring here */
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, churn, &side[i]) != 0)
            abort();
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        wrong += side[i].io.ops->close(side[i].io.engine, STALL_NS) != 0;
        wrong +=
            side[i].wrong + (side[i].transfers < 100) + (spw_load_relaxed(&side[i].wakes) == 0);
    }
    snprintf(counts, sizeof counts, "%" PRIu64 " transfers by a ring, %" PRIu64 " by threads",
             side[0].transfers, side[1].transfers);
    return stress_end(&run, wrong, counts);
}
