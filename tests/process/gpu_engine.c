/*
 * gpu_engine DIR NAME LIBRARY GPU COMMAND [ARGUMENT]: an engine's process with KV in GPU memory, attached
 * to pool NAME in DIR. Says what it did in lines on its standard output; exit status 0 only if all was
 * as it must be, 1 a call or a run failed, 3 its memory was refused, 4 other bytes came back.
 *
 * With GPU_ENGINE_INSIDE=K in its environment it is worker K itself, by a thread, and registers its memory by
 * address; with GPU_ENGINE_OTHER, too, the worker's GPU is the one that the pool has for it.
 *
 *   rounds N   register, then N times: write a chunk's blocks, store them behind that work, poison other
 *              blocks, load there, compare; say "worker K" and "rounds N"
 *   store KEY  register, and store the chunk of that key
 *   load KEY   register, load the chunk that some engine has stored by that key, and compare
 *   hold       register, store one chunk, say "ready", and stay
 *   stuck      register, begin a store, end the worker inside, say "stopped STATUS", and stay
 *   until-lost register, say "ready", then as rounds until a call or a run fails, say "lost", register
 *              anew until that works again, and go on for 20 rounds; say "back"
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu_impl.h"
#include "sched/spillway.h"
#include "tools/inside.h"

#define BLOCKS      32u
#define PER_CHUNK   2u
#define WHOLE_BYTES 512u /* a block of the tensor that lies whole */
#define HALF_BYTES  256u /* K, and V, of the other one             */
#define BLOCK_BYTES (WHOLE_BYTES + 2 * HALF_BYTES)
#define CHUNK_BYTES (PER_CHUNK * BLOCK_BYTES)
#define TOKENS      16u
#define FENCES      4u
#define LIMIT_NS    8000000000u

enum { REFUSED = 3, OTHER_BYTES };

static struct spw_gpu *gpu;
static const struct spw_driver *driver;
static CUdeviceptr memory[2];
static CUevent event[FENCES];
static CUstream stream;
static uint8_t *host; /* pinned: both tensors of a block, one behind the other */
static struct spw_client *client;
static struct spw_space *space;
static uint32_t worker;
static char text[256];
static bool is_stuck;             /* stores are not waited for */
static struct spw_inside *inside; /* NULL: the pool's workers are processes of their own */

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "gpu_engine: %s: %s\n", what, spw_driver_word(driver, result));
    exit(1);
}

static void fail(const char *what, int rc)
{
    fprintf(stderr, "gpu_engine: %s: %d %s\n", what, rc, text);
    exit(1);
}

/* ---- its GPU --------------------------------------------------------------------------------- */

