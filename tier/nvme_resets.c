/*
 * Resets of spaces, on the medium: two copies of a table, written in turn, of which the good one of
 * the higher sequence counts. A chunk's record carries the number of resets before it was put, so a
 * chunk of before is none even if its record is still there. A reset of all is one number more that
 * counts for every space: it reaches those that nobody knows here, too, and takes no place.
 *
 *   dies after             the next open finds
 *   number in memory       the old number: nobody was told that the reset is done
 *   copy half written      the other copy
 *   copy written, synced   the reset
 *
 * While writes of a dead process may still come (write_ns), one of them may be of this table, and would
 * undo the copy that it lands on. So the table is written twice then, into both copies, each over a
 * copy that isn't the last good one, before anybody is told.
 */
#include <string.h>

#include "shm/crash_point.h"
#include "tier/nvme_impl.h"

static struct spw_nvme_reset *find(struct spw_nvme_spaces *spaces, const uint64_t space[2])
{
    for (uint32_t i = 0; i < spaces->count; i++)
        if (memcmp(spaces->space[i].space, space, sizeof spaces->space[i].space) == 0)
            return &spaces->space[i];
    return NULL;
}

uint64_t spw_nvme_generation(const struct spw_cold *nvme, const uint64_t space[2])
{
    for (uint32_t i = 0; i < nvme->spaces.count; i++)
        if (memcmp(nvme->spaces.space[i].space, space, sizeof nvme->spaces.space[i].space) == 0)
            return nvme->spaces.space[i].generation + nvme->spaces.all;
    return nvme->spaces.all;
}

/* A place for a space that was not reset yet; NULL: there is none. A pool has fewer spaces, so that
 * takes a directory that went through several. */
static struct spw_nvme_reset *add(struct spw_cold *nvme, const uint64_t space[2])
{
    struct spw_nvme_spaces *spaces = &nvme->spaces;
    if (spaces->count == SPW_NVME_SPACES)
        return NULL;
    struct spw_nvme_reset *reset = &spaces->space[spaces->count++];
    *reset = (struct spw_nvme_reset){.space = {space[0], space[1]}};
    return reset;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void spw_nvme_resets_merge(struct spw_cold *nvme, const struct spw_nvme_spaces *medium)
{
    for (uint32_t i = 0; medium && i < medium->count; i++) {
        struct spw_nvme_reset *reset = find(&nvme->spaces, medium->space[i].space);
        if (!reset)
            reset = add(nvme, medium->space[i].space);
        if (!reset)
            continue;
        uint64_t least = medium->space[i].generation + nvme->raised[reset - nvme->spaces.space];
        reset->generation = larger(reset->generation, least);
    }
    if (!medium)
        return;
    nvme->spaces.all = larger(nvme->spaces.all, medium->all + nvme->raised_all);
    nvme->spaces.sequence = larger(nvme->spaces.sequence, medium->sequence);
}

/* What is held of @space; NULL: of all. */
static void lose(struct spw_cold *nvme, const uint64_t space[2])
{
    struct spw_cold_name name;
    uint64_t bytes;
    for (uint32_t id = 0; id < nvme->config.ids; id++)
        if (spw_nvme_name(nvme, id, &name, &bytes) == 0 &&
            (!space || memcmp(name.space, space, sizeof name.space) == 0))
            spw_nvme_lose(nvme, id, SPW_COLD_OLD);
}

static void raise_all(struct spw_cold *nvme)
{
    nvme->spaces.all++;
    nvme->raised_all++;
}

/* False: there is no place for its number. */
static bool raise_one(struct spw_cold *nvme, const uint64_t space[2])
{
    struct spw_nvme_reset *reset = find(&nvme->spaces, space);
    if (!reset)
        reset = add(nvme, space);
    if (!reset)
        return false;
    reset->generation++;
    nvme->raised[reset - nvme->spaces.space]++;
    return true;
}

int spw_nvme_reset(struct spw_cold *nvme, const uint64_t space[2], void *tag)
{
    bool raised = true;
    if (space)
        raised = raise_one(nvme, space);
    else
        raise_all(nvme);
    nvme->spaces_version++;
    lose(nvme, space);
    if (!raised || nvme->reset_waits == SPW_SPACES_MAX || nvme->phase == SPW_NVME_IS_DOWN)
        return -EIO; /* what memory knows is written when the medium is there again */
    nvme->reset_wait[nvme->reset_waits++] =
        (struct spw_nvme_reset_wait){.tag = tag,
                                     .need = nvme->spaces_version,
                                     .deadline_ns = nvme->now_ns + nvme->config.deadline_ns};
    return 0;
}

/* Those that wait, oldest first: 0 whose reset the medium has, -ETIMEDOUT who has waited long enough;
 * with @status < 0 all of them. */
static void tell(struct spw_cold *nvme, int status)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < nvme->reset_waits; i++) {
        struct spw_nvme_reset_wait wait = nvme->reset_wait[i];
        int said = status;
        if (status == 0 && (int32_t)(nvme->spaces_written - wait.need) < 0)
            said = wait.deadline_ns <= nvme->now_ns ? -ETIMEDOUT : 1;
        if (said == 1)
            nvme->reset_wait[left++] = wait;
        else
            spw_nvme_event(nvme, SPW_COLD_RESET, SPW_NVME_NO_ID, said, wait.tag);
    }
    nvme->reset_waits = left;
}

