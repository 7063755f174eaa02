/*
 * Update ring: one worker writes, every client reads all of it (shm/bcast_ring.c).
 *
 * A slot holds a sequence and two payload words. The writer reserves G positions at a time by moving
 * the gate, and only then touches their slots; the reader copies first and looks at the gate after.
 * Positions count from 0 here: the record at position k has sequence k + 1, and tail t means that the
 * records below t are published. Stores reach memory in any order, one pending for each location, and a
 * release or a fence lets all earlier ones through: weaker than x86, as C11 allows.
 *
 * Writer, for each batch (spw_bcast_publish)
 *   R1  if the batch goes past the gate: gate := a multiple of G at or above its end; release fence
 *   R2  for each record: payload words (relaxed), then the slot's sequence (release)
 *   R3  tail := one past the batch (release)
 * The table entry's version is stored before R1 (table first, ring second).
 *
 * Successor (spw_bcast_adopt), after its predecessor was reaped
 *   A1  next position := the highest sequence in any slot; the gate stays where it is
 *   A2  publish records without key until the highest version in the table is published
 *   A3  tail := next position (also where nothing had to be published)
 *
 * Reader, at cursor c (spw_bcast_drain and its caller)
 *   D1  t := tail (acquire)
 *   D2  slot sequence (acquire): c + 1 go on; more: lapped; less: no news, and below t that is a gap
 *   D3  copy the payload (relaxed); acquire fence; gate: c + N < gate means lapped
 *   D4  after a gap: resync from the state table, with c := tail (the resync itself: snapshot.pml)
 *
 * Properties: a record taken is whole and the one its position was published with; positions come in
 * order and once; a gap is only reported to a reader that was lapped, or where records were skipped;
 * the reader ends at the last record; versions in the table never lie above the tail once a
 * successor is done.
 *
 *   holds                          | two slots, reserved one at a time, no crash
 *   holds -DCRASHES=2 -DLAST=4     | a writer that dies at any store, and its successor too
 *   holds -DN=4 -DG=2 -DBATCH=2 -DLAST=7 | four slots, reserved and published in pairs
 *   holds -DCRASHES=1 -DN=4 -DG=2 -DBATCH=2 -DLAST=5 | the same with one death
 *   holds -DCRASHES=1 -DSKIP_POSITIONS | a successor that skips positions: readers see a gap and go on
 *   fails -DNO_CHECK | torn | the reader doesn't look at the gate
 *   fails -DEARLY_CHECK | torn | the reader looks at the gate before it copies
 *   fails -DNO_RELEASE_FENCE | torn | no fence between gate and payload
 *   fails -DRELAXED_SEQUENCE | torn | the sequence is stored without release
 *   fails -DSEQUENCE_FIRST | torn | the sequence is stored before the payload
 *   fails -DLOWER_GATE -DCRASHES=1 | torn | the successor lowers the gate to where it resumes
 *   fails -DRESUME_AT_TAIL -DCRASHES=1 | torn or lost | the successor resumes at the tail, not at the highest sequence
 *   fails -DNO_FILLERS -DCRASHES=1 | version_reused | the successor doesn't publish up to the highest version
 *   fails -DTAIL_FIRST | false_gap | the tail is stored before the records
 *   fails -DNO_A3 -DCRASHES=1 -DLAST=3 | tail==3 | the successor doesn't repair the tail
 *   fails -DWAIT_AT_HOLE -DCRASHES=1 -DSKIP_POSITIONS | invalid end state | a reader waits where a record is missing
 */
#ifndef N
#define N 2
#endif
#ifndef G
#define G 1
#endif
#ifndef BATCH
#define BATCH 1
#endif
#ifndef LAST
#define LAST 5
#endif
#ifndef CRASHES
#define CRASHES 0
#endif

#define RECORD(pos) (8 + (pos))   /* payload of a record with a key          */
#define FILLER(pos) (40 + (pos))  /* payload of a successor's keyless record */

