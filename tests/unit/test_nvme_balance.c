/* tier/nvme: what each space has is counted exactly, whatever happens, in any order. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/support/nvme_rig.h"
#include "tests/unit/nvme_balance.h"

TestSuite(nvme_balance, .timeout = 120);

#define SPACES 12u
#define OPEN   12u

static struct nvme_rig rig;
static struct nvme_job *open_job[OPEN];

static void share(uint32_t space, uint32_t guaranteed, uint32_t largest)
{
    const uint64_t name[2] = {0x5057, space};
    const struct spw_share told = {guaranteed, largest};
    rig.cold.ops->share(rig.cold.cold, name, &told);
}

static uint64_t chunk(uint32_t space, uint32_t i)
{
    return (uint64_t)space << 32 | i;
}

static uint32_t dice(uint32_t sides)
{
    return (uint32_t)rand() % sides;
}

static const uint64_t sizes[] = {4096, 60000, 12000};

static void put_some(struct nvme_job **job)
{
    static uint32_t next;
    int rc;
    uint32_t space = dice(SPACES);
    uint64_t bytes = sizes[dice(16) ? space % 3 : dice(3)];
    *job = nvme_rig_put_begin(&rig, chunk(space, next++), bytes, &rc);
    cr_assert(*job || rc == -EAGAIN || rc == -EDQUOT || rc == -EIO || rc == -ENOSPC, "%d", rc);
}

static int64_t some_chunk(void)
{
    for (uint32_t tries = 0; tries < 50; tries++) {
        uint32_t id = dice(rig.options.ids);
        if (rig.holds[id])
            return (int64_t)rig.holds[id] - 1;
    }
    return -1;
}

static uint64_t bytes_of(uint64_t n)
{
    struct spw_cold_name name;
    uint64_t bytes = 0;
    cr_assert_eq(rig.cold.ops->name(rig.cold.cold, (uint32_t)nvme_rig_id(&rig, n), &name, &bytes),
                 0);
    return bytes;
}

static void finish_jobs(void)
{
    for (uint32_t i = 0; i < OPEN; i++)
        if (open_job[i]) {
            nvme_rig_end(&rig, open_job[i]);
            open_job[i] = NULL;
        }
}

static void reopen(void)
{
    finish_jobs();
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_again(&rig);
    if (dice(2))
        share(dice(SPACES), dice(300), dice(2) * dice(1000));
    nvme_rig_until(&rig, SPW_TIER_UP);
    fault_io_shuffle(rig.fault);
}

static void some_failures(void)
{
    fault_io_clear(rig.fault);
    if (dice(2) == 0)
        fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_ERROR,
                                                        .op = dice(2) ? SPW_IO_WRITE : SPW_IO_READ,
                                                        .count = 40,
                                                        .one_in = 1 + dice(3),
                                                        .error = -EIO});
}

static void do_something(void)
{
    struct nvme_job **job = &open_job[dice(OPEN)];
    uint32_t what = dice(200);
    int64_t n = some_chunk();
    int rc;
    if (*job) {
        if ((*job)->ended || dice(4) == 0) {
            nvme_rig_end(&rig, *job);
            *job = NULL;
        }
    } else if (what < 120) {
        put_some(job);
    } else if (what < 160 && n >= 0) {
        *job = nvme_rig_get_begin(&rig, (uint64_t)n, bytes_of((uint64_t)n), &rc);
    } else if (what < 180 && n >= 0) {
        nvme_rig_drop(&rig, (uint64_t)n);
    } else if (what < 192) {
        uint32_t guaranteed = dice(3) ? dice(2) * dice(300) : 300 + dice(700);
        share(dice(SPACES), guaranteed, dice(3) ? 0 : guaranteed + dice(200));
    } else if (what < 194) {
        (void)nvme_rig_reset(&rig, dice(SPACES));
    } else if (what < 196 && dice(4) == 0) {
        reopen();
    } else if (what < 198 && dice(2) == 0) {
        some_failures();
    } else {
        nvme_rig_poll(&rig);
    }
}

/* Each space gets an answer for each size, whoever has what; nvme_rig_put() waits for it. */
static void nobody_waits_for_ever(void)
{
    fault_io_clear(rig.fault);
    for (uint32_t i = 0; i < 3 * SPACES; i++) {
        int rc = nvme_rig_put(&rig, chunk(i % SPACES, 1000000 + i), sizes[i / SPACES]);
        cr_expect(rc == 0 || rc == -EDQUOT, "space %u, %lu bytes: %d", i % SPACES,
                  sizes[i / SPACES], rc);
    }
}

Test(nvme_balance, the_balance_is_exact_whatever_happens)
{
    const char *seed = getenv("SPW_TEST_SEED");
    srand(seed ? (unsigned)atoi(seed) : 4711);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 4 << 20, .ids = 120});
    fault_io_shuffle(rig.fault);
    for (uint32_t round = 0; round < 12000; round++) {
        if (round % 2000 == 1000) /* until it goes out of service, or other failures come */
            fault_io_rule(
                rig.fault,
                (struct fault_io_rule){.kind = FAULT_IO_ERROR, .op = SPW_IO_WRITE, .error = -EIO});
        do_something();
        nvme_balance(&rig);
        if (nvme_rig_gauge(&rig).state == SPW_TIER_DOWN) {
            finish_jobs();
            fault_io_clear(rig.fault);
            nvme_rig_quiet(&rig, 0);
            nvme_balance(&rig);
            rig.ahead_ns += 40000000000ull;
            nvme_rig_until(&rig, SPW_TIER_UP);
        }
    }
    finish_jobs();
    cr_expect(rig.gone[SPW_COLD_EVICTED] > 100, "%u", rig.gone[SPW_COLD_EVICTED]);
    cr_expect(rig.gone[SPW_COLD_AWAY] > 0, "it was never out of service");
    nobody_waits_for_ever();
    nvme_rig_quiet(&rig, 0);
    nvme_balance(&rig);
    cr_expect(rig.wrong == 0);
    cr_expect(nvme_rig_gauge(&rig).entries == nvme_rig_held(&rig));
    cr_expect(nvme_rig_close(&rig) == 0);
    nvme_rig_fini(&rig);
}
