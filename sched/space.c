/*
 * Spaces: asked of the daemon through the mailbox, which is for what doesn't fit a record. Written:
 * this client's mailbox.
 *
 *   step                    if this client dies after it
 *   request, length, kind   not looked at: the sequence is the old one
 *   sequence stored         the space is opened all the same; spaces are never taken back
 */
#include "sched/handle.h"

#include "shm/doorbell.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_NS            200000ull
#define USUAL_PRICE        4u
#define WAIT_LIMIT_NS      300000000000ull /* usual ones */
#define RETRY_LIMIT_NS     1000000000ull
#define WAIT_LIMIT_MAX_NS  UINT64_C(86400000000000)
#define CONFIG_FIRST_BYTES offsetof(struct spw_space_config, recompute_price)

/* What the mailbox holds for SPW_MAIL_OPEN_SPACE. */
/* ---- mailbox --------------------------------------------------------------------------------- */

static uint64_t send_mail(struct spw_client *client, uint32_t kind, const void *bytes,
                          uint64_t length)
{
    struct spw_mailbox *mail = &client->own->head->mailbox;
    uint64_t seq = spw_load_relaxed(&mail->seq) + 1; /* only this client writes it */
    memcpy(mail->bytes, bytes, length);
    spw_store_relaxed(&mail->kind, kind);
    spw_store_relaxed(&mail->length_bytes, length);
    spw_store_release(&mail->seq, seq); /* [MB-1] release: the request before its seq */
    spw_store_relaxed(&mail->bell, (uint32_t)seq);
    spw_doorbell_ring(&mail->bell, NULL);
    return seq;
}

static bool has_reply(const struct spw_client *client, uint64_t seq)
{
    const struct spw_reply *reply = &client->pool.ctl->reply[client->number];
    /* [MB-2] acquire: seq before the reply */
    return spw_load_acquire(&reply->seq) == seq &&
           spw_load_relaxed(&reply->generation) == client->generation;
}

static int await_reply(struct spw_client *client, uint64_t seq, struct spw_error *err)
{
    const struct timespec pause = {.tv_nsec = (long)POLL_NS};
    const struct spw_reply *reply = &client->pool.ctl->reply[client->number];
    char text[sizeof(reply->text) + 1] = "";
    for (uint64_t start = spw_monotonic_ns(); !has_reply(client, seq);) {
        int rc = spw_client_check(client); /* nobody answers in a pool that is over */
        if (rc < 0)
            return spw_fail(err, rc, "pool \"%s\" was restarted: attach again",
                            client->pool.path.name);
        if (spw_monotonic_ns() - start < client->timeout_ns) {
            nanosleep(&pause, NULL);
            continue;
        }
        client->mail_given_up = seq;
        return spw_fail(err, -ETIMEDOUT,
                        "pool \"%s\": its daemon did not answer within %" PRIu64 " ms",
                        client->pool.path.name, client->timeout_ns / 1000000);
    }
    int64_t status = (int64_t)spw_load_relaxed(&reply->status);
    uint64_t value = spw_load_relaxed(&reply->value);
    memcpy(text, reply->text, sizeof(reply->text));
    if (status < -4095 || status > 0 || (status == 0 && value >= SPW_SPACES_MAX))
        return spw_fail(err, -EBADMSG, "pool \"%s\": its daemon's answer makes no sense",
                        client->pool.path.name);
    if (status < 0)
        return spw_fail(err, (int)status, "space refused: %s", text);
    return (int)value;
}

/* ---- what a configuration says --------------------------------------------------------------- */

static int check_auto(const struct spw_space_config *config, struct spw_error *err)
{
    if (config->recompute_scope != SPW_SCOPE_REQUEST)
        return spw_fail(err, -EINVAL,
                        "space: max_recompute_pending_tokens = auto bounds the request's loss: "
                        "recompute_scope must be request (0), not %" PRIu32,
                        config->recompute_scope);
    if (config->prefill_tokens_per_s == 0)
        return spw_fail(err, -EINVAL,
                        "space: max_recompute_pending_tokens = auto needs prefill_tokens_per_s, "
                        "at least 1");
    if (config->recompute_price > SPW_PRICE_MAX && config->recompute_price != SPW_PRICE_QUEUE)
        return spw_fail(err, -EINVAL,
                        "space: recompute_price is %" PRIu32
                        ", must be 1 to %u, SPW_PRICE_QUEUE, or 0 for %u",
                        config->recompute_price, SPW_PRICE_MAX, USUAL_PRICE);
    return 0;
}

