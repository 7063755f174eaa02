/* Answers are another process's words: what they say is checked before anybody uses it. */
#include "sched/handle.h"
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>

TestSuite(api_answers, .timeout = 25);

static struct api api;
static struct spw_client *client;
static struct spw_space *space;

static void open_pool(void)
{
    const struct rig_config config = {.workers = 1, .capacity = 8};
    struct spw_space_config space_config = api_space_config(1);
    api_open(&api, &config);
    client = api_attach(&api, 64);
    space = api_space(&api, client, &space_config);
}

static void close_pool(void)
{
    spw_detach(client);
    api_close(&api);
}

static struct spw_open_job *reserve(struct spw_request *request)
{
    struct spw_chunk_ref ref[2] = {{.index = 0}, {.index = 1}};
    cr_assert_eq(spw_store_reserve(request, 0, ref, 2, 5), 2);
    return SPW_LINKED(client->book.busy.after, struct spw_open_job, link);
}

/* As the worker would, with the numbers of @job filled in. */
static void answer(struct spw_lane_producer *lane, const struct spw_open_job *job,
                   struct spw_done done)
{
    done.kind = SPW_DONE_RESERVE;
    done.generation = (uint32_t)client->generation;
    done.incarnation = (uint32_t)job->incarnation;
    done.cookie = spw_book_cookie(job);
    cr_assert_gt(spw_lane_room(lane, 1), 0);
    spw_lane_write(lane, 0, &done, sizeof(done));
    spw_lane_send(lane, 1);
}

static void open_lane(struct spw_lane_producer *lane)
{
    struct spw_client_view *theirs = &api.rig.pool[0].client[client->number];
    spw_lane_producer_init(lane, theirs->completion, theirs->completion_slots,
                           &theirs->head->worker_lane[0].completion_tail,
                           &theirs->head->lane[0].completion_head);
}

/* The caller has memory for what it asked for, and no more. */
Test(api_answers, an_answer_that_speaks_of_more_chunks_than_were_asked_for_is_dropped)
{
    struct spw_completion done;
    struct spw_lane_producer lane;
    open_pool();
    struct spw_open_job *job = reserve(api_request(space, 100, 2));
    open_lane(&lane);
    for (uint16_t count = 3; count > 1; count--) {
        answer(&lane, job, (struct spw_done){.count = count, .ticket = 77, .mask = 3});
        cr_expect_eq(spw_completions(client, &done, 1), count == 2);
    }
    cr_expect_eq(done.ticket.chunks, 2);
    cr_expect_eq(api_counter(client, "late_completions"), 1);
    close_pool();
}

/* Who asks for status < 0 takes all else for success, and runs what the mask says. */
Test(api_answers, a_status_that_is_no_error_and_chunks_beyond_those_accepted_are_not_handed_on)
{
    struct spw_completion done;
    struct spw_lane_producer lane;
    open_pool();
    struct spw_open_job *job = reserve(api_request(space, 100, 2));
    open_lane(&lane);
    answer(&lane, job,
           (struct spw_done){.count = 1, .ticket = 77, .status = 12345, .mask = UINT64_MAX});
    cr_assert_eq(spw_completions(client, &done, 1), 1);
    cr_expect_eq(done.status, -EBADMSG);
    cr_expect_eq(done.mask, 1);
    close_pool();
}
