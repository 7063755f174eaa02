/*
 * Both claims on one slot: its owner retires and reuses it while peers copy out of it for clients
 * (tier/reclaim.c and tier/shard.c for the owner, tier/job.c for the peers, shm/client.c for clients).
 * x86 memory (tso.h). Position of the RETIRED record is 1; a successor of the owner retires anew at 2.
 * How a client knows a HIT is in reclaim.pml; here it is a HIT iff the tail it drained to is 0.
 *
 * Client c (spw_client_step_begin, _pin, _step_end): step, applied, fence, tail, applied; a HIT may be
 * loaded: pin, command to one peer (slot and fill) with the step; applied = 0. It may die at any time,
 * and be fenced.
 *
 * Peer k (spw_shard_claim, the load's begin and run)
 *   P1  copying bit; counted, so that two loads of the slot hold it until both have ended
 *   P2  full fence
 *   P3  entry READY or RETIRED, with the command's fill; else -ESTALE, bit back
 *   P4  command head moved: taken
 *   P5  the run comes: copy. It doesn't come within the limit: answered, bit back, ticket gone
 *   P6  the copy has really ended: bit back
 * It may die; what it had started goes on until it is reaped and its quarantine is over; only then its
 * successor clears its bits.
 *
 * Owner (spw_shard_reclaim, spw_shard_reserve)
 *   O1  RETIRED, record, full fence
 *   O2  each live client's word: 0 or > p, else wait, or fence it
 *   O3  its pin, command tails, command heads: a pin counts in a step or with an untaken command, and not
 *       of a dead or fenced client
 *   O4  FREE, full fence
 *   O5  hand-out: when no worker's copying bit covers the slot, asked then; new fill, READY again
 * It may die; its successor keeps FREE entries, retires RETIRED ones anew, and asks before it hands out.
 *
 * Properties: a slot that a copy reads is not handed out; bytes of another fill are never copied; a load
 * of a HIT is refused only if its step or a later one was fenced, its client died, or the owner died; the
 * slot is handed out in the end.
 *
 *   holds | one client, one peer, each may die, fencing
 *   holds -DOWNER_DIES | the owner may die too
 *   holds -DPEERS=2 | one client, two peers
 *   holds -DCLIENTS=2 -DSTEPS=1 -DNO_FENCING -DNO_DEATHS | two clients whose loads meet in one peer
 *   fails -DREADY_ONLY | hit_lost | P3 takes READY entries only
 *   fails -DNO_FILL_CHECK | reused | P3 doesn't look at the fill
 *   fails -DNO_FREE | reused | O5 reads the bits while the entry is still RETIRED
 *   fails -DBITS_FIRST | reused | the copying bits are read before the pins
 *   fails -DTAKEN_FIRST | hit_lost | the command head is moved before the copying bit is set
 *   fails -DBIT_AFTER_CHECK | reused | the copying bit is set after the entry was looked at
 *   fails -DNO_PEER_FENCE | reused | P2 left out
 *   fails -DNO_FREE_FENCE | reused | no full fence after FREE
 *   fails -DNO_CLIENT_FENCE | hit_lost | no full fence in step begin
 *   fails -DNO_WORKER_FENCE | hit_lost | no full fence after the RETIRED record
 *   fails -DREVOKE | reused | the client's death ends the peer's claim
 *   fails -DNO_QUARANTINE | reused | a successor of the peer clears its bits before the transfer has ended
 *   fails -DPIN_IN_STEP_ONLY | hit_lost | a pin counts inside a step only
 *   fails -DPOSITION_OFF_BY_ONE | hit_lost | applied is 1 too high
 *   fails -DLIMIT_IN_COPY | reused | the begin limit clears the bit of a load whose copy runs
 *   fails -DLATE_RUN | reused | a run is accepted although its begin has ended by the limit
 *   fails -DUNCOUNTED -DCLIENTS=2 -DSTEPS=1 -DNO_FENCING -DNO_DEATHS | reused | the first of two loads to end clears the bit
 *   fails -DHAND_OUT_UNASKED -DOWNER_DIES | reused | a successor of the owner hands FREE slots out unasked
 *   fails -DONE_PEER -DPEERS=2 | reused | the owner asks one worker's bits only
 */
#ifndef CLIENTS
#define CLIENTS 1
#endif
#ifndef PEERS
#define PEERS 1
#endif
#ifndef STEPS
#define STEPS 2
#endif

#define ENTRY      0 /* table entry of the slot, one of the states below */
#define RING_TAIL  1
#define FENCED(c)  (2 + (c))
#define APPLIED(c) (4 + (c))
#define STEP(c)    (6 + (c))
#define PIN(c)     (8 + (c))
#define SENT(c)    (10 + (c)) /* command tail: 0 or 1 */
#define TAKEN(c)   (12 + (c)) /* command head         */
#define COPYING(k) (14 + (k))
#define CELLS      16
#include "tso.h"

