#ifndef SPW_TIER_ENTRY_CHECK_H
#define SPW_TIER_ENTRY_CHECK_H
/*
 * Could this entry of a state table be one that a worker has left there? Asked of bytes whose
 * author may have died, or may not have been a worker at all: by an adopter before an entry
 * counts, and by `spillway fsck`. Pure: reads its arguments, changes nothing.
 */
#include "tier/table.h"

/** What an entry has to agree with. */
struct spw_entry_rules {
    const struct spw_space_slot *space; /* SPW_SPACES_MAX, as in ctl; read by value            */
    uint32_t slot_bytes;
    uint64_t version_max; /* highest that a worker can have given: tail and what it had gathered */
};

enum spw_entry_fault {
    SPW_ENTRY_SOUND,
    SPW_ENTRY_STATE,
    SPW_ENTRY_VERSION,
    SPW_ENTRY_FILL,
    SPW_ENTRY_KEY_BYTES,
    SPW_ENTRY_SPACE,
    SPW_ENTRY_GROUP,
    SPW_ENTRY_RANK,
    SPW_ENTRY_CHUNK_BYTES,
    SPW_ENTRY_DIGEST,
};

/**
 * Entries of slots and of the tier below alike: that a state goes with the entry's place is
 * spw_table_read()'s business. The first thing that is wrong with @copy, which spw_table_read() made with its key. An entry that
 * nobody can load (FREE, or RETIRED with fill 0) has only to have a possible version; the others
 * need key, digest, fill, and the sizes of a group of a space that is in ctl.
 */
enum spw_entry_fault spw_entry_check(const struct spw_entry_copy *copy,
                                     const struct spw_entry_rules *rules);

/** In words; static strings. */
const char *spw_entry_fault_text(enum spw_entry_fault fault);

#endif
