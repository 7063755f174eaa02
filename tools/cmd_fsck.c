/*
 * spillway fsck: audit a pool, living or dead, and say what is wrong with it. Maps read-only, takes
 * no lock, repairs nothing: the next start does that, entry by entry.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/command.h"
#include "tools/fsck.h"

static const char *severity_word(const struct spw_fsck_finding *finding)
{
    return finding->severity == SPW_FSCK_DAMAGE ? "damage" : "note";
}

static void print_text(const struct spw_fsck_report *report, const char *pool)
{
    uint64_t told = report->findings, all = report->damages + report->notes;
    for (uint32_t i = 0; i < report->findings; i++)
        printf("%s: %s: %s\n", severity_word(&report->finding[i]), report->finding[i].where,
               report->finding[i].text);
    if (all > told)
        printf("... and %" PRIu64 " more\n", all - told);
    printf("pool %s: daemon %s; %u of %u shards judged, with %" PRIu64 " ready, %" PRIu64
           " filling, %" PRIu64 " retired and %" PRIu64 " free slots",
           pool, report->daemon_alive ? "alive" : "gone", report->judged, report->workers,
           report->entries[SPW_READY], report->entries[SPW_FILLING], report->entries[SPW_RETIRED],
           report->entries[SPW_FREE]);
    if (report->entries[SPW_COLD] + report->entries[SPW_BACKED])
        printf(", and %" PRIu64 " cold and %" PRIu64 " backed chunks below",
               report->entries[SPW_COLD], report->entries[SPW_BACKED]);
    if (report->moving)
        printf(" (%" PRIu64 " kept changing)", report->moving);
    printf("; %u %s, %u of %u clients attached: ", report->spaces,
           report->spaces == 1 ? "space" : "spaces", report->attached, report->clients);
    if (report->damages)
        printf("%" PRIu64 " times damage\n", report->damages);
    else
        printf("no damage\n");
}

static int print_json(const struct spw_fsck_report *report, const char *pool)
{
    json_t *findings = json_array(), *entries = json_object();
    for (uint32_t i = 0; i < report->findings; i++)
        json_array_append_new(findings,
                              json_pack("{s:s, s:s, s:s}", "severity",
                                        severity_word(&report->finding[i]), "where",
                                        report->finding[i].where, "text", report->finding[i].text));
    for (uint32_t state = 0; state < SPW_STATE_COUNT; state++)
        json_object_set_new(entries, spw_state_name(state),
                            json_integer((json_int_t)report->entries[state]));
    json_t *root = json_pack("{s:i, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:o, s:I, s:I, s:I, s:o}",
                             "schema", 1, "pool", pool, "daemon_alive", report->daemon_alive,
                             "workers", (int)report->workers, "judged", (int)report->judged,
                             "clients", (int)report->clients, "attached", (int)report->attached,
                             "spaces", (int)report->spaces, "entries", entries, "moving",
                             (json_int_t)report->moving, "damages", (json_int_t)report->damages,
                             "notes", (json_int_t)report->notes, "findings", findings);
    int rc = root ? json_dumpf(root, stdout, JSON_INDENT(1)) : -1;
    putchar('\n');
    json_decref(root);
    return rc;
}

static int report_on(const struct spw_fsck_report *report, const struct spw_pool_args *args)
{
    if (args->json && print_json(report, args->pool)) {
        fprintf(stderr, "spillway fsck: out of memory\n");
        return SPW_EXIT_FAILED;
    }
    if (!args->json)
        print_text(report, args->pool);
    if (report->damages)
        return SPW_EXIT_DAMAGED;
    return report->daemon_alive ? SPW_EXIT_OK : SPW_EXIT_STALE;
}

int spw_cmd_fsck(int argc, char *const *argv)
{
    struct spw_pool_args args;
    struct spw_error err = {0};
    struct spw_pool_path path;
    int status = spw_pool_args_read(argc, argv, "audit a pool, and say what is damaged", &args);
    if (status >= 0)
        return status;
    struct spw_fsck_report *report = calloc(1, sizeof *report);
    if (!report) {
        fprintf(stderr, "spillway fsck: out of memory\n");
        return SPW_EXIT_FAILED;
    }
    int rc = spw_pool_path_init(&path, args.shm_dir, args.pool, (uint32_t)args.uid, &err);
    if (!rc)
        rc = spw_fsck_run(&path, report, &err);
    if (rc)
        fprintf(stderr, "spillway fsck: %s\n", err.text);
    status = rc ? spw_exit_of(rc) : report_on(report, &args);
    free(report);
    return status;
}