#define READY   0 /* fill 1 */
#define RETIRED 1 /* fill 1 */
#define FREE    2
#define AGAIN   3 /* READY, fill 2 */

byte lane[CLIENTS];         /* the peer its command goes to                     */
byte sent_in[CLIENTS];      /* the step its command carries                     */
bool client_dead[CLIENTS];
bool client_done[CLIENTS];
byte reads;                 /* copies that read the slot right now              */
bool reused;                /* the slot was handed out                          */
bool owner_died, hit_lost;

#ifdef POSITION_OFF_BY_ONE
#define WORD(position) (2 + (position))
#else
#define WORD(position) (1 + (position))
#endif

/* Stores in a row may be one atomic step: the buffer decides when they become visible. */
proctype Client(byte c; chan sb)
{
    byte step, seen;
    bool sent;
    do
    :: step < STEPS ->
        atomic {
            step++;
            STORE(STEP(c), step);
            STORE(APPLIED(c), WORD(seen))
        };
#ifndef NO_CLIENT_FENCE
        FULL_FENCE;
#endif
        seen = LOAD(RING_TAIL);
        STORE(APPLIED(c), WORD(seen));
        if
        :: atomic {
            seen == 0 && !sent ->
            sent = true;
#if PEERS == 2
            if :: true :: lane[c] = 1 fi;
#endif
            sent_in[c] = step;
            STORE(PIN(c), 1);
            STORE(SENT(c), 1)
        }
        :: true
        fi;
        STORE(APPLIED(c), 0)
    :: atomic {
#ifdef NO_DEATHS
        false;
#else
        true;
#endif
        client_dead[c] = true;
#ifdef REVOKE
        mem[COPYING(lane[c])] = 0;
#endif
        } break
    :: step == STEPS -> break
    od;
    FULL_FENCE;
    client_done[c] = true
}

/* It is in the way, in its step or with a command of it: `gone` if fenced, else wait. */
inline fence_or_wait(c)
{
#ifndef NO_FENCING
    if
    :: true ->
        step = LOAD(STEP(c));
        STORE(FENCED(c), step);
        FULL_FENCE;
        if
        :: LOAD(STEP(c)) == step -> gone = true
        :: else -> wait = true
        fi
    :: true -> wait = true
    fi
#else
    wait = true
#endif
}

/* O2 and O3 for client c: sets `wait` if the slot may not go yet. */
inline ask_client(c)
{
    gone = client_dead[c]; /* asked first: dead clients send nothing more */
    word = LOAD(APPLIED(c));
    if
    :: !gone && word != 0 && word <= p -> fence_or_wait(c)
    :: else
    fi;
    pin = LOAD(PIN(c));
    tail = LOAD(SENT(c));
    head = LOAD(TAKEN(c));
    if
#ifdef PIN_IN_STEP_ONLY
    :: !gone && pin && word != 0 -> wait = true
#else
    :: !gone && pin && (word != 0 || tail != head) -> fence_or_wait(c)
#endif
    :: else
    fi
}

#ifdef OWNER_DIES
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: !owner_died -> owner_died = true; goto dead                                                 \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif

proctype Owner(chan sb)
{
    byte p = 1, word, step, pin, tail, head, bits;
    bool gone, wait, is_free;
O1: STORE(ENTRY, RETIRED);
retire_anew:
    STORE(RING_TAIL, p);
#ifndef NO_WORKER_FENCE
    FULL_FENCE;
#endif
    MAY_DIE;
    do
    :: true ->
        wait = false;
#ifdef BITS_FIRST
        LOAD(COPYING(0)) == 0;
#endif
O2:     ask_client(0);
#if CLIENTS == 2
        ask_client(1);
#endif
        if :: !wait -> break :: else fi
    od;
    MAY_DIE;
#ifndef NO_FREE
O4: STORE(ENTRY, FREE);
#ifndef NO_FREE_FENCE
    FULL_FENCE;
#endif
#endif
    is_free = true;
    MAY_DIE;
O5:
#ifndef BITS_FIRST
#ifdef HAND_OUT_UNASKED
    if :: !owner_died -> LOAD(COPYING(0)) == 0 :: else fi;
#else
    LOAD(COPYING(0)) == 0;
#endif
#if PEERS == 2
#ifndef ONE_PEER
    LOAD(COPYING(1)) == 0;
#endif
#endif
#endif
    reused = true;
    assert(reads == 0 || !reused);
    STORE(ENTRY, AGAIN);
    goto fin;
dead:
    FULL_FENCE; /* what it left behind is there by the time it is reaped */
    p = 2;
    if
    :: is_free -> printf("a successor finds the slot FREE\n"); goto O5
    :: !is_free -> printf("a successor retires the slot anew\n"); goto retire_anew
    fi;
fin:
    skip
}

/* P1 to P6 for the command of client c; with one load at a time in each lane. */
#define IDLE    0
#define BEGUN   1
#define COPIES  2
#define ENDED   3

