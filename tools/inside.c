/*
 * See inside.h. Shared: what a worker writes (tools/worker_main.c). Process-local: the handle; its thread
 * writes the result and the words, then `ended`.
 */
#include "tools/inside.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/guard.h"
#include "shm/process.h"
#include "tier/gpu_identity.h"
#include "tools/config_place.h"
#include "tools/inside_watch.h"
#include "tools/log.h"
#include "tools/worker_main.h"

#define START_LIMIT_NS 30000000000ull
#define LOOK_NS        1000000

struct spw_inside {
    struct spw_config config;
    struct spw_worker_which which;
    pthread_t thread;
    spw_atomic32 stop; /* raised once, by another thread; the worker looks every 100 ms */
    spw_atomic32 ended;
    spw_atomic32 is_worker;    /* its thread holds the lock */
    uint32_t forks;            /* spw_forked() when it was started */
    struct spw_worker_end end; /* before ended */
};

/* ---- what the pool says -------------------------------------------------------------------------- */

/* The daemon's values, through a file in memory as worker processes get them. */
static int read_values(const struct spw_ctl *ctl, struct spw_config *config, struct spw_error *err)
{
    char path[48], words[1024] = "";
    int fd = memfd_create("spillway-values", MFD_CLOEXEC);
    size_t bytes = strnlen(ctl->values, sizeof ctl->values);
    if (fd < 0 || write(fd, ctl->values, bytes) != (ssize_t)bytes) {
        if (fd >= 0)
            close(fd);
        return spw_fail(err, -ENOMEM, "no memory file for the pool's values");
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *argv[] = {(char *)"spillway-inside", (char *)"--config", path, NULL};
    int rc = spw_config_parse(3, argv, config, words, sizeof words);
    close(fd);
    return rc ? spw_fail(err, -EPROTONOSUPPORT, "the pool's values can't be read: %s", words) : 0;
}

/* This worker's GPU by another name: the engine may count its GPUs otherwise than the daemon. */
static int use_gpu(struct spw_config *config, uint32_t k, const char *gpu, struct spw_error *err)
{
    char which[48];
    size_t length = 0;
    if (!spw_gpu_which_is_valid(gpu))
        return spw_fail(err, -EINVAL, "gpu \"%s\" is not a UUID, a PCI address or an ordinal", gpu);
    char *list = calloc(1, sizeof config->gpu);
    if (!list)
        return spw_fail(err, -ENOMEM, "no memory for a list of GPUs");
    for (uint32_t i = 0; i < config->workers && length < sizeof config->gpu; i++)
        length += (size_t)snprintf(list + length, sizeof config->gpu - length, "%s%s", i ? "," : "",
                                   i == k ? gpu : spw_config_gpu(config, i, which));
    memcpy(config->gpu, list, sizeof config->gpu);
    free(list);
    return 0;
}

static int check_pool(const struct spw_pool *pool, const struct spw_inside_options *options,
                      struct spw_config *config, struct spw_error *err)
{
    uint32_t k = options->worker;
    if (spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) != 1)
        return spw_fail(err, -EOWNERDEAD, "pool \"%s\": its daemon is gone; start spillwayd first",
                        pool->path.name);
    /* [PH-1] acquire: the values, stored before the phase */
    if (spw_load_acquire(&pool->ctl->phase) != SPW_POOL_SERVING)
        return spw_fail(err, -EAGAIN, "pool \"%s\" isn't ready; try again", pool->path.name);
    uint64_t space = spw_load_relaxed(&pool->ctl->pid_namespace);
    if (space == 0 || space != spw_process_namespace() || spw_process_start_ticks(getpid()) == 0)
        return spw_fail(err, -EXDEV,
                        "this process and the pool's daemon are in different pid namespaces: when "
                        "this process is gone can't be seen from there");
    int rc = read_values(pool->ctl, config, err);
    if (rc)
        return rc;
    struct spw_set inside = spw_config_inside(config);
    if (k >= config->workers || !spw_set_has(&inside, k))
        return spw_fail(err, -EINVAL,
                        "worker %u isn't one that pool \"%s\" leaves to engines: start that with "
                        "--inside %u",
                        k, pool->path.name, k);
    return options->gpu ? use_gpu(config, k, options->gpu, err) : 0;
}

/* ---- the thread ---------------------------------------------------------------------------------- */

static void *be_worker(void *ctx)
{
    struct spw_inside *inside = ctx;
    spw_worker_main(&inside->config, &inside->which, &inside->stop, &inside->end);
    if (inside->end.status)
        spw_log(SPW_LOG_ERROR, "%s", inside->end.err.text);
    spw_store_release(&inside->ended, 1); /* release: the result before it */
    return NULL;
}

/* Signals are the engine's. */
static int start_thread(struct spw_inside *inside)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of a mapping: it is for the thread that touches it */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&inside->thread, NULL, be_worker, inside);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static bool has_ended(const struct spw_inside *inside)
{
    return spw_load_acquire(&inside->ended) != 0; /* acquire: before the result */
}

static void nap(void)
{
    const struct timespec time = {.tv_nsec = LOOK_NS};
    nanosleep(&time, NULL);
}

