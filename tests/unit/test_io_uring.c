/* tier/uring_io: what a kernel that refuses, runs short or takes only a part does to it. */
#include "tier/uring_io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/support/deny.h"
#include "tests/unit/io_rig.h"

TestSuite(io_uring, .timeout = 30);

/* ---- in a child that the kernel refuses something ------------------------------------------- */

/* Exit code of @body in a child; it must not use the macros of the tests. */
static int in_child(int (*body)(void))
{
    int status = 0;
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0)
        _exit(body());
    cr_assert(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static bool open_auto(struct io_rig *rig)
{
    const struct iovec memory = {rig->memory, PARTS * PART};
    struct spw_io_config config = {
        .depth = 8, .memory = &memory, .memory_count = 1, .part_bytes = PART};
    return spw_io_open(&config, &rig->io, NULL) == 0;
}

/* The number of a line that was wrong, or 0. */
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            return __LINE__ % 256;                                                                 \
    } while (0)

static int refused_with(long call, int error)
{
    struct io_rig rig = io_rig_without();
    CHECK(support_deny(call, error) == 0);
    CHECK(open_auto(&rig));
    struct spw_io_mode mode = io_rig_mode(&rig);
    CHECK(!mode.uring && !mode.registered);
    CHECK(strstr(mode.why, "io_uring") && strstr(mode.why, strerror(error)));
    CHECK(io_rig_round_trip(&rig, 100));
    CHECK(io_rig_close(&rig) == 0);
    struct spw_io_config config = {.choice = SPW_IO_URING, .depth = 8};
    struct spw_error err = {0};
    CHECK(spw_io_open(&config, &rig.io, &err) == -EOPNOTSUPP && strstr(err.text, "io_uring"));
    return 0;
}

static int setup_eperm(void)
{
    return refused_with(SYS_io_uring_setup, EPERM);
}

static int setup_enosys(void)
{
    return refused_with(SYS_io_uring_setup, ENOSYS);
}

static int enter_eperm(void)
{
    return refused_with(SYS_io_uring_enter, EPERM);
}

Test(io_uring, IO_4_without_a_ring_threads_do_it_and_say_why)
{
    cr_expect(in_child(setup_eperm) == 0, "line %d", in_child(setup_eperm));
    cr_expect(in_child(setup_enosys) == 0, "line %d", in_child(setup_enosys));
    cr_expect(in_child(enter_eperm) == 0, "line %d", in_child(enter_eperm));
}

#define MEMLOCK_BYTES (16u << 20)

