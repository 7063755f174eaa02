/* tier/io: transfers over each engine, bare and under the seam that gives trouble. */
#include "tier/io.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <xxhash.h>

#include "shm/atomic.h"
#include "tests/unit/io_rig.h"

TestSuite(io, .timeout = 30);

struct over {
    enum spw_io_choice engine;
    bool seam;
};

static struct over over[] = {
    {SPW_IO_URING, false}, {SPW_IO_URING, true}, {SPW_IO_THREADS, false}, {SPW_IO_THREADS, true}};

#define EACH_ENGINE(name)                                                                          \
    ParameterizedTestParameters(io, name)                                                          \
    {                                                                                              \
        return cr_make_param_array(struct over, over, sizeof over / sizeof over[0]);               \
    }                                                                                              \
    ParameterizedTest(const struct over *o, io, name)

static void count_wake(void *ctx)
{
    const uint64_t one = 1;
    if (write(*(int *)ctx, &one, sizeof one) != sizeof one)
        abort();
}

static struct io_rig open_rig(const struct over *o, uint32_t depth, int *bell)
{
    struct io_rig rig = io_rig_without();
    const struct iovec memory = {rig.memory, PARTS * PART};
    struct spw_io_config config = {.choice = o->engine,
                                   .depth = depth,
                                   .memory = &memory,
                                   .memory_count = 1,
                                   .part_bytes = PART,
                                   .wake = bell ? count_wake : NULL,
                                   .wake_ctx = bell};
    struct spw_error err = {0};
    cr_assert(spw_io_open(&config, &rig.io, &err) == 0, "%s", err.text);
    struct spw_io_mode mode = io_rig_mode(&rig);
    cr_assert(mode.uring == (o->engine == SPW_IO_URING));
    cr_assert(mode.registered == mode.uring, "%s", mode.why);
    if (o->seam) {
        rig.fault = fault_io_open(rig.io, &config, 7, &rig.io);
        fault_io_shuffle(rig.fault);
    }
    return rig;
}

static void close_rig(struct io_rig *rig)
{
    cr_assert(io_rig_close(rig) == 0);
}

EACH_ENGINE(bytes_come_back_with_their_sum)
{
    struct io_rig rig = open_rig(o, 4, NULL);
    io_rig_fill(rig.memory, PART, 1);
    struct spw_io io = io_rig_part(&rig, SPW_IO_WRITE, 0, 3);
    cr_assert(io_rig_submit(&rig, &io) == 0);
    struct spw_io_end end = io_rig_take(&rig);
    cr_assert(end.result == PART);
    cr_expect(end.sum == XXH3_64bits(rig.memory, PART));
    io = io_rig_part(&rig, SPW_IO_READ, 1, 3);
    cr_assert(io_rig_submit(&rig, &io) == 0);
    end = io_rig_take(&rig);
    cr_assert(end.result == PART);
    cr_expect(end.sum == XXH3_64bits(rig.memory, PART));
    cr_expect(memcmp(rig.memory, rig.memory + PART, PART) == 0);
    close_rig(&rig);
}

EACH_ENGINE(a_read_past_the_end_is_short_and_has_no_sum)
{
    struct io_rig rig = open_rig(o, 4, NULL);
    cr_assert(ftruncate(rig.fd, 40960) == 0);
    struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 0, 0);
    cr_assert(io_rig_submit(&rig, &io) == 0);
    struct spw_io_end end = io_rig_take(&rig);
    cr_expect(end.result == 40960);
    cr_expect(end.sum == 0);
    io.offset = 40960;
    cr_expect(io_rig_run(&rig, io) == 0);
    close_rig(&rig);
}

static int64_t call_it(void *arg)
{
    return *(int *)arg;
}

EACH_ENGINE(calls_and_syncs_end_with_what_they_return)
{
    struct io_rig rig = open_rig(o, 2, NULL);
    int good = 17, bad = -ENOSPC;
    struct spw_io call = {.op = SPW_IO_CALL, .call = call_it, .arg = &good};
    cr_expect(io_rig_run(&rig, call) == 17);
    call.arg = &bad;
    cr_expect(io_rig_run(&rig, call) == -ENOSPC);
    cr_expect(io_rig_run(&rig, (struct spw_io){.op = SPW_IO_SYNC, .fd = rig.fd}) == 0);
    cr_expect(io_rig_run(&rig, (struct spw_io){.op = SPW_IO_SYNC, .fd = -1}) == -EBADF);
    close_rig(&rig);
}

