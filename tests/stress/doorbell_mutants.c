/*
 * The doorbell with a mistake. What x86 can't show is left to the models: either fence left out
 * (the kernel's own look at the words orders the sleeper's stores; the ringer's tail would have to
 * stay unseen for the length of a system call).
 *
 *   look_first    the sleeper reads the words after it has looked for work
 */
#include "shm/doorbell.h"
#include "tests/stress/mutants.h"

#include <string.h>

static bool look_first;

/* of the sleep that is under way; one sleeper */
static bool (*true_look)(void *ctx);
static void *true_ctx;
static bool has_looked, saw_work;

void doorbell_mutant_set_up(const char *name)
{
    look_first = strcmp(name, "look_first") == 0;
}

static bool mutant_look(void *ctx)
{
    if (!has_looked)
        saw_work = true_look(true_ctx);
    has_looked = true;
    return saw_work;
}

static uint32_t mutant_load(const spw_atomic32 *at)
{
    if (look_first && true_look && !has_looked)
        mutant_look(NULL);
    return spw_load_relaxed(at);
}

static uint32_t plain_load(const spw_atomic32 *at)
{
    return spw_load_relaxed(at);
}

#undef spw_load_relaxed
#define spw_load_relaxed(at) ((at) == asleep ? plain_load(at) : mutant_load(at))
#define spw_doorbell_sleep   product_sleep
int product_sleep(const struct spw_doorbell *bell, spw_atomic32 *asleep, uint64_t timeout_ns,
                  bool (*look)(void *ctx), void *ctx);

#include "shm/doorbell.c"

#undef spw_doorbell_sleep

int spw_doorbell_sleep(const struct spw_doorbell *bell, spw_atomic32 *asleep, uint64_t timeout_ns,
                       bool (*look)(void *ctx), void *ctx)
{
    true_look = look;
    true_ctx = ctx;
    has_looked = false;
    return product_sleep(bell, asleep, timeout_ns, mutant_look, ctx);
}
