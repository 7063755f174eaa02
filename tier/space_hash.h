#ifndef SPW_TIER_SPACE_HASH_H
#define SPW_TIER_SPACE_HASH_H
/*
 * What a space is called below host memory: the same in every pool and after every restart, where
 * its number may be another one. Pure.
 */
#include "shm/layout.h"

/** 128 bits over all that makes bytes interchangeable: fingerprint, blocks, units, groups, ranks. Not
 * over its shares, nor over what pacing counts. */
void spw_space_hash(const struct spw_space_record *record, uint64_t out_hash[2]);

#endif
