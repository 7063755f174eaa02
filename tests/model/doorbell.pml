/*
 * Doorbell: an idle worker sleeps on its clients' command tails and one word of ctl
 * (shm/doorbell.c, tier/worker.c, sched/send.c and attach.c, the daemon's stop).
 * x86 memory (tso.h). No time-out here: whatever the worker would sleep through is a deadlock.
 *
 * Worker (spw_worker_run, spw_doorbell_sleep)
 *   S1  asleep = 1; full fence [DB-1]
 *   S2  read the words
 *   S3  look once more: slots of the lanes, generations, the pool's phase
 *   S4  wait on the words as read (futex_waitv: the kernel compares and sleeps in one step)
 *   S5  asleep = 0
 *
 * Client in a step (spw_lane_send, spw_step_end): slots and tails of its commands, at its end one ring.
 * Client that attaches (spw_client_take_over, await_workers): tail moved to its base, generation, and
 * rings until it is acknowledged: once is not enough, since the word moves before the generation, and
 * a worker that looks in between sleeps. A command outside a step rings in its own call.
 *   R1  slot sequence, tail
 *   R2  full fence [DB-1]
 *   R3  wake if asleep is set
 * Daemon: phase closed, then ctl's word, then a wake in any case.
 *
 * Property: the worker takes every command, sees the new client and the stop: nobody waits for ever.
 *
 *   holds | a client in a step, a client that attaches, a stop
 *   fails -DWORDS_AFTER_LOOK | invalid end state | the words are read after the look
 *   fails -DNO_CLIENT_FENCE | invalid end state | R2 left out
 *   fails -DNO_WORKER_FENCE | invalid end state | the fence of S1 left out
 *   fails -DNO_LOOK | invalid end state | S3 left out
 *   fails -DTAIL_FIRST | invalid end state | the tail is stored before the slot
 *   fails -DNO_RING | invalid end state | a command outside a step doesn't ring
 *   fails -DRING_BEFORE_SEND | invalid end state | the ring of a step comes before its last command
 *   fails -DCLEARED_EARLY | invalid end state | asleep is cleared before the wait
 *   fails -DRING_ONCE | invalid end state | attaching rings once only
 *   fails -DNO_CTL_WORD | invalid end state | ctl's word isn't among those waited on
 */
#define SLOT(c)    (0 + (c)) /* commands that can be taken from lane c */
#define TAIL(c)    (2 + (c))
#define GENERATION 4         /* of client 1                            */
#define ACKED      5         /* by the worker, for client 1            */
#define ASLEEP     6
#define PHASE      7         /* 1 = closed                             */
#define BELL       8         /* ctl's word                             */
#define CELLS      9
#include "tso.h"

bool waiting; /* in the kernel */

#define WAKE waiting = false

inline ring()
{
#ifndef NO_CLIENT_FENCE
    FULL_FENCE;
#endif
    if
    :: LOAD(ASLEEP) -> WAKE; printf("somebody is woken\n")
    :: else
    fi
}

inline send(c, count, tail)
{
#ifdef TAIL_FIRST
    STORE(TAIL(c), tail);
    STORE(SLOT(c), count)
#else
    STORE(SLOT(c), count);
    STORE(TAIL(c), tail)
#endif
}

proctype Stepper(chan sb)
{
    send(0, 1, 1);
#ifdef RING_BEFORE_SEND
    ring();
#endif
    send(0, 2, 2);
#ifndef RING_BEFORE_SEND
    ring()
#endif
}

/* Its lane holds a command of its predecessor beyond the tail, so its base is 1 above the old tail. */
proctype Newcomer(chan sb)
{
    STORE(TAIL(1), 1);
    STORE(GENERATION, 1);
#ifdef RING_ONCE
    ring();
    LOAD(ACKED) == 1;
#else
    do
    :: LOAD(ACKED) == 1 -> break
    :: LOAD(ACKED) != 1 -> ring()
    od;
#endif
    send(1, 1, 2);
#ifndef NO_RING
    ring()
#endif
}

proctype Daemon(chan sb)
{
    STORE(PHASE, 1);
    STORE(BELL, 1);
    FULL_FENCE;
    WAKE
}

#define WORK (LOAD(SLOT(0)) > taken0 || LOAD(SLOT(1)) > taken1 || LOAD(GENERATION) != acked || \
              LOAD(PHASE) != stopped)
#ifdef NO_CTL_WORD
#define SAME_BELL true
#else
#define SAME_BELL (LOAD(BELL) == bell)
#endif

inline read_words()
{
    tail0 = LOAD(TAIL(0));
    tail1 = LOAD(TAIL(1));
    bell = LOAD(BELL)
}

proctype Worker(chan sb)
{
    byte taken0, taken1, acked, stopped, tail0, tail1, bell;
    do
    :: LOAD(SLOT(0)) > taken0 -> taken0++
    :: LOAD(SLOT(1)) > taken1 -> taken1++
    :: LOAD(GENERATION) != acked -> acked = 1; STORE(ACKED, 1)
    :: LOAD(PHASE) != stopped -> stopped = 1
    :: taken0 == 2 && taken1 == 1 && stopped -> break
    :: !WORK && !(taken0 == 2 && taken1 == 1 && stopped) ->
S1:     STORE(ASLEEP, 1);
#ifndef NO_WORKER_FENCE
        FULL_FENCE;
#endif
#ifdef CLEARED_EARLY
        STORE(ASLEEP, 0);
#endif
#ifndef WORDS_AFTER_LOOK
        /* S2 */ read_words();
#endif
S3:     if
#ifndef NO_LOOK
        :: WORK -> printf("there is work after all\n")
        :: !WORK ->
#else
        :: true ->
#endif
#ifdef WORDS_AFTER_LOOK
            read_words();
#endif
            d_step {
                if
                :: LOAD(TAIL(0)) == tail0 && LOAD(TAIL(1)) == tail1 && SAME_BELL -> waiting = true
                :: else -> printf("a word has moved\n")
                fi
            };
S4:         !waiting
        fi;
S5:     STORE(ASLEEP, 0)
    od
}

init
{
    chan worker_buffer = [3] of { byte, byte };
    chan stepper_buffer = [4] of { byte, byte };
    chan newcomer_buffer = [4] of { byte, byte };
    chan daemon_buffer = [2] of { byte, byte };
    atomic {
        run StoreBuffer(worker_buffer);
        run Worker(worker_buffer);
        run StoreBuffer(stepper_buffer);
        run Stepper(stepper_buffer);
        run StoreBuffer(newcomer_buffer);
        run Newcomer(newcomer_buffer);
        run StoreBuffer(daemon_buffer);
        run Daemon(daemon_buffer)
    }
}
