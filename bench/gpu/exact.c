/* See exact.h. */
#include "bench/gpu/exact.h"

#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

#define GUARD_BYTES 4096u
#define POISON      0xeeu

int check_exact_open(struct check *check, const struct check_kv *kv,
                     const struct check_memory *memory, const struct check_ground *ground,
                     struct check_exact *out)
{
    *out = (struct check_exact){.check = check,
                                .kv = kv,
                                .memory = *memory,
                                .slots = ground->slots,
                                .slots_bytes = check_exact_slots(kv),
                                .model = malloc(kv->bytes),
                                .got = malloc(kv->bytes),
                                .slots_model = malloc(check_exact_slots(kv))};
    if (out->model && out->got && out->slots_model)
        return 0;
    check_exact_close(out);
    return spw_fail(&check->err, -ENOMEM, "no memory for %lu bytes to compare with",
                    (unsigned long)kv->bytes);
}

void check_exact_close(struct check_exact *exact)
{
    free(exact->model);
    free(exact->got);
    free(exact->slots_model);
}

/* Slots begin on lines in a pool; a shift that isn't one of 16 bytes makes the kernel move bytes. */
static uint8_t *slot_of(uint8_t *slots, uint32_t round)
{
    return slots + GUARD_BYTES + (round % 4 == 3 ? 8 : 0);
}

static int compare(struct check_exact *exact, const uint8_t *got, const uint8_t *want,
                   uint64_t bytes, const char *what, uint32_t count, uint32_t round)
{
    uint64_t wrong = 0, first = 0;
    if (memcmp(got, want, bytes) == 0)
        return 0;
    for (uint64_t i = bytes; i-- > 0;)
        if (got[i] != want[i]) {
            wrong++;
            first = i;
        }
    return spw_fail(&exact->check->err, -EBADMSG,
                    "%s of %u blocks of %lu bytes, round %u: %lu bytes are wrong, the first at %lu "
                    "is 0x%02x and must be 0x%02x",
                    what, count, (unsigned long)exact->kv->block_bytes, round, (unsigned long)wrong,
                    (unsigned long)first, got[first], want[first]);
}

static int store(struct check_exact *exact, struct check_way *way, const uint32_t *blocks,
                 uint32_t count, uint32_t round)
{
    uint64_t ns;
    struct check_run run = {SPW_COPY_STORE, slot_of(exact->slots, round), blocks, 1, count};
    check_fill(exact->model, exact->kv->bytes, spw_bench_random(&exact->check->random));
    memset(exact->slots, POISON, exact->slots_bytes);
    memset(exact->slots_model, POISON, exact->slots_bytes);
    check_kv_gather(exact->kv, exact->model, blocks, count, slot_of(exact->slots_model, round));
    int status = exact->memory.write(exact->memory.ctx, exact->model, exact->kv->bytes);
    if (status == 0)
        status = check_way_run(way, &run, &ns);
    return status < 0 ? status
                      : compare(exact, exact->slots, exact->slots_model, exact->slots_bytes,
                                "a store", count, round);
}

/* Into what the store before has left: all of it other bytes than those that come. */
static int load(struct check_exact *exact, struct check_way *way, const uint32_t *blocks,
                uint32_t count, uint32_t round)
{
    uint64_t ns;
    struct check_run run = {SPW_COPY_LOAD, slot_of(exact->slots, round), blocks, 1, count};
    check_fill(exact->slots, exact->slots_bytes, spw_bench_random(&exact->check->random));
    check_kv_scatter(exact->kv, exact->model, blocks, count, slot_of(exact->slots, round));
    memset(exact->got, POISON, exact->kv->bytes);
    int status = check_way_run(way, &run, &ns);
    if (status == 0)
        status = exact->memory.read(exact->memory.ctx, exact->got, exact->kv->bytes);
    return status < 0
               ? status
               : compare(exact, exact->got, exact->model, exact->kv->bytes, "a load", count, round);
}

int check_exact_rounds(struct check_exact *exact, struct check_way *way, uint32_t rounds)
{
    static const uint32_t counts[] = {SPW_CHUNK_BLOCKS_MAX, 1, 7, 16};
    uint32_t blocks[SPW_CHUNK_BLOCKS_MAX];
    int status = 0;
    for (uint32_t r = 0; r < rounds && status == 0; r++) {
        uint32_t count = counts[r % (sizeof counts / sizeof counts[0])];
        count = count < exact->kv->blocks ? count : exact->kv->blocks;
        status = check_choose(exact->check, blocks, count, exact->kv->blocks);
        if (status == 0)
            status = store(exact, way, blocks, count, r);
        if (status == 0)
            status = check_choose(exact->check, blocks, count, exact->kv->blocks);
        if (status == 0)
            status = load(exact, way, blocks, count, r);
    }
    return status;
}
