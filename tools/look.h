#ifndef SPW_TOOLS_LOOK_H
#define SPW_TOOLS_LOOK_H
/*
 * What commands that only look share: a pool mapped read-only, also when everybody is dead, and
 * values as people read them.
 */
#include "tools/command.h"

/** Map the pool of @args. 0, or the exit status, the words of @command being said on stderr; then
 * @out_pool is untouched. Ended by spw_look_close(). */
int spw_look_open(const char *command, const struct spw_pool_args *args,
                  struct spw_pool **out_pool);

/** NULL is fine. */
void spw_look_close(struct spw_pool *pool);

/** A client's label, copied once, closed and cleaned of what is no plain letter. */
void spw_look_label(const struct spw_client_head *head, char out_label[48]);

#define SPW_LOOK_FINGERPRINT_BYTES 257

/** A space's fingerprint, likewise. @s is below SPW_SPACES_MAX. */
void spw_look_fingerprint(const struct spw_pool *pool, uint32_t s,
                          char out_text[SPW_LOOK_FINGERPRINT_BYTES]);

#define SPW_LOOK_DURATION_BYTES 24

/** "12 us", "250 ms", "1.3 s", "240 s"; returns @out_text. */
const char *spw_look_duration(uint64_t ns, char out_text[SPW_LOOK_DURATION_BYTES]);

#endif
