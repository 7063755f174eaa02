/*
 * Hand-over of a client object from a dead holder to a new one (shm/client.c spw_client_take_over(),
 * sched/attach.c, tier/worker_clients.c). x86 memory (tso.h). One worker, which may die once; its
 * successor looks at the object afresh. Its copies end with it (host copies), before it is reaped.
 *
 * Holder 1 has generation 1, is inside a step, has a pin, and may have sent a command of two lane slots,
 * or part of it. It dies at any time; its lock goes with it. Holder 2 may die, too.
 *
 * Holder 2
 *   N1  takes the lock byte
 *   N2  words and pins zero
 *   N3  lane: base = beyond the tail, the head and every sequence in a slot; tail = base
 *   N4  full fence; generation 2
 *   N5  waits for each worker that ctl says is up: acked = 2
 *   N6  notes the tail, scans the table; then steps (reclaim.pml); a command only to a worker that is up
 *       and has acknowledged
 *
 * Worker (check_client, welcome, spw_reclaim_decide)
 *   K1  reads the generation, then asks the lock
 *   K2  lock free, or another generation than the one served: takes nothing more of that lane, ends
 *       what is queued; waits until the copies it runs for that client have ended
 *   K3  another generation, lock held: head = base; serves it; acked = generation
 *       another generation, lock free: it came and went
 *   K4  reclaim: RETIRED, record, full fence; then the generation; the words of a generation that is known
 *       dead don't count
 *   K5  a command of another generation than the one served, or to another incarnation, is dropped
 * Successor: what acked says was served is served on from the stored head if it is still the generation
 * and its lock is held; else like a first look.
 *
 * Properties: holder 2 loses no HIT; its command is taken, once, unless the worker dies; no command of
 * holder 1 is carried out as one of holder 2; no copy for holder 1 runs once holder 2 may use its blocks.
 *
 *   holds | no worker dies
 *   holds -DDEATH | the worker may die, and is succeeded or not
 *   holds -DNO_SCAN_FENCE | no fence between generation and scan: that of the first step is enough
 *   holds -DNO_WAIT -DOWN_BLOCKS_LATER | nor do HITs need the acknowledgement: reclaim reads the generation behind its fence
 *   fails -DGENERATION_FIRST | invalid end state or hit_lost | the generation is stored before words and lane are in order
 *   fails -DBASE_IS_TAIL | invalid end state or old_command | the base is the tail: half a command lies behind it
 *   fails -DBASE_IS_TAIL -DNO_GENERATION_IN_COMMAND | old_command or invalid end state | the same, and commands carry no generation
 *   fails -DNO_INCARNATION_IN_COMMAND -DDEATH | old_copy | commands don't say which incarnation they are for
 *   fails -DHEAD_LEFT | invalid end state | the head isn't moved to the base
 *   fails -DACK_BEFORE_COPIES | old_copy | acknowledged before the copies of holder 1 ended
 *   fails -DACK_BEFORE_HEAD -DDEATH | invalid end state | acknowledged before the head is stored
 *   fails -DNO_WAIT | old_copy | holder 2 doesn't wait for acknowledgements
 *   fails -DGENERATION_BEFORE_FENCE -DNO_WAIT -DOWN_BLOCKS_LATER | hit_lost | neither, and reclaim reads the generation before its full fence
 *   fails -DLOCK_FIRST | invalid end state or hit_lost | the lock is asked before the generation is read
 *   fails -DSUCCESSOR_SERVES -DDEATH | invalid end state | a successor takes the object for served whatever acked says
 */
#define ENTRY      0 /* READY, RETIRED, FREE                         */
#define RING_TAIL  1
#define GENERATION 2
#define APPLIED    3
#define PIN        4
#define TAIL       5
#define BASE       6
#define SEQ(p)     (7 + (p))  /* of the lane's slots; position p, sequence p + 1     */
#define FROM(p)    (11 + (p)) /* generation and incarnation in the command there     */
#define HEAD       15
#define ACKED      16
#define CELLS      17 /* see also ctl and lock_holder: the daemon and the kernel */
#include "tso.h"

#define READY   0
#define RETIRED 1
#define FREE    2
#define NOBODY  0

mtype = { UP, REAPED };
mtype ctl = UP;
byte lock_holder = 1;
byte incarnation = 1;   /* as ctl tells it                                      */
#define COMMAND(g, i) ((g) + 4 * (i))
#define GENERATION_IN(command) ((command) % 4)
byte copies_for[3];     /* copies that run for the holder of this generation */
byte done;              /* holder 2's commands carried out                   */
bool worker_died, worker_gone;
bool hit_lost, old_command, old_copy;