byte seq[N], word0[N], word1[N], gate, tail; /* memory                                  */
byte p_seq[N], p_word0[N], p_word1[N];       /* pending stores: 0 none, else value + 1  */
byte p_gate, p_tail;
byte version;                                /* highest version in the state table      */
byte keyed[LAST + 1];                        /* a record with a key became visible here */
byte crashes;
bool skipped[LAST + 1];                      /* a successor left no record here         */
bool writer_done;
bool torn, lost, false_gap, version_reused;

/* What a release store or a fence promises: everything earlier is visible. */
inline let_through()
{
    d_step {
        d = 0;
        do
        :: d < N ->
            if :: p_word0[d] -> word0[d] = p_word0[d] - 1; p_word0[d] = 0 :: else fi;
            if :: p_word1[d] -> word1[d] = p_word1[d] - 1; p_word1[d] = 0 :: else fi;
            if :: p_seq[d] -> show_sequence(d) :: else fi;
            d++
        :: else -> break
        od;
        d = 0;
        if :: p_gate -> gate = p_gate - 1; p_gate = 0 :: else fi;
        if :: p_tail -> tail = p_tail - 1; p_tail = 0 :: else fi
    }
}

inline show_sequence(i)
{
    seq[i] = p_seq[i] - 1;
    p_seq[i] = 0;
    if
    :: p_word0[i] == 0 && p_word1[i] == 0 && word0[i] == RECORD(seq[i] - 1) -> keyed[seq[i] - 1] = 1
    :: else
    fi
}

/* Lets any one pending store through at any time. */
active proctype Memory()
{
    byte i;
end:
    do
    :: d_step { p_gate -> gate = p_gate - 1; p_gate = 0 }
    :: d_step { p_tail -> tail = p_tail - 1; p_tail = 0 }
    :: d_step { p_word0[0] -> word0[0] = p_word0[0] - 1; p_word0[0] = 0 }
    :: d_step { p_word1[0] -> word1[0] = p_word1[0] - 1; p_word1[0] = 0 }
    :: d_step { p_seq[0] -> show_sequence(0) }
    :: d_step { p_word0[1] -> word0[1] = p_word0[1] - 1; p_word0[1] = 0 }
    :: d_step { p_word1[1] -> word1[1] = p_word1[1] - 1; p_word1[1] = 0 }
    :: d_step { p_seq[1] -> show_sequence(1) }
#if N == 4
    :: d_step { p_word0[2] -> word0[2] = p_word0[2] - 1; p_word0[2] = 0 }
    :: d_step { p_word1[2] -> word1[2] = p_word1[2] - 1; p_word1[2] = 0 }
    :: d_step { p_seq[2] -> show_sequence(2) }
    :: d_step { p_word0[3] -> word0[3] = p_word0[3] - 1; p_word0[3] = 0 }
    :: d_step { p_word1[3] -> word1[3] = p_word1[3] - 1; p_word1[3] = 0 }
    :: d_step { p_seq[3] -> show_sequence(3) }
#endif
    od
}

#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: crashes < CRASHES -> crashes++; goto dead                                                   \
    :: true                                                                                        \
    fi

/* One record at position `pos`, with this payload. */
inline put_record(pos, payload)
{
#ifdef SEQUENCE_FIRST
    store(p_seq[pos % N], pos + 1);
#endif
    store(p_word0[pos % N], payload);
    MAY_DIE;
    store(p_word1[pos % N], payload);
    MAY_DIE;
#ifndef SEQUENCE_FIRST
#ifndef RELAXED_SEQUENCE
    let_through(); /* the release half of the next store */
#endif
    store(p_seq[pos % N], pos + 1);
    MAY_DIE;
#endif
}

/* A location has room for one pending store: an earlier one to the same place goes first. */
inline store(location, value) { atomic { location == 0 -> location = (value) + 1 } }

