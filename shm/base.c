/* Errors with words. Process-local. */
#include "shm/base.h"

#include <stdarg.h>
#include <stdio.h>

int spw_fail(struct spw_error *err, int code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return code;
}
