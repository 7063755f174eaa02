/* Objects of a killed pool, damaged at random, under real daemons, workers, clients and tools. What
 * fuzz/fuzz_pool does ten thousand times in one process is done here a few dozen times for real. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"

TestSuite(process_damage, .timeout = 100);

#define CHUNKS      8u
#define ROUNDS      6u
#define OBJECTS_MAX 24u
#define OUT_BYTES   65536u

struct object {
    char name[80];
    uint8_t *bytes;
    uint8_t *damaged;
    size_t size;
};

static struct proc_pool pool;
static struct actor actor;
static struct object object[OBJECTS_MAX];
static uint32_t objects;
static int dir_fd;
static char out[OUT_BYTES];

static uint64_t draw(uint64_t *state, uint64_t limit)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % limit;
}

/* ---- the objects ----------------------------------------------------------------------------- */

static void save(const char *name)
{
    struct object *o = &object[objects];
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && strlen(name) < sizeof o->name && objects < OBJECTS_MAX);
    o->size = (size_t)lseek(fd, 0, SEEK_END);
    if (o->size > 0) { /* else the lock object, which stays */
        strcpy(o->name, name);
        o->bytes = malloc(o->size);
        o->damaged = malloc(o->size);
        cr_assert_eq(pread(fd, o->bytes, o->size, 0), (ssize_t)o->size);
        objects++;
    }
    close(fd);
}

static void save_all(void)
{
    dir_fd = open(pool.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = opendir(pool.dir);
    cr_assert(dir_fd >= 0 && dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            save(entry->d_name);
    closedir(dir);
}

/* Write every object anew, with one to four places of 64 bytes damaged. */
static void write_damaged(uint64_t seed)
{
    for (uint32_t i = 0; i < objects; i++)
        memcpy(object[i].damaged, object[i].bytes, object[i].size);
    for (uint64_t n = 1 + draw(&seed, 4); n > 0; n--) {
        struct object *o = &object[draw(&seed, objects)];
        uint8_t *at = o->damaged + draw(&seed, o->size - 63);
        for (uint32_t i = 0; i < 64; i++)
            at[i] = (uint8_t)draw(&seed, 256);
    }
    for (uint32_t i = 0; i < objects; i++) {
        unlinkat(dir_fd, object[i].name, 0);
        int fd = openat(dir_fd, object[i].name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        cr_assert_eq(write(fd, object[i].damaged, object[i].size), (ssize_t)object[i].size);
        close(fd);
    }
}

static bool payload_damaged(void)
{
    bool damaged = false;
    for (uint32_t i = 0; i < objects; i++)
        if (strstr(object[i].name, ".data."))
            damaged |=
                memcmp(object[i].damaged + SPW_PAYLOAD_OFF, object[i].bytes + SPW_PAYLOAD_OFF,
                       object[i].size - SPW_PAYLOAD_OFF) != 0;
    return damaged;
}

/* ---- the processes --------------------------------------------------------------------------- */

static bool workers_gone(void *ctx)
{
    (void)ctx;
    return spw_lock_held(pool.seen->lock_fd, SPW_LOCK_WORKER(0)) == 0;
}

static void kill_all(void)
{
    proc_kill_daemon(&pool);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_eventually(workers_gone, NULL, 5000));
    spw_pool_detach(pool.seen);
    free(pool.seen);
    pool.seen = NULL;
}

static void attach(void)
{
    const struct actor_config who = {.dir = pool.dir, .name = "pool"};
    int rc = actor_open(&actor, &who);
    cr_assert_eq(rc, 0, "%s", actor.text);
}

/* It comes back, with words of what it found. */
static void look(const char *command, uint64_t round)
{
    int status = proc_spillway(&pool, command, false, out, sizeof out);
    cr_expect(status >= 0 && status <= 6, "round %lu: spillway %s: %d\n%s", round, command, status,
              out);
}

/* Returns how many chunks are still there. */
static int use(uint64_t round)
{
    int found = 0;
    for (uint64_t key = 1; key <= CHUNKS; key++) {
        int rc = actor_load(&actor, key, 1);
        found += rc == 1;
        cr_expect(rc == 0 || rc == 1 || (rc == -EBADMSG && payload_damaged()),
                  "round %lu: key %lu: %d", round, key, rc);
    }
    cr_expect_eq(actor_store(&actor, 100, 2), 2, "round %lu", round);
    cr_expect_eq(actor_load(&actor, 100, 2), 2, "round %lu", round);
    return found;
}

static void rounds(uint64_t first)
{
    cr_assert(proc_start(
        &pool,
        &(struct proc_config){.capacity = 16, .clients = 3, .kv_blocks = 32, .lane_slots = 64}));
    attach();
    cr_assert_eq(actor_store(&actor, 1, CHUNKS), (int)CHUNKS);
    kill_all();
    actor_close(&actor);
    save_all();
    int found = 0;
    for (uint64_t round = first; round < first + ROUNDS; round++) {
        write_damaged(round);
        look("fsck", round);
        look("stat", round);
        proc_spawn(&pool);
        cr_assert_eq(proc_await(&pool), 0, "round %lu: no start", round);
        attach();
        found += use(round);
        int status = proc_spillway(&pool, "fsck", false, out, sizeof out);
        cr_expect_eq(status, 0, "round %lu: %d\n%s", round, status, out);
        look("stat", round);
        kill_all();
        actor_close(&actor);
    }
    cr_expect_gt(found, (int)(ROUNDS * CHUNKS / 2), "few places are damaged, most is still there");
    proc_close(&pool);
}

Test(process_damage, SM_8_damaged_objects_stop_no_start_no_client_and_no_tool)
{
    rounds(1);
}

Test(process_damage, SM_8_nor_do_those_of_other_seeds)
{
    rounds(100);
}

Test(process_damage, SM_8_nor_do_those_of_more_seeds)
{
    rounds(1000);
}

Test(process_damage, SM_8_nor_do_those_of_the_last_seeds)
{
    rounds(10000);
}
