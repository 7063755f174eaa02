/* tools/placing: what the daemon says of where memory lies, and what a worker says of itself. */
#include "tools/placing.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/pin.h"
#include "shm/alive.h"
#include "tests/support/small_pool.h"
#include "tools/log.h"
#include "tools/place_watch.h"
#include "tools/show_place.h"

TestSuite(placing, .timeout = 30);

static struct spw_pool pool;
static struct spw_pool_config pool_config;
static struct spw_config config;
static struct spw_place place;
static char said[4096];
static FILE *out;
static int refused; /* memory policies are: the errno */

/* Two workers, both on node 0; where that is denied it is as if it had been done. */
static void begin(void)
{
    struct spw_error err = {0};
    out = fmemopen(said, sizeof said, "w");
    setbuf(out, NULL);
    spw_log_open(&(struct spw_log_config){.program = "test", .out = out});
    cr_assert_eq(small_pool_config(&small_pool_two, &pool_config), 0);
    place = (struct spw_place){.carried_out = true, .workers = 2};
    for (uint32_t k = 0; k < 2; k++)
        place.worker[k] = (struct spw_place_worker){.source = SPW_PLACE_CONFIGURED,
                                                    .node_known = true,
                                                    .cpus_why = SPW_PLACE_ANYWHERE,
                                                    .memory = {SPW_MEMORY_BIND, {1}}};
    spw_placing_apply(&place, &pool_config);
    cr_assert_eq(spw_pool_create(&pool_config, &pool, &err), 0, "%s", err.text);
    for (uint32_t k = 0; k < 2; k++) {
        refused = pool.region_data[k].memory_rc;
        cr_assert_eq(pool.region_feed[k].memory_rc, refused);
        cr_assert(refused == 0 || refused == -EPERM || refused == -ENOSYS, "%d", refused);
        pool.region_data[k].memory_rc = pool.region_feed[k].memory_rc = 0;
    }
}

/* The same where the kernel is asked for it again, or where pages are. */
static void begin_bound(void)
{
    begin();
    if (refused)
        cr_skip("memory policies are denied here");
}

static void end(void)
{
    spw_pool_unlink(&pool, NULL);
    spw_pool_detach(&pool);
    spw_log_open(&(struct spw_log_config){0});
    fclose(out);
}

/* All pages are on node *ctx. */
static int on_node(void *ctx, void *const *page, uint32_t count, int *out_node)
{
    for (uint32_t i = 0; i < count; i++)
        out_node[i] = *(int *)ctx;
    return 0;
}

static int denied(void *ctx, void *const *page, uint32_t count, int *out_node)
{
    return -EPERM;
}

static uint32_t lines(void)
{
    uint32_t count = 0;
    for (const char *at = said; (at = strchr(at, '\n')); at++)
        count++;
    return count;
}

Test(placing, TP_1_memory_on_its_node_is_nothing_to_speak_of, .init = begin, .fini = end)
{
    int node = 0;
    config.placement = SPW_PLACEMENT_STRICT;
    cr_expect_eq(spw_placing_check(&place, &config, &pool, on_node, &node), 0);
    cr_expect_eq(lines(), 0, "%s", said);
}

Test(placing, TP_1_pages_elsewhere_are_a_warning_with_their_share, .init = begin, .fini = end)
{
    int node = 1;
    cr_expect_eq(spw_placing_check(&place, &config, &pool, on_node, &node), 0);
    cr_expect(
        strstr(said, "warning: placement: 0.0 % of sampled pages of worker 0 lie on its node"),
        "%s", said);
}

Test(placing, TP_1_strict_refuses_with_the_share, .init = begin, .fini = end)
{
    int node = 1;
    config.placement = SPW_PLACEMENT_STRICT;
    cr_expect_lt(spw_placing_check(&place, &config, &pool, on_node, &node), 0);
    cr_expect(strstr(said, "error: placement: 0.0 % of sampled pages of worker 1"), "%s", said);
}

Test(placing, TP_1_memory_that_was_taken_over_says_how_it_is_placed_anew, .init = begin,
     .fini = end)
{
    int node = 1;
    pool.warm = true;
    spw_placing_check(&place, &config, &pool, on_node, &node);
    cr_expect(strstr(said, "--cold"), "%s", said);
    cr_expect(spw_set_has(&place.far, 0) && spw_set_has(&place.far, 1));
}

