/* spillway stat and stop: exit status and JSON, on living, stuck, dead, absent and damaged pools. */
#include "sched/handle.h"
#include "sched/waits.h"
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

TestSuite(process_status, .timeout = 60);

#define OUT_BYTES 65536

static struct proc_pool pool;
static char out[OUT_BYTES];

static int stat_json(json_t **root)
{
    int status = proc_spillway(&pool, "stat", true, out, sizeof out);
    const char *start = strchr(out, '{'); /* words for people come before it, if any */
    *root = start ? json_loads(start, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    cr_assert_not_null(*root, "%s", out);
    return status;
}

static json_int_t number(json_t *root, const char *name)
{
    json_t *value = json_object_get(root, name);
    cr_assert(json_is_integer(value), "%s", name);
    return json_integer_value(value);
}

struct taken {
    json_int_t size_bytes, allocated_bytes;
};

static struct taken measure(void)
{
    struct taken taken = {0};
    struct dirent *entry;
    struct stat st;
    DIR *list = opendir(pool.dir);
    cr_assert(list);
    while ((entry = readdir(list))) {
        if (fstatat(dirfd(list), entry->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode))
            continue;
        taken.size_bytes += st.st_size;
        taken.allocated_bytes += (json_int_t)st.st_blocks * 512;
    }
    closedir(list);
    return taken;
}

/* Of the objects alone: others on this machine take and return shared memory all the time. */
Test(process_status, CE_8_shared_memory_grows_by_what_is_told_and_no_more)
{
    const json_int_t mib = 1 << 20;
    json_t *root;
    cr_assert(proc_start(&pool, &(struct proc_config){.capacity = 67, .chunk_bytes = 1 << 20}));
    cr_expect_eq(stat_json(&root), 0);
    json_int_t allocated = measure().allocated_bytes;
    json_t *memory = json_object_get(root, "memory");
    cr_expect_leq(allocated, number(memory, "total_bytes") + 2 * mib, "%s", out);
    /* a slot beyond the capacity waits for those who may still read it */
    cr_expect_eq(number(memory, "payload_bytes") / mib, 68);
    cr_expect_gt(allocated, number(memory, "control_bytes") / 2, "something is allocated");
    json_decref(root);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_status, CE_8_memory_is_told_as_what_was_asked_for_and_what_comes_with_it)
{
    json_t *root;
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2}));
    cr_expect_eq(stat_json(&root), 0);
    json_int_t taken = measure().size_bytes;
    json_t *memory = json_object_get(root, "memory");
    cr_expect_eq(number(memory, "total_bytes"), taken, "%s", out);
    cr_expect_eq(number(memory, "total_bytes"), number(memory, "payload_bytes") +
                                                    number(memory, "kv_bytes") +
                                                    number(memory, "control_bytes"));
    cr_expect_geq(number(memory, "payload_bytes"),
                  2 * number(root, "capacity_chunks") * number(root, "chunk_bytes"));
    json_decref(root);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_status, a_living_pool_is_0_and_its_json_tells_what_it_holds)
{
    json_t *root;
    struct actor actor;
    struct actor_config who = {.name = "pool", .label = "an \"engine\"\n\xff"};
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2}));
    who.dir = pool.dir;
    cr_assert_eq(actor_open(&actor, &who), 0);
    cr_assert_eq(actor_store(&actor, 1, 5), 5);
    cr_expect_eq(stat_json(&root), 0);
    cr_expect_eq(number(root, "schema"), 1);
    cr_expect_eq(number(root, "daemon_pid"), pool.daemon);
    cr_expect_eq(number(root, "spaces"), 1);
    json_t *workers = json_object_get(root, "workers"), *worker = json_array_get(workers, 0);
    cr_expect_eq(json_array_size(workers), 2);
    cr_expect_eq(number(worker, "ready"), 5);
    cr_expect_str_eq(json_string_value(json_object_get(worker, "state")), "up");
    cr_expect_eq(number(json_object_get(worker, "counters"), "chunks_stored"), 5);
    json_t *client = json_array_get(json_object_get(root, "clients"), 0);
    cr_expect_eq(number(client, "pid"), getpid());
    cr_expect_str_eq(json_string_value(json_object_get(client, "label")), "an \"engine\"??");
    cr_expect_eq(json_real_value(json_object_get(client, "wait_limit_s")), 300.0);
    cr_expect_eq(json_real_value(json_object_get(client, "retry_limit_s")), 1.0);
    cr_expect_eq(number(client, "max_recompute_pending_tokens"), 0);
    json_decref(root);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0);
    cr_expect(strstr(out, "serving") && strstr(out, "chunks_stored"), "%s", out);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_status, a_stopped_worker_is_4_a_killed_daemon_3_and_no_pool_5)
{
    json_t *root;
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2}));
    proc_signal_worker(&pool, 1, SIGSTOP);
    cr_expect_eq(stat_json(&root), 4);
    json_t *worker = json_array_get(json_object_get(root, "workers"), 1);
    cr_expect_str_eq(json_string_value(json_object_get(worker, "state")), "stuck");
    json_decref(root);
    proc_signal_worker(&pool, 1, SIGCONT);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0, "%s", out);
    proc_kill_daemon(&pool);
    cr_expect_eq(stat_json(&root), 3);
    cr_expect(json_is_false(json_object_get(root, "daemon_alive")));
    json_decref(root);
    cr_expect_eq(proc_spillway(&pool, "stop", false, out, sizeof out), 3, "%s", out);
    pool.config.name = "absent";
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 5, "%s", out);
    cr_expect(strstr(out, "absent") && strstr(out, pool.dir), "%s", out);
    cr_expect_eq(proc_spillway(&pool, "stop", false, out, sizeof out), 5, "%s", out);
    proc_close(&pool);
}

