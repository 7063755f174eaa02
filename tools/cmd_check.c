/*
 * spillway check: could spillwayd start here with these options, and what would it be the worse for?
 * Takes the options of spillwayd and --json; creates nothing.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"
#include "tools/host.h"
#include "tools/place_map.h"
#include "tools/placing.h"

#define ARGS_MAX 128

static bool is_error(const struct spw_host_finding *finding)
{
    return finding->severity == SPW_HOST_ERROR;
}

static void print_text(const struct spw_host_finding *finding, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        printf("%-8s %-10s %s\n", spw_host_severity_word(finding[i].severity), finding[i].what,
               finding[i].value);
        if (finding[i].remedy[0])
            printf("%19s %s\n", "", finding[i].remedy);
    }
}

static json_t *finding_json(const struct spw_host_finding *finding)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s}", "check", finding->what, "severity",
                             spw_host_severity_word(finding->severity), "value", finding->value,
                             "remedy", finding->remedy);
    if (finding->counted) {
        json_object_set_new(json, "needed", json_integer((json_int_t)finding->needed));
        json_object_set_new(json, "available",
                            finding->available > INT64_MAX
                                ? json_null() /* no limit */
                                : json_integer((json_int_t)finding->available));
    }
    return json;
}

/* What there is to say of the workers' places, like what there is of the host. */
static uint32_t add_notes(const struct spw_place *place, struct spw_host_finding *finding)
{
    static const enum spw_host_severity severities[] = {[SPW_PLACE_INFO] = SPW_HOST_NOTE,
                                                        [SPW_PLACE_WARNING] = SPW_HOST_WARNING,
                                                        [SPW_PLACE_ERROR] = SPW_HOST_ERROR};
    for (uint32_t i = 0; i < place->notes; i++) {
        const struct spw_place_note *note = &place->note[i];
        finding[i] =
            (struct spw_host_finding){.severity = severities[note->severity], .what = "placement"};
        snprintf(finding[i].value, sizeof finding[i].value, "%s", note->words);
        snprintf(finding[i].remedy, sizeof finding[i].remedy, "%s", note->remedy);
    }
    return place->notes;
}

static void print_json(const struct spw_config *config, const struct spw_plan *plan,
                       const struct spw_host_finding *finding, uint32_t count,
                       const struct spw_place *place, bool could_start)
{
    json_t *findings = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(findings, finding_json(&finding[i]));
    json_t *root = json_pack(
        "{s:i, s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:o}", "schema", 1, "pool", config->name,
        "could_start", could_start, "total_bytes", (json_int_t)plan->total_bytes, "payload_bytes",
        (json_int_t)plan->payload_bytes, "kv_bytes", (json_int_t)plan->kv_bytes, "control_bytes",
        (json_int_t)plan->control_bytes, "findings", findings, "placement",
        spw_place_map_json(place));
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

/* spillwayd's options as they came, --json taken out. */
static int split_args(int argc, char *const *argv, char **out_args, bool *out_json)
{
    int count = 0;
    for (int i = 0; i < argc && count < ARGS_MAX - 1; i++) {
        if (strcmp(argv[i], "--json") == 0)
            *out_json = true;
        else
            out_args[count++] = argv[i];
    }
    out_args[count] = NULL;
    return count;
}

static int check(const struct spw_config *config, bool json)
{
    static struct spw_host_finding finding[SPW_HOST_FINDINGS_MAX + SPW_PLACE_NOTES_MAX];
    static struct spw_place place;
    struct spw_pool_config pool_config = {0};
    struct spw_error err = {0};
    struct spw_plan plan;
    struct spw_host host;
    bool could_start = true;
    spw_plan_pool(config, &pool_config);
    if (spw_geometry_check(&pool_config.geometry, &err)) {
        fprintf(stderr, "spillway check: %s\n", err.text);
        return SPW_EXIT_FAILED;
    }
    spw_plan_bytes(&pool_config.geometry, &plan);
    spw_host_gather("", config, &host);
    uint32_t count = spw_host_judge(&host, config, &plan, finding);
    int placed = spw_placing_decide(config, &place, &err);
    if (placed && !place.notes) {
        fprintf(stderr, "spillway check: %s\n", err.text);
        return SPW_EXIT_FAILED;
    }
    count += add_notes(&place, &finding[count]);
    for (uint32_t i = 0; i < count; i++)
        could_start &= !is_error(&finding[i]);
    if (json) {
        print_json(config, &plan, finding, count, &place, could_start);
    } else {
        print_text(finding, count);
        if (config->topology[0])
            printf("\nmemory and limits are this host's; below, places on that of --topology\n");
        spw_place_map_print(&place);
    }
    return could_start ? SPW_EXIT_OK : SPW_EXIT_FAILED;
}

int spw_cmd_check(int argc, char *const *argv)
{
    char *args[ARGS_MAX], err[1024] = "";
    struct spw_config config;
    bool json = false;
    int count = split_args(argc, argv, args, &json);
    if (spw_config_parse(count, args, &config, err, sizeof err)) {
        fprintf(stderr, "spillway check: %s\n", err);
        return SPW_EXIT_USAGE;
    }
    if (config.action == SPW_CONFIG_HELP) {
        puts("usage: spillway check [--json] [options of spillwayd]: could a pool start here?\n");
        spw_options_help(&config.options, stdout);
        return SPW_EXIT_OK;
    }
    return check(&config, json);
}
