/* tools/placing: what the daemon says of where memory lies, and what a worker says of itself. */
#include "tools/placing.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/small_pool.h"
#include "tools/log.h"
#include "tools/show_place.h"

TestSuite(placing, .timeout = 30);

static struct spw_pool pool;
static struct spw_pool_config pool_config;
static struct spw_config config;
static struct spw_place place;
static char said[4096];
static FILE *out;

/* Two workers, both on node 0. */
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
        if (pool.region_data[k].memory_rc == -EPERM || pool.region_data[k].memory_rc == -ENOSYS)
            cr_skip("memory policies are denied here");
        cr_assert_eq(pool.region_data[k].memory_rc, 0);
        cr_assert_eq(pool.region_feed[k].memory_rc, 0);
    }
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

Test(placing, a_worker_finds_its_own_place_and_says_what_became_of_it, .init = begin, .fini = end)
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

Test(placing, TP_2_a_worker_of_no_known_node_says_so, .init = begin, .fini = end)
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
