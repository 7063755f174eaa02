/* See space_list.h. Relaxed reads: a picture of moving things, each word whole. */
#include "tools/space_list.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/look.h"

struct line {
    uint64_t host_bytes;
    uint32_t guaranteed, largest;
    char name[SPW_LOOK_FINGERPRINT_BYTES];
};

/* False: there is no space @s. */
static bool read_line(const struct spw_pool *pool, uint32_t s, struct line *out)
{
    const struct spw_space_slot *space = &pool->ctl->space[s];
    if (spw_load_acquire(&space->ready) != 1) /* [SP-1] acquire: ready before the record */
        return false;
    uint64_t shares = spw_load_relaxed(&space->shares);
    *out = (struct line){.guaranteed = SPW_SHARES_GUARANTEED(shares),
                         .largest = SPW_SHARES_LARGEST(shares)};
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        out->host_bytes += spw_load_relaxed(&pool->feed[k]->space_bytes[s]);
    spw_look_fingerprint(pool, s, out->name);
    return true;
}

static void print_share(uint32_t permille, const char *unset)
{
    if (permille == 0)
        printf(" %10s", unset);
    else
        printf(" %8.1f %%", permille / 10.0);
}

void spw_space_list_print(const struct spw_pool *pool)
{
    struct line line;
    bool any = false;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        if (!read_line(pool, s, &line))
            continue;
        if (!any)
            printf("\n%6s %10s %10s %10s  %s\n", "space", "host MB", "guaranteed", "largest",
                   "fingerprint");
        any = true;
        printf("%6u %10.1f", s, (double)line.host_bytes / 1e6);
        print_share(line.guaranteed, "-");
        print_share(line.largest, "all");
        printf("  %s\n", line.name);
    }
}

json_t *spw_space_list_json(const struct spw_pool *pool)
{
    json_t *spaces = json_array();
    struct line line;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        if (read_line(pool, s, &line))
            json_array_append_new(
                spaces, json_pack("{s:i, s:s, s:I, s:i, s:i}", "space", (int)s, "fingerprint",
                                  line.name, "host_bytes", (json_int_t)line.host_bytes,
                                  "guaranteed_permille", (int)line.guaranteed, "largest_permille",
                                  (int)line.largest));
    return spaces;
}
