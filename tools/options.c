/* One table of options: values in and out. Reading a file is in options_file.c. */
#include "tools/options.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options_impl.h"
#include "tools/units.h"

#define LABEL_BYTES 160
#define VALUE_BYTES (SPW_OPTION_TEXT_MAX + 16)

static bool is_number(const struct spw_option *option)
{
    return option->type <= SPW_OPTION_DURATION;
}

static struct spw_range range_of(const struct spw_option *option)
{
    static const enum spw_unit units[] = {
        [SPW_OPTION_COUNT] = SPW_UNIT_COUNT,       [SPW_OPTION_POWER] = SPW_UNIT_COUNT,
        [SPW_OPTION_BYTES] = SPW_UNIT_BYTES,       [SPW_OPTION_RATE] = SPW_UNIT_RATE,
        [SPW_OPTION_DURATION] = SPW_UNIT_DURATION,
    };

    return (struct spw_range){units[option->type], option->min, option->max};
}

static size_t field_bytes(const struct spw_option *option)
{
    switch (option->type) {
    case SPW_OPTION_DECIMAL:
        return sizeof(double);
    case SPW_OPTION_TEXT:
        return option->max;
    case SPW_OPTION_SWITCH:
        return sizeof(bool);
    default:
        return sizeof(uint64_t);
    }
}

static void *field_of(const struct spw_options *options, size_t index)
{
    return (char *)options->target + options->table[index].offset;
}

static int refuse(const char *label, const char *text, const char *why, char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "%s: \"%.200s\" %s", label, text, why);
    return -EINVAL;
}

static int parse_octal(const struct spw_option *option, const char *label, const char *text,
                       uint64_t *out_value, char *err, size_t err_bytes)
{
    char why[96];
    uint64_t value = 0;
    size_t digits = strspn(text, "01234567");

    if (digits > 0 && digits <= 8 && text[digits] == '\0')
        value = strtoull(text, NULL, 8);
    else
        value = option->max + 1;
    if (value < option->min || value > option->max) {
        snprintf(why, sizeof(why), "is no octal number from %04llo to %04llo",
                 (unsigned long long)option->min, (unsigned long long)option->max);
        return refuse(label, text, why, err, err_bytes);
    }
    *out_value = value;
    return 0;
}

static int parse_choice(const struct spw_option *option, const char *label, const char *text,
                        uint64_t *out_value, char *err, size_t err_bytes)
{
    char why[160] = "is not one of";
    size_t used = strlen(why);

    for (size_t i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *out_value = i;
            return 0;
        }
        if (used < sizeof(why))
            used += (size_t)snprintf(why + used, sizeof(why) - used, "%s%s", i ? ", " : " ",
                                     option->choices[i]);
    }
    return refuse(label, text, why, err, err_bytes);
}

static int parse_switch(const char *label, const char *text, bool *out_value, char *err,
                        size_t err_bytes)
{
    if (strcmp(text, "yes") == 0)
        *out_value = true;
    else if (strcmp(text, "no") == 0)
        *out_value = false;
    else
        return refuse(label, text, "is not one of yes, no", err, err_bytes);
    return 0;
}

static int parse_text(const struct spw_option *option, const char *label, const char *text,
                      char *out_text, char *err, size_t err_bytes)
{
    char why[64];
    size_t len = strlen(text);

    if (len == 0 || len >= option->max) {
        snprintf(why, sizeof(why), "is empty or too long; allowed are 1 to %llu characters",
                 (unsigned long long)option->max - 1);
        return refuse(label, text, why, err, err_bytes);
    }
    memcpy(out_text, text, len + 1);
    return 0;
}

static int parse_number(const struct spw_option *option, const char *label, const char *text,
                        uint64_t *out_value, char *err, size_t err_bytes)
{
    const struct spw_range range = range_of(option);
    char why[96];
    uint64_t value;
    int rc = spw_units_parse_in(label, text, &range, &value, err, err_bytes);

    if (rc == 0 && option->type == SPW_OPTION_POWER && (value & (value - 1)) != 0) {
        snprintf(why, sizeof(why), "is no power of two; allowed are those from %llu to %llu",
                 (unsigned long long)option->min, (unsigned long long)option->max);
        return refuse(label, text, why, err, err_bytes);
    }
    if (rc == 0)
        *out_value = value;
    return rc;
}

static int parse_field(const struct spw_option *option, const char *label, const char *text,
                       void *out_field, char *err, size_t err_bytes)
{
    switch (option->type) {
    case SPW_OPTION_OCTAL:
        return parse_octal(option, label, text, out_field, err, err_bytes);
    case SPW_OPTION_DECIMAL:
        return spw_units_parse_decimal(label, text, (double)option->min / 1000,
                                       (double)option->max / 1000, out_field, err, err_bytes);
    case SPW_OPTION_TEXT:
        return parse_text(option, label, text, out_field, err, err_bytes);
    case SPW_OPTION_CHOICE:
        return parse_choice(option, label, text, out_field, err, err_bytes);
    case SPW_OPTION_SWITCH:
        return parse_switch(label, text, out_field, err, err_bytes);
    default:
        return parse_number(option, label, text, out_field, err, err_bytes);
    }
}

