/* Shared-memory objects: room, rights, headers, names. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/object.h"
#include "shm/region.h"
#include "tests/support/deny.h"
#include "tests/support/env.h"

TestSuite(region, .timeout = 30);

static struct spw_pool_path path;

static void make_dir(void)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    cr_assert_eq(spw_pool_path_init(&path, dir, "test", (uint32_t)geteuid(), NULL), 0);
}

static struct spw_region_config config_of(enum spw_region_kind kind, uint64_t bytes)
{
    return (struct spw_region_config){.path = &path,
                                      .kind = kind,
                                      .index = kind == SPW_REGION_CTL ? 0 : 3,
                                      .size_bytes = bytes,
                                      .mode = 0600,
                                      .gid = -1,
                                      .pool_id = {11, 22}};
}

static struct spw_region create(enum spw_region_kind kind, uint64_t bytes)
{
    struct spw_region_config config = config_of(kind, bytes);
    struct spw_region region;
    struct spw_error err = {0};
    cr_assert_eq(spw_region_create(&config, &region, &err), 0, "%s", err.text);
    return region;
}

static int attach(enum spw_region_kind kind, uint64_t want_bytes, struct spw_error *err)
{
    struct spw_region region = {0};
    int rc = spw_region_attach(&path, kind, kind == SPW_REGION_CTL ? 0 : 3, false, want_bytes,
                               &region, err);
    spw_region_detach(&region);
    return rc;
}

static void run_child(int (*body)(void *), int want)
{
    pid_t pid = support_fork(body, NULL);
    cr_assert_gt(pid, 0);
    int status = support_wait(pid, 20000);
    if (status == SUPPORT_SKIP)
        cr_skip("this machine doesn't allow it");
    cr_assert_eq(status, want, "child ended with %d", status);
}

Test(region, created_published_attached)
{
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 10000), other = {0};
    cr_assert_eq(region.size_bytes, 12288);
    ((char *)region.header)[9999] = 'x';
    spw_region_publish(&region);
    cr_assert_eq(spw_region_attach(&path, SPW_REGION_FEED, 3, false, 10000, &other, NULL), 0);
    cr_assert_eq(((char *)other.header)[9999], 'x');
    cr_assert_eq(other.header->index, 3);
    cr_assert_eq(other.header->pool_id[1], 22);
    cr_assert(!other.writable);
    spw_region_detach(&other);
    cr_assert_null(other.header);
    spw_region_detach(&other);
    spw_region_detach(NULL);
    spw_region_detach(&region);
}

/* ---- SM-1, case 23: no room ------------------------------------------------------------------ */

static int create_16_mib_on_4(void *arg)
{
    struct spw_region_config config = config_of(SPW_REGION_DATA, 16 << 20);
    struct spw_region region;
    struct spw_error err = {0};
    if (support_private_tmpfs(path.shm_dir, 4 << 20))
        return SUPPORT_SKIP;
    if (spw_region_create(&config, &region, &err) != -ENOSPC || err.code != -ENOSPC)
        return 1;
    if (!strstr(err.text, "16777216") || !strstr(err.text, "4194304") ||
        !strstr(err.text, path.shm_dir) || !strstr(err.text, "remount"))
        return 2;
    return support_count_names(path.shm_dir) == 0 ? 0 : 3;
}

Test(region, sm1_no_room_is_a_clear_error)
{
    make_dir();
    run_child(create_16_mib_on_4, 0);
}

static int create_without_pages(void *arg)
{
    struct spw_region_config config = config_of(SPW_REGION_DATA, 16 << 20);
    struct spw_region region;
    struct spw_error err = {0};
    if (support_deny(SYS_fallocate, ENOSPC))
        return SUPPORT_SKIP;
    if (spw_region_create(&config, &region, &err) != -ENOSPC)
        return 1;
    if (!strstr(err.text, "16777216") || !strstr(err.text, path.shm_dir))
        return 2;
    return support_count_names(path.shm_dir) == 0 ? 0 : 3;
}

Test(region, sm1_room_taken_between_look_and_allocation_is_the_same_error)
{
    make_dir();
    run_child(create_without_pages, 0);
}

/* The bytes are ours once the region is made: whoever fills the file system can't take them. */
static int touch_all_on_a_full_disk(void *arg)
{
    struct spw_region_config config = config_of(SPW_REGION_DATA, 2 << 20);
    struct spw_region region;
    char name[SPW_PATH_BYTES + 8];
    static char block[1 << 16];
    if (support_private_tmpfs(path.shm_dir, 4 << 20))
        return SUPPORT_SKIP;
    if (spw_region_create(&config, &region, NULL))
        return 1;
    snprintf(name, sizeof name, "%s/filler", path.shm_dir);
    int fd = open(name, O_CREAT | O_WRONLY, 0600);
    while (write(fd, block, sizeof block) > 0)
        ;
    memset(region.header + 1, 1, region.size_bytes - sizeof *region.header);
    return errno == ENOSPC ? 0 : 2;
}

