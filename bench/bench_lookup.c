/*
 * Lookups: a request's keys in a replica of a million chunks, beside a bare hash probe of the same
 * keys; the replica alone beside what memory allows; what a load's submission reads and pins.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/million.h"
#include "sched/handle.h"

#define KEYS       256u
#define MANY_KEYS  1000u
#define LOAD       64u
#define NS(begin)  (double)(spw_bench_now_ns() - (begin))
#define ONE_READY  2ull /* worker 0 has it ready */
#define KEY_TOKENS SPW_MILLION_CHUNK_TOKENS

static bool all_are(const uint8_t *verdicts, uint64_t count, uint8_t verdict)
{
    for (uint64_t i = 0; i < count; i++)
        if (verdicts[i] != verdict)
            return false;
    return true;
}

static bool all_words_are(const uint64_t *words, uint64_t count, uint64_t word)
{
    for (uint64_t i = 0; i < count; i++)
        if (words[i] != word)
            return false;
    return true;
}

/* ---- a request in the replica ---------------------------------------------------------------- */

struct lookup_sample {
    struct spw_million *million;
    struct spw_request *request;
    double probe_ns;
    double decide_ns;
    double bare_ns;
};

static int time_probe(struct lookup_sample *sample)
{
    uint8_t verdicts[KEYS];
    uint64_t begin = spw_bench_now_ns();
    int rc = spw_request_probe(sample->request, 0, 0, KEYS, verdicts);
    sample->probe_ns = NS(begin);
    return rc < 0 ? rc : all_are(verdicts, KEYS, SPW_HIT) ? 0 : -EBADMSG;
}

static int time_decision(struct lookup_sample *sample)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    uint64_t begin = spw_bench_now_ns();
    int rc = spw_lookup(sample->request, 0, 0, &decision);
    sample->decide_ns = NS(begin);
    return rc < 0 ? rc : decision.hit_tokens == KEYS * KEY_TOKENS ? 0 : -EBADMSG;
}

static int time_bare(struct lookup_sample *sample)
{
    uint64_t words[KEYS];
    uint64_t begin = spw_bench_now_ns();
    spw_bare_table_probe(&sample->million->bare, sample->request->keys[0].tag, KEYS, words);
    sample->bare_ns = NS(begin);
    return all_words_are(words, KEYS, SPW_READY) ? 0 : -EBADMSG;
}

/* Fresh random keys each time, so that no line of a table is in a cache but by chance. Ours and
 * the bare probe take turns in going first. */
static int sample_lookup(struct spw_million *million, bool decides, bool bare_first,
                         struct lookup_sample *sample)
{
    *sample = (struct lookup_sample){.million = million};
    int rc = spw_million_request(million, 0, KEYS * KEY_TOKENS, &sample->request);
    if (rc == 0)
        rc = spw_million_extend(million, sample->request, 0, 0, KEYS, false);
    if (rc == 0)
        rc = spw_step_begin(million->client);
    if (rc >= 0 && bare_first)
        rc = time_bare(sample);
    if (rc >= 0)
        rc = decides ? time_decision(sample) : time_probe(sample);
    if (rc >= 0 && !bare_first)
        rc = time_bare(sample);
    spw_step_end(million->client);
    spw_request_finish(sample->request);
    spw_bench_pool_settle(million->pool); /* takes the touches */
    return rc < 0 ? rc : 0;
}

static int bench_256(struct spw_bench_run *run, const char *name, bool decides)
{
    static struct spw_bench_series ours, bare;
    struct spw_million *million;
    struct lookup_sample sample;
    if (!spw_bench_wants(run, "lookup", name))
        return 0;
    int rc = spw_million_get(run, &million);
    ours.count = bare.count = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 2000, 20); i++) {
        rc = sample_lookup(million, decides, i % 2 == 0, &sample);
        spw_bench_add(&ours, decides ? sample.decide_ns : sample.probe_ns);
        spw_bench_add(&bare, sample.bare_ns);
    }
    if (rc == 0)
        spw_bench_report(run, &(struct spw_bench_line){"lookup", name, "ns", &ours,
                                                       "a bare batched probe", &bare});
    return rc;
}

