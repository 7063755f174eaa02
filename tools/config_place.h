#ifndef SPW_TOOLS_CONFIG_PLACE_H
#define SPW_TOOLS_CONFIG_PLACE_H
/*
 * Options of a configuration that say something of each worker: lists with an entry a worker. Pure.
 */
#include "tools/config.h"
#include "tools/set.h"

/** Entry @k of --gpu; "K", the worker's own number, where the option isn't given. Returns @out. */
const char *spw_config_gpu(const struct spw_config *config, uint32_t k, char out[48]);
/** Entry @k of --gpu-node. False: auto. */
bool spw_config_gpu_node(const struct spw_config *config, uint32_t k, uint32_t *out_node);
/** Entry @k of --worker-cpus. False: auto. */
bool spw_config_worker_cpus(const struct spw_config *config, uint32_t k, struct spw_set *out_cpus);
/** --exclude-cpus, the empty set where it isn't given. */
struct spw_set spw_config_exclude_cpus(const struct spw_config *config);
/** --inside, the empty set where it isn't given. */
struct spw_set spw_config_inside(const struct spw_config *config);

#endif
