/* States of an entry as two tables. Pure. */
#include "tier/state.h"

static const bool allowed[SPW_STATE_COUNT][SPW_STATE_COUNT] = {
    [SPW_FREE][SPW_FILLING] = true,    [SPW_FILLING][SPW_READY] = true,
    [SPW_FILLING][SPW_RETIRED] = true, [SPW_READY][SPW_RETIRED] = true,
    [SPW_RETIRED][SPW_FREE] = true,    [SPW_FREE][SPW_COLD] = true,
    [SPW_FREE][SPW_BACKED] = true,     [SPW_COLD][SPW_BACKED] = true,
    [SPW_BACKED][SPW_COLD] = true,     [SPW_COLD][SPW_FREE] = true,
    [SPW_BACKED][SPW_FREE] = true,
};

static const char *const names[SPW_STATE_COUNT] = {
    [SPW_FREE] = "FREE",       [SPW_FILLING] = "FILLING", [SPW_READY] = "READY",
    [SPW_RETIRED] = "RETIRED", [SPW_COLD] = "COLD",       [SPW_BACKED] = "BACKED",
};

bool spw_state_may(uint32_t from, uint32_t to)
{
    return from < SPW_STATE_COUNT && to < SPW_STATE_COUNT && allowed[from][to];
}

const char *spw_state_name(uint32_t state)
{
    return state < SPW_STATE_COUNT ? names[state] : "?";
}