Test(placing, TP_3_denied_memory_policies_are_one_warning_of_all_workers, .init = begin,
     .fini = end)
{
    int node = 0;
    pool.region_data[0].memory_rc = pool.region_data[1].memory_rc = -EPERM;
    cr_expect_eq(spw_placing_check(&place, &config, &pool, on_node, &node), 0);
    cr_expect_eq(lines(), 1, "%s", said);
    cr_expect(strstr(said, "warning") && strstr(said, "CAP_SYS_NICE"), "%s", said);
    config.placement = SPW_PLACEMENT_STRICT;
    cr_expect_eq(spw_placing_check(&place, &config, &pool, on_node, &node), -EPERM);
    cr_expect(strstr(said, "error"), "%s", said);
}

Test(placing, TP_3_strict_refuses_what_it_cannot_see, .init = begin, .fini = end)
{
    config.placement = SPW_PLACEMENT_STRICT;
    cr_expect_eq(spw_placing_check(&place, &config, &pool, denied, NULL), -EPERM);
    cr_expect(strstr(said, "can't be seen"), "%s", said);
}

Test(placing, a_plan_for_another_host_is_not_looked_for, .init = begin, .fini = end)
{
    place.carried_out = false;
    config.placement = SPW_PLACEMENT_STRICT;
    cr_expect_eq(spw_placing_check(&place, &config, &pool, denied, NULL), 0);
    int fd = spw_placing_open(&place);
    cr_expect(!spw_placing_read(fd, 0, &place.worker[0]));
    close(fd);
    struct spw_pool_config untouched = {0};
    spw_placing_apply(&place, &untouched);
    cr_expect_eq(untouched.shard_memory[0].kind, SPW_MEMORY_ANY);
}

static const char *text_of(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_string(value) ? json_string_value(value) : json_is_null(value) ? "null" : "?";
}

Test(placing, a_worker_finds_its_own_place_and_says_what_became_of_it, .init = begin_bound,
     .fini = end)
{
    struct spw_place_worker mine;
    place.worker[1].cpus_why = SPW_PLACE_CPUS_OF_NODE;
    place.worker[1].cpus.word[0] = 1;
    int fd = spw_placing_open(&place);
    cr_assert(spw_placing_read(fd, 1, &mine));
    cr_expect_eq(mine.cpus.word[0], 1);
    cr_expect(!spw_placing_read(fd, 2, &mine));
    close(fd);
    spw_placing_take(&place.worker[1], &pool, 1);
    json_t *shown = spw_show_place_json(&pool, 1);
    cr_expect_eq(json_integer_value(json_object_get(shown, "node")), 0);
    cr_expect_eq(json_integer_value(json_object_get(shown, "cpus")), 1);
    cr_expect_str_eq(text_of(shown, "mem_bind"), "bound");
    cr_expect_eq(json_integer_value(json_object_get(shown, "near_permille")), 1000);
    json_decref(shown);
}

Test(placing, TP_2_a_worker_of_no_known_node_says_so, .init = begin_bound, .fini = end)
{
    struct spw_place_worker mine = {.source = SPW_PLACE_UNKNOWN,
                                    .node = UINT32_MAX,
                                    .cpus_why = SPW_PLACE_ANYWHERE,
                                    .memory = {SPW_MEMORY_INTERLEAVE, {1}}};
    spw_placing_take(&mine, &pool, 0);
    json_t *shown = spw_show_place_json(&pool, 0);
    cr_expect_str_eq(text_of(shown, "node"), "null");
    cr_expect_str_eq(text_of(shown, "mem_bind"), "interleaved");
    cr_expect_str_eq(text_of(shown, "near_permille"), "null");
    json_decref(shown);
    spw_placing_take(NULL, &pool, 0);
    shown = spw_show_place_json(&pool, 0);
    cr_expect_str_eq(text_of(shown, "mem_bind"), "unbound");
    cr_expect_str_eq(text_of(shown, "cpu_bind"), "unbound");
    json_decref(shown);
}

Test(placing, TP_4_a_worker_away_from_its_node_says_so_of_cpus_and_memory, .init = begin_bound,
     .fini = end)
{
    struct spw_place_worker mine = place.worker[0];
    mine.cpus_why = SPW_PLACE_CPUS_ALLOWED;
    spw_set_add(&mine.cpus, (uint32_t)sched_getcpu());
    mine.elsewhere = true;
    mine.memory.kind = SPW_MEMORY_INTERLEAVE;
    spw_placing_take(&mine, &pool, 0);
    json_t *shown = spw_show_place_json(&pool, 0);
    cr_expect_eq(json_integer_value(json_object_get(shown, "node")), 0);
    cr_expect_str_eq(text_of(shown, "cpu_bind"), "elsewhere");
    cr_expect_str_eq(text_of(shown, "mem_bind"), "elsewhere");
    cr_expect_str_eq(text_of(shown, "memory_node"), "null");
    cr_expect_str_eq(text_of(shown, "near_permille"), "null");
    json_decref(shown);
}

