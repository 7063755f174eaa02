/*
 * spillway ls: the tiers of a pool, what they hold, and whose it is. Reads a few lines of each feed,
 * whatever the pool's size, and works when everybody is dead.
 */
#include <stdio.h>
#include <stdlib.h>

#include "shm/alive.h"
#include "tools/command.h"
#include "tools/look.h"
#include "tools/show_place.h"
#include "tools/space_list.h"
#include "tools/tiers.h"

static void print_json(const struct spw_pool *pool, const struct spw_tiers_view *view)
{
    json_t *root = json_pack("{s:i, s:s, s:o, s:o, s:o}", "schema", 1, "pool", pool->path.name,
                             "tiers", spw_tiers_json(view), "spaces", spw_space_list_json(pool),
                             "places", spw_show_place_list_json(pool));
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

int spw_cmd_ls(int argc, char *const *argv)
{
    struct spw_pool_args args;
    struct spw_pool *pool;
    int status = spw_pool_args_read(argc, argv,
                                    "the tiers of a pool, what they hold, and whose it is", &args);
    if (status >= 0)
        return status;
    status = spw_look_open("ls", &args, &pool);
    if (status)
        return status;
    struct spw_tiers_view *view = malloc(sizeof *view);
    if (!view) {
        fprintf(stderr, "spillway ls: out of memory\n");
        spw_look_close(pool);
        return SPW_EXIT_FAILED;
    }
    spw_tiers_read(pool, view);
    if (args.json) {
        print_json(pool, view);
    } else {
        spw_tiers_print(view);
        spw_space_list_print(pool);
        spw_show_place_print(pool);
    }
    fflush(stdout); /* whole, before words that go elsewhere */
    if (spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) != 1) {
        fprintf(stderr,
                "spillway ls: the daemon of pool %s is gone, what is shown is what it left\n",
                pool->path.name);
        status = SPW_EXIT_STALE;
    }
    free(view);
    spw_look_close(pool);
    return status;
}
