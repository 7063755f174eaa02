/* See rate.h. */
#include "bench/gpu/rate.h"

#include <stdlib.h>
#include <string.h>

#define POISON 0xeeu

int check_rate_open(struct check *check, uint64_t sample_bytes, struct check_rate *out)
{
    const struct spw_driver *driver = &check->gpu->driver;
    *out = (struct check_rate){.check = check, .sample_bytes = sample_bytes};
    out->kv = malloc(sizeof *out->kv);
    out->model = malloc(2 * sample_bytes);
    if (!out->kv || !out->model) {
        check_rate_close(out);
        return spw_fail(&check->err, -ENOMEM, "no memory for samples");
    }
    int status = check_ground_open(check, 2 * sample_bytes, sample_bytes, &out->ground);
    if (status == 0)
        status = check_driver(check, driver->MemAlloc(&out->other, sample_bytes), "device memory");
    check_fill(out->model, 2 * sample_bytes, 1);
    if (status == 0)
        status = check_ground_write(&out->ground, out->model, 2 * sample_bytes);
    if (status < 0)
        check_rate_close(out);
    return status;
}

void check_rate_close(struct check_rate *rate)
{
    if (rate->other)
        rate->check->gpu->driver.MemFree(rate->other);
    check_ground_close(&rate->ground);
    free(rate->kv);
    free(rate->model);
    free(rate->blocks);
    *rate = (struct check_rate){.check = NULL};
}

/* A chunk's pieces are its blocks in each plane: blocks first, as many planes as that leaves. */
static void lay(struct check_rate *rate)
{
    uint32_t pieces = rate->cut.chunk_bytes / rate->cut.piece_bytes;
    rate->count = pieces < SPW_CHUNK_BLOCKS_MAX ? pieces : SPW_CHUNK_BLOCKS_MAX;
    uint32_t planes = pieces / rate->count;
    struct check_shape shape = {.layout = planes == 1 ? CHECK_BLOCK_FIRST : CHECK_KV_FIRST,
                                .layers = planes == 1 ? 1 : planes / 2,
                                .part_bytes = rate->cut.piece_bytes / (planes == 1 ? 2 : 1)};
    uint64_t block_bytes = (uint64_t)planes * rate->cut.piece_bytes;
    shape.blocks = (uint32_t)(2 * rate->sample_bytes / block_bytes);
    check_kv_lay(&shape, rate->kv);
    rate->chunks = (uint32_t)(rate->sample_bytes / rate->cut.chunk_bytes);
}

int check_rate_cut(struct check_rate *rate, const struct check_cut *cut)
{
    rate->cut = *cut;
    lay(rate);
    uint32_t all = rate->chunks * rate->count;
    free(rate->blocks);
    rate->blocks = malloc(all * sizeof *rate->blocks);
    if (!rate->blocks)
        return spw_fail(&rate->check->err, -ENOMEM, "no memory for block ids");
    int status = check_choose(rate->check, rate->blocks, all, rate->kv->blocks);
    return status == 0 ? check_ground_write(&rate->ground, rate->model, 2 * rate->sample_bytes)
                       : status;
}

static int run(struct check_rate *rate, struct check_way *way, enum spw_copy_kind kind,
               uint64_t *out_ns)
{
    struct check_run all = {kind, rate->ground.slots, rate->blocks, rate->chunks, rate->count};
    return check_way_run(way, &all, out_ns);
}

static void add(const struct check_rate *rate, uint64_t ns, struct spw_bench_series *series)
{
    spw_bench_add(series, (double)rate->sample_bytes * 1e9 / (double)(ns ? ns : 1));
}

int check_rate_sample(struct check_rate *rate, struct check_way *way, enum spw_copy_kind kind,
                      struct spw_bench_series *series)
{
    uint64_t ns;
    int status = run(rate, way, kind, &ns);
    if (status == 0)
        add(rate, ns, series);
    return status;
}

int check_rate_big(struct check_rate *rate, enum spw_copy_kind kind,
                   struct spw_bench_series *series)
{
    uint64_t ns;
    int status = check_ground_big(&rate->ground, kind == SPW_COPY_STORE, rate->other,
                                  rate->sample_bytes, &ns);
    if (status == 0)
        add(rate, ns, series);
    return status;
}

int check_rate_verify(struct check_rate *rate, const char *what)
{
    uint64_t chunk = rate->cut.chunk_bytes;
    uint8_t *want = malloc(chunk);
    int status = want ? 0 : spw_fail(&rate->check->err, -ENOMEM, "no memory to compare with");
    for (uint32_t c = 0; c < rate->chunks && status == 0; c++) {
        check_kv_gather(rate->kv, rate->model, rate->blocks + c * rate->count, rate->count, want);
        if (memcmp(want, rate->ground.slots + c * chunk, chunk) != 0)
            status = spw_fail(&rate->check->err, -EBADMSG, "%s: chunk %u of %u has wrong bytes",
                              what, c, rate->chunks);
    }
    free(want);
    return status;
}

int check_rate_verify_loads(struct check_rate *rate, struct check_way *way)
{
    uint64_t ns;
    int status = check_ground_set(&rate->ground, POISON);
    if (status == 0)
        status = run(rate, way, SPW_COPY_LOAD, &ns);
    memset(rate->ground.slots, POISON, rate->sample_bytes);
    if (status == 0)
        status = run(rate, way, SPW_COPY_STORE, &ns);
    return status == 0 ? check_rate_verify(rate, "loaded and stored again") : status;
}

static const char *size_words(uint32_t bytes, char *out, size_t room)
{
    snprintf(out, room, bytes < 1u << 20 ? "%u KiB" : "%u MiB",
             bytes < 1u << 20 ? bytes >> 10 : bytes >> 20);
    return out;
}

void check_cut_name(const struct check_cut *cut, enum spw_copy_kind kind, char *out, size_t bytes)
{
    char chunk[16], piece[16];
    snprintf(out, bytes, "%s, chunk %s, pieces %s", kind == SPW_COPY_STORE ? "store" : "load",
             size_words(cut->chunk_bytes, chunk, sizeof chunk),
             size_words(cut->piece_bytes, piece, sizeof piece));
}
