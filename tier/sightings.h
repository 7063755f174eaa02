#ifndef SPW_TIER_SIGHTINGS_H
#define SPW_TIER_SIGHTINGS_H
/*
 * How often chunks were asked for of late, for admission below: a sketch of small counters, four a
 * chunk, of which the least counts. Never too few while nothing has aged; now and then too many, when
 * all four are others' too. Old sightings fade: each counter is halved once in eight sightings a
 * column. Pure, one thread.
 */
#include <stdint.h>

#define SPW_SIGHTINGS_ROWS 4u

struct spw_sightings {
    uint8_t *count; /* SPW_SIGHTINGS_ROWS rows of @columns */
    uint32_t columns;
    uint32_t hand;  /* the line that ages next             */
    uint32_t since; /* sightings since one aged            */
};

/** Good for about @chunks chunks of interest. 0 or -ENOMEM. */
int spw_sightings_init(struct spw_sightings *sightings, uint32_t chunks);
void spw_sightings_fini(struct spw_sightings *sightings);
/** The chunk of this digest[0] was seen. O(1). */
void spw_sightings_add(struct spw_sightings *sightings, uint64_t tag);
/** How often it was, 255 at most. */
uint32_t spw_sightings_of(const struct spw_sightings *sightings, uint64_t tag);

#endif
