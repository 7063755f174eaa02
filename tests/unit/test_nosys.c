/*
 * The hot path makes no system call: drain, lookup, decision, re-ask, probe and the pin of a load run
 * under a filter that ends the process at the first one; controls show that it bites.
 *
 * One process is the pool (daemon and worker), driven for ever; the one under the filter attaches,
 * stores what it needs and then does a thousand steps of the real API.
 */
#include "sched/handle.h"
#include "tests/support/api_rig.h"
#include "tests/support/nosys.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

TestSuite(nosys, .timeout = 60);

#define CHUNKS 24u

/* In memory that pool and tests share. */
struct meeting {
    char dir[SUPPORT_PATH_BYTES];
    spw_atomic32 ready;
};

static struct meeting *meeting;
static struct api api;
static pid_t pool;

static struct spw_client *client;
static struct spw_request *hit, *waits, *miss;

/* ---- the pool's process ---------------------------------------------------------------------- */

static int be_the_pool(void *arg)
{
    const struct rig_config config = {.workers = 2, .capacity = 64, .command_slots = 4096};
    (void)arg;
    api_open(&api, &config);
    memcpy(meeting->dir, api.rig.dir, sizeof(meeting->dir));
    api_pump(&api);
    spw_store_release(&meeting->ready, 1);
    while (pause() < 0)
        ;
    return 0;
}

static void start_pool(void)
{
    meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(meeting, MAP_FAILED);
    pool = support_fork(be_the_pool, NULL);
    cr_assert_gt(pool, 0);
    for (uint32_t i = 0; i < 5000 && !spw_load_acquire(&meeting->ready); i++)
        usleep(1000);
    cr_assert_eq(spw_load_acquire(&meeting->ready), 1);
}

static void end_pool(void)
{
    support_kill(pool);
    support_remove_dir(meeting->dir);
    munmap(meeting, sizeof(*meeting));
}

/* ---- the client's ---------------------------------------------------------------------------- */

static int complete(uint32_t kind, struct spw_completion *out)
{
    for (uint32_t i = 0; i < 5000; i++, usleep(1000))
        if (spw_completions(client, out, 1) == 1)
            return out->kind == kind && out->status == 0 ? 0 : -EIO;
    return -ETIMEDOUT;
}

static int reserve(struct spw_request *request, uint32_t count, struct spw_completion *out)
{
    struct spw_chunk_ref ref[CHUNKS];
    for (uint32_t i = 0; i < count; i++)
        ref[i] = (struct spw_chunk_ref){.index = i};
    int n = spw_store_reserve(request, 0, ref, count, 1);
    return n == (int)count ? complete(SPW_COMPLETION_RESERVED, out) : -EIO;
}

static int prepare(void *arg)
{
    struct spw_attach_options options = {.size_bytes = sizeof(options),
                                         .numa_node = -1,
                                         .pool = "rig",
                                         .shm_dir = meeting->dir,
                                         .changes = 64,
                                         .uid = -1};
    struct spw_space_config config = api_space_config(1);
    struct spw_completion done;
    struct spw_space *space;
    (void)arg;
    int rc = spw_attach(&options, &client, NULL, 0);
    if (rc == 0)
        rc = spw_space_open(client, &config, &space, NULL, 0);
    if (rc < 0)
        return rc;
    hit = api_request(space, 100, CHUNKS);
    rc = reserve(hit, CHUNKS, &done);
    if (rc == 0)
        rc = api_run(client, &done.ticket, 0, 1);
    if (rc == 0)
        rc = complete(SPW_COMPLETION_STORED, &done);
    waits = api_request(space, 900, 1);
    miss = api_request(space, 5000, CHUNKS);
    return rc == 0 ? reserve(waits, 1, &done) : rc;
}

static int look_up(struct spw_request *request, uint32_t action, struct spw_decision *out)
{
    out->size_bytes = sizeof(*out);
    return spw_lookup(request, 0, 0, out) == 0 && out->action == action ? 0 : -EIO;
}

static uint32_t repeats; /* deferrals answered again without news */

/* A step without its end, whose doorbell is the one system call that it may make. */
static int step(bool load)
{
    struct spw_decision decision;
    struct spw_chunk_ref ref[CHUNKS];
    struct spw_change change[8];
    uint8_t verdict[CHUNKS];
    int rc = spw_step_begin(client);
    if (rc < 0 || look_up(waits, SPW_ACTION_DEFER, &decision) < 0)
        return -EIO;
    repeats += decision.repeated;
    if (look_up(miss, SPW_ACTION_MISS, &decision) < 0 ||
        look_up(hit, SPW_ACTION_LOAD, &decision) < 0)
        return -EIO;
    rc = spw_request_probe(hit, 0, 0, CHUNKS, verdict);
    if (rc < 0 || verdict[CHUNKS - 1] != SPW_HIT || spw_touch(hit) < 0 ||
        spw_changes(client, change, 8) < -EOVERFLOW)
        return -EIO;
    int n = spw_decision_chunks(&decision, 0, ref, CHUNKS);
    if (load && spw_load_begin(hit, &decision, 0, ref, (uint32_t)n, 3) != n)
        return -EIO;
    return 0;
}

static int steps_without_news(void *arg)
{
    (void)arg;
    int drained = spw_step_begin(client);
    if (drained < (int)(2 * CHUNKS) || spw_step_end(client) < 0)
        return -EIO; /* what it stored itself comes in the first step */
    for (uint32_t i = 0; i < 1000; i++) {
        if (step(false) < 0)
            return -EIO;
        client->to_ring = 0; /* touches wait; nobody is woken for them here */
        if (spw_step_end(client) < 0)
            return -EIO;
    }
    return repeats > 900 ? 0 : -EIO; /* now and then one is looked at anew */
}

static int a_step_that_loads(void *arg)
{
    struct spw_completion done;
    (void)arg;
    if (step(true) < 0)
        return -EIO;
    return spw_completions(client, &done, 0) < 0 ? -EIO : 0;
}

/* Controls. */
static int a_step_with_a_system_call(void *arg)
{
    int rc = step(false);
    syscall(SYS_getppid);
    (void)arg;
    return rc;
}

static int a_step_that_allocates(void *arg)
{
    int rc = step(false);
    void *volatile large = malloc(64u << 20);
    (void)arg;
    return large ? rc : -ENOMEM;
}

static void expect(int (*body)(void *), int wanted)
{
    long number = -1;
    start_pool();
    int rc = spw_nosys_run(prepare, body, NULL, &number);
    end_pool();
    if (rc == -EPERM || rc == -ENOSYS || rc == -EINVAL)
        cr_skip_test("no filters here: %d", rc);
    cr_expect_eq(rc, wanted, "%d, system call %ld", rc, number);
}

Test(nosys, steps_with_lookups_probes_and_touches_make_no_system_call)
{
    expect(steps_without_news, 0);
}

Test(nosys, beginning_and_pinning_a_load_makes_no_system_call)
{
    expect(a_step_that_loads, 0);
}

Test(nosys, a_system_call_in_a_step_would_be_caught)
{
    expect(a_step_with_a_system_call, 1);
}

Test(nosys, an_allocation_in_a_step_would_be_caught)
{
    expect(a_step_that_allocates, 1);
}
