/* One table of options: reading a configuration file, sections of key = value, through inih. */
#include <errno.h>
#include <ini.h>
#include <string.h>

#include "tools/options_impl.h"
#include "tools/units.h"

/* One reading of one file. The first error stays; inih goes on, but nothing more is taken. */
struct reading {
    struct spw_options *options;
    FILE *file;
    const char *path;
    int line;
    bool failed;
    char *err;
    size_t err_bytes;
};

char *spw_options_key(const struct spw_option *option, char *out_key, size_t key_bytes)
{
    snprintf(out_key, key_bytes, "%s", option->name);
    for (char *c = out_key; *c; c++)
        if (*c == '-')
            *c = '_';
    return out_key;
}

static bool is_key_of(const struct spw_option *option, const char *key)
{
    char own[64];

    return option->section && strcmp(spw_options_key(option, own, sizeof(own)), key) == 0;
}

static void refuse_key(struct reading *r, const char *section, const char *key)
{
    char keys[SPW_OPTIONS_MAX][64];
    const char *names[SPW_OPTIONS_MAX], *near;
    size_t count = 0;

    for (size_t i = 0; i < r->options->count; i++) {
        const struct spw_option *option = &r->options->table[i];

        if (is_key_of(option, key)) {
            snprintf(r->err, r->err_bytes, "%s:%d: [%s] %s belongs into section [%s]", r->path,
                     r->line, section, key, option->section);
            return;
        }
        if (option->section) {
            names[count] = spw_options_key(option, keys[count], sizeof(keys[count]));
            count++;
        }
    }
    near = spw_units_nearest(key, names, count);
    snprintf(r->err, r->err_bytes, "%s:%d: unknown key [%s] %s; %s%s%s", r->path, r->line, section,
             key, near ? "did you mean " : "--help lists those there are", near ? near : "",
             near ? "?" : "");
}

/* inih's callback: 1 to go on, 0 for an error */
static int take_key(void *user, const char *section, const char *key, const char *value)
{
    struct reading *r = user;
    size_t index = 0;
    char label[512];

    if (r->failed)
        return 0;
    while (index < r->options->count && !(is_key_of(&r->options->table[index], key) &&
                                          strcmp(r->options->table[index].section, section) == 0))
        index++;
    snprintf(label, sizeof(label), "%s:%d: [%s] %s", r->path, r->line, section, key);
    if (index == r->options->count) {
        refuse_key(r, section, key);
        r->failed = true;
    } else if (r->options->in_file[index]) {
        snprintf(r->err, r->err_bytes, "%s is given twice; leave one of them out", label);
        r->failed = true;
    } else {
        r->options->in_file[index] = true;
        r->failed = spw_options_set(r->options, index, label, value, SPW_ORIGIN_FILE, r->err,
                                    r->err_bytes) < 0;
    }
    return !r->failed;
}

/* inih's reader: like fgets(), but counts lines and refuses what doesn't fit one buffer */
static char *take_line(char *buffer, int bytes, void *user)
{
    struct reading *r = user;

    if (r->failed || !fgets(buffer, bytes, r->file))
        return NULL;
    r->line++;
    if (!strchr(buffer, '\n') && !feof(r->file)) {
        snprintf(r->err, r->err_bytes, "%s:%d: the line is longer than %d characters", r->path,
                 r->line, bytes - 2);
        r->failed = true;
        return NULL;
    }
    return buffer;
}

int spw_options_read_file(struct spw_options *options, const char *path, char *err,
                          size_t err_bytes)
{
    struct reading r = {.options = options, .path = path, .err = err, .err_bytes = err_bytes};
    int bad_line, rc = 0;

    r.file = fopen(path, "re");
    if (!r.file) {
        rc = -errno;
        snprintf(err, err_bytes, "%s: can't be opened: %s", path, strerror(-rc));
        return rc;
    }
    ini_allow_multiline = false;
    bad_line = ini_parse_stream(take_line, &r, take_key, &r);
    if (!r.failed && ferror(r.file)) {
        rc = -EIO;
        snprintf(err, err_bytes, "%s: can't be read; is it a file?", path);
    } else if (bad_line > 0 && (!r.failed || bad_line < r.line)) {
        rc = -EINVAL;
        snprintf(err, err_bytes, "%s:%d: is no \"[section]\", \"key = value\" or comment", path,
                 bad_line);
    } else if (r.failed) {
        rc = -EINVAL;
    }
    fclose(r.file);
    return rc;
}
