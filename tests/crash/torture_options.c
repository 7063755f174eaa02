/* Options of the torture program; see torture.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/crash/torture.h"

static void help(void)
{
    puts("torture --seconds S --seed N [--json] [...]\n"
         "\n"
         "Starts a pool of its own with busy clients, and kills and stops its processes. Prints,\n"
         "last, what it found. Exit status: 0 all was as it must be, 1 it was not, 2 usage.\n"
         "\n"
         "  --seconds S     how long, 1 to 86400 (10)\n"
         "  --seed N        who dies when; same seed, same choices (1)\n"
         "  --workers N     1 to 8 (4)\n"
         "  --clients N     1 to 12 (5)\n"
         "  --slots N       chunks that a shard holds, 8 to 480 (64)\n"
         "  --victims LIST  of worker,client,daemon,everything (all of them)\n"
         "  --bounds N      instead: N deaths of each victim one by one, 1 to 200, and a table of\n"
         "                  how long each took to recover from\n"
         "  --below         a tier below in a folder of its own, 8 MiB large\n"
         "  --json          the last line is one JSON object\n"
         "  --help          print this");
}

static bool read_number(const char *flag, const char *text, uint64_t least, uint64_t most,
                        uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || value < least || value > most) {
        fprintf(stderr,
                "torture: %s: \"%s\" is no whole number from %" PRIu64 " to %" PRIu64
                "; say e.g. %s %" PRIu64 "\n",
                flag, text ? text : "", least, most, flag, least);
        return false;
    }
    *out = value;
    return true;
}

static bool read_victims(const char *text, uint32_t *out)
{
    uint32_t victims = 0;
    for (const char *at = text ? text : ""; *at;) {
        size_t length = strcspn(at, ",");
        enum torture_role role = 0;
        while (role < TORTURE_ROLES && (strlen(torture_role_name(role)) != length ||
                                        strncmp(torture_role_name(role), at, length)))
            role++;
        if (role == TORTURE_ROLES)
            break;
        victims |= 1u << role;
        at += length + (at[length] == ',');
        if (!*at) {
            *out = victims;
            return true;
        }
    }
    fprintf(stderr,
            "torture: --victims: \"%s\" is no list of victims; say e.g. --victims worker,client "
            "(there are worker, client, daemon, everything)\n",
            text ? text : "");
    return false;
}

static const struct {
    const char *flag;
    uint64_t least, most;
} numbers[] = {{"--seconds", 1, 86400},
               {"--seed", 0, UINT64_MAX},
               {"--workers", 1, TORTURE_WORKERS_MAX},
               {"--clients", 1, TORTURE_CLIENTS_MAX},
               {"--slots", 8, 480},
               {"--bounds", 1, 200}};
#define NUMBERS (sizeof numbers / sizeof numbers[0])

int torture_options_parse(int argc, char **argv, struct torture_options *out)
{
    uint64_t value[NUMBERS] = {10, 1, 4, 5, 64, 0};
    *out = (struct torture_options){.victims = (1u << TORTURE_ROLES) - 1};
    for (int i = 1; i < argc; i++) {
        size_t n = 0;
        while (n < NUMBERS && strcmp(argv[i], numbers[n].flag))
            n++;
        if (strcmp(argv[i], "--help") == 0) {
            help();
            return 1;
        }
        if (strcmp(argv[i], "--json") == 0) {
            out->json = true;
        } else if (strcmp(argv[i], "--below") == 0) {
            out->below = true;
        } else if (strcmp(argv[i], "--victims") == 0) {
            if (!read_victims(argv[++i], &out->victims))
                return 2;
        } else if (n == NUMBERS) {
            fprintf(stderr, "torture: \"%s\" is unknown; torture --help lists what there is\n",
                    argv[i]);
            return 2;
        } else if (!read_number(numbers[n].flag, argv[i + 1], numbers[n].least, numbers[n].most,
                                &value[n])) {
            return 2;
        } else {
            i++;
        }
    }
    out->seconds = value[0];
    out->seed = value[1];
    out->workers = (uint32_t)value[2];
    out->clients = (uint32_t)value[3];
    out->slots = (uint32_t)value[4];
    out->bounds = (uint32_t)value[5];
    return 0;
}
