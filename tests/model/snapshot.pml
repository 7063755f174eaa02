/*
 * State table, update ring and incarnation: a client's replica against a worker that dies
 * (tier/shard.c, tier/table.c, tier/adopt.c on the worker's side, sched/replica.c on the client's).
 *
 * Two slots, two keys, a ring of N records that is taken as a whole here (its inside: bcast_ring.pml).
 * Position p of a record counts from 1; the version of an entry is the position of its last change.
 *
 * Worker, for each change of an entry (spw_table_write, spw_shard_flush)
 *   T1  entry's sequence odd    T2  key    T3  state, version = next position, fill; sequence even
 *   T4  publish the records gathered so far; a batch may gather BATCH changes
 *   T5  free a RETIRED entry: only after its record is published, and when no client in a step has a
 *       view without that record (how that is known: reclaim.pml); publishes nothing, no new version
 *
 * Successor (spw_shard_open), after its predecessor was reaped; may die too
 *   A1  repair: an odd entry -> RETIRED with fill 0; FILLING -> RETIRED; nothing becomes FREE
 *   A2  incarnation + 1
 *   A3  publish records without key up to the highest version in the table
 *   A4  retire each RETIRED entry anew: version, then a record, without key if the key is live elsewhere
 *
 * Client, in each step
 *   V1  incarnation; another one than the view's: empty the view, resync
 *   V2  same, view in use: drain to the tail; lapped or a hole: empty the view, resync
 *   V3  resync, one piece a step: note incarnation and tail; scan each slot (FILLING and READY count,
 *       an entry that is changing counts as absent); drain from the noted tail to a tail read after the
 *       scan; incarnation still the same: the view is used
 *   V4  applied = 1 + position contained; not moved forward during a resync
 *   V5  load a HIT: the READY entry of the key, else the RETIRED one with a fill and the highest version
 *
 * Properties: a HIT in a view in use finds its chunk's bytes, never others, and finds nothing only if a worker
 * died while it changed that chunk's entry; a PENDING is FILLING, or changed later than the view, or its worker died, and never stays; no position is the
 * version of two changes; a view at rest says what the table says.
 *
 *   holds -DOPS=5 | no death, one change a batch
 *   holds -DDEATHS=1 -DOPS=4 | a worker that dies anywhere, and its successor
 *   holds -DDEATHS=2 -DOPS=2 | the successor dies in the adoption too
 *   holds -DDEATHS=1 -DBATCH=2 -DOPS=3 | changes published in pairs
 *   fails -DRING_FIRST | stale_pending or lost_hit | the record is published before the table changes
 *   fails -DNOTE_TAIL_AFTER_SCAN | wrong_at_rest or stale_pending or lost_hit | the tail is noted after the scan
 *   fails -DUSE_BEFORE_DRAIN | wrong_at_rest or stale_pending or lost_hit | the view is used without the drain after the scan
 *   fails -DNO_INCARNATION -DDEATHS=1 | wrong_at_rest or stale_pending or lost_hit | a successor keeps the incarnation
 *   fails -DNO_SECOND_LOOK -DDEATHS=1 | wrong_at_rest or stale_pending or lost_hit | the incarnation after the drain is not compared with the one noted
 *   fails -DINCARNATION_FIRST -DDEATHS=1 -DNO_ANEW | wrong_at_rest or stale_pending | the incarnation is stored before the repair
 *   fails -DNO_ANEW -DDEATHS=1 | lost_hit | what is RETIRED isn't retired anew
 *   fails -DNO_FILLERS -DDEATHS=1 | version_reused | no keyless records up to the highest version
 *   fails -DFREE_PUBLISHES | wrong_at_rest | freeing publishes a record for the key
 *   fails -DANEW_WITH_KEY -DDEATHS=1 | wrong_at_rest | retired anew with a key that is live in another slot
 *   fails -DSCAN_RETIRED | wrong_at_rest or stale_pending or lost_hit | the scan takes a RETIRED entry as news about its key
 *   fails -DTORN_FILL -DDEATHS=1 | wrong_bytes | the repair keeps the fill of an entry found odd
 *   fails -DKEEP_FILLING -DDEATHS=1 | pending_for_ever | the repair leaves FILLING entries
 *   fails -DSCAN_WAITS -DDEATHS=1 -DNO_SUCCESSOR | invalid end state | the scan waits for an entry to settle
 *   fails -DFREE_UNPUBLISHED -DBATCH=2 | lost_hit | an entry is freed before its record is published
 *   fails -DLOAD_NEWEST | lost_hit or wrong_bytes | a load takes the key's newest entry, whatever its fill
 */
