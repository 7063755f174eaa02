#ifndef SPW_TESTS_FUZZ_FUZZ_H
#define SPW_TESTS_FUZZ_FUZZ_H
/*
 * What a fuzz target and whoever drives it share. A target is one file with
 * LLVMFuzzerTestOneInput(); it is linked with driver.c, which any compiler builds, and where
 * -Dfuzz=true with libFuzzer.
 *
 *   input     bytes taken off one by one; at its end everything reads 0, so any input is an input
 *   damage    targets whose reader checks a header first start from a valid object and take from
 *             the input what is written over it
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Made once, before the first input. A target defines both. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
/** One input; 0. What must hold and doesn't aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** What must hold for every input. */
static inline void fuzz_expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "must hold: %s\n", what);
    abort();
}

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

static inline void fuzz_take(struct fuzz_input *in, void *out, size_t bytes)
{
    size_t taken = bytes < in->left ? bytes : in->left;
    memset(out, 0, bytes);
    if (taken)
        memcpy(out, in->at, taken);
    in->at += taken;
    in->left -= taken;
}

static inline uint8_t fuzz_u8(struct fuzz_input *in)
{
    uint8_t value;
    fuzz_take(in, &value, sizeof value);
    return value;
}

static inline uint16_t fuzz_u16(struct fuzz_input *in)
{
    uint16_t value;
    fuzz_take(in, &value, sizeof value);
    return value;
}

static inline uint64_t fuzz_u64(struct fuzz_input *in)
{
    uint64_t value;
    fuzz_take(in, &value, sizeof value);
    return value;
}

/** A part of an object that may be damaged. */
struct fuzz_window {
    void *at;
    uint32_t bytes; /* a multiple of 8 */
};

/**
 * Take one piece of damage off the input and do it to one of @windows: a byte, some bytes, a whole
 * word, a word a little more or less, a small or a huge word, or a line copied from elsewhere.
 */
static inline void fuzz_damage(struct fuzz_input *in, const struct fuzz_window *windows,
                               uint32_t count)
{
    const struct fuzz_window *window = &windows[fuzz_u8(in) % count];
    const uint8_t how = fuzz_u8(in), more = how / 7;
    const uint32_t words = window->bytes / 8, where = fuzz_u16(in) % words * 8;
    const uint32_t room = window->bytes - where < 64 ? window->bytes - where : 64;
    uint8_t *at = (uint8_t *)window->at + where, line[64] = {0};
    uint64_t word;
    memcpy(&word, at, sizeof word);
    switch (how % 7) {
    case 0:
        at[more % 8] = fuzz_u8(in);
        return;
    case 1:
        fuzz_take(in, line, 1 + more % room);
        memcpy(at, line, 1 + more % room);
        return;
    case 2:
        word = fuzz_u64(in);
        break;
    case 3:
        word += (uint64_t)(int8_t)fuzz_u8(in);
        break;
    case 4:
        word = fuzz_u8(in);
        break;
    case 5:
        word = -(uint64_t)fuzz_u8(in);
        break;
    default: {
        const uint32_t from = fuzz_u16(in) % words * 8;
        const uint32_t bytes = window->bytes - from < room ? window->bytes - from : room;
        memcpy(line, (const uint8_t *)window->at + from, bytes);
        memcpy(at, line, bytes);
        return;
    }
    }
    memcpy(at, &word, sizeof word);
}

#endif
