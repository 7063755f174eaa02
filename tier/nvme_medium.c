/* See nvme_medium.h. */
#include "tier/nvme_medium.h"

#include <string.h>
#include <xxhash.h>

#define HEAD_MAGIC              0x31304d5645575053ull /* "SPWEVM01" */
#define SPACES_MAGIC            0x31304c5053575053ull
#define SEGMENTS_OF_A_SMALL_CAP 16u

uint32_t spw_nvme_cells(uint64_t cell_bytes, uint64_t cap_bytes)
{
    uint64_t most = cap_bytes / SEGMENTS_OF_A_SMALL_CAP & ~(uint64_t)(SPW_NVME_BLOCK - 1);
    most = most < SPW_NVME_SEGMENT_MAX ? most : SPW_NVME_SEGMENT_MAX;
    uint64_t cells = most / (cell_bytes + sizeof(struct spw_nvme_record));
    while (cells > 1 && spw_nvme_segment_bytes(cell_bytes, (uint32_t)cells) > most)
        cells--;
    cells = cells < SPW_NVME_CELLS_MAX ? cells : SPW_NVME_CELLS_MAX;
    return cells ? (uint32_t)cells : 1;
}

static uint64_t head_check(const struct spw_nvme_head *head)
{
    return XXH3_64bits(head, offsetof(struct spw_nvme_head, check));
}

void spw_nvme_head_make(struct spw_nvme_head *head, uint32_t number, const uint64_t id[2])
{
    *head = (struct spw_nvme_head){.magic = HEAD_MAGIC,
                                   .version = SPW_NVME_FORMAT_VERSION,
                                   .number = number,
                                   .id = {id[0], id[1]},
                                   .cell_bytes = head->cell_bytes,
                                   .owner = {head->owner[0], head->owner[1]},
                                   .cells = head->cells};
    head->check = head_check(head);
}

int spw_nvme_head_check(const struct spw_nvme_head *head, uint32_t number, uint64_t file_bytes)
{
    if (head->magic != HEAD_MAGIC || head->version != SPW_NVME_FORMAT_VERSION ||
        head->check != head_check(head) || head->number != number)
        return -EBADMSG;
    if (head->cells == 0 || head->cells > SPW_NVME_CELLS_MAX || head->cell_bytes == 0 ||
        head->cell_bytes % SPW_NVME_BLOCK != 0 || head->cell_bytes > file_bytes ||
        spw_nvme_segment_bytes(head->cell_bytes, head->cells) > file_bytes)
        return -EBADMSG;
    return 0;
}

static uint64_t record_check(const struct spw_nvme_record *record, const struct spw_nvme_head *head,
                             uint32_t cell)
{
    const uint64_t place[4] = {head->id[0], head->id[1], head->number, cell};
    uint64_t seed = XXH3_64bits(place, sizeof place);
    const uint8_t *from = (const uint8_t *)record + sizeof record->check;
    return XXH3_64bits_withSeed(from, sizeof *record - sizeof record->check, seed);
}

void spw_nvme_record_seal(struct spw_nvme_record *record, const struct spw_nvme_head *head,
                          uint32_t cell)
{
    record->check = record_check(record, head, cell);
}

bool spw_nvme_record_good(const struct spw_nvme_record *record, const struct spw_nvme_head *head,
                          uint32_t cell)
{
    return record->key_bytes >= 1 && record->key_bytes <= SPW_KEY_BYTES_MAX && record->bytes >= 1 &&
           record->bytes <= head->cell_bytes && record->group < SPW_GROUP_COUNT_MAX &&
           record->rank < SPW_RANKS_MAX && record->check == record_check(record, head, cell);
}

void spw_nvme_record_name(const struct spw_nvme_record *record, struct spw_cold_name *out)
{
    *out = (struct spw_cold_name){.space = {record->space[0], record->space[1]},
                                  .group = record->group,
                                  .rank = record->rank,
                                  .key_bytes = record->key_bytes};
    memcpy(out->key, record->key, record->key_bytes);
}

static uint64_t spaces_check(const struct spw_nvme_spaces *spaces)
{
    return XXH3_64bits(spaces, offsetof(struct spw_nvme_spaces, check));
}

void spw_nvme_spaces_seal(struct spw_nvme_spaces *spaces)
{
    spaces->magic = SPACES_MAGIC;
    spaces->version = SPW_NVME_FORMAT_VERSION;
    spaces->check = spaces_check(spaces);
}

static bool spaces_good(const struct spw_nvme_spaces *spaces)
{
    return spaces->magic == SPACES_MAGIC && spaces->version == SPW_NVME_FORMAT_VERSION &&
           spaces->count <= SPW_NVME_SPACES && spaces->check == spaces_check(spaces);
}

const struct spw_nvme_spaces *spw_nvme_spaces_choose(const struct spw_nvme_spaces copy[2])
{
    bool good[2] = {spaces_good(&copy[0]), spaces_good(&copy[1])};
    if (good[0] && good[1])
        return copy[1].sequence > copy[0].sequence ? &copy[1] : &copy[0];
    return good[0] ? &copy[0] : good[1] ? &copy[1] : NULL;
}
