/*
 * Headers and geometry with any bytes in them, objects of any size, as each role attaches. It is
 * refused with words, or every byte that the geometry speaks of is there; and a daemon that mends its
 * clients' headers leaves them as it made them.
 */
#include "tests/fuzz/fuzz.h"

#include <sys/stat.h>
#include <unistd.h>

#include "shm/pool.h"
#include "tests/support/env.h"
#include "tier/table.h"

#define OBJECTS     5u
#define ATTACHS_MAX 8u

/* An object of the pool, through the daemon's mapping. */
struct object {
    struct spw_region *region;
    uint8_t *saved;
    char path[SPW_PATH_BYTES];
    bool resized;
};

static struct spw_pool daemon_pool;
static struct object object[OBJECTS]; /* ctl, feed 0, data 0, client 0, kv 0 */

static void save(struct object *o, struct spw_region *region, enum spw_region_kind kind)
{
    o->region = region;
    o->saved = malloc(region->size_bytes);
    fuzz_expect(o->saved != NULL, "memory for a copy");
    memcpy(o->saved, region->header, region->size_bytes);
    spw_region_name(&daemon_pool.path, kind, 0, o->path);
}

static void restore(struct object *o)
{
    if (o->resized)
        fuzz_expect(truncate(o->path, (off_t)o->region->size_bytes) == 0, "the old size");
    /* an object that keeps its size is damaged in its first bytes alone */
    memcpy(o->region->header, o->saved, o->resized ? o->region->size_bytes : 256);
    o->resized = false;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char dir[SUPPORT_PATH_BYTES];
    struct spw_pool_config config = {.mode = 0600, .gid = -1};
    config.geometry = (struct spw_geometry){.workers = 1,
                                            .clients = 2,
                                            .capacity_chunks = 2,
                                            .slots = 3,
                                            .slot_bytes = 64,
                                            .update_records = 8,
                                            .gate_records = 2,
                                            .command_slots = 8,
                                            .completion_slots = 8,
                                            .index_buckets = spw_table_buckets(3),
                                            .kv_blocks = 2,
                                            .kv_block_bytes = 64};
    fuzz_expect(support_shm_dir(dir) == 0 &&
                    spw_pool_path_init(&config.path, dir, "fuzz", (uint32_t)geteuid(), NULL) == 0 &&
                    spw_pool_create(&config, &daemon_pool, NULL) == 0,
                "a pool is made");
    spw_store_relaxed(&daemon_pool.ctl->phase, SPW_POOL_SERVING);
    save(&object[0], &daemon_pool.region_ctl, SPW_REGION_CTL);
    save(&object[1], &daemon_pool.region_feed[0], SPW_REGION_FEED);
    save(&object[2], &daemon_pool.region_data[0], SPW_REGION_DATA);
    save(&object[3], &daemon_pool.region_client[0], SPW_REGION_CLIENT);
    save(&object[4], &daemon_pool.region_kv[0], SPW_REGION_KV);
    return 0;
}

/* Read the first and the last byte of what is said to be there. */
static void touch(const void *start, uint64_t bytes)
{
    const volatile uint8_t *at = start;
    if (start && bytes) {
        (void)at[0];
        (void)at[bytes - 1];
    }
}

static void touch_all(const struct spw_pool *pool)
{
    const struct spw_geometry *geometry = &pool->geometry;
    fuzz_expect(spw_geometry_check(geometry, NULL) == 0, "an attached geometry is right");
    touch(pool->ctl, sizeof *pool->ctl);
    for (uint32_t k = 0; k < geometry->workers; k++) {
        touch(pool->feed[k], pool->feed_map.size_bytes);
        touch(pool->data[k], (uint64_t)geometry->slots * geometry->slot_bytes);
    }
    for (uint32_t c = 0; c < geometry->clients; c++) {
        touch(pool->client[c].head, pool->client_map.size_bytes);
        touch(pool->kv[c], (uint64_t)geometry->kv_blocks * geometry->kv_block_bytes);
    }
}

static void attach(enum spw_pool_role role)
{
    struct spw_error err = {0};
    struct spw_pool *pool = calloc(1, sizeof *pool);
    fuzz_expect(pool != NULL, "memory for a pool");
    uint32_t index = role == SPW_ROLE_CLIENT ? SPW_CLIENTS_MAX : 0;
    int rc = spw_pool_attach(&daemon_pool.path, role, index, pool, &err);
    fuzz_expect(rc == 0 || (rc < 0 && err.text[0]), "a refusal has words");
    if (rc == 0 && role == SPW_ROLE_CLIENT) {
        rc = spw_pool_take_client(pool, false, &err);
        fuzz_expect(rc >= 0 || err.text[0], "a refusal has words");
    }
    if (pool->ctl)
        touch_all(pool);
    spw_pool_detach(pool);
    free(pool);
}

static void resize(struct object *o, uint8_t pages, bool agreed)
{
    uint64_t bytes = pages * 1024ull;
    fuzz_expect(truncate(o->path, (off_t)bytes) == 0, "another size");
    o->resized = true;
    if (agreed && bytes)
        o->region->header->size_bytes = bytes;
}

/* As a daemon does between two looks at its mailboxes; nobody has resized its clients' objects. */
static void mend(void)
{
    if (object[3].resized || object[4].resized || object[0].resized ||
        memcmp(object[0].region->header, object[0].saved, sizeof(struct spw_region_header)))
        return;
    spw_pool_mend(&daemon_pool);
    for (uint32_t i = 3; i < OBJECTS; i++)
        fuzz_expect(
            !memcmp(object[i].region->header, object[i].saved, sizeof(struct spw_region_header)),
            "a mended header");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint32_t attachs = 0;
    while (in.left && attachs < ATTACHS_MAX) {
        uint8_t what = fuzz_u8(&in);
        struct object *o = &object[what / 8 % OBJECTS];
        /* ctl: header, geometry and phase; others: their headers */
        const struct fuzz_window window[] = {{o->region->header, o == object ? 256u : 128u}};
        if (what % 8 == 0) {
            attach((enum spw_pool_role)(SPW_ROLE_WORKER + what / 8 % 3));
            attachs++;
        } else if (what % 8 == 1) {
            resize(o, fuzz_u8(&in), what & 128);
        } else if (what % 8 == 2) {
            mend();
        } else if (!o->resized) {
            fuzz_damage(&in, window, 1);
        }
    }
    for (int role = SPW_ROLE_WORKER; role <= SPW_ROLE_TOOL; role++)
        attach((enum spw_pool_role)role);
    for (uint32_t i = 0; i < OBJECTS; i++)
        restore(&object[i]);
    return 0;
}