inline take(c)
{
#ifdef TAKEN_FIRST
    STORE(TAKEN(c), 1);
#endif
#ifndef BIT_AFTER_CHECK
    /* P1 */ STORE(COPYING(k), 1);
#ifndef NO_PEER_FENCE
    /* P2 */ FULL_FENCE;
#endif
#endif
    /* P3 */ entry = LOAD(ENTRY);
    if
#ifdef READY_ONLY
    :: entry == READY ->
#else
#ifdef NO_FILL_CHECK
    :: entry == READY || entry == RETIRED || entry == AGAIN ->
#else
    :: entry == READY || entry == RETIRED ->
#endif
#endif
        if :: entry == RETIRED -> printf("takes a load of a RETIRED chunk\n") :: else fi;
#ifdef BIT_AFTER_CHECK
        STORE(COPYING(k), 1);
        FULL_FENCE;
#endif
        job[c] = BEGUN;
        bits++
    :: else ->
        hit_lost = (LOAD(FENCED(c)) < sent_in[c] && !client_dead[c] && !owner_died);
        assert(!hit_lost);
        printf("a load is refused\n");
        job[c] = ENDED;
        if :: bits == 0 -> STORE(COPYING(k), 0) :: else fi
    fi;
#ifndef TAKEN_FIRST
    /* P4 */ STORE(TAKEN(c), 1)
#endif
}

inline drop_bit()
{
    bits--;
#ifdef UNCOUNTED
    STORE(COPYING(k), 0)
#else
    if :: bits == 0 -> STORE(COPYING(k), 0) :: else fi
#endif
}

inline start_copy(c)
{
    assert(!reused);
    job[c] = COPIES;
    reads++
}

/* P5: the run comes, or the limit. */
inline run_or_limit(c)
{
    if
    :: true -> start_copy(c)
    :: true ->
        job[c] = ENDED;
        drop_bit();
#ifdef LATE_RUN
        bits++;
        start_copy(c)
#endif
    fi
}

/* P6. */
inline end_copy(c)
{
    if
    :: true ->
        assert(!reused);
        reads--;
        job[c] = ENDED;
        drop_bit()
#ifdef LIMIT_IN_COPY
    :: bits > 0 -> drop_bit()
#endif
    fi
}

/* What a dead peer had of client c: its transfer goes on, then the quarantine is over. */
inline bury(c)
{
    if
    :: job[c] == COPIES -> assert(!reused); reads--; job[c] = ENDED
    :: job[c] == BEGUN -> job[c] = ENDED
    :: else
    fi
}

#define HAS_COMMAND(c) (job[c] == IDLE && LOAD(SENT(c)) == 1 && lane[c] == k)
#define FINISHED(c)                                                                                \
    (client_done[c] && (lane[c] != k || LOAD(SENT(c)) == 0 || job[c] == ENDED))

proctype Peer(byte k; chan sb)
{
    byte job[CLIENTS], bits, entry;
    bool died;
again:
    do
    :: HAS_COMMAND(0) -> take(0)
    :: job[0] == BEGUN -> run_or_limit(0)
    :: job[0] == COPIES -> end_copy(0)
#if CLIENTS == 2
    :: HAS_COMMAND(1) -> take(1)
    :: job[1] == BEGUN -> run_or_limit(1)
    :: job[1] == COPIES -> end_copy(1)
#endif
#ifndef NO_DEATHS
    :: job[0] == COPIES && !died -> printf("dies in a copy\n"); goto dead
#endif
#if CLIENTS == 2
    :: FINISHED(0) && FINISHED(1) -> break
#else
    :: FINISHED(0) -> break
#endif
    od;
    goto fin;
dead:
    died = true;
    FULL_FENCE;
#ifdef NO_QUARANTINE
    mem[COPYING(k)] = 0;
#endif
    bury(0);
#if CLIENTS == 2
    bury(1);
#endif
    bits = 0;
    STORE(COPYING(k), 0); /* its successor, after reaping and quarantine */
    goto again;
fin:
    skip
}

init
{
    chan owner_buffer = [5] of { byte, byte };
    chan client0_buffer = [7] of { byte, byte };
    chan peer0_buffer = [4] of { byte, byte };
#if CLIENTS == 2
    chan client1_buffer = [7] of { byte, byte };
#endif
#if PEERS == 2
    chan peer1_buffer = [4] of { byte, byte };
#endif
    atomic {
        run StoreBuffer(owner_buffer);
        run Owner(owner_buffer);
        run StoreBuffer(client0_buffer);
        run Client(0, client0_buffer);
        run StoreBuffer(peer0_buffer);
        run Peer(0, peer0_buffer);
#if CLIENTS == 2
        run StoreBuffer(client1_buffer);
        run Client(1, client1_buffer);
#endif
#if PEERS == 2
        run StoreBuffer(peer1_buffer);
        run Peer(1, peer1_buffer);
#endif
    }
}
