/*
 * spw-gpu-check: options, the order of the sections, the watchdog. See check.h; docs/gpu.md says how to
 * read what is printed.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/gpu/check.h"
#include "bench/gpu/counted.h"

enum { HELD = 0, WRONG = 1, USAGE = 2, MISSED = 3, NO_GPU = 4, INCOMPLETE = 5 };

static const struct {
    const char *name, *about;
    int (*run)(struct check *check);
} sections[] = {
    {"layouts", "bytes of stores and loads, in all layouts", check_layouts},
    {"ipc", "memory of a second process, registered and copied", check_ipc},
    {"fences", "stores read what was written before the fence", check_fences},
    {"pinning", "touching and registering host memory", check_pinning},
    {"bandwidth", "stores and loads beside one big copy", check_bandwidth},
    {"kernel", "the gather kernel beside the batch call", check_kernel},
    {"beside", "loads while stores run", check_beside},
};
#define SECTIONS (sizeof sections / sizeof sections[0])

struct options {
    const char *gpu, *driver, *json, *only;
    uint64_t limit_s;
    bool is_short;
};

static struct check check = {
    .report = {.lock = PTHREAD_MUTEX_INITIALIZER, .kernel_below_bytes = -1}};
static int exit_status = -1; /* guarded by the report's lock */
static struct options options = {.gpu = "0", .limit_s = 300};

static void usage(FILE *out)
{
    fputs("usage: spw-gpu-check [OPTION...]\n"
          "Checks copies by one GPU: that they are right and in order, and how fast they are.\n"
          "  --gpu WHICH      UUID, PCI address or ordinal (default 0)\n"
          "  --driver FILE    another driver library than libcuda.so.1\n"
          "  --json FILE      what was found, for programs\n"
          "  --only A,B       only these of layouts, ipc, fences, pinning, bandwidth, kernel, "
          "beside\n"
          "  --limit SECONDS  all ends by then (default 300); what didn't fit is told as not run\n"
          "  --short          tiny sizes: figures are printed, not judged\n"
          "Exit status: 0 all held, 1 something is wrong, 2 usage, 3 right, but a target was "
          "missed,\n"
          "4 no GPU, 5 some of it has not run (and nothing was wrong).\n",
          out);
}

/* ---- the end --------------------------------------------------------------------------------- */

static int status_of(enum check_verdict verdict)
{
    switch (verdict) {
    case CHECK_WRONG:
        return WRONG;
    case CHECK_NOT_RUN:
        return INCOMPLETE;
    case CHECK_MISSED:
        return MISSED;
    default:
        return HELD;
    }
}

/* The caller holds the lock, or is alone. */
static int print_all(void)
{
    int status = status_of(check_report_verdict(&check.report));
    check_report_print(&check.report, stdout);
    fflush(stdout);
    if (!options.json)
        return status;
    FILE *out = fopen(options.json, "w");
    if (out)
        check_report_print_json(&check.report, out);
    if (!out || fclose(out) != 0) {
        fprintf(stderr, "spw-gpu-check: %s can't be written\n", options.json);
        return WRONG;
    }
    return status;
}

/* Once: the status that it came to. */
static int finish(void)
{
    pthread_mutex_lock(&check.report.lock);
    if (exit_status < 0)
        exit_status = print_all();
    int status = exit_status;
    pthread_mutex_unlock(&check.report.lock);
    return status;
}

/* A driver's call that never returns can't be ended, but the process can. The engine's process ends
 * with it. */
static void *watch(void *arg)
{
    struct timespec limit = {.tv_sec = (time_t)options.limit_s};
    nanosleep(&limit, NULL);
    check_report_say(&check.report, sections[check.report.current].about, CHECK_NOT_RUN,
                     "the time was up while this ran: it may hang");
    _exit(finish());
    return NULL;
}

/* ---- the sections ---------------------------------------------------------------------------- */