static int little_memlock(void)
{
    const struct rlimit limit = {65536, 65536};
    struct io_rig rig = io_rig_without();
    void *much =
        mmap(NULL, MEMLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct iovec memory = {much, MEMLOCK_BYTES};
    struct spw_io_config config = {
        .depth = 8, .memory = &memory, .memory_count = 1, .part_bytes = PART};
    CHECK(much != MAP_FAILED);
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    CHECK(setuid(65534) == 0 || geteuid() != 0);
    CHECK(spw_io_open(&config, &rig.io, NULL) == 0);
    struct spw_io_mode mode = io_rig_mode(&rig);
    CHECK(mode.uring && !mode.registered);
    CHECK(strstr(mode.why, "needs 16 MiB, limit 64 KiB"));
    CHECK(io_rig_round_trip(&rig, 10));
    CHECK(io_rig_close(&rig) == 0);
    return 0;
}

Test(io_uring, IO_5_a_small_memlock_limit_is_told_with_numbers_and_all_goes_on)
{
    cr_expect(in_child(little_memlock) == 0, "line %d", in_child(little_memlock));
}

/* ---- pieces of memory ------------------------------------------------------------------------ */

#define GIB (1ull << 30)

Test(io_uring, IO_6_pieces_end_at_chunks_and_are_at_most_a_gib)
{
    struct iovec piece[4], memory[2] = {{(void *)GIB, GIB + PART}, {(void *)(8 * GIB), 4096}};
    cr_assert(spw_uring_split(memory, 1, PART, piece, 4) == 2);
    cr_expect(piece[0].iov_base == memory[0].iov_base && piece[0].iov_len == GIB);
    cr_expect((uintptr_t)piece[1].iov_base == 2 * GIB && piece[1].iov_len == PART);
    const uint64_t odd = 3 * PART; /* no divisor of a GiB */
    cr_assert(spw_uring_split(memory, 2, odd, piece, 4) == 3);
    cr_expect(piece[0].iov_len == GIB - GIB % odd);
    cr_expect(piece[0].iov_len + piece[1].iov_len == GIB + PART);
    cr_expect(piece[2].iov_base == memory[1].iov_base && piece[2].iov_len == 4096);
    memory[0].iov_len = 4 * GIB;
    cr_expect(spw_uring_split(memory, 1, PART, piece, 4) == 4);
    cr_expect(spw_uring_split(memory, 2, PART, piece, 4) == -E2BIG);
    memory[0].iov_len = 16384 * GIB;
    cr_expect(spw_uring_split(memory, 1, 4 * GIB, piece, 4) == -E2BIG);
}

Test(io_uring, IO_6_more_ranges_than_the_kernel_takes_are_not_registered)
{
    struct io_rig rig = io_rig_without();
    struct iovec *memory = calloc(SPW_URING_PIECES_MAX + 1, sizeof *memory);
    for (uint32_t i = 0; i <= SPW_URING_PIECES_MAX; i++)
        memory[i] = (struct iovec){rig.memory, PART};
    struct spw_io_config config = {
        .depth = 8, .memory = memory, .memory_count = SPW_URING_PIECES_MAX + 1, .part_bytes = PART};
    cr_assert(spw_io_open(&config, &rig.io, NULL) == 0);
    struct spw_io_mode mode = io_rig_mode(&rig);
    cr_expect(mode.uring);
    cr_expect(!mode.registered);
    cr_expect(strstr(mode.why, "16384") != NULL, "%s", mode.why);
    cr_expect(io_rig_round_trip(&rig, 10));
    cr_expect(io_rig_close(&rig) == 0);
    free(memory);
}

/* ---- a kernel of the test's own --------------------------------------------------------------- */

/* Written by the ring's thread, read when it is gone. */
static struct {
    uint32_t entered, sent, most, taken[256];
    uint32_t pieces;
    bool refuse_fixed; /* opcodes that this kernel has never heard of */
    bool hard;         /* busy, interrupted, takes a part               */
    uint32_t broken;   /* transfers that ended as none does for good    */
    bool breaks;
} kernel;

static int tiny_register(struct io_uring *ring, const struct iovec *piece, unsigned count)
{
    struct iovec some[2];
    kernel.pieces = count;
    if (count != 2 || piece[0].iov_len != GIB || piece[1].iov_len != PART)
        return -EFAULT;
    /* the first one's last part, or all of it would be made present */
    some[0] = (struct iovec){(uint8_t *)piece[0].iov_base + GIB - PART, PART};
    some[1] = piece[1];
    return io_uring_register_buffers(ring, some, 2);
}

/* Look at, and change, what is about to be handed over. */
static void look(struct io_uring *ring)
{
    for (unsigned at = *ring->sq.khead; at != ring->sq.sqe_tail; at++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[at & ring->sq.ring_mask];
        kernel.taken[sqe->opcode]++;
        bool fixed = sqe->opcode == IORING_OP_READ_FIXED || sqe->opcode == IORING_OP_WRITE_FIXED;
        if (kernel.refuse_fixed && fixed)
            sqe->opcode = 250;
    }
}

/* Two of what is ready, as a kernel short of memory would take. */
static int submit_two(struct io_uring *ring)
{
    unsigned tail = ring->sq.sqe_tail;
    ring->sq.sqe_tail = *ring->sq.khead + 2;
    int rc = io_uring_submit(ring);
    ring->sq.sqe_tail = tail;
    return rc;
}

/* Some of what has ended was interrupted, or would have had to wait. */
static void break_ends(struct io_uring *ring)
{
    for (unsigned at = *ring->cq.khead; at != io_uring_smp_load_acquire(ring->cq.ktail); at++) {
        struct io_uring_cqe *cqe = &ring->cq.cqes[at & ring->cq.ring_mask];
        if (cqe->user_data != 0 && cqe->res > 0 && cqe->res <= (int)PART)
            cqe->res = kernel.broken++ % 2 ? -EINTR : -EAGAIN;
    }
}

static int enter(struct io_uring *ring, unsigned wait)
{
    static const int trouble[] = {0, -EAGAIN, 0, -EBUSY, 0, -EINTR};
    int rc = kernel.hard ? trouble[kernel.entered++ % 6] : 0;
    if (rc < 0)
        return rc;
    look(ring);
    if (kernel.hard && kernel.entered % 2 == 0 && io_uring_sq_ready(ring) > 2)
        rc = submit_two(ring);
    else
        rc = io_uring_submit_and_wait(ring, wait);
    if (kernel.breaks)
        break_ends(ring);
    kernel.sent += rc > 0 ? (uint32_t)rc : 0;
    uint32_t with_it = kernel.sent - *ring->cq.khead;
    if (with_it > kernel.most)
        kernel.most = with_it;
    return rc;
}

static const struct spw_uring_calls own_kernel = {
    .init = io_uring_queue_init_params,
    .submit_and_wait = enter,
    .register_buffers = io_uring_register_buffers,
};

static struct io_rig open_own_kernel(uint32_t depth, const struct iovec *memory,
                                     const struct spw_uring_calls *calls)
{
    struct io_rig rig = io_rig_without();
    const struct iovec whole = {rig.memory, PARTS * PART};
    struct spw_io_config config = {
        .depth = depth, .memory = memory ? memory : &whole, .memory_count = 1, .part_bytes = PART};
    struct spw_error err = {0};
    cr_assert(spw_uring_io_open(&config, calls, &rig.io, &err) == 0, "%s", err.text);
    return rig;
}

/* Reads, each ending once. */
static void thousand_reads(struct io_rig *rig)
{
    static uint8_t times[1000];
    uint32_t asked = 0;
    for (uint32_t ended = 0; ended < 1000; ended++) {
        struct spw_io io = io_rig_part(rig, SPW_IO_READ, asked % PARTS, asked % PARTS);
        io.tag = &times[asked];
        while (asked < 1000 && io_rig_submit(rig, &io) == 0) {
            asked++;
            io = io_rig_part(rig, SPW_IO_READ, asked % PARTS, asked % PARTS);
            io.tag = &times[asked];
        }
        struct spw_io_end end = io_rig_take(rig);
        cr_assert(end.result == PART, "%ld", (long)end.result);
        ++*(uint8_t *)end.tag;
    }
    for (int i = 0; i < 1000; i++)
        cr_assert(times[i] == 1, "read %d: %d times", i, times[i]);
}

static void run_thousand(bool hard)
{
    kernel.hard = hard;
    struct io_rig rig = open_own_kernel(8, NULL, &own_kernel);
    cr_assert(io_rig_round_trip(&rig, PARTS));
    thousand_reads(&rig);
    cr_assert(io_rig_close(&rig) == 0);
    cr_expect(kernel.most >= 5 && kernel.most <= 8 + 1, "%u at once", kernel.most); /* and a bell */
    cr_expect(kernel.taken[IORING_OP_READ_FIXED] >= 1000);
}

Test(io_uring, IO_7_never_more_than_the_limit_and_each_result_once)
{
    run_thousand(false);
}

Test(io_uring, IO_7_a_kernel_that_is_busy_interrupted_or_takes_a_part_loses_nothing)
{
    run_thousand(true);
    cr_expect(kernel.entered > 100);
}

Test(io_uring, IO_7_a_transfer_that_was_interrupted_is_done_again)
{
    kernel.breaks = true;
    struct io_rig rig = open_own_kernel(8, NULL, &own_kernel);
    cr_assert(io_rig_round_trip(&rig, PARTS));
    thousand_reads(&rig);
    cr_expect(io_rig_mode(&rig).uring, "that is no refusal");
    cr_assert(io_rig_close(&rig) == 0);
    cr_expect(kernel.broken >= 1000, "%u", kernel.broken);
}

static void refused_later(void)
{
    struct io_rig rig = open_own_kernel(8, NULL, &own_kernel);
    cr_assert(io_rig_mode(&rig).uring);
    cr_assert(io_rig_round_trip(&rig, PARTS));
    thousand_reads(&rig);
    struct spw_io_mode mode = io_rig_mode(&rig);
    cr_expect(!mode.uring);
    cr_expect(!mode.registered);
    cr_expect(strstr(mode.why, "threads") != NULL, "%s", mode.why);
    struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 0, 0);
    io.fd = -1;
    cr_expect(io_rig_run(&rig, io) == -EBADF);
    cr_expect(io_rig_run(&rig, (struct spw_io){.op = SPW_IO_SYNC, .fd = rig.fd}) == 0);
    cr_expect(io_rig_close(&rig) == 0);
}

