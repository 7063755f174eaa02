/* What lies under a pool's mappings: what a core dump has of them, and huge pages. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/huge.h"
#include "tests/support/deny.h"
#include "tier/counters.h"

TestSuite(process_memory, .timeout = 60);

static struct proc_pool pool;
static char out[65536];

/* ---- core dumps ------------------------------------------------------------------------------ */

/* Mappings of process @pid whose file name ends like this object's, and those left out of dumps. */
struct dumps {
    uint32_t mappings, left_out;
};

static struct dumps dumps_of(pid_t pid, const char *object)
{
    char path[64], line[512], name[64];
    struct dumps dumps = {0};
    bool ours = false;
    snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
    snprintf(name, sizeof name, "-pool.%s", object);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    while (fgets(line, sizeof line, file)) {
        char *end;
        strtoull(line, &end, 16);
        if (*end == '-') {
            ours = strstr(line, name) != NULL;
            dumps.mappings += ours;
        } else if (ours && strncmp(line, "VmFlags:", 8) == 0) {
            dumps.left_out += strstr(line, " dd") != NULL;
        }
    }
    fclose(file);
    return dumps;
}

static void expect_dumped(pid_t pid, const char *who, const char *object, bool dumped)
{
    struct dumps dumps = dumps_of(pid, object);
    cr_expect_gt(dumps.mappings, 0, "%s has no %s", who, object);
    cr_expect_eq(dumps.left_out, dumped ? 0 : dumps.mappings, "%s of %s", object, who);
}

