/* A client's object as the client drives it and as workers read it. Who writes which field is
 * told in shm/client.h; a client dead at any point leaves words that workers ignore by lock and
 * generation. */
#include "shm/client.h"

#include "shm/crash_point.h"

#include <unistd.h>

void spw_client_view_init(struct spw_client_view *view, struct spw_client_head *head,
                          const struct spw_geometry *geometry)
{
    struct spw_client_map map;
    uint8_t *start = (uint8_t *)head;
    spw_client_map_init(geometry, &map);
    *view = (struct spw_client_view){
        .head = head,
        .pin = (spw_atomic64 *)(void *)(start + map.pin_off),
        .awaited = (spw_atomic64 *)(void *)(start + map.awaited_off),
        .command = (struct spw_lane_slot *)(void *)(start + map.command_off),
        .completion = (struct spw_lane_slot *)(void *)(start + map.completion_off),
        .claim_words = spw_claim_words(geometry),
        .workers = geometry->workers,
        .slots = geometry->slots,
        .command_slots = geometry->command_slots,
        .completion_slots = geometry->completion_slots,
    };
}

/* Empty one lane pair: commands go on beyond everything that anybody may have seen, half-written
 * messages included; completions that are there already are skipped. */
static void reset_lane(struct spw_client_view *view, uint32_t k)
{
    struct spw_lane_client *ours = &view->head->lane[k];
    struct spw_lane_worker *theirs = &view->head->worker_lane[k];
    uint64_t tail = spw_load_relaxed(&ours->command_tail);
    uint64_t head = spw_load_relaxed(&theirs->command_head);
    if (spw_pos_before(tail, head))
        tail = head;
    uint64_t base = spw_lane_highest(&view->command[(uint64_t)k * view->command_slots],
                                     view->command_slots, tail);
    spw_store_relaxed(&ours->command_base, base);
    SPW_CRASH_POINT("client.base_stored");
    /* [LN-3] release: base before the tail that makes the old one invalid */
    spw_store_release(&ours->command_tail, base);
    SPW_CRASH_POINT("client.tail_stored");
    spw_store_relaxed(&ours->completion_head, spw_load_relaxed(&theirs->completion_tail));
}

uint64_t spw_client_take_over(struct spw_client_view *view)
{
    struct spw_client_head *head = view->head;
    for (uint32_t k = 0; k < SPW_WORKERS_MAX; k++)
        spw_store_relaxed(&head->applied[k], 0);
    SPW_CRASH_POINT("client.words_cleared");
    for (uint64_t w = 0; w < view->workers * view->claim_words; w++)
        spw_store_relaxed(&view->pin[w], 0);
    SPW_CRASH_POINT("client.pins_cleared");
    for (uint64_t w = 0; w < view->workers * view->claim_words; w++)
        spw_store_relaxed(&view->awaited[w], 0);
    SPW_CRASH_POINT("client.awaited_cleared");
    for (uint32_t k = 0; k < view->workers; k++)
        spw_client_await_changed(view, k);
    for (uint32_t k = 0; k < view->workers; k++)
        reset_lane(view, k);
    /* relaxed: its records are the last holder's up to here; numbers go on, so that none comes twice */
    spw_store_relaxed(&head->decision_base, spw_load_relaxed(&head->decisions));
    spw_store_relaxed(&head->pid, (uint64_t)getpid());
    spw_fence_full();
    uint64_t generation = spw_load_relaxed(&head->generation) + 1;
    /* [CL-1] release: an object that is in order before the generation that says so */
    spw_store_release(&head->generation, generation);
    SPW_CRASH_POINT("client.generation_stored");
    return generation;
}

uint64_t spw_client_step_begin(struct spw_client_view *view, const uint64_t *positions)
{
    struct spw_client_head *head = view->head;
    uint64_t step = spw_load_relaxed(&head->step) + 1;
    spw_store_relaxed(&head->step, step);
    SPW_CRASH_POINT("client.step_stored");
    for (uint32_t k = 0; k < view->workers; k++) {
        /* [ST-4] release: step number before the words that belong to it */
        spw_store_release(&head->applied[k], spw_client_applied_word(positions[k]));
        SPW_CRASH_POINT("client.old_position_stored");
    }
    /* [ST-1] full fence: old positions before the tails are read */
    spw_fence_full();
    return step;
}

void spw_client_step_applied(struct spw_client_view *view, uint32_t k, uint64_t position)
{
    /* [ST-2] release: records applied before the position that says so */
    spw_store_release(&view->head->applied[k], spw_client_applied_word(position));
    SPW_CRASH_POINT("client.position_stored");
}

void spw_client_step_end(struct spw_client_view *view)
{
    for (uint32_t k = 0; k < view->workers; k++) {
        /* [ST-3] release: pins and commands of the step before its end */
        spw_store_release(&view->head->applied[k], 0);
        SPW_CRASH_POINT("client.step_ended");
    }
}

void spw_client_await(struct spw_client_view *view, uint32_t shard, uint32_t slot, bool awaited)
{
    uint64_t bit = spw_claim_bit(view->claim_words, shard, slot);
    if (awaited)
        spw_bit_set(view->awaited, bit);
    else
        spw_bit_clear(view->awaited, bit);
    SPW_CRASH_POINT("client.awaited_stored");
}

void spw_client_await_changed(struct spw_client_view *view, uint32_t shard)
{
    spw_atomic64 *changes = &view->head->awaited_changes[shard];
    /* [AW-1] release: the bits before the count that tells of them */
    spw_store_release(changes, spw_load_relaxed(changes) + 1);
    SPW_CRASH_POINT("client.awaited_told");
}

uint64_t spw_client_awaited_changes(const struct spw_client_view *view, uint32_t k)
{
    /* [AW-1] acquire: the count before the bits it tells of */
    return spw_load_acquire(&view->head->awaited_changes[k]);
}

void spw_client_claim_read(const struct spw_client_view *view, uint32_t k,
                           struct spw_client_claim *out_claim)
{
    const struct spw_client_head *head = view->head;
    struct spw_client_claim claim;
    /* [CL-1] acquire: generation before the words of its holder */
    claim.generation = spw_load_acquire(&head->generation);
    /* [ST-2] [ST-3] [ST-4] acquire: the word before step, pins and lanes */
    claim.applied = spw_load_acquire(&head->applied[k]);
    claim.step = spw_load_relaxed(&head->step);
    *out_claim = claim;
}

bool spw_client_has_untaken(const struct spw_client_view *view)
{
    const struct spw_client_head *head = view->head;
    uint64_t tail[SPW_WORKERS_MAX];
    spw_fence_acquire(); /* the caller's look at the pins stays before the look at the tails */
    for (uint32_t k = 0; k < view->workers; k++) {
        /* [LN-3] acquire: tail before base, and before every head */
        tail[k] = spw_load_acquire(&head->lane[k].command_tail);
    }
    for (uint32_t k = 0; k < view->workers; k++) {
        /* [LN-2] acquire: taken before the copying bit that took over from the pin */
        uint64_t from = spw_load_acquire(&head->worker_lane[k].command_head);
        uint64_t base = spw_load_relaxed(&head->lane[k].command_base);
        if (spw_pos_before(from, base))
            from = base;
        if (from != tail[k])
            return true;
    }
    return false;
}
