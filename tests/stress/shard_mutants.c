/*
 * The shard with a mistake.
 *
 *   published_late  news stay in the store buffer while clients' words are read, as they may where
 *                   the full fence between the two is left out
 */
#include "tests/stress/tier_mutants.h"

#include <string.h>

#include "tier/shard_impl.h"

static bool published_late;
static struct spw_record late[SPW_NEWS_MAX];
static uint32_t late_count;

void shard_mutant_set_up(const char *name)
{
    published_late = strcmp(name, "published_late") == 0;
}

static uint64_t let_out(struct spw_bcast_writer *writer)
{
    writer->tail -= late_count;
    uint64_t first = spw_bcast_publish(writer, late, late_count);
    late_count = 0;
    return first;
}

static uint64_t mutant_publish(struct spw_bcast_writer *writer, const struct spw_record *records,
                               uint32_t count)
{
    if (!published_late)
        return spw_bcast_publish(writer, records, count);
    if (late_count != 0)
        let_out(writer);
    memcpy(late, records, count * sizeof *records);
    late_count = count;
    writer->tail += count;
    return writer->tail - count + 1;
}

#define spw_bcast_publish(writer, records, count) mutant_publish(writer, records, count)

#include "tier/shard.c"
