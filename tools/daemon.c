/* See daemon.h. The pool from its start to its end, and its mailboxes; its workers are in workers.c. */
#include "tools/daemon.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/doorbell.h"
#include "shm/pool.h"
#include "tools/below_start.h"
#include "tools/log.h"
#include "tools/mail.h"
#include "tools/pages.h"
#include "tools/placing.h"
#include "tools/plan.h"
#include "tools/warm.h"
#include "tools/workers.h"

#define TICK_NS       200000000ull  /* longest sleep: a missed bell or signal costs no more */
#define START_TICK_NS 2000000ull    /* while workers are coming up                          */
#define READ_TICK_NS  20000000ull   /* while one reads its directory below                  */
#define LOOK_NS       2000000000ull /* at the names and sizes of clients' objects           */

struct daemon {
    const struct spw_config *config;
    struct spw_workers workers;
    struct spw_place place;
    const spw_atomic32 *stop; /* signals that asked for an end */
    struct spw_pool pool;
    struct spw_warm_count before;       /* what the shards held that this start went on with */
    uint64_t answered[SPW_CLIENTS_MAX]; /* mailbox seq answered last */
    bool stop_asked;
    bool name_lost; /* the lock object is no longer ours: the pool can't go on */
    const struct spw_pool_config *pool_config;
    uint64_t look_ns; /* at clients' objects next */
};

/* ---- what workers read ---------------------------------------------------------------------- */

/* The effective values as a file that workers read: what they run with is what this daemon checked
 * and printed, whatever has become of the file or the folder it was started in. -1 = failed. */
static int open_values(const struct spw_config *config)
{
    int fd = memfd_create("spillwayd-config", 0); /* stays open in workers, under this number */
    FILE *out = fd >= 0 ? fdopen(dup(fd), "w") : NULL;
    if (!out)
        return -1;
    spw_config_print(config, out);
    return fclose(out) ? -1 : fd;
}

/* For workers that are threads of engines. */
static int publish_values(const struct daemon *daemon)
{
    struct spw_ctl *ctl = daemon->pool.ctl;
    ssize_t n = pread(daemon->workers.values_fd, ctl->values, sizeof ctl->values, 0);
    if (n > 0 && n < (ssize_t)sizeof ctl->values)
        return 0;
    spw_log(SPW_LOG_ERROR, "the values can't be published: they take more than %u bytes",
            SPW_VALUES_BYTES);
    return -E2BIG;
}

/* ---- mailboxes ------------------------------------------------------------------------------ */

static bool mail_waits(void *ctx)
{
    struct daemon *daemon = ctx;
    for (uint32_t c = 0; c < daemon->pool.geometry.clients; c++)
        if (spw_load_acquire(&daemon->pool.client[c].head->mailbox.seq) != daemon->answered[c])
            return true;
    return spw_load_relaxed(daemon->stop) != 0;
}

static void read_mail(struct daemon *daemon)
{
    for (uint32_t c = 0; c < daemon->pool.geometry.clients; c++) {
        /* [MB-1] acquire: the request before its seq */
        uint64_t seq = spw_load_acquire(&daemon->pool.client[c].head->mailbox.seq);
        if (seq == daemon->answered[c])
            continue;
        daemon->stop_asked |= spw_mail_answer(daemon->pool.ctl, &daemon->pool.geometry, c,
                                              daemon->pool.client[c].head, seq);
        daemon->answered[c] = seq;
    }
}

/* A client may write what it likes into its own objects; the others must be able to go on. */
static void mend(struct daemon *daemon)
{
    uint32_t count = spw_pool_mend(&daemon->pool);
    if (count)
        spw_log(SPW_LOG_WARNING, "headers of %u client objects were damaged and are written anew",
                count);
    uint64_t now = spw_monotonic_ns();
    if (now < daemon->look_ns)
        return;
    daemon->look_ns = now + LOOK_NS;
    struct spw_error err = {0};
    int renewed = spw_pool_renew(&daemon->pool, daemon->pool_config, &err);
    daemon->name_lost = renewed == -ESTALE;
    if (renewed > 0)
        spw_log(SPW_LOG_WARNING, "objects of %d clients were cut or removed and are made anew",
                renewed);
    else if (daemon->name_lost)
        spw_log(SPW_LOG_ERROR, "%s", err.text);
    else if (renewed < 0)
        spw_log(SPW_LOG_ERROR, "objects of a client can't be made anew yet: %s", err.text);
}

static void sleep_on_mail(struct daemon *daemon, uint64_t timeout_ns)
{
    struct spw_doorbell bell = {.count = daemon->pool.geometry.clients};
    for (uint32_t c = 0; c < bell.count; c++)
        bell.word[c] = &daemon->pool.client[c].head->mailbox.bell;
    spw_doorbell_sleep(&bell, NULL, timeout_ns, mail_waits, daemon);
}

/* ---- start and stop ------------------------------------------------------------------------- */

/* Ordinals of the workers' driver are by PCI address, as they are counted here. */
static int place_workers(struct daemon *daemon, struct spw_error *err)
{
    int rc = spw_placing_decide(daemon->config, &daemon->place, err);
    if (rc)
        return rc;
    if (!daemon->config->quiet)
        spw_placing_print(&daemon->place, stderr);
    spw_placing_tell(&daemon->place);
    daemon->workers.place_fd = spw_placing_open(&daemon->place);
    if (daemon->workers.place_fd < 0 || setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1))
        return spw_fail(err, -ENOMEM, "no memory file for the workers' places");
    return 0;
}