int spw_options_set(struct spw_options *options, size_t index, const char *label, const char *text,
                    enum spw_option_origin origin, char *err, size_t err_bytes)
{
    const struct spw_option *option = &options->table[index];
    union {
        uint64_t number;
        double decimal;
        bool on;
        char text[SPW_OPTION_TEXT_MAX];
    } scratch;
    int rc = parse_field(option, label, text, &scratch, err, err_bytes);

    if (rc < 0 || origin < options->origin[index])
        return rc;
    memcpy(field_of(options, index), &scratch,
           option->type == SPW_OPTION_TEXT ? strlen(scratch.text) + 1 : field_bytes(option));
    options->origin[index] = (uint8_t)origin;
    return 0;
}

void spw_options_init(struct spw_options *options, const struct spw_option *table, size_t count,
                      void *target)
{
    char err[256];

    assert(count <= SPW_OPTIONS_MAX);
    *options = (struct spw_options){.table = table, .count = count, .target = target};
    for (size_t i = 0; i < count; i++) {
        int rc = 0;

        assert(table[i].type != SPW_OPTION_TEXT || table[i].max <= SPW_OPTION_TEXT_MAX);
        memset(field_of(options, i), 0, field_bytes(&table[i]));
        if (table[i].fallback)
            rc = spw_options_set(options, i, table[i].name, table[i].fallback, SPW_ORIGIN_DEFAULT,
                                 err, sizeof(err));
        assert(rc == 0);
        (void)rc;
    }
}

static size_t find_flag(const struct spw_options *options, const char *name, size_t name_len)
{
    size_t i = 0;

    while (i < options->count && (strlen(options->table[i].name) != name_len ||
                                  memcmp(options->table[i].name, name, name_len) != 0))
        i++;
    return i;
}

static int refuse_flag(const struct spw_options *options, const char *name, size_t name_len,
                       char *err, size_t err_bytes)
{
    const char *names[SPW_OPTIONS_MAX], *near;
    char word[64];

    for (size_t i = 0; i < options->count; i++)
        names[i] = options->table[i].name;
    snprintf(word, sizeof(word), "%.*s", (int)(name_len < 60 ? name_len : 60), name);
    near = spw_units_nearest(word, names, options->count);
    if (near)
        snprintf(err, err_bytes, "unknown option --%s; did you mean --%s?", word, near);
    else
        snprintf(err, err_bytes, "unknown option --%s; --help lists those there are", word);
    return -EINVAL;
}

/* Take the option at argv[at]; returns how many arguments it used up. */
static int read_flag(struct spw_options *options, int argc, char *const *argv, int at, char *err,
                     size_t err_bytes)
{
    const char *name = argv[at] + 2;
    size_t name_len = strcspn(name, "=");
    const char *value = name[name_len] ? name + name_len + 1 : NULL;
    size_t index = find_flag(options, name, name_len);
    int used = 1, rc;
    char label[LABEL_BYTES];

    if (index == options->count)
        return refuse_flag(options, name, name_len, err, err_bytes);
    snprintf(label, sizeof(label), "--%s", options->table[index].name);
    if (options->origin[index] == SPW_ORIGIN_FLAG) {
        snprintf(err, err_bytes, "%s is given twice; leave one of them out", label);
        return -EINVAL;
    }
    if (options->table[index].type == SPW_OPTION_SWITCH) {
        if (value) {
            snprintf(err, err_bytes, "%s takes no value, but was given \"%.200s\"", label, value);
            return -EINVAL;
        }
        value = "yes";
    } else if (!value) {
        if (at + 1 >= argc || strncmp(argv[at + 1], "--", 2) == 0) {
            snprintf(err, err_bytes, "%s needs a value", label);
            return -EINVAL;
        }
        value = argv[at + 1];
        used = 2;
    }
    rc = spw_options_set(options, index, label, value, SPW_ORIGIN_FLAG, err, err_bytes);
    return rc < 0 ? rc : used;
}

int spw_options_read_args(struct spw_options *options, int argc, char *const *argv,
                          const char **out_words, int max_words, char *err, size_t err_bytes)
{
    bool only_words = false;
    int words = 0;

    for (int at = 1; at < argc;) {
        if (!only_words && strcmp(argv[at], "--") == 0) {
            only_words = true;
            at++;
        } else if (!only_words && strncmp(argv[at], "--", 2) == 0) {
            int used = read_flag(options, argc, argv, at, err, err_bytes);

            if (used < 0)
                return used;
            at += used;
        } else if (!only_words && argv[at][0] == '-' && argv[at][1] != '\0') {
            snprintf(err, err_bytes, "unknown option %.60s; options begin with --, see --help",
                     argv[at]);
            return -EINVAL;
        } else if (words < max_words) {
            out_words[words++] = argv[at++];
        } else {
            snprintf(err, err_bytes, "unexpected argument \"%.200s\"", argv[at]);
            return -EINVAL;
        }
    }
    return words;
}

