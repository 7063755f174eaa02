/* Which I/O engine: see io.h. */
#include "tier/io.h"

#include <string.h>

#include "tier/thread_io.h"
#include "tier/uring_io.h"

int spw_io_open(const struct spw_io_config *config, struct spw_io_handle *out_io,
                struct spw_error *err)
{
    struct spw_error refused = {0};
    if (config->choice != SPW_IO_THREADS) {
        int rc = spw_uring_io_open(config, &spw_uring_calls, out_io, &refused);
        if (rc == 0)
            return 0;
        if (rc == -EINVAL && (config->depth == 0 || config->depth > SPW_IO_DEPTH_MAX))
            return spw_fail(err, rc, "%s", refused.text);
        if (config->choice == SPW_IO_URING)
            return spw_fail(err, -EOPNOTSUPP, "%s", refused.text);
    }
    int rc = spw_thread_io_open(config, refused.text, out_io);
    return rc < 0 ? spw_fail(err, rc, "no threads for I/O: %s", strerror(-rc)) : 0;
}