static int make_pool(struct daemon *daemon, struct spw_pool_config *pool_config,
                     struct spw_error *err)
{
    const struct spw_config *config = daemon->config;
    char words[320];
    struct spw_plan plan;
    spw_plan_pool(config, pool_config);
    spw_plan_bytes(&pool_config->geometry, &plan);
    spw_log(SPW_LOG_INFO,
            "memory: %.1f MB of chunks, %.1f MB of KV blocks, %.1f MB of tables and rings",
            (double)plan.payload_bytes / 1e6, (double)plan.kv_bytes / 1e6,
            (double)plan.control_bytes / 1e6);
    spw_placing_apply(&daemon->place, pool_config);
    pool_config->keep_spaces = spw_warm_keep_spaces;
    pool_config->ctx = &daemon->before;
    int rc = spw_pool_path_init(&pool_config->path, config->shm_dir, config->name,
                                (uint32_t)geteuid(), err);
    if (!rc)
        rc = spw_pool_create(pool_config, &daemon->pool, err);
    if (!rc && daemon->pool.cold_text[0]) {
        spw_plan_cold_words(&daemon->pool, words, sizeof words);
        spw_log(config->cold ? SPW_LOG_NOTICE : SPW_LOG_WARNING,
                "cold start, what was there is not gone on with: %s", words);
    }
    return rc;
}

/* That this daemon lives and goes round, for display. */
static void count_round(struct spw_ctl *ctl)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    spw_store_relaxed(&ctl->updated_ns,
                      (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec);
    spw_add_own(&ctl->rounds, 1);
}

static void become_ready(struct daemon *daemon)
{
    if (daemon->pool.warm)
        spw_warm_report(&daemon->pool, &daemon->before);
    spw_store_release(&daemon->pool.ctl->phase, SPW_POOL_SERVING); /* [PH-1] */
    spw_log(SPW_LOG_NOTICE, "pool \"%s\" is ready", daemon->config->name);
}

static void serve(struct daemon *daemon)
{
    struct spw_workers *workers = &daemon->workers;
    bool ready = false;
    while (!spw_load_relaxed(daemon->stop) && !daemon->stop_asked && !daemon->name_lost &&
           !workers->denied && !spw_workers_none_left(workers)) {
        spw_workers_notice(workers);
        if (!ready && spw_workers_up(workers)) {
            become_ready(daemon);
            ready = true;
        }
        read_mail(daemon);
        mend(daemon);
        bool reads = spw_workers_tend(workers);
        spw_log_tick();
        count_round(daemon->pool.ctl);
        sleep_on_mail(daemon, !spw_workers_up(workers) ? START_TICK_NS
                              : reads                  ? READ_TICK_NS
                                                       : TICK_NS);
    }
}

int spw_daemon_run(const struct spw_config *config, char *const *argv, const spw_atomic32 *stop)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct spw_pool_config *pool_config = calloc(1, sizeof *pool_config);
    struct spw_error err = {0};
    int result = 1;
    if (!daemon || !pool_config) {
        spw_log(SPW_LOG_ERROR, "out of memory");
        goto out;
    }
    daemon->config = config;
    daemon->stop = stop;
    daemon->workers = (struct spw_workers){.config = config,
                                           .argv = argv,
                                           .stop = stop,
                                           .place = &daemon->place,
                                           .pool = &daemon->pool};
    daemon->pool_config = pool_config;
    daemon->workers.values_fd = open_values(config);
    if (daemon->workers.values_fd < 0) {
        spw_log(SPW_LOG_ERROR, "no memory file for the workers' values: %s", strerror(errno));
        goto out;
    }
    if (place_workers(daemon, &err)) {
        spw_log(SPW_LOG_ERROR, "%s", err.text);
        goto out;
    }
    if (spw_below_lock(config)) /* said why */
        goto out;
    spw_below_tell_left(config);
    if (make_pool(daemon, pool_config, &err)) {
        spw_log(SPW_LOG_ERROR, "%s", err.text);
        goto out;
    }
    if (publish_values(daemon) || spw_below_await_others(config) ||
        spw_pages_make(config, &daemon->pool) ||
        spw_placing_check(&daemon->place, config, &daemon->pool, spw_near_where_kernel, NULL)) {
        if (!daemon->pool.warm) /* what was taken over stays, for a start that asks for less */
            spw_pool_unlink(&daemon->pool, NULL);
        spw_pool_detach(&daemon->pool);
        goto out;
    }
    if (config->pin == SPW_CONFIG_PIN_NEVER)
        spw_store_relaxed(&daemon->pool.ctl->pinning, SPW_PINNING_OFF);
    spw_workers_start(&daemon->workers);
    serve(daemon);
    spw_log(SPW_LOG_NOTICE, "stopping");
    bool useless = spw_workers_none_left(&daemon->workers);
    if (useless)
        spw_log(SPW_LOG_ERROR, "no worker is left");
    result = spw_workers_stop(&daemon->workers) || daemon->name_lost || daemon->workers.denied ||
             useless;
    if (config->on_stop == SPW_ON_STOP_REMOVE && spw_pool_unlink(&daemon->pool, &err)) {
        spw_log(SPW_LOG_ERROR, "%s", err.text);
        result = 1;
    }
    spw_pool_detach(&daemon->pool);
out:
    free(pool_config);
    free(daemon);
    return result;
}
