/* The installed API over a tiny pool whose workers are driven pass by pass. */
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>

TestSuite(api, .timeout = 20);

static struct api api;

Test(api, a_stored_prompt_is_found_and_loaded_byte_for_byte)
{
    const struct rig_config config = {.workers = 1};
    api_open(&api, &config);
    struct spw_client *client = api_attach(&api, 0);
    struct spw_space_config space_config = api_space_config(1);
    struct spw_space *space = api_space(&api, client, &space_config);
    api_store(&api, client, space, 1, 100, 3);

    struct spw_request *request = api_request(space, 100, 4);
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_chunk_ref ref[8];
    cr_assert_geq(spw_step_begin(client), 3);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_expect_eq(decision.hit_tokens, 48);
    cr_assert_eq(spw_decision_chunks(&decision, 0, ref, 8), 3);
    cr_assert_eq(spw_load_begin(request, &decision, 0, ref, 3, 21), 3);
    cr_assert_eq(spw_step_end(client), 0);
    struct spw_completion done = api_complete(&api, client);
    cr_assert_eq(done.kind, SPW_COMPLETION_BEGUN);
    cr_assert_eq(done.cookie, 21);
    cr_assert_eq(done.ticket.chunks, 3);
    cr_assert_eq(api_run(client, &done.ticket, 50, 22), 0);
    done = api_complete(&api, client);
    cr_expect_eq(done.kind, SPW_COMPLETION_LOADED);
    cr_expect_eq(done.cookie, 22);
    cr_expect_eq(done.status, 0);
    for (uint32_t i = 0; i < 6; i++)
        cr_expect(api_filled(client, 50 + i, 100 + i / 2, 0), "block %u", i);
    spw_detach(client);
    api_close(&api);
}