Test(process_memory, SM_13_payload_stays_out_of_core_dumps_in_daemon_worker_and_client)
{
    struct actor actor;
    cr_assert(proc_start(&pool, &(struct proc_config){.capacity = 4096, .chunk_bytes = 4096}));
    struct actor_config who = {.name = "pool", .dir = pool.dir};
    cr_assert_eq(actor_open(&actor, &who), 0);
    pid_t worker = (pid_t)spw_load_relaxed(&pool.seen->ctl->worker[0].pid);
    const struct {
        pid_t pid;
        const char *who;
        bool has_data;
    } processes[] = {{pool.daemon, "the daemon", true},
                     {worker, "a worker", true},
                     {getpid(), "a client", false}};
    for (size_t i = 0; i < sizeof processes / sizeof processes[0]; i++) {
        expect_dumped(processes[i].pid, processes[i].who, "ctl", true);
        expect_dumped(processes[i].pid, processes[i].who, "feed.0", true);
        expect_dumped(processes[i].pid, processes[i].who, "client.0", true);
        expect_dumped(processes[i].pid, processes[i].who, "kv.0", false);
        if (processes[i].has_data)
            expect_dumped(processes[i].pid, processes[i].who, "data.0", false);
        else
            cr_expect_eq(dumps_of(processes[i].pid, "data.0").mappings, 0);
    }
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* ---- huge pages ------------------------------------------------------------------------------ */

#define CHUNKS     64u
#define CHUNK      65536u
#define HUGE_WHOLE ((65ull * CHUNK + 4096) / SPW_HUGE_BYTES * SPW_HUGE_BYTES) /* a reserve of 1 */

static struct proc_config with_pages(const char *pages)
{
    return (struct proc_config){.capacity = CHUNKS,
                                .chunk_bytes = CHUNK,
                                .kv_blocks = 64,
                                .clients = 2,
                                .more = {"--huge-pages", pages}};
}

static uint64_t huge_pages_told(void)
{
    cr_assert_eq(proc_spillway(&pool, "stat", true, out, sizeof out), 0, "%s", out);
    json_t *root = json_loads(out, 0, NULL);
    cr_assert_not_null(root, "%s", out);
    uint64_t told = (uint64_t)json_integer_value(json_object_get(root, "huge_pages"));
    json_decref(root);
    return told;
}

static bool host_has_collapse(void)
{
    char dir[SUPPORT_PATH_BYTES], path[SUPPORT_PATH_BYTES + 8];
    cr_assert_eq(support_shm_dir(dir), 0);
    snprintf(path, sizeof path, "%s/try", dir);
    FILE *file = fopen(path, "w+");
    bool can = false;
    if (file && ftruncate(fileno(file), SPW_HUGE_BYTES) == 0) {
        void *at = spw_huge_map(fileno(file), PROT_READ | PROT_WRITE, SPW_HUGE_BYTES);
        memset(at, 1, SPW_HUGE_BYTES);
        can = spw_huge_collapse(at, SPW_HUGE_BYTES) == 0;
        munmap(at, SPW_HUGE_BYTES);
    }
    if (file)
        fclose(file);
    unlink(path);
    return can;
}

Test(process_memory, SM_11_what_was_obtained_is_measured_and_told)
{
    struct actor actor;
    if (!host_has_collapse())
        cr_skip("no huge pages can be made here");
    struct proc_config config = with_pages("always");
    cr_assert(proc_start(&pool, &config));
    cr_expect_eq(huge_pages_told(), HUGE_WHOLE, "%s", out);
    struct actor_config who = {.name = "pool", .dir = pool.dir, .chunk_bytes = CHUNK};
    cr_assert_eq(actor_open(&actor, &who), 0);
    cr_assert_eq(actor_store(&actor, 1, 40), 40);
    cr_expect_eq(actor_load(&actor, 1, 40), 40);
    actor_close(&actor);
    uint64_t before = proc_incarnation(&pool, 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&pool, 0, before));
    cr_expect_eq(huge_pages_told(), HUGE_WHOLE, "the next worker has them, too");
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
    config = with_pages("never");
    cr_assert(proc_start(&pool, &config));
    cr_expect_eq(huge_pages_told(), 0);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* The kernel refuses to make any, in this child and all that it starts. 0, else which check failed. */
static int without_huge_pages(void *unused)
{
    struct actor actor;
    if (support_deny_argument(SYS_madvise, 2, 25, ENOMEM) < 0)
        return SUPPORT_SKIP;
    struct proc_config config = with_pages("auto");
    if (!proc_start(&pool, &config))
        return 10;
    if (proc_spillway(&pool, "stat", true, out, sizeof out) != 0 ||
        !strstr(out, "\"huge_pages\": 0,"))
        return 11;
    struct actor_config who = {.name = "pool", .dir = pool.dir, .chunk_bytes = CHUNK};
    if (actor_open(&actor, &who) || actor_store(&actor, 1, 40) != 40 ||
        actor_load(&actor, 1, 40) != 40)
        return 12;
    actor_close(&actor);
    if (proc_stop(&pool, SIGTERM) != 0)
        return 13;
    config = with_pages("always");
    pool.config = config;
    pool.config.name = "pool";
    proc_spawn(&pool);
    if (proc_await(&pool) != 1001)
        return 14;
    return proc_files(&pool) == 0 ? 0 : 15;
}

/* @words of the child, which go to its standard error. */
static int run_without(void *arg)
{
    const int *end = arg;
    dup2(*end, STDERR_FILENO);
    return without_huge_pages(NULL);
}

static uint32_t times(const char *words, const char *what)
{
    uint32_t count = 0;
    for (const char *at = words; (at = strstr(at, what)); at++)
        count++;
    return count;
}

Test(process_memory, SM_11_a_shortage_is_one_warning_or_in_strict_mode_no_start)
{
    char needed[96];
    FILE *words = tmpfile();
    cr_assert_not_null(words);
    int end = fileno(words);
    int status = support_wait(support_fork(run_without, &end), 60000);
    rewind(words);
    out[fread(out, 1, sizeof out - 1, words)] = 0;
    fclose(words);
    if (status == SUPPORT_SKIP)
        cr_skip("no seccomp here");
    cr_assert_eq(status, 0, "check %d failed: %s", status, out);
    cr_expect_eq(times(out, "warning: huge pages:"), 1, "%s", out);
    snprintf(needed, sizeof needed, "error: huge pages: needed %" PRIu64 " bytes, available 0",
             (uint64_t)HUGE_WHOLE);
    cr_expect(strstr(out, needed), "%s", out);
}
