/*
 * A worker dies at every step of every kind of job, and of noticing clients. Its successor then
 * holds nothing half-done: READY chunks carry their bytes, no slot is filling, no claim is left,
 * nobody gets two completions for one run, and the clients that live are served on.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "shm/crash_point.h"
#include "tests/support/worker_rig.h"

TestSuite(job_crash, .timeout = 120);

#define PASSES_MAX 40u /* no point is passed more often in the script */

static const char *const points[] = {
    "worker.client_base_taken", "worker.client_acknowledged",
    "worker.client_jobs_ended", "worker.slots_reserved",
    "worker.source_claimed",    "worker.command_taken",
    "worker.answer_sent",       "worker.copy_submitted",
    "worker.store_copied",      "worker.store_ready",
    "worker.load_copied",       "worker.job_news_out",
    "worker.completion_sent",   "worker.space_generation_raised",
    "worker.stream_queued",     "worker.stream_placed",
    "worker.stream_done",
};

static struct rig rig;
static struct rig_client one, two;
static pid_t pid;
static uint32_t completed[64]; /* by cookie of client one */

struct death {
    const char *point;
    uint32_t nth;
};

static void nap(void)
{
    struct timespec span = {.tv_nsec = 20000};
    nanosleep(&span, NULL);
}

/* The worker's process: passes until it is killed. */
static int work(void *arg)
{
    const struct death *death = arg;
    rig_start_worker(&rig, 0);
    spw_crash_arm(death->point, death->nth);
    for (int idle = 0; idle < 1000000; idle++) {
        uint64_t due_ns;
        if (spw_worker_pass(rig.worker[0], &due_ns) == 0)
            nap();
    }
    return 1; /* the test forgot it */
}

static bool worker_lives(void)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

static bool reap_one(struct spw_done *done)
{
    if (!rig_reap(&one, 0, done))
        return false;
    if (done->kind == SPW_DONE_STORE || done->kind == SPW_DONE_LOAD)
        completed[done->cookie % 64]++;
    return true;
}

/* The answer to the last command; false: the worker died first. */
static bool await(struct spw_done *done)
{
    for (int i = 0; i < 100000; i++) {
        if (reap_one(done) && done->cookie == one.cookie)
            return true;
        if (!worker_lives())
            return false;
        nap();
    }
    cr_assert(false, "no answer and no death");
    return false;
}

static bool attached(struct rig_client *client)
{
    rig_attach(&rig, client); /* no worker of this process: only takes the object */
    for (int i = 0; i < 100000; i++) {
        if (spw_load_acquire(&rig.daemon.feed[0]->acked[client->c]) == client->generation)
            return true;
        if (!worker_lives())
            return false;
        nap();
    }
    cr_assert(false, "no acknowledgement and no death");
    return false;
}

static void fill(uint64_t key)
{
    memset(one.pool.kv[one.c] + 2 * key * RIG_BLOCK_BYTES, (int)key, 2 * RIG_BLOCK_BYTES);
}

static bool store(uint64_t key)
{
    struct spw_done done;
    fill(key);
    rig_reserve(&rig, &one, 0, key, 1);
    if (!await(&done))
        return false;
    rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 2 * (uint32_t)key);
    return await(&done);
}

static bool load(uint64_t key)
{
    struct spw_done done;
    rig_begin(&rig, &one, 0, 0, key, 1);
    if (!await(&done))
        return false;
    rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 1, 100);
    return await(&done);
}

/* Whatever is stored is awaited. */
static void await_all(void)
{
    for (uint32_t slot = 0; slot < rig.daemon.geometry.slots; slot++)
        spw_client_await(one.view, 0, slot, true);
    spw_client_await_changed(one.view, 0);
}

/* Every kind of job once; false as soon as the worker is dead. */
static bool script(void)
{
    struct spw_done done;
    if (!attached(&one))
        return false;
    await_all();
    if (!store(1) || !store(2) || !load(1))
        return false;
    rig_reserve(&rig, &one, 0, 3, 2); /* cancelled */
    if (!await(&done))
        return false;
    rig_cancel(&rig, &one, 0, done.ticket);
    rig_begin(&rig, &one, 0, 0, 2, 1); /* never run */
    if (!await(&done))
        return false;
    if (!attached(&two))
        return false;
    rig_reserve(&rig, &two, 0, 5, 2);
    while (worker_lives() && !rig_reap(&two, 0, &done))
        nap();
    rig_die(&two);
    if (!attached(&two) || !store(6))
        return false;
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    rig_send(&one, 0, &head, NULL);
    return await(&done) && store(7);
}

