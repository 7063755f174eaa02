/* See log.h. Written: standard error; nothing is left when the process dies but what it said. */
#include "tools/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#include "shm/base.h"

#define KINDS 64u

/* A kind of message lately said: how often in its window, and the last text held back. */
struct kind {
    const char *format; /* NULL: free */
    uint64_t since_ns;
    uint64_t said;
    uint64_t held;
    enum spw_log_severity severity;
    char last[SPW_LOG_LINE_BYTES];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* over all of the state but its config */
static struct {
    struct spw_log_config config;
    struct kind kind[KINDS];
} state;

static const char *const severity_words[] = {"error", "warning", "notice", "info"};

void spw_log_open(const struct spw_log_config *config)
{
    state.config = *config;
    for (uint32_t i = 0; i < KINDS; i++)
        state.kind[i].format = NULL;
}

static void say(enum spw_log_severity severity, const char *text, const char *more)
{
    FILE *out = state.config.out ? state.config.out : stderr;
    const char *program = state.config.program ? state.config.program : "spillwayd";
    /* one call: lines of several processes on one descriptor don't mix */
    fprintf(out, "%s: %s: %s%s\n", program, severity_words[severity], text, more);
}

/* End the window of @kind: the repeats that were not told are told by their last one. */
static void close_window(struct kind *kind)
{
    char more[64];
    if (kind->held) {
        snprintf(more, sizeof more, " (the last of %" PRIu64 " more in the last %u s)", kind->held,
                 (unsigned)(SPW_LOG_WINDOW_NS / 1000000000ull));
        say(kind->severity, kind->last, more);
    }
    kind->format = NULL;
}

/* The record of this kind: a free one, or the oldest, if it is new. */
static struct kind *find(const char *format, uint64_t now)
{
    struct kind *found = NULL, *oldest = &state.kind[0];
    for (uint32_t i = 0; i < KINDS; i++) {
        struct kind *kind = &state.kind[i];
        if (kind->format && now - kind->since_ns >= SPW_LOG_WINDOW_NS)
            close_window(kind);
        if (kind->format && strcmp(kind->format, format) == 0)
            return kind;
        if (!kind->format && !found)
            found = kind;
        if (kind->format && kind->since_ns < oldest->since_ns)
            oldest = kind;
    }
    if (!found) {
        close_window(oldest);
        found = oldest;
    }
    found->format = format;
    found->since_ns = now;
    found->said = 0;
    found->held = 0;
    return found;
}

static uint64_t now_ns(void)
{
    return state.config.now_ns ? state.config.now_ns() : spw_monotonic_ns();
}

void spw_log(enum spw_log_severity severity, const char *format, ...)
{
    char text[SPW_LOG_LINE_BYTES];
    va_list args;
    if (state.config.quiet && severity > SPW_LOG_WARNING)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *letter = text; *letter; letter++)
        if ((unsigned char)*letter < ' ' || *letter == 127)
            *letter = '?';
    pthread_mutex_lock(&mutex);
    struct kind *kind = find(format, now_ns());
    kind->severity = severity;
    if (kind->said < SPW_LOG_BURST) {
        kind->said++;
        say(severity, text, "");
    } else {
        kind->held++;
        snprintf(kind->last, sizeof kind->last, "%s", text);
    }
    pthread_mutex_unlock(&mutex);
}

void spw_log_tick(void)
{
    uint64_t now = now_ns();
    pthread_mutex_lock(&mutex);
    for (uint32_t i = 0; i < KINDS; i++) {
        struct kind *kind = &state.kind[i];
        if (kind->format && now - kind->since_ns >= SPW_LOG_WINDOW_NS)
            close_window(kind);
    }
    pthread_mutex_unlock(&mutex);
}

void spw_log_close(void)
{
    pthread_mutex_lock(&mutex);
    for (uint32_t i = 0; i < KINDS; i++)
        if (state.kind[i].format)
            close_window(&state.kind[i]);
    pthread_mutex_unlock(&mutex);
}
