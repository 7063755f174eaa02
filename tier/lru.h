#ifndef SPW_TIER_LRU_H
#define SPW_TIER_LRU_H
/*
 * Slots in order of age. A slot is in at most one list of a set, so all lists of a set (recency,
 * retired, free) share one pair of links a slot. Process-local, one thread; every operation O(1).
 */
#include <stdbool.h>
#include <stdint.h>

#define SPW_NO_SLOT_ID UINT32_MAX

/** Links of all slots; caller's memory. */
struct spw_slot_links {
    uint32_t *older;
    uint32_t *newer;
    uint32_t slots;
};

struct spw_slot_list {
    struct spw_slot_links *links;
    uint32_t oldest; /* SPW_NO_SLOT_ID when empty */
    uint32_t newest;
    uint32_t count;
};

/** 0 or -ENOMEM. */
int spw_slot_links_init(struct spw_slot_links *links, uint32_t slots);
void spw_slot_links_fini(struct spw_slot_links *links);

void spw_slot_list_init(struct spw_slot_list *list, struct spw_slot_links *links);
/** Put @slot, which is in no list, at the newest end. */
void spw_slot_list_add(struct spw_slot_list *list, uint32_t slot);
/** Put @slot, which is in no list, right behind @newer: older than it, newer than all else. */
void spw_slot_list_add_behind(struct spw_slot_list *list, uint32_t slot, uint32_t newer);
/** Put @slot, which is in no list, at the oldest end. */
void spw_slot_list_add_oldest(struct spw_slot_list *list, uint32_t slot);
/** Take @slot out of the list it is in. */
void spw_slot_list_remove(struct spw_slot_list *list, uint32_t slot);

/** The next older slot, or SPW_NO_SLOT_ID; walks from .newest on. */
static inline uint32_t spw_slot_list_older(const struct spw_slot_list *list, uint32_t slot)
{
    return list->links->older[slot];
}

/** The next newer slot, or SPW_NO_SLOT_ID; walks from .oldest on. */
static inline uint32_t spw_slot_list_newer(const struct spw_slot_list *list, uint32_t slot)
{
    return list->links->newer[slot];
}

#endif
