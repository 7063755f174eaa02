/*
 * Budgets and prices as people write them, and what a wait may cost.
 */
#include "sched/recompute.h"
#include "sched/spillway.h"
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <locale.h>
#include <string.h>

TestSuite(recompute, .timeout = 10);

/* ---- the price ---- */

Test(recompute, a_wait_pays_up_to_the_price_and_no_nanosecond_longer)
{
    static const struct {
        uint64_t tokens, price, prefill, most_ns;
    } row[] = {
        {512, 4, 8000, 256000000},
        {1, 1, 1000000000, 1},
        {1, 1, 3, 333333333}, /* and a third */
        {2, 1, 3, 666666666},
        {3, 1, 3, 1000000000},
        {1, 1, 2000000000, 0}, /* half a nanosecond */
        {0, 4, 8000, 0},
        {1ull << 60, 1, UINT64_MAX, 62500000},
        {18446744073, 1, 1, 18446744073000000000u},
        {UINT64_MAX, 1, UINT64_MAX, 1000000000},
        {UINT64_MAX, 1000000, UINT64_MAX, 1000000000000000},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        cr_expect(spw_recompute_pays(row[i].most_ns, row[i].tokens, row[i].price, row[i].prefill),
                  "row %zu", i);
        cr_expect(not(spw_recompute_pays(row[i].most_ns + 1, row[i].tokens, row[i].price,
                                         row[i].prefill)),
                  "row %zu", i);
    }
}

Test(recompute, products_of_any_size_are_right)
{
    const uint64_t most = UINT64_MAX - 1; /* the longest known wait */

    cr_expect(spw_recompute_pays(most, 18446744074, 1, 1));
    cr_expect(spw_recompute_pays(most, UINT64_MAX, UINT64_MAX, UINT64_MAX));
    cr_expect(spw_recompute_pays(most, 1ull << 60, 1ull << 59, 1)); /* 0 in 128 bits */
    cr_expect(not(spw_recompute_pays(most, 1, 1, UINT64_MAX)));
    cr_expect(not(spw_recompute_pays(most, 1000000000, 1000000, UINT64_MAX)));
}

Test(recompute, an_unknown_wait_never_pays)
{
    cr_expect(not(spw_recompute_pays(UINT64_MAX, 1, 1, 1)));
    cr_expect(not(spw_recompute_pays(UINT64_MAX, UINT64_MAX, UINT64_MAX, 1)));
}

/* ---- readers ---- */

static const char *const no_numbers[] = {
    "",   "-1",   "-0",    "+5",  " 5",  "5 ", "1.5", "1,5", "1e3", "x", "0x10",
    "5x", "AUTO", "auto ", "aut", "inf", "5:", "5/",  "\t7", "7\n", "-", "\xc2\xb9"};

static void refuses_budget(const char *text)
{
    char words[200] = "";
    int64_t tokens = 77;

    cr_expect(eq(int, spw_recompute_budget_parse(text, &tokens, words, sizeof(words)), -EINVAL),
              "\"%s\"", text);
    cr_expect(eq(i64, tokens, 77), "\"%s\"", text);
    cr_expect(ne(ptr, strstr(words, text), NULL), "%s", words);
    cr_expect(ne(ptr, strstr(words, "max_recompute_pending_tokens"), NULL), "%s", words);
    cr_expect(ne(ptr, strstr(words, "0 to 9223372036854775807"), NULL), "%s", words);
    cr_expect(ne(ptr, strstr(words, "auto"), NULL), "%s", words);
}

static void refuses_price(const char *text)
{
    char words[200] = "";
    uint32_t price = 77;

    cr_expect(eq(int, spw_recompute_price_parse(text, &price, words, sizeof(words)), -EINVAL),
              "\"%s\"", text);
    cr_expect(eq(u32, price, 77), "\"%s\"", text);
    cr_expect(ne(ptr, strstr(words, text), NULL), "%s", words);
    cr_expect(ne(ptr, strstr(words, "recompute_price"), NULL), "%s", words);
    cr_expect(ne(ptr, strstr(words, "1 to 1000000"), NULL), "%s", words);
    cr_expect(ne(ptr, strstr(words, "queue"), NULL), "%s", words);
}

