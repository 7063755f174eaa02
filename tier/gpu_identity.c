/* See gpu_identity.h. */
#include "tier/gpu_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDINAL_DIGITS 3u

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void spw_gpu_uuid_print(const uint8_t uuid[16], char out[SPW_GPU_UUID_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    char *at = out;
    memcpy(at, "GPU-", 4);
    at += 4;
    for (uint32_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[uuid[i] >> 4];
        *at++ = digits[uuid[i] & 15];
    }
    *at = '\0';
}

bool spw_gpu_uuid_parse(const char *text, uint8_t out_uuid[16])
{
    uint8_t uuid[16];
    if (strncmp(text, "GPU-", 4) == 0)
        text += 4;
    for (uint32_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            if (*text++ != '-')
                return false;
        int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
        if (low < 0)
            return false;
        uuid[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    if (*text != '\0')
        return false;
    memcpy(out_uuid, uuid, sizeof uuid);
    return true;
}

void spw_gpu_uuid_to_words(const uint8_t uuid[16], uint64_t out[2])
{
    out[0] = out[1] = 0;
    for (uint32_t i = 0; i < 16; i++)
        out[i / 8] = out[i / 8] << 8 | uuid[i];
}

void spw_gpu_uuid_of_words(const uint64_t words[2], uint8_t out_uuid[16])
{
    for (uint32_t i = 0; i < 16; i++)
        out_uuid[i] = (uint8_t)(words[i / 8] >> (56 - 8 * (i % 8)));
}

void spw_gpu_bus_print(uint64_t bus, char out[SPW_GPU_BUS_TEXT])
{
    if (bus == UINT64_MAX)
        snprintf(out, SPW_GPU_BUS_TEXT, "?");
    else
        snprintf(out, SPW_GPU_BUS_TEXT, "%04x:%02x:%02x.%x", (unsigned)(bus >> 16 & 0xffff),
                 (unsigned)(bus >> 8 & 0xff), (unsigned)(bus >> 3 & 0x1f), (unsigned)(bus & 7));
}

/* Hexadecimal digits up to @end, at most @most of them. */
static bool parse_part(const char **text, char end, uint32_t most, uint64_t *out)
{
    uint32_t digits = 0;
    uint64_t value = 0;
    for (; digit(**text) >= 0 && digits < most; digits++)
        value = value << 4 | (uint64_t)digit(*(*text)++);
    if (digits == 0 || **text != end)
        return false;
    if (end != '\0')
        (*text)++;
    *out = value;
    return true;
}

bool spw_gpu_bus_parse(const char *text, uint64_t *out_bus)
{
    uint64_t domain = 0, bus, device, function;
    const char *first = strchr(text, ':');
    if (first && strchr(first + 1, ':') && !parse_part(&text, ':', 8, &domain))
        return false;
    if (!parse_part(&text, ':', 2, &bus) || !parse_part(&text, '.', 2, &device) ||
        !parse_part(&text, '\0', 1, &function) || domain > 0xffff || device > 31 || function > 7)
        return false;
    *out_bus = domain << 16 | bus << 8 | device << 3 | function;
    return true;
}

static bool parse_ordinal(const char *text, int *out)
{
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > ORDINAL_DIGITS || text[length] != '\0')
        return false;
    *out = atoi(text);
    return true;
}

bool spw_gpu_matches(const struct spw_gpu_identity *gpu, const char *which)
{
    uint8_t uuid[16];
    uint64_t bus;
    int ordinal;
    if (spw_gpu_uuid_parse(which, uuid))
        return memcmp(uuid, gpu->uuid, sizeof uuid) == 0;
    if (spw_gpu_bus_parse(which, &bus))
        return bus == gpu->bus;
    return parse_ordinal(which, &ordinal) && ordinal == gpu->ordinal;
}

bool spw_gpu_which_is_valid(const char *which)
{
    uint8_t uuid[16];
    uint64_t bus;
    int ordinal;
    return spw_gpu_uuid_parse(which, uuid) || spw_gpu_bus_parse(which, &bus) ||
           parse_ordinal(which, &ordinal);
}
