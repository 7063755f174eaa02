/*
 * State table and index: a writer that churns a tiny table whose keys share one home bucket, and
 * readers that look for keys which are there all the time, behind and between those that come and
 * go. Shared: table and index; each reader's findings are its own.
 */
#include "tests/stress/stress.h"

#include "tests/stress/tier_mutants.h"
#include "tier/table.h"

#include <pthread.h>

#define SLOTS   20u
#define BUCKETS 6u /* spw_table_buckets(SLOTS) */
#define READERS 2
#define LASTING 4u /* slots 3, 8, 13 and 18: their keys never leave the index */

#ifdef SPW_MUTANTS
static const char *const mutants[] = {TABLE_MUTANTS, NULL};
#else
static const char *const mutants[] = {NULL};
#endif

static struct spw_entry entries[SLOTS];
static struct spw_entry_key keys[SLOTS];
static struct spw_index_bucket buckets[BUCKETS];
static struct spw_table table = {.view = {entries, keys, buckets, SLOTS, SLOTS, BUCKETS},
                                 .entry = entries,
                                 .key = keys,
                                 .index = buckets};
static uint64_t end_ns;
static spw_atomic32 is_wrong; /* a reader has seen it: all may end */

static bool is_over(void)
{
    return spw_load_relaxed(&is_wrong) || stress_now_ns() >= end_ns;
}

struct named_key {
    uint64_t word[2];
    struct spw_chunk_key key;
};

/* Key @n of slot @n mod SLOTS. All share their home bucket, and some their tag in the cell. */
static void make_key(struct named_key *named, uint64_t n)
{
    *named = (struct named_key){.word = {n, ~n}};
    named->key = (struct spw_chunk_key){.digest = {1ull << 63 | (n % 7), n},
                                        .space = 2,
                                        .group = 3,
                                        .key_bytes = sizeof named->word,
                                        .key = named->word};
}

static bool is_lasting(uint32_t slot)
{
    return slot % 5 == 3;
}

/* Every field says the same version, and the key is that of the digest. */
static bool is_whole(const struct spw_entry_copy *entry)
{
    uint64_t word[2];
    if (entry->state == SPW_FREE)
        return entry->digest[1] == 0 && entry->fill == 0;
    memcpy(word, entry->key, sizeof word);
    return entry->fill == entry->version && entry->place_bytes == 3 * entry->version &&
           entry->chunk_bytes == ~entry->version && word[0] == entry->digest[1] &&
           word[1] == ~word[0] && word[0] % SLOTS == entry->slot && entry->space == 2;
}

static void write_chunk(uint32_t slot, uint64_t n, uint64_t version)
{
    struct named_key named;
    make_key(&named, n);
    struct spw_entry_copy entry = {.version = version,
                                   .fill = version,
                                   .digest = {named.key.digest[0], named.key.digest[1]},
                                   .place_bytes = 3 * version,
                                   .chunk_bytes = ~version,
                                   .state = SPW_READY,
                                   .group = 3,
                                   .key_bytes = sizeof named.word,
                                   .space = 2};
    spw_table_write(&table, slot, &entry, named.word);
}

static void put(uint32_t slot, uint64_t n, uint64_t version)
{
    struct named_key named;
    make_key(&named, n);
    write_chunk(slot, n, version);
    spw_table_index_put(&table, named.key.digest, slot);
}

static void take_out(uint32_t slot, uint64_t n)
{
    struct named_key named;
    const struct spw_entry_copy empty = {0};
    make_key(&named, n);
    spw_table_index_drop(&table, named.key.digest, slot);
    spw_table_write(&table, slot, &empty, NULL);
}

/* Always there, unless an index with a mistake keeps cells of keys that are gone. */
static bool has_empty_cell(void)
{
    for (uint32_t b = 0; b < BUCKETS; b++)
        for (uint32_t c = 0; c < 7; c++)
            if (spw_load_relaxed(&buckets[b].cell[c]) == 0)
                return true;
    return false;
}

static void *write_all(void *arg)
{
    uint64_t state = *(uint64_t *)arg, version = 1000;
    uint64_t in[SLOTS]; /* key in the slot, 0 for none */
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        in[slot] = slot + SLOTS;
    while (!is_over()) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t slot = (uint32_t)(stress_random(&state) >> 20) % SLOTS;
            version++;
            if (is_lasting(slot)) {
                write_chunk(slot, in[slot], version);
            } else if (in[slot]) {
                take_out(slot, in[slot]);
                in[slot] = 0;
            } else if (has_empty_cell()) {
                in[slot] = slot + SLOTS * (1 + (stress_random(&state) >> 40));
                put(slot, in[slot], version);
            }
        }
    }
    return NULL;
}

struct report {
    uint64_t seed, found, busy, lost, torn;
};

static void look_for(uint32_t slot, struct report *report)
{
    struct named_key named;
    struct spw_entry_copy entry;
    make_key(&named, slot + SLOTS);
    int rc = spw_table_find(&table.view, &named.key, &entry);
    report->busy += rc == -EAGAIN;
    report->lost += rc == -ENOENT || (rc == 0 && entry.slot != slot);
    report->torn += rc == 0 && !is_whole(&entry);
    report->found += rc == 0;
}

static void *read_all(void *arg)
{
    struct report *report = arg;
    uint64_t state = report->seed;
#ifdef SPW_MUTANTS
    table_mutant_is_reader();
#endif
    while (!is_over()) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t slot = (uint32_t)(stress_random(&state) >> 20) % SLOTS;
            struct spw_entry_copy entry;
            if (is_lasting(slot))
                look_for(slot, report);
            else if (spw_table_read(&table.view, slot, true, &entry) == 0)
                report->torn += !is_whole(&entry);
        }
        if (report->lost + report->torn != 0)
            spw_store_relaxed(&is_wrong, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct stress run = stress_arguments(argc, argv, mutants);
    pthread_t writer, reader[READERS];
    struct report report[READERS] = {0};
    uint64_t seed = run.seed, found = 0, busy = 0, lost = 0, torn = 0;
    char counts[160];
#ifdef SPW_MUTANTS
    table_mutant_set_up(run.mutate, &table);
#endif
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        put(slot, slot + SLOTS, 1 + slot);
    end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    for (int i = 0; i < READERS; i++) {
        report[i].seed = stress_random(&seed);
        pthread_create(&reader[i], NULL, read_all, &report[i]);
    }
    pthread_create(&writer, NULL, write_all, &seed);
    for (int i = 0; i < READERS; i++) {
        pthread_join(reader[i], NULL);
        found += report[i].found;
        busy += report[i].busy;
        lost += report[i].lost;
        torn += report[i].torn;
    }
    pthread_join(writer, NULL);
    snprintf(counts, sizeof counts,
             "%" PRIu64 " found, %" PRIu64 " busy, %" PRIu64 " lost, %" PRIu64 " torn", found, busy,
             lost, torn);
    return stress_end(&run, lost + torn + (found == 0), counts);
}
