#ifndef SPW_TESTS_SUPPORT_FAULT_IO_H
#define SPW_TESTS_SUPPORT_FAULT_IO_H
/*
 * An I/O engine over another one that does what a test tells it: short transfers, errors, delays by
 * the test's clock, transfers that hang, ends in another order. What no rule names passes through.
 *
 *   roles     one thread calls the engine and everything here; no thread of its own
 *   held      a delayed or hanging transfer isn't with the engine below: when it is let go it reads
 *             or writes its buffer, as a late one of a real disk does
 */
#include "tier/io.h"

#define FAULT_IO_ANY     (-1)
#define FAULT_IO_LOG_MAX 4096u

enum fault_io_kind {
    FAULT_IO_SHORT, /* moves at most .bytes                                  */
    FAULT_IO_ERROR, /* ends with .error (negative), nothing is moved          */
    FAULT_IO_DELAY, /* begins .delay_ns later                                 */
    FAULT_IO_HANG,  /* begins at fault_io_release()                           */
};

struct fault_io_rule {
    enum fault_io_kind kind;
    int op;          /* enum spw_io_op or FAULT_IO_ANY: what it counts and names              */
    uint64_t first;  /* the n-th of those submitted from now on, from 1; 0 = the next         */
    uint64_t count;  /* this many from there; 0 = all                                         */
    uint32_t one_in; /* of them one in this many, by chance; 0 and 1 = each                   */
    int error;
    uint64_t bytes;
    uint64_t delay_ns;
};

/** What was asked of it, in order. */
struct fault_io_asked {
    enum spw_io_op op;
    int fd;
    uint64_t offset, bytes;
    bool urgent;
};

struct fault_io;

/** Wrap @below, which @out_io closes too. @config's wake is called for ends made here; @seed is for
 * rules by chance and for order. Ends the program when memory is short. */
struct fault_io *fault_io_open(struct spw_io_handle below, const struct spw_io_config *config,
                               uint64_t seed, struct spw_io_handle *out_io);

/** The first rule that names a transfer decides. At most 16. */
void fault_io_rule(struct fault_io *fault, struct fault_io_rule rule);
/** No rules any more; what is held stays held. */
void fault_io_clear(struct fault_io *fault);
/** The clock of delays; without it they pass by CLOCK_MONOTONIC. Borrowed. */
void fault_io_clock(struct fault_io *fault, const uint64_t *now_ns);
/** Ends come in any order from now on, some of them later than need be. */
void fault_io_shuffle(struct fault_io *fault);
/** Hanging transfers go on at the next poll. */
void fault_io_release(struct fault_io *fault);

/** Transfers of @op (or FAULT_IO_ANY) accepted so far. */
uint64_t fault_io_count(const struct fault_io *fault, int op);
/** Accepted and not yet given back by poll. */
uint32_t fault_io_open_count(const struct fault_io *fault);
/** Of those, held here. */
uint32_t fault_io_held_count(const struct fault_io *fault);
/** The first transfers asked for, at most FAULT_IO_LOG_MAX. */
uint32_t fault_io_log(const struct fault_io *fault, const struct fault_io_asked **out_first);

#endif
