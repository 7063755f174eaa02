/* Names and meanings of a worker's counters, from the one list. Static. */
#include "tier/counters.h"
#include "shm/layout.h"

_Static_assert(SPW_WORKER_COUNTER_COUNT <= SPW_COUNTERS_MAX, "counters of a feed");

#define X(name, text) [SPW_WORKER_##name] = #name,
static const char *const names[SPW_WORKER_COUNTER_COUNT] = {SPW_WORKER_COUNTERS(X)};
#undef X

#define X(name, text) [SPW_WORKER_##name] = text,
static const char *const texts[SPW_WORKER_COUNTER_COUNT] = {SPW_WORKER_COUNTERS(X)};
#undef X

const char *spw_worker_counter_name(enum spw_worker_counter counter)
{
    return (uint32_t)counter < SPW_WORKER_COUNTER_COUNT ? names[counter] : "?";
}

const char *spw_worker_counter_text(enum spw_worker_counter counter)
{
    return (uint32_t)counter < SPW_WORKER_COUNTER_COUNT ? texts[counter] : "?";
}