EACH_ENGINE(memory_that_is_not_registered_works_too)
{
    struct io_rig rig = open_rig(o, 2, NULL);
    uint8_t *other = malloc(2 * PART);
    io_rig_fill(other, PART, 5);
    struct spw_io io = {.op = SPW_IO_WRITE, .fd = rig.fd, .buffer = other, .bytes = PART};
    cr_expect(io_rig_run(&rig, io) == PART);
    io.op = SPW_IO_READ;
    io.buffer = other + PART;
    cr_expect(io_rig_run(&rig, io) == PART);
    cr_expect(memcmp(other, other + PART, PART) == 0);
    free(other);
    close_rig(&rig);
}

EACH_ENGINE(every_end_wakes)
{
    int bell = eventfd(0, EFD_CLOEXEC);
    struct io_rig rig = open_rig(o, 4, &bell);
    struct spw_io_end end;
    uint64_t rung;
    cr_assert(io_rig_run(&rig, io_rig_part(&rig, SPW_IO_WRITE, 0, 0)) == PART);
    cr_assert(read(bell, &rung, sizeof rung) == sizeof rung); /* would hang */
    for (int i = 0; i < 20; i++) {
        struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 1, 0);
        cr_assert(io_rig_submit(&rig, &io) == 0);
        int count = 0;
        while (count == 0) {
            cr_assert(read(bell, &rung, sizeof rung) == sizeof rung);
            count = rig.io.ops->poll(rig.io.engine, &end, 1);
        }
        cr_assert(end.result == PART);
    }
    close_rig(&rig);
    close(bell);
}

/* As many as it takes, @total of them; how often each of them ended well, -1 if one did badly. */
static void many_reads(struct io_rig *rig, uint32_t total, int8_t *times)
{
    uint32_t asked = 0, ended = 0;
    while (ended < total) {
        struct spw_io io = io_rig_part(rig, SPW_IO_READ, asked % PARTS, asked % PARTS);
        io.urgent = asked % 3 == 0;
        io.tag = &times[asked];
        if (asked < total && io_rig_submit(rig, &io) == 0) {
            asked++;
            continue;
        }
        struct spw_io_end end = io_rig_take(rig);
        int8_t *time = end.tag;
        cr_assert(end.result != -ETIME);
        *time = end.result == PART ? (int8_t)(*time + 1) : (int8_t)-1;
        ended++;
    }
}

static void write_all_parts(struct io_rig *rig)
{
    io_rig_fill(rig->memory, PARTS * PART, 9);
    for (uint32_t i = 0; i < PARTS; i++)
        cr_assert(io_rig_run(rig, io_rig_part(rig, SPW_IO_WRITE, i, i)) == PART);
}

EACH_ENGINE(a_thousand_reads_end_once_each)
{
    static int8_t times[1000];
    struct io_rig rig = open_rig(o, 8, NULL);
    struct spw_io_end end;
    write_all_parts(&rig);
    many_reads(&rig, 1000, times);
    for (int i = 0; i < 1000; i++)
        cr_assert(times[i] == 1, "read %d: %d", i, times[i]);
    cr_expect(rig.io.ops->poll(rig.io.engine, &end, 1) == 0);
    close_rig(&rig);
}

/* One of a hundred has @bad's trouble, the others none; then a hundred without any. */
static void one_bad_among_many(struct io_rig *rig, const struct spw_io *bad, int64_t result)
{
    for (int round = 0; round < 2; round++) {
        int good = 0;
        for (uint32_t i = 0; i < 100; i++) {
            bool is_bad = bad && round == 0 && i == 50;
            struct spw_io io = is_bad ? *bad : io_rig_part(rig, SPW_IO_READ, i % 4, i % 4);
            io.tag = is_bad ? rig : NULL;
            cr_assert(io_rig_submit(rig, &io) == 0);
            struct spw_io_end end = io_rig_take(rig);
            good += end.result == PART;
            if (end.result != PART)
                cr_expect(end.result == result, "%ld", (long)end.result);
        }
        cr_expect(good == (round == 0 ? 99 : 100), "%d good", good);
    }
}

