/* See entry_check.h. */
#include "tier/entry_check.h"

static bool fill_possible(const struct spw_entry_copy *copy)
{
    switch (copy->state) {
    case SPW_FILLING:
    case SPW_COLD:
    case SPW_BACKED:
        return copy->fill == 0;
    case SPW_READY:
        return copy->fill != 0 && copy->fill == copy->version;
    default:
        return spw_pos_before(copy->fill, copy->version);
    }
}

/* Its part of @space's group: bytes as the space says, from a group and for a rank that it has. */
static enum spw_entry_fault check_part(const struct spw_entry_copy *copy,
                                       const struct spw_space_slot *space, uint32_t slot_bytes)
{
    /* [SP-1] acquire: ready before the record */
    if (spw_load_acquire(&space->ready) != 1)
        return SPW_ENTRY_SPACE;
    if (copy->group >= space->record.groups || copy->group >= SPW_GROUP_COUNT_MAX)
        return SPW_ENTRY_GROUP;
    if (copy->rank >= space->record.ranks || copy->rank >= SPW_RANKS_MAX)
        return SPW_ENTRY_RANK;
    if (copy->chunk_bytes != space->record.group[copy->group].chunk_bytes ||
        copy->chunk_bytes > slot_bytes)
        return SPW_ENTRY_CHUNK_BYTES;
    return SPW_ENTRY_SOUND;
}

enum spw_entry_fault spw_entry_check(const struct spw_entry_copy *copy,
                                     const struct spw_entry_rules *rules)
{
    uint64_t digest[2];
    /* 0 is that of a slot never used */
    if (copy->version != 0 && spw_pos_before(rules->version_max, copy->version))
        return SPW_ENTRY_VERSION;
    if (copy->state == SPW_FREE || (copy->state == SPW_RETIRED && copy->fill == 0))
        return SPW_ENTRY_SOUND;
    if (copy->state > SPW_BACKED)
        return SPW_ENTRY_STATE;
    if (!fill_possible(copy))
        return SPW_ENTRY_FILL;
    if (copy->key_bytes == 0 || copy->key_bytes > SPW_KEY_BYTES_MAX)
        return SPW_ENTRY_KEY_BYTES;
    if (copy->space >= SPW_SPACES_MAX)
        return SPW_ENTRY_SPACE;
    enum spw_entry_fault fault = check_part(copy, &rules->space[copy->space], rules->slot_bytes);
    if (fault)
        return fault;
    spw_chunk_digest(copy->space, copy->group, copy->key, copy->key_bytes, digest);
    return digest[0] == copy->digest[0] && digest[1] == copy->digest[1] ? SPW_ENTRY_SOUND
                                                                        : SPW_ENTRY_DIGEST;
}

const char *spw_entry_fault_text(enum spw_entry_fault fault)
{
    static const char *const texts[] = {
        [SPW_ENTRY_SOUND] = "sound",
        [SPW_ENTRY_STATE] = "its state is none",
        [SPW_ENTRY_VERSION] = "its version is beyond what was published",
        [SPW_ENTRY_FILL] = "its fill doesn't go with state and version",
        [SPW_ENTRY_KEY_BYTES] = "its key has no possible length",
        [SPW_ENTRY_SPACE] = "its space isn't in ctl",
        [SPW_ENTRY_GROUP] = "its space has no such group",
        [SPW_ENTRY_RANK] = "its space has no such rank",
        [SPW_ENTRY_CHUNK_BYTES] = "its bytes aren't those of its group",
        [SPW_ENTRY_DIGEST] = "its digest isn't that of its key",
    };
    return (uint32_t)fault < sizeof texts / sizeof texts[0] ? texts[fault] : "?";
}