static void check_chunk(uint64_t key)
{
    struct spw_done done;
    const uint8_t *kv = one.pool.kv[one.c] + 100 * RIG_BLOCK_BYTES;
    rig_begin(&rig, &one, 0, 0, key, 1);
    done = rig_answer(&rig, &one, 0);
    cr_assert(done.count == 1);
    rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 1, 100);
    cr_assert(rig_answer(&rig, &one, 0).status == 0);
    for (uint32_t i = 0; i < 2 * RIG_BLOCK_BYTES; i++)
        cr_assert(kv[i] == (uint8_t)key, "chunk %d, byte %d", (int)key, (int)i);
}

/* The successor, in this process. Client one may have died unserved. */
static void check_successor(const struct death *death, uint64_t incarnation)
{
    struct spw_done done;
    const struct spw_stream *stream = &rig.daemon.feed[0]->stream;
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    cr_expect(spw_load_relaxed(&stream->bytes_done) == spw_load_relaxed(&stream->bytes_queued) &&
                  spw_load_relaxed(&stream->bytes_awaited) == spw_load_relaxed(&stream->bytes_done),
              "%s %u: a stream of what is no more", death->point, death->nth);
    cr_assert(spw_load_relaxed(&rig.daemon.feed[0]->incarnation) > incarnation);
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0, "%s %u", death->point, death->nth);
    cr_expect(rig_claims(&rig, 0) == 0, "%s %u", death->point, death->nth);
    cr_expect(spw_load_relaxed(&rig.daemon.feed[0]->acked[one.c]) == one.generation);
    while (reap_one(&done))
        ;
    for (size_t i = 0; i < 64; i++)
        cr_expect(completed[i] <= 1, "%s %u: two completions", death->point, death->nth);
    for (uint64_t key = 1; key < 8; key++)
        if (rig_state(&rig, 0, key, NULL) == SPW_READY)
            check_chunk(key);
    fill(9);
    rig_reserve(&rig, &one, 0, 9, 1);
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.count == 1);
    rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 18);
    cr_expect(rig_answer(&rig, &one, 0).status == 0);
    check_chunk(9);
}

/* LK-11: what a completion says can be looked up: its news is out before it is sent. */
static void check_news_before_completion(const struct death *death)
{
    struct spw_table_view table;
    uint64_t tail = spw_load_relaxed(&rig.daemon.feed[0]->tail);
    if (strcmp(death->point, "worker.completion_sent") != 0)
        return;
    spw_table_view_init(&table, rig.daemon.feed[0], &rig.daemon.feed_map, &rig.daemon.geometry);
    for (uint32_t slot = 0; slot < rig.daemon.geometry.slots; slot++) {
        struct spw_entry_copy entry;
        cr_assert(spw_table_read(&table, slot, false, &entry) == 0);
        cr_expect(!spw_pos_before(tail, entry.version), "%u: slot %u", death->nth, slot);
    }
}

/* True if the worker died where it should; false: the script ended before. */
static bool dies_at(struct death *death)
{
    memset(completed, 0, sizeof(completed));
    memset(&two, 0, sizeof(two));
    rig_open(&rig, &(struct rig_config){.capacity = 6, .real_clock = true});
    rig_end_worker(&rig, 0);
    uint64_t incarnation = spw_load_relaxed(&rig.daemon.feed[0]->incarnation);
    pid = support_fork(work, death);
    cr_assert(pid > 0);
    bool ended = script();
    int status = ended ? support_kill(pid) : support_wait(pid, 5000);
    cr_assert(status == SUPPORT_SIGNALLED + SIGKILL, "%s %u: status %d", death->point, death->nth,
              status);
    if (!ended)
        check_news_before_completion(death);
    check_successor(death, incarnation);
    rig_die(&one);
    rig_die(&two);
    rig_close(&rig);
    return !ended;
}

Test(job_crash, a_worker_dead_at_any_step_leaves_nothing_half_done)
{
    for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
        struct death death = {.point = points[i], .nth = 1};
        while (death.nth < PASSES_MAX && dies_at(&death))
            death.nth++;
        cr_expect(death.nth > 1, "%s was never passed", death.point);
        cr_expect(death.nth < PASSES_MAX, "%s", death.point);
    }
}
