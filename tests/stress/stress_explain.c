/*
 * The ring of decisions: a client writes at full speed, a reader reads now the newest records, now
 * the oldest, which are about to be overwritten. Every record that is handed out must be whole and
 * the one that was asked for. Shared: one client's head.
 */
#include "tests/stress/stress.h"

#include "sched/explain.h"
#include "sched/verdict.h"
#include "tests/stress/mutants.h"
#include "tests/support/explained.h"

#include <pthread.h>

#ifdef SPW_MUTANTS
static const char *const mutants[] = {"no_clear", "words_last", "early_look", NULL};
#else
static const char *const mutants[] = {NULL};
#endif

static struct stress run; /* fixed before the threads start */
static struct spw_client_head head;
static uint64_t end_ns;
static spw_atomic32 reader_done;

struct counts {
    uint64_t whole, gone, busy, wrong;
};

static bool is_whole(const struct spw_explained *got, uint64_t n)
{
    const struct spw_explained want = explained_stamp(n);
    return memcmp(got, &want, offsetof(struct spw_explained, group)) == 0 &&
           got->group == want.group && got->space == want.space && got->action == want.action &&
           got->reason == want.reason && got->flags == want.flags;
}

static void *write_all(void *unused)
{
    stress_pin(&run, 0);
    for (uint64_t n = 0; n % 1024 != 0 || spw_load_relaxed(&reader_done) == 0; n++) {
        const struct spw_explained explained = explained_stamp(n);
        spw_explain_write(&head, &explained);
        if (n % 65536 == 0)
            sched_yield();
    }
    return unused;
}

static void read_one(uint64_t n, struct counts *counts)
{
    struct spw_explained got;
    switch (spw_explain_read(&head, n, &got)) {
    case 0:
        counts->whole++;
        counts->wrong += !is_whole(&got, n);
        return;
    case -EAGAIN:
        counts->busy++;
        return;
    case -ENOENT:
        counts->gone++;
        return;
    default: /* a record that makes no sense was never written */
        counts->wrong++;
    }
}

static void *read_all(void *arg)
{
    struct counts *counts = arg;
    uint64_t first, end;
    stress_pin(&run, 1);
    for (uint64_t i = 0; counts->wrong == 0 && (i % 256 != 0 || stress_now_ns() < end_ns); i++) {
        spw_explain_range(&head, &first, &end);
        if (first == end)
            continue;
        read_one(end - 1 - i % 3 % (end - first), counts);
        read_one(first + i % 7 % (end - first), counts);
        if (i % 65536 == 0)
            sched_yield();
    }
    spw_store_release(&reader_done, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    run = stress_arguments(argc, argv, mutants);
    stress_pin(&run, 0);
    struct counts counts = {0};
    pthread_t writer, reader;
    char text[128];
#ifdef SPW_MUTANTS
    explain_mutant_set_up(run.mutate, &head);
#endif
    end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    pthread_create(&reader, NULL, read_all, &counts);
    pthread_create(&writer, NULL, write_all, NULL);
    pthread_join(reader, NULL);
    pthread_join(writer, NULL);
    snprintf(text, sizeof text,
             "%" PRIu64 " written, %" PRIu64 " whole, %" PRIu64 " gone, %" PRIu64 " in the making",
             spw_load_relaxed(&head.decisions), counts.whole, counts.gone, counts.busy);
    return stress_end(&run, counts.wrong + (counts.whole == 0), text);
}