#ifndef N
#define N 2
#endif
#ifndef OPS
#define OPS 6
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef BATCH
#define BATCH 1
#endif

#define FREE    0
#define FILLING 1
#define READY   2
#define RETIRED 3
#define NO_KEY  2
#define OTHER(s) (1 - (s))
#define LIVE(s) (state[s] == FILLING || state[s] == READY)

/* feed.k: table, ring, incarnation */
bool odd[2];
bool fill[2] = true; /* FREE entries keep what they had: a pool that was in use */
byte state[2], key[2], version[2];
byte ring_key[N], ring_state[N], tail;
byte incarnation = 1;
/* client.c */
byte applied;
/* beside memory: what lies in a slot, and what became of the processes */
byte bytes[2] = NO_KEY;
byte deaths;
bool worker_gone, worker_done;
bool excused; /* an entry was found odd: what it had is lost */
bool lost_hit, wrong_bytes, stale_pending, pending_for_ever, version_reused, wrong_at_rest;

chan news = [BATCH] of { byte, byte }; /* gathered, not yet published: dies with the worker */

#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: deaths < DEATHS -> deaths++; goto dead                                                      \
    :: true                                                                                        \
    fi

inline publish(k, st)
{
    d_step {
        ring_key[tail % N] = k;
        ring_state[tail % N] = st;
        tail++
    }
}

inline flush()
{
    do
    :: news ? k, st -> publish(k, st)
    :: empty(news) -> break
    od
}

/* One change of slot s to state `to`, with key k, as version v. */
inline change(s, to, k, v)
{
    odd[s] = true;
    MAY_DIE;
    key[s] = k;
    MAY_DIE;
    d_step {
        version_reused = (to != FREE && (version[0] >= v || version[1] >= v));
        assert(!version_reused);
        state[s] = to;
        if
        :: to == FREE
        :: to == FILLING -> fill[s] = false; version[s] = v; bytes[s] = NO_KEY
        :: to == READY -> fill[s] = true; version[s] = v; bytes[s] = k
        :: to == RETIRED -> version[s] = v
        fi;
        odd[s] = false
    };
    MAY_DIE
}

#ifdef FREE_UNPUBLISHED
#define MAY_FREE(s) (applied == 0 || applied > version[s])
#else
#define MAY_FREE(s) (len(news) == 0 && (applied == 0 || applied > version[s]))
#endif

