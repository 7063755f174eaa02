#ifndef SPW_SCHED_LIST_H
#define SPW_SCHED_LIST_H
/* Doubly linked lists through a link inside each element: private memory, nothing allocated. */
#include <stdbool.h>
#include <stddef.h>

/** A list's head, or an element's place in one. A link that is in no list points to itself. */
struct spw_link {
    struct spw_link *before, *after;
};

#define SPW_LINKED(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void spw_link_init(struct spw_link *link)
{
    link->before = link->after = link;
}

static inline bool spw_list_empty(const struct spw_link *list)
{
    return list->after == list;
}

static inline void spw_list_append(struct spw_link *list, struct spw_link *link)
{
    link->before = list->before;
    link->after = list;
    list->before->after = link;
    list->before = link;
}

/** Fine for a link that is in no list. */
static inline void spw_list_remove(struct spw_link *link)
{
    link->before->after = link->after;
    link->after->before = link->before;
    spw_link_init(link);
}

#endif
