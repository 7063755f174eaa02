/*
 * Jobs in two halves: a store (job 0) and a load (job 1) of one worker (tier/worker_commands.c,
 * tier/worker_jobs.c, tier/job.c; sched/store.c, load.c, run.c, reap.c).
 *
 * The opener asks for the first half (reserve, begin) and hands the ticket on; the runner, another
 * process, sends the second half and is told its end. Each may die at any time, so may the worker, once;
 * its successor starts after it was reaped. What a dead worker had handed to its copier goes on until then.
 *
 * Worker
 *   J1  first half taken: store: slot FILLING; load: copying bit; ticket answered
 *   J2  the run doesn't come within the limit, or the opener is dead: store RETIRED, load's bit back
 *   J3  run taken, only where its completion surely fits: of a live ticket it is queued, else refused
 *   J4  the runner is dead: what no copy has reached ends as in J2
 *   J5  copy begins; from here on nothing but its end ends the job
 *   J6  copy ended: store READY, or RETIRED if it failed; load's bit back; completion to a living runner
 *   J7  RETIRED slot freed, never while a copy into it runs
 * Successor: FILLING -> RETIRED, its bits cleared, next incarnation; drops runs of an earlier one.
 * Runner's library: ends jobs of an incarnation that is over (reaped) itself, once its lane is empty;
 * drops completions of a job that it has ended.
 *
 * Properties: every run of a living runner is told exactly once; no chunk stays FILLING, none is READY
 * without its copy, none is freed or its source given up while a copy runs; the runner isn't told -EOWNERDEAD
 * while a copy of its job runs; no bit stays; the completion lane never overflows.
 *
 *   holds | both jobs, a lane of one completion, everybody may die
 *   holds -DSUCCESSOR_ANSWERS | a successor that answers its predecessor's run: the library drops it
 *   fails -DNO_LIMIT | claim_for_ever or pending_for_ever | a reserve waits for its run without limit
 *   fails -DREADY_EARLY | copied | READY when the copy is handed to the copier
 *   fails -DLIMIT_IN_COPY | copy_runs | the limit ends a load that copies
 *   fails -DDEATH_ENDS_COPY | copy_runs | the runner's death ends a store that copies, its slot is freed
 *   fails -DLATE_RUN | claim | a run of an expired begin is accepted
 *   fails -DNO_ROOM | overflow | a run is taken without room for its completion
 *   fails -DREFUSE_SILENTLY | told | a run of a dead ticket isn't answered
 *   fails -DSUCCESSOR_ANSWERS -DLATE_COMPLETION | told | the same, and the library counts it
 *   fails -DLANE_NOT_EMPTY | told | the library ends a job whose completion lies in the lane, and reaps it too
 *   fails -DNOT_REAPED | copy_runs | the library ends jobs when the worker is dead, not yet reaped
 *   fails -DNO_REPAIR | pending_for_ever | a successor leaves FILLING
 *   fails -DBITS_KEPT | claim_for_ever | a successor leaves its predecessor's copying bits
 *   fails -DBITS_EARLY | copy_runs | a successor clears the bits before the reaping
 */
#define JOBS  2
#define STORE 0
#define LOAD  1
#ifndef ROOM
#define ROOM 1
#endif

mtype = { FREE, FILLING, READY, RETIRED };       /* the store's slot           */
mtype = { NONE, AWAIT_RUN, QUEUED, COPYING, ENDED }; /* a job, as its worker knows */

/* shared */
mtype st = FREE;
bool claim;                                 /* the worker's copying claim on the load's source */
byte asked[JOBS];                         /* first half sent to this incarnation           */
byte ticket[JOBS];                        /* answered by this incarnation                  */
byte ran[JOBS];                           /* second half sent to this incarnation          */
chan completions = [ROOM] of { byte, byte }; /* job, incarnation                           */
byte incarnation = 1, reaped;             /* reaped: highest incarnation that is over      */
/* beside memory */
bool opener_dead, runner_dead, down;
bool copy_runs[JOBS], copied, overflow, pending_for_ever, claim_for_ever;
byte told[JOBS];