active proctype Worker()
{
    byte ops, s, k, st, to;
    bool job[2]; /* who fills the slot; gone with the worker */
more:
    do
    :: ops < OPS ->
        d_step { k = 0; st = 0; to = 0; s = 0 };
        if :: true :: s = 1 fi;
        if
        :: state[s] == FREE ->
            if :: k = 0 :: ops > 0 -> k = 1 /* the first key is 0: the other one is its mirror image */ fi;
            if :: LIVE(OTHER(s)) && key[OTHER(s)] == k -> goto more :: else fi;
            if
            :: state[OTHER(s)] == RETIRED && key[OTHER(s)] == k ->
                printf("a key is stored again while its old entry is RETIRED\n")
            :: else
            fi;
            to = FILLING;
            job[s] = true
        :: state[s] == FILLING && job[s] -> k = key[s]; to = READY
        :: state[s] == FILLING && job[s] -> k = key[s]; to = RETIRED
        :: state[s] == READY -> k = key[s]; to = RETIRED
        :: state[s] == RETIRED && MAY_FREE(s) -> k = key[s]; to = FREE
        :: state[s] == RETIRED && !MAY_FREE(s) -> flush(); goto more
        :: state[s] == FILLING && !job[s] -> goto more
        fi;
        ops++;
#ifdef RING_FIRST
        if :: to != FREE -> publish(k, to) :: else fi;
        change(s, to, k, tail);
#else
        change(s, to, k, tail + len(news) + 1);
        if
        :: to != FREE -> news ! k, to
#ifdef FREE_PUBLISHES
        :: else -> news ! k, to
#else
        :: else
#endif
        fi;
        if
        :: full(news) -> flush()
        :: BATCH > 1 -> skip
        fi
#endif
    :: true -> break /* comes to rest */
    od;
    flush();
    pending_for_ever = (state[0] == FILLING && !job[0] || state[1] == FILLING && !job[1]);
    assert(!pending_for_ever);
    worker_done = true;
    goto fin;

dead:
    skip;
    d_step {
        worker_gone = true;
        job[0] = false;
        job[1] = false;
        do
        :: news ? k, st
        :: empty(news) -> break
        od
    };
#ifdef NO_SUCCESSOR
    goto fin;
#endif
#ifdef INCARNATION_FIRST
    incarnation++;
    MAY_DIE;
#endif
A1: s = 0;
    do
    :: s < 2 ->
        d_step {
            if
            :: odd[s] ->
                state[s] = RETIRED;
                excused = true;
#ifndef TORN_FILL
                fill[s] = false;
#endif
                odd[s] = false
            :: !odd[s] && state[s] == FILLING ->
#ifndef KEEP_FILLING
                state[s] = RETIRED
#else
                skip
#endif
            :: else
            fi
        };
        s++;
        MAY_DIE
    :: else -> break
    od;
#ifndef INCARNATION_FIRST
#ifndef NO_INCARNATION
A2: incarnation++;
    MAY_DIE;
#endif
#endif
    worker_gone = false;
#ifndef NO_FILLERS
A3: do
    :: tail < version[0] || tail < version[1] -> publish(NO_KEY, FREE); MAY_DIE
    :: else -> break
    od;
#endif
#ifndef NO_ANEW
A4: s = 0;
    do
    :: s < 2 ->
        if
        :: state[s] == RETIRED ->
            k = key[s];
            change(s, RETIRED, k, tail + 1);
#ifndef ANEW_WITH_KEY
            if
            :: LIVE(OTHER(s)) && key[OTHER(s)] == k ->
                printf("retired anew without a key\n");
                k = NO_KEY
            :: else
            fi;
#endif
            publish(k, RETIRED)
        :: else
        fi;
        s++
    :: else -> break
    od;
#endif
    goto more;
fin:
    skip
}

/* The replica: what it says of each key, and from which position on it must be told more. */
byte view[2];
byte cursor;
bool valid;

inline empty_view()
{
    d_step {
        view[0] = FREE;
        view[1] = FREE;
        valid = false;
        phase = 0
    }
}

inline scan(s)
{
#ifdef SCAN_WAITS
    !odd[s];
#endif
    d_step {
        if
        :: !odd[s] && LIVE(s) -> view[key[s]] = state[s]
#ifdef SCAN_RETIRED
        :: !odd[s] && state[s] == RETIRED -> view[key[s]] = FREE
#endif
        :: else
        fi
    }
}

inline drain(t)
{
    do
    :: cursor < t && !gap ->
        d_step {
            if
            :: tail - cursor > N -> gap = true
            :: else ->
                k = ring_key[cursor % N];
                if
                :: k != NO_KEY && (ring_state[cursor % N] == FILLING || ring_state[cursor % N] == READY) ->
                    view[k] = ring_state[cursor % N]
                :: k != NO_KEY && (ring_state[cursor % N] == RETIRED || ring_state[cursor % N] == FREE) ->
                    view[k] = FREE
                :: k == NO_KEY
                fi;
                cursor++
            fi
        }
    :: else -> break
    od
}