static bool has_copied(void *unused)
{
    return spw_load_relaxed(&pool.seen->feed[0]->stream.rate_bytes_per_s) != 0;
}

static json_t *stream_of(json_t *root)
{
    return json_object_get(json_array_get(json_object_get(root, "workers"), 0), "stream");
}

Test(process_status, a_store_stream_tells_its_backlog_in_bytes_and_time_or_that_it_stalls)
{
    json_t *root;
    struct actor actor;
    struct spw_completion reserved;
    cr_assert(proc_start(&pool, &(struct proc_config){.store_rate = "10KB/s"}));
    struct actor_config who = {.name = "pool", .dir = pool.dir};
    cr_assert_eq(actor_open(&actor, &who), 0);
    struct spw_request *request = actor_request(&actor, 1, 40, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 40, &reserved), 0);
    cr_assert_eq(stat_json(&root), 0);
    cr_expect(json_is_null(json_object_get(stream_of(root), "new_store_eta_ns")), "no rate yet");
    json_decref(root);
    cr_assert_eq(actor_run(&actor, &reserved.ticket, 0, 9), 0);
    cr_assert(proc_eventually(has_copied, NULL, PROC_LIMIT_MS));
    cr_assert_eq(stat_json(&root), 0);
    json_int_t backlog = number(stream_of(root), "backlog_bytes");
    json_int_t rate = number(stream_of(root), "rate_bytes_per_s");
    json_int_t eta = number(stream_of(root), "new_store_eta_ns");
    json_int_t most = (backlog + 1024) * 1000000000 / rate, one = 1024ll * 1000000000 / rate;
    cr_expect(backlog > 20 * 1024 && backlog < 40 * 1024 && backlog % 1024 == 0, "%s", out);
    cr_expect(rate > 5000 && rate < 20000, "%s", out);
    cr_expect(eta <= most && eta >= most - one, "%s", out);
    cr_expect(json_is_false(json_object_get(stream_of(root), "stalled")));
    json_decref(root);
    proc_signal_worker(&pool, 0, SIGSTOP);
    usleep(1700000); /* a second, and four copies' time besides */
    cr_expect_eq(stat_json(&root), 4);
    cr_expect(json_is_true(json_object_get(stream_of(root), "stalled")), "%s", out);
    json_decref(root);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 4);
    cr_expect(strstr(out, "stalled\n"), "%s", out);
    proc_signal_worker(&pool, 0, SIGCONT);
    spw_request_finish(request);
    actor_close(&actor);
    proc_close(&pool);
}

