/* Doubly linked lists over slot numbers. Process-local. */
#include "tier/lru.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int spw_slot_links_init(struct spw_slot_links *links, uint32_t slots)
{
    *links = (struct spw_slot_links){.slots = slots};
    links->older = calloc(slots, sizeof *links->older);
    links->newer = calloc(slots, sizeof *links->newer);
    if (links->older && links->newer)
        return 0;
    spw_slot_links_fini(links);
    return -ENOMEM;
}

void spw_slot_links_fini(struct spw_slot_links *links)
{
    if (!links)
        return;
    free(links->older);
    free(links->newer);
    *links = (struct spw_slot_links){0};
}

void spw_slot_list_init(struct spw_slot_list *list, struct spw_slot_links *links)
{
    *list =
        (struct spw_slot_list){.links = links, .oldest = SPW_NO_SLOT_ID, .newest = SPW_NO_SLOT_ID};
}

/* Join @slot between two neighbours, either of which may be the end of the list. */
static void join(struct spw_slot_list *list, uint32_t older, uint32_t slot, uint32_t newer)
{
    struct spw_slot_links *links = list->links;
    assert(slot < links->slots);
    links->older[slot] = older;
    links->newer[slot] = newer;
    if (older == SPW_NO_SLOT_ID)
        list->oldest = slot;
    else
        links->newer[older] = slot;
    if (newer == SPW_NO_SLOT_ID)
        list->newest = slot;
    else
        links->older[newer] = slot;
    list->count++;
}

void spw_slot_list_add(struct spw_slot_list *list, uint32_t slot)
{
    join(list, list->newest, slot, SPW_NO_SLOT_ID);
}

void spw_slot_list_add_behind(struct spw_slot_list *list, uint32_t slot, uint32_t newer)
{
    assert(newer < list->links->slots && newer != slot);
    join(list, list->links->older[newer], slot, newer);
}

void spw_slot_list_add_oldest(struct spw_slot_list *list, uint32_t slot)
{
    join(list, SPW_NO_SLOT_ID, slot, list->oldest);
}

void spw_slot_list_remove(struct spw_slot_list *list, uint32_t slot)
{
    struct spw_slot_links *links = list->links;
    assert(slot < links->slots && list->count > 0);
    uint32_t older = links->older[slot], newer = links->newer[slot];
    if (older == SPW_NO_SLOT_ID)
        list->oldest = newer;
    else
        links->newer[older] = newer;
    if (newer == SPW_NO_SLOT_ID)
        list->newest = older;
    else
        links->older[newer] = older;
    list->count--;
}
