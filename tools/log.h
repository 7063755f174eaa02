#ifndef SPW_TOOLS_LOG_H
#define SPW_TOOLS_LOG_H
/*
 * What daemon and workers say to people, a line a message: "spillwayd: warning: worker 0 ...".
 *
 * Severity goes by consequence, not by surprise:
 *   error    something is lost or refused, or somebody has to act
 *   warning  it goes on, but worse than it could
 *   notice   the pool or one of its processes changed its state
 *   info     good to know
 *
 * Repeats are held back: of one kind of message (one format string) SPW_LOG_BURST lines in
 * SPW_LOG_WINDOW_NS; the rest are counted, and told with the next one or by spw_log_tick(). The
 * data path never logs: it counts (tier/counters.h).
 *
 *   roles     one log a process, any of its threads; opened and closed by one. Nothing is shared
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SPW_LOG_BURST      5u
#define SPW_LOG_WINDOW_NS  60000000000ull
#define SPW_LOG_LINE_BYTES 1024u

enum spw_log_severity { SPW_LOG_ERROR, SPW_LOG_WARNING, SPW_LOG_NOTICE, SPW_LOG_INFO };

struct spw_log_config {
    const char *program; /* borrowed; first word of each line                       */
    FILE *out;           /* borrowed                                                */
    bool quiet;          /* errors and warnings only                                */
    uint64_t (*now_ns)(void);
};

/** Say what follows in this manner. Without it: "spillwayd" to standard error, by the real clock. */
void spw_log_open(const struct spw_log_config *config);

/** Say one line. @format is a literal: it names the kind of message. What is no printable
 * character in the text is shown as '?': nothing that others wrote drives a terminal. */
__attribute__((format(printf, 2, 3))) void spw_log(enum spw_log_severity severity,
                                                   const char *format, ...);

/** Tell of kinds whose repeats were held back and that have been quiet since. Cheap; called about
 * once a second. */
void spw_log_tick(void);

/** The process ends: tell of all repeats that were held back. */
void spw_log_close(void);

#endif