Test(region, case23_first_touch_never_fails)
{
    make_dir();
    run_child(touch_all_on_a_full_disk, 0);
}

/* ---- nothing is left behind, whatever fails -------------------------------------------------- */

static long denied_call;

static int create_denied(void *arg)
{
    struct spw_region_config config = config_of(SPW_REGION_DATA, 1 << 20);
    struct spw_region region;
    struct spw_error err = {0};
    if (support_deny(denied_call, EIO))
        return SUPPORT_SKIP;
    if (spw_region_create(&config, &region, &err) != -EIO || err.text[0] == 0)
        return 1;
    return 0;
}

Test(region, failed_create_leaves_nothing)
{
    const long calls[] = {SYS_fchmod, SYS_fallocate, SYS_madvise};
    make_dir();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        denied_call = calls[i];
        run_child(create_denied, 0);
        cr_assert_eq(support_count_names(path.shm_dir), 0, "call %ld", calls[i]);
    }
}

Test(region, second_create_is_refused_and_harms_nothing)
{
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 4096), second;
    struct spw_region_config config = config_of(SPW_REGION_FEED, 4096);
    spw_region_publish(&region);
    cr_assert_eq(spw_region_create(&config, &second, NULL), -EEXIST);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), 0);
    spw_region_detach(&region);
}

/* ---- SM-7: rights ---------------------------------------------------------------------------- */

static void check_mode(mode_t mask, uint32_t mode, int64_t gid)
{
    struct spw_region_config config = config_of(SPW_REGION_FEED, 4096);
    struct spw_region region;
    struct spw_error err = {0};
    char name[SPW_PATH_BYTES];
    struct stat st;
    make_dir();
    config.mode = mode;
    config.gid = gid;
    umask(mask);
    cr_assert_eq(spw_region_create(&config, &region, &err), 0, "%s", err.text);
    cr_assert_eq(umask(mask), mask);
    spw_region_name(&path, SPW_REGION_FEED, 3, name);
    cr_assert_eq(stat(name, &st), 0);
    cr_assert_eq(st.st_mode & 07777, mode);
    if (gid >= 0)
        cr_assert_eq(st.st_gid, (gid_t)gid);
    spw_region_detach(&region);
}

Test(region, sm7_narrow_umask_takes_nothing_away)
{
    check_mode(0077, 0660, geteuid() == 0 ? 4242 : (int64_t)getegid());
}

Test(region, sm7_open_umask_adds_nothing)
{
    check_mode(0000, 0600, -1);
}

/* ---- SM-9, SM-10, cases 24 and 25: headers --------------------------------------------------- */

Test(region, sm9_another_layout_hash_is_refused_with_both_values)
{
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    struct spw_error err = {0};
    char hash[24];
    spw_region_publish(&region);
    region.header->layout_hash ^= 0x10;
    static char before[4096];
    memcpy(before, region.header, sizeof before);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), -EPROTONOSUPPORT);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)spw_layout_hash());
    cr_assert_not_null(strstr(err.text, hash), "%s", err.text);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)region.header->layout_hash);
    cr_assert_not_null(strstr(err.text, hash), "%s", err.text);
    cr_assert_arr_eq(before, region.header, sizeof before, "an attacher wrote");
    spw_region_detach(&region);
}

Test(region, sm9_older_and_newer_versions_are_refused)
{
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    for (uint64_t version = 1; version < 5; version++) {
        struct spw_error err = {0};
        spw_store_relaxed(&region.header->version, version);
        int rc = attach(SPW_REGION_FEED, 0, &err);
        cr_assert_eq(rc, version == SPW_LAYOUT_VERSION ? 0 : -EPROTONOSUPPORT, "%s", err.text);
    }
    spw_region_detach(&region);
}

Test(region, sm10_unpublished_object_is_not_ready)
{
    make_dir();
    struct spw_error err = {0};
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), -ENOENT);
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), -EAGAIN);
    spw_region_publish(&region);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), 0);
    spw_region_detach(&region);
}

Test(region, sm10_object_without_bytes_is_not_ready)
{
    make_dir();
    char name[SPW_PATH_BYTES];
    spw_region_name(&path, SPW_REGION_FEED, 3, name);
    close(spw_object_create(&path, name, 0600, -1, NULL));
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), -EAGAIN);
    cr_assert_eq(spw_region_unlink(&path, SPW_REGION_FEED, 3, NULL, NULL), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), -ENOENT);
}

