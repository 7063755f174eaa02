/* See sightings.h. Private memory of the worker. */
#include "tier/sightings.h"

#include <errno.h>
#include <stdlib.h>

#define COLUMNS_MIN 1024u
#define COLUMNS_MAX (1u << 22)
#define LINE_BYTES  64u
#define SIGHTINGS_A_LINE                                                                           \
    (8u * LINE_BYTES / SPW_SIGHTINGS_ROWS) /* a round is eight sightings a column */

int spw_sightings_init(struct spw_sightings *sightings, uint32_t chunks)
{
    uint32_t columns = COLUMNS_MIN;
    while (columns < chunks && columns < COLUMNS_MAX)
        columns *= 2;
    *sightings = (struct spw_sightings){.columns = columns};
    sightings->count = calloc(SPW_SIGHTINGS_ROWS, columns);
    return sightings->count ? 0 : -ENOMEM;
}

void spw_sightings_fini(struct spw_sightings *sightings)
{
    free(sightings->count);
    sightings->count = NULL;
}

/* A digest is random all over: each row takes other bits of it. */
static uint32_t cell(const struct spw_sightings *sightings, uint32_t row, uint64_t tag)
{
    uint64_t mixed = (tag ^ tag >> 29) * (0x9e3779b97f4a7c15ull + 2 * row * 0x5851f42d4c957f2dull);
    return row * sightings->columns + (uint32_t)(mixed >> 40 & (sightings->columns - 1));
}

static void age_a_line(struct spw_sightings *sightings)
{
    uint8_t *line = sightings->count + (uint64_t)sightings->hand * LINE_BYTES;
    for (uint32_t i = 0; i < LINE_BYTES; i++)
        line[i] /= 2;
    sightings->hand =
        (sightings->hand + 1) % (SPW_SIGHTINGS_ROWS * sightings->columns / LINE_BYTES);
    sightings->since = 0;
}

uint32_t spw_sightings_of(const struct spw_sightings *sightings, uint64_t tag)
{
    uint32_t least = UINT8_MAX;
    for (uint32_t row = 0; row < SPW_SIGHTINGS_ROWS; row++) {
        uint32_t count = sightings->count[cell(sightings, row, tag)];
        least = count < least ? count : least;
    }
    return least;
}

void spw_sightings_add(struct spw_sightings *sightings, uint64_t tag)
{
    uint32_t least = spw_sightings_of(sightings, tag);
    for (uint32_t row = 0; row < SPW_SIGHTINGS_ROWS && least < UINT8_MAX; row++) {
        uint8_t *count = &sightings->count[cell(sightings, row, tag)];
        if (*count == least) /* more is others' */
            ++*count;
    }
    if (++sightings->since == SIGHTINGS_A_LINE)
        age_a_line(sightings);
}