active proctype Opener()
{
    byte j;
    do
    :: j < JOBS && !down -> asked[j] = incarnation; j++
    :: true -> break
    od;
    if
    :: opener_dead = true
    :: true
    fi
}

inline tell(j)
{
    told[j]++;
    assert(told[j] == 1)
}

/* Is the incarnation that job j was run on over? */
#ifdef NOT_REAPED
#define OVER(j) (reaped >= ran[j] || (down && incarnation == ran[j]))
#else
#define OVER(j) (reaped >= ran[j])
#endif
#ifdef LANE_NOT_EMPTY
#define LANE_EMPTY true
#else
#define LANE_EMPTY (len(completions) == 0)
#endif
#define OPEN(j) (ran[j] != 0 && told[j] == 0)

inline end_dead(j)
{
    assert(!copy_runs[j]);
    tell(j);
    printf("a job of a dead worker ends\n")
}

active proctype Runner()
{
    byte j, i;
    bool mortal;
    if
    :: mortal = true
    :: true
    fi;
end:
    do
    :: ran[0] == 0 && ticket[0] != 0 -> ran[0] = ticket[0]
    :: ran[1] == 0 && ticket[1] != 0 -> ran[1] = ticket[1]
    :: d_step {
        completions ? j, i ->
#if !defined(LATE_COMPLETION) && !defined(LANE_NOT_EMPTY)
        if
        :: OPEN(j) && ran[j] == i -> told[j]++
        :: else -> printf("a late completion is dropped\n")
        fi
#else
        told[j]++
#endif
        };
        assert(told[0] <= 1 && told[1] <= 1)
    :: OPEN(0) && OVER(0) && LANE_EMPTY -> end_dead(0)
    :: OPEN(1) && OVER(1) && LANE_EMPTY -> end_dead(1)
    :: mortal -> runner_dead = true; break
    od
}

#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: incarnation == 1 -> down = true; goto dead                                                  \
    :: true                                                                                        \
    fi

inline complete(j)
{
    if
    :: !runner_dead ->
        overflow = full(completions);
        assert(!overflow);
        completions ! j, incarnation
    :: runner_dead
    fi
}

/* J2, J4: a job ends before a copy. */
inline end_unrun(j)
{
    if
    :: j == STORE -> st = RETIRED
    :: j == LOAD -> assert(!copy_runs[LOAD]); claim = false
    fi;
    if
    :: job[j] == QUEUED -> owed--; job[j] = ENDED; complete(j)
    :: else -> job[j] = ENDED
    fi
}

inline take_first(j)
{
    if
    :: j == STORE -> st = FILLING
    :: j == LOAD -> claim = true
    fi;
    MAY_DIE;
    job[j] = AWAIT_RUN;
    taken[j] = true;
    ticket[j] = incarnation;
    MAY_DIE
}

inline take_run(j)
{
    run_taken[j] = true;
    if
    :: job[j] == AWAIT_RUN -> owed++; job[j] = QUEUED
#ifdef LATE_RUN
    :: job[j] == ENDED -> owed++; job[j] = QUEUED
#endif
    :: job[j] == ENDED ->
#ifndef REFUSE_SILENTLY
        complete(j);
#endif
        printf("a run of a dead ticket is refused\n")
    fi;
    MAY_DIE
}

inline begin_copy(j)
{
    assert(j == STORE || claim);
    job[j] = COPYING;
    copy_runs[j] = true;
#ifdef READY_EARLY
    if
    :: j == STORE -> st = READY; assert(copied)
    :: else
    fi;
#endif
    MAY_DIE
}

