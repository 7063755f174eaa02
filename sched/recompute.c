/* Budgets and prices: read and weighed; see recompute.h. No state. */
#include "sched/recompute.h"
#include "sched/spillway.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS 1000000000u

typedef unsigned __int128 wide;

bool spw_recompute_pays(uint64_t eta_ns, uint64_t tokens, uint64_t price, uint64_t prefill)
{
    const wide largest = ~(wide)0;
    wide wait = (wide)eta_ns * prefill, compute = (wide)tokens * price;

    /* where the right side doesn't fit, it is more than the left one can be */
    compute = compute > largest / SECOND_NS ? largest : compute * SECOND_NS;
    return eta_ns != UINT64_MAX && wait <= compute;
}

/* A whole number from @lowest to @highest, digits alone: true. */
static bool read_number(const char *text, uint64_t lowest, uint64_t highest, uint64_t *out_value)
{
    uint64_t value = 0;

    if (text == NULL || *text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        const uint64_t digit = (uint64_t)(*text - '0');
        if (*text < '0' || *text > '9' || value > (highest - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    *out_value = value;
    return value >= lowest;
}

static int refuse(char *error_text, uint64_t error_bytes, const char *option, const char *text,
                  const char *range)
{
    if (error_text != NULL)
        snprintf(error_text, error_bytes, "%s is \"%s\"; it must be %s", option,
                 text != NULL ? text : "", range);
    return -EINVAL;
}

int spw_recompute_budget_parse(const char *text, int64_t *out_tokens, char *error_text,
                               uint64_t error_bytes)
{
    uint64_t tokens;

    if (out_tokens == NULL)
        return -EINVAL;
    if (text != NULL && strcmp(text, "auto") == 0) {
        *out_tokens = SPW_RECOMPUTE_AUTO;
        return 0;
    }
    if (!read_number(text, 0, INT64_MAX, &tokens))
        return refuse(error_text, error_bytes, "max_recompute_pending_tokens", text,
                      "a whole number of tokens from 0 to 9223372036854775807, or auto");
    *out_tokens = (int64_t)tokens;
    return 0;
}

int spw_recompute_price_parse(const char *text, uint32_t *out_price, char *error_text,
                              uint64_t error_bytes)
{
    uint64_t price;

    if (out_price == NULL)
        return -EINVAL;
    if (text != NULL && strcmp(text, "queue") == 0) {
        *out_price = SPW_PRICE_QUEUE;
        return 0;
    }
    if (!read_number(text, 1, SPW_PRICE_MAX, &price))
        return refuse(error_text, error_bytes, "recompute_price", text,
                      "a whole number from 1 to 1000000, or queue");
    *out_price = (uint32_t)price;
    return 0;
}