Test(io_uring, IO_4_an_operation_refused_later_goes_on_by_threads)
{
    kernel.refuse_fixed = true;
    refused_later();
}

static int refuse_in_mid_run(struct io_uring *ring, unsigned wait)
{
    kernel.refuse_fixed = ++kernel.entered > 120;
    return enter(ring, wait);
}

Test(io_uring, IO_4_nor_is_anything_lost_when_it_is_refused_in_mid_run)
{
    struct spw_uring_calls calls = own_kernel;
    calls.submit_and_wait = refuse_in_mid_run;
    struct io_rig rig = open_own_kernel(8, NULL, &calls);
    cr_assert(io_rig_round_trip(&rig, PARTS));
    cr_assert(io_rig_mode(&rig).uring);
    thousand_reads(&rig);
    cr_expect(!io_rig_mode(&rig).uring);
    cr_expect(io_rig_close(&rig) == 0);
}

Test(io_uring, an_error_of_a_file_is_no_refusal_of_the_ring)
{
    struct io_rig rig = open_own_kernel(8, NULL, &own_kernel);
    struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 0, 0);
    io.offset = UINT64_MAX / 2 + 1; /* EINVAL for everybody */
    cr_expect(io_rig_run(&rig, io) == -EINVAL);
    cr_expect(io_rig_mode(&rig).uring);
    cr_expect(io_rig_close(&rig) == 0);
}

