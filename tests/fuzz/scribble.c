/*
 * Another process scribbles over live objects at full speed while they are read: scribble [SECONDS
 * [SEED]], half of the time for each part.
 *
 *   client   its own object, beside a client that works: no store or load of that one fails or
 *            brings other bytes, and when the scribbler is gone, nothing of it is left
 *   worker   its own feed, under a client: each call comes back, and what it says is in range
 *
 * Exits 1 at the first thing that is otherwise, or when a call doesn't come back within 10 s.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/api_rig.h"

#define CHUNKS   6u
#define LIMIT_S  10u
#define GOOD     20u /* keys of the good client */
#define DEATH_MS 50u /* the scribbling client's life */

static uint64_t seed;

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* ---- the scribbler --------------------------------------------------------------------------- */

/* For ever: words of the object behind its header become random ones, small ones, or a little more
 * or less than they are. */
__attribute__((noreturn)) static void scribble(const char *path, uint64_t bytes)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    spw_atomic64 *word = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const uint64_t first = sizeof(struct spw_region_header) / 8, count = bytes / 8 - first;
    if (fd < 0 || word == MAP_FAILED)
        _exit(2);
    for (uint64_t state = seed;;) {
        uint64_t value = draw(&state), in = draw(&state);
        /* half of it among the first lines, which are few and tell most */
        spw_atomic64 *at = &word[first + value % (in & 1 ? count : 600)];
        switch (in >> 1 & 3) {
        case 0:
            spw_store_relaxed(at, draw(&state));
            break;
        case 1:
            spw_store_relaxed(at, in >> 8 & 63);
            break;
        default:
            spw_store_relaxed(at, spw_load_relaxed(at) + (uint64_t)(int8_t)(in >> 8));
        }
    }
}

static pid_t start_scribbler(const struct rig *rig, enum spw_region_kind kind, uint64_t bytes,
                             uint32_t index)
{
    char path[SPW_PATH_BYTES];
    spw_region_name(&rig->daemon.path, kind, index, path);
    pid_t pid = fork();
    fuzz_expect(pid >= 0, "a process is made");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        scribble(path, bytes);
    }
    seed++;
    return pid;
}

static void end_scribbler(pid_t pid)
{
    int status;
    fuzz_expect(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status),
                "the scribbler scribbled to its end");
}

/* ---- a client -------------------------------------------------------------------------------- */

static struct rig rig;
static struct rig_client good, bad;

static struct spw_done answer(void)
{
    struct spw_done done = {0};
    for (int i = 0; i < 1000; i++) {
        rig_advance(&rig, RIG_SECOND / 2000);
        rig_pass(&rig);
        if (!rig_reap(&good, 0, &done))
            continue;
        fuzz_expect(done.cookie == good.cookie, "an answer to another command");
        return done;
    }
    fuzz_expect(false, "each command of the good client is answered");
    return done;
}

static void store_and_load(uint64_t key)
{
    uint64_t resets = rig_count(&rig, 0, SPW_WORKER_resets);
    uint8_t *kv = good.pool.kv[good.c];
    memset(kv, (int)key + 1, 2 * RIG_BLOCK_BYTES);
    rig_reserve(&rig, &good, 0, key, 1);
    struct spw_done done = answer();
    if (done.ticket) {
        rig_run(&rig, &good, 0, SPW_CMD_STORE, done.ticket, 1, 0);
        done = answer();
        fuzz_expect(done.status == 0 || rig_count(&rig, 0, SPW_WORKER_resets) != resets,
                    "a store ends well");
    }
    if (rig_state(&rig, 0, key, NULL) != SPW_READY)
        return;
    rig_begin(&rig, &good, 0, 0, key, 1);
    done = answer();
    if (done.count == 0)
        return;
    rig_run(&rig, &good, 0, SPW_CMD_LOAD, done.ticket, 1, 10);
    fuzz_expect(answer().status == 0, "a load ends well");
    for (uint32_t i = 0; i < 2 * RIG_BLOCK_BYTES; i++)
        fuzz_expect(kv[10 * RIG_BLOCK_BYTES + i] == (uint8_t)(key + 1), "it brings its own bytes");
}

