/* See replica.h. */
#include "sched/replica.h"

#include "shm/near.h"

#include <sys/mman.h>

#define AHEAD         32u /* keys between a prefetch and its use                        */
#define BLOCK         256u
#define ENTRIES_MAX   (1ull << 40)
#define SPARE_BUCKETS 16u /* behind the last home, and 1/64 of the homes                */
#define HUGE_BYTES    (2ull << 20)

static struct spw_memory on_node(int32_t node)
{
    struct spw_memory memory = {.kind = SPW_MEMORY_PREFER};
    memory.node[node / 64] = 1ull << node % 64;
    return memory;
}

/* Preferred, not bound: on a node that is full the engine would be killed, not refused. */
static int put_on_node(void *at, uint64_t bytes, int32_t node)
{
    if (node < 0)
        return 0;
    if (node >= (int32_t)SPW_NODES_MAX)
        return -EINVAL;
    const struct spw_memory memory = on_node(node);
    return spw_region_place(at, bytes, &memory);
}

int spw_replica_init(struct spw_replica *replica, uint64_t entries, int32_t node)
{
    if (entries > ENTRIES_MAX)
        return -EINVAL;
    uint64_t homes = entries * 3 / 5 + 1; /* 4 cells a bucket: load 0.42 */
    uint64_t buckets = homes + homes / 64 + SPARE_BUCKETS;
    uint64_t bytes = spw_align_up(buckets * sizeof(struct spw_replica_bucket), 4096);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    int refused = put_on_node(at, bytes, node);
    if (bytes >= HUGE_BYTES)
        madvise(at, bytes, MADV_HUGEPAGE);
    madvise(at, bytes, MADV_DONTFORK);
    *replica = (struct spw_replica){
        .bucket = at,
        .homes = homes,
        .buckets = buckets,
        .most = buckets * SPW_REPLICA_CELLS / 8 * 7,
        .bytes = bytes,
        .node = node,
        .refused = refused,
    };
    return 0;
}

/* A page that was only read so far is the kernel's own, full of zeros. */
static int where_written(void *ctx, void *const *page, uint32_t count, int *out_node)
{
    for (uint32_t i = 0; i < count; i++) {
        volatile uint8_t *byte = page[i];
        *byte = *byte;
    }
    return spw_near_where_kernel(ctx, page, count, out_node);
}

int spw_replica_near(const struct spw_replica *replica)
{
    struct spw_near_sample sample;
    if (replica->node < 0 || replica->node >= (int32_t)SPW_NODES_MAX)
        return -EINVAL;
    const struct spw_memory memory = on_node(replica->node);
    int rc =
        spw_near_look(replica->bucket, replica->bytes, memory.node, where_written, NULL, &sample);
    return rc ? rc : (int)spw_near_permille(&sample);
}

void spw_replica_fini(struct spw_replica *replica)
{
    if (replica->bucket)
        munmap(replica->bucket, replica->bytes);
    *replica = (struct spw_replica){0};
}

static inline bool is_full(const struct spw_replica_bucket *bucket)
{
    return bucket->word[SPW_REPLICA_CELLS - 1] != 0;
}

/* Two cells side by side: what every x86-64 compares at once. */
typedef uint64_t two_words __attribute__((vector_size(16), may_alias));

/* At most one cell matches; empty ones add nothing, whatever tag is left in them. */
static inline uint64_t word_in(const struct spw_replica_bucket *bucket, uint64_t tag)
{
    const two_words *tags = (const two_words *)(const void *)bucket->tag;
    const two_words *words = (const two_words *)(const void *)bucket->word;
    const two_words wanted = {tag, tag};
    two_words found =
        ((two_words)(tags[0] == wanted) & words[0]) | ((two_words)(tags[1] == wanted) & words[1]);
    return found[0] | found[1];
}

static uint64_t word_beyond(const struct spw_replica *replica, uint64_t b, uint64_t tag)
{
    uint64_t word = 0;
    while (!word && is_full(&replica->bucket[b]) && ++b < replica->buckets)
        word = word_in(&replica->bucket[b], tag);
    return word;
}

uint64_t spw_replica_get(const struct spw_replica *replica, uint64_t tag)
{
    uint64_t home = spw_replica_home(replica, tag);
    uint64_t word = word_in(&replica->bucket[home], tag);
    return word ? word : word_beyond(replica, home, tag);
}

/* A full bucket without the tag: its neighbour is looked at when the others are through, so that its
 * line is there by then. */
static void probe_block(const struct spw_replica *replica, const uint64_t *tags, uint32_t count,
                        uint32_t known, uint64_t *out_words)
{
    uint16_t later[BLOCK];
    uint32_t late = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < known)
            spw_replica_prefetch(replica, tags[i + AHEAD]);
        const struct spw_replica_bucket *home =
            &replica->bucket[spw_replica_home(replica, tags[i])];
        out_words[i] = word_in(home, tags[i]);
        if (__builtin_expect(out_words[i] == 0 && is_full(home), 0)) {
            __builtin_prefetch(home + 1);
            later[late++] = (uint16_t)i;
        }
    }
    for (uint32_t n = 0; n < late; n++) {
        uint64_t tag = tags[later[n]];
        out_words[later[n]] = word_beyond(replica, spw_replica_home(replica, tag), tag);
    }
}