void spw_nvme_resets_fail(struct spw_cold *nvme, int status)
{
    tell(nvme, status);
}

uint64_t spw_nvme_resets_due_ns(const struct spw_cold *nvme)
{
    return nvme->reset_waits != 0 ? nvme->reset_wait[0].deadline_ns : UINT64_MAX;
}

static int submit(struct spw_cold *nvme)
{
    struct spw_io io = {.op = SPW_IO_SYNC, .fd = nvme->mount->spaces_fd};
    if (!nvme->spaces_syncing)
        spw_transfer_ask(&nvme->spaces_transfer, &io);
    return spw_nvme_submit(nvme, &nvme->spaces_op, &io);
}

static void ended(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    (void)op;
    int status = nvme->spaces_syncing ? (end->result < 0 ? (int)end->result : 1)
                                      : spw_transfer_ended(&nvme->spaces_transfer, end);
    if (status == 1 && !nvme->spaces_syncing) {
        SPW_CRASH_POINT("nvme.resets_written");
        nvme->spaces_syncing = true;
        status = 0;
    }
    if (status == 0 && submit(nvme) < 0)
        status = -EAGAIN;
    if (status == 0)
        return;
    nvme->spaces_writing = false;
    if (status == 1 && nvme->spaces_first) {
        nvme->spaces_first = false; /* and once more */
    } else if (status == 1) {
        nvme->spaces_written = nvme->spaces_copy_version;
        if (nvme->spaces_written == nvme->spaces_version) {
            memset(nvme->raised, 0, sizeof nvme->raised);
            nvme->raised_all = 0;
        }
        nvme->spaces_first = nvme->now_ns < nvme->write_ns;
        tell(nvme, 0);
        spw_nvme_result(nvme, 0, "");
    } else {
        spw_nvme_result(nvme, status, "the resets of spaces can't be written");
    }
}

void spw_nvme_resets_pump(struct spw_cold *nvme)
{
    if (nvme->reset_waits != 0 && nvme->reset_wait[0].deadline_ns <= nvme->now_ns)
        tell(nvme, 0);
    if (nvme->phase != SPW_NVME_SERVES || nvme->spaces_writing ||
        nvme->spaces_written == nvme->spaces_version)
        return;
    nvme->spaces.sequence++;
    struct spw_nvme_spaces *copy = (struct spw_nvme_spaces *)(void *)nvme->spaces_copy;
    *copy = nvme->spaces;
    spw_nvme_spaces_seal(copy);
    nvme->spaces_copy_version = nvme->spaces_version;
    nvme->spaces_syncing = false;
    nvme->spaces_op.ended = ended;
    nvme->spaces_transfer =
        (struct spw_transfer){.op = SPW_IO_WRITE,
                              .fd = nvme->mount->spaces_fd,
                              .offset = nvme->spaces.sequence % 2 * SPW_NVME_BLOCK,
                              .buffer = nvme->spaces_copy,
                              .bytes = SPW_NVME_BLOCK};
    nvme->spaces_writing = submit(nvme) == 0;
}
