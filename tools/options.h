#ifndef SPW_TOOLS_OPTIONS_H
#define SPW_TOOLS_OPTIONS_H
/*
 * One table of options, read from flags and from a configuration file.
 *
 * A program lists its options once: name, type, range, default, help. From that table come the
 * parser of its command line, of its file (sections of key = value), its help text and the print of
 * its effective values with where each came from. A flag beats the file, the file beats the
 * default.
 *
 * Nothing is taken silently: unknown names (with the nearest known one), an option given twice, a
 * missing value and a value out of range are errors, also in the file for what a flag overrides.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum spw_option_type {
    SPW_OPTION_COUNT,    /* uint64_t, min..max                                   */
    SPW_OPTION_POWER,    /* uint64_t, a power of two in min..max                 */
    SPW_OPTION_BYTES,    /* uint64_t, min..max bytes                             */
    SPW_OPTION_RATE,     /* uint64_t, min..max bytes a second                    */
    SPW_OPTION_DURATION, /* uint64_t, min..max nanoseconds                       */
    SPW_OPTION_OCTAL,    /* uint64_t, min..max, written in octal                 */
    SPW_OPTION_DECIMAL,  /* double; min and max are in thousandths               */
    SPW_OPTION_TEXT,     /* char[max], not empty, closed by NUL                  */
    SPW_OPTION_CHOICE,   /* uint64_t, index into choices                         */
    SPW_OPTION_SWITCH,   /* bool; a flag without value, yes or no in the file    */
};

/** One option. With @fallback NULL the field starts as zero: not given. */
struct spw_option {
    const char *name;    /* "store-rate": the flag --store-rate, the key store_rate */
    const char *section; /* of the file; NULL: a flag only                          */
    enum spw_option_type type;
    size_t offset; /* of the field in the program's struct */
    uint64_t min;
    uint64_t max;
    const char *const *choices; /* closed by NULL */
    const char *fallback;       /* default, as a user would write it */
    const char *help;
};

enum spw_option_origin { SPW_ORIGIN_DEFAULT, SPW_ORIGIN_FILE, SPW_ORIGIN_FLAG };

#define SPW_OPTIONS_MAX     96
#define SPW_OPTION_TEXT_MAX 1536 /* bytes of a TEXT field */

/** An option table with the struct it fills. Both are borrowed. */
struct spw_options {
    const struct spw_option *table;
    size_t count;
    void *target;
    uint8_t origin[SPW_OPTIONS_MAX]; /* enum spw_option_origin */
    bool in_file[SPW_OPTIONS_MAX];
};

/** Set every field to its default. A default that doesn't parse is this program's bug: asserts. */
void spw_options_init(struct spw_options *options, const struct spw_option *table, size_t count,
                      void *target);

/**
 * Read the command line, from argv[1] on: "--name value", "--name=value", "--switch", "--".
 *
 * @out_words  receives up to @max_words arguments that are no options (borrowed from @argv)
 *
 * Returns how many of these there were, or -EINVAL with a message in @err.
 */
int spw_options_read_args(struct spw_options *options, int argc, char *const *argv,
                          const char **out_words, int max_words, char *err, size_t err_bytes);

/**
 * Read the file @path; call it after spw_options_read_args(), whose values stay.
 *
 * Returns 0; -EINVAL for what the file says, another negative errno if it can't be read; each with
 * a message in @err.
 */
int spw_options_read_file(struct spw_options *options, const char *path, char *err,
                          size_t err_bytes);

/** Where the option @name (in the form of the table) came from. */
enum spw_option_origin spw_options_origin(const struct spw_options *options, const char *name);

/**
 * Write "--chunk-bytes (64KiB, default)" for messages on how options go together; returns
 * @out_text.
 */
char *spw_options_describe(const struct spw_options *options, const char *name, char *out_text,
                           size_t text_bytes);

/** Print the effective values as a configuration file, each with its origin as a comment. */
void spw_options_print(const struct spw_options *options, FILE *out);

/** Print a line or two for each option: name, what it takes, default, help. */
void spw_options_help(const struct spw_options *options, FILE *out);

#endif
