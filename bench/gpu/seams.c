/* A part of section `pinning`: host memory registered in four pieces, as a shard's is, and chunks that begin or
 * end where two of them meet. */
#include <stdlib.h>
#include <sys/mman.h>

#include "bench/gpu/exact.h"
#include "gpu/pin.h"

#define PIECES      4u
#define GUARD_BYTES 4096u /* that check_exact keeps before a slot */
#define ROUNDS      4u

static const struct check_shape shape = {CHECK_BLOCK_FIRST, 1, 64, 16384, 0};

struct seams {
    struct check *check;
    struct check_kv kv;
    struct check_ground ground; /* device memory alone */
    uint8_t *start;
    uint64_t piece_bytes;
    uint32_t registered; /* pieces */
};

static int read_whole(void *ctx, uint8_t *bytes, uint64_t count)
{
    return check_ground_read(ctx, bytes, count);
}

static int write_whole(void *ctx, const uint8_t *bytes, uint64_t count)
{
    return check_ground_write(ctx, bytes, count);
}

static int open_pieces(struct seams *seams)
{
    struct check *check = seams->check;
    struct spw_pin_backend backend = spw_pin_driver(check->gpu);
    const char *word = "refused";
    void *start = mmap(NULL, PIECES * seams->piece_bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return spw_fail(&check->err, -errno, "no memory for %u pieces", PIECES);
    seams->start = start;
    for (; seams->registered < PIECES; seams->registered++) {
        int status = backend.add(backend.ctx, seams->start + seams->registered * seams->piece_bytes,
                                 seams->piece_bytes, true, &word);
        if (status < 0)
            return spw_fail(&check->err, status, "piece %u of %u can't be registered: %s",
                            seams->registered, PIECES, word);
    }
    return 0;
}

static void close_pieces(struct seams *seams)
{
    struct spw_pin_backend backend = spw_pin_driver(seams->check->gpu);
    for (uint32_t i = 0; i < seams->registered; i++)
        backend.remove(backend.ctx, seams->start + i * seams->piece_bytes);
    if (seams->start)
        munmap(seams->start, PIECES * seams->piece_bytes);
    check_ground_close(&seams->ground);
}

/* A chunk whose first byte, or the largest one's last, lies at @seam. */
static int copy_beside(struct seams *seams, struct check_way *way, uint8_t *seam, bool ends)
{
    struct check_ground view = seams->ground;
    struct check_memory memory = {write_whole, read_whole, &seams->ground};
    struct check_exact exact;
    view.slots = seam - GUARD_BYTES - (ends ? SPW_CHUNK_BLOCKS_MAX * seams->kv.block_bytes : 0);
    int status = check_exact_open(seams->check, &seams->kv, &memory, &view, &exact);
    if (status < 0)
        return status;
    status = check_exact_rounds(&exact, way, ROUNDS);
    check_exact_close(&exact);
    return status;
}

static int try_way(struct seams *seams, enum check_by by)
{
    struct spw_kv_record *record = check_ground_record(&seams->ground, &seams->kv);
    struct check_way *way = calloc(1, sizeof *way);
    int status = record && way ? check_way_open(seams->check, by, record, way)
                               : spw_fail(&seams->check->err, -ENOMEM, "no memory for a case");
    for (uint32_t i = 1; i < PIECES && status == 0; i++)
        for (int ends = 0; ends < 2 && status == 0; ends++)
            status = copy_beside(seams, way, seams->start + i * seams->piece_bytes, ends);
    if (status == 0)
        status = check_way_kept(way);
    if (way)
        check_way_close(way);
    free(way);
    free(record);
    return status == -ENOTSUP ? 0 : status;
}

void check_seams(struct check *check, uint64_t bytes)
{
    struct seams *seams = calloc(1, sizeof *seams);
    int status = seams ? 0 : spw_fail(&check->err, -ENOMEM, "no memory for a case");
    if (status == 0) {
        seams->check = check;
        seams->piece_bytes = bytes;
        check_kv_lay(&shape, &seams->kv);
        status = check_ground_open(check, seams->kv.bytes, 0, &seams->ground);
    }
    if (status == 0)
        status = open_pieces(seams);
    for (enum check_by by = CHECK_BY_BATCH; by < CHECK_WAYS && status == 0; by++)
        status = try_way(seams, by);
    if (seams)
        close_pieces(seams);
    free(seams);
    check_report_say(&check->report, "chunks beside the seams of 4 registrations",
                     status == 0 ? CHECK_HELD : CHECK_WRONG, "%s",
                     status == 0 ? "" : check->err.text);
}
