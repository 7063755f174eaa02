/*
 * The halves of jobs: reserve and begin, which take slots and claims, and the runs that follow.
 *
 *   worker does                     others see if it dies right after
 *   slots of a reserve are FILLING  the command is untaken; the successor retires them
 *   claims of a begin are set       the command is untaken: pins still count; the successor clears
 *                                   the bits when no transfer can be left
 *   run queued                      FILLING or claimed: as above; the client library ends the job
 */
#include "shm/crash_point.h"
#include "tier/worker_taking.h"

#include <string.h>

#define CLAIM_TRIES       100u
#define FULL_ATTENTION    0u /* SPW_GROUP_FULL of sched/verdict.h */
#define ALL_CHUNKS(count) ((count) >= 64u ? UINT64_MAX : (1ull << (count)) - 1)

/* What one part of a group is, from the space's record in ctl. */
struct part {
    uint32_t chunk_bytes;
    uint32_t piece_bytes;
    uint32_t blocks_per_chunk;
    uint64_t nominal_bytes;
};

/* True if @group of @record is one that this pool can move. */
static bool part_of(const struct spw_worker *worker, const struct spw_space_record *record,
                    uint32_t group, struct part *out_part)
{
    const struct spw_geometry *geometry = &worker->pool->geometry;
    uint32_t blocks = record->blocks_per_chunk;
    if (group >= record->groups || group >= SPW_GROUP_COUNT_MAX || blocks == 0 ||
        blocks > SPW_CHUNK_BLOCKS_MAX)
        return false;
    uint32_t bytes = record->group[group].chunk_bytes;
    if (bytes == 0 || bytes > geometry->slot_bytes || bytes % blocks != 0 ||
        (geometry->kv_blocks != 0 && bytes / blocks > geometry->kv_block_bytes &&
         !worker->config.copier.ops
              ->kv_open)) /* else whoever runs it may have registered larger ones */
        return false;
    uint64_t nominal = record->group[group].nominal_bytes;
    *out_part = (struct part){.chunk_bytes = bytes,
                              .piece_bytes = bytes / blocks,
                              .blocks_per_chunk = blocks,
                              .nominal_bytes = nominal ? nominal : bytes};
    return true;
}

/* A job that waits for its run is open for its client; one with nothing to run is gone at once. */
static void settle(struct spw_worker *worker, struct spw_worker_taking *taking, struct spw_job *job)
{
    taking->answer.count = (uint16_t)job->count;
    if (job->open == 0) {
        spw_job_move(job, SPW_JOB_DONE);
        spw_jobs_close(&worker->jobs, job);
        return;
    }
    spw_jobs_await(&worker->jobs, job, worker->now_ns + worker->config.run_limit_ns);
    taking->client->open_jobs++;
    taking->answer.ticket = job->ticket;
}

static struct spw_job *open_job(struct spw_worker *worker, struct spw_worker_taking *taking,
                                enum spw_copy_kind kind, const struct spw_space_record *record)
{
    if (taking->client->open_jobs >= worker->config.client_jobs_max)
        return NULL;
    struct spw_job_party opener = {taking->c, taking->client->generation};
    struct spw_job *job = spw_jobs_open(&worker->jobs, kind, opener);
    if (job) {
        job->space = taking->head.space;
        job->blocks_per_chunk = record->blocks_per_chunk;
    }
    return job;
}

/* ---- reserve -------------------------------------------------------------------------------- */

struct wanted {
    bool follows[SPW_JOB_CHUNKS_MAX]; /* the one before it in its prefix   */
    bool full[SPW_JOB_CHUNKS_MAX];    /* its group's attention             */
    struct spw_chunk_key key[SPW_JOB_CHUNKS_MAX];
    struct part part[SPW_JOB_CHUNKS_MAX];
    uint8_t bytes[SPW_JOB_CHUNKS_MAX][SPW_KEY_BYTES_MAX];
};