Test(process_status, waits_are_told_by_client_and_outcome)
{
    json_t *root;
    struct actor actor;
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    struct actor_config who = {.name = "pool", .dir = pool.dir};
    cr_assert_eq(actor_open(&actor, &who), 0);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0);
    cr_expect(!strstr(out, "waits ended"), "none yet: %s", out);
    struct spw_wait_record *waits = actor.client->own->head->wait;
    for (uint32_t i = 0; i < 90; i++)
        spw_wait_record_add(&waits[SPW_WAIT_HIT], 1000000);
    for (uint32_t i = 0; i < 10; i++)
        spw_wait_record_add(&waits[SPW_WAIT_HIT], 2000000000);
    spw_wait_record_add(&waits[SPW_WAIT_EXPIRED], 5000000);
    cr_assert_eq(stat_json(&root), 0);
    json_t *told = json_object_get(json_array_get(json_object_get(root, "clients"), 0), "waits");
    json_t *hit = json_object_get(told, "hit");
    cr_expect_eq(json_object_size(told), SPW_WAIT_OUTCOMES);
    cr_expect_eq(number(hit, "count"), 100);
    cr_expect_eq(number(hit, "mean_ns"), 200900000);
    cr_expect(number(hit, "p50_ns") > 500000 && number(hit, "p50_ns") <= 1024000, "%s", out);
    cr_expect(number(hit, "p99_ns") > 1000000000 && number(hit, "p99_ns") < 2200000000, "%s", out);
    cr_expect_eq(number(json_object_get(told, "expired"), "count"), 1);
    cr_expect_eq(number(json_object_get(told, "cut"), "count"), 0);
    json_decref(root);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0);
    cr_expect(strstr(out, "     0          hit        100   201 ms "), "%s", out);
    cr_expect(!strstr(out, " cut  "), "%s", out);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_status, of_a_pool_whose_workers_are_gone_nothing_is_shown_as_going_on)
{
    char column[64];
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0);
    snprintf(column, sizeof column, "\n  %-24s %14d  ", "promote_refused_no_slot", 0);
    cr_expect(strstr(out, column), "in its column: %s", out);
    cr_expect(strstr(out, " host  up "), "%s", out);
    proc_kill_all(&pool);
    cr_expect_eq(proc_spillway(&pool, "ls", false, out, sizeof out), 3);
    cr_expect(strstr(out, " host  gone ") && !strstr(out, " up "), "%s", out);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 3);
    cr_expect(strstr(out, "  worker gone\n") && !strstr(out, "MB/s"), "%s", out);
    proc_close(&pool);
}

static void patch(enum spw_region_kind kind, size_t at, uint8_t with)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&pool.seen->path, kind, 0, name);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0 && pwrite(fd, &with, 1, (off_t)at) == 1);
    close(fd);
}

Test(process_status, a_damaged_pool_is_6_whatever_part_is_damaged)
{
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    const struct {
        enum spw_region_kind kind;
        size_t at;
        uint8_t with, was;
    } damage[] = {
        {SPW_REGION_CTL, offsetof(struct spw_region_header, magic), 0, SPW_REGION_MAGIC & 0xff},
        {SPW_REGION_CTL, offsetof(struct spw_region_header, version), 77, SPW_LAYOUT_VERSION},
        {SPW_REGION_FEED, offsetof(struct spw_region_header, kind), 9, SPW_REGION_FEED},
        {SPW_REGION_CTL, offsetof(struct spw_ctl, geometry) + 3, 0xff, 0},
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        patch(damage[i].kind, damage[i].at, damage[i].with);
        cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 6, "%zu: %s", i, out);
        patch(damage[i].kind, damage[i].at, damage[i].was);
        cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0, "%zu: %s", i, out);
    }
    /* what a client can write to is its own affair: the daemon mends it, fsck tells of it */
    patch(SPW_REGION_CLIENT, offsetof(struct spw_region_header, kind), 9);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0, "%s", out);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

static int spillway(const char *a, const char *b)
{
    const char *argv[] = {SPW_PROC_SPILLWAY, a, b, NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

Test(process_status, a_wrong_use_is_2_and_names_what_was_wrong)
{
    cr_expect_eq(spillway(NULL, NULL), 2);
    cr_expect_eq(spillway("sta", NULL), 2);
    cr_expect(strstr(out, "\"stat\""), "%s", out);
    cr_expect_eq(spillway("stat", "--jsn"), 2);
    cr_expect(strstr(out, "--json"), "%s", out);
    cr_expect_eq(spillway("stat", "--pool"), 2);
    cr_expect(strstr(out, "--pool"), "%s", out);
    cr_expect_eq(spillway("stat", "--pool=../x"), 2);
    cr_expect_eq(spillway("stop", "extra"), 2);
    cr_expect_eq(spillway("--help", NULL), 0);
    cr_expect_eq(spillway("stat", "--help"), 0);
    cr_expect_eq(spillway("--version", NULL), 0);
    const char *argv[] = {SPW_PROC_SPILLWAYD, "--workers", "0", NULL};
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 2);
    cr_expect(strstr(out, "--workers"), "%s", out);
}

/* ---- what an operator must see --------------------------------------------------------------- */

static uint64_t stat_ms(int want)
{
    uint64_t before = proc_now_ms();
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), want, "%s", out);
    return proc_now_ms() - before;
}