static int bench_digest(struct spw_bench_run *run)
{
    static struct spw_bench_series ours;
    static uint8_t key[KEYS][SPW_MILLION_KEY_BYTES];
    uint64_t random = 4321;
    if (!spw_bench_wants(run, "lookup", "digest_256_keys"))
        return 0;
    ours.count = 0;
    for (uint64_t i = 0; i < spw_bench_size(run, 2000, 20); i++) {
        uint64_t digest[2];
        for (uint32_t k = 0; k < KEYS; k++)
            spw_million_key(0, 0, spw_bench_random(&random), key[k]);
        uint64_t begin = spw_bench_now_ns();
        for (uint32_t k = 0; k < KEYS; k++) {
            spw_chunk_digest(0, 0, key[k], sizeof key[k], digest);
            spw_bench_use(digest[0] ^ digest[1]);
        }
        spw_bench_add(&ours, NS(begin));
    }
    spw_bench_report(
        run, &(struct spw_bench_line){"lookup", "digest_256_keys", "ns", &ours, NULL, NULL});
    return 0;
}

/* ---- the replica alone ----------------------------------------------------------------------- */

/* Tag number @i of a made-up replica. */
static uint64_t tag_of(uint64_t i)
{
    i = (i + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    i = (i ^ i >> 29) * 0x94d049bb133111ebu;
    return i ^ i >> 32;
}

static int sample_many(const struct spw_replica *replica, const struct spw_bare_chase *chase,
                       uint64_t entries, uint64_t *random, struct spw_bench_series *ours,
                       struct spw_bench_series *theirs)
{
    uint64_t tags[MANY_KEYS], words[MANY_KEYS];
    for (uint32_t i = 0; i < MANY_KEYS; i++)
        tags[i] = tag_of(spw_bench_random(random) % entries);
    uint64_t begin = spw_bench_now_ns();
    spw_replica_probe(replica, tags, MANY_KEYS, words);
    spw_bench_add(ours, NS(begin));
    begin = spw_bench_now_ns();
    spw_bench_use(spw_bare_chase_walk(chase, 32, MANY_KEYS, random));
    spw_bench_add(theirs, NS(begin));
    return all_words_are(words, MANY_KEYS, ONE_READY) ? 0 : -EBADMSG;
}

static int bench_1000(struct spw_bench_run *run, const char *name, uint64_t entries)
{
    static struct spw_bench_series ours, theirs;
    struct spw_replica replica = {0};
    struct spw_bare_chase chase = {0};
    uint64_t random = 987654321;
    if (!spw_bench_wants(run, "lookup", name))
        return 0;
    entries = spw_bench_size(run, entries, 4096);
    ours.count = theirs.count = 0;
    int rc = spw_replica_init(&replica, entries, -1);
    for (uint64_t i = 0; rc == 0 && i < entries; i++)
        rc = spw_replica_set(&replica, tag_of(i), 0, SPW_REPLICA_READY);
    if (rc == 0)
        rc = spw_bare_chase_open(&chase, replica.bytes, &random);
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 1000, 20); i++)
        rc = sample_many(&replica, &chase, entries, &random, &ours, &theirs);
    if (rc == 0)
        spw_bench_report(run, &(struct spw_bench_line){"lookup", name, "ns", &ours,
                                                       "32 pointer chases", &theirs});
    spw_bare_chase_close(&chase);
    spw_replica_fini(&replica);
    return rc;
}

/* ---- what a load's submission costs ---------------------------------------------------------- */

/* Finds of random chunks in the shared table; returns ns, or a negative errno. */
static double time_finds(struct spw_million *million, const struct spw_request *request,
                         uint32_t count)
{
    const struct spw_table_view *table = &million->client->views.view[0].table;
    uint32_t found = 0;
    uint64_t begin = spw_bench_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        const struct spw_chunk_ref ref = {.index = i};
        struct spw_entry_copy entry;
        struct spw_chunk_key key;
        if (spw_request_key(request, &ref, &key) < 0)
            return -EINVAL;
        found += spw_table_find(table, &key, &entry) == 0;
    }
    double ns = NS(begin);
    return found == count ? ns : -EBADMSG;
}

