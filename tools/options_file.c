/* One table of options: reading a configuration file, sections of key = value, through inih. */
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tools/options_impl.h"
#include "tools/units.h"

#define LINE_MAX_BYTES (SPW_OPTION_TEXT_MAX + 256)

/* One reading of one file. The first error stays; inih goes on, but nothing more is taken. */
struct reading {
    struct spw_options *options;
    FILE *file;
    const char *path;
    int line;
    char *text; /* of a line that is longer than inih's own buffer */
    size_t text_bytes;
    char *value; /* of such a line, in it; NULL: inih has it */
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
    if (r->value)
        value = r->value;
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

/* A value without what inih takes away, too: blanks around it, and a comment behind it. */
static char *trim(char *value)
{
    char *end = value;

    value += strspn(value, " \t");
    for (end = value; *end && !(*end == ';' && end > value && strchr(" \t", end[-1])); end++)
        ;
    while (end > value && strchr(" \t\r\n", end[-1]))
        end--;
    *end = '\0';
    return value;
}

/* inih's reader: like fgets(), but counts lines. Where a line doesn't fit its buffer it gets the key,
 * and the value is kept aside. */
static char *take_line(char *buffer, int bytes, void *user)
{
    struct reading *r = user;
    ssize_t length = r->failed ? -1 : getline(&r->text, &r->text_bytes, r->file);
    char *equals;

    if (length < 0)
        return NULL;
    r->line++;
    r->value = NULL;
    if (length < bytes)
        return strcpy(buffer, r->text);
    if (strchr(";#", r->text[strspn(r->text, " \t")]))
        return strcpy(buffer, "\n");
    equals = strchr(r->text, '=');
    if (length > LINE_MAX_BYTES || !equals || equals - r->text > bytes / 2) {
        snprintf(r->err, r->err_bytes, "%s:%d: the line is longer than %d characters", r->path,
                 r->line, length > LINE_MAX_BYTES ? LINE_MAX_BYTES : bytes - 2);
        r->failed = true;
        return NULL;
    }
    r->value = trim(equals + 1);
    snprintf(buffer, (size_t)bytes, "%.*s= kept\n", (int)(equals - r->text), r->text);
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
    free(r.text);
    fclose(r.file);
    return rc;
}