static size_t index_of(const struct spw_options *options, const char *name)
{
    size_t index = find_flag(options, name, strlen(name));

    assert(index < options->count);
    return index;
}

enum spw_option_origin spw_options_origin(const struct spw_options *options, const char *name)
{
    return (enum spw_option_origin)options->origin[index_of(options, name)];
}

static void format_value(const struct spw_options *options, size_t index, char *out, size_t bytes)
{
    const struct spw_option *option = &options->table[index];
    const void *field = field_of(options, index);
    char number[SPW_UNITS_TEXT_BYTES];

    switch (option->type) {
    case SPW_OPTION_OCTAL:
        snprintf(out, bytes, "%04llo", (unsigned long long)*(const uint64_t *)field);
        break;
    case SPW_OPTION_DECIMAL:
        snprintf(out, bytes, "%g", *(const double *)field);
        break;
    case SPW_OPTION_TEXT:
        snprintf(out, bytes, "%s", (const char *)field);
        break;
    case SPW_OPTION_CHOICE:
        snprintf(out, bytes, "%s", option->choices[*(const uint64_t *)field]);
        break;
    case SPW_OPTION_SWITCH:
        snprintf(out, bytes, "%s", *(const bool *)field ? "yes" : "no");
        break;
    default:
        snprintf(out, bytes, "%s",
                 spw_units_format(range_of(option).unit, *(const uint64_t *)field, number));
    }
}

static const char *origin_name(enum spw_option_origin origin)
{
    static const char *const names[] = {"default", "file", "flag"};

    return names[origin];
}

char *spw_options_describe(const struct spw_options *options, const char *name, char *out_text,
                           size_t text_bytes)
{
    size_t index = index_of(options, name);
    char value[VALUE_BYTES];

    format_value(options, index, value, sizeof(value));
    snprintf(out_text, text_bytes, "--%s (%s, %s)", name, value[0] ? value : "not given",
             origin_name((enum spw_option_origin)options->origin[index]));
    return out_text;
}

void spw_options_print(const struct spw_options *options, FILE *out)
{
    const char *section = "";
    char value[VALUE_BYTES], key[LABEL_BYTES];

    for (size_t i = 0; i < options->count; i++) {
        const struct spw_option *option = &options->table[i];

        if (!option->section)
            continue;
        format_value(options, i, value, sizeof(value));
        if (strcmp(section, option->section) != 0)
            fprintf(out, "[%s]\n", option->section);
        section = option->section;
        spw_options_key(option, key, sizeof(key));
        fprintf(out, "%s%-*s = %-18s ; %s\n", value[0] ? "" : ";", value[0] ? 22 : 21, key, value,
                origin_name((enum spw_option_origin)options->origin[i]));
    }
}

static void format_limits(const struct spw_option *option, char *out, size_t bytes)
{
    char low[SPW_UNITS_TEXT_BYTES], high[SPW_UNITS_TEXT_BYTES];
    size_t used = 0;

    out[0] = '\0';
    if (is_number(option)) {
        const struct spw_range range = range_of(option);

        snprintf(out, bytes, "%s to %s%s", spw_units_format(range.unit, range.min, low),
                 spw_units_format(range.unit, range.max, high),
                 option->type == SPW_OPTION_POWER ? ", a power of two" : "");
    } else if (option->type == SPW_OPTION_DECIMAL) {
        snprintf(out, bytes, "%g to %g", (double)option->min / 1000, (double)option->max / 1000);
    } else if (option->type == SPW_OPTION_OCTAL) {
        snprintf(out, bytes, "octal, %04llo to %04llo", (unsigned long long)option->min,
                 (unsigned long long)option->max);
    } else if (option->type == SPW_OPTION_CHOICE) {
        for (size_t i = 0; option->choices[i] && used < bytes; i++)
            used += (size_t)snprintf(out + used, bytes - used, "%s%s", i ? " or " : "",
                                     option->choices[i]);
    }
}

void spw_options_help(const struct spw_options *options, FILE *out)
{
    char limits[160];

    for (size_t i = 0; i < options->count; i++) {
        const struct spw_option *option = &options->table[i];
        const char *fallback = option->type == SPW_OPTION_SWITCH ? NULL : option->fallback;

        format_limits(option, limits, sizeof(limits));
        fprintf(out, "  --%-24s %s\n", option->name, option->help);
        if (limits[0] || fallback)
            fprintf(out, "    %-24s (%s%s%s%s)\n", "", limits, limits[0] && fallback ? "; " : "",
                    fallback ? "default " : "", fallback ? fallback : "");
    }
}