/* What a flipped bit at this byte of the header must come to. */
static int flipped_answer(size_t byte)
{
    struct {
        size_t offset;
        int answer;
    } fields[] = {
        {offsetof(struct spw_region_header, version), -EPROTONOSUPPORT},
        {offsetof(struct spw_region_header, magic), -EBADMSG},
        {offsetof(struct spw_region_header, layout_hash), -EPROTONOSUPPORT},
        {offsetof(struct spw_region_header, size_bytes), -EBADMSG},
        {offsetof(struct spw_region_header, pool_id), 0},
        {offsetof(struct spw_region_header, kind), -EBADMSG},
        {offsetof(struct spw_region_header, reserved), 0},
    };
    int answer = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (byte >= fields[i].offset)
            answer = fields[i].answer;
    }
    return answer;
}

Test(region, case25_every_flipped_bit_of_the_header_gets_its_answer)
{
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    uint8_t *bytes = (uint8_t *)region.header;
    spw_region_publish(&region);
    for (size_t bit = 0; bit < 8 * sizeof(struct spw_region_header); bit++) {
        int want = flipped_answer(bit / 8);
        if (bit / 8 < 8 && spw_load_relaxed(&region.header->version) == (1ull << bit))
            want = -EAGAIN; /* the only bit of the version: 0 is "not published" */
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), want, "bit %zu", bit);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), 0);
    spw_region_detach(&region);
}

Test(region, case22_size_that_differs_from_the_header_is_refused)
{
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 8192);
    char name[SPW_PATH_BYTES];
    spw_region_publish(&region);
    spw_region_name(&path, SPW_REGION_FEED, 3, name);
    cr_assert_eq(attach(SPW_REGION_FEED, 8192, NULL), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 8193, NULL), -EBADMSG);
    cr_assert_eq(truncate(name, 4096), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), -EBADMSG);
    cr_assert_eq(truncate(name, 1 << 20), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), -EBADMSG);
    spw_region_detach(&region);
}

/* ---- case 27, SM-6: what somebody else put there --------------------------------------------- */

Test(region, case27_links_and_pipes_are_refused_not_followed)
{
    make_dir();
    char name[SPW_PATH_BYTES], target[SPW_PATH_BYTES + 8];
    struct spw_region_config config = config_of(SPW_REGION_FEED, 4096);
    struct spw_region region;
    struct spw_error err = {0};
    spw_region_name(&path, SPW_REGION_FEED, 3, name);
    snprintf(target, sizeof target, "%s/target", path.shm_dir);
    cr_assert_eq(symlink(target, name), 0);
    cr_assert_eq(spw_region_create(&config, &region, NULL), -EEXIST);
    cr_assert_eq(access(target, F_OK), -1);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), -EACCES);
    cr_assert_not_null(strstr(err.text, name));
    cr_assert_eq(spw_region_unlink(&path, SPW_REGION_FEED, 3, NULL, NULL), -EACCES);
    cr_assert_eq(unlink(name), 0);
    cr_assert_eq(mkfifo(name, 0600), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), -EACCES);
    cr_assert_eq(unlink(name), 0);
    cr_assert_eq(mkdir(name, 0700), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), -EACCES);
    cr_assert_eq(rmdir(name), 0);
}

Test(region, case27_foreign_object_is_never_adopted_nor_removed)
{
    if (geteuid() != 0)
        cr_skip("only root can make a file of somebody else");
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    struct spw_error err = {0};
    char name[SPW_PATH_BYTES];
    spw_region_publish(&region);
    spw_region_name(&path, SPW_REGION_FEED, 3, name);
    cr_assert_eq(chown(name, 1001, (gid_t)-1), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, &err), -EACCES);
    cr_assert(strstr(err.text, "1001") && strstr(err.text, name), "%s", err.text);
    err = (struct spw_error){0};
    cr_assert_eq(spw_region_unlink(&path, SPW_REGION_FEED, 3, NULL, &err), -EACCES);
    cr_assert(strstr(err.text, "1001") && strstr(err.text, name), "%s", err.text);
    cr_assert_eq(access(name, F_OK), 0);
    spw_region_detach(&region);
}

static int attach_as_nobody(void *arg)
{
    struct spw_error err = {0};
    if (setuid(65534))
        return SUPPORT_SKIP;
    if (attach(SPW_REGION_FEED, 0, &err) != -EACCES)
        return 1;
    return strstr(err.text, "0600") && strstr(err.text, path.shm_dir) ? 0 : 2;
}

Test(region, refused_access_names_owner_and_mode)
{
    if (geteuid() != 0)
        cr_skip("only root can become somebody else");
    make_dir();
    cr_assert_eq(chmod(path.shm_dir, 0755), 0);
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    spw_region_publish(&region);
    run_child(attach_as_nobody, 0);
    spw_region_detach(&region);
}

