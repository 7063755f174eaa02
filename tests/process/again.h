#ifndef SPW_TESTS_PROCESS_AGAIN_H
#define SPW_TESTS_PROCESS_AGAIN_H
/*
 * One pool of a test that ends in some way and is started again over what it left. Here assertions
 * are made for the test that calls.
 *
 *   roles     the test's own process, one thread; a child of it that was forked uses none of these
 *   limits    a start takes 5 s at most: the bound that is promised
 */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#define AGAIN_START_MS 5000

extern struct proc_pool again_pool; /* one a test process */

void again_start(const struct proc_config *config);
/** Start once more over what is there; how long it took, in ms. */
uint64_t again_start_over(void);
/** End it if it runs, and remove all of it. */
void again_close(void);

/** A client of @model, whose @ranks are kept by workers 0, 1, ... */
void again_open(struct actor *actor, const char *model, uint32_t ranks);

/** Ways to end it. The test no longer looks at the pool then. */
void again_kill_daemon(void);
void again_kill_all(void);
void again_stop(void);
void again_look_away(void);

#endif
