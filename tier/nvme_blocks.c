/*
 * Blocks of the segments' tables on their way to the medium. A block is written whole, from a copy of
 * what memory has at that moment; changes that come meanwhile are in the next write.
 *
 *   dies after              the next open finds
 *   record in memory        nothing of it
 *   block half written      this change or not: each record has a check of its own
 *   block written           the change
 */
#include <string.h>

#include "shm/crash_point.h"
#include "tier/nvme_impl.h"

static void enqueue(struct spw_cold *nvme, struct spw_nvme_block *block)
{
    if (block->queued)
        return;
    block->queued = true;
    block->next = NULL;
    if (nvme->dirty_last)
        nvme->dirty_last->next = block;
    else
        nvme->dirty_first = block;
    nvme->dirty_last = block;
}

uint32_t spw_nvme_block_changed(struct spw_cold *nvme, struct spw_nvme_segment *segment,
                                uint32_t cell)
{
    struct spw_nvme_block *block = spw_nvme_block_of(segment, cell);
    block->version++;
    enqueue(nvme, block);
    return block->version;
}

static int submit(struct spw_cold *nvme, struct spw_nvme_block_io *block_io)
{
    struct spw_io io;
    spw_transfer_ask(&block_io->transfer, &io);
    return spw_nvme_submit(nvme, &block_io->op, &io);
}

static void over(struct spw_cold *nvme, struct spw_nvme_block_io *block_io, int status)
{
    struct spw_nvme_block *block = block_io->block;
    char name[32], words[160];
    block_io->busy = false;
    block->writing = false;
    block->segment->busy--;
    if (status > 0) {
        block->written = block_io->version;
        SPW_CRASH_POINT("nvme.block_written");
        spw_nvme_result(nvme, 0, "");
        return;
    }
    spw_nvme_segment_name(block->segment->file.number, name);
    spw_transfer_say(&block_io->transfer, name, words, sizeof words);
    enqueue(nvme, block); /* what it says is still to be told */
    spw_nvme_jobs_block_failed(nvme, block, status);
    spw_nvme_result(nvme, status, words);
}

static void ended(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    struct spw_nvme_block_io *block_io = (struct spw_nvme_block_io *)op;
    int status = spw_transfer_ended(&block_io->transfer, end);
    if (status == 0 && submit(nvme, block_io) < 0)
        status = -EAGAIN;
    if (status != 0)
        over(nvme, block_io, status);
}

/* SPW_NVME_BLOCK_IOS: none. */
static uint32_t idle_one(const struct spw_cold *nvme)
{
    uint32_t i = 0;
    while (i < SPW_NVME_BLOCK_IOS && nvme->block_io[i].busy)
        i++;
    return i;
}

bool spw_nvme_blocks_wait(const struct spw_cold *nvme)
{
    const struct spw_nvme_block *block = nvme->engine_full ? NULL : nvme->dirty_first;
    while (block && (block->writing || block->written == block->version))
        block = block->next;
    return block && idle_one(nvme) < SPW_NVME_BLOCK_IOS;
}

/* False: it can't be written now. */
static bool write_block(struct spw_cold *nvme, struct spw_nvme_block *block)
{
    struct spw_nvme_segment *segment = block->segment;
    uint32_t idle = idle_one(nvme);
    if (idle == SPW_NVME_BLOCK_IOS)
        return false;
    struct spw_nvme_block_io *block_io = &nvme->block_io[idle];
    memcpy(block_io->copy, &segment->table[block->index * SPW_NVME_RECORDS], SPW_NVME_BLOCK);
    block_io->op.ended = ended;
    block_io->block = block;
    block_io->version = block->version;
    block_io->transfer =
        (struct spw_transfer){.op = SPW_IO_WRITE,
                              .fd = segment->file.fd,
                              .offset = SPW_NVME_BLOCK * (1 + (uint64_t)block->index),
                              .buffer = block_io->copy,
                              .bytes = SPW_NVME_BLOCK};
    if (submit(nvme, block_io) < 0)
        return false;
    block_io->busy = block->writing = true;
    segment->busy++;
    return true;
}

void spw_nvme_blocks_pump(struct spw_cold *nvme)
{
    struct spw_nvme_block *block = nvme->dirty_first;
    nvme->dirty_first = nvme->dirty_last = NULL;
    while (block) {
        struct spw_nvme_block *next = block->next;
        block->queued = false;
        if (block->written != block->version && (block->writing || !write_block(nvme, block)))
            enqueue(nvme, block);
        block = next;
    }
}
