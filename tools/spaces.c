/* See spaces.h. */
#include "tools/spaces.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define NOMINAL_BYTES_MAX (1ull << 50) /* sums of it in 64 bits never wrap */

static int refuse(char *text, size_t text_bytes, const char *what, uint64_t got, uint64_t least,
                  uint64_t most)
{
    snprintf(text, text_bytes, "%s is %llu, must be %llu to %llu", what, (unsigned long long)got,
             (unsigned long long)least, (unsigned long long)most);
    return -EINVAL;
}

static int check_group(const struct spw_geometry *geometry, const struct spw_space_record *record,
                       uint32_t g, char *text, size_t text_bytes)
{
    const struct spw_group_record *group = &record->group[g];
    if (group->kind > 3)
        return refuse(text, text_bytes, "a group's kind", group->kind, 0, 3);
    if (group->block_tokens == 0)
        return refuse(text, text_bytes, "block_tokens", 0, 1, UINT32_MAX);
    if (group->chunk_bytes == 0 || group->chunk_bytes > geometry->slot_bytes)
        return refuse(text, text_bytes, "chunk_bytes", group->chunk_bytes, 1, geometry->slot_bytes);
    if (group->chunk_bytes % record->blocks_per_chunk)
        return refuse(text, text_bytes, "chunk_bytes modulo blocks_per_chunk",
                      group->chunk_bytes % record->blocks_per_chunk, 0, 0);
    if (group->nominal_bytes > NOMINAL_BYTES_MAX)
        return refuse(text, text_bytes, "nominal_bytes", group->nominal_bytes, 0,
                      NOMINAL_BYTES_MAX);
    if (group->reserved)
        return refuse(text, text_bytes, "a reserved field", group->reserved, 0, 0);
    return 0;
}

int spw_spaces_check(const struct spw_geometry *geometry, const struct spw_space_record *record,
                     char *text, size_t text_bytes)
{
    if (!memchr(record->fingerprint, 0, sizeof record->fingerprint) || !record->fingerprint[0])
        return refuse(text, text_bytes, "the fingerprint's length",
                      record->fingerprint[0] ? 256 : 0, 1, 255);
    if (record->blocks_per_chunk == 0 || record->blocks_per_chunk > SPW_CHUNK_BLOCKS_MAX)
        return refuse(text, text_bytes, "blocks_per_chunk", record->blocks_per_chunk, 1,
                      SPW_CHUNK_BLOCKS_MAX);
    if (record->hash_unit_tokens == 0)
        return refuse(text, text_bytes, "hash_unit_tokens", 0, 1, UINT32_MAX);
    if (record->groups == 0 || record->groups > SPW_GROUP_COUNT_MAX)
        return refuse(text, text_bytes, "groups", record->groups, 1, SPW_GROUP_COUNT_MAX);
    if (record->ranks == 0 || record->ranks > SPW_RANKS_MAX)
        return refuse(text, text_bytes, "ranks", record->ranks, 1, SPW_RANKS_MAX);
    for (uint32_t g = 0; g < record->groups; g++) {
        int status = check_group(geometry, record, g, text, text_bytes);
        if (status)
            return status;
    }
    return 0;
}

static int check_shares(uint64_t shares, char *text, size_t text_bytes)
{
    uint32_t guaranteed = SPW_SHARES_GUARANTEED(shares), largest = SPW_SHARES_LARGEST(shares);
    if (largest > SPW_SHARES_ALL)
        return refuse(text, text_bytes, "largest_permille", largest, 0, SPW_SHARES_ALL);
    if (guaranteed > (largest ? largest : SPW_SHARES_ALL))
        return refuse(text, text_bytes, "guaranteed_permille", guaranteed, 0,
                      largest ? largest : SPW_SHARES_ALL);
    return 0;
}

static int check_asked(const struct spw_geometry *geometry, const struct spw_open_space_mail *asked,
                       char *text, size_t text_bytes)
{
    int status = spw_spaces_check(geometry, &asked->record, text, text_bytes);
    if (!status)
        status = check_shares(asked->shares, text, text_bytes);
    for (uint32_t r = 0; !status && r < asked->record.ranks; r++)
        if (asked->rank_worker[r] >= geometry->workers)
            status = refuse(text, text_bytes, "a rank's worker", asked->rank_worker[r], 0,
                            geometry->workers - 1);
    return status;
}

/* Workers that keep parts of @space. */
static uint64_t workers_of(const struct spw_space_slot *space)
{
    uint64_t workers = 0;
    for (uint32_t r = 0; r < SPW_RANKS_MAX; r++)
        workers |= spw_load_relaxed(&space->rank_workers[r]); /* only the daemon stores them */
    return workers;
}

/* What spaces other than @but are promised of worker @k, in 1/1000. */
static uint32_t promised(const struct spw_ctl *ctl, uint32_t but, uint32_t k)
{
    uint32_t sum = 0;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        const struct spw_space_slot *space = &ctl->space[s];
        /* relaxed: only the daemon stores them */
        if (s != but && spw_load_relaxed(&space->ready) && workers_of(space) >> k & 1)
            sum += SPW_SHARES_GUARANTEED(spw_load_relaxed(&space->shares));
    }
    return sum;
}

