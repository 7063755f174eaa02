/* tier/nvme: never more bytes on disk than allowed, whatever is stored and whatever the disk says. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/env.h"
#include "tests/support/nvme_rig.h"

TestSuite(nvme_cap, .timeout = 60);

static struct nvme_rig rig;

static void end(void)
{
    nvme_rig_quiet(&rig, 0);
    cr_expect(rig.wrong == 0);
    cr_expect(nvme_rig_gauge(&rig).entries == nvme_rig_held(&rig));
    cr_expect(rig.most_on_disk <= rig.options.cap_bytes, "%lu of %lu bytes on disk",
              (unsigned long)rig.most_on_disk, (unsigned long)rig.options.cap_bytes);
    cr_expect(nvme_rig_close(&rig) == 0);
    nvme_rig_fini(&rig);
}

Test(nvme_cap, CE_5_ten_mib_into_one_never_take_more_and_the_oldest_go)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    rig.sample = true;
    for (uint64_t n = 0; n < 2560; n++)
        cr_assert(nvme_rig_put(&rig, n, 4096) == 0);
    uint32_t held = nvme_rig_held(&rig);
    cr_expect(held >= 180, "%u of at most 256 are held", held);
    cr_expect(rig.went_count == 2560 - held);
    for (uint32_t i = 0; i < rig.went_count; i++)
        cr_assert(rig.went[i] == i);
    for (uint64_t n = 2560 - held; n < 2560; n++)
        cr_assert(nvme_rig_get(&rig, n, 4096) == 0);
    end();
}

Test(nvme_cap, chunks_of_several_sizes_share_it)
{
    static const uint64_t sizes[] = {4096, 60000, 12000, 30000};
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    rig.sample = true;
    for (uint32_t phase = 0; phase < 8; phase++)
        for (uint64_t i = 0; i < 60; i++) {
            uint64_t n = phase * 1000 + i, bytes = sizes[phase % 4];
            cr_assert(nvme_rig_put(&rig, n, bytes) == 0);
            cr_assert(nvme_rig_get(&rig, n, bytes) == 0);
        }
    cr_expect(rig.gone[SPW_COLD_EVICTED] > 0);
    cr_expect(rig.gone[SPW_COLD_CORRUPT] + rig.gone[SPW_COLD_FAILED] == 0);
    end();
}

Test(nvme_cap, sizes_in_turn_with_many_under_way_share_it)
{
    static const uint64_t sizes[] = {4096, 60000, 12000, 30000};
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    fault_io_shuffle(rig.fault);
    rig.sample = true;
    struct nvme_job *job[6] = {0};
    for (uint64_t n = 0; n < 600; n++) {
        struct nvme_job **mine = &job[n % 6];
        int rc;
        if (*mine)
            cr_assert(nvme_rig_end(&rig, *mine) == 0);
        while (!(*mine = nvme_rig_put_begin(&rig, n, sizes[n % 4], &rc))) {
            cr_assert(rc == -EAGAIN, "%d", rc);
            nvme_rig_poll(&rig);
            for (uint32_t i = 0; i < 6; i++) /* room may be theirs */
                if (job[i] && job[i]->ended) {
                    cr_assert(nvme_rig_end(&rig, job[i]) == 0);
                    job[i] = NULL;
                }
        }
    }
    for (uint32_t i = 0; i < 6; i++)
        if (job[i])
            cr_assert(nvme_rig_end(&rig, job[i]) == 0);
    for (uint64_t n = 590; n < 600; n++)
        if (nvme_rig_id(&rig, n) >= 0)
            cr_expect(nvme_rig_get(&rig, n, sizes[n % 4]) == 0);
    end();
}

Test(nvme_cap, a_lower_one_holds_from_the_next_start_on)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 2 << 20});
    for (uint64_t n = 0; n < 100; n++)
        cr_assert(nvme_rig_put(&rig, n, 12000) == 0);
    cr_assert(nvme_rig_close(&rig) == 0);
    cr_expect(nvme_rig_on_disk(rig.dir) > 1 << 20);
    rig.options.cap_bytes = 1 << 20;
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
    nvme_rig_quiet(&rig, 20);
    rig.sample = true;
    for (uint64_t n = 200; n < 260; n++)
        cr_assert(nvme_rig_put(&rig, n, 12000) == 0);
    cr_expect(nvme_rig_get(&rig, 259, 12000) == 0);
    end();
}

