#ifndef SPW_SHM_TEXT_H
#define SPW_SHM_TEXT_H
/*
 * Words for people in shared memory: relaxed 64-bit stores by their one writer, NUL padded. A reader may
 * see some of one text and some of the next; what must be whole is guarded by whoever keeps it. A writer
 * that dies leaves a mixture of two texts, closed by a NUL.
 */
#include "shm/atomic.h"

#include <stdint.h>
#include <string.h>

/** Keep @text in @words, cut where there is no room. Words that don't change are not written. */
static inline void spw_text_store(spw_atomic64 *words, uint32_t count, const char *text)
{
    uint64_t length = strlen(text), most = count * 8ull - 1;
    length = length < most ? length : most;
    for (uint64_t at = 0; at < count * 8ull; at += 8) {
        uint64_t word = 0, left = at < length ? length - at : 0;
        memcpy(&word, text + at * (left != 0), left < sizeof word ? left : sizeof word);
        if (spw_load_relaxed(&words[at / 8]) != word)
            spw_store_relaxed(&words[at / 8], word);
    }
}

/** @out has room for 8 * @count bytes, and is closed. Returns @out. */
static inline char *spw_text_load(const spw_atomic64 *words, uint32_t count, char *out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = spw_load_relaxed(&words[i]);
        memcpy(out + 8ull * i, &word, sizeof word);
    }
    out[8ull * count - 1] = '\0';
    return out;
}

#endif