/* Copy one key at body slot @at; returns the slots it uses, 0 = nonsense. */
static uint32_t parse_key(const struct spw_worker_taking *taking, uint32_t at,
                          struct spw_chunk_key *key, uint8_t *bytes, bool *follows)
{
    struct spw_reserve_key raw;
    if (at >= taking->head.body_slots)
        return 0;
    memcpy(&raw, taking->body + at * SPW_LANE_PAYLOAD_BYTES, sizeof(raw));
    if (raw.key_bytes == 0 || raw.key_bytes > SPW_KEY_BYTES_MAX)
        return 0;
    uint32_t used = raw.key_bytes > sizeof(raw.key) ? 2 : 1;
    if (at + used > taking->head.body_slots)
        return 0;
    memcpy(bytes, raw.key, sizeof(raw.key));
    if (used == 2)
        memcpy(bytes + sizeof(raw.key), taking->body + (at + 1) * SPW_LANE_PAYLOAD_BYTES,
               SPW_KEY_BYTES_MAX - sizeof(raw.key));
    *follows = (raw.group & SPW_RESERVE_FOLLOWS) != 0;
    raw.group &= ~SPW_RESERVE_FOLLOWS;
    *key = (struct spw_chunk_key){
        .space = taking->head.space, .group = raw.group, .key_bytes = raw.key_bytes, .key = bytes};
    spw_chunk_digest(key->space, key->group, bytes, key->key_bytes, key->digest);
    return memcmp(key->digest, raw.digest, sizeof(raw.digest)) == 0 ? used : 0;
}

static bool parse_reserve(const struct spw_worker *worker, const struct spw_worker_taking *taking,
                          const struct spw_space_record *record, struct wanted *wanted)
{
    uint32_t count = taking->head.count, at = 0;
    if (!record || count == 0 || count > SPW_JOB_CHUNKS_MAX ||
        (taking->head.arg & 0xff) >= record->ranks)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t used =
            parse_key(taking, at, &wanted->key[i], wanted->bytes[i], &wanted->follows[i]);
        if (used == 0 || !part_of(worker, record, wanted->key[i].group, &wanted->part[i]))
            return false;
        wanted->full[i] = record->group[wanted->key[i].group].kind == FULL_ATTENTION;
        at += used;
    }
    return at == taking->head.body_slots;
}

/* Only where attention is full can't a chunk be used without those before it. */
static void follow(struct spw_worker *worker, const struct spw_worker_taking *taking,
                   const struct wanted *wanted, uint32_t i)
{
    const struct spw_chunk_key *key = &wanted->key[i];
    uint64_t before = i == 0               ? taking->head.ticket
                      : wanted->follows[i] ? wanted->key[i - 1].digest[0]
                                           : 0;
    if (before != 0 && wanted->full[i])
        spw_shard_follow(worker->shard, before, key->digest[0]);
}

/* Slots for the wanted keys, in order, until one gets none. Returns why it stopped, 0 = all. */
static int reserve_slots(struct spw_worker *worker, const struct spw_worker_taking *taking,
                         const struct wanted *wanted, struct spw_job *job)
{
    uint32_t rank = (uint32_t)(taking->head.arg & 0xff);
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < taking->head.count; i++) {
        const struct part *part = &wanted->part[i];
        struct spw_job_chunk chunk = {.shard = worker->config.k,
                                      .group = wanted->key[i].group,
                                      .chunk_bytes = part->chunk_bytes,
                                      .piece_bytes = part->piece_bytes,
                                      .item.nominal_bytes = part->nominal_bytes};
        if (!spw_queue_promise(&worker->queue)) {
            status = -EBUSY;
            break;
        }
        enum spw_reserve_result result = spw_shard_reserve(
            worker->shard, &wanted->key[i], rank, part->chunk_bytes, worker->protect, &chunk.slot);
        if (result != SPW_RESERVED)
            spw_queue_give_back(&worker->queue);
        if (result == SPW_NO_SLOT) {
            status = -ENOSPC;
            break;
        }
        if (worker->cold)
            spw_worker_down_offered(worker, chunk.slot, wanted->key[i].digest[0],
                                    result == SPW_RESERVED);
        worker->protect[chunk.slot / 64] |= 1ull << chunk.slot % 64;
        follow(worker, taking, wanted, i);
        spw_job_add(job, &chunk, result == SPW_RESERVED);
    }
    for (uint32_t i = 0; i < job->count; i++)
        worker->protect[job->chunk[i].slot / 64] = 0;
    return status;
}

