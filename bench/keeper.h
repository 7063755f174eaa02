#ifndef SPW_BENCH_KEEPER_H
#define SPW_BENCH_KEEPER_H
/*
 * Leaves nothing behind: the bench runs in a child, and its parent, the keeper, ends what the child
 * left running and removes the one folder in /dev/shm in which every pool of the bench lies.
 *
 *   crash   child dead, however it went: the keeper cleans up. Keeper dead: the child is killed;
 *           only SIGKILL of the keeper itself leaves the folder
 */

/** Make the folder and run @work in a child. Returns its exit status, 1 if it was killed. */
int spw_keeper_run(int (*work)(void *ctx), void *ctx);

/** The folder; in the child. */
const char *spw_keeper_dir(void);

#endif
