/*
 * Section `beside`: loads one at a time, alone and while as many stores are on their way as may be. What
 * a load waits for then is what a request for a chunk waits for.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/rate.h"

#define LOADS    300u
#define WARM     20u
#define STUCK_NS 20000000000ull

struct scene {
    struct check_rate rate;
    struct check_way way;
    uint32_t store, load; /* chunks handed over; stores take the first half, loads the second */
    uint32_t stored;
    struct spw_bench_series alone, beside;
    uint64_t stored_ns; /* that stores ran */
};

static int hand_over(struct scene *scene, enum spw_copy_kind kind, uint32_t number, void *tag)
{
    struct check_rate *rate = &scene->rate;
    uint32_t half = rate->chunks / 2;
    uint32_t c = kind == SPW_COPY_STORE ? number % half : half + number % half;
    return check_way_submit(&scene->way, kind,
                            rate->ground.slots + (uint64_t)c * rate->cut.chunk_bytes,
                            rate->blocks + (uint64_t)c * rate->count, rate->count, tag);
}

static int keep_storing(struct scene *scene)
{
    int status;
    while ((status = hand_over(scene, SPW_COPY_STORE, scene->store, NULL)) == 0)
        scene->store++;
    return status == -EAGAIN ? 0 : status;
}

/* Until the load has ended; stores are handed on meanwhile. */
static int await_load(struct scene *scene, bool stores)
{
    struct spw_copy_end end[16];
    uint64_t until = spw_monotonic_ns() + STUCK_NS;
    while (spw_monotonic_ns() < until) {
        bool has_ended = false;
        int ended = check_way_poll(&scene->way, end, 16);
        for (int i = 0; i < ended; i++) {
            has_ended |= end[i].tag == scene;
            scene->stored += end[i].tag == NULL;
        }
        if (ended < 0 || has_ended)
            return ended < 0 ? ended : 0;
        int status = stores ? keep_storing(scene) : 0;
        if (status < 0)
            return status;
    }
    return spw_fail(&scene->rate.check->err, -ETIMEDOUT, "a load hasn't ended for 20 s");
}

static int run_loads(struct scene *scene, bool stores, struct spw_bench_series *series)
{
    uint32_t loads = (uint32_t)check_size(scene->rate.check, LOADS, 20) + WARM;
    uint64_t started = 0;
    int status = stores ? keep_storing(scene) : 0;
    for (uint32_t i = 0; i < loads && status == 0; i++) {
        if (i == WARM) {
            series->count = scene->stored = 0;
            started = spw_monotonic_ns();
        }
        uint64_t begin = spw_monotonic_ns();
        status = hand_over(scene, SPW_COPY_LOAD, scene->load++, scene);
        if (status == 0)
            status = await_load(scene, stores);
        spw_bench_add(series, (double)(spw_monotonic_ns() - begin));
    }
    scene->stored_ns = spw_monotonic_ns() - started;
    return status;
}

/* What is still on its way. */
static int drain(struct scene *scene)
{
    struct spw_copy_end end[16];
    struct spw_copier_handle *copier = &scene->way.copier;
    uint64_t until = spw_monotonic_ns() + STUCK_NS;
    while (copier->ops->due_ns(copier->copier, 0) != UINT64_MAX) {
        int ended = check_way_poll(&scene->way, end, 16);
        if (ended < 0)
            return ended;
        if (spw_monotonic_ns() > until)
            return spw_fail(&scene->rate.check->err, -ETIMEDOUT, "stores haven't ended for 20 s");
    }
    return 0;
}

static void tell(struct scene *scene, const char *name, double share)
{
    struct check_line line = {
        .verdict = CHECK_FIGURE,
        .unit = "ns",
        .value = spw_bench_percentile(&scene->beside, share),
        .beside = "alone",
        .beside_value = spw_bench_percentile(&scene->alone, share),
    };
    snprintf(line.name, sizeof line.name, "a load while stores run, %s", name);
    check_report_add(&scene->rate.check->report, &line);
}

static void tell_stores(struct scene *scene)
{
    struct check_line line = {
        .name = "stores meanwhile",
        .verdict = CHECK_FIGURE,
        .unit = "bytes/s",
        .value =
            (double)scene->stored * scene->rate.cut.chunk_bytes * 1e9 / (double)scene->stored_ns,
    };
    check_report_add(&scene->rate.check->report, &line);
}

static int run_scene(struct scene *scene)
{
    int status = run_loads(scene, false, &scene->alone);
    if (status == 0)
        status = run_loads(scene, true, &scene->beside);
    if (status == 0)
        tell_stores(scene);
    int drained = status == 0 ? drain(scene) : 0;
    if (status < 0 || drained < 0)
        return status < 0 ? status : drained;
    tell(scene, "p50", 0.5);
    tell(scene, "p99", 0.99);
    return 0;
}

/* All of the KV in the slots first, so that loads bring what is there already; then it is looked at. */
static int open_scene(struct check *check, struct scene *scene)
{
    struct check_cut cut = {(uint32_t)check_size(check, 1u << 20, 64u << 10),
                            (uint32_t)check_size(check, 64u << 10, 4u << 10)};
    struct spw_bench_series *unused = &scene->alone;
    int status = check_rate_open(check, check_size(check, 64ull << 20, 1ull << 20), &scene->rate);
    if (status == 0)
        status = check_rate_cut(&scene->rate, &cut);
    if (status == 0) {
        struct spw_kv_record *record = check_ground_record(&scene->rate.ground, scene->rate.kv);
        status = check_way_open(check, CHECK_BY_BATCH, record, &scene->way);
        if (status == -ENOTSUP)
            status = check_way_open(check, CHECK_BY_PIECE, record, &scene->way);
        free(record);
    }
    return status == 0 ? check_rate_sample(&scene->rate, &scene->way, SPW_COPY_STORE, unused)
                       : status;
}

int check_beside(struct check *check)
{
    struct scene *scene = calloc(1, sizeof *scene);
    if (!scene)
        return spw_fail(&check->err, -ENOMEM, "no memory for samples");
    int status = open_scene(check, scene);
    if (status == 0)
        status = run_scene(scene);
    if (status == 0)
        status = check_rate_verify_loads(&scene->rate, &scene->way);
    check_way_close(&scene->way);
    if (scene->rate.check)
        check_rate_close(&scene->rate);
    free(scene);
    return status;
}
