/* sched/kv: GPU memory registered through the installed API, at the worker of its GPU, and the fences
 * that runs name. The workers' copier is a stand-in that takes registrations. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sched/handle.h"
#include "shm/process.h"
#include "tests/support/api_rig.h"
#include "tests/support/stub_kv.h"

TestSuite(api_kv, .timeout = 30);

#define FENCES 3u

static struct api api;
static struct spw_client *client;
static char text[256];

static const uint8_t gpu_a[16] = {0xaa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xa0};
static const uint8_t gpu_b[16] = {0xbb, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xb0};
static const char *const name_a = "GPU-aa010203-0405-0607-0809-0a0b0c0d0ea0";
static const char *const name_b = "GPU-bb010203-0405-0607-0809-0a0b0c0d0eb0";

/* What worker @k says of its GPU when it starts. */
static void give_gpu(uint32_t k, const uint8_t uuid[16])
{
    struct spw_gpu_record *record = &api.rig.pool[k].feed[k]->gpu;
    for (uint32_t w = 0; w < 2; w++) {
        uint64_t word = 0;
        for (uint32_t i = 0; i < 8; i++)
            word = word << 8 | uuid[8 * w + i];
        spw_store_relaxed(&record->uuid[w], word);
    }
    spw_store_release(&record->kind, SPW_COPIER_CUDA);
}

static void start(void)
{
    stub_kv_reset();
    api_open(&api, &(struct rig_config){.workers = 2, .wrap = stub_kv_wrap});
    give_gpu(0, gpu_a);
    give_gpu(1, gpu_b);
    client = api_attach(&api, 0);
}

static void finish(void)
{
    spw_detach(client);
    api_close(&api);
}

static struct spw_kv_memory memory[2];
static struct spw_kv_tensor tensor[3];
static uint8_t fence[FENCES][SPW_KV_HANDLE_BYTES];

static struct spw_kv_config config_of(const uint8_t gpu[16])
{
    struct spw_kv_config config = {.size_bytes = sizeof config,
                                   .memories = 2,
                                   .memory = memory,
                                   .tensors = 3,
                                   .tensor = tensor,
                                   .fences = FENCES,
                                   .fence = fence};
    memcpy(config.gpu, gpu, sizeof config.gpu);
    memset(memory, 0x11, sizeof memory);
    memory[0].kind = memory[1].kind = SPW_KV_MEMORY_IPC;
    memory[0].bytes = 1 << 20;
    memory[1].bytes = 1 << 21;
    spw_kv_tensor_whole(&tensor[0], 0, 0, 4096, 40, 512);
    spw_kv_tensor_split(&tensor[1], 0, 1, 0, 40, 256);
    spw_kv_tensor_whole(&tensor[2], 1, 1, 1 << 20, 20, 64);
    for (uint32_t f = 0; f < FENCES; f++)
        memset(fence[f], 0x80 + (int)f, sizeof fence[f]);
    return config;
}

static int register_at(const struct spw_kv_config *config, uint32_t *out_worker)
{
    memset(text, 0, sizeof text);
    api_pump(&api);
    int rc = spw_kv_register(client, config, 0, out_worker, text, sizeof text);
    api_pump_end(&api);
    return rc;
}

static void must_register(const uint8_t gpu[16])
{
    const struct spw_kv_config config = config_of(gpu);
    uint32_t worker;
    cr_assert_eq(register_at(&config, &worker), 0, "%s", text);
}

/* ---- registering ----------------------------------------------------------------------------- */

Test(api_kv, CU_7_memory_goes_to_the_worker_of_its_GPU_as_it_was_described)
{
    uint32_t worker = 9;
    start();
    const struct spw_kv_config config = config_of(gpu_b);
    cr_assert_eq(register_at(&config, &worker), 0, "%s", text);
    cr_expect_eq(worker, 1);
    const struct spw_kv_record *record = &stub_kv.seen;
    cr_expect(record->memories == 2 && record->tensors == 3 && record->fences == FENCES);
    cr_expect_eq(memcmp(record->gpu, gpu_b, 16), 0);
    cr_expect_eq(record->pid, (uint32_t)getpid());
    cr_expect_eq(record->start_ticks, spw_process_start_ticks(getpid()));
    const struct spw_kv_memory_record *memories = (void *)(stub_kv.bytes + sizeof *record);
    const struct spw_kv_tensor_record *tensors = (void *)(memories + 2);
    for (uint32_t m = 0; m < 2; m++)
        cr_expect(memories[m].bytes == memory[m].bytes && memories[m].kind == SPW_KV_IPC &&
                  memcmp(memories[m].handle, memory[m].handle, SPW_IPC_BYTES) == 0);
    cr_expect(tensors[0].offset == 4096 && tensors[0].block_stride == 512 &&
              tensors[0].part_bytes == 512 && tensors[0].parts == 1 && tensors[0].blocks == 40 &&
              tensors[0].group == 0 && tensors[0].memory == 0);
    cr_expect(tensors[1].offset == 0 && tensors[1].block_stride == 256 &&
              tensors[1].part_stride == 40 * 256 && tensors[1].part_bytes == 256 &&
              tensors[1].parts == 2 && tensors[1].memory == 1);
    cr_expect(tensors[2].group == 1 && tensors[2].blocks == 20 && tensors[2].offset == 1 << 20);
    cr_expect_eq(memcmp(tensors + 3, fence, sizeof fence), 0);
    finish();
}

