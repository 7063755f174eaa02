/* When a GPU is given up, and what its worker's feed says of it in words. */
#include "shm/text.h"
#include "tools/gpu_faults.h"
#include "tools/gpu_words.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(gpu_faults, .timeout = 10);

#define SECOND_NS 1000000000ull

Test(gpu_faults, so_many_restarts_are_made_and_no_more)
{
    struct spw_gpu_faults faults = {0};
    for (uint32_t i = 0; i < 5; i++)
        cr_expect(!spw_gpu_faults_add(&faults, SECOND_NS, 5), "failure %u", i + 1);
    cr_expect(spw_gpu_faults_add(&faults, SECOND_NS, 5));
    cr_expect_eq(faults.count, 6);
}

Test(gpu_faults, with_no_restarts_the_first_failure_is_the_last)
{
    struct spw_gpu_faults faults = {0};
    cr_expect(spw_gpu_faults_add(&faults, 0, 0));
}

Test(gpu_faults, a_worker_that_ran_long_starts_the_count_anew)
{
    struct spw_gpu_faults faults = {0};
    for (uint32_t i = 0; i < 100; i++)
        cr_expect(!spw_gpu_faults_add(&faults, SPW_GPU_FORGET_NS, 1));
    cr_expect(!spw_gpu_faults_add(&faults, SPW_GPU_FORGET_NS, 1));
    cr_expect(spw_gpu_faults_add(&faults, SPW_GPU_FORGET_NS - 1, 1));
}

static struct spw_feed_head *feed;

static void make(void)
{
    feed = aligned_alloc(64, sizeof *feed);
    memset((void *)feed, 0, sizeof *feed);
}

TestSuite(gpu_words, .timeout = 10, .init = make);

Test(gpu_words, a_gpu_is_named_by_uuid_and_address_once_they_are_known)
{
    char name[SPW_GPU_NAME_BYTES];
    cr_expect_str_eq(spw_gpu_words_name(feed, 3, name), "worker 3's GPU");
    spw_store_relaxed(&feed->gpu.uuid[0], 0x0123456789abcdefull);
    spw_store_relaxed(&feed->gpu.uuid[1], 0xfedcba9876543210ull);
    spw_store_relaxed(&feed->gpu.bus, 0x13b08);
    cr_expect_str_eq(spw_gpu_words_name(feed, 3, name),
                     "worker 3's GPU (GPU-01234567-89ab-cdef-fedc-ba9876543210, 0001:3b:01.0)");
    spw_store_relaxed(&feed->gpu.bus, SPW_BUS_UNKNOWN);
    cr_expect_str_eq(spw_gpu_words_name(feed, 3, name),
                     "worker 3's GPU (GPU-01234567-89ab-cdef-fedc-ba9876543210, ?)");
}

Test(gpu_words, text_is_kept_whole_or_cut_and_a_shorter_one_leaves_no_rest)
{
    char text[SPW_GPU_WORDS_BYTES], longer[2 * SPW_GPU_WORDS_BYTES];
    cr_expect_str_eq(spw_gpu_words_text(feed, text), "");
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    spw_text_store(feed->gpu_text, SPW_GPU_TEXT_WORDS, longer);
    cr_expect_eq(strlen(spw_gpu_words_text(feed, text)), SPW_GPU_TEXT_WORDS * 8 - 1);
    spw_text_store(feed->gpu_text, SPW_GPU_TEXT_WORDS, "no CUDA driver");
    cr_expect_str_eq(spw_gpu_words_text(feed, text), "no CUDA driver");
}
