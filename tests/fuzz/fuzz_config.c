/*
 * Flags and a configuration file with any bytes in them: spillwayd's, and what workers read of it.
 * What is accepted lies in its documented range, and what the daemon prints of it for its workers
 * gives them the same values. What is refused is refused in words.
 */
#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tools/config.h"

#define FLAGS_MAX 12

static int file_fd, values_fd; /* the file that is read, and what is printed of it */
static char file_path[32], values_path[32];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    file_fd = memfd_create("config", MFD_CLOEXEC);
    values_fd = memfd_create("values", MFD_CLOEXEC);
    fuzz_expect(file_fd >= 0 && values_fd >= 0, "files in memory");
    snprintf(file_path, sizeof file_path, "/proc/self/fd/%d", file_fd);
    snprintf(values_path, sizeof values_path, "/proc/self/fd/%d", values_fd);
    return 0;
}

static void fill(int fd, const void *bytes, size_t count)
{
    fuzz_expect(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, count, 0) == (ssize_t)count,
                "a file is written");
}

static bool power(uint64_t value)
{
    return value && !(value & (value - 1));
}

static void check_ranges(const struct spw_config *config)
{
    fuzz_expect(config->name[0] && strlen(config->name) <= SPW_CONFIG_NAME_MAX &&
                    config->shm_dir[0] == '/',
                "a name and a folder");
    fuzz_expect((config->mode & ~0777ull) == 0 && (config->allow_world || (config->mode & 7) == 0),
                "permissions for everyone only where that was said");
    fuzz_expect(config->workers >= 1 && config->workers <= SPW_CONFIG_WORKERS_MAX &&
                    config->max_clients >= 2 && config->max_clients <= SPW_CONFIG_CLIENTS_MAX,
                "processes");
    fuzz_expect(config->capacity_chunks >= 1 && config->capacity_chunks < 1u << 30 &&
                    config->chunk_bytes >= 64 && config->chunk_bytes % 64 == 0 &&
                    config->chunk_bytes <= UINT32_MAX && config->kv_blocks <= 1u << 30,
                "memory");
    fuzz_expect(power(config->update_records) && power(config->command_slots) &&
                    power(config->completion_slots),
                "rings are powers of two");
}

/* One value of the options' table is what @other holds too. */
static bool same_value(const struct spw_option *option, const void *one, const void *other)
{
    const char *a = (const char *)one + option->offset, *b = (const char *)other + option->offset;
    switch (option->type) {
    case SPW_OPTION_TEXT:
        return strcmp(a, b) == 0;
    case SPW_OPTION_SWITCH:
        return *(const bool *)a == *(const bool *)b;
    default: /* all that is left has eight bytes */
        return memcmp(a, b, 8) == 0;
    }
}

/* What a worker runs with is what the daemon checked. */
static void check_print(const struct spw_config *config)
{
    static struct spw_config read;
    char *argv[] = {(char *)"spillwayd", (char *)"--config", values_path, NULL}, err[512] = "";
    fuzz_expect(ftruncate(values_fd, 0) == 0, "a file is emptied");
    FILE *out = fopen(values_path, "w");
    fuzz_expect(out != NULL, "a file is opened");
    spw_config_print(config, out);
    fuzz_expect(fclose(out) == 0, "a file is written");
    if (spw_config_parse(3, argv, &read, err, sizeof err) < 0) {
        fprintf(stderr, "%s\n", err);
        fuzz_expect(false, "what is printed can be read");
    }
    for (size_t i = 0; i < config->options.count; i++) {
        const struct spw_option *option = &config->options.table[i];
        fuzz_expect(!option->section || same_value(option, config, &read), option->name);
    }
}

/* Flags stand in lines before an empty one, the file behind it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct spw_config config;
    char *text = malloc(size + 1), *at = text, err[512] = "";
    char *argv[FLAGS_MAX + 3] = {(char *)"spillwayd", (char *)"--config", file_path};
    int argc = 3;
    fuzz_expect(text != NULL, "memory");
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    while (argc < FLAGS_MAX + 3 && at < text + size && *at != '\n') {
        char *end = memchr(at, '\n', (size_t)(text + size - at));
        argv[argc++] = at;
        at = end ? end + 1 : text + size;
        if (end)
            *end = 0;
    }
    at += at < text + size; /* the empty line */
    fill(file_fd, at, (size_t)(text + size - at));
    int rc = spw_config_parse(argc, argv, &config, err, sizeof err);
    fuzz_expect(memchr(err, 0, sizeof err) != NULL, "words end");
    if (rc < 0) {
        fuzz_expect(err[0] != 0, "a refusal has words");
    } else if (config.action == SPW_CONFIG_RUN || config.action == SPW_CONFIG_CHECK) {
        check_ranges(&config);
        check_print(&config);
    }
    free(text);
    return 0;
}
