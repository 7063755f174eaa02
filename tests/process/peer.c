/*
 * peer DIR NAME COMMAND [ARGUMENT...]: a client process for tests, attached to pool NAME in DIR.
 * Says what it did in lines on its standard output; exit status 0 only if all was as it must be.
 *
 *   hold                        attach, say "ready C"; SIGUSR1: leave by exit() without a detach,
 *                               SIGUSR2: abort()
 *   store FIRST COUNT           store, say "stored N"
 *   load FIRST COUNT            look up and load, say "loaded N"
 *   pin FIRST COUNT             say "ready C"; SIGUSR1: begin loads and stay inside the step, say
 *                               "pinned N"
 *   hang FIRST COUNT            look up inside a step, say "ready C"; SIGUSR1: begin loads of what was
 *                               decided then, say "late STATUS", then load anew, say "loaded N"
 *   random SEED RANGE STORES ROUNDS   that many rounds on keys 0..RANGE-1, STORES of 100 are stores
 *   survive SEED RANGE MS       the same for that long, while workers die: only lost answers and
 *                               wrong bytes are failures
 *   steady SEED RANGE           say "ready C", then the same until SIGUSR1, waiting for what comes up;
 *                               any error is a failure
 *   storm SEED REQUESTS         requests of 8 chunks: look up, load, store what is missing
 *   scribble SEED MS            say "ready C", then write noise over all of client.C, for that long
 *   write ctl|feed|feed1        write into a mapping that is read-only
 *   fork                        attach, let a forked child try, and outlive us
 *   exec                        attach, start a program that lists its descriptors and outlives us
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/pool.h"
#include "tests/process/actor.h"

#define STORM_CHUNKS 8u
#define OUTLIVE_S    3u
#define STEADY_MS    20000u /* longest wait of a load */

extern char **environ;

static struct actor actor;

static __attribute__((format(printf, 1, 2))) void tell(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static uint32_t own_number(void)
{
    struct spw_info info = {.size_bytes = sizeof info};
    return spw_get_info(actor.client, &info) == 0 ? info.client : UINT32_MAX;
}

static uint64_t number(char *const *argv, int i)
{
    return argv[i] ? strtoull(argv[i], NULL, 10) : 0;
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Say "ready C", then wait for one of two signals. */
static int ready(void)
{
    sigset_t set;
    int which = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    tell("ready %u", own_number());
    sigwait(&set, &which);
    return which;
}

static __attribute__((noreturn)) int hold(char *const *argv)
{
    (void)argv;
    if (ready() == SIGUSR2)
        abort();
    exit(0);
}

static int store(char *const *argv)
{
    int n = actor_store(&actor, number(argv, 0), (uint32_t)number(argv, 1));
    tell("stored %d", n);
    return n < 0;
}

static int load(char *const *argv)
{
    int n = actor_load(&actor, number(argv, 0), (uint32_t)number(argv, 1));
    tell("loaded %d", n);
    return n < 0;
}

static __attribute__((noreturn)) int pin(char *const *argv)
{
    ready();
    struct spw_request *request =
        actor_request(&actor, number(argv, 0), (uint32_t)number(argv, 1), 0);
    int n = request ? actor_begin(&actor, request, 0, true) : -ENOMEM;
    tell("pinned %d", n);
    for (;;)
        pause();
}

/* Decides, hangs, and loads late what it decided. */
static int hang(char *const *argv)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_chunk_ref ref[SPW_MAX_JOB_CHUNKS];
    struct spw_request *request =
        actor_request(&actor, number(argv, 0), (uint32_t)number(argv, 1), 0);
    if (!request || spw_step_begin(actor.client) < 0 || spw_lookup(request, 0, 0, &decision) < 0 ||
        decision.action != SPW_ACTION_LOAD)
        return 1;
    ready();
    int chunks = spw_decision_chunks(&decision, 0, ref, SPW_MAX_JOB_CHUNKS);
    int late = spw_load_begin(request, &decision, 0, ref, (uint32_t)chunks, 1);
    int ended = spw_step_end(actor.client);
    tell("late %d", late);
    int loaded = actor_load(&actor, number(argv, 0), (uint32_t)number(argv, 1));
    tell("loaded %d", loaded);
    spw_request_finish(request);
    return ended < 0 || loaded < 0;
}

static int mix(char *const *argv)
{
    uint64_t seed = number(argv, 0), range = number(argv, 1), stores = number(argv, 2);
    uint64_t rounds = number(argv, 3), loaded = 0, stored = 0, deferred = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t key = draw(&seed) % range;
        bool is_store = draw(&seed) % 100 < stores;
        int n = is_store ? actor_store(&actor, key, 1) : actor_load(&actor, key, 1);
        if (n < 0 && n != -EAGAIN) {
            tell("round %" PRIu64 ", key %" PRIu64 ": %d", i, key, n);
            return 1;
        }
        deferred += n == -EAGAIN;
        stored += is_store && n > 0;
        loaded += !is_store && n > 0;
    }
    tell("loaded %" PRIu64 " stored %" PRIu64 " deferred %" PRIu64, loaded, stored, deferred);
    return 0;
}

