/* See wait_rig.h. */
#include "tests/support/wait_rig.h"

#include <assert.h>

struct api api;
struct spw_client *client;
struct spw_space *space;
struct spw_space_config space_config;

const struct rig_config one_worker = {.workers = 1, .capacity = 16};

static void must(bool well)
{
    assert(well);
    (void)well;
}

void wait_open(const struct rig_config *config)
{
    api_open(&api, config);
    client = api_attach(&api, 0);
    space_config = api_space_config(config->workers);
    space_config.wait_limit_ns = 500 * MS;
    space_config.retry_limit_ns = 50 * MS;
    space = api_space(&api, client, &space_config);
}

void wait_close(void)
{
    spw_detach(client);
    api_close(&api);
}

struct spw_completion wait_pend(uint64_t first, uint32_t count)
{
    struct spw_request *stores = api_request(space, first, count);
    struct spw_completion done = api_reserve(&api, stores, client, 0, 0, count);
    must(done.status == 0);
    return done;
}

void wait_settle(const struct spw_completion *reserved)
{
    must(api_run(client, &reserved->ticket, 0, 1) == 0);
    must(api_complete(&api, client).status == 0);
}

int wait_woken(struct spw_request **out, uint32_t max)
{
    must(spw_step_begin(client) >= 0);
    int n = spw_woken(client, out, max);
    must(spw_step_end(client) == 0);
    return n;
}

uint32_t wait_awaited(const struct spw_client *of, uint32_t shard)
{
    const spw_atomic64 *bits = spw_client_awaited_bits(of->own, shard);
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < of->own->slots; slot++)
        count += (uint32_t)spw_bit_test(bits, slot);
    return count;
}

struct spw_wait_histogram wait_ended(enum spw_wait_outcome outcome)
{
    struct spw_wait_histogram histogram;
    must(spw_waits(client, outcome, &histogram) == 0);
    return histogram;
}

uint64_t wait_ended_all(void)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < SPW_WAIT_OUTCOMES; i++)
        count += wait_ended((enum spw_wait_outcome)i).count;
    return count;
}

struct spw_explained wait_explained(void)
{
    struct spw_explained last;
    uint64_t first, end;
    spw_explain_range(client->own->head, &first, &end);
    must(first != end);
    must(spw_explain_read(client->own->head, end - 1, &last) == 0);
    return last;
}