EACH_ENGINE(trouble_of_one_transfer_is_its_own)
{
    struct io_rig rig = open_rig(o, 8, NULL);
    write_all_parts(&rig);
    struct spw_io no_file = io_rig_part(&rig, SPW_IO_READ, 5, 0);
    no_file.fd = -1;
    one_bad_among_many(&rig, &no_file, -EBADF);
    struct spw_io no_memory = io_rig_part(&rig, SPW_IO_READ, 5, 0);
    no_memory.buffer = (void *)4096;
    no_memory.sum_bytes = 0;
    one_bad_among_many(&rig, &no_memory, -EFAULT);
    struct spw_io past_end = io_rig_part(&rig, SPW_IO_READ, 5, PARTS);
    one_bad_among_many(&rig, &past_end, 0);
    struct spw_io short_read = io_rig_part(&rig, SPW_IO_READ, 5, PARTS - 1);
    short_read.offset += 4096;
    one_bad_among_many(&rig, &short_read, PART - 4096);
    cr_expect(io_rig_mode(&rig).uring == (o->engine == SPW_IO_URING));
    close_rig(&rig);
}

/* ---- the seam's own ------------------------------------------------------------------------- */

EACH_ENGINE(the_seam_gives_the_trouble_it_is_told)
{
    if (!o->seam)
        cr_skip_test("the seam alone");
    struct io_rig rig = open_rig(o, 8, NULL);
    const int error[] = {-EIO, -EACCES, -ENOENT, -ENOSPC};
    write_all_parts(&rig);
    for (int i = 0; i < 4; i++) {
        fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_ERROR,
                                                        .op = SPW_IO_READ,
                                                        .first = 51,
                                                        .count = 1,
                                                        .error = error[i]});
        one_bad_among_many(&rig, NULL, error[i]);
        fault_io_clear(rig.fault);
    }
    close_rig(&rig);
}

/* ---- order, limit and end --------------------------------------------------------------------- */

static int64_t read_pipe(void *arg)
{
    char byte;
    return read(*(int *)arg, &byte, 1);
}

/* A transfer that takes the engine's only place until a byte is written to @pipe_fd. */
static struct spw_io blocker(const struct over *o, int *pipe_fd, uint8_t *byte)
{
    if (o->engine == SPW_IO_URING)
        return (struct spw_io){.op = SPW_IO_READ, .fd = *pipe_fd, .buffer = byte, .bytes = 1};
    return (struct spw_io){.op = SPW_IO_CALL, .call = read_pipe, .arg = pipe_fd};
}

EACH_ENGINE(urgent_ones_overtake_what_waits)
{
    if (o->seam)
        cr_skip_test("the seam changes the order");
    struct io_rig rig = open_rig(o, 1, NULL);
    int pipe_fd[2], tag[4] = {0, 1, 2, 3};
    uint8_t byte;
    cr_assert(pipe(pipe_fd) == 0);
    write_all_parts(&rig);
    struct spw_io first = blocker(o, &pipe_fd[0], &byte);
    first.tag = &tag[0];
    cr_assert(io_rig_submit(&rig, &first) == 0);
    usleep(20000); /* it has been begun */
    for (int i = 1; i < 4; i++) {
        struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 0, 0);
        io.tag = &tag[i];
        io.urgent = i == 3;
        cr_assert(io_rig_submit(&rig, &io) == 0);
    }
    struct spw_io more = io_rig_part(&rig, SPW_IO_READ, 0, 0);
    cr_expect(io_rig_submit(&rig, &more) == -EAGAIN); /* four times the depth */
    cr_assert(write(pipe_fd[1], "x", 1) == 1);
    const int order[] = {0, 3, 1, 2};
    for (int i = 0; i < 4; i++)
        cr_expect(*(int *)io_rig_take(&rig).tag == order[i], "end %d", i);
    close_rig(&rig);
}

