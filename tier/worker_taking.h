#ifndef SPW_TIER_WORKER_TAKING_H
#define SPW_TIER_WORKER_TAKING_H
/*
 * One command on its way through the worker: worker_commands.c copies it out of its lane, checks
 * the envelope and answers; worker_halves.c carries out the halves of jobs.
 *
 *   roles     private to the worker's one thread
 */
#include "tier/worker_impl.h"

/** One command, copied out of its lane. */
struct spw_worker_taking {
    uint32_t c;
    struct spw_worker_client *client;
    struct spw_command head;
    const uint8_t *body; /* head.body_slots x 56 bytes                        */
    struct spw_done answer;
    bool answers; /* now; a run that is accepted is answered when it has ended */
};

#define SPW_SLOTS_FOR(n, each) (((n) + (each)-1) / (each))

/** The record of a space that is open, or NULL. */
const struct spw_space_record *spw_worker_record_of(const struct spw_worker *worker,
                                                    uint32_t space);
/** Its step, or a later one, is fenced here. */
bool spw_worker_fenced(const struct spw_worker *worker, const struct spw_worker_taking *taking);
/** Answer @status; true, since a command that is refused is taken. */
bool spw_worker_refuse(struct spw_worker_taking *taking, int status);
/** Answer -EINVAL and count it. */
bool spw_worker_refuse_bad(struct spw_worker *worker, struct spw_worker_taking *taking);
/** Chunks a reserve counts as offered, whatever its count says. */
uint32_t spw_worker_chunks_offered(const struct spw_worker_taking *taking);

/* Carry out; false: the command stays in its lane for a later pass. */
bool spw_worker_take_reserve(struct spw_worker *worker, struct spw_worker_taking *taking);
bool spw_worker_take_run(struct spw_worker *worker, struct spw_worker_taking *taking,
                         enum spw_copy_kind kind);
/** In worker_up.c. */
bool spw_worker_take_promote(struct spw_worker *worker, struct spw_worker_taking *taking);
/** In worker_kv.c. */
bool spw_worker_take_register(struct spw_worker *worker, struct spw_worker_taking *taking);
/** Can @job's open chunks be copied between their slots and what client @c has? 0; -EINVAL: its fence is
 * not known, or blocks lie beyond its KV, or that has another shape; -ENXIO: it has none here, or not the
 * registered one that the run is for. */
int spw_worker_kv_check(const struct spw_worker *worker, uint32_t c, const struct spw_job *job,
                        bool registered);
bool spw_worker_take_begin(struct spw_worker *worker, struct spw_worker_taking *taking);

#endif
