/* Attach to a running pool, look one prompt up, say what to do with it.
 *     cc attach.c $(pkg-config --cflags --libs spillway) && ./a.out [POOL [SHM_DIR]] */
#include <spillway/spillway.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    char why[256] = "", keys[4][32] = {"one", "two", "three", "four"}; /* your prefix hashes */
    struct spw_attach_options options = {.size_bytes = sizeof(options), .numa_node = -1, .uid = -1};
    struct spw_group_config group = {.kind = SPW_GROUP_FULL, .block_tokens = 16, .chunk_bytes = 8192};
    struct spw_space_config config = {.size_bytes = sizeof(config), .blocks_per_chunk = 1,
        .hash_unit_tokens = 16, .groups = 1, .group = &group, .ranks = 1,
        .rank_worker = (const uint32_t[]){0}, .fingerprint = "model, dtype, layout, hash seed"};
    struct spw_request_config prompt = {.size_bytes = sizeof(prompt), .prompt_tokens = 64};
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_client *client;
    struct spw_space *space;
    struct spw_request *request;
    options.pool = argc > 1 ? argv[1] : "spillway";
    options.shm_dir = argc > 2 ? argv[2] : NULL;
    if (spw_attach(&options, &client, why, sizeof(why)) < 0 ||
        spw_space_open(client, &config, &space, why, sizeof(why)) < 0 ||
        spw_request_open(space, &prompt, &request) < 0 ||
        spw_request_extend(request, 0, keys, sizeof(keys[0]), 4) < 0)
        return fprintf(stderr, "%s\n", why), 1;
    spw_step_begin(client); /* once in each of your schedule() calls */
    spw_lookup(request, 0, 0, &decision);
    printf("action %u, %llu of 64 tokens to load\n", decision.action,
           (unsigned long long)decision.hit_tokens);
    spw_step_end(client);
    spw_detach(client);
    return 0;
}