Test(api_kv, CU_7_a_GPU_that_no_worker_has_is_refused_with_those_that_there_are)
{
    static const uint8_t other[16] = {0xcc};
    uint32_t worker = 9;
    start();
    struct spw_kv_config config = config_of(other);
    cr_expect_eq(register_at(&config, &worker), -ENODEV);
    cr_expect(strstr(text, "GPU-cc000000-0000-0000-0000-000000000000"), "%s", text);
    cr_expect(strstr(text, name_a) && strstr(text, name_b), "%s", text);
    cr_expect_eq(worker, 9);
    spw_store_relaxed(&api.rig.pool[0].feed[0]->gpu.kind, SPW_COPIER_HOST);
    config = config_of(gpu_a);
    cr_expect_eq(register_at(&config, &worker), -ENODEV, "a host copier's words are no GPU");
    cr_expect(strstr(text, name_b) && strstr(text, "known: GPU-bb"), "%s", text);
    spw_store_relaxed(&api.rig.pool[1].feed[1]->gpu.kind, SPW_COPIER_HOST);
    cr_expect_eq(register_at(&config, &worker), -EOPNOTSUPP);
    cr_expect(strstr(text, "--copier"), "%s", text);
    finish();
}

Test(api_kv, nonsense_is_refused_before_anybody_is_asked)
{
    uint32_t worker = 9;
    start();
    const struct spw_kv_config good = config_of(gpu_a);
    struct spw_kv_config bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].size_bytes = 8;
    bad[1].memories = 0;
    bad[2].memories = SPW_MAX_KV_MEMORIES + 1;
    bad[3].tensors = SPW_MAX_KV_TENSORS + 1;
    bad[4].tensor = NULL;
    bad[5].memory = NULL;
    bad[6].fences = SPW_MAX_KV_FENCES + 1;
    bad[7].fence = NULL;
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(spw_kv_register(client, &bad[i], 0, &worker, text, sizeof text), -EINVAL, "%d",
                     i);
        cr_expect_neq(text[0], '\0', "%d", i);
    }
    cr_expect_eq(spw_kv_register(client, &good, 0, NULL, NULL, 0), -EINVAL);
    cr_expect_eq(spw_kv_register(NULL, &good, 0, &worker, NULL, 0), -EINVAL);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_expect_eq(spw_kv_register(client, &good, 0, &worker, text, sizeof text), -EINVAL);
    cr_expect(strstr(text, "inside a step"), "%s", text);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(worker, 9);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_commands), 0);
    finish();
}

Test(api_kv, CU_8_the_workers_words_are_passed_on)
{
    uint32_t worker;
    start();
    stub_kv.refusal = -EACCES;
    const struct spw_kv_config config = config_of(gpu_b);
    cr_expect_eq(register_at(&config, &worker), -EACCES);
    cr_expect_str_eq(text, "worker 1: memory 0: refused");
    cr_expect_eq(spw_fence_take(client, 1, &worker), -ENOENT);
    finish();
}

Test(api_kv, a_worker_that_is_down_or_dies_is_told_and_one_that_is_slow_is_waited_for_so_long)
{
    uint32_t worker;
    start();
    const struct spw_kv_config config = config_of(gpu_a);
    cr_expect_eq(spw_kv_register(client, &config, RIG_SECOND / 50, &worker, text, sizeof text),
                 -ETIMEDOUT, "nobody drives it");
    cr_expect(strstr(text, "20 ms"), "%s", text);
    must_register(gpu_a);
    cr_expect_eq(api_counter(client, "runs"), 0);
    api_say(&api, 0, SPW_WORKER_DOWN);
    cr_expect_eq(register_at(&config, &worker), -EOWNERDEAD);
    api_say(&api, 0, SPW_WORKER_UP);
    must_register(gpu_a);
    finish();
    cr_expect(!stub_kv.open[0]);
}

