/*
 * All objects of a pool whose processes were killed, with damage anywhere in them, as the next start
 * finds them [SM-8]. fsck and whoever only looks come back; the start goes on with the shards or
 * makes the pool anew; a client attaches, and every chunk that reads HIT loads, with its own bytes
 * unless just those were damaged; stores work. With few places damaged most chunks are still there.
 *
 * An input says what is written where. One that begins with 0xff is a number, of which one to four
 * random overwrites of 64 bytes each are made.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "sched/explain.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/api_rig.h"
#include "tools/fsck.h"
#include "tools/log.h"
#include "tools/spaces.h"
#include "tools/warm.h"

#define CHUNKS      6u
#define BELOW       4u
#define RANKS       2u
#define OBJECTS_MAX 16u
#define NEW_KEY     100u /* of what is stored afterwards */

struct object {
    char name[128];
    uint8_t *saved;
    uint8_t *damaged;
    size_t bytes;
};

static struct api api;
static struct object object[OBJECTS_MAX];
static uint32_t objects;
static char dir[SUPPORT_PATH_BYTES];
static int dir_fd;
static uint32_t slot_of[RANKS][CHUNKS]; /* where each part lay */
static uint64_t variants, warm, asked, hits;

/* ---- the pool -------------------------------------------------------------------------------- */