/* ---- a full disk ----------------------------------------------------------------------------- */

#define BIG (768u << 10)

static char mount_point[SUPPORT_PATH_BYTES];

#define CHILD(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            return __LINE__ % 250 + 1;                                                             \
    } while (0)

static int count_files(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/shard-3", mount_point);
    return support_count_names(path);
}

/* The cap says there is room, the file system has none for the second one. */
static int fill_a_small_disk(void *arg)
{
    (void)arg;
    int rc = support_private_tmpfs(mount_point, 1 << 20);
    if (rc < 0)
        return rc == -EPERM ? SUPPORT_SKIP : 250;
    struct nvme_rig_options options = {
        .cap_bytes = 64 << 20, .chunk_bytes_max = BIG, .dir = mount_point};
    nvme_rig_start(&rig, &options);
    CHILD(nvme_rig_put(&rig, 1, BIG) == 0);
    nvme_rig_quiet(&rig, 0); /* the next segment was tried ahead of need */
    int files = count_files();
    CHILD(nvme_rig_put(&rig, 2, BIG) == -ENOSPC);
    CHILD(nvme_rig_gauge(&rig).state == SPW_TIER_FULL);
    CHILD(nvme_rig_id(&rig, 2) < 0);
    CHILD(nvme_rig_get(&rig, 1, BIG) == 0);
    nvme_rig_quiet(&rig, 0);
    CHILD(count_files() == files);
    CHILD(nvme_rig_gauge(&rig).used_bytes < 1 << 20);
    CHILD(nvme_rig_close(&rig) == 0);
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
    CHILD(count_files() == files);
    CHILD(rig.found == 1);
    CHILD(nvme_rig_get(&rig, 1, BIG) == 0);
    CHILD(nvme_rig_close(&rig) == 0);
    return 0;
}

Test(nvme_cap, IO_2_a_full_disk_costs_the_chunk_that_did_not_fit_and_no_other)
{
    cr_assert(support_shm_dir(mount_point) == 0);
    pid_t pid = support_fork(fill_a_small_disk, NULL);
    cr_assert(pid > 0);
    int status = support_wait(pid, 30000);
    support_remove_dir(mount_point);
    if (status == SUPPORT_SKIP)
        cr_skip_test("no mounts here");
    cr_expect(status == 0, "%d", status);
}

/* A file system that reserves, and says no in mid-write all the same. */
Test(nvme_cap, IO_2_a_write_that_runs_out_of_room_is_dropped_and_tried_again_later)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    cr_assert(nvme_rig_put(&rig, 1, 60000) == 0);
    fault_io_rule(
        rig.fault,
        (struct fault_io_rule){
            .kind = FAULT_IO_SHORT, .op = SPW_IO_WRITE, .first = 1, .count = 1, .bytes = 8192});
    fault_io_rule(
        rig.fault,
        (struct fault_io_rule){
            .kind = FAULT_IO_ERROR, .op = SPW_IO_WRITE, .first = 2, .count = 1, .error = -ENOSPC});
    uint64_t used = nvme_rig_gauge(&rig).used_bytes;
    cr_expect(nvme_rig_put(&rig, 2, 60000) == -ENOSPC);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_FULL);
    cr_expect(nvme_rig_gauge(&rig).text[0] != 0, "a full disk is told in words");
    cr_expect(nvme_rig_gauge(&rig).used_bytes == used);
    cr_expect(nvme_rig_get(&rig, 1, 60000) == 0);
    cr_expect(nvme_rig_get(&rig, 2, 60000) == -ENOENT);
    rig.ahead_ns += 120 * 1000000000ull;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(nvme_rig_gauge(&rig).text[0] == 0);
    cr_expect(nvme_rig_put(&rig, 2, 60000) == 0);
    cr_expect(nvme_rig_get(&rig, 2, 60000) == 0);
    end();
}