Test(io_uring, IO_6_both_sides_of_the_seam_of_two_pieces_round_trip)
{
    struct spw_uring_calls calls = own_kernel;
    calls.register_buffers = tiny_register;
    int fd = memfd_create("spw-io", MFD_CLOEXEC);
    cr_assert(ftruncate(fd, GIB + PART) == 0);
    uint8_t *map = mmap(NULL, GIB + PART, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(map != MAP_FAILED);
    const struct iovec memory = {map, GIB + PART};
    struct io_rig rig = open_own_kernel(8, &memory, &calls);
    cr_assert(io_rig_mode(&rig).registered, "%s", io_rig_mode(&rig).why);
    cr_expect(kernel.pieces == 2);
    io_rig_fill(map + GIB - PART, 2 * PART, 1);
    io_rig_fill(rig.memory, 2 * PART, 1);
    struct spw_io io = {.op = SPW_IO_WRITE, .fd = rig.fd, .bytes = PART};
    for (int side = 0; side < 2; side++) {
        io.buffer = map + GIB - PART + side * PART;
        io.offset = (uint64_t)side * PART;
        cr_assert(io_rig_run(&rig, io) == PART);
    }
    memset(map + GIB - PART, 0, 2 * PART);
    io.op = SPW_IO_READ;
    for (int side = 0; side < 2; side++) {
        io.buffer = map + GIB - PART + side * PART;
        io.offset = (uint64_t)side * PART;
        cr_assert(io_rig_run(&rig, io) == PART);
    }
    cr_expect(memcmp(map + GIB - PART, rig.memory, 2 * PART) == 0);
    io.buffer = map + GIB - PART / 2; /* of both pieces: neither */
    io.offset = 0;
    cr_expect(io_rig_run(&rig, io) == PART);
    cr_expect(memcmp(io.buffer, rig.memory, PART) == 0);
    cr_expect(io_rig_close(&rig) == 0);
    cr_expect(kernel.taken[IORING_OP_READ_FIXED] == 2);
    cr_expect(kernel.taken[IORING_OP_WRITE_FIXED] == 2);
    munmap(map, GIB + PART);
    close(fd);
}

static int no_kind(struct io_uring *ring, const struct iovec *piece, unsigned count)
{
    return -EOPNOTSUPP;
}

Test(io_uring, IO_6_memory_of_a_kind_that_is_refused_is_used_all_the_same)
{
    struct spw_uring_calls calls = own_kernel;
    calls.register_buffers = no_kind;
    struct io_rig rig = open_own_kernel(8, NULL, &calls);
    struct spw_io_mode mode = io_rig_mode(&rig);
    cr_expect(mode.uring);
    cr_expect(!mode.registered);
    cr_expect(mode.why[0] != 0);
    cr_expect(io_rig_round_trip(&rig, 10));
    cr_expect(io_rig_close(&rig) == 0);
    cr_expect(kernel.taken[IORING_OP_READ_FIXED] == 0);
}

static int old_kernel(unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
    return params->flags ? -EINVAL : io_uring_queue_init_params(entries, ring, params);
}

Test(io_uring, a_kernel_older_than_the_flags_will_do)
{
    struct spw_uring_calls calls = own_kernel;
    calls.init = old_kernel;
    struct io_rig rig = open_own_kernel(8, NULL, &calls);
    cr_expect(io_rig_mode(&rig).uring);
    cr_expect(io_rig_round_trip(&rig, PARTS));
    thousand_reads(&rig);
    cr_expect(io_rig_close(&rig) == 0);
}