EACH_ENGINE(a_transfer_that_hangs_is_left_behind_in_time)
{
    static struct io_rig rig; /* stays, as what the transfer needs does */
    static int pipe_fd[2];
    static uint8_t byte;
    rig = open_rig(o, 4, NULL);
    cr_assert(pipe(pipe_fd) == 0);
    struct spw_io hangs = blocker(o, &pipe_fd[0], &byte);
    cr_assert(io_rig_submit(&rig, &hangs) == 0);
    usleep(20000);
    uint64_t begin = spw_monotonic_ns();
    cr_expect(rig.io.ops->close(rig.io.engine, SECOND / 20) == -ETIMEDOUT);
    cr_expect(spw_monotonic_ns() - begin < 5 * SECOND);
}

struct crowd {
    pthread_mutex_t lock;
    int now, most;
};

static int64_t join_crowd(void *arg)
{
    struct crowd *crowd = arg;
    pthread_mutex_lock(&crowd->lock);
    crowd->now++;
    if (crowd->now > crowd->most)
        crowd->most = crowd->now;
    pthread_mutex_unlock(&crowd->lock);
    usleep(2000);
    pthread_mutex_lock(&crowd->lock);
    crowd->now--;
    pthread_mutex_unlock(&crowd->lock);
    return 0;
}

Test(io, threads_are_no_more_than_the_depth)
{
    const struct over o = {SPW_IO_THREADS, false};
    struct io_rig rig = open_rig(&o, 3, NULL);
    struct crowd crowd = {.lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < 12; i++) {
        struct spw_io io = {.op = SPW_IO_CALL, .call = join_crowd, .arg = &crowd};
        cr_assert(io_rig_submit(&rig, &io) == 0);
    }
    for (int i = 0; i < 12; i++)
        cr_assert(io_rig_take(&rig).result == 0);
    cr_expect(crowd.most == 3, "%d", crowd.most);
    close_rig(&rig);
}

Test(io, a_depth_that_makes_no_sense_is_refused)
{
    const uint32_t depth[] = {0, SPW_IO_DEPTH_MAX + 1};
    for (int choice = SPW_IO_AUTO; choice <= SPW_IO_THREADS; choice++) {
        for (int i = 0; i < 2; i++) {
            struct spw_io_config config = {.choice = choice, .depth = depth[i]};
            struct spw_io_handle io;
            struct spw_error err = {0};
            cr_expect(spw_io_open(&config, &io, &err) == -EINVAL);
            cr_expect(err.text[0] != 0);
        }
    }
}

/* ---- a kernel that is interrupted ------------------------------------------------------------- */

static spw_atomic32 interruptions; /* of transfers from now on */

static bool is_interrupted(void)
{
    uint32_t left = spw_load_relaxed(&interruptions);
    if (left == 0)
        return false;
    spw_store_relaxed(&interruptions, left - 1); /* one thread */
    errno = EINTR;
    return true;
}

/* In place of libc's, for all of this program. */
ssize_t pread64(int fd, void *to, size_t bytes, off64_t at);
ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at);

ssize_t pread64(int fd, void *to, size_t bytes, off64_t at)
{
    return is_interrupted() ? -1 : syscall(SYS_pread64, fd, to, bytes, at);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    return is_interrupted() ? -1 : syscall(SYS_pwrite64, fd, from, bytes, at);
}

Test(io, IO_7_what_a_signal_interrupts_is_done_again)
{
    const struct over o = {SPW_IO_THREADS, false};
    struct io_rig rig = open_rig(&o, 1, NULL);
    spw_store_relaxed(&interruptions, 3);
    cr_expect(io_rig_run(&rig, io_rig_part(&rig, SPW_IO_WRITE, 0, 0)) == PART);
    cr_expect(spw_load_relaxed(&interruptions) == 0);
    spw_store_relaxed(&interruptions, 3);
    cr_expect(io_rig_run(&rig, io_rig_part(&rig, SPW_IO_READ, 0, 0)) == PART);
    cr_expect(spw_load_relaxed(&interruptions) == 0);
    close_rig(&rig);
}