/* Until the daemon has seen an incarnation after @before go round: clients use it from then on. */
static int await_up(const struct spw_inside *inside, const struct spw_pool *pool, uint64_t before,
                    struct spw_error *err)
{
    uint32_t k = inside->which.k;
    const struct spw_worker_state *state = &pool->ctl->worker[k];
    uint64_t until = spw_monotonic_ns() + START_LIMIT_NS;
    for (;;) {
        uint64_t incarnation = spw_load_acquire(&pool->feed[k]->incarnation);
        /* [WS-1] acquire: phase before the incarnation it speaks of */
        bool up = spw_load_acquire(&state->phase) == SPW_WORKER_UP &&
                  spw_load_relaxed(&state->incarnation) == incarnation;
        if (has_ended(inside))
            return inside->end.status
                       ? spw_fail(err, inside->end.err.code, "%s", inside->end.err.text)
                       : spw_fail(err, -EAGAIN, "the pool is being stopped");
        /* acquire: this is the worker before the incarnation that is its own then */
        if (up && incarnation != before && spw_load_acquire(&inside->is_worker))
            return 0;
        if (spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) != 1)
            return spw_fail(err, -EOWNERDEAD, "the pool's daemon died meanwhile; try again");
        if (spw_monotonic_ns() >= until)
            return spw_fail(err, -ETIMEDOUT, "worker %u was not up within %llu s", k,
                            START_LIMIT_NS / 1000000000);
        nap();
    }
}

/* ---- the calls ----------------------------------------------------------------------------------- */

static int read_options(const struct spw_inside_options *options, struct spw_inside_options *mine,
                        struct spw_error *err)
{
    if (!options || options->size_bytes < sizeof *mine)
        return spw_fail(err, -EINVAL, "options: size_bytes is %u, not %zu",
                        options ? options->size_bytes : 0, sizeof *mine);
    *mine = *options;
    mine->pool = mine->pool ? mine->pool : "spillway";
    mine->shm_dir = mine->shm_dir ? mine->shm_dir : "/dev/shm";
    return 0;
}

/* What all workers of this process share. */
static void open_process(void)
{
    spw_guard_install(); /* refused only for a signal that there isn't */
    spw_log_open(&(struct spw_log_config){.program = "spillway-inside"});
}

static void end(struct spw_inside *inside)
{
    spw_store_relaxed(&inside->stop, 1);
    pthread_join(inside->thread, NULL);
}

static int run(struct spw_inside *inside, const struct spw_inside_options *options,
               const struct spw_pool *pool, struct spw_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t before = spw_load_acquire(&pool->feed[options->worker]->incarnation);
    inside->which = (struct spw_worker_which){.k = options->worker,
                                              .pool_id = pool->ctl->header.pool_id[0],
                                              .place_fd = -1,
                                              .inside = true,
                                              .is_worker = &inside->is_worker};
    inside->forks = spw_forked();
    pthread_once(&once, open_process);
    int rc = start_thread(inside);
    if (rc)
        return spw_fail(err, rc, "no thread for worker %u: %s", options->worker, strerror(-rc));
    rc = await_up(inside, pool, before, err);
    if (rc)
        end(inside);
    return rc;
}

static int start(struct spw_inside *inside, const struct spw_inside_options *options,
                 struct spw_error *err)
{
    struct spw_pool_path path;
    struct spw_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return spw_fail(err, -ENOMEM, "no memory for a look at the pool");
    int rc = spw_pool_path_init(&path, options->shm_dir, options->pool, (uint32_t)geteuid(), err);
    if (rc == 0)
        rc = spw_pool_attach(&path, SPW_ROLE_TOOL, 0, pool, err);
    if (rc == 0) {
        rc = check_pool(pool, options, &inside->config, err);
        if (rc == 0)
            rc = run(inside, options, pool, err);
        spw_pool_detach(pool);
    }
    free(pool);
    return rc;
}

int spw_inside_start(const struct spw_inside_options *options, struct spw_inside **out_inside,
                     char *error_text, uint64_t error_bytes)
{
    struct spw_inside_options mine = {0};
    struct spw_error err = {0};
    struct spw_inside *inside = NULL;
    if (out_inside)
        *out_inside = NULL;
    if (error_text && error_bytes > 0)
        error_text[0] = '\0';
    int rc = out_inside ? read_options(options, &mine, &err)
                        : spw_fail(&err, -EINVAL, "out_inside is NULL");
    if (rc == 0 && !(inside = calloc(1, sizeof *inside)))
        rc = spw_fail(&err, -ENOMEM, "no memory for a worker");
    if (rc == 0)
        rc = start(inside, &mine, &err);
    if (rc == 0) {
        *out_inside = inside;
        return 0;
    }
    free(inside);
    if (error_text && error_bytes > 0)
        snprintf(error_text, error_bytes, "%s", err.text);
    return rc;
}

int spw_inside_runs(const struct spw_inside *inside, char *error_text, uint64_t error_bytes)
{
    bool forked = inside->forks != spw_forked();
    if (!forked && !has_ended(inside))
        return 1;
    if (error_text && error_bytes > 0)
        snprintf(error_text, error_bytes, "%s",
                 forked               ? "this is a forked child of the engine that has it"
                 : inside->end.status ? inside->end.err.text
                                      : "the pool was stopped, or nobody used it");
    return 0;
}

int spw_inside_stop(struct spw_inside *inside)
{
    if (!inside)
        return 0;
    if (inside->forks == spw_forked()) /* a child has no such thread */
        end(inside);
    int rc = inside->end.left ? -EBUSY : 0;
    free(inside);
    return rc;
}
