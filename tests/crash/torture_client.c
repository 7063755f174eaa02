/*
 * torture_client DIR NAME BOARD LINE SEED WORKERS [POINT:N]: a client of tests/crash/torture.h that
 * stores, looks up, waits, loads and compares until the board says quit. LINE "sweep": looks every
 * key up once, loads it, and leaves what it found on the board. POINT:N: dies there.
 *
 * Exit status: 0; 2 usage; 3 the pool can't be attached to for too long.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/crash_point.h"
#include "tests/crash/torture_board.h"
#include "tests/process/actor.h"

#define ATTACH_LIMIT_MS 30000u
#define ANSWER_LIMIT_MS 10000u
#define WAIT_LIMIT_MS   2000u
#define RUN_CHUNKS      8u /* longest request */
#define DAWDLE_EACH_MS  1500u
#define DAWDLE_MS       400u /* longest stay between a decision and its loads: beyond a fence */
#define JOBS            16u

static struct {
    struct actor actor;
    struct spw_space *space[TORTURE_SPACES];
    struct torture_board *board;
    struct torture_line *line;
    uint64_t seed;
    uint32_t workers, number; /* clients use all workers, if there are as many */
    uint32_t at;              /* the space in use */
    uint32_t next;            /* block */
    uint64_t dawdle_ms;       /* when next */
    bool must_attach, sweeps;
} me;

static uint64_t below(uint64_t n)
{
    return torture_draw(&me.seed) % n;
}

static uint64_t now_ns(void)
{
    return actor_now_ms() * 1000000;
}

/* ---- attach ---------------------------------------------------------------------------------- */

static void use_space(uint32_t s)
{
    static const char *const name[TORTURE_SPACES] = {"one", "two"};
    uint32_t pairs = me.workers / 2, pair = pairs ? me.number % pairs : 0;
    struct actor_config *config = &me.actor.config;
    me.at = s;
    me.actor.space = me.space[s];
    config->fingerprint = name[s];
    config->ranks = s + 1;
    config->worker[0] = s == 0 ? me.number % me.workers : 2 * pair;
    config->worker[1] = 2 * pair + 1;
}

static uint32_t spaces(void)
{
    return me.workers > 1 ? TORTURE_SPACES : 1;
}

static int attach_once(const struct actor_config *config)
{
    int rc = actor_attach(&me.actor, config);
    for (uint32_t s = 0; rc == 0 && s < spaces(); s++) {
        use_space(s);
        rc = actor_space(&me.actor);
        me.space[s] = me.actor.space;
    }
    if (rc < 0)
        actor_close(&me.actor);
    return rc;
}

