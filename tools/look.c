/* What commands that only look share; see look.h. */
#include "tools/look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int spw_look_open(const char *command, const struct spw_pool_args *args, struct spw_pool **out_pool)
{
    struct spw_error err = {0};
    struct spw_pool_path path;
    struct spw_pool *pool = calloc(1, sizeof *pool);
    if (!pool) {
        fprintf(stderr, "spillway %s: out of memory\n", command);
        return SPW_EXIT_FAILED;
    }
    int rc = spw_pool_path_init(&path, args->shm_dir, args->pool, (uint32_t)args->uid, &err);
    if (!rc)
        rc = spw_pool_attach(&path, SPW_ROLE_TOOL, 0, pool, &err);
    if (rc) {
        fprintf(stderr, "spillway %s: %s\n", command, err.text);
        free(pool);
        return spw_exit_of(rc);
    }
    *out_pool = pool;
    return 0;
}

void spw_look_close(struct spw_pool *pool)
{
    if (pool)
        spw_pool_detach(pool);
    free(pool);
}

void spw_look_label(const struct spw_client_head *head, char out_label[48])
{
    _Static_assert(sizeof head->label == 48, "as declared");
    for (size_t i = 0; i < sizeof head->label; i++) {
        char letter = head->label[i]; /* its process may write it now */
        out_label[i] = letter == 0 || (letter >= ' ' && letter < 127) ? letter : '?';
    }
    out_label[sizeof head->label - 1] = 0;
}

void spw_look_fingerprint(const struct spw_pool *pool, uint32_t s,
                          char out_text[SPW_LOOK_FINGERPRINT_BYTES])
{
    const uint32_t last = SPW_LOOK_FINGERPRINT_BYTES - 1;
    memcpy(out_text, pool->ctl->space[s].record.fingerprint, last);
    out_text[last] = 0;
    for (char *letter = out_text; *letter; letter++)
        if (*letter < ' ' || *letter > '~')
            *letter = '?';
}

const char *spw_look_duration(uint64_t ns, char out_text[SPW_LOOK_DURATION_BYTES])
{
    double s = (double)ns / 1e9;
    if (ns < 1000000)
        snprintf(out_text, SPW_LOOK_DURATION_BYTES, "%.0f us", s * 1e6);
    else if (ns < 1000000000)
        snprintf(out_text, SPW_LOOK_DURATION_BYTES, "%.0f ms", s * 1e3);
    else
        snprintf(out_text, SPW_LOOK_DURATION_BYTES, s < 100 ? "%.1f s" : "%.0f s", s);
    return out_text;
}
