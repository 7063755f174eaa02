/* See mail.h. */
#include "tools/mail.h"

#include <stdio.h>
#include <string.h>

#include "tools/log.h"
#include "tools/spaces.h"

static int open_space(struct spw_ctl *ctl, const struct spw_geometry *geometry, uint32_t c,
                      const struct spw_mailbox *mail, char *text, size_t text_bytes)
{
    struct spw_open_space_mail asked;
    memcpy(&asked, mail->bytes, sizeof asked); /* once; only the copy is looked at */
    int status = spw_spaces_open(ctl, geometry, &asked, text, text_bytes);
    if (status >= 0)
        spw_log(SPW_LOG_INFO, "client %u uses space %d, \"%.255s\"", c, status,
                asked.record.fingerprint);
    return status;
}

static int set_shares(struct spw_ctl *ctl, const struct spw_mailbox *mail, char *text,
                      size_t text_bytes)
{
    struct spw_shares_mail asked;
    memcpy(&asked, mail->bytes, sizeof asked); /* once; only the copy is looked at */
    int s = spw_spaces_share(ctl, &asked, text, text_bytes);
    if (s < 0)
        return s;
    uint64_t shares = spw_load_relaxed(&ctl->space[s].shares); /* only the daemon stores them */
    spw_log(SPW_LOG_NOTICE, "space %d, \"%.255s\": guaranteed_permille %u, largest_permille %u", s,
            asked.fingerprint, SPW_SHARES_GUARANTEED(shares), SPW_SHARES_LARGEST(shares));
    return s;
}

bool spw_mail_answer(struct spw_ctl *ctl, const struct spw_geometry *geometry, uint32_t c,
                     const struct spw_client_head *client, uint64_t seq)
{
    const struct spw_mailbox *mail = &client->mailbox;
    struct spw_reply *reply = &ctl->reply[c];
    int status = -EINVAL;
    char text[sizeof reply->text] = "";
    uint64_t generation = spw_load_relaxed(&client->generation); /* stored before this seq */
    uint32_t kind = spw_load_relaxed(&mail->kind);               /* likewise, by [MB-1]    */
    uint64_t length = spw_load_relaxed(&mail->length_bytes);
    if (kind == SPW_MAIL_STOP)
        status = 0;
    else if (kind == SPW_MAIL_OPEN_SPACE && length == sizeof(struct spw_open_space_mail))
        status = open_space(ctl, geometry, c, mail, text, sizeof text);
    else if (kind == SPW_MAIL_SHARES && length == sizeof(struct spw_shares_mail))
        status = set_shares(ctl, mail, text, sizeof text);
    else
        snprintf(text, sizeof text, "unknown request: kind %u, %llu bytes", kind,
                 (unsigned long long)length);
    memcpy(reply->text, text, sizeof text);
    spw_store_relaxed(&reply->value, status >= 0 ? (uint64_t)status : 0);
    spw_store_relaxed(&reply->status, (uint64_t)(int64_t)(status < 0 ? status : 0));
    spw_store_relaxed(&reply->generation, generation);
    spw_store_release(&reply->seq, seq); /* [MB-2] release: the reply before its seq */
    return kind == SPW_MAIL_STOP;
}