/* Errors that a dying worker or a fence may cause; the caller goes on without the chunk. */
static bool may_happen(int error)
{
    return error == -EAGAIN || error == -EOWNERDEAD || error == -ESTALE || error == -ENOENT ||
           error == -ECANCELED || error == -EBUSY;
}

static int survive(char *const *argv)
{
    uint64_t seed = number(argv, 0), range = number(argv, 1), errors = 0, loaded = 0, stored = 0;
    uint64_t until = actor_now_ms() + number(argv, 2);
    for (uint64_t i = 0; actor_now_ms() < until; i++) {
        uint64_t key = draw(&seed) % range;
        bool is_store = draw(&seed) % 2;
        int n = is_store ? actor_store(&actor, key, 1) : actor_load(&actor, key, 1);
        if (n < 0 && !may_happen(n)) {
            tell("round %" PRIu64 ", %s of key %" PRIu64 ": %d", i, is_store ? "store" : "load",
                 key, n);
            return 1;
        }
        if (n == -EOWNERDEAD)
            usleep(1000);
        errors += n < 0 && n != -EAGAIN;
        stored += is_store && n > 0;
        loaded += !is_store && n > 0;
    }
    tell("loaded %" PRIu64 " stored %" PRIu64 " errors %" PRIu64, loaded, stored, errors);
    return loaded == 0 || stored == 0;
}

static bool is_told(int signal)
{
    sigset_t set;
    return sigpending(&set) == 0 && sigismember(&set, signal) == 1;
}

static int load_in_time(uint64_t key)
{
    uint64_t until = actor_now_ms() + STEADY_MS;
    int n;
    while ((n = actor_load(&actor, key, 1)) == -EAGAIN && actor_now_ms() < until)
        usleep(500);
    return n;
}

static int steady(char *const *argv)
{
    uint64_t seed = number(argv, 0), range = number(argv, 1), loaded = 0, stored = 0;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    tell("ready %u", own_number());
    while (!is_told(SIGUSR1)) {
        uint64_t key = draw(&seed) % range;
        bool is_store = draw(&seed) % 2;
        int n = is_store ? actor_store(&actor, key, 1) : load_in_time(key);
        if (n < 0) {
            tell("%s of key %" PRIu64 ": %d", is_store ? "store" : "load", key, n);
            return 1;
        }
        stored += is_store && n > 0;
        loaded += !is_store && n > 0;
        usleep(200);
    }
    tell("loaded %" PRIu64 " stored %" PRIu64, loaded, stored);
    return loaded == 0 || stored == 0;
}

static int storm(char *const *argv)
{
    uint64_t seed = number(argv, 0), requests = number(argv, 1), refused = 0;
    for (uint64_t i = 0; i < requests; i++) {
        uint64_t first = draw(&seed) % 1000 * STORM_CHUNKS;
        int loaded = actor_load(&actor, first, STORM_CHUNKS);
        int stored = actor_store(&actor, first, STORM_CHUNKS);
        if ((loaded < 0 && loaded != -EAGAIN) || stored < 0) {
            tell("request %" PRIu64 ": loaded %d, stored %d", i, loaded, stored);
            return 1;
        }
        refused += STORM_CHUNKS - (uint64_t)stored;
    }
    tell("refused %" PRIu64, refused);
    return 0;
}

