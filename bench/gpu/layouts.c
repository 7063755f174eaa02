/* Section `layouts`: every layout by every way to copy, byte for byte, in memory of this process. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/gpu/exact.h"

#define LAYERS    3u
#define BLOCKS    64u
#define GAP_BYTES 256u

/* Whole vectors of 16 bytes, and others; the last one as pieces are in engines. */
static const uint32_t part_sizes[] = {48, 1000, 4096, 16384};

static int read_whole(void *ctx, uint8_t *bytes, uint64_t count)
{
    return check_ground_read(ctx, bytes, count);
}

static int write_whole(void *ctx, const uint8_t *bytes, uint64_t count)
{
    return check_ground_write(ctx, bytes, count);
}

static int run_rounds(struct check *check, struct check_ground *ground, const struct check_kv *kv,
                      struct check_way *way)
{
    struct check_memory memory = {.write = write_whole, .read = read_whole, .ctx = ground};
    struct check_exact exact;
    int status = check_exact_open(check, kv, &memory, ground, &exact);
    if (status < 0)
        return status;
    status = check_exact_rounds(&exact, way, (uint32_t)check_size(check, 8, 4));
    check_exact_close(&exact);
    return status < 0 ? status : check_way_kept(way);
}

static int try_one(struct check *check, const struct check_shape *shape, enum check_by by)
{
    struct check_ground ground;
    struct check_kv *kv = malloc(sizeof *kv);
    struct check_way *way = calloc(1, sizeof *way);
    int status = kv && way ? 0 : spw_fail(&check->err, -ENOMEM, "no memory for a case");
    if (status == 0) {
        check_kv_lay(shape, kv);
        status = check_ground_open(check, kv->bytes, check_exact_slots(kv), &ground);
    }
    if (status == 0) {
        struct spw_kv_record *record = check_ground_record(&ground, kv);
        status = check_way_open(check, by, record, way);
        free(record);
        if (status == 0)
            status = run_rounds(check, &ground, kv, way);
        check_way_close(way);
        check_ground_close(&ground);
    }
    free(way);
    free(kv);
    return status;
}

static int try_sizes(struct check *check, enum check_layout layout, enum check_by by)
{
    int status = 0;
    for (size_t i = 0; i < sizeof part_sizes / sizeof part_sizes[0] && status == 0; i++) {
        struct check_shape shape = {layout, LAYERS, BLOCKS, part_sizes[i], GAP_BYTES};
        status = check_time(check);
        if (status == 0)
            status = try_one(check, &shape, by);
    }
    return status;
}

int check_layouts(struct check *check)
{
    for (enum check_layout layout = 0; layout < CHECK_LAYOUTS; layout++)
        for (enum check_by by = 0; by < CHECK_WAYS; by++) {
            char name[56];
            snprintf(name, sizeof name, "%s, %s", check_layout_name(layout), check_by_name(by));
            int status = try_sizes(check, layout, by);
            if (status == -ETIME)
                return status;
            check_report_say(&check->report, name,
                             status == 0          ? CHECK_HELD
                             : status == -ENOTSUP ? CHECK_NOT_RUN
                                                  : CHECK_WRONG,
                             "%s", status == 0 ? "" : check->err.text);
        }
    return 0;
}