static void *say_down(void *arg)
{
    usleep(20000);
    api_say(&api, 0, SPW_WORKER_DOWN);
    return NULL;
}

Test(api_kv, a_worker_that_dies_meanwhile_ends_the_wait)
{
    pthread_t thread;
    uint32_t worker;
    start();
    const struct spw_kv_config config = config_of(gpu_a);
    cr_assert_eq(pthread_create(&thread, NULL, say_down, NULL), 0);
    cr_expect_eq(spw_kv_register(client, &config, 20 * RIG_SECOND, &worker, text, sizeof text),
                 -EOWNERDEAD);
    pthread_join(thread, NULL);
    finish();
}

static void *answer_nonsense(void *arg)
{
    struct spw_kv_words *words = &api.rig.pool[0].client[0].head->kv_words[0];
    usleep(20000);
    memset((void *)words->text, 'x', sizeof words->text);
    spw_store_relaxed(&words->status, 7);
    spw_store_release(&words->answered, client->generation << 32 | 1);
    return NULL;
}

Test(api_kv, an_answer_that_makes_no_sense_is_none)
{
    pthread_t thread;
    uint32_t worker;
    start();
    const struct spw_kv_config config = config_of(gpu_a);
    cr_assert_eq(pthread_create(&thread, NULL, answer_nonsense, NULL), 0);
    cr_expect_eq(spw_kv_register(client, &config, 20 * RIG_SECOND, &worker, text, sizeof text),
                 -EBADMSG);
    pthread_join(thread, NULL);
    finish();
}

Test(api_kv, what_the_daemon_has_not_read_is_not_overwritten)
{
    const struct spw_space_config asked = api_space_config(1);
    struct spw_space *space = NULL;
    uint32_t worker;
    start();
    const struct spw_kv_config config = config_of(gpu_a);
    uint64_t usual_ns = client->timeout_ns;
    client->timeout_ns = RIG_SECOND / 100;
    cr_expect_eq(spw_space_open(client, &asked, &space, text, sizeof text), -ETIMEDOUT);
    client->timeout_ns = usual_ns;
    cr_expect_eq(spw_kv_register(client, &config, 0, &worker, text, sizeof text), -EBUSY);
    const struct spw_open_space_mail *mail = (const void *)client->own->head->mailbox.bytes;
    cr_expect_str_eq(mail->record.fingerprint, asked.fingerprint);
    api_pump(&api);
    while (spw_load_acquire(&api.rig.daemon.ctl->reply[client->number].seq) == 0)
        usleep(100);
    api_pump_end(&api);
    must_register(gpu_a);
    finish();
}

/* ---- fences ---------------------------------------------------------------------------------- */

static struct spw_space *space;
static struct spw_request *request;
static uint64_t next_chunk;

static void start_registered(void)
{
    start();
    const struct spw_space_config config = api_space_config(1);
    space = api_space(&api, client, &config);
    request = api_request(space, 1, 8);
    next_chunk = 0;
    must_register(gpu_a);
}

static struct spw_ticket reserve(void)
{
    struct spw_completion done = api_reserve(&api, request, client, 0, next_chunk++, 1);
    cr_assert_eq(done.status, 0);
    return done.ticket;
}

static int run_after(const struct spw_ticket *ticket, uint32_t named)
{
    static const uint32_t block[2] = {2, 3};
    return spw_run_after(client, ticket, block, 2, 77, named);
}

Test(api_kv, CU_4_a_run_waits_for_its_fence_and_only_then_is_that_free)
{
    uint32_t f[FENCES], more, done_before;
    start_registered();
    for (uint32_t i = 0; i < FENCES; i++)
        cr_assert_eq(spw_fence_take(client, 0, &f[i]), 0);
    cr_expect_eq(spw_fence_take(client, 0, &more), -EAGAIN);
    struct spw_ticket first = reserve(), second = reserve();
    cr_assert_eq(run_after(&first, f[1]), 0);
    cr_assert_eq(run_after(&second, f[1]), 0, "one fence for several runs");
    cr_assert_eq(spw_fence_give(client, 0, f[1]), 0);
    cr_expect_eq(spw_fence_give(client, 0, f[1]), -EINVAL, "twice");
    rig_settle(&api.rig);
    cr_expect_eq(spw_fence_take(client, 0, &more), -EAGAIN, "two runs name it");
    struct spw_completion done[4];
    cr_expect_eq(spw_completions(client, done, 4), 0, "it hasn't fired");
    done_before = stub_kv.copies;
    stub_kv.fired[client->number][f[1]] = 1;
    rig_settle(&api.rig);
    cr_expect_eq(stub_kv.copies, done_before + 2);
    cr_expect_eq(spw_completions(client, done, 1), 1);
    cr_expect(done[0].kind == SPW_COMPLETION_STORED && done[0].status == 0 && done[0].cookie == 77);
    cr_expect_eq(spw_fence_take(client, 0, &more), -EAGAIN, "one run names it");
    cr_expect_eq(spw_completions(client, done, 4), 1);
    cr_expect_eq(spw_fence_take(client, 0, &more), 0);
    cr_expect_eq(more, f[1]);
    finish();
}

