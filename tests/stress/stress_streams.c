/*
 * The stand-in CUDA driver: threads that each pass stamps to and fro between two streams, ordered by
 * events that are recorded anew in every round, and one thread that makes and gives back memory, events
 * and registrations while work for them is under way. Each stamp must come out in its round, and in
 * the order of the rounds. Shared: the driver's tables, and a pair's memory between its two streams.
 */
#include "tests/stress/stress.h"

#include <pthread.h>

#include "gpu/gpu_impl.h"
#include "shm/atomic.h"

static const char *const mutants[] = {NULL};

#define PAIRS      2u
#define ROUNDS     32u
#define CELL_BYTES 4096u

static struct stress run; /* fixed before the threads start */
static struct spw_gpu *gpu;
static const struct spw_driver *driver;
static spw_atomic32 stop;

struct pair {
    alignas(4096) uint8_t in[ROUNDS][CELL_BYTES];
    uint8_t out[ROUNDS][CELL_BYTES];
    CUdeviceptr cell;
    CUstream there, back;
    CUevent written, taken;
    uint64_t state, rounds, wrong;
};

struct churn {
    alignas(4096) uint8_t bytes[CELL_BYTES];
    uint64_t state, turns;
};

static struct pair pair[PAIRS];
static struct churn churn;

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", what, spw_driver_word(driver, result));
    exit(1);
}

static CUevent new_event(void)
{
    CUevent event;
    must(driver->EventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
    return event;
}

static CUstream new_stream(void)
{
    CUstream stream;
    must(driver->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "stream");
    return stream;
}

/* ---- a pair of streams ----------------------------------------------------------------------- */

/* The cell isn't written before the one before was taken, nor taken before it is written. */
static void queue_round(struct pair *of, uint32_t r)
{
    must(driver->StreamWaitEvent(of->there, of->taken, 0), "wait");
    must(driver->MemcpyHtoDAsync(of->cell, of->in[r], CELL_BYTES, of->there), "in");
    must(driver->EventRecord(of->written, of->there), "record");
    must(driver->StreamWaitEvent(of->back, of->written, 0), "wait");
    must(driver->MemcpyDtoHAsync(of->out[r], of->cell, CELL_BYTES, of->back), "out");
    must(driver->EventRecord(of->taken, of->back), "record");
}

static void wait_for_all(struct pair *of)
{
    CUresult result;
    switch (stress_random(&of->state) % 3) {
    case 0:
        must(driver->StreamSynchronize(of->back), "the stream");
        break;
    case 1:
        must(driver->EventSynchronize(of->taken), "the event");
        break;
    default:
        while ((result = driver->EventQuery(of->taken)) == CUDA_ERROR_NOT_READY)
            sched_yield();
        must(result, "the event");
    }
}

static void *pass_stamps(void *context)
{
    struct pair *of = context;
    must(driver->CtxSetCurrent(gpu->context), "context");
    while (!spw_load_relaxed(&stop)) {
        for (uint32_t r = 0; r < ROUNDS; r++) {
            memset(of->in[r], (int)(stress_random(&of->state) >> 8), CELL_BYTES);
            memset(of->out[r], ~of->in[r][0], CELL_BYTES);
        }
        for (uint32_t r = 0; r < ROUNDS; r++)
            queue_round(of, r);
        wait_for_all(of);
        for (uint32_t r = 0; r < ROUNDS; r++)
            of->wrong += memcmp(of->in[r], of->out[r], CELL_BYTES) != 0;
        of->rounds += ROUNDS;
    }
    return NULL;
}

static void open_pair(struct pair *of, uint32_t i)
{
    of->state = run.seed * 77 + i + 1;
    must(driver->MemHostRegister(of->in, sizeof of->in + sizeof of->out, 0), "register");
    must(driver->MemAlloc(&of->cell, CELL_BYTES), "memory");
    of->there = new_stream();
    of->back = new_stream();
    of->written = new_event();
    of->taken = new_event();
}

static void close_pair(struct pair *of)
{
    must(driver->StreamDestroy(of->there), "stream");
    must(driver->StreamDestroy(of->back), "stream");
    must(driver->EventDestroy(of->written), "event");
    must(driver->EventDestroy(of->taken), "event");
    must(driver->MemFree(of->cell), "memory");
    must(driver->MemHostUnregister(of->in), "unregister");
}

/* ---- what comes and goes --------------------------------------------------------------------- */

static void make_and_give_back(struct churn *of, CUstream stream)
{
    CUdeviceptr memory;
    CUevent event = new_event();
    uint64_t dice = stress_random(&of->state);
    must(driver->MemHostRegister(of->bytes, CELL_BYTES, 0), "register");
    must(driver->MemAlloc(&memory, CELL_BYTES), "memory");
    must(driver->MemcpyHtoDAsync(memory, of->bytes, CELL_BYTES, stream), "in");
    must(driver->EventRecord(event, stream), "record");
    must(driver->MemcpyDtoHAsync(of->bytes, memory, CELL_BYTES, stream), "out");
    if (dice & 1)
        must(driver->EventSynchronize(event), "the event");
    must(driver->EventDestroy(event), "event");
    if (dice & 2)
        must(driver->StreamSynchronize(stream), "the stream");
    must(driver->MemFree(memory), "memory");
    must(driver->MemHostUnregister(of->bytes), "unregister");
}

static void *come_and_go(void *context)
{
    struct churn *of = context;
    must(driver->CtxSetCurrent(gpu->context), "context");
    of->state = run.seed + 1000;
    while (!spw_load_relaxed(&stop)) {
        CUstream stream = new_stream();
        for (uint64_t left = stress_random(&of->state) & 7; left > 0; left--)
            make_and_give_back(of, stream);
        must(driver->StreamDestroy(stream), "stream");
        of->turns++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct spw_error err = {0};
    struct spw_gpu_config config = {.driver = FAKE_CUDA, .which = "0"};
    pthread_t thread[PAIRS + 1];
    char counts[96];
    run = stress_arguments(argc, argv, mutants);
    if (spw_gpu_open(&config, &gpu, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    driver = &gpu->driver;
    for (uint32_t i = 0; i < PAIRS; i++) {
        open_pair(&pair[i], i);
        pthread_create(&thread[i], NULL, pass_stamps, &pair[i]);
    }
    pthread_create(&thread[PAIRS], NULL, come_and_go, &churn);
    for (uint64_t until = stress_now_ns() + (uint64_t)(run.seconds * 1e9); stress_now_ns() < until;)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    spw_store_relaxed(&stop, 1);
    uint64_t rounds = 0, wrong = 0;
    for (uint32_t i = 0; i <= PAIRS; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < PAIRS; i++) {
        close_pair(&pair[i]);
        rounds += pair[i].rounds;
        wrong += pair[i].wrong;
    }
    spw_gpu_close(gpu);
    snprintf(counts, sizeof counts, "%" PRIu64 " rounds, %" PRIu64 " turns", rounds, churn.turns);
    return stress_end(&run, wrong + (rounds == 0), counts);
}
