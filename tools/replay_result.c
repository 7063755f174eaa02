/* How an engine's result travels to the parent: sums, then the samples, in one go. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/replay.h"

static int write_all(int fd, const void *from, size_t bytes)
{
    const char *at = from;
    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EPIPE;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int read_all(int fd, void *to, size_t bytes)
{
    char *at = to;
    while (bytes) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EPIPE;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

int spw_replay_result_send(int fd, const struct spw_replay_result *result)
{
    struct spw_replay_sums sums = result->sums;
    sums.wait_count = result->waits.count;
    sums.ttft_count = result->ttfts.count;
    sums.eta_count = result->forecasts.errors.count;
    sums.eta_unknown = result->forecasts.unknown;
    sums.eta_waited_ns = result->forecasts.waited_ns;
    int status = write_all(fd, &sums, sizeof sums);
    if (!status)
        status = write_all(fd, result->waits.values_ns, sums.wait_count * sizeof(int64_t));
    if (!status)
        status = write_all(fd, result->ttfts.values_ns, sums.ttft_count * sizeof(int64_t));
    if (!status)
        status =
            write_all(fd, result->forecasts.errors.values_ns, sums.eta_count * sizeof(int64_t));
    return status;
}

static int receive_samples(int fd, struct spw_samples *into, uint64_t count)
{
    int status = 0;
    for (uint64_t i = 0; !status && i < count; i++) {
        int64_t value_ns;
        status = read_all(fd, &value_ns, sizeof value_ns);
        if (!status)
            status = spw_samples_add(into, value_ns);
    }
    return status;
}

int spw_replay_result_receive(int fd, struct spw_replay_result *into)
{
    struct spw_replay_sums sums;
    int status = read_all(fd, &sums, sizeof sums);
    if (!status)
        status = receive_samples(fd, &into->waits, sums.wait_count);
    if (!status)
        status = receive_samples(fd, &into->ttfts, sums.ttft_count);
    if (!status)
        status = receive_samples(fd, &into->forecasts.errors, sums.eta_count);
    if (status)
        return status;
    into->forecasts.unknown += sums.eta_unknown;
    into->forecasts.waited_ns += sums.eta_waited_ns;
    /* every field is a count: add them one by one as an array of 64-bit words */
    uint64_t *to = (uint64_t *)&into->sums;
    const uint64_t *from = (const uint64_t *)&sums;
    for (size_t i = 0; i < sizeof sums / sizeof *to; i++)
        to[i] += from[i];
    return 0;
}

void spw_replay_result_fini(struct spw_replay_result *result)
{
    spw_samples_fini(&result->waits);
    spw_samples_fini(&result->ttfts);
    spw_forecasts_fini(&result->forecasts);
}
