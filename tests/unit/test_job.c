/* tier/job: allowed changes, tickets that never come back, chunks that end one by one. */
#include "tier/job.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(job, .timeout = 20);

static const struct spw_job_party somebody = {3, 7};

Test(job, moves_only_as_the_drawing_says)
{
    static const char *const allowed[] = {
        "free>reserved",         "free>begun",         "reserved>await_run", "reserved>done",
        "begun>await_run",       "begun>done",         "await_run>queued",   "await_run>done",
        "await_run>await_fence", "await_fence>queued", "await_fence>done",   "queued>copying",
        "queued>done",           "copying>done",       "done>free",
    };
    unsigned found = 0;
    for (int from = 0; from < SPW_JOB_STATE_COUNT; from++) {
        for (int to = 0; to < SPW_JOB_STATE_COUNT; to++) {
            char change[64];
            bool wanted = false;
            snprintf(change, sizeof(change), "%s>%s", spw_job_state_name(from),
                     spw_job_state_name(to));
            for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
                wanted |= strcmp(change, allowed[i]) == 0;
            cr_expect(spw_job_may_move(from, to) == wanted, "%s", change);
            found += spw_job_may_move(from, to);
        }
    }
    cr_expect(found == sizeof(allowed) / sizeof(*allowed));
}

static void finish(struct spw_jobs *jobs, struct spw_job *job)
{
    spw_job_move(job, SPW_JOB_DONE);
    spw_jobs_close(jobs, job);
}

Test(job, a_ticket_that_is_gone_stays_gone)
{
    struct spw_jobs jobs;
    cr_assert(spw_jobs_init(&jobs, 2) == 0);
    struct spw_job *job = spw_jobs_open(&jobs, SPW_COPY_STORE, somebody);
    uint64_t old = job->ticket;
    cr_expect(old != 0);
    cr_expect(spw_jobs_find(&jobs, old) == job);
    finish(&jobs, job);
    cr_expect(spw_jobs_find(&jobs, old) == NULL);
    for (int i = 0; i < 1000; i++) {
        struct spw_job *next = spw_jobs_open(&jobs, SPW_COPY_LOAD, somebody);
        cr_assert(next && next->ticket != old);
        cr_expect(spw_jobs_find(&jobs, old) == NULL);
        finish(&jobs, next);
    }
    spw_jobs_fini(&jobs);
}

Test(job, any_number_may_be_asked_as_a_ticket)
{
    struct spw_jobs jobs;
    cr_assert(spw_jobs_init(&jobs, 3) == 0);
    struct spw_job *job = spw_jobs_open(&jobs, SPW_COPY_STORE, somebody);
    for (int bit = 0; bit < 64; bit++) {
        cr_expect(spw_jobs_find(&jobs, 1ull << bit) == NULL || 1ull << bit == job->ticket);
        cr_expect(spw_jobs_find(&jobs, job->ticket ^ 1ull << bit) == NULL);
    }
    cr_expect(spw_jobs_find(&jobs, 0) == NULL);
    cr_expect(spw_jobs_find(&jobs, UINT64_MAX) == NULL);
    spw_jobs_fini(&jobs);
}

Test(job, the_table_is_bounded_and_reused)
{
    struct spw_jobs jobs;
    struct spw_job *job[3];
    cr_expect(spw_jobs_init(&jobs, 0) == -EINVAL);
    cr_expect(spw_jobs_init(&jobs, (1u << 20) + 1) == -EINVAL);
    cr_assert(spw_jobs_init(&jobs, 3) == 0);
    for (int i = 0; i < 3; i++)
        cr_assert((job[i] = spw_jobs_open(&jobs, SPW_COPY_STORE, somebody)));
    cr_expect(spw_jobs_open(&jobs, SPW_COPY_STORE, somebody) == NULL);
    finish(&jobs, job[1]);
    cr_expect(spw_jobs_open(&jobs, SPW_COPY_STORE, somebody) == job[1]);
    spw_jobs_fini(&jobs);
}

Test(job, waiting_jobs_come_in_order_of_their_deadline)
{
    struct spw_jobs jobs;
    struct spw_job *job[3];
    cr_assert(spw_jobs_init(&jobs, 3) == 0);
    for (int i = 0; i < 3; i++) {
        job[i] = spw_jobs_open(&jobs, SPW_COPY_STORE, somebody);
        spw_jobs_await(&jobs, job[i], 10 + (uint64_t)i);
    }
    cr_expect(spw_jobs_first_awaiting(&jobs) == job[0]);
    spw_jobs_await_over(&jobs, job[1], SPW_JOB_QUEUED);
    spw_jobs_await_over(&jobs, job[0], SPW_JOB_DONE);
    cr_expect(spw_jobs_first_awaiting(&jobs) == job[2]);
    spw_jobs_await_over(&jobs, job[2], SPW_JOB_DONE);
    cr_expect(spw_jobs_first_awaiting(&jobs) == NULL);
    spw_jobs_fini(&jobs);
}

Test(job, chunks_end_one_by_one_and_the_first_failure_by_index_counts)
{
    struct spw_jobs jobs;
    struct spw_job_chunk chunk = {.slot = 5};
    cr_assert(spw_jobs_init(&jobs, 1) == 0);
    struct spw_job *job = spw_jobs_open(&jobs, SPW_COPY_STORE, somebody);
    cr_expect(spw_job_add(job, &chunk, true) == 0);
    cr_expect(spw_job_add(job, &chunk, false) == 1);
    cr_expect(spw_job_add(job, &chunk, true) == 2);
    cr_expect(spw_job_add(job, &chunk, true) == 3);
    cr_expect(job->open == 0xd && job->count == 4);
    cr_expect(job->chunk[3].item.owner == job && job->chunk[3].item.chunk == 3);
    cr_expect(!spw_job_chunk_end(job, 3, -EIO));
    cr_expect(!spw_job_chunk_end(job, 0, 0));
    cr_expect(spw_job_chunk_end(job, 2, -ECANCELED));
    cr_expect(job->failed == 0xc && job->status == -ECANCELED);
    finish(&jobs, job);
    spw_jobs_fini(&jobs);
}

Test(job, holds_its_full_number_of_chunks)
{
    struct spw_jobs jobs;
    struct spw_job_chunk chunk = {.slot = 1};
    cr_assert(spw_jobs_init(&jobs, 1) == 0);
    struct spw_job *job = spw_jobs_open(&jobs, SPW_COPY_LOAD, somebody);
    for (uint32_t i = 0; i < SPW_JOB_CHUNKS_MAX; i++)
        spw_job_add(job, &chunk, true);
    cr_expect(job->open == UINT64_MAX);
    for (uint32_t i = 0; i < SPW_JOB_CHUNKS_MAX; i++)
        cr_expect(spw_job_chunk_end(job, i, 0) == (i == SPW_JOB_CHUNKS_MAX - 1));
    finish(&jobs, job);
    spw_jobs_fini(&jobs);
}
