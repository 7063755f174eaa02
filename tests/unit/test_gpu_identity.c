/* Names of GPUs: printed, read back, and what is none. */
#include "tier/gpu_identity.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(gpu_identity, .timeout = 10);

static const uint8_t uuid[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
#define TEXT "01234567-89ab-cdef-fedc-ba9876543210"

Test(gpu_identity, a_uuid_is_read_as_it_is_printed_in_either_case)
{
    char text[SPW_GPU_UUID_TEXT];
    uint8_t back[16];
    spw_gpu_uuid_print(uuid, text);
    cr_expect_str_eq(text, "GPU-" TEXT);
    const char *good[] = {("GPU-" TEXT), TEXT, "GPU-01234567-89AB-CDEF-FEDC-BA9876543210"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        memset(back, 0, sizeof back);
        cr_expect(spw_gpu_uuid_parse(good[i], back), "%s", good[i]);
        cr_expect_eq(memcmp(back, uuid, sizeof uuid), 0, "%s", good[i]);
    }
}

Test(gpu_identity, a_uuid_is_the_same_after_its_way_through_two_words)
{
    uint64_t words[2];
    uint8_t back[16] = {0};
    spw_gpu_uuid_to_words(uuid, words);
    cr_expect_eq(words[0], 0x0123456789abcdefull);
    cr_expect_eq(words[1], 0xfedcba9876543210ull);
    spw_gpu_uuid_of_words(words, back);
    cr_expect_eq(memcmp(back, uuid, sizeof uuid), 0);
}

Test(gpu_identity, what_is_no_uuid_is_refused_and_nothing_written)
{
    const char *bad[] = {"",
                         "GPU-",
                         "0",
                         "GPU-01234567-89ab-cdef-fedc-ba987654321",
                         ("GPU-" TEXT "0"),
                         "GPU-0123456789abcdeffedcba9876543210",
                         "GPU-0123456g-89ab-cdef-fedc-ba9876543210",
                         ("gpu-" TEXT)};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t back[16] = {7};
        cr_expect(!spw_gpu_uuid_parse(bad[i], back), "%s", bad[i]);
        cr_expect_eq(back[0], 7);
    }
}

Test(gpu_identity, a_pci_address_is_read_in_its_usual_forms)
{
    char text[SPW_GPU_BUS_TEXT];
    uint64_t bus = 0;
    cr_assert(spw_gpu_bus_parse("0001:3b:1f.7", &bus));
    cr_expect_eq(bus, 0x13bfful);
    spw_gpu_bus_print(bus, text);
    cr_expect_str_eq(text, "0001:3b:1f.7");
    cr_expect(spw_gpu_bus_parse("00000001:3B:1F.7", &bus) && bus == 0x13bfful);
    cr_expect(spw_gpu_bus_parse("3b:00.0", &bus) && bus == 0x3b00ul);
    const char *bad[] = {"",        "3b",       "3b:00",         "3b:20.0",
                         "3b:00.8", "3b:00.0 ", "10000:3b:00.0", "0000:3b:00.0.0",
                         "GPU",     "1:2:3:4.0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bus = 99;
        cr_expect(!spw_gpu_bus_parse(bad[i], &bus), "%s", bad[i]);
        cr_expect_eq(bus, 99);
    }
    spw_gpu_bus_print(UINT64_MAX, text);
    cr_expect_str_eq(text, "?");
}

Test(gpu_identity, CU_7_one_gpu_answers_to_its_three_names_and_no_other)
{
    struct spw_gpu_identity gpu = {.bus = 0x3b00, .ordinal = 12};
    memcpy(gpu.uuid, uuid, sizeof uuid);
    cr_expect(spw_gpu_matches(&gpu, "GPU-" TEXT));
    cr_expect(spw_gpu_matches(&gpu, "0000:3b:00.0"));
    cr_expect(spw_gpu_matches(&gpu, "12"));
    const char *others[] = {
        "GPU-11234567-89ab-cdef-fedc-ba9876543210", "0000:3c:00.0", "1", "", "12x", "x"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        cr_expect(!spw_gpu_matches(&gpu, others[i]), "%s", others[i]);
    cr_expect(spw_gpu_which_is_valid("0") && spw_gpu_which_is_valid("3b:00.0"));
    cr_expect(!spw_gpu_which_is_valid("") && !spw_gpu_which_is_valid("1234"));
}