static uint64_t beside_a_client(uint64_t until_ns)
{
    uint64_t rounds = 0;
    rig_open(&rig, &(struct rig_config){.capacity = 6, .command_slots = 64});
    rig_attach(&rig, &good);
    while (spw_monotonic_ns() < until_ns) {
        rig_attach(&rig, &bad);
        pid_t pid =
            start_scribbler(&rig, SPW_REGION_CLIENT, rig.daemon.client_map.size_bytes, bad.c);
        uint64_t death_ns = spw_monotonic_ns() + DEATH_MS * 1000000ull;
        for (; spw_monotonic_ns() < death_ns; rounds++)
            store_and_load(rounds % GOOD);
        end_scribbler(pid);
        rig_die(&bad);
        alarm(LIMIT_S);
    }
    for (int i = 0; i < 40; i++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
    }
    fuzz_expect(rig_open_chunks(&rig, 0) == 0 && rig_claims(&rig, 0) == 0 &&
                    rig_slots_in(&rig, 0, SPW_FILLING) == 0 &&
                    rig_slots_in(&rig, 0, SPW_RETIRED) == 0,
                "nothing of it is left");
    rig_close(&rig);
    return rounds;
}

/* ---- a worker -------------------------------------------------------------------------------- */

static struct api api;

static void check_decision(const struct spw_decision *decision)
{
    fuzz_expect(decision->action <= SPW_ACTION_DEFER && decision->reason < SPW_REASON_COUNT &&
                    decision->hit_tokens <= CHUNKS * API_CHUNK_TOKENS &&
                    decision->need[0].first <= decision->need[0].end &&
                    decision->need[0].end <= CHUNKS,
                "a decision out of range");
}

static void one_step(struct spw_client *client, struct spw_request *request)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_chunk_ref ref[CHUNKS];
    struct spw_completion done[4];
    struct spw_change change[4];
    uint8_t verdict[CHUNKS] = {0};
    uint64_t eta_ns;
    if (spw_step_begin(client) < 0)
        return;
    if (spw_lookup(request, 0, 0, &decision) == 0)
        check_decision(&decision);
    int count = spw_decision_chunks(&decision, 0, ref, CHUNKS);
    if (count > 0)
        spw_load_begin(request, &decision, 0, ref, (uint32_t)count, 1);
    spw_request_probe(request, 0, 0, CHUNKS, verdict);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        fuzz_expect(verdict[i] <= SPW_RETRY, "no verdict");
        ref[0] = (struct spw_chunk_ref){.index = i};
        spw_request_eta(request, ref, &eta_ns);
    }
    spw_changes(client, change, 4);
    spw_step_end(client);
    spw_completions(client, done, 4);
    spw_request_cancel(request);
}

static uint64_t under_a_client(uint64_t until_ns)
{
    const struct spw_space_config config = api_space_config(1);
    uint64_t rounds = 0;
    api_open(&api, &(struct rig_config){.workers = 1, .command_slots = 64});
    struct spw_client *client = api_attach(&api, 8);
    struct spw_space *space = api_space(&api, client, &config);
    api_store(&api, client, space, 1, 0, CHUNKS);
    struct spw_request *request = api_request(space, 0, CHUNKS);
    pid_t pid = start_scribbler(&api.rig, SPW_REGION_FEED, api.rig.daemon.feed_map.size_bytes, 0);
    for (; spw_monotonic_ns() < until_ns; rounds++) {
        one_step(client, request);
        alarm(LIMIT_S);
    }
    end_scribbler(pid);
    spw_request_finish(request);
    spw_detach(client);
    api_close(&api);
    return rounds;
}

int main(int argc, char **argv)
{
    uint64_t half_ns = (uint64_t)((argc > 1 ? atof(argv[1]) : 2) * 0.5e9);
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t beside = beside_a_client(spw_monotonic_ns() + half_ns);
    uint64_t under = under_a_client(spw_monotonic_ns() + half_ns);
    printf("%llu rounds beside a client, %llu steps over a worker that scribbled\n",
           (unsigned long long)beside, (unsigned long long)under);
    return beside > 0 && under > 0 ? 0 : 1;
}