Test(placing, TP_3_a_feed_that_cant_be_placed_is_told_too, .init = begin, .fini = end)
{
    int node = 0;
    pool.region_feed[1].memory_rc = -ENOSYS;
    cr_expect_eq(spw_placing_check(&place, &config, &pool, on_node, &node), 0);
    cr_expect(strstr(said, "mbind of worker 1") && strstr(said, "seccomp"), "%s", said);
}

/* ---- once memory is touched and pinned ---------------------------------------------------------- */

struct seen {
    cpu_set_t wanted;
    spw_atomic32 elsewhere, unplaced, looked;
    spw_atomic32 done;
};

static int touch(void *ctx, uint8_t *start, uint64_t bytes)
{
    struct seen *seen = ctx;
    cpu_set_t mine;
    int mode = -1;
    sched_getaffinity(0, sizeof mine, &mine);
    syscall(SYS_get_mempolicy, &mode, NULL, 0ul, start, 2ul /* MPOL_F_ADDR */);
    spw_store_relaxed(&seen->looked, 1);
    if (!CPU_EQUAL(&mine, &seen->wanted))
        spw_store_relaxed(&seen->elsewhere, 1);
    if (mode != 2 /* MPOL_BIND */)
        spw_store_relaxed(&seen->unplaced, 1);
    return 0;
}

static int add(void *ctx, void *start, uint64_t bytes, bool writable, const char **out_name)
{
    return 0;
}

static void remove_one(void *ctx, void *start)
{
}

static void pinned(void *ctx)
{
    struct seen *seen = ctx;
    /* nobody has been told yet */
    spw_store_relaxed(&seen->done,
                      spw_load_relaxed(&pool.feed[0]->gpu.pin_state) == SPW_PIN_RUNNING ? 1 : 2);
}

/* Two nodes with a CPU each, a GPU on the second. */
static struct spw_place_worker worker_of(uint32_t cpu)
{
    struct spw_topology topology = {.here = true, .node_count = 2, .gpu_count = 1};
    char err[256];
    char *argv[] = {(char *)"spillwayd"};
    for (uint32_t n = 0; n < 2; n++) {
        topology.node[n] = (struct spw_topology_node){
            .number = n, .normal = true, .available_bytes = SPW_TOPOLOGY_UNKNOWN};
        spw_set_add(&topology.nodes, n);
        spw_set_add(&topology.node[n].cpus, n ? cpu : cpu + 1);
    }
    spw_set_add(&topology.cpus, cpu);
    spw_set_add(&topology.cpus, cpu + 1);
    topology.gpu[0] =
        (struct spw_topology_gpu){.bus = 0x1000, .source = SPW_TOPOLOGY_HWLOC, .node = 1};
    cr_assert_eq(spw_config_parse(1, argv, &config, err, sizeof err), 0, "%s", err);
    cr_assert_eq(spw_place_decide(&topology, &config, NULL, &place), 0);
    return place.worker[0];
}

Test(placing, memory_is_touched_on_the_cpus_that_were_chosen_after_it_has_its_policy,
     .init = begin_bound, .fini = end)
{
    struct seen seen = {.looked = 0};
    struct spw_pin *pin = NULL;
    struct spw_error err = {0};
    uint32_t cpu = (uint32_t)sched_getcpu();
    struct spw_place_worker mine = worker_of(cpu);
    cr_assert_eq(mine.node, 1);
    mine.node = 0; /* there is no other here */
    mine.memory = (struct spw_memory){SPW_MEMORY_BIND, {1}};
    CPU_ZERO(&seen.wanted);
    CPU_SET(cpu, &seen.wanted);
    spw_placing_take(&mine, &pool, 0);
    struct spw_pin_config pin_config = {
        .backend = {.add = add, .remove = remove_one},
        .shards = 1,
        .slot_bytes = pool.geometry.slot_bytes,
        .threads = 3,
        .memory = {{pool.data[0], (uint64_t)pool.geometry.slots * pool.geometry.slot_bytes}},
        .lock_fd = pool.lock_fd,
        .pinning = &pool.ctl->pinning,
        .record = &pool.feed[0]->gpu,
        .done = pinned,
        .touch = touch,
        .ctx = &seen,
    };
    cr_assert_eq(spw_pin_open(&pin_config, &pin, &err), 0, "%s", err.text);
    while (spw_load_acquire(&pool.feed[0]->gpu.pin_state) == SPW_PIN_RUNNING)
        usleep(1000);
    cr_expect_eq(spw_load_relaxed(&pool.feed[0]->gpu.pin_state), SPW_PIN_DONE);
    spw_pin_close(pin);
    cr_expect_gt(spw_load_relaxed(&seen.looked), 0);
    cr_expect_eq(spw_load_relaxed(&seen.elsewhere), 0);
    cr_expect_eq(spw_load_relaxed(&seen.unplaced), 0);
    cr_expect_eq(spw_load_relaxed(&seen.done), 1);
}