/* No more than all that a worker has can be promised. @workers: that keep parts of space @s. */
static int check_promise(const struct spw_ctl *ctl, uint32_t s, uint64_t workers, uint64_t shares,
                         char *text, size_t text_bytes)
{
    uint32_t guaranteed = SPW_SHARES_GUARANTEED(shares), most = 0, at = 0;
    for (uint64_t left = workers; left != 0; left &= left - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(left), others = promised(ctl, s, k);
        if (others > most)
            most = others, at = k;
    }
    if (most + guaranteed <= SPW_SHARES_ALL || guaranteed == 0)
        return 0;
    snprintf(text, text_bytes,
             "guaranteed_permille is %u, but others are promised %u of %u of worker %u", guaranteed,
             most, SPW_SHARES_ALL, at);
    return -ENOSPC;
}

/* What it is promised now counts for workers that join, too. */
static int check_opening(const struct spw_ctl *ctl, uint32_t s, bool there,
                         const struct spw_open_space_mail *asked, char *text, size_t text_bytes)
{
    const struct spw_space_slot *space = &ctl->space[s];
    uint64_t workers = there ? workers_of(space) : 0, shares = asked->shares;
    if (there && shares == 0)
        shares = spw_load_relaxed(&space->shares); /* only the daemon stores them */
    for (uint32_t r = 0; r < asked->record.ranks; r++)
        workers |= 1ull << asked->rank_worker[r];
    return check_promise(ctl, s, workers, shares, text, text_bytes);
}

/* The same fingerprint must mean the same bytes: name the first thing that differs. */
static int differs(const struct spw_space_record *known, const struct spw_space_record *asked,
                   char *text, size_t text_bytes)
{
    const char *what = NULL;
    uint64_t here = 0, there = 0;
#define FIELD(name, a, b)                                                                          \
    if (!what && (a) != (b))                                                                       \
    what = name, here = (a), there = (b)
    FIELD("blocks_per_chunk", known->blocks_per_chunk, asked->blocks_per_chunk);
    FIELD("hash_unit_tokens", known->hash_unit_tokens, asked->hash_unit_tokens);
    FIELD("groups", known->groups, asked->groups);
    FIELD("ranks", known->ranks, asked->ranks);
    for (uint32_t g = 0; g < known->groups; g++) {
        FIELD("a group's kind", known->group[g].kind, asked->group[g].kind);
        FIELD("block_tokens", known->group[g].block_tokens, asked->group[g].block_tokens);
        FIELD("window_tokens", known->group[g].window_tokens, asked->group[g].window_tokens);
        FIELD("chunk_bytes", known->group[g].chunk_bytes, asked->group[g].chunk_bytes);
        FIELD("nominal_bytes", known->group[g].nominal_bytes, asked->group[g].nominal_bytes);
    }
#undef FIELD
    if (!what)
        return 0;
    snprintf(text, text_bytes, "%s is %llu in this pool's space of that fingerprint, not %llu",
             what, (unsigned long long)here, (unsigned long long)there);
    return -EINVAL;
}

