/* See thread_io.h. */
#include "tier/thread_io.h"

#include <stdio.h>
#include <stdlib.h>

#include "tier/io_core.h"

struct spw_io_engine {
    struct spw_io_core core;
};

static int submit(struct spw_io_engine *engine, const struct spw_io *io)
{
    pthread_mutex_lock(&engine->core.lock);
    int rc = spw_io_core_push(&engine->core, io);
    if (rc == 0)
        pthread_cond_signal(&engine->core.more);
    pthread_mutex_unlock(&engine->core.lock);
    return rc;
}

static int poll(struct spw_io_engine *engine, struct spw_io_end *out, int max)
{
    return spw_io_core_poll(&engine->core, out, max);
}

static void mode(struct spw_io_engine *engine, struct spw_io_mode *out)
{
    spw_io_core_mode(&engine->core, out);
}

static int close_engine(struct spw_io_engine *engine, uint64_t limit_ns)
{
    if (!engine)
        return 0;
    int rc = spw_io_core_stop(&engine->core, spw_monotonic_ns() + limit_ns);
    if (rc < 0)
        return rc; /* a thread that hangs needs all of it */
    spw_io_core_fini(&engine->core);
    free(engine);
    return 0;
}

static const struct spw_io_ops ops = {submit, poll, mode, close_engine};

int spw_thread_io_open(const struct spw_io_config *config, const char *why,
                       struct spw_io_handle *out_io)
{
    struct spw_io_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return -ENOMEM;
    int rc = spw_io_core_init(&engine->core, config);
    snprintf(engine->core.mode.why, sizeof engine->core.mode.why, "%s", why);
    uint32_t threads = config->depth < SPW_IO_POOL_MAX ? config->depth : SPW_IO_POOL_MAX;
    if (rc == 0)
        rc = spw_io_core_start(&engine->core, threads);
    if (engine->core.threads == 0) { /* fewer than wanted will do */
        spw_io_core_fini(&engine->core);
        free(engine);
        return rc;
    }
    *out_io = (struct spw_io_handle){&ops, engine};
    return 0;
}