static int check_waits(const struct spw_space_config *config, struct spw_error *err)
{
    if (config->max_recompute_pending_tokens < 0 &&
        config->max_recompute_pending_tokens != SPW_RECOMPUTE_AUTO)
        return spw_fail(err, -EINVAL,
                        "space: max_recompute_pending_tokens is %" PRId64 ", must be 0 to %" PRId64
                        ", or SPW_RECOMPUTE_AUTO",
                        config->max_recompute_pending_tokens, INT64_MAX);
    if (config->recompute_scope > SPW_SCOPE_GROUP)
        return spw_fail(err, -EINVAL, "space: no recompute_scope %" PRIu32,
                        config->recompute_scope);
    if (config->wait_limit_ns > WAIT_LIMIT_MAX_NS || config->retry_limit_ns > WAIT_LIMIT_MAX_NS)
        return spw_fail(err, -EINVAL,
                        "space: wait_limit_ns is %" PRIu64 ", retry_limit_ns is %" PRIu64
                        "; each must be at most a day, %" PRIu64,
                        config->wait_limit_ns, config->retry_limit_ns, WAIT_LIMIT_MAX_NS);
    return config->max_recompute_pending_tokens == SPW_RECOMPUTE_AUTO ? check_auto(config, err) : 0;
}

static int check_sizes(const struct spw_client *client, const struct spw_space_config *config,
                       struct spw_error *err)
{
    if (config->groups == 0 || config->groups > SPW_MAX_GROUPS || !config->group)
        return spw_fail(err, -EINVAL, "space: %" PRIu32 " groups, must be 1 to %u", config->groups,
                        SPW_MAX_GROUPS);
    if (config->ranks == 0 || config->ranks > SPW_MAX_RANKS || !config->rank_worker)
        return spw_fail(err, -EINVAL, "space: %" PRIu32 " ranks, must be 1 to %u", config->ranks,
                        SPW_MAX_RANKS);
    if (config->blocks_per_chunk == 0 || config->blocks_per_chunk > SPW_CHUNK_BLOCKS_MAX)
        return spw_fail(err, -EINVAL, "space: %" PRIu32 " blocks a chunk, must be 1 to %u",
                        config->blocks_per_chunk, SPW_CHUNK_BLOCKS_MAX);
    if (!config->fingerprint || !config->fingerprint[0] || strlen(config->fingerprint) > 255)
        return spw_fail(err, -EINVAL, "space: the fingerprint must have 1 to 255 bytes");
    int rc = check_waits(config, err);
    if (rc < 0)
        return rc;
    for (uint32_t r = 0; r < config->ranks; r++)
        if (config->rank_worker[r] >= client->workers)
            return spw_fail(err, -EINVAL,
                            "space: rank %" PRIu32 " copies by worker %" PRIu32
                            ", the pool has %" PRIu32,
                            r, config->rank_worker[r], client->workers);
    return 0;
}

static int check_groups(const struct spw_client *client, const struct spw_space_config *config,
                        struct spw_groups *out_groups, struct spw_error *err)
{
    struct spw_group_shape shape[SPW_MAX_GROUPS];
    for (uint32_t g = 0; g < config->groups; g++) {
        const struct spw_group_config *group = &config->group[g];
        if (group->chunk_bytes == 0 || group->chunk_bytes > client->pool.geometry.slot_bytes ||
            group->chunk_bytes % config->blocks_per_chunk != 0)
            return spw_fail(err, -EINVAL,
                            "space: chunk_bytes of group %" PRIu32 " is %" PRIu32
                            ", must be a multiple of %" PRIu32 ", at most %" PRIu32,
                            g, group->chunk_bytes, config->blocks_per_chunk,
                            client->pool.geometry.slot_bytes);
        if (group->kind > SPW_GROUP_STATE)
            return spw_fail(err, -EINVAL, "space: group %" PRIu32 " is of no kind: %" PRIu32, g,
                            group->kind);
        shape[g] = (struct spw_group_shape){
            .kind = (uint8_t)group->kind,
            .block_tokens = group->block_tokens,
            .window_tokens = group->window_tokens,
        };
    }
    if (spw_groups_init(out_groups, config->hash_unit_tokens, config->blocks_per_chunk, shape,
                        config->groups) < 0)
        return spw_fail(err, -EINVAL,
                        "space: sizes contradict each other: the hash unit (%" PRIu32
                        ") divides every block, sliding and chunked groups have a window, others "
                        "none, state groups are of one size",
                        config->hash_unit_tokens);
    return 0;
}

static void write_mail(const struct spw_space_config *config, struct spw_open_space_mail *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->record.fingerprint, config->fingerprint, strlen(config->fingerprint));
    out->record.blocks_per_chunk = config->blocks_per_chunk;
    out->record.hash_unit_tokens = config->hash_unit_tokens;
    out->record.groups = config->groups;
    out->record.ranks = config->ranks;
    for (uint32_t g = 0; g < config->groups; g++) {
        const struct spw_group_config *group = &config->group[g];
        out->record.group[g] = (struct spw_group_record){
            .kind = group->kind,
            .block_tokens = group->block_tokens,
            .window_tokens = group->window_tokens,
            .chunk_bytes = group->chunk_bytes,
            .nominal_bytes = group->nominal_bytes ? group->nominal_bytes : group->chunk_bytes,
        };
    }
    out->shares = SPW_SHARES(config->guaranteed_permille, config->largest_permille);
    memcpy(out->rank_worker, config->rank_worker, config->ranks * sizeof(uint32_t));
}