static bool reserve_refused(struct spw_worker *worker, struct spw_worker_taking *taking,
                            uint32_t chunks, int status)
{
    enum spw_worker_counter why = status == -EBUSY    ? SPW_WORKER_refused_queue_full
                                  : status == -ENOSPC ? SPW_WORKER_refused_no_slot
                                  : status == -ESTALE ? SPW_WORKER_refused_stale
                                                      : SPW_WORKER_refused_bad;
    spw_worker_count(worker, why, chunks);
    return spw_worker_refuse(taking, status);
}

bool spw_worker_take_reserve(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    const struct spw_space_record *record = spw_worker_record_of(worker, taking->head.space);
    uint32_t offered = spw_worker_chunks_offered(taking);
    struct wanted wanted;
    spw_worker_count(worker, SPW_WORKER_chunks_offered, offered);
    if (spw_worker_fenced(worker, taking))
        return reserve_refused(worker, taking, offered, -ESTALE);
    if (!parse_reserve(worker, taking, record, &wanted)) {
        spw_worker_count(worker, SPW_WORKER_commands_bad, 1);
        return reserve_refused(worker, taking, offered, -EINVAL);
    }
    /* the command has room for 56 bits of it */
    if (taking->head.arg >> 8 !=
        spw_load_relaxed(&worker->feed->space_generation[taking->head.space]) << 8 >> 8)
        return reserve_refused(worker, taking, offered, -ESTALE);
    struct spw_job *job = open_job(worker, taking, SPW_COPY_STORE, record);
    if (!job)
        return reserve_refused(worker, taking, offered, -EBUSY);

    int status = reserve_slots(worker, taking, &wanted, job);
    SPW_CRASH_POINT("worker.slots_reserved");
    spw_shard_flush(worker->shard);
    uint64_t fresh = job->open;
    spw_worker_count(worker, SPW_WORKER_chunks_present,
                     job->count - (uint32_t)__builtin_popcountll(fresh));
    if (status < 0)
        reserve_refused(worker, taking, offered - job->count, status);
    taking->answer.mask = fresh;
    settle(worker, taking, job);
    return true;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Copy the block ids and the fence; 0, or why the job's open chunks can't be run with them. */
static int parse_run(const struct spw_worker *worker, const struct spw_worker_taking *taking,
                     struct spw_job *job)
{
    uint32_t each = job->blocks_per_chunk, count = taking->head.count;
    uint64_t fence = taking->head.arg & ~SPW_RUN_REGISTERED;
    if (count != job->count * each ||
        taking->head.body_slots != SPW_SLOTS_FOR(count, SPW_BLOCKS_PER_SLOT) ||
        fence > SPW_KV_FENCES_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id;
        memcpy(&id,
               taking->body + i / SPW_BLOCKS_PER_SLOT * SPW_LANE_PAYLOAD_BYTES +
                   i % SPW_BLOCKS_PER_SLOT * sizeof(id),
               sizeof(id));
        job->block[i] = id;
    }
    job->fence = (uint32_t)fence;
    return spw_worker_kv_check(worker, taking->c, job, taking->head.arg & SPW_RUN_REGISTERED);
}

static bool run_refused(struct spw_worker *worker, struct spw_worker_taking *taking, int status)
{
    spw_worker_count(worker, SPW_WORKER_runs_refused, 1);
    return spw_worker_refuse(taking, status);
}

bool spw_worker_take_run(struct spw_worker *worker, struct spw_worker_taking *taking,
                         enum spw_copy_kind kind)
{
    struct spw_job *job = spw_jobs_find(&worker->jobs, taking->head.ticket);
    taking->answer.ticket = taking->head.ticket;
    taking->answer.mask = UINT64_MAX;
    if (spw_worker_fenced(worker, taking))
        return run_refused(worker, taking, -ESTALE);
    if (!job || job->kind != kind || job->state != SPW_JOB_AWAIT_RUN)
        return run_refused(worker, taking, -ENOENT);
    taking->answer.count = (uint16_t)job->count;
    taking->answer.mask = ALL_CHUNKS(job->count);
    int status = parse_run(worker, taking, job);
    if (status == -ENXIO)
        return run_refused(worker, taking, status);
    if (status < 0)
        return spw_worker_refuse_bad(worker, taking);
    job->runner = (struct spw_job_party){taking->c, taking->client->generation};
    job->cookie = taking->head.cookie;
    taking->client->owed++;
    taking->answers = false;
    spw_worker_run_job(worker, job);
    return true;
}

/* ---- begin ---------------------------------------------------------------------------------- */

static struct spw_load_source source_at(const struct spw_worker_taking *taking, uint32_t i)
{
    struct spw_load_source source;
    memcpy(&source,
           taking->body + i / SPW_SOURCES_PER_SLOT * SPW_LANE_PAYLOAD_BYTES +
               i % SPW_SOURCES_PER_SLOT * sizeof(source),
           sizeof(source));
    return source;
}

static bool check_begin(const struct spw_worker *worker, const struct spw_worker_taking *taking,
                        const struct spw_space_record *record)
{
    uint32_t count = taking->head.count;
    if (!record || count == 0 || count > SPW_JOB_CHUNKS_MAX || taking->head.arg >= record->ranks ||
        taking->head.body_slots != SPW_SLOTS_FOR(count, SPW_SOURCES_PER_SLOT))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct spw_load_source source = source_at(taking, i);
        if (source.shard >= worker->pool->geometry.workers ||
            source.slot >= worker->pool->geometry.slots || source.fill == 0)
            return false;
    }
    return true;
}

