/*
 * spillway stop: ask a pool's daemon to stop, by its mailbox, and wait until it is gone. Writes one
 * request into the client object kept for tools; a death here leaves the request standing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/doorbell.h"
#include "tools/command.h"

#define WAIT_US  10000u
#define WAIT_MAX 3000u /* 30 s */

static void send_stop(const struct spw_client_view *view)
{
    struct spw_mailbox *mail = &view->head->mailbox;
    uint64_t seq = spw_load_relaxed(&mail->seq) + 1; /* ours alone while we hold the lock byte */
    spw_store_relaxed(&mail->kind, SPW_MAIL_STOP);
    spw_store_relaxed(&mail->length_bytes, 0);
    spw_store_release(&mail->seq, seq); /* [MB-1] release: the request before its seq */
    spw_store_release(&mail->bell, (uint32_t)seq);
    spw_doorbell_ring(&mail->bell, NULL);
}

static int stop(struct spw_pool *pool, struct spw_error *err)
{
    int c = spw_pool_take_client(pool, true, err);
    if (c < 0)
        return c;
    spw_client_take_over(&pool->client[c]);
    send_stop(&pool->client[c]);
    for (uint32_t i = 0; i < WAIT_MAX; i++) {
        if (spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) == 0)
            return 0;
        usleep(WAIT_US);
    }
    return spw_fail(err, -ETIMEDOUT,
                    "the daemon of pool %s, pid %" PRIu64 ", has not stopped within 30 s; is it "
                    "stopped or stuck? It may be killed: the next start goes on with the pool",
                    pool->path.name, spw_load_relaxed(&pool->ctl->daemon_pid));
}

int spw_cmd_stop(int argc, char *const *argv)
{
    struct spw_pool_args args;
    struct spw_error err = {0};
    struct spw_pool_path path;
    int status = spw_pool_args_read(argc, argv, "stop a pool and wait until it is gone", &args);
    if (status >= 0)
        return status;
    struct spw_pool *pool = calloc(1, sizeof *pool);
    if (!pool) {
        fprintf(stderr, "spillway stop: out of memory\n");
        return SPW_EXIT_FAILED;
    }
    status = spw_pool_path_init(&path, args.shm_dir, args.pool, (uint32_t)args.uid, &err);
    if (!status)
        status = spw_pool_attach(&path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, pool, &err);
    if (!status) {
        status = stop(pool, &err);
        spw_pool_detach(pool);
    }
    if (status)
        fprintf(stderr, "spillway stop: %s\n", err.text);
    free(pool);
    return status == -ETIMEDOUT ? SPW_EXIT_STUCK : status ? spw_exit_of(status) : SPW_EXIT_OK;
}
