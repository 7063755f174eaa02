/* GPUs of a host, without their driver's library; see host.h. */
#include "tools/host_impl.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES    512
#define DRIVERS_LIST  "/proc/driver/nvidia/gpus"
#define DEVICES       "/sys/bus/pci/devices"
#define VENDOR_NVIDIA 0x10de
#define CLASS_VGA     0x0300
#define CLASS_3D      0x0302

static void add(struct spw_host *host, const char *root, const char *bus_id)
{
    char path[128];
    if (host->gpus == SPW_HOST_GPUS_MAX)
        return;
    struct spw_host_gpu *gpu = &host->gpu[host->gpus++];
    *gpu = (struct spw_host_gpu){.node = -1};
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%.15s", bus_id);
    snprintf(path, sizeof path, DEVICES "/%s/numa_node", gpu->bus_id);
    gpu->node = (int32_t)spw_host_read_number(root, path, UINT64_MAX); /* "-1" is no number, too */
}

/* Hexadecimal, as sysfs has vendors and classes; 0 if there is none. */
static unsigned long id_of(const char *root, const char *device, const char *what)
{
    char path[384], line[32];
    snprintf(path, sizeof path, DEVICES "/%s/%s", device, what);
    return spw_host_read_line(root, path, line, sizeof line) ? strtoul(line, NULL, 16) : 0;
}

bool spw_host_is_gpu(unsigned long vendor, unsigned long class)
{
    return vendor == VENDOR_NVIDIA && (class == CLASS_VGA || class == CLASS_3D);
}

static bool is_gpu(const char *root, const char *device)
{
    return spw_host_is_gpu(id_of(root, device, "vendor"), id_of(root, device, "class") >> 8);
}

/* Those of the folder @dir that are GPUs. */
static void add_all(struct spw_host *host, const char *root, const char *dir, bool all)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s%s", root, dir);
    DIR *open_dir = opendir(path);
    for (struct dirent *entry; open_dir && (entry = readdir(open_dir));)
        if (entry->d_name[0] != '.' && (all || is_gpu(root, entry->d_name)))
            add(host, root, entry->d_name);
    if (open_dir)
        closedir(open_dir);
}

static void read_uuid(const char *root, struct spw_host_gpu *gpu)
{
    char path[128];
    snprintf(path, sizeof path, DRIVERS_LIST "/%s/information", gpu->bus_id);
    spw_host_read_key(root, path, "GPU UUID", gpu->uuid, sizeof gpu->uuid);
}

static int by_bus(const void *a, const void *b)
{
    return strcmp(((const struct spw_host_gpu *)a)->bus_id,
                  ((const struct spw_host_gpu *)b)->bus_id);
}

static bool is_device_file(const char *name)
{
    return strncmp(name, "nvidia", 6) == 0 && name[6] &&
           name[6 + strspn(name + 6, "0123456789")] == 0;
}

/* In a container there may be device files alone. */
static void add_device_files(struct spw_host *host, const char *root)
{
    char path[PATH_BYTES];
    uint32_t devices = 0;
    snprintf(path, sizeof path, "%s/dev", root);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        devices += is_device_file(entry->d_name);
    if (dir)
        closedir(dir);
    while (host->gpus < devices && host->gpus < SPW_HOST_GPUS_MAX)
        host->gpu[host->gpus++] = (struct spw_host_gpu){.node = -1};
}

void spw_host_gather_gpus(const char *root, struct spw_host *host)
{
    host->gpus = 0;
    add_all(host, root, DRIVERS_LIST, true);
    host->gpus_listed = host->gpus > 0;
    if (!host->gpus_listed)
        add_all(host, root, DEVICES, false);
    qsort(host->gpu, host->gpus, sizeof host->gpu[0], by_bus);
    for (uint32_t i = 0; i < host->gpus; i++)
        read_uuid(root, &host->gpu[i]);
    uint32_t named = host->gpus;
    add_device_files(host, root);
    host->gpus_listed &= host->gpus == named;
}
