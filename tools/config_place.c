/* See config_place.h; and the check of these options. */
#include "tools/config_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/gpu_identity.h"
#include "tools/config_impl.h"
#include "tools/topology.h"

#define GPU_SEPARATOR  ','
#define NODE_SEPARATOR ','
#define CPUS_SEPARATOR '/' /* lists of CPUs have commas */

/* Entry @k of @list, which may be empty; NULL where there are not so many. */
static const char *entry_at(const char *list, char separator, uint32_t k, size_t *out_bytes)
{
    while (k > 0 && (list = strchr(list, separator))) {
        list++;
        k--;
    }
    if (!list)
        return NULL;
    const char *end = strchr(list, separator);
    *out_bytes = end ? (size_t)(end - list) : strlen(list);
    return list;
}

static uint32_t count_entries(const char *list, char separator)
{
    uint32_t count = 1;
    while ((list = strchr(list, separator))) {
        list++;
        count++;
    }
    return count;
}

static bool is_auto(const char *entry, size_t bytes)
{
    return bytes == 4 && memcmp(entry, "auto", 4) == 0;
}

const char *spw_config_gpu(const struct spw_config *config, uint32_t k, char out[48])
{
    size_t bytes;
    const char *entry = entry_at(config->gpu, GPU_SEPARATOR, k, &bytes);
    if (config->gpu[0] == '\0' || !entry)
        snprintf(out, 48, "%u", k);
    else
        snprintf(out, 48, "%.*s", bytes < 48 ? (int)bytes : 47, entry);
    return out;
}

bool spw_config_gpu_node(const struct spw_config *config, uint32_t k, uint32_t *out_node)
{
    size_t bytes;
    struct spw_set one;
    const char *entry = entry_at(config->gpu_node, NODE_SEPARATOR, k, &bytes);
    if (config->gpu_node[0] == '\0' || !entry || !spw_set_parse(entry, bytes, &one) ||
        spw_set_count(&one) != 1)
        return false;
    *out_node = spw_set_next(&one, 0);
    return true;
}

bool spw_config_worker_cpus(const struct spw_config *config, uint32_t k, struct spw_set *out_cpus)
{
    size_t bytes;
    const char *entry = entry_at(config->worker_cpus, CPUS_SEPARATOR, k, &bytes);
    return config->worker_cpus[0] != '\0' && entry && spw_set_parse(entry, bytes, out_cpus) &&
           !spw_set_is_empty(out_cpus);
}

struct spw_set spw_config_exclude_cpus(const struct spw_config *config)
{
    struct spw_set set = {{0}};
    spw_set_parse(config->exclude_cpus, strlen(config->exclude_cpus), &set);
    return set;
}

struct spw_set spw_config_inside(const struct spw_config *config)
{
    struct spw_set set = {{0}};
    spw_set_parse(config->inside, strlen(config->inside), &set);
    return set;
}

/* ---- the check ---------------------------------------------------------------------------------- */

typedef bool is_valid(const char *entry, size_t bytes);

static bool is_gpu(const char *entry, size_t bytes)
{
    char text[48];
    if (bytes >= sizeof text)
        return false;
    memcpy(text, entry, bytes);
    text[bytes] = '\0';
    return spw_gpu_which_is_valid(text);
}

static bool is_node(const char *entry, size_t bytes)
{
    struct spw_set one;
    return is_auto(entry, bytes) || (spw_set_parse(entry, bytes, &one) &&
                                     spw_set_count(&one) == 1 && !memchr(entry, '-', bytes));
}

static bool is_cpus(const char *entry, size_t bytes)
{
    struct spw_set set;
    return is_auto(entry, bytes) || (bytes > 0 && spw_set_parse(entry, bytes, &set));
}

static int check_list(const struct spw_config *config, const char *name, const char *list,
                      char separator, is_valid *valid, const char *form, char *err,
                      size_t err_bytes)
{
    uint32_t count = count_entries(list, separator);
    size_t bytes;
    if (list[0] == '\0')
        return 0;
    for (uint32_t k = 0; k < count; k++) {
        const char *entry = entry_at(list, separator, k, &bytes);
        if (valid(entry, bytes))
            continue;
        snprintf(err, err_bytes, "--%s: \"%.*s\" is not %s", name, (int)(bytes < 200 ? bytes : 200),
                 entry, form);
        return -EINVAL;
    }
    if (count == config->workers)
        return 0;
    snprintf(err, err_bytes,
             "--%s: \"%.200s\" names %u, one for each of --workers (%llu) is needed", name, list,
             count, (unsigned long long)config->workers);
    return -EINVAL;
}

/* No GPU is given to two workers; what one is called by address and by UUID is seen later. */
static int check_twice(const struct spw_config *config, char *err, size_t err_bytes)
{
    char a[48], b[48];
    for (uint32_t k = 1; config->gpu[0] && k < config->workers; k++)
        for (uint32_t j = 0; j < k; j++) {
            if (strcasecmp(spw_config_gpu(config, j, a), spw_config_gpu(config, k, b)))
                continue;
            snprintf(err, err_bytes, "--gpu: \"%s\" is given to two workers", a);
            return -EINVAL;
        }
    return 0;
}

static int check_inside(const struct spw_config *config, char *err, size_t err_bytes)
{
    struct spw_set set;
    if (!spw_set_parse(config->inside, strlen(config->inside), &set)) {
        snprintf(err, err_bytes, "--inside: \"%s\" is not workers like 0-1,3", config->inside);
        return -EINVAL;
    }
    uint32_t beyond = spw_set_next(&set, (uint32_t)config->workers);
    if (beyond == SPW_SET_MAX)
        return 0;
    snprintf(err, err_bytes, "--inside: \"%s\" names worker %u, --workers (%llu) has 0 to %llu",
             config->inside, beyond, (unsigned long long)config->workers,
             (unsigned long long)config->workers - 1);
    return -EINVAL;
}

int spw_config_check_place(const struct spw_config *config, char *err, size_t err_bytes)
{
    struct spw_set set;
    if (config->copier == SPW_CONFIG_COPIER_HOST && config->gpu[0])
        return spw_config_refuse_pair(config, "gpu", "has no effect with", "copier", err,
                                      err_bytes);
    int rc = check_list(config, "gpu", config->gpu, GPU_SEPARATOR, is_gpu,
                        "a UUID, a PCI address or an ordinal", err, err_bytes);
    if (rc == 0)
        rc = check_twice(config, err, err_bytes);
    if (rc == 0)
        rc = check_list(config, "gpu-node", config->gpu_node, NODE_SEPARATOR, is_node,
                        "auto or the number of a NUMA node", err, err_bytes);
    if (rc == 0)
        rc = check_list(config, "worker-cpus", config->worker_cpus, CPUS_SEPARATOR, is_cpus,
                        "auto or CPUs like 0-3,8", err, err_bytes);
    if (rc == 0 && !spw_set_parse(config->exclude_cpus, strlen(config->exclude_cpus), &set)) {
        snprintf(err, err_bytes, "--exclude-cpus: \"%.200s\" is not CPUs like 0-3,8",
                 config->exclude_cpus);
        rc = -EINVAL;
    }
    return rc ? rc : check_inside(config, err, err_bytes);
}