inline end_copy(j)
{
    copy_runs[j] = false;
    if
    :: j == STORE && st == FILLING -> copied = true; MAY_DIE; st = READY
    :: j == STORE && st == FILLING -> st = RETIRED; printf("a copy fails\n")
    :: j == LOAD -> claim = false
    fi;
    MAY_DIE;
    owed--;
    job[j] = ENDED;
    complete(j);
    MAY_DIE
}

#ifdef NO_ROOM
#define HAS_ROOM true
#else
#define HAS_ROOM (len(completions) + owed < ROOM || runner_dead)
#endif
#define FIRST_HALF(j)  (asked[j] == incarnation && !taken[j])
#define SECOND_HALF(j) (ran[j] == incarnation && !run_taken[j] && HAS_ROOM)
#ifdef NO_LIMIT
#define EXPIRES(j) (job[j] == AWAIT_RUN && opener_dead && false)
#else
#define EXPIRES(j) (job[j] == AWAIT_RUN)
#endif

inline work_on(j)
{
    if
    :: FIRST_HALF(j) -> take_first(j)
    :: SECOND_HALF(j) -> take_run(j)
    :: EXPIRES(j) -> end_unrun(j)
    :: job[j] == AWAIT_RUN && opener_dead -> end_unrun(j); printf("its opener is dead\n")
    :: job[j] == QUEUED && runner_dead -> end_unrun(j); printf("its runner is dead\n")
    :: job[j] == QUEUED -> begin_copy(j)
    :: job[j] == COPYING -> end_copy(j)
#ifdef LIMIT_IN_COPY
    :: job[j] == COPYING && j == LOAD -> end_unrun(j)
#endif
#ifdef DEATH_ENDS_COPY
    :: job[j] == COPYING && j == STORE && runner_dead -> end_unrun(j)
#endif
    fi
}
#define BUSY(j) (FIRST_HALF(j) || SECOND_HALF(j) || job[j] == AWAIT_RUN && EXPIRES(j) || \
                 job[j] == AWAIT_RUN && opener_dead || job[j] == QUEUED || job[j] == COPYING)

active proctype Worker()
{
    mtype job[JOBS] = NONE;
    bool taken[JOBS], run_taken[JOBS];
    byte owed;
again:
end:
    do
    :: BUSY(STORE) -> work_on(STORE)
    :: BUSY(LOAD) -> work_on(LOAD)
    :: st == RETIRED ->
#ifndef DEATH_ENDS_COPY
        job[STORE] != COPYING;
#endif
        assert(!copy_runs[STORE]);
        st = FREE
    od;

dead:
#ifdef BITS_EARLY
    assert(!copy_runs[LOAD]);
#endif
    copy_runs[STORE] = false; /* over by now: reaped, and quarantine */
    copy_runs[LOAD] = false;
    reaped = incarnation;
    if
    :: true -> goto gone /* nobody starts it again */
    :: true
    fi;
#ifndef NO_REPAIR
    if :: st == FILLING -> st = RETIRED :: else fi;
#endif
#ifndef BITS_KEPT
    claim = false;
#endif
    d_step {
        job[0] = NONE;
        job[1] = NONE;
        taken[0] = false;
        taken[1] = false;
        run_taken[0] = false;
        run_taken[1] = false;
        owed = 0
    };
    incarnation++;
    down = false;
#ifdef SUCCESSOR_ANSWERS
    if
    :: ran[0] == 1 && !runner_dead && nfull(completions) -> completions ! 0, 1
    :: else
    fi;
#endif
    goto again;
gone:
    skip
}

/* When nothing moves any more. */
active proctype Check()
{
    timeout;
    if
    :: down -> printf("the worker stays dead\n")
    :: else ->
        pending_for_ever = (st == FILLING);
        claim_for_ever = claim;
        assert(!pending_for_ever);
        assert(!claim_for_ever)
    fi;
    assert(st != READY || copied);
    assert(!copy_runs[0] && !copy_runs[1]);
    assert(runner_dead || ran[0] == 0 || told[0] == 1);
    assert(runner_dead || ran[1] == 0 || told[1] == 1)
}