Test(region, only_the_object_of_that_pool_is_unlinked)
{
    make_dir();
    const uint64_t ours[2] = {11, 22}, other[2] = {11, 23};
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    spw_region_publish(&region);
    cr_assert_eq(spw_region_unlink(&path, SPW_REGION_FEED, 3, other, NULL), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), 0);
    cr_assert_eq(spw_region_unlink(&path, SPW_REGION_FEED, 3, ours, NULL), 0);
    cr_assert_eq(attach(SPW_REGION_FEED, 0, NULL), -ENOENT);
    cr_assert_eq(spw_region_unlink(&path, SPW_REGION_FEED, 3, ours, NULL), 0);
    spw_region_detach(&region);
}

/* ---- case 28, case 20: what a mapping allows ------------------------------------------------- */

static struct spw_region child_region;

static int write_to_read_only(void *arg)
{
    struct spw_region region;
    if (spw_region_attach(&path, SPW_REGION_FEED, 3, false, 0, &region, NULL))
        return 1;
    if (mprotect(region.header, 4096, PROT_READ | PROT_WRITE) == 0 || errno != EACCES)
        return 2;
    spw_store_relaxed(&region.header->version, 7);
    return 3;
}

Test(region, case28_store_to_a_read_only_mapping_faults)
{
    make_dir();
    struct spw_region region = create(SPW_REGION_FEED, 4096);
    spw_region_publish(&region);
    run_child(write_to_read_only, SUPPORT_SIGNALLED + SIGSEGV);
    cr_assert_eq(spw_load_relaxed(&region.header->version), SPW_LAYOUT_VERSION);
    spw_region_detach(&region);
}

static int read_parents_mapping(void *arg)
{
    return (int)spw_load_relaxed(&child_region.header->version);
}

Test(region, case20_forked_child_has_no_mapping)
{
    make_dir();
    child_region = create(SPW_REGION_FEED, 4096);
    run_child(read_parents_mapping, SUPPORT_SIGNALLED + SIGSEGV);
    spw_region_detach(&child_region);
}

static int detach_parents_mapping(void *arg)
{
    void *at = child_region.header;
    char *mine = mmap(at, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mine != at)
        return 1;
    spw_region_detach(&child_region);
    mine[0] = 1; /* would fault if it had been unmapped */
    return child_region.header ? 2 : 0;
}

Test(region, case20_detach_in_a_forked_child_unmaps_nothing)
{
    make_dir();
    child_region = create(SPW_REGION_FEED, 4096);
    run_child(detach_parents_mapping, 0);
    spw_region_detach(&child_region);
}

/* The flags of the mapping that starts at @at, as the kernel tells them. */
static bool has_flag(const void *at, const char *flag)
{
    char line[512], start[32];
    bool inside = false, found = false;
    snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)at);
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, start, strlen(start)) == 0)
            inside = true;
        if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            found = strstr(line, flag);
            break;
        }
    }
    if (f)
        fclose(f);
    return found;
}

Test(region, sm13_payload_alone_is_left_out_of_core_dumps)
{
    make_dir();
    struct spw_region feed = create(SPW_REGION_FEED, 4096), data = create(SPW_REGION_DATA, 4096);
    cr_assert(has_flag(data.header, " dd"));
    cr_assert(!has_flag(feed.header, " dd"));
    cr_assert(has_flag(data.header, " dc") && has_flag(feed.header, " dc"));
    spw_region_detach(&feed);
    spw_region_detach(&data);
}

/* ---- names
 * ---------------------------------------------------------------------------------------- */

Test(region, sm12_names_are_checked)
{
    struct spw_pool_path p;
    struct spw_error err = {0};
    char long_name[SPW_POOL_NAME_BYTES + 2], out[SPW_PATH_BYTES];
    memset(long_name, 'a', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    const char *bad[] = {"", ".a", "a/b", "a b", "\xc3\xa4", "a\n", long_name};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(spw_pool_path_init(&p, NULL, bad[i], 1, &err), -EINVAL, "%s", bad[i]);
    long_name[SPW_POOL_NAME_BYTES] = 0;
    const char *good[] = {"a", "A-b_c.9", "-", long_name};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        cr_assert_eq(spw_pool_path_init(&p, NULL, good[i], 1, &err), 0, "%s", err.text);
    cr_assert_eq(spw_pool_path_init(&p, "relative", "a", 1, &err), -EINVAL);
    cr_assert_eq(spw_pool_path_init(&p, "", "a", 1, &err), -EINVAL);
    cr_assert_eq(spw_pool_path_init(&p, "/x//", "a", 4294967295u, &err), 0);
    spw_region_name(&p, SPW_REGION_CLIENT, 126, out);
    cr_assert_str_eq(out, "/x/spillway-4294967295-a.client.126");
    spw_region_name(&p, SPW_REGION_CTL, 0, out);
    cr_assert_str_eq(out, "/x/spillway-4294967295-a.ctl");
    spw_lock_name(&p, out);
    cr_assert_str_eq(out, "/x/spillway-4294967295-a.lock");
}
