/*
 * spillway shares: change the shares of a space of a living pool. Takes the client place kept for
 * tools and asks the daemon, which alone writes them. A death in between leaves the request standing:
 * the daemon carries it out or not, and nobody is told.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/doorbell.h"
#include "tools/command.h"
#include "tools/units.h"

#define LIMIT_NS 10000000000ull
#define NAP_US   500u

struct shares_args {
    struct spw_pool_args pool;
    char space[256];
    char guaranteed[16], largest[16];
    struct spw_shares_mail asked; /* what they come to */
};

static const struct spw_option options[] = {
    {"space", NULL, SPW_OPTION_TEXT, offsetof(struct shares_args, space), 0,
     sizeof((struct shares_args *)0)->space, NULL, NULL, "its number, or its fingerprint"},
    {"guaranteed", NULL, SPW_OPTION_TEXT, offsetof(struct shares_args, guaranteed), 0,
     sizeof((struct shares_args *)0)->guaranteed, NULL, NULL,
     "in 1/1000 of each of its workers' tiers: others can't take it; 0 takes it back"},
    {"largest", NULL, SPW_OPTION_TEXT, offsetof(struct shares_args, largest), 0,
     sizeof((struct shares_args *)0)->largest, NULL, NULL,
     "likewise: what it has beyond goes first; 0 is all"},
};

static const struct spw_command_form form = {
    .about = "change what a space of a living pool may take",
    .more = options,
    .more_count = sizeof options / sizeof options[0],
};

/* ---- what is asked --------------------------------------------------------------------------- */

/* A share that was given, into @out; one that wasn't stays as it is. */
static int read_share(const char *option, const char *text, uint32_t bit, uint32_t *set,
                      uint32_t *out)
{
    const struct spw_range range = {SPW_UNIT_COUNT, 0, SPW_SHARES_ALL};
    uint64_t value;
    char err[256];
    if (text[0] == 0)
        return 0;
    if (spw_units_parse_in(option, text, &range, &value, err, sizeof err)) {
        fprintf(stderr, "spillway shares: %s\n", err);
        return -EINVAL;
    }
    *set |= bit;
    *out = (uint32_t)value;
    return 0;
}

static int read_asked(const struct shares_args *args, struct spw_shares_mail *out)
{
    uint32_t guaranteed = 0, largest = 0;
    if (!args->space[0] || (!args->guaranteed[0] && !args->largest[0])) {
        fprintf(stderr, "spillway shares: say --space N or FINGERPRINT, and --guaranteed PERMILLE, "
                        "--largest PERMILLE or both\n");
        return -EINVAL;
    }
    if (read_share("--guaranteed", args->guaranteed, SPW_SET_GUARANTEED, &out->set, &guaranteed) ||
        read_share("--largest", args->largest, SPW_SET_LARGEST, &out->set, &largest))
        return -EINVAL;
    out->shares = SPW_SHARES(guaranteed, largest);
    return 0;
}

/* The fingerprint that the space's number stands for, or the one that was given. */
static void name_space(const struct spw_pool *pool, const char *given, char out[256])
{
    char number[16];
    snprintf(out, 256, "%s", given);
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        const struct spw_space_slot *space = &pool->ctl->space[s];
        snprintf(number, sizeof number, "%" PRIu32, s);
        /* [SP-1] acquire: ready before the record */
        if (strcmp(number, given) == 0 && spw_load_acquire(&space->ready) == 1)
            memcpy(out, space->record.fingerprint, 256);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static uint64_t send(const struct spw_client_view *view, const struct spw_shares_mail *asked)
{
    struct spw_mailbox *mail = &view->head->mailbox;
    uint64_t seq = spw_load_relaxed(&mail->seq) + 1; /* ours alone while we hold the lock byte */
    memcpy(mail->bytes, asked, sizeof *asked);
    spw_store_relaxed(&mail->kind, SPW_MAIL_SHARES);
    spw_store_relaxed(&mail->length_bytes, sizeof *asked);
    spw_store_release(&mail->seq, seq); /* [MB-1] release: the request before its seq */
    spw_store_release(&mail->bell, (uint32_t)seq);
    spw_doorbell_ring(&mail->bell, NULL);
    return seq;
}

static const char *remedy(int64_t status)
{
    switch (status) {
    case -ENOSPC:
        return "; spillway ls shows who is promised what, --guaranteed 0 takes it back";
    case -EINVAL:
        return "; change --guaranteed and --largest together";
    case -ESRCH:
        return "; spillway ls shows the spaces";
    default:
        return "";
    }
}

/* The space's number, or why not. */
static int ask(struct spw_pool *pool, const struct spw_shares_mail *asked, struct spw_error *err)
{
    int c = spw_pool_take_client(pool, true, err);
    if (c < 0)
        return c;
    const struct spw_reply *reply = &pool->ctl->reply[c];
    uint64_t until = spw_monotonic_ns() + LIMIT_NS;
    spw_client_take_over(&pool->client[c]);
    uint64_t seq = send(&pool->client[c], asked);
    /* [MB-2] acquire: seq before the reply */
    while (spw_load_acquire(&reply->seq) != seq) {
        if (spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) == 0)
            return spw_fail(err, -EOWNERDEAD, "pool %s has no daemon any more", pool->path.name);
        if (spw_monotonic_ns() >= until)
            return spw_fail(err, -ETIMEDOUT,
                            "the daemon of pool %s has not answered within %u s; "
                            "is it stopped or stuck?",
                            pool->path.name, (unsigned)(LIMIT_NS / 1000000000));
        usleep(NAP_US);
    }
    int64_t status = (int64_t)spw_load_relaxed(&reply->status);
    uint64_t value = spw_load_relaxed(&reply->value);
    if (status < 0)
        return spw_fail(err, (int)status, "space \"%.255s\": %.95s%s", asked->fingerprint,
                        reply->text, remedy(status));
    return value < SPW_SPACES_MAX ? (int)value : -EBADMSG;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print(const struct spw_pool *pool, uint32_t s, const char *fingerprint, bool json)
{
    uint64_t shares = spw_load_relaxed(&pool->ctl->space[s].shares); /* for display */
    uint32_t guaranteed = SPW_SHARES_GUARANTEED(shares), largest = SPW_SHARES_LARGEST(shares);
    if (!json) {
        printf("space %" PRIu32 " (%s): guaranteed %" PRIu32 ", largest %" PRIu32 " of %u\n", s,
               fingerprint, guaranteed, largest ? largest : SPW_SHARES_ALL, SPW_SHARES_ALL);
        return;
    }
    json_t *root = json_pack("{s:i, s:s, s:i, s:s, s:i, s:i}", "schema", 1, "pool", pool->path.name,
                             "space", (int)s, "fingerprint", fingerprint, "guaranteed_permille",
                             (int)guaranteed, "largest_permille", (int)largest);
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

static int change(struct spw_pool *pool, void *ctx, struct spw_error *err)
{
    struct shares_args *args = ctx;
    struct spw_shares_mail *asked = &args->asked;
    name_space(pool, args->space, asked->fingerprint);
    int s = ask(pool, asked, err);
    if (s >= 0)
        print(pool, (uint32_t)s, asked->fingerprint, args->pool.json);
    return s;
}

int spw_cmd_shares(int argc, char *const *argv)
{
    struct shares_args args = {0};
    int status = spw_command_args_read(argc, argv, &form, &args.pool, NULL);
    if (status >= 0)
        return status;
    if (read_asked(&args, &args.asked) < 0)
        return SPW_EXIT_USAGE;
    return spw_command_on_pool("shares", &args.pool, change, &args);
}
