/*
 * GPU memory of this client, registered at the worker of its GPU, and the fences that its runs wait
 * for. Written: the bytes of the own mailbox, before the command that announces them; the daemon
 * doesn't look at them.
 */
#include "sched/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "shm/process.h"
#include "shm/text.h"
#include "tier/gpu_identity.h"

#define POLL_NS            200000
#define USUAL_TIMEOUT_NS   10000000000ull
#define CONFIG_FIRST_BYTES sizeof(struct spw_kv_config)
#define KNOWN_BYTES        140u

_Static_assert((int)SPW_KV_MEMORY_IPC == (int)SPW_KV_IPC &&
                   (int)SPW_KV_MEMORY_ADDRESS == (int)SPW_KV_POINTER,
               "kinds");

/* ---- tensors of the usual layouts ------------------------------------------------------------ */

void spw_kv_tensor_whole(struct spw_kv_tensor *tensor, uint32_t group, uint32_t memory,
                         uint64_t offset, uint32_t blocks, uint32_t block_bytes)
{
    *tensor = (struct spw_kv_tensor){.group = group,
                                     .memory = memory,
                                     .offset = offset,
                                     .block_stride_bytes = block_bytes,
                                     .part_bytes = block_bytes,
                                     .parts = 1,
                                     .blocks = blocks};
}

void spw_kv_tensor_split(struct spw_kv_tensor *tensor, uint32_t group, uint32_t memory,
                         uint64_t offset, uint32_t blocks, uint32_t half_bytes)
{
    *tensor = (struct spw_kv_tensor){.group = group,
                                     .memory = memory,
                                     .offset = offset,
                                     .block_stride_bytes = half_bytes,
                                     .part_stride_bytes = (uint64_t)blocks * half_bytes,
                                     .part_bytes = half_bytes,
                                     .parts = 2,
                                     .blocks = blocks};
}

/* ---- which worker ---------------------------------------------------------------------------- */

static bool has_gpu(const struct spw_client *client, uint32_t k, uint8_t out_uuid[16])
{
    const struct spw_gpu_record *record = &client->pool.feed[k]->gpu;
    /* [GR-1] acquire: the record before its kind */
    if (spw_load_acquire(&record->kind) != SPW_COPIER_CUDA)
        return false;
    uint64_t half[2] = {spw_load_relaxed(&record->uuid[0]), spw_load_relaxed(&record->uuid[1])};
    spw_gpu_uuid_of_words(half, out_uuid);
    return true;
}

/* The worker of this GPU, or -ENODEV with those that there are. */
static int find_worker(const struct spw_client *client, const uint8_t gpu[16],
                       struct spw_error *err)
{
    char known[KNOWN_BYTES] = "", wanted[SPW_GPU_UUID_TEXT], text[SPW_GPU_UUID_TEXT];
    uint8_t uuid[16];
    bool any = false;
    for (uint32_t k = 0; k < client->workers; k++) {
        any |= spw_load_relaxed(&client->pool.feed[k]->gpu.kind) != SPW_COPIER_HOST;
        if (!has_gpu(client, k, uuid))
            continue;
        if (memcmp(uuid, gpu, sizeof uuid) == 0)
            return (int)k;
        size_t length = strlen(known);
        spw_gpu_uuid_print(uuid, text);
        if (length + sizeof text + 2 < sizeof known)
            snprintf(known + length, sizeof known - length, "%s%s", length ? ", " : "", text);
    }
    if (!any)
        return spw_fail(err, -EOPNOTSUPP, "workers of this pool copy host memory alone: --copier");
    spw_gpu_uuid_print(gpu, wanted);
    return spw_fail(err, -ENODEV, "no worker of this pool has %s; known: %s", wanted,
                    known[0] ? known : "none");
}

/* ---- registering ----------------------------------------------------------------------------- */

static int check(const struct spw_kv_config *config, struct spw_error *err)
{
    if (config->memories == 0 || config->memories > SPW_KV_MEMORIES_MAX || !config->memory ||
        config->tensors == 0 || config->tensors > SPW_KV_TENSORS_MAX || !config->tensor ||
        config->fences > SPW_KV_FENCES_MAX || (config->fences != 0 && !config->fence))
        return spw_fail(err, -EINVAL,
                        "%u memories (1 to %u), %u tensors (1 to %u), %u fences (0 to %u)",
                        config->memories, SPW_KV_MEMORIES_MAX, config->tensors, SPW_KV_TENSORS_MAX,
                        config->fences, SPW_KV_FENCES_MAX);
    return 0;
}

