/* See report.h. */
#include "bench/gpu/report.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

static const char *const words_of[] = {
    [CHECK_FIGURE] = "measured", [CHECK_SKIPPED] = "skipped", [CHECK_HELD] = "held",
    [CHECK_MISSED] = "missed",   [CHECK_NOT_RUN] = "not run", [CHECK_WRONG] = "wrong",
};

const char *check_verdict_word(enum check_verdict verdict)
{
    return words_of[verdict];
}

static double ratio_of(const struct check_line *line)
{
    return line->beside && line->beside_value > 0 ? line->value / line->beside_value : 0;
}

void check_report_add(struct check_report *report, const struct check_line *line)
{
    pthread_mutex_lock(&report->lock);
    struct check_section *section = &report->section[report->current];
    assert(section->lines < CHECK_LINES_MAX);
    struct check_line *added = &section->line[section->lines++];
    *added = *line;
    if (added->target != 0 && added->verdict == CHECK_FIGURE && !report->is_short)
        added->verdict = ratio_of(added) >= added->target ? CHECK_HELD : CHECK_MISSED;
    pthread_mutex_unlock(&report->lock);
}

void check_report_say(struct check_report *report, const char *name, enum check_verdict verdict,
                      const char *format, ...)
{
    struct check_line line = {.verdict = verdict};
    va_list arguments;
    snprintf(line.name, sizeof line.name, "%s", name);
    va_start(arguments, format);
    vsnprintf(line.words, sizeof line.words, format, arguments);
    va_end(arguments);
    check_report_add(report, &line);
}

enum check_verdict check_section_verdict(const struct check_section *section)
{
    enum check_verdict worst = section->lines ? CHECK_FIGURE : CHECK_NOT_RUN;
    for (uint32_t i = 0; i < section->lines; i++)
        if (section->line[i].verdict > worst)
            worst = section->line[i].verdict;
    return worst;
}

enum check_verdict check_report_verdict(const struct check_report *report)
{
    enum check_verdict worst = CHECK_FIGURE;
    for (uint32_t s = 0; s < report->sections; s++) {
        enum check_verdict verdict = check_section_verdict(&report->section[s]);
        if (report->section[s].is_asked && verdict > worst)
            worst = verdict;
    }
    return worst;
}

/* ---- for people ------------------------------------------------------------------------------ */

static const char *figure(const char *unit, double value, char *out, size_t bytes)
{
    if (strcmp(unit, "bytes/s") == 0)
        snprintf(out, bytes, "%.2f GB/s", value / 1e9);
    else if (strcmp(unit, "ns") == 0 && value >= 1e8)
        snprintf(out, bytes, "%.3f s", value / 1e9);
    else if (strcmp(unit, "ns") == 0)
        snprintf(out, bytes, "%.1f us", value / 1e3);
    else
        snprintf(out, bytes, "%.0f %s", value, unit);
    return out;
}

static void print_line(const struct check_section *section, const struct check_line *line,
                       FILE *out)
{
    char value[32] = "", beside[32] = "", ratio[16] = "", target[16] = "";
    if (line->unit)
        figure(line->unit, line->value, value, sizeof value);
    if (line->unit && line->beside) {
        figure(line->unit, line->beside_value, beside, sizeof beside);
        snprintf(ratio, sizeof ratio, "%.3f", ratio_of(line));
    }
    if (line->target != 0)
        snprintf(target, sizeof target, "%.2f", line->target);
    fprintf(out, "%-10s %-44s %12s %12s %7s %6s  %-8s %s\n", section->name, line->name, value,
            beside, ratio, target, check_verdict_word(line->verdict), line->words);
}

static void print_section(const struct check_section *section, FILE *out)
{
    for (uint32_t i = 0; i < section->lines; i++)
        print_line(section, &section->line[i], out);
    if (section->lines == 0 && section->is_asked)
        fprintf(out, "%-10s %-44s %12s %12s %7s %6s  %s\n", section->name, section->about, "", "",
                "", "", check_verdict_word(CHECK_NOT_RUN));
}

void check_report_print(const struct check_report *report, FILE *out)
{
    fprintf(out, "GPU %s, driver %d.%d\n", report->gpu, report->driver_version / 1000,
            report->driver_version % 1000 / 10);
    if (report->is_short)
        fputs("tiny sizes: figures mean nothing and are not judged\n", out);
    fprintf(out, "\n%-10s %-44s %12s %12s %7s %6s\n", "section", "case", "value", "beside", "ratio",
            "target");
    for (uint32_t s = 0; s < report->sections; s++)
        print_section(&report->section[s], out);
    if (report->kernel_below_bytes >= 0)
        fprintf(out, "\n--gpu-kernel-below %lld\n", (long long)report->kernel_below_bytes);
    fputc('\n', out);
    for (uint32_t s = 0; s < report->sections; s++)
        if (report->section[s].is_asked)
            fprintf(out, "%-10s %-8s %6.1f s  %s\n", report->section[s].name,
                    check_verdict_word(check_section_verdict(&report->section[s])),
                    (double)report->section[s].ns / 1e9, report->section[s].about);
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* By hand: this program is built on hosts that have a compiler and a driver, and no libraries. */
static void print_text(const char *text, FILE *out)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c > 0x7e)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void print_pair(const char *key, const char *text, FILE *out)
{
    fprintf(out, "\"%s\": ", key);
    print_text(text, out);
}

static void print_line_json(const struct check_line *line, FILE *out)
{
    fputs("      {", out);
    print_pair("case", line->name, out);
    fputs(", ", out);
    print_pair("verdict", check_verdict_word(line->verdict), out);
    if (line->unit) {
        fputs(", ", out);
        print_pair("unit", line->unit, out);
        fprintf(out, ", \"value\": %.1f", line->value);
    }
    if (line->unit && line->beside) {
        fputs(", ", out);
        print_pair("beside", line->beside, out);
        fprintf(out, ", \"beside_value\": %.1f, \"ratio\": %.4f", line->beside_value,
                ratio_of(line));
    }
    if (line->target != 0)
        fprintf(out, ", \"target\": %.2f", line->target);
    if (line->words[0]) {
        fputs(", ", out);
        print_pair("words", line->words, out);
    }
    fputc('}', out);
}

static void print_section_json(const struct check_section *section, FILE *out)
{
    fputs("    {", out);
    print_pair("name", section->name, out);
    fprintf(out, ", \"asked\": %s, ", section->is_asked ? "true" : "false");
    print_pair("verdict", check_verdict_word(check_section_verdict(section)), out);
    fprintf(out, ", \"ns\": %llu, \"lines\": [", (unsigned long long)section->ns);
    for (uint32_t i = 0; i < section->lines; i++) {
        fputs(i ? ",\n" : "\n", out);
        print_line_json(&section->line[i], out);
    }
    fputs("]}", out);
}

void check_report_print_json(const struct check_report *report, FILE *out)
{
    fputs("{\"schema\": 1, \"program\": \"spw-gpu-check\", ", out);
    print_pair("gpu", report->gpu, out);
    fprintf(out, ", \"driver\": %d, \"short\": %s, ", report->driver_version,
            report->is_short ? "true" : "false");
    print_pair("verdict", check_verdict_word(check_report_verdict(report)), out);
    if (report->kernel_below_bytes >= 0)
        fprintf(out, ", \"kernel_below_bytes\": %lld", (long long)report->kernel_below_bytes);
    fputs(",\n  \"sections\": [", out);
    for (uint32_t s = 0; s < report->sections; s++) {
        fputs(s ? ",\n" : "\n", out);
        print_section_json(&report->section[s], out);
    }
    fputs("]}\n", out);
}
