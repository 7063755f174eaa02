#ifndef SPW_TOOLS_ROUTE_H
#define SPW_TOOLS_ROUTE_H
/*
 * Which engine of a replay gets a request: a function of its place in the trace, so that processes
 * agree on it without a word. Round robin, or at random: then each request falls by itself.
 */
#include <stdbool.h>
#include <stdint.h>

enum spw_route_rule { SPW_ROUTE_ROUND_ROBIN, SPW_ROUTE_RANDOM };

struct spw_route {
    uint32_t engines;
    enum spw_route_rule rule;
    uint64_t seed; /* of random */
};

static inline uint32_t spw_route_engine(const struct spw_route *route, uint64_t request)
{
    uint64_t x;

    if (route->rule == SPW_ROUTE_ROUND_ROBIN)
        return (uint32_t)(request % route->engines);
    /* the finaliser of splitmix64 over a sequence that the seed starts */
    x = (route->seed + 1) * 0xd1342543de82ef95ull + (request + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((x ^ (x >> 31)) % route->engines);
}

#endif