static uint64_t write_record(struct spw_client *client, const struct spw_kv_config *config)
{
    uint8_t *at = client->own->head->mailbox.bytes;
    struct spw_kv_record head = {.memories = config->memories,
                                 .tensors = config->tensors,
                                 .fences = config->fences,
                                 .pid = (uint32_t)getpid(),
                                 .start_ticks = spw_process_start_ticks(getpid())};
    memcpy(head.gpu, config->gpu, sizeof head.gpu);
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (uint32_t m = 0; m < config->memories; m++) {
        struct spw_kv_memory_record memory = {.bytes = config->memory[m].bytes,
                                              .kind = config->memory[m].kind};
        memcpy(memory.handle, config->memory[m].handle, sizeof memory.handle);
        memcpy(at, &memory, sizeof memory);
        at += sizeof memory;
    }
    for (uint32_t t = 0; t < config->tensors; t++) {
        const struct spw_kv_tensor *from = &config->tensor[t];
        struct spw_kv_tensor_record tensor = {.offset = from->offset,
                                              .block_stride = from->block_stride_bytes,
                                              .part_stride = from->part_stride_bytes,
                                              .part_bytes = from->part_bytes,
                                              .parts = from->parts,
                                              .blocks = from->blocks,
                                              .group = from->group,
                                              .memory = from->memory};
        memcpy(at, &tensor, sizeof tensor);
        at += sizeof tensor;
    }
    if (config->fences != 0)
        memcpy(at, config->fence, (uint64_t)config->fences * SPW_IPC_BYTES);
    return spw_kv_record_bytes(config->memories, config->tensors, config->fences);
}

static int answer_of(struct spw_client *client, uint32_t k, struct spw_error *err)
{
    const struct spw_kv_words *words = &client->own->head->kv_words[k];
    char text[SPW_KV_TEXT_WORDS * 8];
    spw_text_load(words->text, SPW_KV_TEXT_WORDS, text);
    int64_t status = (int64_t)spw_load_relaxed(&words->status);
    if (status < -4095 || status > 0)
        return spw_fail(err, -EBADMSG, "worker %u: its answer makes no sense", k);
    return status == 0 ? 0 : spw_fail(err, (int)status, "worker %u: %s", k, text);
}

static int await_answer(struct spw_client *client, uint32_t k, uint64_t incarnation,
                        uint64_t cookie, uint64_t timeout_ns, struct spw_error *err)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const struct spw_kv_words *words = &client->own->head->kv_words[k];
    uint64_t now;
    /* [KV-1] acquire: the answer before its cookie */
    for (uint64_t start = spw_monotonic_ns(); spw_load_acquire(&words->answered) != cookie;) {
        int rc = spw_client_check(client);
        if (rc < 0)
            return spw_fail(err, rc, "pool \"%s\" was restarted: attach again",
                            client->pool.path.name);
        if (!spw_worker_up(client, k, &now) || now != incarnation)
            return spw_fail(err, -EOWNERDEAD, "worker %u ended meanwhile: try again", k);
        if (spw_monotonic_ns() - start >= timeout_ns)
            return spw_fail(err, -ETIMEDOUT, "worker %u did not answer within %lu ms", k,
                            (unsigned long)(timeout_ns / 1000000));
        nanosleep(&pause, NULL);
    }
    return answer_of(client, k, err);
}

static int send_register(struct spw_client *client, uint32_t k, uint64_t bytes,
                         uint64_t *out_incarnation, uint64_t *out_cookie, struct spw_error *err)
{
    if (!spw_worker_up(client, k, out_incarnation))
        return spw_fail(err, -EOWNERDEAD, "worker %u is down: try again", k);
    if (spw_command_room(client, k, 1) < 1)
        return spw_fail(err, -EAGAIN, "worker %u: its command ring is full", k);
    struct spw_command command = spw_command_make(client, SPW_CMD_REGISTER, *out_incarnation);
    command.arg = bytes;
    /* never one that an earlier holder of this place has used */
    command.cookie = client->generation << 32 | ++client->registrations;
    *out_cookie = command.cookie;
    spw_command_send(client, k, &command);
    return 0;
}

