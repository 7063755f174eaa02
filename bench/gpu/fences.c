/*
 * Section `fences`: a second process fills its blocks late and records a fence behind that; a store that
 * waits for the fence as a worker does must read what was filled, each time. The control: stores that
 * don't wait read too early, or else this couldn't have found anything.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/peer.h"

#define ROUNDS   100u
#define CONTROLS 20u /* of these one must read too early, or one of as many again, up to ... */
#define TRIES    10u /* ... so many times: a host may be too busy to be early             */
#define LATE_NS  10000000ull
#define POISON   0xeeu
#define STUCK_NS 20000000000ull

static const struct check_shape shape = {CHECK_BLOCK_FIRST, 1, 32, 16384, 0};

struct scene {
    struct check *check;
    struct check_kv kv;
    struct check_ground ground;
    struct check_peer peer;
    struct check_way way;
    uint8_t value; /* that the memory was filled with last */
};

/* What stores read. */
struct counts {
    uint32_t right, early, other;
};

static int await_fence(struct scene *scene)
{
    uint64_t until = spw_monotonic_ns() + STUCK_NS;
    struct spw_copier_handle *copier = &scene->way.copier;
    int fired;
    while ((fired = copier->ops->fence_fired(copier->copier, 0, 0)) == 0)
        if (spw_monotonic_ns() > until)
            return spw_fail(&scene->check->err, -ETIMEDOUT, "a fence hasn't fired for 20 s");
    return fired == 1 ? 0
                      : spw_fail(&scene->check->err, fired, "a fence can't be asked: %s",
                                 strerror(-fired));
}

static void count_what_came(const struct scene *scene, uint8_t old, struct counts *counts)
{
    uint64_t bytes = scene->kv.block_bytes * shape.blocks, right = 0, early = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        right += scene->ground.slots[i] == scene->value;
        early += scene->ground.slots[i] == old;
    }
    counts->right += right == bytes;
    counts->early += early != 0;
    counts->other += right != bytes && early == 0;
}

/* Fill, store, look. */
static int run_round(struct scene *scene, bool is_fenced, struct counts *counts)
{
    uint32_t blocks[SPW_CHUNK_BLOCKS_MAX];
    uint8_t old = scene->value;
    uint64_t ns;
    struct check_run run = {SPW_COPY_STORE, scene->ground.slots, blocks, 1, shape.blocks};
    memset(scene->ground.slots, POISON, scene->kv.block_bytes * shape.blocks);
    scene->value = (uint8_t)(old % 200 + 1);
    int status = check_choose(scene->check, blocks, shape.blocks, shape.blocks);
    if (status == 0)
        status = check_peer_fill_late(&scene->peer, scene->value);
    if (status == 0 && is_fenced)
        status = await_fence(scene);
    if (status == 0)
        status = check_way_run(&scene->way, &run, &ns);
    if (status == 0)
        count_what_came(scene, old, counts);
    return status == 0 ? check_peer_wait(&scene->peer) : status;
}

static int run_rounds(struct scene *scene, bool is_fenced, uint32_t rounds, struct counts *counts)
{
    int status = 0;
    for (uint32_t r = 0; r < rounds && status == 0; r++) {
        status = check_time(scene->check);
        if (status == 0)
            status = run_round(scene, is_fenced, counts);
    }
    return status;
}

static int run_scene(struct scene *scene)
{
    struct check_report *report = &scene->check->report;
    struct counts fenced = {0}, control = {0}, warm = {0};
    int status = run_rounds(scene, true, 2, &warm); /* finds how long its work takes */
    if (status == 0)
        status = run_rounds(scene, true, ROUNDS, &fenced);
    if (status < 0)
        return status;
    check_report_say(report, "stores behind a fence",
                     fenced.right == ROUNDS ? CHECK_HELD : CHECK_WRONG,
                     "%u of %u right; %u read too early, %u read neither", fenced.right, ROUNDS,
                     fenced.early, fenced.other);
    uint32_t rounds = 0;
    for (; rounds < TRIES * CONTROLS && control.early == 0 && status == 0; rounds += CONTROLS)
        status = run_rounds(scene, false, CONTROLS, &control);
    if (status < 0)
        return status;
    check_report_say(report, "control: stores that don't wait",
                     control.early ? CHECK_HELD : CHECK_NOT_RUN,
                     control.early ? "%u of %u read too early, as they must"
                                   : "%u of %u read too early: what held above proves nothing",
                     control.early, rounds);
    return 0;
}

/* As a worker copies pinned memory; as it does with an old driver. */
static int open_way(struct scene *scene)
{
    struct spw_kv_record *record = check_peer_record(&scene->peer, &scene->kv);
    int status = check_way_open(scene->check, CHECK_BY_BATCH, record, &scene->way);
    if (status == -ENOTSUP)
        status = check_way_open(scene->check, CHECK_BY_PIECE, record, &scene->way);
    free(record);
    return status;
}

int check_fences(struct check *check)
{
    struct scene *scene = calloc(1, sizeof *scene);
    if (!scene)
        return spw_fail(&check->err, -ENOMEM, "no memory for a case");
    scene->check = check;
    check_kv_lay(&shape, &scene->kv);
    int status = check_ground_open(check, 0, scene->kv.block_bytes * shape.blocks, &scene->ground);
    if (status == 0)
        status = check_peer_start(check, scene->kv.bytes, LATE_NS, &scene->peer);
    if (status == 0)
        status = open_way(scene);
    if (status == 0)
        status = run_scene(scene);
    check_way_close(&scene->way);
    check_peer_end(&scene->peer);
    check_ground_close(&scene->ground);
    free(scene);
    return status;
}