Test(process_status, OB_4_stale_stuck_and_absent_are_told_apart_within_a_second)
{
    char year[16];
    time_t now = time(NULL);
    strftime(year, sizeof year, "update %Y-", localtime(&now));
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    cr_expect_lt(stat_ms(0), 1000);
    cr_expect(strstr(out, "daemon alive") && strstr(out, "\n1 worker, "), "%s", out);
    kill(pool.daemon, SIGSTOP);
    cr_expect_lt(stat_ms(4), 1000);
    cr_expect(strstr(out, "is not responding, last update"), "%s", out);
    kill(pool.daemon, SIGCONT);
    cr_expect_lt(stat_ms(0), 1000);
    proc_signal_worker(&pool, 0, SIGSTOP);
    cr_expect_lt(stat_ms(4), 1000);
    cr_expect(strstr(out, "stuck"), "%s", out);
    proc_signal_worker(&pool, 0, SIGCONT);
    proc_kill_daemon(&pool);
    cr_expect_lt(stat_ms(3), 1000);
    cr_expect(strstr(out, "is stale, last update") && strstr(out, year), "%s", out);
    pool.config.name = "absent";
    cr_expect_lt(stat_ms(5), 1000);
    proc_close(&pool);
}

static int stat_after(const char *limit)
{
    const char *argv[] = {SPW_PROC_SPILLWAY,
                          "stat",
                          "--pool",
                          pool.config.name,
                          "--shm-dir",
                          pool.dir,
                          "--json",
                          limit ? "--no-hit-after" : NULL,
                          limit,
                          NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

Test(process_status, OB_1_a_pool_that_is_only_written_to_is_warned_of_until_one_hit)
{
    json_t *root;
    struct actor actor;
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    struct actor_config who = {.name = "pool", .dir = pool.dir};
    cr_assert_eq(actor_open(&actor, &who), 0);
    for (uint64_t i = 0; i < 25; i++)
        cr_assert_eq(actor_store(&actor, 1000 + i * 40, 40), 40);
    for (uint64_t i = 0; i < 999; i++)
        cr_assert_eq(actor_hits(&actor, 9000 + i, 1), 0);
    cr_expect_eq(stat_after(NULL), 0);
    cr_expect(!strstr(out, "no hit in"), "one lookup short: %s", out);
    cr_expect_eq(stat_after("999"), 0);
    cr_expect(strstr(out, "warning: no hit in 999 lookups"), "%s", out);
    cr_assert_eq(actor_hits(&actor, 9999, 1), 0);
    cr_assert_eq(stat_json(&root), 0);
    cr_expect_eq(json_array_size(json_object_get(root, "warnings")), 1);
    json_t *totals = json_object_get(root, "totals");
    cr_expect_eq(number(totals, "lookups"), 1000);
    cr_expect_eq(number(totals, "hits"), 0);
    cr_expect_eq(number(totals, "chunks_stored"), 1000);
    cr_expect_eq(number(totals, "bytes_stored"), 1000 * 1024);
    cr_expect_eq(number(totals, "bytes_loaded"), 0);
    json_decref(root);
    cr_expect_eq(stat_after(NULL), 0);
    cr_expect(strstr(out, "warning: no hit in 1000 lookups, after 1000 chunks"), "%s", out);
    cr_assert_eq(actor_load(&actor, 1999, 1), 1, "one real hit");
    cr_assert_eq(stat_json(&root), 0);
    cr_expect_eq(json_array_size(json_object_get(root, "warnings")), 0, "%s", out);
    totals = json_object_get(root, "totals");
    cr_expect_eq(number(totals, "hits"), 1);
    cr_expect_eq(number(totals, "bytes_loaded"), 1024);
    json_decref(root);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}
