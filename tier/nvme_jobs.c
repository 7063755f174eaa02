/*
 * One put or get, a step at a time.
 *
 *   put dies after           the next open finds
 *   cell taken               its old record, if the block with the empty one was not yet written; the
 *                            old payload is still whole then
 *   empty record written     nothing in that cell
 *   payload written          the same
 *   record written           the chunk
 */
#include <stdlib.h>
#include <string.h>

#include "shm/crash_point.h"
#include "tier/nvme_impl.h"

static struct spw_nvme_job *idle_job(struct spw_cold *nvme)
{
    for (uint32_t i = 0; i < nvme->jobs; i++)
        if (nvme->job[i].state == SPW_NVME_IDLE)
            return &nvme->job[i];
    return NULL;
}

/* ---- memory that direct I/O takes ------------------------------------------------------------- */

/* Payload goes as it lies where address and length suit the device, else through a buffer. */
static int use_memory(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    uint32_t align = nvme->mount->align;
    job->bounced = (uintptr_t)job->payload % align != 0 || job->bytes % align != 0;
    if (!job->bounced || job->bounce)
        return 0;
    uint64_t room = spw_nvme_cell_bytes(nvme->config.chunk_bytes_max);
    return posix_memalign((void **)&job->bounce, SPW_NVME_BLOCK, room) == 0 ? 0 : -ENOMEM;
}