static bool is_named(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static void run_section(uint32_t s)
{
    uint64_t begin = spw_monotonic_ns();
    pthread_mutex_lock(&check.report.lock);
    check.report.current = s;
    pthread_mutex_unlock(&check.report.lock);
    fprintf(stderr, "%s: %s\n", sections[s].name, sections[s].about);
    int status = check_time(&check);
    if (status == 0)
        status = sections[s].run(&check);
    if (status == -ETIME)
        check_report_say(&check.report, sections[s].about, CHECK_NOT_RUN, "no time left");
    else if (status < 0)
        check_report_say(&check.report, sections[s].about, CHECK_WRONG, "%s", check.err.text);
    pthread_mutex_lock(&check.report.lock);
    check.report.section[s].ns = spw_monotonic_ns() - begin;
    pthread_mutex_unlock(&check.report.lock);
}

/* Every name of --only is a section's. */
static bool are_known(const char *list)
{
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ","), s = 0;
        while (s < SECTIONS &&
               (strlen(sections[s].name) != length || strncmp(sections[s].name, at, length) != 0))
            s++;
        if (s == SECTIONS)
            return false;
    }
    return true;
}

static void list_sections(void)
{
    check.report.sections = SECTIONS;
    for (uint32_t s = 0; s < SECTIONS; s++) {
        check.report.section[s].name = sections[s].name;
        check.report.section[s].about = sections[s].about;
        check.report.section[s].is_asked =
            !options.only || is_named(options.only, sections[s].name);
    }
}

static int open_gpu(void)
{
    struct spw_gpu_config config = {.driver = options.driver, .which = options.gpu};
    char uuid[SPW_GPU_UUID_TEXT], bus[SPW_GPU_BUS_TEXT];
    int status = spw_gpu_open(&config, &check.gpu, &check.err);
    if (status < 0) {
        fprintf(stderr, "spw-gpu-check: no GPU to check: %s\n", check.err.text);
        return status == -EIO ? WRONG : NO_GPU;
    }
    const struct spw_gpu_identity *identity = spw_gpu_identity(check.gpu);
    spw_gpu_uuid_print(identity->uuid, uuid);
    spw_gpu_bus_print(identity->bus, bus);
    snprintf(check.report.gpu, sizeof check.report.gpu, "%s, %s, %s", identity->name, uuid, bus);
    check.report.driver_version = check.gpu->driver.version;
    check_calls_count(check.gpu);
    return 0;
}

/* ---- options --------------------------------------------------------------------------------- */

static bool read_number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return end != text && *end == '\0' && *out >= 1 && *out <= 86400;
}

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--short") == 0) {
            options.is_short = true;
            continue;
        }
        if (!value)
            return false;
        if (strcmp(argv[i], "--gpu") == 0)
            options.gpu = value;
        else if (strcmp(argv[i], "--driver") == 0)
            options.driver = value;
        else if (strcmp(argv[i], "--json") == 0)
            options.json = value;
        else if (strcmp(argv[i], "--only") == 0)
            options.only = value;
        else if (strcmp(argv[i], "--limit") != 0 || !read_number(value, &options.limit_s))
            return false;
        i++;
    }
    return spw_gpu_which_is_valid(options.gpu) && are_known(options.only);
}

int main(int argc, char **argv)
{
    pthread_t watchdog;
    if (argc > 1 && strcmp(argv[1], CHECK_PEER_WORD) == 0)
        return check_peer_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return HELD;
    }
    if (!read_options(argc, argv)) {
        usage(stderr);
        return USAGE;
    }
    signal(SIGPIPE, SIG_IGN); /* a second process that has ended is told by its section */
    list_sections();
    check.driver = options.driver;
    check.small = check.report.is_short = options.is_short;
    check.random = 88172645463325252u;
    check.until_ns = spw_monotonic_ns() + options.limit_s * 900000000u; /* nine tenths */
    if (pthread_create(&watchdog, NULL, watch, NULL) != 0)
        return WRONG;
    int status = open_gpu();
    if (status != 0)
        return status;
    for (uint32_t s = 0; s < SECTIONS; s++)
        if (check.report.section[s].is_asked)
            run_section(s);
    status = finish();
    spw_gpu_close(check.gpu);
    return status;
}
