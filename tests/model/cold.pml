/*
 * Entries of the tier below beside those of the slots: which of them speaks of a key, and what a
 * client's view makes of it (tier/shard_cold.c, tier/shard.c, tier/adopt.c; sched/view.c).
 *
 * Two slots, one entry below behind them; key 0 goes into slots and below, key 1 only below. Ring,
 * versions, incarnation and the client as in snapshot.pml, which has what isn't here: holes, a
 * resync that begins in the middle of an adoption.
 *
 * Worker; a batch may end, and be published, before any record is gathered
 *   B1  cold_add: entry below COLD with its record; BACKED, and no record, if a slot has the key
 *   B2  cold_remove: COLD -> FREE under the version of a record that says RETIRED of the key;
 *       BACKED -> FREE without any
 *   B3  reserve, promote: entry below BACKED, no record; then the slot FILLING with its record
 *   B4  retire: entry below COLD, then the slot RETIRED, then one record that says COLD; no entry
 *       below: RETIRED
 *   B5  READY; free: as in snapshot.pml
 *
 * Successor: each entry below becomes FREE and keeps its version; the rest as in snapshot.pml
 *
 * Client: scans the slots, then the entry below; what is scanned later overwrites, and it makes no
 * difference which is first
 *
 * Properties: a HIT in a view in use finds its chunk; a view at rest says of both keys what the table
 * says: what the live slot says, else COLD where the tier below has it, else nothing; no position is
 * the version of two changes.
 *
 *   holds -DOPS=4 | no death, each record published alone
 *   holds -DWARM -DOPS=4 | the same, from a chunk on that a slot and the tier below have
 *   holds -DWARM -DOPS=3 -DSCAN_BELOW_FIRST | scanned the other way round
 *   holds -DWARM -DBATCH=2 -DOPS=3 | records published in pairs, or not
 *   holds -DWARM -DDEATHS=1 -DOPS=2 | a worker that dies anywhere, and its successor
 *   holds -DWARM -DDEATHS=2 -DOPS=1 | the successor dies in the adoption, too
 *   holds -DDEATHS=1 -DOPS=2 | a worker that dies in an empty shard
 *   fails -DWARM -DTWO_RECORDS -DOPS=3 | lost_hit | COLD and RETIRED are two records, published apart
 *   fails -DSLOT_GOES_FIRST | wrong_at_rest | the slot's record is out before the entry below is COLD
 *   fails -DSLOT_COMES_FIRST | wrong_at_rest or lost_hit | the slot is FILLING before the entry below is BACKED
 *   fails -DRETIRED_WITH_KEY | wrong_at_rest | the slot's record says RETIRED of a key that is COLD now
 *   fails -DREMOVE_SILENT | wrong_at_rest | a COLD entry becomes FREE without a record
 *   fails -DBACKED_IS_NEWS | wrong_at_rest or lost_hit | a scan takes BACKED for COLD
 *   fails -DADD_ALWAYS_COLD -DOPS=3 | wrong_at_rest | an entry is added as COLD though a slot has the key
 *   fails -DSTAYS_BACKED | wrong_at_rest | reserve leaves the entry COLD: its removal unsays the slot
 *   fails -DREMOVE_BACKED_TELLS | wrong_at_rest | removing a BACKED entry publishes RETIRED
 *   fails -DKEEP_BELOW -DDEATHS=1 -DOPS=2 | wrong_below | a successor keeps entries below
 *   fails -DRECORD_FIRST | wrong_at_rest | COLD is published before the entry says so
 *   fails -DREMOVE_KEEPS_VERSION -DDEATHS=1 -DBATCH=2 -DOPS=3 | version_reused | a COLD entry that becomes FREE keeps its old version
 */
#ifndef N
#define N 2
#endif
#ifndef OPS
#define OPS 5
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
#define COLD    4
#define BACKED  5
#define NO_KEY  2
#define BELOW   2 /* the entry behind the slots */
#define LIVE(s) (state[s] == FILLING || state[s] == READY)

/* feed.k */
bool odd[3];
bool fill[2] = true;
byte state[3], version[3];
byte below_key; /* slots only ever have key 0 */
byte ring_key[N], ring_state[N], tail;
byte incarnation = 1;
/* client.c */
byte applied;
/* beside memory */
bool there[2]; /* the slot still has the bytes of key 0 */
byte deaths, given; /* positions that entries were told; of the live worker */
bool worker_done, excused;
bool lost_hit, wrong_at_rest, wrong_below, version_reused;

chan news = [BATCH] of { byte, byte };

#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: deaths < DEATHS -> deaths++; goto dead                                                      \
    :: true                                                                                        \
    fi

inline publish(pk, ps)
{
    d_step {
        ring_key[tail % N] = pk;
        ring_state[tail % N] = ps;
        tail++
    }
}