/* The daemon may be dead, or starting, or told to wait. */
static void attach(const struct actor_config *config)
{
    uint64_t until = actor_now_ms() + ATTACH_LIMIT_MS;
    int rc;
    me.must_attach = false;
    while ((rc = attach_once(config)) < 0) {
        if (actor_now_ms() >= until || spw_load_relaxed(&me.board->quit)) {
            fprintf(stderr, "torture: a client can't attach: %d %s\n", rc, me.actor.text);
            exit(3);
        }
        usleep(2000);
    }
    spw_add_own(&me.line->attaches, 1);
    spw_store_relaxed(&me.line->attached_ns, now_ns());
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* What the death of a worker, a fence or a full pool answers. */
static bool explained(int error)
{
    static const int all[] = {-EAGAIN, -EOWNERDEAD, -ESTALE, -ENOENT, -ECANCELED, -EBUSY, -ENOSPC};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (error == all[i])
            return true;
    return false;
}

static void note(const char *what, uint64_t key, int rc)
{
    if (rc >= 0)
        return;
    if (rc == -ECONNRESET || rc == -ENOTCONN) { /* told once, maybe by a call that nobody asked */
        me.must_attach = true;
    } else if (explained(rc)) {
        spw_add_own(&me.line->failed, 1);
        usleep(500);
    } else {
        spw_add_own(rc == -ETIMEDOUT ? &me.line->lost_answers : &me.line->unexpected, 1);
        fprintf(stderr, "torture: %s of key %llu: %d\n", what, (unsigned long long)key, rc);
        me.must_attach = true; /* what is still to come belongs to nobody */
    }
}

static int next_answer(struct spw_completion *out)
{
    uint64_t began = actor_now_ms();
    int rc = actor_next(&me.actor, out, ANSWER_LIMIT_MS);
    uint64_t ms = actor_now_ms() - began;
    if (ms > spw_load_relaxed(&me.line->longest_ms))
        spw_store_relaxed(&me.line->longest_ms, ms);
    return rc;
}

/* The answer with @cookie; others belong to jobs that were given up. */
static int answer(uint32_t kind, uint64_t cookie, struct spw_completion *out)
{
    uint64_t until = actor_now_ms() + ANSWER_LIMIT_MS;
    int rc;
    do {
        rc = next_answer(out);
    } while (rc == 0 && (out->kind != kind || out->cookie != cookie) && actor_now_ms() < until);
    return rc < 0 ? rc : out->kind == kind && out->cookie == cookie ? 0 : -ETIMEDOUT;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint32_t take_blocks(uint32_t count)
{
    if (me.next + count > me.actor.blocks)
        me.next = 0;
    uint32_t block = me.next;
    me.next += count;
    return block;
}

/* Equal keys of two spaces are different chunks. */
static uint32_t kind_of_bytes(uint32_t rank)
{
    return me.at * 4 + rank;
}

static void spoil(uint32_t block)
{
    memset(me.actor.kv + block * me.actor.block_bytes, 0xa5, me.actor.block_bytes);
}

/* ---- stores ---------------------------------------------------------------------------------- */

static int run_store(const struct spw_ticket *ticket, uint32_t rank, uint64_t first)
{
    struct spw_completion done;
    uint32_t block = take_blocks(ticket->chunks);
    for (uint32_t i = 0; i < ticket->chunks; i++)
        actor_fill(&me.actor, block + i, first + i, kind_of_bytes(rank));
    uint64_t cookie = ++me.actor.cookie;
    int rc = actor_run(&me.actor, ticket, block, cookie);
    if (rc == 0 && below(40) == 0)
        spw_cancel(me.actor.client, ticket);
    if (rc == 0)
        rc = answer(SPW_COMPLETION_STORED, cookie, &done);
    if (rc == 0 && done.status == 0)
        spw_add_own(&me.line->stored, ticket->chunks);
    return rc < 0 ? rc : done.status;
}

static int store_rank(struct spw_request *request, uint32_t rank, uint64_t first, uint32_t chunks)
{
    struct spw_chunk_ref ref[RUN_CHUNKS];
    struct spw_completion done;
    memset(ref, 0, sizeof ref);
    for (uint32_t i = 0; i < chunks; i++)
        ref[i].index = i;
    uint64_t cookie = ++me.actor.cookie;
    int rc = spw_store_reserve(request, rank, ref, chunks, cookie);
    if (rc >= 0)
        rc = answer(SPW_COMPLETION_RESERVED, cookie, &done);
    if (rc < 0 || !done.ticket.id || below(60) == 0) /* now and then a run never comes */
        return rc < 0 ? rc : done.status;
    return run_store(&done.ticket, rank, first);
}

static int store(struct spw_request *request, uint64_t first, uint32_t chunks)
{
    int rc = 0;
    for (uint32_t rank = 0; rc >= 0 && rank < me.actor.config.ranks; rank++)
        rc = store_rank(request, rank, first, chunks);
    return rc;
}

/* ---- loads ----------------------------------------------------------------------------------- */

struct load {
    uint64_t cookie, at; /* number of its first chunk in the request */
    uint32_t rank;
    int status;
    struct spw_ticket ticket;
};

/* Begins of everything that a decision needs, for every rank, in its step. */
static int begin_all(struct spw_request *request, const struct spw_decision *decision,
                     struct load *load)
{
    struct spw_chunk_ref ref[RUN_CHUNKS];
    int n, loads = 0;
    for (uint32_t rank = 0; rank < me.actor.config.ranks; rank++) {
        uint64_t from = 0;
        while (loads < (int)JOBS &&
               (n = spw_decision_chunks(decision, from, ref, RUN_CHUNKS)) > 0) {
            uint64_t cookie = ++me.actor.cookie;
            int rc = spw_load_begin(request, decision, rank, ref, (uint32_t)n, cookie);
            if (rc < 0)
                return loads ? loads : rc;
            load[loads++] = (struct load){.cookie = cookie, .at = ref[0].index, .rank = rank};
            from += (uint64_t)rc;
        }
    }
    return loads;
}

/* Answers to begins of several workers come in any order. */
static int gather_answers(struct load *load, int loads)
{
    uint64_t until = actor_now_ms() + ANSWER_LIMIT_MS;
    struct spw_completion done;
    for (int left = loads; left > 0;) {
        int rc = actor_now_ms() < until ? next_answer(&done) : -ETIMEDOUT;
        if (rc < 0)
            return rc;
        for (int i = 0; i < loads; i++) {
            if (done.kind != SPW_COMPLETION_BEGUN || done.cookie != load[i].cookie)
                continue;
            load[i].status = done.status;
            load[i].ticket = done.ticket;
            left--;
        }
    }
    return 0;
}

/* Compare what came; @first is the key of the request's first chunk. */
static int compare(const struct load *load, const struct spw_completion *done, uint64_t first,
                   uint32_t block)
{
    int rc = done->status;
    for (uint32_t i = 0; i < load->ticket.chunks; i++) {
        if (done->mask >> i & 1)
            continue;
        uint64_t key = first + load->at + i;
        spw_add_own(&me.line->checked, 1);
        uint64_t bad = actor_wrong(&me.actor, block + i, key, kind_of_bytes(load->rank));
        if (!bad)
            continue;
        spw_add_own(&me.line->wrong, 1);
        fprintf(stderr, "torture: WRONG: key %llu of space %u, rank %u: %llu bytes differ\n",
                (unsigned long long)key, me.at, load->rank, (unsigned long long)bad);
        rc = -EBADMSG;
    }
    return rc;
}

static int run_load(const struct load *load, uint64_t first)
{
    struct spw_completion done;
    if (!load->ticket.id)
        return load->status ? load->status : -ENOENT;
    uint32_t block = take_blocks(load->ticket.chunks);
    for (uint32_t i = 0; i < load->ticket.chunks; i++)
        spoil(block + i);
    uint64_t cookie = ++me.actor.cookie;
    int rc = actor_run(&me.actor, &load->ticket, block, cookie);
    if (rc == 0)
        rc = answer(SPW_COMPLETION_LOADED, cookie, &done);
    if (rc < 0)
        return rc;
    if (done.status && !done.mask)
        return done.status; /* nothing was copied */
    rc = compare(load, &done, first, block);
    return rc < 0 ? rc : load->status;
}

/* Now and then an engine hangs inside a step, with a decision. */
static void dawdle(void)
{
    if (actor_now_ms() < me.dawdle_ms)
        return;
    usleep((useconds_t)below(DAWDLE_MS) * 1000);
    me.dawdle_ms = actor_now_ms() + DAWDLE_EACH_MS;
}

/* Look up and begin in one step: loads begun; 0 a miss, -EAGAIN deferred. */
static int look_up(struct spw_request *request, struct load *load)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    int rc = spw_step_begin(me.actor.client);
    if (rc < 0)
        return rc;
    rc = spw_lookup(request, 0, 0, &decision);
    if (rc == 0 && decision.action == SPW_ACTION_DEFER) {
        rc = -EAGAIN;
    } else if (rc == 0 && decision.action == SPW_ACTION_LOAD) {
        dawdle();
        rc = begin_all(request, &decision, load);
    }
    int ended = spw_step_end(me.actor.client);
    return rc < 0 ? rc : ended < 0 ? ended : rc;
}

/* Ask again as an engine does, until it is decided. */
static int wait_for(struct spw_request *request, struct load *load)
{
    uint64_t until = actor_now_ms() + WAIT_LIMIT_MS;
    int rc = look_up(request, load);
    if (rc == -EAGAIN)
        spw_add_own(&me.line->deferred, 1);
    while (rc == -EAGAIN && actor_now_ms() < until) {
        usleep(300);
        rc = look_up(request, load);
    }
    return rc;
}

static int load(struct spw_request *request, uint64_t first)
{
    struct load load[JOBS];
    int loads = me.sweeps || below(4) ? wait_for(request, load) : look_up(request, load);
    int worst = loads > 0 ? gather_answers(load, loads) : 0;
    for (int i = 0; worst != -ETIMEDOUT && i < loads; i++) {
        int rc = run_load(&load[i], first);
        worst = rc < worst ? rc : worst;
    }
    return loads < 0 ? loads : worst ? worst : loads;
}

/* ---- the two lives --------------------------------------------------------------------------- */

static void heed_pause(void)
{
    struct spw_completion done;
    uint64_t pause;
    while ((pause = spw_load_relaxed(&me.board->pause)) != 0) {
        /* what was given up is answered, and its pins go */
        if (spw_completions(me.actor.client, &done, 1) == -ECONNRESET)
            me.must_attach = true;
        spw_store_relaxed(&me.line->paused, pause);
        usleep(500);
    }
}

static void one_round(void)
{
    uint64_t keys = spw_load_relaxed(&me.board->keys);
    uint64_t first = 1 + below(keys), what = below(100);
    uint32_t chunks = 1 + (uint32_t)below(RUN_CHUNKS);
    if (first + chunks > keys + 1)
        chunks = (uint32_t)(keys + 1 - first);
    me.at = me.space[1] ? (uint32_t)below(TORTURE_SPACES) : 0;
    me.actor.space = me.space[me.at];
    me.actor.config.ranks = me.at + 1;
    if (what == 99 && below(20) == 0) {
        spw_add_own(&me.line->resets, 1);
        note("reset", 0, spw_space_reset(me.actor.space));
        return;
    }
    struct spw_request *request = actor_request(&me.actor, first, chunks, 0);
    if (!request)
        return;
    if (what < 45)
        note("store", first, store(request, first, chunks));
    else
        note("load", first, load(request, first));
    spw_request_finish(request);
}

static int live(const struct actor_config *config)
{
    attach(config);
    me.dawdle_ms = actor_now_ms() + DAWDLE_EACH_MS;
    while (!spw_load_relaxed(&me.board->quit)) {
        one_round();
        heed_pause();
        if (me.must_attach) {
            actor_close(&me.actor);
            attach(config);
        }
    }
    actor_close(&me.actor);
    return 0;
}

static enum torture_found look_at(uint64_t key)
{
    int rc = -EAGAIN;
    for (int tries = 0; tries < 5 && (rc == -EAGAIN || rc == -ESTALE || rc == -EBUSY); tries++) {
        struct spw_request *request = actor_request(&me.actor, key, 1, 0);
        rc = request ? load(request, key) : -ENOMEM;
        spw_request_finish(request);
    }
    if (rc < 0)
        fprintf(stderr, "torture: sweep: key %llu of space %u: %d\n", (unsigned long long)key,
                me.at, rc);
    return rc == -EBADMSG ? TORTURE_WRONG
           : rc < 0       ? TORTURE_FAILED
           : rc > 0       ? TORTURE_RIGHT
                          : TORTURE_MISS;
}

static int sweep(const struct actor_config *config)
{
    uint64_t one_in = spw_load_relaxed(&me.board->one_in);
    attach(config);
    me.dawdle_ms = UINT64_MAX;
    for (uint32_t s = 0; s < spaces(); s++) {
        me.at = s;
        me.actor.space = me.space[s];
        me.actor.config.ranks = s + 1;
        for (uint32_t key = 1; key < TORTURE_KEYS_MAX; key++)
            spw_store_relaxed(&me.board->found[s][key],
                              below(one_in) == 0 ? look_at(key) : TORTURE_UNASKED);
    }
    actor_close(&me.actor);
    return 0;
}

static void arm(const char *text)
{
#ifdef SPW_CRASH_POINTS
    static char point[64];
    const char *nth = strchr(text, ':');
    if (!nth || (size_t)(nth - text) >= sizeof point)
        exit(2);
    memcpy(point, text, (size_t)(nth - text));
    spw_crash_arm(point, (uint32_t)strtoul(nth + 1, NULL, 10));
#else
    (void)text;
    exit(2);
#endif
}

static struct torture_board *map_board(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = mmap(NULL, sizeof(struct torture_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

int main(int argc, char **argv)
{
    if (argc < 7 || !(me.board = map_board(argv[3])))
        return 2;
    struct actor_config config = {.dir = argv[1], .name = argv[2], .label = argv[4]};
    me.sweeps = strcmp(argv[4], "sweep") == 0;
    me.seed = strtoull(argv[5], NULL, 10);
    me.number = (uint32_t)(me.sweeps ? below(TORTURE_CLIENTS_MAX) : strtoul(argv[4], NULL, 10));
    me.line = &me.board->line[me.sweeps ? TORTURE_CLIENTS_MAX : me.number];
    me.workers = (uint32_t)strtoul(argv[6], NULL, 10);
    if (argc > 7)
        arm(argv[7]);
    return me.sweeps ? sweep(&config) : live(&config);
}