/* ---- spaces ---------------------------------------------------------------------------------- */

static void fill_space(struct spw_space *space, const struct spw_space_config *config)
{
    space->ranks = config->ranks;
    space->blocks_per_chunk = config->blocks_per_chunk;
    space->scope = config->recompute_scope;
    space->gpu_prefix_cache = config->gpu_prefix_cache != 0;
    space->no_await = config->no_await != 0;
    space->priced = config->max_recompute_pending_tokens == SPW_RECOMPUTE_AUTO;
    space->budget_tokens = space->priced ? 0 : (uint64_t)config->max_recompute_pending_tokens;
    space->price = config->recompute_price ? config->recompute_price : USUAL_PRICE;
    if (config->recompute_price == SPW_PRICE_QUEUE)
        space->price = 0;
    space->prefill_tokens_per_s = config->prefill_tokens_per_s;
    space->limits.ns[SPW_WAIT_FOR_PENDING] =
        config->wait_limit_ns ? config->wait_limit_ns : WAIT_LIMIT_NS;
    space->limits.ns[SPW_WAIT_FOR_RETRY] =
        config->retry_limit_ns ? config->retry_limit_ns : RETRY_LIMIT_NS;
    for (uint32_t g = 0; g < config->groups; g++)
        space->nominal_bytes[g] = config->group[g].nominal_bytes ? config->group[g].nominal_bytes
                                                                 : config->group[g].chunk_bytes;
    for (uint32_t r = 0; r < config->ranks; r++) {
        space->rank_worker[r] = config->rank_worker[r];
        space->own_workers |= 1ull << config->rank_worker[r];
    }
}

static void show_limits(const struct spw_space *space)
{
    struct spw_client_head *head = space->client->own->head;
    spw_store_relaxed(&head->wait_limit_ns, space->limits.ns[SPW_WAIT_FOR_PENDING]);
    spw_store_relaxed(&head->retry_limit_ns, space->limits.ns[SPW_WAIT_FOR_RETRY]);
    spw_store_relaxed(&head->budget_tokens, space->priced ? UINT64_MAX : space->budget_tokens);
}

static int open_space(struct spw_client *client, const struct spw_space_config *config,
                      struct spw_space **out_space, struct spw_error *err)
{
    struct spw_open_space_mail mail;
    struct spw_groups groups;
    if (client->in_step)
        return spw_fail(err, -EINVAL, "space: can't be opened inside a step");
    int rc = check_sizes(client, config, err);
    if (rc == 0)
        rc = check_groups(client, config, &groups, err);
    if (rc < 0)
        return rc;
    struct spw_space *space = calloc(1, sizeof(*space));
    if (!space)
        return -ENOMEM;
    write_mail(config, &mail);
    rc = await_reply(client, send_mail(client, SPW_MAIL_OPEN_SPACE, &mail, sizeof(mail)), err);
    if (rc < 0) {
        free(space);
        return rc;
    }
    space->client = client;
    space->number = (uint32_t)rc;
    space->groups = groups;
    fill_space(space, config);
    show_limits(space);
    spw_list_append(&client->spaces, &space->link);
    spw_space_refresh(space);
    *out_space = space;
    return 0;
}

int spw_space_open(struct spw_client *client, const struct spw_space_config *config,
                   struct spw_space **out_space, char *error_text, uint64_t error_bytes)
{
    struct spw_error err = {0};
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    struct spw_space_config mine;
    if (config && out_space &&
        spw_take_options(&mine, sizeof(mine), config, config->size_bytes, CONFIG_FIRST_BYTES))
        rc = open_space(client, &mine, out_space, &err);
    else
        rc = spw_fail(&err, -EINVAL, "space: no configuration, or its size_bytes is not set");
    if (rc < 0 && error_text && error_bytes > 0)
        snprintf(error_text, error_bytes, "%s", err.text[0] ? err.text : strerror(-rc));
    return rc;
}

int spw_space_queue(struct spw_space *space, uint64_t requests)
{
    int rc = space ? spw_client_check(space->client) : -EINVAL;
    if (rc < 0)
        return rc;
    space->queue = requests < UINT64_MAX ? requests : UINT64_MAX - 1; /* 1 + it is the price */
    return 0;
}

void spw_space_free(struct spw_space *space)
{
    spw_list_remove(&space->link);
    free(space);
}

uint32_t spw_space_number(const struct spw_space *space)
{
    return space ? space->number : UINT32_MAX;
}
