/*
 * x86 memory for the models: each process has a store buffer, first in, first out, which reaches
 * memory at any later time; loads see memory. A process never loads what it alone stores: it knows.
 * Relaxed and release stores are plain stores here, acquire and relaxed loads plain loads. What the
 * process left in its buffer when it died becomes visible, too.
 *
 * A model defines CELLS and names its cells; a process that stores is handed its buffer as `sb`.
 */
byte mem[CELLS];

#define LOAD(cell)         mem[cell]
#define STORE(cell, value) sb ! cell, value
#define FULL_FENCE         empty(sb)

proctype StoreBuffer(chan sb)
{
    byte cell, value;
end:
    do
    :: atomic { sb ? cell, value -> mem[cell] = value }
    od
}
