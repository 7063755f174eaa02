/* See gpu_peer.h. */
#include "tests/gpu/gpu_peer.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void hear(struct gpu_peer *peer, void *bytes, size_t count)
{
    for (size_t got = 0; got < count;) {
        ssize_t n = read(peer->from, (uint8_t *)bytes + got, count - got);
        cr_assert_gt(n, 0, "the peer has ended");
        got += (size_t)n;
    }
}

static void start(struct gpu_peer *peer, char **argv)
{
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    cr_assert(pipe(in) == 0 && pipe(out) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    cr_assert_eq(posix_spawn(&peer->pid, PEER_GPU, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    peer->to = in[1];
    peer->from = out[0];
}

void gpu_peer_spawn(struct gpu_peer *peer, uint32_t memories, uint32_t bytes)
{
    char count_text[16], bytes_text[16];
    char *argv[] = {(char *)PEER_GPU, (char *)FAKE_CUDA, count_text, bytes_text, NULL};
    snprintf(count_text, sizeof count_text, "%u", memories);
    snprintf(bytes_text, sizeof bytes_text, "%u", bytes);
    start(peer, argv);
    hear(peer, peer->uuid, sizeof peer->uuid);
    for (uint32_t m = 0; m < memories; m++)
        hear(peer, &peer->memory[m], sizeof peer->memory[m]);
    for (uint32_t f = 0; f < PEER_FENCES; f++)
        hear(peer, &peer->fence[f], sizeof peer->fence[f]);
}

char gpu_peer_ask(struct gpu_peer *peer, char order)
{
    char answer;
    cr_assert_eq(write(peer->to, &order, 1), 1);
    hear(peer, &answer, 1);
    return answer;
}

void gpu_peer_end(struct gpu_peer *peer, bool kill_it)
{
    int status;
    if (kill_it)
        kill(peer->pid, SIGKILL);
    close(peer->to);
    close(peer->from);
    cr_assert_eq(waitpid(peer->pid, &status, 0), peer->pid);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(kill_it || clean);
}
