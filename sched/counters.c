/* Names of what a client counts; see counters.h. */
#include "sched/counters.h"

#include "sched/verdict.h"
#include "shm/layout.h"

#define X(name, text) #name,
static const char *const names[] = {SPW_CLIENT_COUNTERS(X)};
#undef X
#define X(name, text) text,
static const char *const texts[] = {SPW_CLIENT_COUNTERS(X)};
#undef X

_Static_assert(SPW_CLIENT_COUNTER_COUNT <= SPW_COUNTERS_MAX, "client.c has room for them");
_Static_assert((int)SPW_CLIENT_lookups == (int)SPW_REASON_COUNT,
               "a counter a reason, in its order");

const char *spw_client_counter_name(uint32_t counter)
{
    return counter < SPW_CLIENT_COUNTER_COUNT ? names[counter] : NULL;
}

const char *spw_client_counter_text(uint32_t counter)
{
    return counter < SPW_CLIENT_COUNTER_COUNT ? texts[counter] : NULL;
}