Test(recompute, budgets_are_read_whole)
{
    static const struct {
        const char *text;
        int64_t tokens;
    } row[] = {{"0", 0},
               {"5", 5},
               {"007", 7},
               {"8192", 8192},
               {"9223372036854775799", INT64_MAX - 8},
               {"9223372036854775807", INT64_MAX},
               {"auto", SPW_RECOMPUTE_AUTO}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        int64_t tokens = -1;
        cr_expect(eq(int, spw_recompute_budget_parse(row[i].text, &tokens, NULL, 0), 0), "%s",
                  row[i].text);
        cr_expect(eq(i64, tokens, row[i].tokens), "%s", row[i].text);
    }
}

Test(recompute, what_is_no_budget_is_refused_with_value_and_range)
{
    for (size_t i = 0; i < sizeof(no_numbers) / sizeof(no_numbers[0]); i++)
        refuses_budget(no_numbers[i]);
    refuses_budget("9223372036854775808");
    refuses_budget("18446744073709551616"); /* 2^64 */
    refuses_budget("18446744073709551621");
    refuses_budget("99999999999999999999999999999999999999999");
    refuses_budget("queue");
}

Test(recompute, prices_are_read_whole)
{
    static const struct {
        const char *text;
        uint32_t price;
    } row[] = {{"1", 1}, {"4", 4}, {"0004", 4}, {"1000000", 1000000}, {"queue", SPW_PRICE_QUEUE}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        uint32_t price = 77;
        cr_expect(eq(int, spw_recompute_price_parse(row[i].text, &price, NULL, 0), 0), "%s",
                  row[i].text);
        cr_expect(eq(u32, price, row[i].price), "%s", row[i].text);
    }
}

Test(recompute, what_is_no_price_is_refused_with_value_and_range)
{
    for (size_t i = 0; i < sizeof(no_numbers) / sizeof(no_numbers[0]); i++)
        refuses_price(no_numbers[i]);
    refuses_price("0");
    refuses_price("000");
    refuses_price("1000001");
    refuses_price("4294967295"); /* what queue is inside */
    refuses_price("4294967297");
    refuses_price("18446744073709551617");
    refuses_price("auto");
}

Test(recompute, a_missing_text_or_result_is_refused)
{
    int64_t tokens = 77;
    uint32_t price = 77;
    char words[200] = "";

    cr_expect(eq(int, spw_recompute_budget_parse(NULL, &tokens, words, sizeof(words)), -EINVAL));
    cr_expect(ne(ptr, strstr(words, "0 to 9223372036854775807"), NULL), "%s", words);
    cr_expect(eq(int, spw_recompute_price_parse(NULL, &price, words, sizeof(words)), -EINVAL));
    cr_expect(ne(ptr, strstr(words, "1 to 1000000"), NULL), "%s", words);
    cr_expect(eq(i64, tokens, 77));
    cr_expect(eq(u32, price, 77));
    cr_expect(eq(int, spw_recompute_budget_parse("5", NULL, NULL, 0), -EINVAL));
    cr_expect(eq(int, spw_recompute_budget_parse("auto", NULL, NULL, 0), -EINVAL));
    cr_expect(eq(int, spw_recompute_price_parse("5", NULL, NULL, 0), -EINVAL));
    cr_expect(eq(int, spw_recompute_price_parse("queue", NULL, NULL, 0), -EINVAL));
}

Test(recompute, words_fit_what_room_there_is)
{
    char words[8] = "unwrite";
    int64_t tokens;

    cr_expect(eq(int, spw_recompute_budget_parse("x", &tokens, words, 0), -EINVAL));
    cr_expect(eq(str, words, (char *)"unwrite"));
    cr_expect(eq(int, spw_recompute_budget_parse("x", &tokens, NULL, 0), -EINVAL));
    cr_expect(eq(int, spw_recompute_budget_parse("x", &tokens, words, 5), -EINVAL));
    cr_expect(eq(str, words, (char *)"max_"));
    cr_expect(eq(chr, words[5], 't'));
}

/* Digits of other scripts and grouping marks are no digits, whatever the locale says. */
Test(recompute, no_locale_changes_what_is_read)
{
    static const char *const locales[] = {"", "C.UTF-8", "de_DE.UTF-8", "ar_EG.UTF-8"};
    int64_t tokens;

    for (int i = 0; i < 4; i++) {
        setlocale(LC_ALL, locales[i]); /* those that aren't installed change nothing */
        refuses_budget("1.000");
        refuses_budget("1,000");
        refuses_budget("\xd9\xa5"); /* an Arabic five */
        refuses_price("\xd9\xa5");
        cr_expect(eq(int, spw_recompute_budget_parse("1000", &tokens, NULL, 0), 0));
        cr_expect(eq(i64, tokens, 1000));
    }
}
