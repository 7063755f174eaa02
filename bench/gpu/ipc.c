/* Section `ipc`: memory that a second process exports, registered here, copied and read there. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/gpu/peer.h"

/* A small allocation may share its pages with others of its process; a large one has its own. */
static const struct {
    const char *name;
    struct check_shape shape;
} cases[] = {
    {"a small allocation", {CHECK_KV_FIRST, 2, 40, 512, 256}},
    {"a large allocation", {CHECK_KV_FIRST, 2, 64, 16384, 256}},
};

static int run_rounds(struct check *check, struct check_peer *peer, struct check_ground *ground,
                      const struct check_kv *kv, struct check_way *way)
{
    struct check_memory memory = check_peer_memory(peer);
    struct check_exact exact;
    int status = check_exact_open(check, kv, &memory, ground, &exact);
    if (status < 0)
        return status;
    status = check_exact_rounds(&exact, way, 8);
    check_exact_close(&exact);
    return status < 0 ? status : check_way_kept(way);
}

static int try_way(struct check *check, const struct check_kv *kv, enum check_by by)
{
    struct check_ground ground = {.check = NULL};
    struct check_peer peer = {.check = NULL};
    struct check_way *way = calloc(1, sizeof *way);
    int status = way ? 0 : spw_fail(&check->err, -ENOMEM, "no memory for a case");
    if (status == 0)
        status = check_ground_open(check, 0, check_exact_slots(kv), &ground);
    if (status == 0)
        status = check_peer_start(check, kv->bytes, 0, &peer);
    if (status == 0) {
        struct spw_kv_record *record = check_peer_record(&peer, kv);
        status = check_way_open(check, by, record, way);
        free(record);
    }
    if (status == 0)
        status = run_rounds(check, &peer, &ground, kv, way);
    if (way)
        check_way_close(way); /* before its memory goes */
    check_peer_end(&peer);
    check_ground_close(&ground);
    free(way);
    return status;
}

int check_ipc(struct check *check)
{
    struct check_kv *kv = malloc(sizeof *kv);
    int status = kv ? 0 : spw_fail(&check->err, -ENOMEM, "no memory for a case");
    for (size_t c = 0; c < sizeof cases / sizeof cases[0] && status == 0; c++)
        for (enum check_by by = CHECK_BY_BATCH; by < CHECK_WAYS && status == 0; by++) {
            char name[56];
            snprintf(name, sizeof name, "%s, %s", cases[c].name, check_by_name(by));
            check_kv_lay(&cases[c].shape, kv);
            status = check_time(check);
            if (status < 0)
                break;
            int tried = try_way(check, kv, by);
            check_report_say(&check->report, name,
                             tried == 0          ? CHECK_HELD
                             : tried == -ENOTSUP ? CHECK_NOT_RUN
                                                 : CHECK_WRONG,
                             "%s", tried == 0 ? "" : check->err.text);
        }
    free(kv);
    return status;
}