proctype Holder1(chan sb)
{
    /* a message of two slots: the body's sequence, then the head's, then the tail */
    STORE(FROM(0), COMMAND(1, 1));
    if
    :: true -> STORE(SEQ(1), 2); STORE(SEQ(0), 1); STORE(TAIL, 2)
    :: true -> STORE(SEQ(1), 2); STORE(SEQ(0), 1)
    :: true -> STORE(SEQ(1), 2)
    :: true
    fi;
    FULL_FENCE; /* what a dead process has stored is there when its lock is free */
    lock_holder = NOBODY
}

inline order_words()
{
    STORE(APPLIED, 0);
    STORE(PIN, 0);
    base = LOAD(TAIL);
    if :: base < LOAD(HEAD) -> base = LOAD(HEAD) :: else fi;
#ifndef BASE_IS_TAIL
    if :: base < LOAD(SEQ(0)) -> base = LOAD(SEQ(0)) :: else fi;
    if :: base < LOAD(SEQ(1)) -> base = LOAD(SEQ(1)) :: else fi;
#endif
    STORE(BASE, base);
    STORE(TAIL, base)
}

proctype Holder2(chan sb)
{
    byte base, cursor, t, s, to;
    bool hit, sent;
N1: atomic { lock_holder == NOBODY -> lock_holder = 2 };
#ifdef GENERATION_FIRST
    STORE(GENERATION, 2);
    order_words();
    FULL_FENCE;
#else
N2: order_words();
N4: FULL_FENCE;
    STORE(GENERATION, 2);
#endif
    if
    :: true -> FULL_FENCE; lock_holder = NOBODY; goto fin /* dies */
    :: true
    fi;
#ifndef NO_SCAN_FENCE
    FULL_FENCE; /* of its ring */
#endif
#ifndef NO_WAIT
N5: (ctl != UP || LOAD(ACKED) == 2);
#endif
    old_copy = (copies_for[1] != 0);
#ifndef OWN_BLOCKS_LATER
    assert(!old_copy);
#endif
N6: cursor = LOAD(RING_TAIL);
    hit = (LOAD(ENTRY) == READY);
    /* the first step */
    STORE(APPLIED, 1 + cursor);
    FULL_FENCE;
    t = LOAD(RING_TAIL);
    if :: t > cursor -> hit = false; cursor = t :: else fi;
    STORE(APPLIED, 1 + cursor);
    if
    :: hit ->
        s = LOAD(ENTRY);
        hit_lost = (s == FREE && !worker_died);
        assert(!hit_lost);
        if :: s == RETIRED -> printf("finds a HIT that was retired meanwhile\n") :: else fi
    :: else
    fi;
    if
    :: atomic { ctl == UP && LOAD(ACKED) == 2 -> to = incarnation };
        STORE(PIN, 1);
        STORE(FROM(base), COMMAND(2, to));
        STORE(SEQ(base), base + 1);
        STORE(TAIL, base + 1);
        sent = true
    :: else
    fi;
    STORE(APPLIED, 0);
    if
    :: sent -> (done == 1 || (worker_died && to == 1) || worker_gone); printf("holder 2 is served\n")
    :: else -> printf("holder 2 finds no worker\n")
    fi;
    FULL_FENCE;
fin:
    skip
}

/* What the worker knows of the object. */
#define ABSENT  0
#define SERVED  1
#define LEAVING 2

#ifdef DEATH
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: !worker_died -> goto dead                                                                   \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif

inline check_client()
{
#ifdef LOCK_FIRST
    held = (lock_holder != NOBODY);
    now = LOAD(GENERATION);
#else
    now = LOAD(GENERATION);
    held = (lock_holder != NOBODY);
#endif
    if
    :: phase == SERVED && (now != known || !held) ->
        phase = LEAVING;
#ifdef LOCK_FIRST
        if :: !held -> known = now :: else fi;
#endif
        printf("a client is gone\n")
    :: else
    fi;
    if
#ifdef ACK_BEFORE_COPIES
    :: phase == LEAVING -> phase = ABSENT
#else
    :: phase == LEAVING && copies_for[known] == 0 -> phase = ABSENT
#endif
    :: else
    fi;
    if
    :: phase == ABSENT && now != known && held -> welcome()
    :: phase == ABSENT && now != known && !held -> known = now; printf("came and went\n")
    :: else
    fi
}