static void start(void)
{
    static struct spw_warm_count before;
    struct spw_pool_config config = {
        .mode = 0600, .gid = -1, .keep_spaces = spw_warm_keep_spaces, .ctx = &before};
    struct spw_error err = {0};
    config.geometry = (struct spw_geometry){.workers = RANKS,
                                            .clients = 3,
                                            .capacity_chunks = 8,
                                            .slots = 9,
                                            .slot_bytes = 2 * RIG_BLOCK_BYTES,
                                            .update_records = 64,
                                            .gate_records = 8,
                                            .command_slots = 32,
                                            .completion_slots = 16,
                                            .index_buckets = spw_table_buckets(9 + BELOW),
                                            .cold_chunks = BELOW,
                                            .kv_blocks = 2 * CHUNKS,
                                            .kv_block_bytes = RIG_BLOCK_BYTES};
    memset(&api, 0, sizeof api);
    struct rig *rig = &api.rig;
    rig->config = (struct rig_config){.workers = RANKS, .copier.in_flight = {2, 2}};
    rig->now_ns = 1000 * RIG_SECOND;
    memcpy(rig->dir, dir, sizeof dir);
    fuzz_expect(spw_pool_path_init(&config.path, dir, "rig", geteuid(), NULL) == 0, "a name");
    int rc = spw_pool_create(&config, &rig->daemon, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    fuzz_expect(rc == 0, "whatever is there, the pool starts");
    warm += rig->daemon.warm;
    spw_store_relaxed(&rig->daemon.ctl->phase, SPW_POOL_SERVING);
    for (uint32_t k = 0; k < RANKS; k++) {
        rig_start_worker(rig, k);
        rig_settle(rig);
        api_say(&api, k, SPW_WORKER_UP);
    }
}

/* As if all were killed at once. */
static void end(void)
{
    for (uint32_t k = 0; k < RANKS; k++)
        rig_end_worker(&api.rig, k);
    spw_pool_detach(&api.rig.daemon);
}

static struct spw_space *open_space(struct spw_client *client)
{
    const struct spw_space_config config = api_space_config(RANKS);
    return api_space(&api, client, &config);
}

/* The rig's daemon enters a space by hand; what is kept over a start was entered by a real one. */
static void enter_again(uint32_t number)
{
    struct spw_pool *pool = &api.rig.daemon;
    struct spw_space_slot *space = &pool->ctl->space[number];
    const struct spw_open_space_mail mail = {.record = space->record, .rank_worker = {0, 1}};
    char text[128] = "";
    memset(space, 0, sizeof *space);
    fuzz_expect(spw_spaces_open(pool->ctl, &pool->geometry, &mail, text, sizeof text) ==
                    (int)number,
                "a space is entered");
}

/* ---- what is damaged ------------------------------------------------------------------------- */

static void each_name(void (*act)(const char *name))
{
    struct dirent **entry;
    int count = scandir(dir, &entry, NULL, alphasort);
    fuzz_expect(count >= 0, "the folder is read");
    for (int i = 0; i < count; i++) {
        if (entry[i]->d_name[0] != '.')
            act(entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
}

static void save_object(const char *name)
{
    struct object *o = &object[objects];
    FILE *file = fdopen(openat(dir_fd, name, O_RDONLY | O_CLOEXEC), "rb");
    fuzz_expect(file && objects < OBJECTS_MAX && strlen(name) < sizeof o->name, "an object");
    fseek(file, 0, SEEK_END);
    o->bytes = (size_t)ftell(file);
    rewind(file);
    if (o->bytes != 0) { /* else the lock object */
        snprintf(o->name, sizeof o->name, "%s", name);
        o->saved = malloc(o->bytes);
        o->damaged = malloc(o->bytes);
        fuzz_expect(o->saved && o->damaged && fread(o->saved, 1, o->bytes, file) == o->bytes,
                    "an object is read");
        objects++;
    }
    fclose(file);
}

static void remove_object(const char *name)
{
    fuzz_expect(unlinkat(dir_fd, name, 0) == 0, "an object is removed");
}

static void write_objects(void)
{
    each_name(remove_object);
    for (uint32_t i = 0; i < objects; i++) {
        int fd = openat(dir_fd, object[i].name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        fuzz_expect(fd >= 0 &&
                        write(fd, object[i].damaged, object[i].bytes) == (ssize_t)object[i].bytes,
                    "an object is written");
        close(fd);
    }
}

static uint64_t random_below(uint64_t *state, uint64_t limit)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % limit;
}

static void damage_at_random(uint64_t number)
{
    uint64_t state = number;
    for (uint64_t n = 1 + random_below(&state, 4); n != 0; n--) {
        struct object *o = &object[random_below(&state, objects)];
        uint8_t *at = o->damaged + random_below(&state, o->bytes - 64 + 1);
        for (uint32_t i = 0; i < 64; i++)
            at[i] = (uint8_t)random_below(&state, 256);
    }
}

static void damage(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    for (uint32_t i = 0; i < objects; i++)
        memcpy(object[i].damaged, object[i].saved, object[i].bytes);
    if (size && data[0] == 0xff) {
        fuzz_u8(&in);
        damage_at_random(fuzz_u64(&in));
        return;
    }
    while (in.left) {
        struct object *o = &object[fuzz_u8(&in) % objects];
        const struct fuzz_window window[] = {{o->damaged, (uint32_t)o->bytes}};
        fuzz_damage(&in, window, 1);
    }
}

/* Were the bytes of a part themselves damaged? */
static bool payload_damaged(uint32_t rank, uint32_t n)
{
    char name[64];
    snprintf(name, sizeof name, ".data.%u", rank);
    for (uint32_t i = 0; i < objects; i++) {
        const char *found = strstr(object[i].name, name);
        size_t at = SPW_PAYLOAD_OFF + slot_of[rank][n] * (2 * RIG_BLOCK_BYTES);
        if (found)
            return memcmp(object[i].damaged + at, object[i].saved + at, 2 * RIG_BLOCK_BYTES) != 0;
    }
    fuzz_expect(false, "each shard has payload");
    return false;
}

/* ---- what comes of it ------------------------------------------------------------------------ */

/* Whoever only looks, while all are dead. */
static void look(void)
{
    static struct spw_fsck_report report;
    static struct spw_pool pool;
    struct spw_pool_path path;
    struct spw_error err = {0};
    fuzz_expect(spw_pool_path_init(&path, dir, "rig", geteuid(), NULL) == 0, "a name");
    int rc = spw_fsck_run(&path, &report, &err);
    fuzz_expect(rc == 0 || err.text[0], "fsck tells why it can't");
    if (spw_pool_attach(&path, SPW_ROLE_TOOL, 0, &pool, &err) < 0)
        return;
    for (uint32_t c = 0; c < pool.geometry.clients; c++) {
        struct spw_explained explained;
        uint64_t first, last;
        spw_explain_range(pool.client[c].head, &first, &last);
        for (uint64_t n = first; n != last; n++)
            spw_explain_read(pool.client[c].head, n, &explained);
    }
    spw_pool_detach(&pool);
}

static struct spw_completion complete(struct spw_client *client)
{
    struct spw_completion done = {0};
    for (int i = 0; i < 100 && spw_completions(client, &done, 1) == 0; i++) {
        rig_advance(&api.rig, RIG_SECOND / 100);
        rig_settle(&api.rig);
    }
    fuzz_expect(done.kind != 0, "a command is answered");
    return done;
}

/* Load one part of a chunk that was a HIT in this step. */
static void load(struct spw_client *client, struct spw_request *request,
                 const struct spw_decision *decision, uint32_t rank, uint32_t n)
{
    const struct spw_chunk_ref ref = {0};
    fuzz_expect(spw_load_begin(request, decision, rank, &ref, 1, n) == 1, "a HIT can be loaded");
    struct spw_completion done = complete(client);
    fuzz_expect(done.kind == SPW_COMPLETION_BEGUN && done.status == 0 && done.ticket.chunks == 1,
                "a load of a HIT begins");
    fuzz_expect(api_run(client, &done.ticket, 0, n) == 0, "a load runs");
    done = complete(client);
    fuzz_expect(done.kind == SPW_COMPLETION_LOADED && done.status == 0 && done.mask == 0,
                "a load of a HIT ends well");
    bool right = api_filled(client, 0, n, rank) && api_filled(client, 1, n, rank);
    fuzz_expect(right || payload_damaged(rank, n), "a HIT has its own bytes");
}

static void ask(struct spw_client *client, struct spw_space *space, uint32_t n)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_request *request = api_request(space, n, 1);
    fuzz_expect(spw_step_begin(client) >= 0 && spw_lookup(request, 0, 0, &decision) == 0,
                "a request is looked up");
    fuzz_expect(decision.action != SPW_ACTION_DEFER, "nothing is pending after a start");
    bool hit = decision.hit_tokens != 0;
    for (uint32_t rank = 0; rank < RANKS && hit; rank++)
        load(client, request, &decision, rank, n);
    fuzz_expect(spw_step_end(client) == 0, "a step ends");
    spw_request_finish(request);
    hits += hit;
    asked++;
}

static void report(void)
{
    fprintf(stderr, "%" PRIu64 " starts, %" PRIu64 " warm; of %" PRIu64 " chunks %" PRIu64 " hit\n",
            variants, warm, asked, hits);
    if (variants > 100 && (warm < variants / 2 || hits < asked / 2))
        _exit(1); /* what is tried isn't what it is meant to be */
}

static void quiet(void)
{
    static struct spw_log_config config = {.program = "fuzz", .quiet = true};
    config.out = stderr;
    spw_log_open(&config);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    quiet();
    fuzz_expect(support_shm_dir(dir) == 0, "a folder");
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    start();
    struct spw_client *client = api_attach(&api, 0);
    struct spw_space *space = open_space(client);
    enter_again(spw_space_number(space));
    api_store(&api, client, space, RANKS, 0, CHUNKS);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t n = 0; n < CHUNKS; n++) {
            struct spw_entry_copy entry;
            struct spw_table_view table;
            uint8_t key[RIG_KEY_BYTES];
            struct spw_chunk_key chunk = {
                .space = spw_space_number(space), .key_bytes = sizeof key, .key = key};
            rig_key(0, n, key);
            spw_chunk_digest(chunk.space, 0, key, sizeof key, chunk.digest);
            spw_table_view_init(&table, api.rig.daemon.feed[rank], &api.rig.daemon.feed_map,
                                &api.rig.daemon.geometry);
            fuzz_expect(spw_table_find(&table, &chunk, &entry) == 0, "a chunk is stored");
            slot_of[rank][n] = entry.slot;
        }
    each_name(save_object);
    spw_detach(client);
    end();
    atexit(report);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    damage(data, size);
    write_objects();
    look();
    start();
    variants++;
    struct spw_client *client = api_attach(&api, 0);
    struct spw_space *space = open_space(client);
    for (uint32_t n = 0; n < CHUNKS; n++)
        ask(client, space, n);
    api_store(&api, client, space, RANKS, NEW_KEY, 2);
    spw_detach(client);
    end();
    return 0;
}
