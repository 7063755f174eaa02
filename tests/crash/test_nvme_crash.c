/*
 * IO-13: a process that writes chunks below dies at each named step, and at 200 random moments. Whoever
 * opens the directory next finds whole chunks only, none of before a reset that was done, and no
 * more bytes than the cap.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shm/crash_point.h"
#include "shm/layout.h"
#include "tests/support/env.h"
#include "tier/nvme.h"

TestSuite(nvme_crash, .timeout = 150);

#define CHUNK_BYTES 20000u
#define CAP_BYTES   (1u << 20)
#define IDS         64u
#define WAIT_NS     5000000000ull
#define RESET_EVERY 23u

/* What outlives the child: resets that were done, chunks that were told of as put. */
struct ledger {
    volatile uint64_t resets;
    volatile uint64_t puts;
};

static char dir[SUPPORT_PATH_BYTES];
static struct ledger *ledger;
static struct spw_cold_handle tier;

static void make(void)
{
    cr_assert_eq(support_shm_dir(dir), 0);
    ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(ledger != MAP_FAILED);
}

static void clean(void)
{
    munmap(ledger, sizeof *ledger);
    support_remove_dir(dir);
}

static void on_gone(void *ctx, uint32_t id, enum spw_cold_why why)
{
    uint32_t *corrupt = ctx;
    (void)id;
    *corrupt += why == SPW_COLD_CORRUPT;
}

static bool open_tier(uint32_t *corrupt)
{
    const struct spw_io_config io_config = {.choice = SPW_IO_THREADS, .depth = 4};
    struct spw_nvme_config config = {
        .dir = dir,
        .cap_bytes = CAP_BYTES,
        .ids = IDS,
        .chunk_bytes_max = CHUNK_BYTES,
        .direct = true,
        .checksum = true,
        .reads = 2,
        .writes = 2,
        .deadline_ns = WAIT_NS,
        .now_ns = spw_monotonic_ns(),
        .listener = {on_gone, corrupt},
    };
    return spw_io_open(&io_config, &config.io, NULL) == 0 &&
           spw_nvme_open(&config, &tier, NULL) == 0;
}

/* The next event that isn't of the scan, or false: none within the limit. */
static bool next_event(struct spw_cold_event *event)
{
    static const struct timespec nap = {.tv_nsec = 20000};
    uint64_t until_ns = spw_monotonic_ns() + WAIT_NS;
    while (spw_monotonic_ns() < until_ns) {
        if (tier.ops->poll(tier.cold, spw_monotonic_ns(), event, 1) == 0)
            nanosleep(&nap, NULL);
        else if (event->kind != SPW_COLD_FOUND)
            return true;
    }
    return false;
}

static bool wait_up(void)
{
    struct spw_cold_event event;
    struct spw_cold_gauge gauge;
    uint64_t until_ns = spw_monotonic_ns() + WAIT_NS;
    do {
        tier.ops->poll(tier.cold, spw_monotonic_ns(), &event, 1);
        tier.ops->gauge(tier.cold, &gauge);
        usleep(50);
    } while (gauge.state != SPW_TIER_UP && spw_monotonic_ns() < until_ns);
    return gauge.state == SPW_TIER_UP;
}

/* ---- chunks: key = resets before it, number; bytes follow from both --------------------------- */

struct key {
    uint64_t resets, number;
};

static void fill(uint8_t *payload, const struct key *key)
{
    uint64_t at = key->resets << 32 ^ key->number;
    for (uint32_t i = 0; i < CHUNK_BYTES; i += 8) {
        at = at * 6364136223846793005ull + 1442695040888963407ull;
        memcpy(payload + i, &at, 8);
    }
}

static int put(uint8_t *payload, const struct key *key)
{
    struct spw_cold_put put = {.name = {.space = {7, 7}, .key_bytes = sizeof *key},
                               .payload = payload,
                               .bytes = CHUNK_BYTES};
    struct spw_cold_event event;
    memcpy(put.name.key, key, sizeof *key);
    fill(payload, key);
    int rc;
    while ((rc = tier.ops->put(tier.cold, &put)) == -EAGAIN) {
        tier.ops->poll(tier.cold, spw_monotonic_ns(), &event, 0);
        usleep(20);
    }
    return rc == 0 && next_event(&event) && event.kind == SPW_COLD_PUT ? event.status : -EIO;
}

/* In turn of its space and of all. */
static bool reset(void)
{
    static const uint64_t space[2] = {7, 7};
    struct spw_cold_event event;
    const uint64_t *which = ledger->resets % 2 ? NULL : space;
    return tier.ops->reset(tier.cold, which, NULL) == 0 && next_event(&event) &&
           event.kind == SPW_COLD_RESET && event.status == 0;
}