/* What a load of key k would take now: a slot, or 2 for none. */
inline find(k)
{
    found = 2;
    if
    :: state[0] == READY && key[0] == k && !odd[0] -> found = 0
    :: state[1] == READY && key[1] == k && !odd[1] -> found = 1
    :: else ->
        s = 0;
        do
        :: s < 2 ->
            if
#ifdef LOAD_NEWEST
            :: !odd[s] && key[s] == k && state[s] != FREE &&
#else
            :: !odd[s] && key[s] == k && state[s] == RETIRED && fill[s] &&
#endif
                (found == 2 || version[s] > version[OTHER(s)]) -> found = s
            :: else
            fi;
            s++
        :: else -> break
        od
    fi
}

/* In use: each verdict is true, or the step positions keep its chunk in place, or the worker died. */
inline check_view()
{
    d_step {
        k = 0;
        do
        :: k < 2 && view[k] == READY && !odd[0] && !odd[1] ->
            find(k);
            wrong_bytes = (found != 2 && bytes[found] != k);
            lost_hit = (found == 2 && !excused);
            assert(!wrong_bytes);
            assert(!lost_hit);
            k++
        :: k < 2 && view[k] == FILLING ->
            stale_pending = !(worker_gone || incarnation != my_incarnation ||
                (LIVE(0) && key[0] == k) || (LIVE(1) && key[1] == k) ||
                (key[0] == k && version[0] > cursor) || (key[1] == k && version[1] > cursor));
            assert(!stale_pending);
            k++
        :: k < 2 && (view[k] == FREE || view[k] == READY && (odd[0] || odd[1])) -> k++
        :: k == 2 -> break
        od;
        k = 0; s = 0; found = 0
    }
}

#define EXPECTED(k) (LIVE(0) && key[0] == (k) -> state[0] : \
                     (LIVE(1) && key[1] == (k) -> state[1] : FREE))

active proctype Client()
{
    byte i, t, k, s, found, my_incarnation, phase;
    bool gap, last;
    do
    :: true ->
        d_step {
            last = worker_done;
            gap = false;
            i = 0;
            t = 0;
            applied = 1 + cursor /* the old position first, with the fence that reclaim.pml is about */
        };
V1:     i = incarnation;
        t = tail;
        if
        :: valid && i == my_incarnation ->
V2:         drain(t);
            if
            :: gap -> empty_view()
            :: else -> applied = 1 + cursor
            fi
        :: phase != 0 && i != my_incarnation -> empty_view(); printf("succeeded in a resync\n")
        :: valid && i != my_incarnation -> empty_view(); printf("succeeded in use\n")
        :: !valid && phase == 0 ->
V3:         empty_view();
            my_incarnation = i;
#ifndef NOTE_TAIL_AFTER_SCAN
            cursor = t;
#endif
            phase = 1
        :: !valid && phase == 1 && i == my_incarnation -> scan(0); phase = 2
        :: !valid && phase == 2 && i == my_incarnation ->
            scan(1);
            phase = 3
        :: !valid && phase == 3 && i == my_incarnation ->
#ifdef NOTE_TAIL_AFTER_SCAN
            cursor = t;
#endif
#ifdef USE_BEFORE_DRAIN
            cursor = t;
#endif
            drain(t);
            if
            :: gap -> empty_view(); printf("lapped in a resync\n")
#ifndef NO_SECOND_LOOK
            :: !gap && incarnation != i -> empty_view(); printf("succeeded at the end of a resync\n")
            :: !gap && incarnation == i -> valid = true; applied = 1 + cursor
#else
            :: !gap -> valid = true; my_incarnation = incarnation; applied = 1 + cursor
#endif
            fi
        fi;
        if
        :: valid -> check_view()
        :: else
        fi;
        applied = 0;
        if
        :: last && valid -> break
#ifdef NO_SUCCESSOR
        :: worker_gone -> break
#endif
        :: else
        fi
    od;
    wrong_at_rest = (view[0] != EXPECTED(0) || view[1] != EXPECTED(1));
#ifndef NO_SUCCESSOR
    assert(!wrong_at_rest)
#endif
}