/* What lies there is read before the claim: an entry with this fill never changes its identity, and
 * the claim checks the fill again. */
static int claim_source(struct spw_worker *worker, const struct spw_worker_taking *taking,
                        const struct spw_space_record *record, uint32_t i,
                        struct spw_job_chunk *out_chunk)
{
    struct spw_load_source source = source_at(taking, i);
    struct spw_entry_copy entry;
    struct part part;
    int status = spw_table_read(&worker->source[source.shard], source.slot, false, &entry);
    if (status == -EAGAIN)
        return status;
    if (status < 0 || entry.fill != source.fill || entry.space != taking->head.space)
        return -ESTALE;
    if (!part_of(worker, record, entry.group, &part) || part.chunk_bytes != entry.chunk_bytes ||
        !spw_slot_fits(&worker->pool->geometry, source.slot, entry.chunk_bytes))
        return -EBADMSG;
    status = spw_shard_claim(worker->shard, source.shard, source.slot, source.fill);
    if (status < 0)
        return status;
    *out_chunk = (struct spw_job_chunk){.shard = source.shard,
                                        .slot = source.slot,
                                        .group = entry.group,
                                        .chunk_bytes = part.chunk_bytes,
                                        .piece_bytes = part.piece_bytes,
                                        .item.nominal_bytes = part.nominal_bytes};
    return 0;
}

static void drop_claims(struct spw_worker *worker, struct spw_job *job)
{
    for (uint32_t i = 0; i < job->count; i++)
        spw_shard_unclaim(worker->shard, job->chunk[i].shard, job->chunk[i].slot);
    job->open = 0;
    spw_job_move(job, SPW_JOB_DONE);
    spw_jobs_close(&worker->jobs, job);
}

/* False: an entry is being changed, the command stays for a later pass. */
bool spw_worker_take_begin(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    const struct spw_space_record *record = spw_worker_record_of(worker, taking->head.space);
    if (spw_worker_fenced(worker, taking)) {
        spw_worker_count(worker, SPW_WORKER_loads_stale, 1);
        return spw_worker_refuse(taking, -ESTALE);
    }
    if (!check_begin(worker, taking, record))
        return spw_worker_refuse_bad(worker, taking);
    struct spw_job *job = open_job(worker, taking, SPW_COPY_LOAD, record);
    if (!job)
        return spw_worker_refuse(taking, -EBUSY);
    int status = 0;
    while (job->count < taking->head.count) {
        struct spw_job_chunk chunk;
        status = claim_source(worker, taking, record, job->count, &chunk);
        if (status < 0)
            break;
        spw_job_add(job, &chunk, true);
        SPW_CRASH_POINT("worker.source_claimed");
    }
    if (status == -EAGAIN && ++taking->client->claim_tries < CLAIM_TRIES) {
        drop_claims(worker, job);
        return false;
    }
    taking->client->claim_tries = 0;
    if (status == -ESTALE)
        spw_worker_count(worker, SPW_WORKER_loads_stale, 1);
    spw_worker_refuse(taking, status);
    settle(worker, taking, job);
    return true;
}