inline reserve(bound)
{
    if
    :: bound > reserved ->
        reserved = ((bound + G - 1) / G) * G;
        store(p_gate, reserved);
        MAY_DIE;
#ifndef NO_RELEASE_FENCE
        let_through()
#endif
    :: else
    fi
}

inline store_tail(pos)
{
    let_through();
    store(p_tail, pos);
    MAY_DIE
}

active proctype Writer()
{
    byte next, reserved, stop, d;
again:
    do
    :: next < LAST ->
        stop = (next + BATCH < LAST -> next + BATCH : LAST);
        version_reused = (version > next);
        assert(!version_reused);
        version = stop; /* the table first */
        MAY_DIE;
#ifdef TAIL_FIRST
        store_tail(stop);
#endif
R1:     reserve(stop);
R2:     do
        :: next < stop ->
            put_record(next, RECORD(next));
            next++
        :: else -> break
        od;
#ifndef TAIL_FIRST
R3:     store_tail(next)
#endif
    :: else -> break
    od;
    let_through();
    writer_done = true;
    assert(tail == LAST);
    goto fin;

dead:
    let_through(); /* what the dead process stored becomes visible, sooner or later */
A1: d_step {
        d = 0;
        next = 0;
        do
        :: d < N ->
            if :: seq[d] > next -> next = seq[d] :: else fi;
            d++
        :: else -> break
        od;
        d = 0;
#ifdef RESUME_AT_TAIL
        next = tail;
#endif
#ifdef LOWER_GATE
        gate = next;
#endif
        reserved = gate
    };
    if
    :: next > tail -> printf("records were published, the tail was not\n")
    :: else
    fi;
#ifdef SKIP_POSITIONS
    do
    :: next < version ->
        skipped[next] = true;
        next++
    :: else -> break
    od;
#else
#ifndef NO_FILLERS
A2: do
    :: next < version ->
        reserve(next + 1);
        put_record(next, FILLER(next));
        next++
    :: else -> break
    od;
#endif
#endif
#ifndef NO_A3
A3: store_tail(next);
#endif
    goto again;
fin:
    skip
}

/* Everything the record at `cursor` may say; a filler only where no record with a key was shown. */
inline check_record(a, b)
{
    d_step {
        torn = !(a == b && (a == RECORD(cursor) || a == FILLER(cursor)));
        lost = (a == FILLER(cursor) && keyed[cursor])
    };
    assert(!torn);
    assert(!lost)
}

active proctype Reader()
{
    byte cursor, t, s, a, b, g;
    bool last, gap, below_tail;
    do
    :: true ->
        last = writer_done;
D1:     if
        :: t = tail; below_tail = true
        :: t = cursor + 1; below_tail = false; printf("looks for a record beyond the tail\n")
        fi;
        gap = false;
        do
        :: cursor < t && !gap && cursor < LAST ->
#ifdef EARLY_CHECK
            g = gate;
#endif
D2:         s = seq[cursor % N];
            if
            :: s == cursor + 1 ->
D3:             a = word0[cursor % N];
                b = word1[cursor % N];
#ifndef EARLY_CHECK
                g = gate;
#endif
#ifdef NO_CHECK
                g = 0;
#endif
                if
                :: cursor + N >= g ->
                    check_record(a, b);
                    if :: a == FILLER(cursor) -> printf("takes a filler\n") :: else fi;
                    cursor++
                :: else -> gap = true; printf("lapped while it copied\n")
                fi
            :: s > cursor + 1 -> gap = true; printf("lapped before it copied\n")
            :: s < cursor + 1 && !below_tail -> break /* no news */
            :: s < cursor + 1 && below_tail ->
#ifdef WAIT_AT_HOLE
                seq[cursor % N] > cursor;
#else
                gap = true;
                false_gap = !skipped[cursor];
                assert(!false_gap);
                printf("no record below the tail\n")
#endif
            fi
        :: else -> break
        od;
D4:     if :: gap -> cursor = tail :: else fi;
        if :: last && cursor == LAST -> break :: else fi
    od
}