/* Gone mad: its object holds nonsense, then other nonsense, its header and the workers' lines too. */
static int scribble(char *const *argv)
{
    uint64_t seed = number(argv, 0), until = actor_now_ms() + number(argv, 1);
    struct spw_pool_path path;
    struct spw_region region;
    if (spw_pool_path_init(&path, actor.config.dir, actor.config.name, (uint32_t)geteuid(), NULL) ||
        spw_region_attach(&path, SPW_REGION_CLIENT, own_number(), true, 0, &region, NULL))
        return 1;
    tell("ready %u", own_number());
    for (uint64_t pass = seed; actor_now_ms() < until; pass++) {
        volatile uint64_t *word = (volatile uint64_t *)(void *)region.header;
        for (uint64_t i = 0; i < region.size_bytes / 8; i++)
            word[i] = pass % 4 == 0 ? UINT64_MAX : draw(&seed);
    }
    _exit(0);
}

static int write_read_only(const struct spw_pool_path *path, const char *what)
{
    static struct spw_pool pool;
    struct spw_error err;
    if (spw_pool_attach(path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &pool, &err))
        return 1;
    struct spw_region_header *header = strcmp(what, "ctl") == 0     ? pool.region_ctl.header
                                       : strcmp(what, "feed1") == 0 ? pool.region_feed[1].header
                                                                    : pool.region_feed[0].header;
    /* asking for the right to write is refused as well: the descriptor was read-only */
    if (mprotect(header, 4096, PROT_READ | PROT_WRITE) == 0 || errno != EACCES)
        return 2;
    tell("writing");
    *(volatile uint8_t *)header->reserved = 1;
    return 3;
}

/* A forked child has no handle; it stays when its parent is gone. */
static int fork_and_stay(char *const *argv)
{
    (void)argv;
    tell("ready %u", own_number());
    pid_t pid = fork();
    if (pid < 0)
        return 1;
    if (pid == 0) {
        int begun = spw_step_begin(actor.client);
        struct spw_completion done;
        int reaped = spw_completions(actor.client, &done, 1);
        tell("child %d %d", begun, reaped);
        spw_detach(actor.client);
        sleep(OUTLIVE_S);
        _exit(0);
    }
    pause();
    return 0;
}

static int exec_and_stay(char *const *argv)
{
    char *const args[] = {
        (char *)"sh", (char *)"-c",
        (char *)"for f in /proc/$$/fd/*; do readlink $f; done; echo end; exec sleep 3", NULL};
    pid_t pid;
    (void)argv;
    tell("ready %u", own_number());
    if (posix_spawnp(&pid, "sh", NULL, NULL, args, environ))
        return 1;
    pause();
    return 0;
}

static const struct {
    const char *name;
    int (*run)(char *const *argv);
} commands[] = {
    {"hold", hold},          {"store", store},     {"load", load},         {"pin", pin},
    {"random", mix},         {"survive", survive}, {"storm", storm},       {"fork", fork_and_stay},
    {"exec", exec_and_stay}, {"hang", hang},       {"scribble", scribble}, {"steady", steady},
};

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    struct actor_config config = {.dir = argv[1], .name = argv[2], .label = "peer"};
    if (strcmp(argv[3], "write") == 0 && argc == 5) {
        struct spw_pool_path path;
        struct spw_error err;
        if (spw_pool_path_init(&path, argv[1], argv[2], (uint32_t)geteuid(), &err))
            return 2;
        return write_read_only(&path, argv[4]);
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, argv[3]))
            continue;
        if (actor_open(&actor, &config))
            return 2;
        int status = commands[i].run(argv + 4);
        actor_close(&actor);
        return status;
    }
    return 2;
}