inline flush()
{
    do
    :: news ? nk, ns -> publish(nk, ns)
    :: empty(news) -> break
    od
}

/* spw_news_position(): the version that the next change gets, in v. */
inline position()
{
    if
    :: full(news) -> flush()
    :: BATCH > 1 && nfull(news)
    :: BATCH == 1 && empty(news)
    fi;
    v = tail + len(news) + 1
}

/* spw_table_write(): entry e to a state; nv is its version. */
inline write(e, to, nv)
{
    odd[e] = true;
    MAY_DIE;
    d_step {
        state[e] = to;
        version[e] = nv;
        if
        :: to == FILLING -> fill[e] = false; there[e] = false
        :: to == READY -> fill[e] = true; there[e] = true
        :: to == FREE && e != BELOW -> there[e] = false
        :: else
        fi;
        odd[e] = false
    };
    MAY_DIE
}

inline gather(gk, gs)
{
    news ! gk, gs;
    if
    :: true -> flush()
    :: BATCH > 1 -> skip
    fi
}

#define MAY_FREE(s) (len(news) == 0 && (applied == 0 || applied > version[s]))
#define HAS_KEY_0(st) (state[BELOW] == st && below_key == 0)

/* B3 and B4, the half of the entry below. */
inline slot_comes()
{
    if
    :: HAS_KEY_0(COLD) ->
#ifndef STAYS_BACKED
        write(BELOW, BACKED, version[BELOW])
#else
        skip
#endif
    :: else
    fi
}

inline slot_goes()
{
    if
    :: HAS_KEY_0(BACKED) ->
#ifdef TWO_RECORDS
        position();
        write(BELOW, COLD, v);
        gather(0, COLD);
        k = NO_KEY
#else
        write(BELOW, COLD, version[BELOW]);
#ifndef RETIRED_WITH_KEY
        said = COLD
#endif
#endif
    :: else
    fi
}

inline change_slot(to)
{
    position();
    write(s, to, v);
    gather(k, said)
}

active proctype Worker()
{
    byte ops, s, k, v, said, nk, ns;
    bool job[2];
#ifdef WARM
    d_step {
        state[0] = READY;
        there[0] = true;
        version[0] = 1;
        state[BELOW] = BACKED;
        ring_state[0] = READY;
        tail = 1
    };
#endif
more:
    do
    :: ops < OPS ->
        d_step { k = 0; v = 0; s = 0; said = 0; nk = 0; ns = 0; ops++ };
        if :: true :: s = 1 fi;
        if
        :: state[s] == FREE && !LIVE(1 - s) ->
#ifdef SLOT_COMES_FIRST
            said = FILLING;
            change_slot(FILLING);
            slot_comes();
#else
            slot_comes();
            said = FILLING;
            change_slot(FILLING);
#endif
            job[s] = true
        :: state[s] == FILLING && job[s] -> said = READY; change_slot(READY)
        :: LIVE(s) && (state[s] == READY || job[s]) ->
            said = RETIRED;
#ifdef SLOT_GOES_FIRST
            if :: HAS_KEY_0(BACKED) -> said = COLD :: else fi;
            change_slot(RETIRED);
            slot_goes()
#else
            slot_goes();
            change_slot(RETIRED)
#endif
        :: state[s] == RETIRED && MAY_FREE(s) -> write(s, FREE, version[s])
        :: state[s] == RETIRED && !MAY_FREE(s) -> flush()
        :: s == 0 && state[BELOW] == FREE ->
            if :: k = 0 :: k = 1 fi;
            below_key = k;
            if
#ifdef ADD_ALWAYS_COLD
            :: true ->
#else
            :: k == 0 && (LIVE(0) || LIVE(1)) -> write(BELOW, BACKED, version[BELOW])
            :: k == 1 || !(LIVE(0) || LIVE(1)) ->
#endif
                position();
#ifdef RECORD_FIRST
                gather(k, COLD);
                write(BELOW, COLD, v)
#else
                write(BELOW, COLD, v);
                gather(k, COLD)
#endif
            fi
        :: s == 0 && state[BELOW] == COLD ->
            k = below_key;
            position();
#ifdef REMOVE_KEEPS_VERSION
            write(BELOW, FREE, version[BELOW]);
#else
            write(BELOW, FREE, v);
#endif
#ifndef REMOVE_SILENT
            gather(k, RETIRED)
#endif
        :: s == 0 && state[BELOW] == BACKED ->
            write(BELOW, FREE, version[BELOW]);
#ifdef REMOVE_BACKED_TELLS
            position();
            gather(0, RETIRED)
#endif
        fi
    :: true -> break
    od;
    flush();
    worker_done = true;
    goto fin;

dead:
    skip;
    d_step {
        job[0] = false;
        job[1] = false;
        v = tail + len(news); /* positions that it gave: none may be the version of another change */
        given = v;
        do
        :: news ? nk, ns
        :: empty(news) -> break
        od;
        s = 0
    };
    do
    :: s < 2 ->
        d_step {
            if
            :: odd[s] -> state[s] = RETIRED; fill[s] = false; odd[s] = false; excused = true
            :: !odd[s] && state[s] == FILLING -> state[s] = RETIRED
            :: else
            fi
        };
        s++;
        MAY_DIE
    :: s == 2 ->
        d_step {
#ifndef KEEP_BELOW
            state[BELOW] = FREE;
#endif
            odd[BELOW] = false;
            s = 0
        };
        break
    od;
    MAY_DIE;
    incarnation++;
    MAY_DIE;
    do
    :: tail < version[0] || tail < version[1] || tail < version[2] -> publish(NO_KEY, FREE); MAY_DIE
    :: else -> break
    od;
    version_reused = (tail < given);
    assert(!version_reused);
    do
    :: s < 2 ->
        if
        :: state[s] == RETIRED ->
            write(s, RETIRED, tail + 1);
            k = (LIVE(1 - s) -> NO_KEY : 0);
            publish(k, RETIRED)
        :: else
        fi;
        s++
    :: else -> break
    od;
    wrong_below = (state[BELOW] == BACKED && !LIVE(0) && !LIVE(1) || state[BELOW] == COLD);
    assert(!wrong_below);
    goto more;
fin:
    skip
}

