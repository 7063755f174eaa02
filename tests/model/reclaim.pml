/*
 * Reclamation: a HIT stays true until it is loaded. One chunk in one slot, its worker, one client
 * with a private replica that is fed by the update ring (shm/client.c, tier/reclaim.c).
 * x86 memory (tso.h). Copies are instant here; the copying worker's own claim is in claims.pml.
 *
 * Client, in each step (spw_client_step_begin, _applied, _end)
 *   C1  step number, applied = 1 + old position; full fence [ST-1]
 *   C2  read the tail after the fence; drain to it; a RETIRED record empties the view
 *   C3  applied = 1 + position drained to [ST-2]
 *   C4  decide. A load in the same step: look whether the step was fenced, find the entry (READY or
 *       RETIRED, with its fill), pin bit, command; a decision kept for a later step is -ESTALE there
 *   C5  applied = 0 [ST-3]
 *   C6  pin bit back when the command was taken
 *
 * Worker (spw_shard_reclaim, and the taking of commands)
 *   W0  another slot is retired first, by the record at position 1, and waits for the client too
 *   W1  entry RETIRED; record at position 2; full fence [ST-1]
 *   W2  the client's word: go on only if it is 0 or > 2
 *   W3  pin bit, then command tail, then command head: a pin counts while the client is in a step or
 *       has an untaken command
 *   W4  entry FREE; the slot is handed out, filled again, READY with another fill
 *   W5  a client stuck in its step: fenced = step; full fence; it counts only if the step is still that
 *   W6  take a command: void if its step is fenced; else entry READY or RETIRED with its fill
 *
 * Properties: a load of a HIT finds its chunk at submission and when it is taken, unless its step or a
 * later one was fenced; the worker frees the slot in the end. (Never other bytes: claims.pml.)
 *
 *   holds | three steps, no fencing
 *   holds -DFENCING | a worker that loses patience
 *   fails -DNO_CLIENT_FENCE | hit_lost | no full fence in step begin
 *   fails -DNO_WORKER_FENCE | hit_lost | no full fence after the RETIRED record
 *   fails -DTAIL_BEFORE_FENCE | hit_lost | the client reads the tail before its fence
 *   fails -DNEW_POSITION_FIRST | hit_lost | step begin stores the new position before it has drained to it
 *   fails -DPARTIAL_DRAIN | hit_lost | the client drains to an earlier place than the tail, and says the tail
 *   fails -DNO_OLD_POSITION | hit_lost | step begin stores no position before it drains
 *   fails -DPINS_FIRST | hit_lost | the worker reads the pin before the client's word
 *   fails -DPIN_LATE | hit_lost | the pin bit is set after the command and the end of the step
 *   fails -DPIN_BACK_EARLY | hit_lost | the pin bit is taken back at the end of the step
 *   fails -DPIN_IN_STEP_ONLY | hit_lost | the pin bit counts inside a step only
 *   fails -DCARRY | hit_lost | a decision of an earlier step is loaded without asking again
 *   fails -DPOSITION_OFF_BY_ONE | hit_lost | a word equal to the record's position counts as past it
 *   fails -DFENCE_STAYS -DFENCING | hit_lost | a client once fenced is ignored in its later steps too
 *   fails -DVOID_ONE_STEP -DFENCING | hit_lost | only commands of the very step that was fenced are void
 *   fails -DREADY_ONLY | hit_lost | a load finds READY entries only
 */
#define STATE    0  /* table entry of the slot: one of the states below */
#define TAIL     1  /* highest position published; 2 = the RETIRED record of our chunk */
#define APPLIED  2
#define STEP     3
#define PIN      4
#define CMD_TAIL 5
#define CMD_HEAD 6
#define FENCED   7
#define CELLS    8
#include "tso.h"

#define READY   0  /* the chunk of the HIT, with its fill */
#define RETIRED 1
#define FREE    2
#define AGAIN   3  /* READY, another chunk, another fill  */

#ifndef STEPS
#define STEPS 3
#endif

byte command_step;  /* what the command says: its decision's step */
bool reused, client_done;
bool hit_lost;

