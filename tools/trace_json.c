/* The open loop's format: JSON lines. A line is checked whole before anything of it is kept. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "tools/trace_impl.h"

#define TIMESTAMP_MS_MAX (INT64_MAX / 1000000)

static int refuse_value(struct spw_trace_lines *r, const char *field, const json_t *value,
                        const char *want)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    if (!value)
        spw_trace_refuse(r, -EINVAL, "field \"%s\" is missing; it must be %s", field, want);
    else
        spw_trace_refuse(r, -EINVAL, "field \"%s\" is %.*s; it must be %s", field,
                         SPW_TRACE_VALUE_SHOWN, text ? text : "unprintable", want);
    free(text);
    return -EINVAL;
}

static int take_number(struct spw_trace_lines *r, const json_t *object, const char *field,
                       int64_t min, int64_t max, int64_t *out_value)
{
    const json_t *value = json_object_get(object, field);
    char want[80];

    if (json_is_integer(value) && json_integer_value(value) >= min &&
        json_integer_value(value) <= max) {
        *out_value = json_integer_value(value);
        return 0;
    }
    snprintf(want, sizeof(want), "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    return refuse_value(r, field, value, want);
}

/* Copies the raw ids of a line; the caller frees them. */
static int take_ids(struct spw_trace_lines *r, const json_t *object, uint32_t input_tokens,
                    uint32_t block_tokens, uint64_t **out_ids)
{
    const json_t *array = json_object_get(object, "hash_ids");
    size_t want = spw_trace_blocks(input_tokens, block_tokens);
    uint64_t *ids;

    if (!json_is_array(array))
        return refuse_value(r, "hash_ids", array, "an array of whole numbers");
    if (json_array_size(array) != want)
        return spw_trace_refuse(
            r, -EINVAL,
            "field \"hash_ids\" has %zu ids; %zu are needed for \"input_length\" %u with "
            "an id every %u tokens (another block size?)",
            json_array_size(array), want, input_tokens, block_tokens);
    ids = malloc(want * sizeof(*ids));
    if (!ids)
        return spw_trace_refuse(r, -ENOMEM, "out of memory");
    for (size_t i = 0; i < want; i++) {
        const json_t *id = json_array_get(array, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0) {
            char field[40];

            snprintf(field, sizeof(field), "hash_ids[%zu]", i);
            free(ids);
            return refuse_value(r, field, id, "a whole number from 0 to 9223372036854775807");
        }
        ids[i] = (uint64_t)json_integer_value(id);
    }
    *out_ids = ids;
    return 0;
}

static int take_request(struct spw_trace_lines *r, const json_t *object, int64_t *first_ms,
                        struct spw_trace *trace)
{
    int64_t at_ms, input, output, last_ns = 0;
    uint64_t *ids = NULL;
    char want[80];
    int rc;

    if (trace->request_count > 0)
        last_ns = trace->requests[trace->request_count - 1].arrival_ns;
    if ((rc = take_number(r, object, "timestamp", 0, TIMESTAMP_MS_MAX, &at_ms)) < 0 ||
        (rc = take_number(r, object, "input_length", 1, SPW_TRACE_TOKENS_MAX, &input)) < 0 ||
        (rc = take_number(r, object, "output_length", 0, SPW_TRACE_TOKENS_MAX, &output)) < 0)
        return rc;
    if (trace->request_count == 0)
        *first_ms = at_ms;
    if (at_ms < *first_ms + last_ns / 1000000) {
        snprintf(want, sizeof(want), "at least %lld as in the line before (sort the file by it)",
                 (long long)(*first_ms + last_ns / 1000000));
        return refuse_value(r, "timestamp", json_object_get(object, "timestamp"), want);
    }
    rc = take_ids(r, object, (uint32_t)input, trace->block_tokens, &ids);
    if (rc < 0)
        return rc;
    rc = spw_trace_append(trace, (at_ms - *first_ms) * 1000000, (uint32_t)input, (uint32_t)output,
                          ids);
    free(ids);
    return rc < 0 ? spw_trace_refuse(r, rc, "out of memory") : 0;
}

int spw_trace_take_json(struct spw_trace_lines *r, const char *line, size_t len, int64_t *first_ms,
                        struct spw_trace *trace)
{
    json_error_t json_err;
    json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, &json_err);
    int rc;

    if (!object || !json_is_object(object))
        rc = spw_trace_refuse(r, -EINVAL,
                              "is no JSON object (%s): \"%.*s\"; one is needed on each line",
                              object ? "an array" : json_err.text,
                              len < SPW_TRACE_VALUE_SHOWN ? (int)len : SPW_TRACE_VALUE_SHOWN, line);
    else
        rc = take_request(r, object, first_ms, trace);
    json_decref(object);
    return rc;
}