static int enter_ranks(struct spw_space_slot *space, const uint32_t *rank_worker, uint32_t ranks,
                       char *text, size_t text_bytes)
{
    for (uint32_t r = 0; r < ranks; r++) {
        for (uint32_t other = 0; other < ranks; other++) {
            bool kept = spw_load_relaxed(&space->rank_workers[other]) >> rank_worker[r] & 1;
            bool twice = other < r && rank_worker[other] == rank_worker[r];
            if (other != r && (kept || twice)) {
                snprintf(text, text_bytes, "worker %u keeps rank %u of this space, not rank %u",
                         rank_worker[r], other, r);
                return -EBUSY;
            }
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t mask = spw_load_relaxed(&space->rank_workers[r]);
        /* masks only grow, and a reader that sees an older one sees fewer chunks: no order needed
         */
        spw_store_relaxed(&space->rank_workers[r], mask | 1ull << rank_worker[r]);
    }
    return 0;
}

static uint64_t seal_of(const struct spw_space_record *record)
{
    return XXH3_64bits(record, sizeof *record);
}

/* Place of the space with this fingerprint, else the first free one; -1: neither. */
static int find(const struct spw_ctl *ctl, const char *fingerprint)
{
    int free = -1;
    for (int s = 0; s < (int)SPW_SPACES_MAX; s++) {
        const struct spw_space_slot *space = &ctl->space[s];
        /* relaxed: only the daemon stores it */
        if (!spw_load_relaxed(&space->ready))
            free = free < 0 ? s : free;
        else if (strcmp(space->record.fingerprint, fingerprint) == 0)
            return s;
    }
    return free;
}

static bool known(const struct spw_ctl *ctl, const char *fingerprint)
{
    int s = find(ctl, fingerprint);
    return s >= 0 && spw_load_relaxed(&ctl->space[s].ready); /* only the daemon stores it */
}

int spw_spaces_open(struct spw_ctl *ctl, const struct spw_geometry *geometry,
                    const struct spw_open_space_mail *asked, char *text, size_t text_bytes)
{
    const struct spw_space_record *record = &asked->record;
    int status = check_asked(geometry, asked, text, text_bytes);
    if (status)
        return status;
    int s = find(ctl, record->fingerprint);
    if (s < 0) {
        snprintf(text, text_bytes, "the pool knows %u spaces already, the most it can",
                 SPW_SPACES_MAX);
        return -ENOSPC;
    }
    struct spw_space_slot *space = &ctl->space[s];
    bool there = spw_load_relaxed(&space->ready); /* only the daemon stores it */
    if (there)
        status = differs(&space->record, record, text, text_bytes);
    else
        memset(space->rank_workers, 0, sizeof space->rank_workers);
    if (!status)
        status = check_opening(ctl, (uint32_t)s, there, asked, text, text_bytes);
    if (!status)
        status = enter_ranks(space, asked->rank_worker, record->ranks, text, text_bytes);
    if (status)
        return status;
    if (!there || asked->shares != 0) /* relaxed: workers take them as they come */
        spw_store_relaxed(&space->shares, asked->shares);
    if (!there) {
        space->record = *record;
        space->seal = seal_of(record);
        spw_store_release(&space->ready, 1); /* [SP-1] release: the record before `ready` */
    }
    return s;
}

/* The shares of @space with those of @asked that are to be set. */
static uint64_t with_shares(const struct spw_space_slot *space, const struct spw_shares_mail *asked)
{
    uint64_t now = spw_load_relaxed(&space->shares); /* only the daemon stores them */
    uint64_t guaranteed = asked->set & SPW_SET_GUARANTEED ? asked->shares : now;
    uint64_t largest = asked->set & SPW_SET_LARGEST ? asked->shares : now;
    return SPW_SHARES(SPW_SHARES_GUARANTEED(guaranteed), SPW_SHARES_LARGEST(largest));
}

int spw_spaces_share(struct spw_ctl *ctl, const struct spw_shares_mail *asked, char *text,
                     size_t text_bytes)
{
    bool named = memchr(asked->fingerprint, 0, sizeof asked->fingerprint) != NULL;
    if (!named || !known(ctl, asked->fingerprint)) {
        snprintf(text, text_bytes, "the pool has no space of that fingerprint");
        return -ESRCH;
    }
    int s = find(ctl, asked->fingerprint);
    uint64_t shares = with_shares(&ctl->space[s], asked);
    int status = check_shares(shares, text, text_bytes);
    if (!status)
        status =
            check_promise(ctl, (uint32_t)s, workers_of(&ctl->space[s]), shares, text, text_bytes);
    if (status)
        return status;
    spw_store_relaxed(&ctl->space[s].shares, shares); /* workers take them as they come */
    return s;
}

/* ---- of the pool before ---------------------------------------------------------------------- */

/* A worker keeps parts of one rank of a space at most, and there is no other worker or rank. */
static bool masks_sound(const struct spw_geometry *geometry, uint32_t ranks, const uint64_t *mask)
{
    const uint64_t workers = ~0ull >> (64 - geometry->workers);
    uint64_t taken = 0;
    for (uint32_t r = 0; r < SPW_RANKS_MAX; r++) {
        if ((mask[r] & ~workers) || (mask[r] & taken) || (r < ranks ? !mask[r] : mask[r] != 0))
            return false;
        taken |= mask[r];
    }
    return true;
}

int spw_spaces_keep(struct spw_ctl *ctl, const struct spw_geometry *geometry, uint32_t s,
                    const struct spw_space_slot *old, char *text, size_t text_bytes)
{
    const struct spw_space_record record = old->record; /* once; only the copy is looked at */
    uint64_t mask[SPW_RANKS_MAX], workers = 0;
    for (uint32_t r = 0; r < SPW_RANKS_MAX; r++)
        workers |= mask[r] = spw_load_relaxed(&old->rank_workers[r]);
    const char *what = NULL;
    if (spw_load_relaxed(&old->ready) != 1 || old->seal != seal_of(&record))
        what = "its record isn't what it was";
    else if (spw_spaces_check(geometry, &record, text, text_bytes))
        return -EBADMSG;
    else if (!masks_sound(geometry, record.ranks, mask))
        what = "which workers keep its ranks makes no sense";
    else if (known(ctl, record.fingerprint))
        what = "another space has its fingerprint";
    if (what) {
        snprintf(text, text_bytes, "%s", what);
        return -EBADMSG;
    }
    struct spw_space_slot *space = &ctl->space[s];
    uint64_t shares = spw_load_relaxed(&old->shares);
    if (check_shares(shares, text, text_bytes) ||
        check_promise(ctl, s, workers, shares, text, text_bytes))
        shares = 0; /* they are no part of what the chunks are */
    space->record = record;
    space->seal = seal_of(&record);
    spw_store_relaxed(&space->shares, shares); /* published with ctl */
    for (uint32_t r = 0; r < SPW_RANKS_MAX; r++)
        spw_store_relaxed(&space->rank_workers[r], mask[r]); /* published with ctl */
    spw_store_relaxed(&space->ready, 1);                     /* likewise           */
    return 0;
}