void spw_replica_probe(const struct spw_replica *replica, const uint64_t *tags, uint64_t count,
                       uint64_t *out_words)
{
    for (uint64_t i = 0; i < count && i < AHEAD; i++)
        spw_replica_prefetch(replica, tags[i]);
    for (uint64_t at = 0; at < count; at += BLOCK) {
        uint64_t left = count - at;
        probe_block(replica, tags + at, left < BLOCK ? (uint32_t)left : BLOCK,
                    left < BLOCK + AHEAD ? (uint32_t)left : BLOCK + AHEAD, out_words + at);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

static void take_out(struct spw_replica_bucket *bucket, uint32_t cell)
{
    uint32_t last = SPW_REPLICA_CELLS - 1;
    while (bucket->word[last] == 0)
        last--;
    bucket->tag[cell] = bucket->tag[last];
    bucket->word[cell] = bucket->word[last];
    bucket->word[last] = 0;
}

/* A cell of @bucket that may lie in bucket @hole or before it; CELLS if there is none. */
static uint32_t cell_for_hole(const struct spw_replica *replica,
                              const struct spw_replica_bucket *bucket, uint64_t hole)
{
    uint32_t i = 0;
    while (i < SPW_REPLICA_CELLS && bucket->word[i] &&
           spw_replica_home(replica, bucket->tag[i]) > hole)
        i++;
    return i < SPW_REPLICA_CELLS && bucket->word[i] ? i : SPW_REPLICA_CELLS;
}

/* Bucket @hole was full and has lost a cell: whatever passed over it may be moved into it, and so
 * on, up to the first bucket with room. */
static void shift_back(struct spw_replica *replica, uint64_t hole)
{
    bool full = true;
    for (uint64_t b = hole + 1; full && b < replica->buckets; b++) {
        struct spw_replica_bucket *from = &replica->bucket[b], *to = &replica->bucket[hole];
        full = is_full(from);
        uint32_t cell = cell_for_hole(replica, from, hole);
        if (cell == SPW_REPLICA_CELLS)
            continue;
        to->tag[SPW_REPLICA_CELLS - 1] = from->tag[cell];
        to->word[SPW_REPLICA_CELLS - 1] = from->word[cell];
        take_out(from, cell);
        hole = b;
    }
}

static void remove_cell(struct spw_replica *replica, uint64_t b, uint32_t cell)
{
    struct spw_replica_bucket *bucket = &replica->bucket[b];
    bool was_full = is_full(bucket);
    take_out(bucket, cell);
    replica->tags--;
    if (was_full)
        shift_back(replica, b);
}

/* The place of a tag: the cell that holds it, else the first one with room on its way. */
struct place {
    uint64_t bucket;
    uint32_t cell; /* CELLS: neither */
    uint64_t word; /* 0: not held    */
};

static struct place find_place(const struct spw_replica *replica, uint64_t tag)
{
    for (uint64_t b = spw_replica_home(replica, tag); b < replica->buckets; b++) {
        const struct spw_replica_bucket *bucket = &replica->bucket[b];
        for (uint32_t i = 0; i < SPW_REPLICA_CELLS; i++)
            if (bucket->word[i] == 0 || bucket->tag[i] == tag)
                return (struct place){b, i, bucket->word[i]};
    }
    return (struct place){0, SPW_REPLICA_CELLS, 0};
}

static int change(struct spw_replica *replica, const struct place *place, uint64_t tag,
                  uint64_t word)
{
    if (word == 0) {
        if (place->word)
            remove_cell(replica, place->bucket, place->cell);
        return 0;
    }
    if (place->cell == SPW_REPLICA_CELLS || (!place->word && replica->tags == replica->most))
        return -ENOSPC;
    struct spw_replica_bucket *bucket = &replica->bucket[place->bucket];
    replica->tags += place->word == 0;
    bucket->tag[place->cell] = tag;
    bucket->word[place->cell] = word;
    return 0;
}

int spw_replica_put(struct spw_replica *replica, uint64_t tag, uint64_t word)
{
    struct place place = find_place(replica, tag);
    return change(replica, &place, tag, word);
}

int spw_replica_set(struct spw_replica *replica, uint64_t tag, uint32_t worker,
                    enum spw_replica_state state)
{
    struct place place = find_place(replica, tag);
    uint32_t shift = 2 * worker;
    uint64_t word = (place.word & ~(3ull << shift)) | (uint64_t)state << shift;
    int rc = change(replica, &place, tag, word);
    return rc < 0 ? rc : (int)(place.word >> shift & 3);
}

void spw_replica_sweep(struct spw_replica *replica, uint64_t mask, uint64_t most, uint64_t *next)
{
    for (; most > 0 && *next > 0; most--) {
        uint64_t b = --*next;
        struct spw_replica_bucket *bucket = &replica->bucket[b];
        for (uint32_t i = 0; i < SPW_REPLICA_CELLS && bucket->word[i];) {
            uint64_t word = bucket->word[i] & ~mask;
            if (word == 0) {
                remove_cell(replica, b, i); /* another cell may have taken its place */
                continue;
            }
            bucket->word[i++] = word;
        }
    }
}
