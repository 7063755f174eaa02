/* Section `pinning`: what pinning a GiB of a shard costs: the pages' first touch, and registering them. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/gpu/check.h"
#include "gpu/pin.h"
#include "gpu/touch.h"
#include "shm/huge.h"

#define TOUCHERS 4u /* as many as a worker takes */

struct memory {
    struct check *check;
    int fd;
    uint8_t *start;
    uint64_t bytes;
};

static uint64_t free_bytes(void)
{
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static int open_memory(struct check *check, uint64_t bytes, struct memory *out)
{
    *out = (struct memory){.check = check, .start = MAP_FAILED, .bytes = bytes};
    out->fd = memfd_create("spw-gpu-check", MFD_CLOEXEC);
    if (out->fd < 0 || ftruncate(out->fd, (off_t)bytes) < 0)
        return spw_fail(&check->err, -errno, "no shared memory: %s", strerror(errno));
    out->start = spw_huge_map(out->fd, PROT_READ | PROT_WRITE, bytes);
    if (out->start == MAP_FAILED)
        return spw_fail(&check->err, -errno, "shared memory can't be mapped: %s", strerror(errno));
    return 0;
}

static void close_memory(struct memory *memory)
{
    if (memory->start != MAP_FAILED)
        munmap(memory->start, memory->bytes);
    if (memory->fd >= 0)
        close(memory->fd);
}

/* Told for a GiB. */
static void tell(struct memory *memory, const char *name, uint64_t begin)
{
    struct check_line line = {.verdict = CHECK_FIGURE, .unit = "ns"};
    line.value = (double)(spw_monotonic_ns() - begin) * (1 << 30) / (double)memory->bytes;
    snprintf(line.name, sizeof line.name, "%.40s, a GiB", name);
    check_report_add(&memory->check->report, &line);
}

static int touch(struct memory *memory)
{
    struct spw_touch_config config = {.threads = TOUCHERS, .writable = true};
    uint64_t begin = spw_monotonic_ns();
    int status = spw_touch_pages(&config, memory->start, memory->bytes);
    if (status < 0)
        return spw_fail(&memory->check->err, status, "pages can't be had: %s", strerror(-status));
    tell(memory, "first touch, pages of 4 KiB", begin);
    return 0;
}

/* Register, and undo it. */
static int pin(struct memory *memory, const char *pages)
{
    struct spw_pin_backend backend = spw_pin_driver(memory->check->gpu);
    const char *word = "refused";
    char name[56];
    uint64_t begin = spw_monotonic_ns();
    int status = backend.add(backend.ctx, memory->start, memory->bytes, true, &word);
    if (status < 0)
        return spw_fail(&memory->check->err, status, "%s can't be registered: %s", pages, word);
    snprintf(name, sizeof name, "register, %s", pages);
    tell(memory, name, begin);
    begin = spw_monotonic_ns();
    backend.remove(backend.ctx, memory->start);
    snprintf(name, sizeof name, "unregister, %s", pages);
    tell(memory, name, begin);
    return 0;
}

/* As workers make them: of pages that the file has already. */
static int pin_huge(struct memory *memory)
{
    uint64_t begin = spw_monotonic_ns();
    int status = spw_huge_collapse(memory->start, memory->bytes);
    uint64_t mapped = spw_huge_mapped(memory->start);
    if (mapped < memory->bytes / 2) {
        check_report_say(&memory->check->report, "huge pages", CHECK_SKIPPED,
                         "%lu of %lu bytes could be put on them: %s", (unsigned long)mapped,
                         (unsigned long)memory->bytes, status < 0 ? strerror(-status) : "");
        return 0;
    }
    tell(memory, "make huge pages", begin);
    return pin(memory, "huge pages");
}

/* Shards of others are mapped so; a device that can't do with it copies from them unpinned. */
static void pin_read_only(struct memory *memory)
{
    struct spw_pin_backend backend = spw_pin_driver(memory->check->gpu);
    struct check_report *report = &memory->check->report;
    const char *word = "the device doesn't support it";
    void *start = mmap(NULL, memory->bytes, PROT_READ, MAP_SHARED, memory->fd, 0);
    if (start == MAP_FAILED)
        return;
    int status = backend.add(backend.ctx, start, memory->bytes, false, &word);
    if (status == 0)
        backend.remove(backend.ctx, start);
    check_report_say(report, "a mapping that can't be written",
                     status == 0 ? CHECK_HELD : CHECK_SKIPPED, "%s", status == 0 ? "" : word);
    munmap(start, memory->bytes);
}

int check_pinning(struct check *check)
{
    uint64_t bytes = check_size(check, 1ull << 30, 4ull << 20);
    struct memory memory;
    while (bytes > free_bytes() / 4 && bytes > 4ull << 20)
        bytes /= 2;
    int status = open_memory(check, bytes, &memory);
    if (status == 0)
        status = touch(&memory);
    if (status == 0)
        status = pin(&memory, "pages of 4 KiB");
    if (status == 0)
        pin_read_only(&memory);
    if (status == 0)
        status = pin_huge(&memory);
    close_memory(&memory);
    if (status == 0)
        check_seams(check, bytes / 2 < 2ull << 20 ? 2ull << 20 : bytes / 2);
    return status;
}