inline welcome()
{
#ifdef ACK_BEFORE_HEAD
    STORE(ACKED, now);
    FULL_FENCE;
    MAY_DIE;
#endif
#ifndef HEAD_LEFT
    head = LOAD(BASE);
    STORE(HEAD, head);
#endif
    MAY_DIE;
    known = now;
    phase = SERVED;
    STORE(ACKED, now);
    MAY_DIE
}

inline carry_out()
{
    copies_for[known]++;
    if
    :: known == 2 -> done++; assert(done == 1)
    :: known == 1 -> printf("carries out holder 1's command\n")
    fi
}

/* A load, begun and run; its copy ends later. */
inline take()
{
    command = LOAD(FROM(head));
    old_command = (known == 2 && GENERATION_IN(command) == 1);
#ifdef NO_GENERATION_IN_COMMAND
    assert(!old_command);
#endif
    if
    :: command == COMMAND(known, mine) -> carry_out()
    :: command != COMMAND(known, mine) ->
#ifdef NO_INCARNATION_IN_COMMAND
        if :: GENERATION_IN(command) == known -> carry_out() :: else fi;
#endif
        printf("drops a command\n")
    fi;
    head = (GENERATION_IN(command) == 1 -> head + 2 : head + 1);
    command = 0;
    STORE(HEAD, head);
    MAY_DIE
}

inline reclaim()
{
#ifndef GENERATION_BEFORE_FENCE
    now = LOAD(GENERATION);
#endif
    if
    :: phase != SERVED && known == now -> is_free = true; printf("a dead client's words don't count\n")
    :: else ->
        word = LOAD(APPLIED);
        pin = LOAD(PIN);
        tail = LOAD(TAIL);
        if
        :: (word == 0 || word > position) && (!pin || (word == 0 && tail == head)) -> is_free = true
        :: else -> printf("a client is in the way\n")
        fi
    fi;
    now = 0;
    if :: is_free -> STORE(ENTRY, FREE) :: else fi
}

proctype Worker(chan sb)
{
    byte phase = SERVED, known = 1, mine = 1, now, head, word, pin, tail, position, command;
    bool held, retired, is_free;
more:
end:
    do
    :: (phase == SERVED && (LOAD(GENERATION) != known || lock_holder == NOBODY)) ||
       (phase == LEAVING && copies_for[known] == 0) ||
       (phase == ABSENT && LOAD(GENERATION) != known) -> check_client(); now = 0
    :: phase == SERVED && LOAD(SEQ(head)) == head + 1 -> take()
    :: copies_for[1] != 0 -> copies_for[1]--
    :: copies_for[2] != 0 -> copies_for[2]--
    :: !retired ->
        retired = true;
        position++;
#ifdef GENERATION_BEFORE_FENCE
        now = LOAD(GENERATION);
#endif
        STORE(ENTRY, RETIRED);
        STORE(RING_TAIL, position);
        FULL_FENCE
    :: retired && !is_free -> reclaim()
#ifdef DEATH
    :: !worker_died -> goto dead
#endif
    od;

dead:
    FULL_FENCE;
    worker_died = true;
    copies_for[1] = 0;
    copies_for[2] = 0;
    ctl = REAPED;
    if
    :: true -> worker_gone = true; goto gone
    :: true
    fi;
    /* a successor: spw_worker_open_clients, then adoption, then ctl */
    head = LOAD(HEAD);
    known = LOAD(ACKED);
    phase = ABSENT;
    now = LOAD(GENERATION);
    held = (lock_holder != NOBODY);
    if
#ifdef SUCCESSOR_SERVES
    :: held -> phase = SERVED; known = now; STORE(ACKED, now)
#else
    :: known == now && held -> phase = SERVED
#endif
    :: else
    fi;
    if
    :: retired && !is_free -> /* anew */
        position++;
        STORE(RING_TAIL, position);
        FULL_FENCE
    :: else
    fi;
    mine = 2;
    atomic { incarnation = 2; ctl = UP };
    goto more;
gone:
    skip
}

init
{
    chan holder1_buffer = [3] of { byte, byte };
    chan holder2_buffer = [5] of { byte, byte };
    chan worker_buffer = [3] of { byte, byte };
    mem[GENERATION] = 1;
    mem[APPLIED] = 1;
    mem[PIN] = 1;
    mem[ACKED] = 1;
    atomic {
        run StoreBuffer(holder1_buffer);
        run Holder1(holder1_buffer);
        run StoreBuffer(holder2_buffer);
        run Holder2(holder2_buffer);
        run StoreBuffer(worker_buffer);
        run Worker(worker_buffer)
    }
}
