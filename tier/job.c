/* Table of jobs, their tickets and their states. Private to the worker: nothing here is shared. */
#include "tier/job.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BITS 20u
_Static_assert(SPW_JOBS_MAX == 1u << INDEX_BITS, "a ticket holds the index");

static const uint8_t allowed[SPW_JOB_STATE_COUNT] = {
    [SPW_JOB_FREE] = 1 << SPW_JOB_RESERVED | 1 << SPW_JOB_BEGUN,
    [SPW_JOB_RESERVED] = 1 << SPW_JOB_AWAIT_RUN | 1 << SPW_JOB_DONE,
    [SPW_JOB_BEGUN] = 1 << SPW_JOB_AWAIT_RUN | 1 << SPW_JOB_DONE,
    [SPW_JOB_AWAIT_RUN] = 1 << SPW_JOB_QUEUED | 1 << SPW_JOB_AWAIT_FENCE | 1 << SPW_JOB_DONE,
    [SPW_JOB_AWAIT_FENCE] = 1 << SPW_JOB_QUEUED | 1 << SPW_JOB_DONE,
    [SPW_JOB_QUEUED] = 1 << SPW_JOB_COPYING | 1 << SPW_JOB_DONE,
    [SPW_JOB_COPYING] = 1 << SPW_JOB_DONE,
    [SPW_JOB_DONE] = 1 << SPW_JOB_FREE,
};

static const char *const names[SPW_JOB_STATE_COUNT] = {
    [SPW_JOB_FREE] = "free",
    [SPW_JOB_RESERVED] = "reserved",
    [SPW_JOB_BEGUN] = "begun",
    [SPW_JOB_AWAIT_RUN] = "await_run",
    [SPW_JOB_AWAIT_FENCE] = "await_fence",
    [SPW_JOB_QUEUED] = "queued",
    [SPW_JOB_COPYING] = "copying",
    [SPW_JOB_DONE] = "done",
};

bool spw_job_may_move(enum spw_job_state from, enum spw_job_state to)
{
    return allowed[from] >> to & 1;
}

void spw_job_move(struct spw_job *job, enum spw_job_state to)
{
    assert(spw_job_may_move(job->state, to));
    job->state = to;
}

const char *spw_job_state_name(enum spw_job_state state)
{
    return state < SPW_JOB_STATE_COUNT ? names[state] : "unknown";
}

void spw_job_list_append(struct spw_job_list *list, struct spw_job *job)
{
    job->before = list->last;
    job->after = NULL;
    if (list->last)
        list->last->after = job;
    else
        list->first = job;
    list->last = job;
}

void spw_job_list_remove(struct spw_job_list *list, struct spw_job *job)
{
    if (job->before)
        job->before->after = job->after;
    else
        list->first = job->after;
    if (job->after)
        job->after->before = job->before;
    else
        list->last = job->before;
    job->before = job->after = NULL;
}

int spw_jobs_init(struct spw_jobs *jobs, uint32_t limit)
{
    memset(jobs, 0, sizeof(*jobs));
    if (limit == 0 || limit > SPW_JOBS_MAX)
        return -EINVAL;
    jobs->job = calloc(limit, sizeof(*jobs->job)); /* pages are touched as jobs are used */
    if (!jobs->job)
        return -ENOMEM;
    jobs->limit = limit;
    return 0;
}

void spw_jobs_fini(struct spw_jobs *jobs)
{
    free(jobs->job);
    memset(jobs, 0, sizeof(*jobs));
}

/* Most recently used first: few jobs at a time touch little memory. */
static struct spw_job *take_free(struct spw_jobs *jobs)
{
    struct spw_job *job = jobs->free.last;
    if (job) {
        spw_job_list_remove(&jobs->free, job);
        return job;
    }
    return jobs->used < jobs->limit ? &jobs->job[jobs->used++] : NULL;
}

struct spw_job *spw_jobs_open(struct spw_jobs *jobs, enum spw_copy_kind kind,
                              struct spw_job_party opener)
{
    struct spw_job *job = take_free(jobs);
    if (!job)
        return NULL;
    memset(job, 0, offsetof(struct spw_job, chunk));
    job->kind = kind;
    job->opener = opener;
    job->runner = (struct spw_job_party){.client = UINT32_MAX};
    job->failed_first = UINT32_MAX;
    job->ticket = ++jobs->nonce << INDEX_BITS | (uint64_t)(job - jobs->job);
    spw_job_move(job, kind == SPW_COPY_STORE ? SPW_JOB_RESERVED : SPW_JOB_BEGUN);
    return job;
}

struct spw_job *spw_jobs_find(const struct spw_jobs *jobs, uint64_t ticket)
{
    uint64_t index = ticket & ((1u << INDEX_BITS) - 1);
    if (index >= jobs->used)
        return NULL;
    struct spw_job *job = &jobs->job[index];
    return job->state != SPW_JOB_FREE && job->ticket == ticket ? job : NULL;
}

void spw_jobs_close(struct spw_jobs *jobs, struct spw_job *job)
{
    assert(job->open == 0);
    spw_job_move(job, SPW_JOB_FREE);
    spw_job_list_append(&jobs->free, job);
}

void spw_jobs_await(struct spw_jobs *jobs, struct spw_job *job, uint64_t deadline_ns)
{
    spw_job_move(job, SPW_JOB_AWAIT_RUN);
    job->deadline_ns = deadline_ns;
    spw_job_list_append(&jobs->await, job);
}

void spw_jobs_await_over(struct spw_jobs *jobs, struct spw_job *job, enum spw_job_state to)
{
    assert(job->state == SPW_JOB_AWAIT_RUN);
    spw_job_list_remove(&jobs->await, job);
    spw_job_move(job, to);
}

struct spw_job *spw_jobs_first_awaiting(const struct spw_jobs *jobs)
{
    return jobs->await.first;
}

uint32_t spw_job_add(struct spw_job *job, const struct spw_job_chunk *chunk, bool open)
{
    assert(job->count < SPW_JOB_CHUNKS_MAX);
    uint32_t i = job->count++;
    job->chunk[i] = *chunk;
    job->chunk[i].item.owner = job;
    job->chunk[i].item.chunk = i;
    if (open)
        job->open |= 1ull << i;
    return i;
}

bool spw_job_chunk_end(struct spw_job *job, uint32_t i, int status)
{
    uint64_t bit = 1ull << i;
    assert(job->open & bit);
    job->open &= ~bit;
    job->queued &= ~bit;
    job->copying &= ~bit;
    if (status < 0) {
        job->failed |= bit;
        if (i < job->failed_first) {
            job->failed_first = i;
            job->status = status;
        }
    }
    return job->open == 0;
}