static int keep_fences(struct spw_client *client, uint32_t k, uint64_t incarnation, uint32_t count)
{
    if (!client->fences[k])
        client->fences[k] = calloc(1, sizeof *client->fences[k]);
    if (!client->fences[k])
        return -ENOMEM;
    client->fences[k]->incarnation = incarnation;
    client->fences[k]->count = count;
    memset(client->fences[k]->taken, 0, sizeof client->fences[k]->taken);
    return 0;
}

/* The daemon may still read, from the same bytes, what it has not answered in time. */
static bool mail_is_out(const struct spw_client *client)
{
    const struct spw_reply *reply = &client->pool.ctl->reply[client->number];
    /* [MB-2] acquire: a request was read before it, or a later one, is answered */
    return spw_pos_before(spw_load_acquire(&reply->seq), client->mail_given_up);
}

static int register_kv(struct spw_client *client, const struct spw_kv_config *config,
                       uint64_t timeout_ns, uint32_t *out_worker, struct spw_error *err)
{
    uint64_t incarnation = 0, cookie = 0;
    if (client->in_step)
        return spw_fail(err, -EINVAL, "memory can't be registered inside a step");
    if (mail_is_out(client))
        return spw_fail(err, -EBUSY, "the daemon has not read this client's last request yet");
    int rc = check(config, err);
    int k = rc == 0 ? find_worker(client, config->gpu, err) : rc;
    if (k < 0)
        return k;
    rc = send_register(client, (uint32_t)k, write_record(client, config), &incarnation, &cookie,
                       err);
    if (rc == 0)
        rc = await_answer(client, (uint32_t)k, incarnation, cookie,
                          timeout_ns ? timeout_ns : USUAL_TIMEOUT_NS, err);
    if (rc == 0)
        rc = keep_fences(client, (uint32_t)k, incarnation, config->fences);
    if (rc == 0)
        *out_worker = (uint32_t)k;
    return rc;
}

int spw_kv_register(struct spw_client *client, const struct spw_kv_config *config,
                    uint64_t timeout_ns, uint32_t *out_worker, char *error_text,
                    uint64_t error_bytes)
{
    struct spw_error err = {0};
    struct spw_kv_config mine;
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (config && out_worker &&
        spw_take_options(&mine, sizeof mine, config, config->size_bytes, CONFIG_FIRST_BYTES))
        rc = register_kv(client, &mine, timeout_ns, out_worker, &err);
    else
        rc = spw_fail(&err, -EINVAL, "no configuration, or its size_bytes is not set");
    if (rc < 0 && error_text && error_bytes > 0)
        snprintf(error_text, error_bytes, "%s", err.text[0] ? err.text : strerror(-rc));
    return rc;
}

bool spw_kv_registered(const struct spw_client *client, uint32_t k)
{
    return client->fences[k] != NULL;
}

/* ---- fences ---------------------------------------------------------------------------------- */

bool spw_fence_taken(const struct spw_client *client, uint32_t k, uint32_t fence)
{
    return k < client->workers && client->fences[k] && fence < client->fences[k]->count &&
           client->fences[k]->taken[fence];
}

void spw_fence_use(struct spw_client *client, struct spw_open_job *job, uint32_t fence)
{
    job->fence_uses = &client->fences[job->worker]->uses[fence];
    ++*job->fence_uses;
}

/* The fences of a registration that its worker still knows, in *out. */
static int fences_at(struct spw_client *client, uint32_t worker, struct spw_fences **out)
{
    uint64_t incarnation;
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (worker >= client->workers)
        return -EINVAL;
    struct spw_fences *fences = client->fences[worker];
    if (!fences || fences->count == 0)
        return -ENOENT;
    *out = fences;
    if (!spw_worker_up(client, worker, &incarnation))
        return -EOWNERDEAD;
    return incarnation == fences->incarnation ? 0 : -ENXIO;
}

int spw_fence_take(struct spw_client *client, uint32_t worker, uint32_t *out_fence)
{
    struct spw_fences *fences;
    int rc = out_fence ? fences_at(client, worker, &fences) : -EINVAL;
    if (rc < 0)
        return rc;
    for (uint32_t f = 0; f < fences->count; f++) {
        if (fences->taken[f] || fences->uses[f] != 0)
            continue;
        fences->taken[f] = true;
        *out_fence = f;
        return 0;
    }
    return -EAGAIN;
}

int spw_fence_give(struct spw_client *client, uint32_t worker, uint32_t fence)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (!spw_fence_taken(client, worker, fence))
        return -EINVAL;
    client->fences[worker]->taken[fence] = false;
    return 0;
}
