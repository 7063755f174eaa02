/* How the options of [nvme] must go together, and with the others; a look at the directory's mode. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tier/nvme.h"
#include "tools/config_impl.h"
#include "tools/units.h"

int spw_config_dir_usable(const char *dir)
{
    struct stat st;
    if (stat(dir, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return faccessat(AT_FDCWD, dir, R_OK | W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

int spw_config_look_below(const struct spw_config *config, char *err, size_t err_bytes)
{
    int rc = config->nvme_dir[0] == '\0' ? 0 : spw_config_dir_usable(config->nvme_dir);
    if (rc < 0)
        snprintf(err, err_bytes,
                 "--nvme-dir: \"%s\" can't be used: %s; make it a directory that this user can "
                 "write",
                 config->nvme_dir, strerror(-rc));
    return rc;
}

/* One that begins at the folder it was said in means the same to workers and in messages. */
static int make_absolute(struct spw_config *config, char *err, size_t err_bytes)
{
    char folder[sizeof config->nvme_dir], whole[2 * sizeof folder];
    if (config->nvme_dir[0] == '/')
        return 0;
    if (getcwd(folder, sizeof folder)) {
        snprintf(whole, sizeof whole, "%s/%s", folder, config->nvme_dir);
        if (strlen(whole) < sizeof config->nvme_dir) {
            memcpy(config->nvme_dir, whole, strlen(whole) + 1);
            return 0;
        }
    }
    snprintf(
        err, err_bytes,
        "--nvme-dir: \"%s\" begins at a folder whose own path is too long, or isn't known: give "
        "an absolute path of less than %zu characters",
        config->nvme_dir, sizeof config->nvme_dir);
    return -ENAMETOOLONG;
}

/* Without a directory none of the others means anything; a file that repeats defaults is fine. */
static int check_absent(const struct spw_config *config, char *err, size_t err_bytes)
{
    const struct spw_options *options = &config->options;
    struct spw_config standard = {.name = ""};
    spw_options_init(&standard.options, options->table, options->count, &standard);
    for (size_t i = 0; i < options->count; i++) {
        const char *section = options->table[i].section, *name = options->table[i].name;
        if (!section || strcmp(section, "nvme") != 0 || options->origin[i] == SPW_ORIGIN_DEFAULT ||
            strcmp(name, "nvme-dir") == 0 ||
            memcmp((const char *)config + options->table[i].offset,
                   (const char *)&standard + options->table[i].offset, sizeof(uint64_t)) == 0)
            continue;
        char what[320];
        snprintf(err, err_bytes,
                 "%s has no effect without --nvme-dir: name the directory, or leave it out",
                 spw_options_describe(options, name, what, sizeof what));
        return -EINVAL;
    }
    return 0;
}

static int check_bytes(const struct spw_config *config, char *err, size_t err_bytes)
{
    char given[SPW_UNITS_TEXT_BYTES], least[SPW_UNITS_TEXT_BYTES];
    if (config->nvme_bytes == 0) {
        snprintf(err, err_bytes,
                 "--nvme-dir needs --nvme-bytes: say how many bytes all workers together may take "
                 "on disk, such as --nvme-bytes 500GiB");
        return -EINVAL;
    }
    /* a segment's head, table and one cell, the small files, and a little for names */
    uint64_t chunk = (config->chunk_bytes + 4095) / 4096 * 4096 + (96u << 10);
    uint64_t need = (chunk > SPW_NVME_CAP_MIN ? chunk : SPW_NVME_CAP_MIN) * config->workers;
    if (config->nvme_bytes >= need)
        return 0;
    snprintf(
        err, err_bytes,
        "--nvme-bytes: \"%s\" is too little for a chunk of each of %llu workers; give at least "
        "%s",
        spw_units_format(SPW_UNIT_BYTES, config->nvme_bytes, given),
        (unsigned long long)config->workers, spw_units_format(SPW_UNIT_BYTES, need, least));
    return -EINVAL;
}

/* Payload alone counts; a chunk that is larger than a day's budget never goes down. */
static int check_budget(const struct spw_config *config, char *err, size_t err_bytes)
{
    if (config->nvme_write_budget == 0 || config->nvme_write_budget >= config->chunk_bytes)
        return 0;
    return spw_config_refuse_pair(
        config, "nvme-write-budget",
        "is what a worker may write in a day, 0 for no limit, and must be "
        "at least",
        "chunk-bytes", err, err_bytes);
}

int spw_config_check_nvme(struct spw_config *config, char *err, size_t err_bytes)
{
    if (config->nvme_dir[0] == '\0')
        return check_absent(config, err, err_bytes);
    int rc = make_absolute(config, err, err_bytes);
    if (rc == 0)
        rc = check_bytes(config, err, err_bytes);
    if (rc == 0)
        rc = check_budget(config, err, err_bytes);
    if (rc == 0 && config->max_clients == SPW_CONFIG_CLIENTS_MAX)
        rc = spw_config_refuse_pair(config, "max-clients",
                                    "must be 126 at most (a worker sleeps on 128 words) with",
                                    "nvme-dir", err, err_bytes);
    return rc;
}

/* ---- what works, but can't be meant ---------------------------------------------------------- */

static void warn_of_bytes(const struct spw_config *config, spw_config_say *say, void *ctx)
{
    uint64_t memory = config->workers * config->capacity_chunks * config->chunk_bytes;
    char below[SPW_UNITS_TEXT_BYTES], above[SPW_UNITS_TEXT_BYTES], words[320];
    if (config->nvme_bytes > memory)
        return;
    snprintf(words, sizeof words,
             "--nvme-bytes (%s) is not larger than the memory of all workers (%s): hardly a chunk "
             "will be found there that memory has not; give more, or leave --nvme-dir out",
             spw_units_format(SPW_UNIT_BYTES, config->nvme_bytes, below),
             spw_units_format(SPW_UNIT_BYTES, memory, above));
    say(ctx, words);
}

static void warn_of_chunks(const struct spw_config *config, spw_config_say *say, void *ctx)
{
    char words[320];
    if (config->nvme_chunks == 0 || config->nvme_chunks > config->capacity_chunks)
        return;
    snprintf(
        words, sizeof words,
        "--nvme-chunks (%llu) is not more than --capacity-chunks (%llu): hardly a chunk will be "
        "found there that memory has not; give more, or leave it out to list all that fit",
        (unsigned long long)config->nvme_chunks, (unsigned long long)config->capacity_chunks);
    say(ctx, words);
}

void spw_config_warn(const struct spw_config *config, spw_config_say *say, void *ctx)
{
    if (config->nvme_dir[0] == '\0')
        return;
    warn_of_bytes(config, say, ctx);
    warn_of_chunks(config, say, ctx);
}