static void open_gpu(const char *library, const char *which)
{
    struct spw_error err;
    int rc = spw_gpu_open(&(struct spw_gpu_config){.driver = library, .which = which}, &gpu, &err);
    if (rc < 0) {
        fprintf(stderr, "gpu_engine: %s\n", err.text);
        exit(1);
    }
    driver = &gpu->driver;
    must(driver->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "stream");
    must(driver->MemAlloc(&memory[0], BLOCKS * WHOLE_BYTES), "memory");
    must(driver->MemAlloc(&memory[1], BLOCKS * 2 * HALF_BYTES), "memory");
    for (uint32_t f = 0; f < FENCES; f++)
        must(driver->EventCreate(&event[f], CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
             "event");
    host = aligned_alloc(4096, 4096);
    must(driver->MemHostRegister(host, 4096, 0), "pin");
}

/* A block's bytes between host and its places, on the engine's stream. */
static void move_block(uint32_t block, bool to_gpu)
{
    const struct {
        CUdeviceptr at;
        uint64_t from, bytes;
    } part[3] = {{memory[0] + block * WHOLE_BYTES, 0, WHOLE_BYTES},
                 {memory[1] + block * HALF_BYTES, WHOLE_BYTES, HALF_BYTES},
                 {memory[1] + (BLOCKS + block) * HALF_BYTES, WHOLE_BYTES + HALF_BYTES, HALF_BYTES}};
    for (int i = 0; i < 3; i++)
        must(to_gpu
                 ? driver->MemcpyHtoDAsync(part[i].at, host + part[i].from, part[i].bytes, stream)
                 : driver->MemcpyDtoHAsync(host + part[i].from, part[i].at, part[i].bytes, stream),
             "move a block");
}

static uint8_t byte_of(uint64_t key, uint32_t block, uint32_t i)
{
    return (uint8_t)(key * 37 + block * 11 + i * 3 + i / 256);
}

static void write_block(uint32_t block, uint64_t key, uint32_t number)
{
    must(driver->StreamSynchronize(stream), "host is free");
    for (uint32_t i = 0; i < BLOCK_BYTES; i++)
        host[i] = byte_of(key, number, i);
    move_block(block, true);
}

static bool block_is(uint32_t block, uint64_t key, uint32_t number)
{
    must(driver->StreamSynchronize(stream), "before a look");
    memset(host, 0, BLOCK_BYTES);
    move_block(block, false);
    must(driver->StreamSynchronize(stream), "look");
    for (uint32_t i = 0; i < BLOCK_BYTES; i++)
        if (host[i] != byte_of(key, number, i))
            return false;
    return true;
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void name_memory(struct spw_kv_memory *out, int m)
{
    CUipcMemHandle handle;
    memset(out, 0, sizeof *out);
    out->bytes = BLOCKS * (m == 0 ? WHOLE_BYTES : 2 * HALF_BYTES);
    out->kind = inside ? SPW_KV_MEMORY_ADDRESS : SPW_KV_MEMORY_IPC;
    if (inside) {
        memcpy(out->handle, &memory[m], sizeof memory[m]);
    } else {
        must(driver->IpcGetMemHandle(&handle, memory[m]), "export");
        memcpy(out->handle, &handle, sizeof handle);
    }
}

static void name_fence(uint8_t out[SPW_KV_HANDLE_BYTES], uint32_t f)
{
    CUipcEventHandle handle;
    memset(out, 0, SPW_KV_HANDLE_BYTES);
    if (inside) {
        memcpy(out, &event[f], sizeof event[f]);
    } else {
        must(driver->IpcGetEventHandle(&handle, event[f]), "export an event");
        memcpy(out, &handle, sizeof handle);
    }
}

static int register_kv(void)
{
    struct spw_kv_memory memories[2];
    struct spw_kv_tensor tensors[2];
    uint8_t fences[FENCES][SPW_KV_HANDLE_BYTES];
    struct spw_kv_config config = {.size_bytes = sizeof config,
                                   .memories = 2,
                                   .tensors = 2,
                                   .fences = FENCES,
                                   .memory = memories,
                                   .tensor = tensors,
                                   .fence = fences};
    for (int m = 0; m < 2; m++)
        name_memory(&memories[m], m);
    for (uint32_t f = 0; f < FENCES; f++)
        name_fence(fences[f], f);
    spw_kv_tensor_whole(&tensors[0], 0, 0, 0, BLOCKS, WHOLE_BYTES);
    spw_kv_tensor_split(&tensors[1], 0, 1, 0, BLOCKS, HALF_BYTES);
    memcpy(config.gpu, spw_gpu_identity(gpu)->uuid, sizeof config.gpu);
    return spw_kv_register(client, &config, 0, &worker, text, sizeof text);
}

static void start_inside(const char *dir, const char *name, const char *which, const char *k)
{
    struct spw_inside_options options = {.size_bytes = sizeof options,
                                         .worker = (uint32_t)strtoul(k, NULL, 10),
                                         .pool = name,
                                         .shm_dir = dir,
                                         .gpu = getenv("GPU_ENGINE_OTHER") ? NULL : which};
    int rc = spw_inside_start(&options, &inside, text, sizeof text);
    if (rc < 0)
        fail("inside", rc);
}

static void open_space(void)
{
    struct spw_group_config group = {.block_tokens = TOKENS / PER_CHUNK,
                                     .chunk_bytes = CHUNK_BYTES};
    struct spw_space_config config = {.size_bytes = sizeof config,
                                      .blocks_per_chunk = PER_CHUNK,
                                      .hash_unit_tokens = TOKENS / PER_CHUNK,
                                      .groups = 1,
                                      .group = &group,
                                      .ranks = 1,
                                      .rank_worker = &worker,
                                      .fingerprint = "gpu engine"};
    int rc = spw_space_open(client, &config, &space, text, sizeof text);
    if (rc < 0)
        fail("space", rc);
}

static void attach(const char *dir, const char *name)
{
    struct spw_attach_options options = {
        .size_bytes = sizeof options, .numa_node = -1, .pool = name, .shm_dir = dir, .uid = -1};
    int rc = spw_attach(&options, &client, text, sizeof text);
    if (rc < 0)
        fail("attach", rc);
}

/* The completion of what was asked with @cookie, at most LIMIT_NS from now. Those of rounds that were
 * given up are dropped. */
static struct spw_completion await(uint64_t cookie)
{
    struct spw_completion done;
    for (uint64_t since = spw_monotonic_ns(); spw_monotonic_ns() - since < LIMIT_NS; usleep(50)) {
        int n = spw_completions(client, &done, 1);
        if (n < 0)
            fail("completions", n);
        if (n == 1 && done.cookie == cookie)
            return done;
    }
    fail("no completion came", 0);
    return done;
}

static uint64_t next_cookie(void)
{
    static uint64_t cookie;
    return ++cookie;
}

static struct spw_request *open_request(uint64_t key)
{
    struct spw_request_config config = {.size_bytes = sizeof config, .prompt_tokens = TOKENS};
    struct spw_request *request = NULL;
    uint64_t bytes[2] = {key, ~key};
    int rc = spw_request_open(space, &config, &request);
    if (rc == 0)
        rc = spw_request_extend(request, 0, bytes, sizeof bytes, 1);
    if (rc < 0)
        fail("request", rc);
    return request;
}

static int step(int rc)
{
    int end = spw_step_end(client);
    return rc < 0 ? rc : end;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* 0, or the first error of a call or a run. */
static int store(struct spw_request *request, const uint32_t blocks[PER_CHUNK], uint64_t key)
{
    struct spw_chunk_ref chunk = {.group = 0, .index = 0};
    uint64_t cookie = next_cookie();
    uint32_t fence;
    int rc = spw_step_begin(client);
    if (rc >= 0)
        rc = step(spw_store_reserve(request, 0, &chunk, 1, cookie));
    if (rc < 0)
        return rc;
    struct spw_completion done = await(cookie);
    if (done.status < 0)
        return done.status;
    rc = spw_fence_take(client, worker, &fence);
    if (rc < 0)
        return rc;
    for (uint32_t b = 0; b < PER_CHUNK; b++)
        write_block(blocks[b], key, b);
    must(driver->EventRecord(event[fence], stream), "record");
    cookie = next_cookie();
    rc = spw_run_after(client, &done.ticket, blocks, PER_CHUNK, cookie, fence);
    spw_fence_give(client, worker, fence);
    return rc < 0 || is_stuck ? rc : await(cookie).status;
}

static int load(struct spw_request *request, const uint32_t blocks[PER_CHUNK])
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_chunk_ref chunk = {.group = 0, .index = 0};
    uint64_t cookie = next_cookie();
    int rc = spw_step_begin(client);
    if (rc >= 0)
        rc = spw_lookup(request, 0, 0, &decision);
    if (rc >= 0 && decision.action == SPW_ACTION_LOAD)
        rc = spw_load_begin(request, &decision, 0, &chunk, 1, cookie);
    else if (rc >= 0)
        rc = -ENODATA;
    rc = step(rc);
    if (rc < 0)
        return rc;
    struct spw_completion done = await(cookie);
    if (done.status < 0)
        return done.status;
    cookie = next_cookie();
    rc = spw_run(client, &done.ticket, blocks, PER_CHUNK, cookie);
    return rc < 0 ? rc : await(cookie).status;
}

/* The blocks that a round stores, and those that it loads into. */
static void choose_blocks(uint64_t key, uint32_t from[PER_CHUNK], uint32_t to[PER_CHUNK])
{
    for (uint32_t b = 0; b < PER_CHUNK; b++) {
        from[b] = (uint32_t)(key * 5 + b * 7) % BLOCKS;
        to[b] = (from[b] + 3) % BLOCKS;
    }
}

/* Into blocks where something else was. */
static int load_and_compare(struct spw_request *request, const uint32_t to[PER_CHUNK], uint64_t key)
{
    for (uint32_t b = 0; b < PER_CHUNK; b++)
        write_block(to[b], ~key, b);
    must(driver->StreamSynchronize(stream), "poison");
    int rc = load(request, to);
    for (uint32_t b = 0; b < PER_CHUNK && rc == 0; b++)
        if (!block_is(to[b], key, b)) {
            fprintf(stderr, "gpu_engine: other bytes came back: key %" PRIu64 "\n", key);
            exit(OTHER_BYTES);
        }
    return rc;
}

static int one_round(uint64_t key)
{
    uint32_t from[PER_CHUNK], to[PER_CHUNK];
    choose_blocks(key, from, to);
    struct spw_request *request = open_request(key);
    int rc = store(request, from, key);
    if (rc == 0)
        rc = load_and_compare(request, to, key);
    spw_request_finish(request);
    return rc;
}

static void half_round(bool is_load, uint64_t key)
{
    uint32_t from[PER_CHUNK], to[PER_CHUNK];
    choose_blocks(key, from, to);
    struct spw_request *request = open_request(key);
    int rc = is_load ? load_and_compare(request, to, key) : store(request, from, key);
    spw_request_finish(request);
    if (rc != 0)
        fail(is_load ? "load" : "store", rc);
    printf("worker %u\n", worker);
}

/* Of keys that no engine before has stored: what is there needs no run. */
static uint64_t first_key(void)
{
    return 1000000 * (uint64_t)getpid();
}

static void rounds(uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        int rc = one_round(key);
        if (rc != 0)
            fail("a round", rc);
    }
}

static void until_lost(void)
{
    uint64_t key = first_key();
    puts("ready");
    fflush(stdout);
    while (one_round(key) == 0)
        key++;
    puts("lost");
    fflush(stdout);
    uint64_t since = spw_monotonic_ns();
    for (;;) {
        if (register_kv() == 0 && one_round(++key) == 0)
            break;
        if (spw_monotonic_ns() - since > LIMIT_NS)
            fail("it doesn't come back", 0);
        usleep(20000);
        spw_step_begin(client); /* who is up */
        spw_step_end(client);
    }
    rounds(key + 1, 20);
    puts("back");
}

static void stuck(void)
{
    uint32_t blocks[PER_CHUNK] = {1, 2};
    is_stuck = true;
    int rc = store(open_request(first_key()), blocks, first_key());
    if (rc < 0)
        fail("a store", rc);
    usleep(100000);
    printf("stopped %d\n", spw_inside_stop(inside));
    fflush(stdout);
    pause();
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    open_gpu(argv[3], argv[4]);
    if (getenv("GPU_ENGINE_INSIDE"))
        start_inside(argv[1], argv[2], argv[4], getenv("GPU_ENGINE_INSIDE"));
    attach(argv[1], argv[2]);
    int rc = register_kv();
    if (rc < 0) {
        printf("refused %d %s\n", rc, text);
        return REFUSED;
    }
    open_space();
    if (strcmp(argv[5], "rounds") == 0) {
        uint64_t count = argc > 6 ? strtoull(argv[6], NULL, 10) : 1;
        rounds(first_key(), count);
        printf("worker %u\nrounds %" PRIu64 "\n", worker, count);
    } else if (argc > 6) {
        half_round(strcmp(argv[5], "load") == 0, strtoull(argv[6], NULL, 10));
    } else if (strcmp(argv[5], "hold") == 0) {
        rounds(first_key(), 1);
        puts("ready");
        fflush(stdout);
        pause();
    } else if (strcmp(argv[5], "stuck") == 0) {
        stuck();
    } else {
        until_lost();
    }
    fflush(stdout);
    spw_detach(client);
    int rc_inside = spw_inside_stop(inside);
    if (rc_inside < 0)
        fail("inside, at its end", rc_inside);
    return 0;
}
