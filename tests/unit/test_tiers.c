/* What `spillway ls` says of the lines that workers keep: any bytes are taken. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tiers.h"

TestSuite(tiers, .timeout = 20);

static struct spw_pool pool;
static struct spw_tiers_view view;

static void make(void)
{
    pool.geometry.workers = 2;
    pool.lock_fd = -1; /* nobody is known to be gone */
    for (uint32_t k = 0; k < 2; k++) {
        pool.feed[k] = calloc(1, sizeof *pool.feed[k]);
        cr_assert(pool.feed[k]);
    }
}

static void set(uint32_t k, uint32_t tier, uint64_t state, uint64_t mode, uint64_t entries)
{
    struct spw_tier_record *record = &pool.feed[k]->tier[tier];
    spw_store_relaxed(&record->state, state);
    spw_store_relaxed(&record->mode, mode);
    spw_store_relaxed(&record->entries, entries);
    spw_store_relaxed(&record->capacity_bytes, 1000);
    spw_store_relaxed(&record->used_bytes, 10 * entries);
    spw_store_relaxed(&record->leased, 2);
    spw_store_relaxed(&record->evictable, entries - 2);
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "absent";
}

Test(tiers, io10_each_tier_of_each_worker_is_a_line_with_what_was_measured, .init = make)
{
    set(0, SPW_TIER_HOST, SPW_TIER_UP, 0, 7);
    set(0, SPW_TIER_NVME, SPW_TIER_UP, SPW_TIER_DIRECT | SPW_TIER_URING, 50);
    set(1, SPW_TIER_HOST, SPW_TIER_UP, 0, 3);
    memcpy(pool.feed[0]->tier_text, "memory is not registered", 24);
    spw_tiers_read(&pool, &view);
    json_t *tiers = spw_tiers_json(&view);
    cr_assert_eq(json_array_size(tiers), 3, "a worker without a tier below has no line of it");
    const json_t *nvme = json_array_get(tiers, 1);
    cr_expect_str_eq(text_of(nvme, "tier"), "nvme");
    cr_expect_str_eq(text_of(nvme, "state"), "up");
    cr_expect_str_eq(text_of(nvme, "io_mode"), "direct");
    cr_expect_str_eq(text_of(nvme, "io_engine"), "uring");
    cr_expect_str_eq(text_of(nvme, "text"), "memory is not registered");
    cr_expect(json_is_false(json_object_get(nvme, "registered")));
    cr_expect_eq(json_integer_value(json_object_get(nvme, "entries")), 50);
    cr_expect_eq(json_integer_value(json_object_get(nvme, "used_bytes")), 500);
    cr_expect_eq(json_integer_value(json_object_get(nvme, "evictable")), 48);
    const json_t *host = json_array_get(tiers, 2);
    cr_expect_str_eq(text_of(host, "tier"), "host");
    cr_expect_eq(json_integer_value(json_object_get(host, "worker")), 1);
    cr_expect(!json_object_get(host, "io_mode"));
    json_decref(tiers);
}

Test(tiers, noise_is_shown_as_noise, .init = make)
{
    memset(pool.feed[0]->tier_text, 0x9b, sizeof pool.feed[0]->tier_text);
    set(0, SPW_TIER_NVME, 77, UINT64_MAX, 1);
    spw_tiers_read(&pool, &view);
    cr_expect_eq(strlen(view.text[0]), sizeof view.text[0] - 1);
    cr_expect_eq(view.text[0][0], '?');
    json_t *tiers = spw_tiers_json(&view);
    cr_expect_str_eq(text_of(json_array_get(tiers, 0), "state"), "?");
    json_decref(tiers);
}

Test(tiers, of_a_tier_that_is_down_and_a_worker_that_is_gone_nothing_is_measured, .init = make)
{
    set(0, SPW_TIER_NVME, SPW_TIER_DOWN, SPW_TIER_URING | SPW_TIER_REGISTERED, 9);
    set(1, SPW_TIER_NVME, SPW_TIER_UP, SPW_TIER_URING | SPW_TIER_REGISTERED, 9);
    spw_tiers_read(&pool, &view);
    cr_expect(!view.gone[0] && !view.gone[1]);
    view.gone[1] = true;
    json_t *tiers = spw_tiers_json(&view);
    const json_t *down = json_array_get(tiers, 0), *gone = json_array_get(tiers, 1);
    cr_expect_str_eq(text_of(down, "state"), "down");
    cr_expect(!json_object_get(down, "io_engine"));
    cr_expect_str_eq(text_of(gone, "state"), "gone");
    cr_expect(!json_object_get(gone, "io_engine"));
    cr_expect_eq(json_integer_value(json_object_get(gone, "leased")), 0);
    json_decref(tiers);
}