static struct spw_place_watch watch;

/* As a worker says it of itself: bound to node 0, and how many pages lie there. */
static struct spw_gpu_record *say(uint64_t near, uint64_t pin_state)
{
    struct spw_gpu_record *record = &pool.feed[1]->gpu;
    spw_store_relaxed(&record->memory_bind, SPW_BIND_DONE);
    spw_store_relaxed(&record->near_permille, near);
    spw_store_relaxed(&record->pin_state, pin_state);
    return record;
}

static int look(void)
{
    return spw_place_watch_look(&watch, &config, &place, 1, pool.feed[1]);
}

Test(placing, TP_1_pages_seen_elsewhere_once_they_are_touched_are_one_warning, .init = begin,
     .fini = end)
{
    say(989, SPW_PIN_RUNNING);
    cr_expect(look() == 0 && lines() == 0, "not before it is done");
    say(990, SPW_PIN_DONE);
    cr_expect(look() == 0 && lines() == 0, "%s", said);
    say(SPW_NEAR_UNKNOWN, SPW_PIN_DONE);
    cr_expect(look() == 0 && lines() == 0, "%s", said);
    spw_store_relaxed(&say(989, SPW_PIN_DONE)->memory_bind, SPW_BIND_DENIED);
    cr_expect(look() == 0 && lines() == 0, "denied was told before: %s", said);
    say(989, SPW_PIN_DONE);
    cr_expect_eq(look() + look(), 0);
    cr_expect_eq(lines(), 1, "%s", said);
    cr_expect(strstr(said, "warning: placement: 98.9 % of sampled pages of worker 1"), "%s", said);
}

Test(placing, TP_1_strict_refuses_those_too_and_what_was_said_at_the_start_isnt_said_again,
     .init = begin, .fini = end)
{
    say(0, SPW_PIN_NONE);
    spw_set_add(&place.far, 1);
    cr_expect(look() == 0 && lines() == 0, "%s", said);
    place.far = (struct spw_set){{0}};
    config.placement = SPW_PLACEMENT_STRICT;
    cr_expect_eq(look(), -EREMOTE);
    cr_expect(strstr(said, "error: placement: 0.0 %"), "%s", said);
}

Test(placing, CU_7_another_gpu_than_the_place_was_chosen_for_is_told_once_a_worker, .init = begin,
     .fini = end)
{
    struct spw_gpu_record *record = &pool.feed[1]->gpu;
    place.worker[1].gpu_found = true;
    place.worker[1].gpu.bus = 0x1000;
    spw_store_relaxed(&record->bus, 0x9000);
    spw_place_watch_up(&watch, &place, 1, pool.feed[1]);
    cr_expect_eq(lines(), 0, "the host copies");
    spw_store_relaxed(&record->kind, SPW_COPIER_CUDA);
    spw_store_relaxed(&record->bus, 0x1000);
    spw_place_watch_up(&watch, &place, 1, pool.feed[1]);
    spw_store_relaxed(&record->bus, SPW_BUS_UNKNOWN);
    spw_place_watch_up(&watch, &place, 1, pool.feed[1]);
    place.worker[1].gpu.bus = SPW_TOPOLOGY_UNKNOWN;
    spw_store_relaxed(&record->bus, 0x9000);
    spw_place_watch_up(&watch, &place, 1, pool.feed[1]);
    place.worker[1].gpu.bus = 0x1000;
    place.carried_out = false;
    spw_place_watch_up(&watch, &place, 1, pool.feed[1]);
    cr_expect_eq(lines(), 0, "%s", said);
    place.carried_out = true;
    spw_place_watch_up(&watch, &place, 1, pool.feed[1]);
    spw_place_watch_up(&watch, &place, 1, pool.feed[1]);
    cr_expect_eq(lines(), 1, "%s", said);
    cr_expect(strstr(said, "0000:90:00.0") && strstr(said, "0000:10:00.0") && strstr(said, "--gpu"),
              "%s", said);
}