proctype Client(chan sb)
{
    byte step, cursor, t, s;
    byte decided;  /* step of a decision that is kept */
    bool view = true, hit, sent, pinned;
    do
    :: step < STEPS ->
C1:     step++;
        STORE(STEP, step);
#ifndef NO_OLD_POSITION
        STORE(APPLIED, 1 + cursor);
#endif
#ifdef TAIL_BEFORE_FENCE
        t = LOAD(TAIL);
#endif
#ifndef NO_CLIENT_FENCE
        FULL_FENCE;
#endif
C2:
#ifndef TAIL_BEFORE_FENCE
        t = LOAD(TAIL);
#endif
#ifdef NEW_POSITION_FIRST
        STORE(APPLIED, 1 + LOAD(TAIL));
#endif
        cursor = t;
        if
        :: cursor == 2 -> view = false
#ifdef PARTIAL_DRAIN
        :: cursor == 2 && view -> skip
#endif
        :: else
        fi;
#ifndef NEW_POSITION_FIRST
C3:     STORE(APPLIED, 1 + cursor);
#endif
C4:     hit = view;
#ifdef CARRY
        hit = hit || decided != 0;
#endif
        if
        :: hit && !sent && LOAD(FENCED) < step ->
            if
            :: true -> decided = step /* kept */
            :: true ->
                s = LOAD(STATE);
                if
#ifdef READY_ONLY
                :: s == READY ->
#else
                :: s == READY || s == RETIRED ->
#endif
                    if :: s == RETIRED -> printf("loads a HIT that was retired meanwhile\n") :: else fi;
                    sent = true;
                    command_step = step;
#ifdef PIN_LATE
                    STORE(CMD_TAIL, 1);
                    STORE(APPLIED, 0);
                    STORE(PIN, 1);
#else
                    STORE(PIN, 1);
                    STORE(CMD_TAIL, 1);
#endif
                    pinned = true
                :: else ->
                    hit_lost = (LOAD(FENCED) < step);
                    assert(!hit_lost);
                    printf("fenced before it found the entry\n")
                fi
            fi
        :: hit && LOAD(FENCED) >= step -> printf("fenced before it loaded\n")
        :: !hit && decided != 0 && !sent -> printf("a kept decision is stale\n")
        :: else
        fi;
#ifdef PIN_BACK_EARLY
        if :: pinned -> STORE(PIN, 0); pinned = false :: else fi;
#endif
C5:     STORE(APPLIED, 0);
C6:     if
        :: pinned && LOAD(CMD_HEAD) == 1 -> STORE(PIN, 0); pinned = false
        :: else
        fi
    :: else -> break
    od;
    FULL_FENCE; /* leaves nothing behind when it says that it is done */
    client_done = true;
    if
    :: pinned -> LOAD(CMD_HEAD) == 1; STORE(PIN, 0)
    :: else
    fi
}

/* W6: at any time between the worker's other steps. */
inline take()
{
    if
#ifdef VOID_ONE_STEP
    :: command_step == fenced -> printf("a void command is answered\n")
#else
    :: command_step <= fenced -> printf("a void command is answered\n")
#endif
    :: else ->
        hit_lost = (state == FREE || state == AGAIN);
        assert(!hit_lost);
        if :: state == RETIRED -> printf("copies out of a RETIRED slot\n") :: else fi
    fi;
    taken = true;
    STORE(CMD_HEAD, 1)
}

/* W2 and W5: may a slot that was retired at position p go, as far as the client's word tells? */
inline ask_word(p)
{
#ifndef FENCE_STAYS
    gone = false;
#endif
    word = LOAD(APPLIED);
    passed = (word == 0 || word > p || gone);
#ifdef POSITION_OFF_BY_ONE
    passed = passed || word == p;
#endif
    if
    :: !passed ->
#ifdef FENCING
W5:     step = LOAD(STEP);
        if
        :: fenced != step && patience > 0 ->
            patience--;
            fenced = step;
            STORE(FENCED, step);
            FULL_FENCE
        :: true
        fi;
        if
        :: fenced != 0 && LOAD(STEP) == fenced -> gone = true; passed = true
        :: fenced != 0 && LOAD(STEP) != fenced -> printf("the fenced step has ended\n")
        :: else
        fi
#else
        skip
#endif
    :: else
    fi
}

/* W2 to W5 for our chunk. */
inline reclaim()
{
#ifdef PINS_FIRST
    pin = LOAD(PIN);
#endif
    ask_word(2);
    if
    :: passed ->
#ifndef PINS_FIRST
W3:     pin = LOAD(PIN);
#endif
        tail = LOAD(CMD_TAIL);
        if
#ifdef PIN_IN_STEP_ONLY
        :: pin && !gone && word != 0 -> printf("a pin keeps the slot\n")
        :: !pin || gone || word == 0 ->
#else
        :: pin && !gone && (word != 0 || tail != taken) -> printf("a pin keeps the slot\n")
        :: !pin || gone || (word == 0 && tail == taken) ->
#endif
            if :: gone -> printf("frees the slot of a fenced client\n") :: else fi;
W4:         state = FREE;
            STORE(STATE, FREE);
            reused = true;
            state = AGAIN;
            STORE(STATE, AGAIN)
        fi
    :: else
    fi
}

proctype Worker(chan sb)
{
    byte state = READY, word, pin, tail, step, fenced, patience = 2;
    bool gone, passed, taken;
W0: STORE(TAIL, 1);
    FULL_FENCE;
    do
    :: !passed -> ask_word(1)
    :: passed -> break
    od;
    if
    :: LOAD(CMD_TAIL) == 1 -> take()
    :: true
    fi;
W1: state = RETIRED;
    STORE(STATE, RETIRED);
    STORE(TAIL, 2);
#ifndef NO_WORKER_FENCE
    FULL_FENCE;
#endif
    do
    :: !reused -> reclaim()
    :: LOAD(CMD_TAIL) == 1 && !taken -> take()
    :: reused && client_done && (taken || LOAD(CMD_TAIL) == 0) -> break
    od
}

init
{
    chan client_buffer = [6] of { byte, byte };
    chan worker_buffer = [6] of { byte, byte };
    atomic {
        run StoreBuffer(client_buffer);
        run StoreBuffer(worker_buffer);
        run Client(client_buffer);
        run Worker(worker_buffer)
    }
}
