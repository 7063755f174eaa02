/* Headers that another build wrote, or that are damaged: refused by name, without a write. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(process_header, .timeout = 60);

static struct proc_pool pool;

/* An object of the pool, writable here alone. */
struct object {
    uint8_t *bytes;
    size_t size;
};

static struct object open_object(enum spw_region_kind kind, uint32_t index)
{
    char name[SPW_PATH_BYTES];
    struct stat st;
    struct object object = {0};
    spw_region_name(&pool.seen->path, kind, index, name);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0 && fstat(fd, &st) == 0, "%s", name);
    object.size = (size_t)st.st_size;
    object.bytes = mmap(NULL, object.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(object.bytes, MAP_FAILED);
    close(fd);
    return object;
}

static void start(void)
{
    const struct proc_config config = {.capacity = 8, .kv_blocks = 8, .clients = 3};
    cr_assert(proc_start(&pool, &config));
}

static int attach(struct spw_client **out, char *words, size_t bytes)
{
    const struct spw_attach_options options = {.size_bytes = sizeof options,
                                               .numa_node = -1,
                                               .pool = "pool",
                                               .shm_dir = pool.dir,
                                               .uid = -1};
    *out = NULL;
    words[0] = 0;
    return spw_attach(&options, out, words, bytes);
}

/* What clients could write: client 0's object without the lanes' worker side, ctl, feed's header. */
static uint64_t sum_of(const struct object *object, size_t bytes)
{
    uint64_t sum = 14695981039346656037ull;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ object->bytes[i]) * 1099511628211ull;
    return sum;
}

/* The daemon writes the time of its rounds into ctl: it stands still while nothing may change. */
static void hold_daemon(void)
{
    int status;
    cr_assert_eq(kill(pool.daemon, SIGSTOP), 0);
    cr_assert_eq(waitpid(pool.daemon, &status, WUNTRACED), pool.daemon);
    cr_assert(WIFSTOPPED(status), "status %#x", (unsigned)status);
}

/* Attach is refused with @error and both texts, and nothing was written. */
static void refused(int error, const char *there, const char *here)
{
    hold_daemon();
    struct object ctl = open_object(SPW_REGION_CTL, 0), client = open_object(SPW_REGION_CLIENT, 0);
    uint64_t ctl_sum = sum_of(&ctl, ctl.size), client_sum = sum_of(&client, client.size);
    struct spw_client *handle;
    char words[256];
    int rc = attach(&handle, words, sizeof words);
    cr_expect_eq(rc, error, "%d %s", rc, words);
    cr_expect(strstr(words, there) && strstr(words, here), "%s: %s and %s", words, there, here);
    cr_expect_eq(sum_of(&ctl, ctl.size), ctl_sum, "ctl was written");
    cr_expect_eq(sum_of(&client, client.size), client_sum, "client 0 was written");
    cr_expect_eq(kill(pool.daemon, SIGCONT), 0);
    munmap(ctl.bytes, ctl.size);
    munmap(client.bytes, client.size);
}

static void still_works(void)
{
    struct actor actor;
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    cr_expect_eq(actor_store(&actor, 1, 3), 3);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    actor_close(&actor);
}

/* A client's place that is damaged is passed over, and mended by the daemon. */
static const struct {
    enum spw_region_kind kind;
    const char *name;
} kinds[] = {{SPW_REGION_CTL, "ctl"}, {SPW_REGION_FEED, "feed"}};
#define KINDS (sizeof kinds / sizeof kinds[0])

Test(process_header, SM_9_another_layout_version_is_refused_with_both_numbers)
{
    start();
    for (size_t i = 0; i < KINDS; i++) {
        struct object object = open_object(kinds[i].kind, 0);
        struct spw_region_header *header = (void *)object.bytes;
        char there[64], here[64];
        for (uint64_t version = SPW_LAYOUT_VERSION + 1; version < 1ull << 40; version <<= 13) {
            spw_store_release(&header->version, version);
            snprintf(there, sizeof there, "version %" PRIu64, version);
            snprintf(here, sizeof here, "program %u", SPW_LAYOUT_VERSION);
            refused(-EPROTONOSUPPORT, there, here);
        }
        spw_store_release(&header->version, SPW_LAYOUT_VERSION);
        munmap(object.bytes, object.size);
        still_works();
    }
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_header, SM_9_another_layout_hash_is_refused_with_both)
{
    start();
    for (size_t i = 0; i < KINDS; i++) {
        struct object object = open_object(kinds[i].kind, 0);
        struct spw_region_header *header = (void *)object.bytes;
        char there[64], here[64];
        snprintf(here, sizeof here, "%016" PRIx64, spw_layout_hash());
        header->layout_hash ^= 1ull << 40;
        snprintf(there, sizeof there, "%016" PRIx64, header->layout_hash);
        refused(-EPROTONOSUPPORT, there, here);
        header->layout_hash ^= 1ull << 40;
        munmap(object.bytes, object.size);
        still_works();
    }
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_header, SM_9_the_other_endianness_is_named)
{
    start();
    for (size_t i = 0; i < KINDS; i++) {
        struct object object = open_object(kinds[i].kind, 0);
        struct spw_region_header *header = (void *)object.bytes;
        header->magic = __builtin_bswap64(header->magic);
        header->endian = __builtin_bswap32(header->endian);
        refused(-EBADMSG, "endianness is 0x4030201", "0x1020304");
        header->magic = __builtin_bswap64(header->magic);
        header->endian = __builtin_bswap32(header->endian);
        header->page_bytes = 65536;
        refused(-EBADMSG, "page size is 0x10000", "0x1000");
        header->page_bytes = 4096;
        munmap(object.bytes, object.size);
        still_works();
    }
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* What a client does first, with whatever it was told. */
static void use(struct spw_client *client)
{
    struct spw_info info = {.size_bytes = sizeof info};
    struct spw_completion done;
    if (spw_step_begin(client) >= 0)
        spw_step_end(client);
    spw_completions(client, &done, 1);
    spw_get_info(client, &info);
    spw_detach(client);
}

Test(process_header, R_25_no_flipped_bit_of_a_header_crashes_who_attaches)
{
    const struct {
        enum spw_region_kind kind;
        uint32_t bytes;
    } parts[] = {{SPW_REGION_CTL, 192}, {SPW_REGION_FEED, 128}, {SPW_REGION_CLIENT, 128}};
    uint32_t refusals = 0, works = 0;
    start();
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        struct object object = open_object(parts[part].kind, 0);
        for (uint32_t bit = 0; bit < parts[part].bytes * 8; bit++) {
            struct spw_client *client;
            char words[256];
            object.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            int rc = attach(&client, words, sizeof words);
            if (rc == 0)
                use(client);
            object.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            cr_expect(rc == 0 || words[0], "object %zu, bit %u: %d without words", part, bit, rc);
            refusals += rc != 0;
            works += rc == 0;
        }
        munmap(object.bytes, object.size);
    }
    /* headers' reserved bytes may be anything; all else of ctl and feed is compared or checked */
    cr_expect_gt(refusals, 2 * 56 * 8 - 64, "%u refused, %u work", refusals, works);
    cr_expect_gt(works, 0);
    still_works();
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}
