#ifndef SPW_SHM_ATOMIC_H
#define SPW_SHM_ATOMIC_H
/*
 * The only place that names C11 atomics. Operations are named by their order; each ordered use
 * carries a label and its partner carries the same one. Shared fields have one writer, so there
 * is no read-modify-write here: a writer loads, changes and stores its own field.
 */
#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic(uint64_t) spw_atomic64;
typedef _Atomic(uint32_t) spw_atomic32;

#define spw_load_relaxed(at)         atomic_load_explicit((at), memory_order_relaxed)
#define spw_load_acquire(at)         atomic_load_explicit((at), memory_order_acquire)
#define spw_store_relaxed(at, value) atomic_store_explicit((at), (value), memory_order_relaxed)
#define spw_store_release(at, value) atomic_store_explicit((at), (value), memory_order_release)

static inline void spw_fence_acquire(void)
{
    atomic_thread_fence(memory_order_acquire);
}

static inline void spw_fence_release(void)
{
    atomic_thread_fence(memory_order_release);
}

/** Stores before it are visible before loads after it read. */
static inline void spw_fence_full(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/** Add to a field that only this process writes; readers see it whole, in no order. */
static inline void spw_add_own(spw_atomic64 *at, uint64_t amount)
{
    spw_store_relaxed(at, spw_load_relaxed(at) + amount);
}

/* Bitmaps of 64-bit words with one writer; the caller adds the order it needs. */
static inline uint64_t spw_bit_test(const spw_atomic64 *words, uint64_t bit)
{
    return spw_load_relaxed(&words[bit / 64]) >> (bit % 64) & 1;
}

static inline void spw_bit_set(spw_atomic64 *words, uint64_t bit)
{
    spw_store_relaxed(&words[bit / 64], spw_load_relaxed(&words[bit / 64]) | 1ull << bit % 64);
}

static inline void spw_bit_clear(spw_atomic64 *words, uint64_t bit)
{
    spw_store_relaxed(&words[bit / 64], spw_load_relaxed(&words[bit / 64]) & ~(1ull << bit % 64));
}

static inline void spw_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
