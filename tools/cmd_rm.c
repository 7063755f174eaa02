/*
 * spillway rm: remove the objects of a pool that nobody holds; see shm/pool_remove.h. There is no
 * force: what is held is in use, and a daemon or worker that hangs is ended, not robbed.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "shm/pool_remove.h"
#include "tools/command.h"

static const struct spw_command_form form = {
    .about = "remove what a pool left that nobody holds any more", .word = "NAME"};

static void print(const struct spw_pool_removed *removed, const char *name, bool json)
{
    if (!json) {
        printf("pool %s: %" PRIu32 " objects removed, %" PRIu64 " bytes\n", name, removed->objects,
               removed->bytes);
        return;
    }
    json_t *root = json_pack("{s:i, s:s, s:i, s:I, s:i}", "schema", 1, "pool", name, "objects",
                             (int)removed->objects, "bytes", (json_int_t)removed->bytes, "strange",
                             (int)removed->strange);
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

int spw_cmd_rm(int argc, char *const *argv)
{
    struct spw_pool_args args;
    struct spw_pool_removed removed = {0};
    struct spw_error err = {0};
    struct spw_pool_path path;
    const char *name = NULL;
    int status = spw_command_args_read(argc, argv, &form, &args, &name);
    if (status >= 0)
        return status;
    if (strcmp(args.pool, name) != 0 && strcmp(args.pool, "spillway") != 0) {
        fprintf(stderr, "spillway rm: both --pool %s and %s; give the name once\n", args.pool,
                name);
        return SPW_EXIT_USAGE;
    }
    int rc = spw_pool_path_init(&path, args.shm_dir, name, (uint32_t)args.uid, &err);
    if (!rc)
        rc = spw_pool_remove(&path, &removed, &err);
    if (!rc || removed.objects)
        print(&removed, name, args.json);
    if (rc)
        fprintf(stderr, "spillway rm: %s\n", err.text);
    return rc ? spw_exit_of(rc) : SPW_EXIT_OK;
}
