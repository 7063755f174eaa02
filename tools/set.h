#ifndef SPW_TOOLS_SET_H
#define SPW_TOOLS_SET_H
/*
 * Sets of small numbers, CPUs or NUMA nodes, written like the kernel does: "0-3,8". Plain values; pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_SET_WORDS 16u
#define SPW_SET_MAX   (64u * SPW_SET_WORDS)

struct spw_set {
    uint64_t word[SPW_SET_WORDS]; /* bit n % 64 of word n / 64: n is in it */
};

/** Numbers from SPW_SET_MAX on are left out, and never found. */
void spw_set_add(struct spw_set *set, uint32_t number);
bool spw_set_has(const struct spw_set *set, uint32_t number);
bool spw_set_is_empty(const struct spw_set *set);
bool spw_set_equal(const struct spw_set *a, const struct spw_set *b);
uint32_t spw_set_count(const struct spw_set *set);
/** The lowest number of it from @from on; SPW_SET_MAX if there is none. */
uint32_t spw_set_next(const struct spw_set *set, uint32_t from);
struct spw_set spw_set_and(const struct spw_set *a, const struct spw_set *b);
struct spw_set spw_set_minus(const struct spw_set *a, const struct spw_set *b);

/** Read "0-3,8" of @bytes characters; "" is the empty set. False: it is something else, or has a
 * number of SPW_SET_MAX or more; then @out_set is untouched. */
bool spw_set_parse(const char *text, size_t bytes, struct spw_set *out_set);
/** Write "0-3,8", or "none"; cut short where it doesn't fit. Returns @out. */
const char *spw_set_print(const struct spw_set *set, char *out, size_t bytes);

#endif
