/* See peer.h: the starter's side. */
#include "bench/gpu/peer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int broken(struct check_peer *peer)
{
    return spw_fail(&peer->check->err, -EPIPE, "the second process has ended; it says why above");
}

static int say(struct check_peer *peer, const void *bytes, uint64_t count)
{
    for (uint64_t done = 0; done < count;) {
        ssize_t n = write(peer->to, (const uint8_t *)bytes + done, count - done);
        if (n <= 0)
            return broken(peer);
        done += (uint64_t)n;
    }
    return 0;
}

static int hear(struct check_peer *peer, void *bytes, uint64_t count)
{
    for (uint64_t done = 0; done < count;) {
        ssize_t n = read(peer->from, (uint8_t *)bytes + done, count - done);
        if (n <= 0)
            return broken(peer);
        done += (uint64_t)n;
    }
    return 0;
}

static int hear_answer(struct check_peer *peer)
{
    struct spw_error answer;
    int status = hear(peer, &answer, sizeof answer);
    if (status == 0 && answer.code < 0)
        status =
            spw_fail(&peer->check->err, answer.code, "the second process: %.200s", answer.text);
    return status;
}

static int ask(struct check_peer *peer, char order, const void *bytes, uint64_t count)
{
    int status = say(peer, &order, 1);
    if (status == 0)
        status = say(peer, bytes, count);
    return status == 0 ? hear_answer(peer) : status;
}

static int spawn(struct check_peer *peer, char **argv)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    int status = -posix_spawn(&peer->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    peer->to = in[1];
    peer->from = out[0];
    if (status < 0)
        peer->pid = 0;
    return status;
}

int check_peer_start(struct check *check, uint64_t bytes, uint64_t late_ns, struct check_peer *out)
{
    char uuid[SPW_GPU_UUID_TEXT], bytes_text[24], late_text[24];
    char *argv[] = {(char *)"spw-gpu-check",
                    (char *)CHECK_PEER_WORD,
                    uuid,
                    bytes_text,
                    late_text,
                    (char *)check->driver,
                    NULL};
    *out = (struct check_peer){.check = check, .to = -1, .from = -1};
    spw_gpu_uuid_print(spw_gpu_identity(check->gpu)->uuid, uuid);
    snprintf(bytes_text, sizeof bytes_text, "%" PRIu64, bytes);
    snprintf(late_text, sizeof late_text, "%" PRIu64, late_ns);
    int status = spawn(out, argv);
    if (status < 0)
        spw_fail(&check->err, status, "a second process can't be started: %s", strerror(-status));
    if (status == 0)
        status = hear_answer(out);
    if (status == 0)
        status = hear(out, &out->exports, sizeof out->exports);
    if (status < 0)
        check_peer_end(out);
    return status;
}

void check_peer_end(struct check_peer *peer)
{
    if (!peer->check)
        return;
    if (peer->to >= 0)
        close(peer->to);
    if (peer->from >= 0)
        close(peer->from);
    if (peer->pid > 0)
        waitpid(peer->pid, NULL, 0);
    peer->check = NULL;
}

struct spw_kv_record *check_peer_record(const struct check_peer *peer, const struct check_kv *kv)
{
    struct check_source source = {.pid = (uint32_t)peer->pid,
                                  .kind = SPW_KV_IPC,
                                  .fence = (const uint8_t *)peer->exports.fence.reserved};
    memcpy(source.gpu, peer->exports.gpu, sizeof source.gpu);
    memcpy(source.memory, peer->exports.memory.reserved, sizeof source.memory);
    return check_kv_record(kv, &source);
}

static int write_whole(void *ctx, const uint8_t *bytes, uint64_t count)
{
    return ask(ctx, 'w', bytes, count);
}

static int read_whole(void *ctx, uint8_t *bytes, uint64_t count)
{
    int status = ask(ctx, 'r', NULL, 0);
    return status == 0 ? hear(ctx, bytes, count) : status;
}

struct check_memory check_peer_memory(struct check_peer *peer)
{
    return (struct check_memory){.write = write_whole, .read = read_whole, .ctx = peer};
}

int check_peer_fill_late(struct check_peer *peer, uint8_t value)
{
    return ask(peer, 's', &value, 1);
}

int check_peer_wait(struct check_peer *peer)
{
    return ask(peer, 'q', NULL, 0);
}
