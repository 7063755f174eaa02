/* See thread_place.h. */
#include "sched/thread_place.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES_DIR "/sys/devices/system/node"

/* CPUs "0-3,8" of a file of sysfs. False: it isn't there. */
static bool read_cpus(const char *path, cpu_set_t *out)
{
    char line[4096] = "";
    FILE *file = fopen(path, "re");
    CPU_ZERO(out);
    if (!file)
        return false;
    if (!fgets(line, sizeof line, file))
        line[0] = '\0';
    fclose(file);
    for (const char *at = line; isdigit((unsigned char)*at);) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long n = first; n <= last && n < CPU_SETSIZE; n++)
            CPU_SET(n, out);
        at = *end == ',' ? end + 1 : end;
    }
    return true;
}

/* The CPUs of a node that this thread may use; there may be none. */
static int cpus_of_node(int32_t node, const cpu_set_t *allowed, cpu_set_t *out,
                        struct spw_error *err)
{
    char path[96];
    cpu_set_t own;
    if (node < 0)
        return spw_fail(err, -EINVAL,
                        "attach: bind_thread is SPW_THREAD_ON_NODE, but numa_node is %d", node);
    snprintf(path, sizeof path, NODES_DIR "/node%d/cpulist", node);
    if (!read_cpus(path, &own))
        return spw_fail(err, -EINVAL, "attach: there is no NUMA node %d on this host", node);
    CPU_AND(out, &own, allowed);
    return 0;
}

static int cpu_alone(uint32_t cpu, const cpu_set_t *allowed, cpu_set_t *out, struct spw_error *err)
{
    CPU_ZERO(out);
    if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, allowed))
        return spw_fail(err, -EINVAL, "attach: CPU %u is not there, or this thread may not use it",
                        cpu);
    CPU_SET(cpu, out);
    return 0;
}

/* Memory on a node that there isn't would lie anywhere. A kernel without NUMA has no such folder. */
static int check_node(int32_t node, struct spw_error *err)
{
    char path[96];
    if (node < 0 || access(NODES_DIR, F_OK))
        return 0;
    snprintf(path, sizeof path, NODES_DIR "/node%d", node);
    return access(path, F_OK) == 0
               ? 0
               : spw_fail(err, -EINVAL, "attach: there is no NUMA node %d on this host", node);
}

/* What @options ask for, of @allowed. */
static int choose(const struct spw_attach_options *options, const cpu_set_t *allowed,
                  cpu_set_t *out, struct spw_error *err)
{
    switch (options->bind_thread) {
    case SPW_THREAD_ON_NODE:
        return cpus_of_node(options->numa_node, allowed, out, err);
    case SPW_THREAD_ON_CPU:
        return cpu_alone(options->cpu, allowed, out, err);
    default:
        return spw_fail(err, -EINVAL, "attach: bind_thread %u is none of enum spw_thread_bind",
                        options->bind_thread);
    }
}

int spw_thread_place(const struct spw_attach_options *options, struct spw_thread_place *out_place,
                     struct spw_error *err)
{
    struct spw_thread_place place = {.bound = false};
    cpu_set_t wanted;
    int rc = check_node(options->numa_node, err);
    *out_place = place;
    if (rc || options->bind_thread == SPW_THREAD_ANYWHERE)
        return rc;
    if (sched_getaffinity(0, sizeof place.before, &place.before)) {
        out_place->refused = -errno;
        return 0;
    }
    rc = choose(options, &place.before, &wanted, err);
    if (rc)
        return rc;
    if (CPU_COUNT(&wanted) == 0)
        place.refused = -EADDRNOTAVAIL;
    else if (sched_setaffinity(0, sizeof wanted, &wanted))
        place.refused = -errno;
    else
        place.bound = true;
    *out_place = place;
    return 0;
}

void spw_thread_place_undo(const struct spw_thread_place *place)
{
    if (place->bound)
        sched_setaffinity(0, sizeof place->before, &place->before);
}
