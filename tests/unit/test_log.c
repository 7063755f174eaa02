/* tools/log: severity, one line a message, repeats held back and counted. By a clock of its own. */
#include "tools/log.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(log, .timeout = 30);

#define SECOND 1000000000ull

static uint64_t now;
static char *text;
static size_t text_bytes;
static FILE *out;

static uint64_t fake_now(void)
{
    return now;
}

static void begin(bool quiet)
{
    now = 5 * SECOND;
    out = open_memstream(&text, &text_bytes);
    spw_log_open(&(struct spw_log_config){
        .program = "prog", .out = out, .quiet = quiet, .now_ns = fake_now});
}

/* What was said since the last look; good until the next one. */
static const char *said(void)
{
    static char copy[65536];
    fflush(out);
    snprintf(copy, sizeof copy, "%s", text);
    rewind(out);
    memset(text, 0, text_bytes);
    return copy;
}

static void slow(uint32_t k)
{
    spw_log(SPW_LOG_WARNING, "worker %u is slow", k);
}

static uint32_t lines(const char *words)
{
    uint32_t count = 0;
    for (; *words; words++)
        count += *words == '\n';
    return count;
}

Test(log, a_line_names_the_program_and_the_severity)
{
    begin(false);
    spw_log(SPW_LOG_ERROR, "worker %u is lost", 3u);
    cr_expect_str_eq(said(), "prog: error: worker 3 is lost\n");
    spw_log(SPW_LOG_WARNING, "w");
    spw_log(SPW_LOG_NOTICE, "n");
    spw_log(SPW_LOG_INFO, "i");
    cr_expect_str_eq(said(), "prog: warning: w\nprog: notice: n\nprog: info: i\n");
    fclose(out);
}

Test(log, quiet_keeps_errors_and_warnings)
{
    begin(true);
    spw_log(SPW_LOG_INFO, "i");
    spw_log(SPW_LOG_NOTICE, "n");
    cr_expect_str_eq(said(), "");
    spw_log(SPW_LOG_WARNING, "w");
    spw_log(SPW_LOG_ERROR, "e");
    cr_expect_str_eq(said(), "prog: warning: w\nprog: error: e\n");
    fclose(out);
}

Test(log, a_message_is_one_line_whatever_is_in_it)
{
    char longer[3 * SPW_LOG_LINE_BYTES];
    begin(false);
    spw_log(SPW_LOG_ERROR, "name \"%s\"", "a\nb\033[2J\177");
    cr_expect_str_eq(said(), "prog: error: name \"a?b?[2J?\"\n");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    spw_log(SPW_LOG_ERROR, "%s", longer);
    const char *words = said();
    cr_expect_eq(lines(words), 1);
    cr_expect_lt(strlen(words), SPW_LOG_LINE_BYTES + 32);
    fclose(out);
}

Test(log, repeats_are_held_back_and_told_with_their_count)
{
    begin(false);
    for (uint32_t i = 0; i < 42; i++) {
        slow(i);
        spw_log_tick();
        now += SECOND;
    }
    cr_expect_eq(lines(said()), SPW_LOG_BURST);
    now += 60 * SECOND;
    spw_log_tick();
    cr_expect_str_eq(said(),
                     "prog: warning: worker 41 is slow (the last of 37 more in the last 60 s)\n");
    spw_log_tick();
    cr_expect_str_eq(said(), "", "told once");
    fclose(out);
}

Test(log, a_new_window_begins_with_the_next_message)
{
    begin(false);
    for (uint32_t i = 0; i < 8; i++)
        slow(i);
    cr_expect_eq(lines(said()), SPW_LOG_BURST);
    now += SPW_LOG_WINDOW_NS;
    slow(9);
    cr_expect_str_eq(said(),
                     "prog: warning: worker 7 is slow (the last of 3 more in the last 60 s)\n"
                     "prog: warning: worker 9 is slow\n");
    now += 10 * SPW_LOG_WINDOW_NS;
    spw_log_tick();
    cr_expect_str_eq(said(), "", "nothing was held back");
    fclose(out);
}

Test(log, what_was_held_back_is_told_at_the_end)
{
    begin(false);
    for (uint32_t i = 0; i < 7; i++)
        slow(i);
    said();
    spw_log_close();
    cr_expect_str_eq(said(),
                     "prog: warning: worker 6 is slow (the last of 2 more in the last 60 s)\n");
    spw_log_close();
    cr_expect_str_eq(said(), "");
    fclose(out);
}

Test(log, one_kind_holds_back_no_other)
{
    begin(false);
    for (uint32_t i = 0; i < 100; i++)
        slow(i);
    said();
    spw_log(SPW_LOG_ERROR, "something else");
    cr_expect_str_eq(said(), "prog: error: something else\n");
    fclose(out);
}

Test(log, any_number_of_kinds_loses_no_count)
{
    static char format[200][16];
    begin(false);
    for (uint32_t i = 0; i < 7; i++)
        slow(i);
    said();
    for (uint32_t i = 0; i < 200; i++) {
        now++;
        snprintf(format[i], sizeof format[i], "kind %u", i);
        spw_log(SPW_LOG_INFO, format[i], 0);
    }
    const char *words = said();
    cr_expect_eq(lines(words), 201);
    cr_expect(strstr(words, "worker 6 is slow (the last of 2 more in the last 60 s)"), "%s", words);
    fclose(out);
}
