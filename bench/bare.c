/* See bare.h. */
#include "bench/bare.h"

#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <sys/mman.h>

#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CELLS 4u
#define AHEAD 32u

struct spw_bare_bucket {
    alignas(64) uint64_t tag[CELLS];
    uint64_t word[CELLS];
};

void *spw_bare_map(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

/* ---- hash probe ------------------------------------------------------------------------------ */

int spw_bare_table_open(struct spw_bare_table *table, uint64_t entries)
{
    uint64_t buckets = 1;
    while (buckets * CELLS < 2 * entries)
        buckets *= 2;
    table->mask = buckets - 1;
    table->bytes = buckets * sizeof *table->bucket;
    table->bucket = spw_bare_map(table->bytes);
    return table->bucket ? 0 : -ENOMEM;
}

void spw_bare_table_close(struct spw_bare_table *table)
{
    if (table->bucket)
        munmap(table->bucket, table->bytes);
    table->bucket = NULL;
}

void spw_bare_table_put(struct spw_bare_table *table, uint64_t tag, uint64_t word)
{
    for (uint64_t b = tag & table->mask;; b = (b + 1) & table->mask)
        for (uint32_t i = 0; i < CELLS; i++)
            if (table->bucket[b].word[i] == 0) {
                table->bucket[b].tag[i] = tag;
                table->bucket[b].word[i] = word;
                return;
            }
}

static uint64_t find(const struct spw_bare_table *table, uint64_t b, uint64_t tag)
{
    uint64_t word = 0;
    for (;; b = (b + 1) & table->mask) {
        const struct spw_bare_bucket *bucket = &table->bucket[b];
        for (uint32_t i = 0; i < CELLS; i++)
            word |= bucket->tag[i] == tag ? bucket->word[i] : 0;
        if (word || bucket->word[CELLS - 1] == 0)
            return word;
    }
}

static void probe_plain(const struct spw_bare_table *table, const uint64_t *tags, uint64_t count,
                        uint64_t *out_words)
{
    uint64_t ahead = count < AHEAD ? count : AHEAD;
    for (uint64_t i = 0; i < ahead; i++)
        __builtin_prefetch(&table->bucket[tags[i] & table->mask]);
    for (uint64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            __builtin_prefetch(&table->bucket[tags[i + AHEAD] & table->mask]);
        out_words[i] = find(table, tags[i] & table->mask, tags[i]);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void probe_vector(const struct spw_bare_table *table,
                                                         const uint64_t *tags, uint64_t count,
                                                         uint64_t *out_words)
{
    uint64_t ahead = count < AHEAD ? count : AHEAD;
    for (uint64_t i = 0; i < ahead; i++)
        __builtin_prefetch(&table->bucket[tags[i] & table->mask]);
    for (uint64_t i = 0; i < count; i++) {
        const struct spw_bare_bucket *bucket = &table->bucket[tags[i] & table->mask];
        if (i + AHEAD < count)
            __builtin_prefetch(&table->bucket[tags[i + AHEAD] & table->mask]);
        __m256i same = _mm256_cmpeq_epi64(_mm256_load_si256((const __m256i *)bucket->tag),
                                          _mm256_set1_epi64x((long long)tags[i]));
        int cells = _mm256_movemask_pd(_mm256_castsi256_pd(same));
        if (cells && bucket->word[__builtin_ctz((unsigned)cells)])
            out_words[i] = bucket->word[__builtin_ctz((unsigned)cells)];
        else
            out_words[i] = find(table, tags[i] & table->mask, tags[i]);
    }
}
#endif

void spw_bare_table_probe(const struct spw_bare_table *table, const uint64_t *tags, uint64_t count,
                          uint64_t *out_words)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        probe_vector(table, tags, count, out_words);
        return;
    }
#endif
    probe_plain(table, tags, count, out_words);
}

/* ---- pointer chase --------------------------------------------------------------------------- */

int spw_bare_chase_open(struct spw_bare_chase *chase, uint64_t bytes, uint64_t *random)
{
    chase->lines = bytes / 64;
    chase->bytes = chase->lines * 64;
    chase->at = spw_bare_map(chase->bytes);
    if (!chase->at)
        return -ENOMEM;
    for (uint64_t i = 0; i < chase->lines; i++)
        chase->at[8 * i] = i;
    for (uint64_t i = chase->lines - 1; i > 0; i--) { /* one cycle through all (Sattolo) */
        uint64_t j = spw_bench_random(random) % i, was = chase->at[8 * i];
        chase->at[8 * i] = chase->at[8 * j];
        chase->at[8 * j] = was;
    }
    return 0;
}

void spw_bare_chase_close(struct spw_bare_chase *chase)
{
    if (chase->at)
        munmap(chase->at, chase->bytes);
    chase->at = NULL;
}

uint64_t spw_bare_chase_walk(const struct spw_bare_chase *chase, uint32_t chains, uint64_t hops,
                             uint64_t *random)
{
    uint64_t line[32], sum = 0;
    for (uint32_t c = 0; c < chains; c++)
        line[c] = spw_bench_random(random) % chase->lines;
    for (uint64_t done = 0; done < hops; done += chains)
        for (uint32_t c = 0; c < chains; c++)
            line[c] = chase->at[8 * line[c]];
    for (uint32_t c = 0; c < chains; c++)
        sum += line[c];
    return sum;
}
