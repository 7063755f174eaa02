/* See fio.h. What it prints is input: read as far as it makes sense. */
#include "bench/fio.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool spw_bench_fio_found(void)
{
    return system("fio --version >/dev/null 2>&1") == 0;
}

static json_t *call(const struct spw_bench_fio *fio)
{
    char command[1400];
    snprintf(command, sizeof command,
             "fio --name=peer --filename='%s' --rw=rand%s --bs=%llu --iodepth=%u --size=%llu "
             "--time_based --runtime=%us --randrepeat=0 --direct=1 --ioengine=io_uring "
             "--fixedbufs=%d --mem=mmapshared:/proc/%d/fd/%d --norandommap=1 --output-format=json "
             "2>/dev/null",
             fio->path, fio->writes ? "write" : "read", (unsigned long long)fio->block_bytes,
             fio->depth, (unsigned long long)fio->file_bytes, fio->seconds, fio->registered,
             getpid(), fio->memory_fd);
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return NULL;
    json_t *root = json_loadf(pipe, JSON_DISABLE_EOF_CHECK, NULL);
    if (pclose(pipe) == 0)
        return root;
    json_decref(root);
    return NULL;
}

int spw_bench_fio_run(const struct spw_bench_fio *fio, struct spw_bench_fio_result *out)
{
    json_t *root = call(fio);
    const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
    const json_t *way = json_object_get(job, fio->writes ? "write" : "read");
    double seconds = number(job, "job_runtime") / 1000;
    double moved = number(way, "io_bytes"), rate = number(way, "bw_bytes");
    double busy = (number(job, "usr_cpu") + number(job, "sys_cpu")) / 100 * seconds;
    bool good = number(job, "error") == 0 && moved > 0 && rate > 0;
    json_decref(root);
    if (!good)
        return -EIO;
    *out = (struct spw_bench_fio_result){rate, busy * 1073741824.0 / moved};
    return 0;
}
