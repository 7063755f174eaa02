/*
 * Drives one fuzz target where libFuzzer doesn't: replays files, then runs seeded mutations of them.
 *
 *   fuzz_X [--runs N] [--seed S] [--numbers FIRST N] FILE|FOLDER...
 *
 * --numbers runs the inputs that are 0xff and one of N numbers from FIRST on, in eight bytes: a
 * target may make something of its own from them.
 *
 * The same seed does the same. An input that crashes, aborts or takes more than a second of the
 * processor is written to fuzz-found.bin in the working folder, which this program takes as a FILE.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define INPUT_BYTES_MAX 4096u
#define FILES_MAX       4096u
#define LIMIT_S         1

struct input_file {
    uint8_t *bytes;
    size_t size;
};

static struct input_file file[FILES_MAX];
static uint32_t files;
static uint64_t state;
static const uint8_t *current; /* for the signal handler */
static size_t current_size;

static uint64_t below(uint64_t limit)
{
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % limit;
}

/* ---- findings -------------------------------------------------------------------------------- */

static void say(const char *text)
{
    ssize_t written = write(2, text, strlen(text));
    (void)written;
}

/* Keep the input, then die as without this handler. Async-signal-safe. */
static void found(int number)
{
    int fd = open("fuzz-found.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool kept = fd >= 0 && write(fd, current, current_size) == (ssize_t)current_size;
    say(number == SIGPROF ? "an input took too long" : "an input ended the process");
    say(kept ? ": it is in fuzz-found.bin\n" : ": it can't be written to fuzz-found.bin\n");
    signal(number, SIG_DFL);
    raise(number);
}

static void watch(void)
{
    static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGPROF};
    struct sigaction action = {.sa_handler = found, .sa_flags = (int)SA_NODEFER};
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        sigaction(deadly[i], &action, NULL);
}

/* The input lies in a block of its own size, so that a sanitizer sees each byte beyond it. */
static void run(const uint8_t *data, size_t size)
{
    static const struct itimerval limit = {.it_value.tv_sec = LIMIT_S};
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    current = exact;
    current_size = size;
    setitimer(ITIMER_PROF, &limit, NULL);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void read_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    struct stat status;
    if (!in || fstat(fileno(in), &status) < 0 || files == FILES_MAX) {
        fprintf(stderr, "%s: can't be read, or one file too many\n", path);
        exit(2);
    }
    struct input_file *f = &file[files++];
    f->bytes = malloc((size_t)status.st_size + 1);
    f->size = f->bytes ? fread(f->bytes, 1, (size_t)status.st_size, in) : 0;
    fclose(in);
}

static int no_dots(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void read_path(const char *path)
{
    struct dirent **entry;
    char name[4096];
    int count = scandir(path, &entry, no_dots, alphasort);
    if (count < 0) {
        read_file(path);
        return;
    }
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/%s", path, entry[i]->d_name);
        read_file(name);
        free(entry[i]);
    }
    free(entry);
}

/* ---- mutations ------------------------------------------------------------------------------- */

static uint8_t text[INPUT_BYTES_MAX];
static size_t length;

static void insert(size_t at, const uint8_t *bytes, size_t count)
{
    if (count > INPUT_BYTES_MAX - length)
        count = INPUT_BYTES_MAX - length;
    memmove(text + at + count, text + at, length - at);
    memcpy(text + at, bytes, count);
    length += count;
}

static void insert_random(void)
{
    uint8_t bytes[16];
    size_t count = 1 + below(sizeof bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)below(256);
    insert(below(length + 1), bytes, count);
}

static void insert_piece(void)
{
    const struct input_file *f = &file[below(files)];
    if (f->size == 0)
        return;
    size_t from = below(f->size);
    size_t most = f->size - from < 64 ? f->size - from : 64;
    insert(below(length + 1), f->bytes + from, 1 + below(most));
}

static void cut(void)
{
    size_t at = below(length), count = 1 + below(16);
    if (count > length - at)
        count = length - at;
    memmove(text + at, text + at + count, length - at - count);
    length -= count;
}

static void change(void)
{
    static const uint8_t telling[] = {0, 1, 2, 0x0a, 0x20, 0x30, 0x39, 0x7f, 0x80, 0xfe, 0xff};
    uint8_t *at = &text[below(length)];
    switch (below(4)) {
    case 0:
        *at ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        *at = (uint8_t)(*at + below(17) - 8);
        break;
    case 2:
        *at = telling[below(sizeof telling)];
        break;
    default:
        *at = (uint8_t)below(256);
    }
}

static void mutate(void)
{
    const struct input_file *base = files ? &file[below(files)] : NULL;
    length = base && base->size < INPUT_BYTES_MAX ? base->size : 0;
    if (length)
        memcpy(text, base->bytes, length);
    for (uint64_t n = 1 + below(6); n != 0; n--) {
        uint64_t what = below(8);
        if (length == 0 || what == 0)
            insert_random();
        else if (what == 1 && files)
            insert_piece();
        else if (what == 2)
            cut();
        else
            change();
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    uint64_t runs = 0, first = 0, numbers = 0;
    uint8_t number[9] = {0xff};
    state = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            state = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--numbers") == 0 && i + 2 < argc) {
            first = strtoull(argv[++i], NULL, 10);
            numbers = strtoull(argv[++i], NULL, 10);
        } else
            read_path(argv[i]);
    }
    watch();
    LLVMFuzzerInitialize(&argc, &argv);
    for (uint32_t i = 0; i < files; i++)
        run(file[i].bytes, file[i].size);
    for (uint64_t i = first; i < first + numbers; i++) {
        memcpy(number + 1, &i, sizeof i);
        run(number, sizeof number);
    }
    for (uint64_t i = 0; i < runs; i++) {
        mutate();
        run(text, length);
    }
    printf("%" PRIu32 " files, %" PRIu64 " numbers, %" PRIu64 " mutations\n", files, numbers, runs);
    for (uint32_t i = 0; i < files; i++)
        free(file[i].bytes);
    return 0;
}