Test(api_kv, one_that_was_not_used_is_given_back)
{
    uint32_t f, again;
    start_registered();
    cr_assert_eq(spw_fence_take(client, 0, &f), 0);
    cr_assert_eq(spw_fence_give(client, 0, f), 0);
    cr_assert_eq(spw_fence_take(client, 0, &again), 0);
    cr_expect_eq(again, f);
    finish();
}

Test(api_kv, fences_that_are_none_are_refused)
{
    uint32_t f;
    start_registered();
    struct spw_ticket ticket = reserve();
    cr_expect_eq(run_after(&ticket, 0), -EINVAL, "not taken");
    cr_expect_eq(run_after(&ticket, FENCES), -EINVAL);
    cr_expect_eq(run_after(&ticket, UINT32_MAX), -EINVAL);
    cr_expect_eq(run_after(NULL, 0), -EINVAL);
    cr_expect_eq(spw_fence_take(client, 1, &f), -ENOENT, "nothing is registered there");
    cr_expect_eq(spw_fence_take(client, 2, &f), -EINVAL);
    cr_expect_eq(spw_fence_take(client, UINT32_MAX, &f), -EINVAL);
    cr_expect_eq(spw_fence_take(client, 0, NULL), -EINVAL);
    cr_expect_eq(spw_fence_take(NULL, 0, &f), -EINVAL);
    cr_expect_eq(spw_fence_give(NULL, 0, 0), -EINVAL);
    cr_expect_eq(spw_fence_give(client, UINT32_MAX, 0), -EINVAL);
    finish();
}

Test(api_kv, a_run_of_a_worker_that_died_frees_its_fence_and_its_successor_must_be_told_anew)
{
    uint32_t f, more;
    start_registered();
    cr_assert_eq(spw_fence_take(client, 0, &f), 0);
    struct spw_ticket ticket = reserve();
    cr_assert_eq(run_after(&ticket, f), 0);
    cr_assert_eq(spw_fence_give(client, 0, f), 0);
    rig_settle(&api.rig);
    api_kill_worker(&api, 0);
    cr_expect_eq(spw_fence_take(client, 0, &more), -EOWNERDEAD);
    struct spw_completion done = api_complete(&api, client);
    cr_expect_eq(done.status, -EOWNERDEAD);
    api_restart_worker(&api, 0);
    cr_expect_eq(spw_fence_take(client, 0, &more), -ENXIO);
    ticket = reserve();
    cr_assert_eq(api_run(client, &ticket, 2, 78), 0);
    uint32_t copies = stub_kv.copies;
    done = api_complete(&api, client);
    cr_expect(done.status == -ENXIO && done.cookie == 78, "%d", done.status);
    cr_expect_eq(stub_kv.copies, copies, "nor was the host KV copied");
    must_register(gpu_a);
    for (uint32_t i = 0; i < FENCES; i++)
        cr_expect_eq(spw_fence_take(client, 0, &more), 0, "all are free");
    cr_assert_eq(api_run(client, &ticket, 2, 79), 0, "the job still waits");
    done = api_complete(&api, client);
    cr_expect_eq(done.status, 0);
    cr_expect_eq(stub_kv.copies, copies + 1);
    finish();
}

Test(api_kv, registering_anew_waits_for_no_unfinished_run)
{
    uint32_t f, worker;
    start_registered();
    cr_assert_eq(spw_fence_take(client, 0, &f), 0);
    struct spw_ticket ticket = reserve();
    cr_assert_eq(run_after(&ticket, f), 0);
    const struct spw_kv_config config = config_of(gpu_a);
    cr_expect_eq(register_at(&config, &worker), -EBUSY);
    cr_expect(strstr(text, "unfinished"), "%s", text);
    cr_assert_eq(spw_cancel(client, &ticket), 0);
    struct spw_completion done = api_complete(&api, client);
    cr_expect_eq(done.status, -ECANCELED);
    must_register(gpu_a);
    finish();
}