static void aim(struct spw_cold *nvme, struct spw_nvme_job *job, enum spw_io_op op)
{
    const struct spw_nvme_head *head = &job->segment->file.head;
    uint8_t *buffer = job->bounced ? job->bounce : job->payload;
    uint64_t bytes = job->bounced ? spw_align_up(job->bytes, nvme->mount->align) : job->bytes;
    bool sum =
        nvme->config.checksum && (op == SPW_IO_READ ? job->record.summed : !job->record.summed);
    job->transfer = (struct spw_transfer){
        .op = op,
        .fd = job->segment->file.fd,
        .offset = spw_nvme_cells_off(head->cells) + job->cell * head->cell_bytes,
        .buffer = buffer,
        .bytes = bytes,
        .sum_base = sum ? buffer : NULL,
        .sum_bytes = sum ? job->bytes : 0,
    };
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void payload_over(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    nvme->writes -= job->writes;
    job->writes = false;
}

static void leave(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    payload_over(nvme, job);
    job->segment->busy--;
    nvme->leased--;
    if (job->put)
        nvme->puts--;
    else
        nvme->reads--;
    job->state = SPW_NVME_IDLE;
}

static void end_put(struct spw_cold *nvme, struct spw_nvme_job *job, int status)
{
    if (status == 0 && job->segment->leaving)
        status = -EIO;
    if (status == 0 && job->record.generation != spw_nvme_generation(nvme, job->record.space))
        status = -ESTALE;
    if (status == 0)
        spw_nvme_hold(nvme, job->id);
    else
        spw_nvme_unput(nvme, job->id);
    spw_nvme_event(nvme, SPW_COLD_PUT, job->id, status, job->tag);
    leave(nvme, job);
}

/* The chunk may be read by others, too; what can't be read is no chunk. */
static void end_get(struct spw_cold *nvme, struct spw_nvme_job *job, int status)
{
    struct spw_nvme_chunk *chunk = &nvme->chunk[job->id];
    chunk->reads--;
    if (chunk->state == SPW_CHUNK_DROPPED) {
        status = status < 0 ? status : -ENOENT;
        spw_nvme_dropped(nvme, job->id);
    } else if (status < 0) {
        spw_nvme_lose(nvme, job->id, status == -EBADMSG ? SPW_COLD_CORRUPT : SPW_COLD_FAILED);
    } else {
        spw_nvme_touch(nvme, job->id);
    }
    spw_nvme_event(nvme, SPW_COLD_GET, job->id, status, job->tag);
    leave(nvme, job);
}

static void end(struct spw_cold *nvme, struct spw_nvme_job *job, int status)
{
    if (job->put)
        end_put(nvme, job, status);
    else
        end_get(nvme, job, status);
}

/* A transfer that nobody waits for any more: its memory is free now. */
static void end_late(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    spw_nvme_event(nvme, SPW_COLD_RELEASED, job->id, 0, job->tag);
    leave(nvme, job);
}

static void failed(struct spw_cold *nvme, struct spw_nvme_job *job, int status)
{
    char name[32], words[160];
    spw_nvme_segment_name(job->segment->file.number, name);
    spw_transfer_say(&job->transfer, name, words, sizeof words);
    if (status == -ENOSPC || status == -EDQUOT) {
        nvme->full_ns = nvme->now_ns + 10 * nvme->config.retry_ns;
        status = -ENOSPC;
    }
    bool one_chunk = status == -ENOSPC || status == -EBADMSG; /* nothing wrong with the others */
    end(nvme, job, status);
    if (!one_chunk)
        spw_nvme_result(nvme, status, words);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void submit(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    struct spw_io io = {.op = SPW_IO_SYNC, .fd = job->segment->file.fd};
    if (job->state == SPW_NVME_WRITE || job->state == SPW_NVME_READ)
        spw_transfer_ask(&job->transfer, &io);
    job->under_way = spw_nvme_submit(nvme, &job->op, &io) == 0; /* else at the next pump */
}

static void write_payload(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    if (job->bounced) {
        uint64_t padded = spw_align_up(job->bytes, nvme->mount->align);
        memcpy(job->bounce, job->payload, job->bytes);
        memset(job->bounce + job->bytes, 0, padded - job->bytes);
    }
    aim(nvme, job, SPW_IO_WRITE);
    nvme->writes++;
    job->writes = true;
    job->state = SPW_NVME_WRITE;
    submit(nvme, job);
}

static void publish(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    struct spw_nvme_record *record = &job->segment->table[job->cell];
    payload_over(nvme, job);
    SPW_CRASH_POINT("nvme.payload_written");
    if (nvme->config.checksum && !job->record.summed) {
        job->record.sum = job->transfer.sum;
        job->record.summed = 1;
    }
    job->record.sequence = ++nvme->sequence;
    *record = job->record;
    spw_nvme_record_seal(record, &job->segment->file.head, job->cell);
    job->need = spw_nvme_block_changed(nvme, job->segment, job->cell);
    job->state = SPW_NVME_PUBLISH;
}

static bool block_has(const struct spw_nvme_job *job)
{
    uint32_t written = spw_nvme_block_of(job->segment, job->cell)->written;
    return (int32_t)(written - job->need) >= 0;
}

static void sync_file(struct spw_cold *nvme, struct spw_nvme_job *job,
                      enum spw_nvme_job_state state)
{
    job->state = state;
    submit(nvme, job);
}

/* Go on as far as nothing has to be waited for. */
static void step(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    if (job->under_way)
        return;
    switch (job->state) {
    case SPW_NVME_ERASE:
        if (block_has(job) && nvme->writes < nvme->config.writes) {
            SPW_CRASH_POINT("nvme.record_erased");
            write_payload(nvme, job);
        }
        break;
    case SPW_NVME_PUBLISH:
        if (!block_has(job))
            break;
        SPW_CRASH_POINT("nvme.record_written");
        if (nvme->config.sync)
            sync_file(nvme, job, SPW_NVME_SYNC_RECORD);
        else
            end(nvme, job, 0);
        break;
    case SPW_NVME_WRITE:
    case SPW_NVME_READ:
    case SPW_NVME_SYNC:
    case SPW_NVME_SYNC_RECORD:
        submit(nvme, job); /* the engine was full */
        break;
    default:
        break;
    }
}

static int verify(const struct spw_cold *nvme, const struct spw_nvme_job *job)
{
    bool wants = nvme->config.checksum && job->record.summed;
    return wants && job->transfer.sum != job->record.sum ? -EBADMSG : 0;
}

static void read_ended(struct spw_cold *nvme, struct spw_nvme_job *job)
{
    int status = verify(nvme, job);
    if (status == 0 && job->bounced)
        memcpy(job->payload, job->bounce, job->bytes);
    end(nvme, job, status);
}

static void sync_ended(struct spw_cold *nvme, struct spw_nvme_job *job, int64_t result)
{
    if (result < 0) {
        job->transfer.last = result;
        failed(nvme, job, (int)result);
    } else if (job->state == SPW_NVME_SYNC) {
        publish(nvme, job);
    } else {
        end(nvme, job, 0);
    }
}

static void transfer_ended(struct spw_cold *nvme, struct spw_nvme_job *job,
                           const struct spw_io_end *ended)
{
    int status = spw_transfer_ended(&job->transfer, ended);
    if (status == 0) {
        submit(nvme, job);
    } else if (status < 0) {
        failed(nvme, job, status);
    } else {
        spw_nvme_result(nvme, 0, "");
        if (job->state == SPW_NVME_READ)
            read_ended(nvme, job);
        else if (nvme->config.sync)
            sync_file(nvme, job, SPW_NVME_SYNC);
        else
            publish(nvme, job);
    }
}

static void op_ended(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *ended)
{
    struct spw_nvme_job *job = (struct spw_nvme_job *)op;
    job->under_way = false;
    if (job->state == SPW_NVME_LATE)
        end_late(nvme, job);
    else if (job->state == SPW_NVME_WRITE || job->state == SPW_NVME_READ)
        transfer_ended(nvme, job, ended);
    else
        sync_ended(nvme, job, ended->result);
}

void spw_nvme_jobs_pump(struct spw_cold *nvme)
{
    for (uint32_t i = 0; i < nvme->jobs && nvme->phase == SPW_NVME_SERVES; i++)
        if (nvme->job[i].state != SPW_NVME_IDLE)
            step(nvme, &nvme->job[i]);
}

void spw_nvme_jobs_block_failed(struct spw_cold *nvme, const struct spw_nvme_block *block,
                                int status)
{
    for (uint32_t i = 0; i < nvme->jobs; i++) {
        struct spw_nvme_job *job = &nvme->job[i];
        bool waits = job->state == SPW_NVME_ERASE || job->state == SPW_NVME_PUBLISH;
        if (waits && spw_nvme_block_of(job->segment, job->cell) == block)
            end(nvme, job, status);
    }
}

bool spw_nvme_jobs_late(const struct spw_cold *nvme)
{
    for (uint32_t i = 0; i < nvme->jobs; i++) {
        const struct spw_nvme_job *job = &nvme->job[i];
        if (job->state != SPW_NVME_IDLE && job->state != SPW_NVME_LATE &&
            job->deadline_ns <= nvme->now_ns)
            return true;
    }
    return false;
}

/* Their chunks were given up before: neither put nor get leaves anything but its event. */
void spw_nvme_jobs_abandon(struct spw_cold *nvme, int status)
{
    for (uint32_t i = 0; i < nvme->jobs; i++) {
        struct spw_nvme_job *job = &nvme->job[i];
        if (job->state == SPW_NVME_IDLE || job->state == SPW_NVME_LATE)
            continue;
        spw_nvme_event(nvme, job->put ? SPW_COLD_PUT : SPW_COLD_GET, job->id,
                       job->under_way ? -ETIMEDOUT : status, job->tag);
        if (job->under_way)
            job->state = SPW_NVME_LATE;
        else
            leave(nvme, job);
    }
}

/* ---- begin ----------------------------------------------------------------------------------- */

static struct spw_nvme_job *begin(struct spw_cold *nvme, uint32_t id, uint8_t *payload,
                                  uint64_t bytes, void *tag)
{
    struct spw_nvme_job *job = idle_job(nvme);
    job->payload = payload;
    job->bytes = bytes;
    if (use_memory(nvme, job) < 0)
        return NULL;
    job->op.ended = op_ended;
    job->under_way = job->writes = false;
    job->id = id;
    job->segment = nvme->chunk[id].segment;
    job->cell = nvme->chunk[id].cell;
    job->tag = tag;
    job->deadline_ns = nvme->now_ns + nvme->config.deadline_ns;
    job->segment->busy++;
    nvme->leased++;
    return job;
}

int spw_nvme_put(struct spw_cold *nvme, const struct spw_cold_put *put)
{
    uint32_t id;
    if (nvme->phase == SPW_NVME_IS_DOWN)
        return -EIO;
    if (nvme->phase != SPW_NVME_SERVES || nvme->now_ns < nvme->write_ns ||
        nvme->puts >= SPW_NVME_PUTS(nvme) || !spw_nvme_event_room(nvme, 2))
        return -EAGAIN;
    int rc = spw_nvme_find_room(nvme, put->name.space, put->bytes, &id);
    if (rc < 0)
        return rc;
    /* the payload is only read */
    struct spw_nvme_job *job =
        begin(nvme, id, (uint8_t *)(uintptr_t)put->payload, put->bytes, put->tag);
    if (!job) {
        spw_nvme_unput(nvme, id);
        return -ENOSPC;
    }
    nvme->puts++;
    job->put = true;
    job->record = (struct spw_nvme_record){
        .space = {put->name.space[0], put->name.space[1]},
        .generation = spw_nvme_generation(nvme, put->name.space),
        .bytes = (uint32_t)put->bytes,
        .group = (uint8_t)put->name.group,
        .rank = (uint8_t)put->name.rank,
        .key_bytes = (uint8_t)put->name.key_bytes,
        .summed = nvme->config.checksum && put->summed,
        .sum = nvme->config.checksum && put->summed ? put->sum : 0,
    };
    memcpy(job->record.key, put->name.key, put->name.key_bytes);
    job->need = spw_nvme_block_of(job->segment, job->cell)->version;
    job->state = SPW_NVME_ERASE;
    step(nvme, job);
    return 0;
}

int spw_nvme_get(struct spw_cold *nvme, uint32_t id, uint8_t *payload, uint64_t bytes, void *tag)
{
    if (nvme->phase == SPW_NVME_IS_DOWN)
        return -EIO;
    if (id >= nvme->config.ids || nvme->chunk[id].state != SPW_CHUNK_HELD)
        return -ENOENT;
    if (nvme->reads >= nvme->config.reads || !spw_nvme_event_room(nvme, 2))
        return -EAGAIN;
    struct spw_nvme_chunk *chunk = &nvme->chunk[id];
    if (chunk->segment->table[chunk->cell].bytes != bytes) {
        spw_nvme_lose(nvme, id, SPW_COLD_CORRUPT);
        return -ENOENT;
    }
    struct spw_nvme_job *job = begin(nvme, id, payload, bytes, tag);
    if (!job)
        return -EAGAIN;
    nvme->reads++;
    chunk->reads++;
    job->put = false;
    job->record = chunk->segment->table[chunk->cell];
    aim(nvme, job, SPW_IO_READ);
    job->state = SPW_NVME_READ;
    submit(nvme, job);
    return 0;
}
