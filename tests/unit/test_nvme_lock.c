/* tier/nvme: whose directory it is, whatever becomes of its name while the tier runs. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/support/env.h"
#include "tests/support/nvme_rig.h"

TestSuite(nvme_lock, .timeout = 60);

#define SECOND 1000000000ull
#define SHARD  3u /* the rig's */

static struct nvme_rig rig;
static char dir[SUPPORT_PATH_BYTES];
static struct spw_error err;

static void begin(void)
{
    cr_assert(support_shm_dir(dir) == 0);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    cr_assert(nvme_rig_put(&rig, 1, 5000) == 0);
}

static void end(void)
{
    cr_expect(rig.wrong == 0);
    cr_expect(nvme_rig_close(&rig) == 0);
    nvme_rig_fini(&rig);
    support_remove_dir(dir);
}

static void make_dir_anew(void)
{
    support_remove_dir(dir);
    cr_assert(mkdir(dir, 0700) == 0);
}

/* Time for it to notice, and to try again. */
static void later(uint64_t seconds)
{
    rig.ahead_ns += seconds * SECOND;
    nvme_rig_quiet(&rig, 20);
}

static bool is_ours(void)
{
    int fd = spw_nvme_lock(dir, SHARD, &err);
    if (fd >= 0)
        spw_lock_close(fd);
    return fd == -EBUSY;
}

static bool uses_shard(void)
{
    char path[SUPPORT_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/shard-%u", dir, SHARD);
    return access(path, F_OK) == 0;
}

Test(nvme_lock, it_is_held_from_the_first_look_to_the_end)
{
    begin();
    cr_expect(is_ours());
    cr_expect(strstr(err.text, dir) != NULL, "%s", err.text);
    cr_expect(spw_nvme_held(dir, true) && spw_nvme_held(dir, false));
    cr_expect(nvme_rig_close(&rig) == 0);
    cr_expect(!is_ours() && !spw_nvme_held(dir, false));
    end();
}

Test(nvme_lock, a_daemon_without_workers_holds_it_as_a_daemon)
{
    cr_assert(support_shm_dir(dir) == 0);
    cr_expect(!spw_nvme_held(dir, false), "nobody was there yet");
    int daemon = spw_nvme_lock(dir, SPW_NVME_DAEMON, &err);
    cr_assert(daemon >= 0, "%s", err.text);
    cr_expect(spw_nvme_held(dir, false) && !spw_nvme_held(dir, true));
    spw_lock_close(daemon);
    support_remove_dir(dir);
}

Test(nvme_lock, a_directory_made_anew_is_locked_before_it_is_used)
{
    begin();
    make_dir_anew();
    later(2);
    nvme_rig_until(&rig, SPW_TIER_DOWN);
    cr_expect(!uses_shard() || is_ours());
    later(100);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(uses_shard() && is_ours());
    cr_expect(spw_nvme_held(dir, true));
    cr_expect(nvme_rig_put(&rig, 2, 5000) == 0);
    end();
}

Test(nvme_lock, a_directory_that_another_one_took_meanwhile_is_left_alone_until_it_is_free)
{
    begin();
    make_dir_anew();
    int other = spw_nvme_lock(dir, SHARD, &err);
    cr_assert(other >= 0, "%s", err.text);
    for (uint32_t i = 0; i < 4; i++)
        later(100);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_DOWN);
    cr_expect(strstr(nvme_rig_gauge(&rig).text, "in use by another") != NULL, "%s",
              nvme_rig_gauge(&rig).text);
    cr_expect(!uses_shard(), "nothing of it was touched");
    spw_lock_close(other);
    later(100);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(is_ours());
    end();
}

static void remove_lock(void)
{
    char path[SUPPORT_PATH_BYTES + 8];
    snprintf(path, sizeof path, "%s/lock", dir);
    cr_assert(unlink(path) == 0);
}

Test(nvme_lock, a_lock_removed_by_hand_is_taken_anew)
{
    begin();
    remove_lock();
    later(2);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(is_ours());
    cr_expect(rig.gone[SPW_COLD_AWAY] == 0);
    remove_lock();
    int other = spw_nvme_lock(dir, SHARD, &err);
    cr_assert(other >= 0, "%s", err.text);
    later(2);
    nvme_rig_until(&rig, SPW_TIER_DOWN);
    spw_lock_close(other);
    later(100);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(is_ours());
    cr_expect(nvme_rig_get(&rig, 1, 5000) == 0);
    end();
}