struct life {
    const char *point; /* NULL: it is killed from outside */
    uint32_t nth;
    uint32_t count; /* chunks to put */
};

/* Puts chunks, and resets their space now and then; each told of before the next begins. */
static int write_on(void *arg)
{
    const struct life *life = arg;
    uint32_t corrupt = 0;
    uint8_t *payload = malloc(CHUNK_BYTES);
    if (!payload || !open_tier(&corrupt) || !wait_up())
        return 1;
    if (life->point)
        spw_crash_arm(life->point, life->nth);
    for (uint32_t n = 0; n < life->count; n++) {
        struct key key = {ledger->resets, ledger->puts};
        if (put(payload, &key) != 0)
            return 2;
        ledger->puts++;
        if (ledger->puts % RESET_EVERY == 0) {
            if (!reset())
                return 3;
            ledger->resets++;
        }
    }
    return 0;
}

/* No reset has begun since the last chunk that was told of as put. */
static bool last_counts(void)
{
    return ledger->puts % RESET_EVERY != 0;
}

/* What the next process finds. */
static void check_next(const char *when)
{
    uint32_t corrupt = 0, count = 0;
    bool last = false;
    uint8_t payload[CHUNK_BYTES], want[CHUNK_BYTES];
    struct spw_cold_name name;
    struct spw_cold_event event;
    struct spw_cold_gauge gauge;
    uint64_t bytes;
    cr_assert(open_tier(&corrupt) && wait_up(), "%s", when);
    for (uint32_t id = 0; id < IDS; id++) {
        struct key key;
        if (tier.ops->name(tier.cold, id, &name, &bytes) < 0)
            continue;
        cr_assert(bytes == CHUNK_BYTES && name.key_bytes == sizeof key, "%s", when);
        memcpy(&key, name.key, sizeof key);
        cr_expect(key.resets >= ledger->resets, "%s: chunk of reset %llu after reset %llu", when,
                  (unsigned long long)key.resets, (unsigned long long)ledger->resets);
        cr_assert_eq(tier.ops->get(tier.cold, id, payload, bytes, NULL), 0);
        cr_assert(next_event(&event) && event.kind == SPW_COLD_GET && event.status == 0, "%s: %d",
                  when, event.status);
        fill(want, &key);
        cr_expect(memcmp(payload, want, bytes) == 0, "%s: other bytes", when);
        last |= key.resets == ledger->resets && key.number + 1 == ledger->puts;
        count++;
    }
    tier.ops->gauge(tier.cold, &gauge);
    cr_expect(gauge.entries == count && gauge.used_bytes <= CAP_BYTES && corrupt == 0,
              "%s: %llu entries, %u found, %u corrupt", when, (unsigned long long)gauge.entries,
              count, corrupt);
    cr_expect(last || !last_counts(), "%s: chunk %llu was told of as put", when,
              (unsigned long long)ledger->puts - 1);
    cr_assert_eq(tier.ops->close(tier.cold, WAIT_NS), 0);
}

Test(nvme_crash, io13_death_at_each_step_of_a_put_and_of_a_reset, .init = make, .fini = clean)
{
    static const char *const points[] = {"nvme.record_erased", "nvme.payload_written",
                                         "nvme.block_written", "nvme.record_written",
                                         "nvme.resets_written"};
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        bool rare = p == 4;
        for (uint32_t nth = 1; nth <= (rare ? 2u : 60u); nth += rare ? 1 : 13) {
            struct life life = {points[p], nth, 200};
            int status = support_wait(support_fork(write_on, &life), 20000);
            cr_assert_eq(status, SUPPORT_SIGNALLED + SIGKILL, "%s %u: %d", points[p], nth, status);
            check_next(points[p]);
        }
    }
}

Test(nvme_crash, io13_death_at_200_random_moments, .init = make, .fini = clean)
{
    struct life life = {NULL, 0, UINT32_MAX};
    uint64_t before = 0, deaths_with_puts = 0;
    srandom(13);
    for (uint32_t n = 0; n < 200; n++) {
        pid_t pid = support_fork(write_on, &life);
        usleep((useconds_t)(1000 + random() % 20000));
        support_kill(pid);
        deaths_with_puts += ledger->puts != before;
        before = ledger->puts;
        check_next("a random moment");
    }
    cr_expect_gt(deaths_with_puts, 50, "children hardly wrote: %llu",
                 (unsigned long long)deaths_with_puts);
}