/* An index line says where the entry and the key are: two lines that wait for a first one. */
static int bench_find(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs;
    struct spw_million *million;
    struct spw_bare_chase chase = {0};
    if (!spw_bench_wants(run, "lookup", "shared_table_find"))
        return 0;
    int rc = spw_million_get(run, &million);
    if (rc == 0)
        rc = spw_bare_chase_open(&chase, million->chunks * 128, &million->random);
    ours.count = theirs.count = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 500, 20); i++) {
        struct spw_request *request = NULL;
        rc = spw_million_request(million, 0, LOAD * KEY_TOKENS, &request);
        if (rc == 0)
            rc = spw_million_extend(million, request, 0, 0, LOAD, false);
        double ns = rc == 0 ? time_finds(million, request, LOAD) : rc;
        rc = ns < 0 ? (int)ns : 0;
        spw_bench_add(&ours, ns / LOAD);
        uint64_t begin = spw_bench_now_ns();
        for (uint32_t k = 0; k < LOAD; k++)
            spw_bench_use(spw_bare_chase_walk(&chase, 1, 2, &million->random));
        spw_bench_add(&theirs, NS(begin) / LOAD);
        spw_request_finish(request);
    }
    if (rc == 0)
        spw_bench_report(run, &(struct spw_bench_line){"lookup", "shared_table_find", "ns", &ours,
                                                       "two dependent cache misses", &theirs});
    spw_bare_chase_close(&chase);
    return rc;
}

/* Look up, begin a load of all of it, then take it back; the begin is timed. */
static int sample_begin(struct spw_million *million, struct spw_request *request,
                        struct spw_bench_series *ours, struct spw_bench_series *theirs)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_chunk_ref ref[LOAD];
    struct spw_completion done[4];
    int rc = spw_step_begin(million->client);
    if (rc >= 0)
        rc = spw_lookup(request, 0, 0, &decision);
    if (rc == 0 && spw_decision_chunks(&decision, 0, ref, LOAD) != (int)LOAD)
        rc = -EBADMSG;
    if (rc == 0) {
        uint64_t begin = spw_bench_now_ns();
        rc = spw_load_begin(request, &decision, 0, ref, LOAD, 1);
        spw_bench_add(ours, NS(begin));
        rc = rc < 0 ? rc : rc == (int)LOAD ? 0 : -EBADMSG;
    }
    spw_step_end(million->client);
    spw_request_cancel(request);
    spw_bench_pool_settle(million->pool);
    while (spw_completions(million->client, done, 4) > 0)
        spw_bench_pool_settle(million->pool);
    double ns = rc == 0 ? time_finds(million, request, LOAD)
                        : rc; /* warm by now; the begin met them cold */
    spw_bench_add(theirs, ns);
    return ns < 0 ? (int)ns : 0;
}

static int bench_begin(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs;
    struct spw_million *million;
    if (!spw_bench_wants(run, "pin", "begin_64"))
        return 0;
    int rc = spw_million_get(run, &million);
    ours.count = theirs.count = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 500, 20); i++) {
        struct spw_request *request = NULL;
        rc = spw_million_request(million, 0, LOAD * KEY_TOKENS, &request);
        if (rc == 0)
            rc = spw_million_extend(million, request, 0, 0, LOAD, false);
        if (rc == 0)
            rc = sample_begin(million, request, &ours, &theirs);
        spw_request_finish(request);
    }
    if (rc == 0)
        spw_bench_report(run,
                         &(struct spw_bench_line){"pin", "begin_64", "ns", &ours,
                                                  "64 finds in the shared table, warm", &theirs});
    return rc;
}

int spw_bench_lookup(struct spw_bench_run *run)
{
    int rc = bench_256(run, "256_keys_1M", false);
    if (rc == 0)
        rc = bench_256(run, "decide_256_keys_1M", true);
    if (rc == 0)
        rc = bench_digest(run);
    if (rc == 0)
        rc = bench_1000(run, "1000_keys_64k", 1u << 16);
    if (rc == 0)
        rc = bench_1000(run, "1000_keys_1M", 1u << 20);
    if (rc == 0)
        rc = bench_1000(run, "1000_keys_8M", 1u << 23);
    if (rc == 0)
        rc = bench_find(run);
    if (rc == 0)
        rc = bench_begin(run);
    if (rc < 0)
        fprintf(stderr, "spw-bench: lookup: failed (%d)\n", rc);
    return rc;
}