/* sched/view.c */
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

inline scan_slot(e)
{
    d_step {
        if
        :: !odd[e] && LIVE(e) -> view[0] = state[e]
        :: else
        fi
    }
}

inline scan_below()
{
    d_step {
        if
        :: !odd[BELOW] && state[BELOW] == COLD ->
            view[below_key] = COLD
#ifdef BACKED_IS_NEWS
        :: !odd[BELOW] && state[BELOW] == BACKED ->
            view[below_key] = COLD
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
                i = ring_state[cursor % N];
                if
                :: k != NO_KEY && i != RETIRED -> view[k] = i
                :: k != NO_KEY && i == RETIRED -> view[k] = FREE
                :: k == NO_KEY
                fi;
                k = 0;
                i = incarnation_seen;
                cursor++
            fi
        }
    :: else -> break
    od
}

/* A load of a HIT takes the READY slot, else the RETIRED one with a fill. */
#define FOUND(s) (there[s] && (state[s] == READY || state[s] == RETIRED && fill[s]))

inline check_view()
{
    d_step {
        lost_hit = (view[0] == READY && !odd[0] && !odd[1] && !FOUND(0) && !FOUND(1) && !excused);
        assert(!lost_hit)
    }
}

#define EXPECTED(k) ((k) == 0 && LIVE(0) -> state[0] : \
                     ((k) == 0 && LIVE(1) -> state[1] : \
                      (state[BELOW] == COLD && below_key == (k) -> COLD : FREE)))

active proctype Client()
{
    byte i, t, k, incarnation_seen, my_incarnation, phase;
    bool gap, last;
    do
    :: true ->
        d_step {
            last = worker_done;
            gap = false;
            t = 0;
            applied = 1 + cursor
        };
        d_step { i = incarnation; incarnation_seen = i };
        t = tail;
        if
        :: valid && i == my_incarnation ->
            drain(t);
            if
            :: gap -> empty_view(); printf("lapped in use\n")
            :: else -> applied = 1 + cursor
            fi
        :: phase != 0 && i != my_incarnation -> empty_view(); printf("succeeded in a resync or in use\n")
        :: !valid && phase == 0 ->
            empty_view();
            my_incarnation = i;
            cursor = t;
            phase = 1
#ifdef SCAN_BELOW_FIRST
        :: !valid && phase == 1 && i == my_incarnation -> scan_below(); phase = 2
        :: !valid && phase == 2 && i == my_incarnation -> scan_slot(0); phase = 3
        :: !valid && phase == 3 && i == my_incarnation -> scan_slot(1); phase = 4
#else
        :: !valid && phase == 1 && i == my_incarnation -> scan_slot(0); phase = 2
        :: !valid && phase == 2 && i == my_incarnation -> scan_slot(1); phase = 3
        :: !valid && phase == 3 && i == my_incarnation -> scan_below(); phase = 4
#endif
        :: !valid && phase == 4 && i == my_incarnation ->
            drain(t);
            if
            :: gap -> empty_view(); printf("lapped in a resync\n")
            :: !gap && incarnation != i -> empty_view(); printf("succeeded at the end of a resync\n")
            :: !gap && incarnation == i -> valid = true; applied = 1 + cursor
            fi
        fi;
        if
        :: valid -> check_view()
        :: else
        fi;
        applied = 0;
        if
        :: last && valid -> break
        :: else
        fi
    od;
    wrong_at_rest = (view[0] != EXPECTED(0) || view[1] != EXPECTED(1));
    assert(!wrong_at_rest)
}
