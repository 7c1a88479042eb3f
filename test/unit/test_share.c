/* Blocks that leave the process (exported) or keep a setting of the program's (pinned). */
#include "allocator/segment/segment.h"
#include "allocator/share.h"
#include "world.h"
#include "allocator/pool/segment_books.h"

static struct block_place place;

static int mark(uint64_t address, enum block_mark as)
{
    return domain_mark(w.domain, address, as, &place);
}

static void a_pinned_block_is_never_handed_out_again(void **state)
{
    (void)state;
    uint64_t block = take(20 * MIB);
    assert_int_equal(mark(block, BLOCK_PINNED), 0);
    assert_int_equal(COUNTER(num_pinned_blocks), 1);
    give(block);
    assert_int_not_equal(take(20 * MIB), block);
    assert_int_equal(mark(take(512), BLOCK_PINNED), 0);
}

/* Nor is anything else of its segment: the setting is the driver allocation's. */
static void its_segment_with_it(void **state)
{
    (void)state;
    uint64_t first = take(5 * MIB), second = take(5 * MIB);
    assert_int_equal(mark(second + 77, BLOCK_PINNED), 0); /* any address inside */
    assert_int_equal(place.offset, 5 * MIB);
    assert_int_equal(mark(second, BLOCK_PINNED), 0);
    assert_int_equal(COUNTER(num_pinned_blocks), 1);
    give(first);
    uint64_t other = take(5 * MIB);
    assert_true(other < first || other >= first + 20 * MIB);
    give(second);
    assert_int_equal(w.device.calls[FAKE_FREE], 0);
    assert_true(take(30 * MIB) >= first + 20 * MIB);
    assert_int_equal(w.device.calls[FAKE_FREE],
                     1); /* the driver has it back before anything grows */
}

static void the_place_of_an_exported_block(void **state)
{
    (void)state;
    uint64_t first = take(5 * MIB), second = take(6 * MIB);
    assert_int_equal(mark(second + 5, BLOCK_EXPORTED), 0);
    assert_true(place.segment_address == first);
    assert_int_equal(place.offset, 5 * MIB);
    assert_int_equal(place.size_bytes, 6 * MIB);
    assert_int_equal(mark(first, BLOCK_EXPORTED), 0);
    assert_int_equal(place.offset, 0);
    assert_int_equal(COUNTER(num_exports), 2);
    assert_int_equal(COUNTER(num_offset_exports), 1);
}

static void from_then_on_large_blocks_are_whole_segments(void **state)
{
    (void)state;
    assert_int_equal(mark(take(5 * MIB), BLOCK_EXPORTED), 0);
    uint64_t a = take(3 * MIB), b = take(3 * MIB);
    assert_int_equal(fake_segment(a), 4 * MIB);
    assert_int_equal(fake_segment(b), 4 * MIB);
    uint64_t small = take(2 * MIB - 512); /* below 2 MiB as ever: out of a 20 MiB segment */
    assert_int_equal(fake_segment(small), 0);
    assert_int_equal(CURRENT(segment), 3);
}

static void dedicated_blocks_are_used_again_whole(void **state)
{
    (void)state;
    world_remake("ipc:dedicated", UINT64_MAX);
    uint64_t block = take(8 * MIB);
    assert_int_equal(fake_segment(block), 8 * MIB);
    give(block);
    assert_int_equal(take(7 * MIB), block); /* within 2 MiB: taken, not split */
    assert_int_equal(CURRENT(allocated_bytes), 8 * MIB);
    assert_int_equal(CURRENT(inactive_split), 0);
    give(block);
    assert_int_not_equal(take(4 * MIB), block); /* too wasteful */
}

static void what_the_program_does_not_hold_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mark(0x1000, BLOCK_PINNED), ALLOCATOR_UNKNOWN);
    uint64_t block = take(512);
    assert_int_equal(mark(block + 512, BLOCK_PINNED), ALLOCATOR_INVALID); /* the reusable rest */
    give(block);
    assert_int_equal(mark(block, BLOCK_EXPORTED), ALLOCATOR_INVALID);
    assert_int_equal(mark(block + 2 * MIB, BLOCK_EXPORTED), ALLOCATOR_UNKNOWN);
    assert_int_equal(COUNTER(num_exports) + COUNTER(num_pinned_blocks), 0);
}

/* However many blocks the segment has: found without its list, which is taken away here. */
static void a_block_is_found_without_a_walk(void **state)
{
    (void)state;
    take(5 * MIB);
    uint64_t large = take(5 * MIB), small = take(512);
    for (int i = 0; i < 100; i++)
        take(512);
    uint64_t last = take(300 * KIB), freed = take(512),
             address[] = {large, small, last, last + 299 * KIB};
    give(freed);
    for (unsigned i = 0; i < sizeof address / sizeof *address; i++) {
        struct segment *segment = segment_holding(w.domain, address[i]);
        struct block *first = segment->first;
        segment->first = NULL;
        assert_int_equal(mark(address[i], BLOCK_EXPORTED), 0);
        segment->first = first;
        assert_true(place.segment_address + place.offset == (i < 3 ? address[i] : last));
    }
    assert_int_equal(mark(freed, BLOCK_EXPORTED), ALLOCATOR_INVALID);
    assert_int_equal(mark(freed + 511, BLOCK_EXPORTED), ALLOCATOR_INVALID);
}

/* Mapped memory: a name for each hand-out, and chunks lent to other processes. */
static uint64_t lent[64], lent_bytes[64], count, freed_meanwhile, released_meanwhile;

static int note(void *unused, uint64_t handle, uint64_t bytes)
{
    (void)unused;
    lent_bytes[count % 64] = bytes;
    lent[count++ % 64] = handle;
    if (freed_meanwhile && count == 1) {
        give(freed_meanwhile);
        released_meanwhile = domain_empty_cache(w.domain, 0);
    }
    return 0;
}

static int lend(uint64_t address, uint64_t name, struct block_loan *loan)
{
    count = 0;
    return domain_lend(w.domain, address, name, loan, note, NULL);
}

static void a_name_is_one_hand_outs_alone(void **state)
{
    struct block_place again;
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:2", 64 * MIB);
    uint64_t block = take(5 * MIB);
    assert_int_equal(domain_find(w.domain, block + MIB, &place), 0);
    assert_int_equal(place.requested_bytes, 5 * MIB);
    assert_int_equal(domain_find(w.domain, block, &again), 0);
    assert_int_equal(again.name, place.name);
    give(block);
    assert_int_equal(domain_find(w.domain, block, &again), ALLOCATOR_INVALID);
    assert_int_equal(take(5 * MIB), block);
    assert_int_equal(domain_find(w.domain, block, &again), 0);
    assert_int_not_equal(again.name, place.name);
    assert_true(again.mapped);
    block = take(512);
    assert_int_equal(domain_find(w.domain, block, &again), 0);
    assert_true(again.mapped);
    give(block);
    assert_int_equal(domain_find(w.domain, block, &again), ALLOCATOR_INVALID);
    assert_int_equal(domain_find(w.domain, 0x1000, &again), ALLOCATOR_UNKNOWN);
}

/* Of a hole in two slots the second part becomes one with the first when it is pinned, too. */
static void neighbours_are_pinned_one_after_another(void **state)
{
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:2", 64 * MIB);
    uint64_t first = take(MIB / 2), hole = take(MIB), other = take(MIB), last = take(MIB / 2);
    give(hole);
    give(other);
    assert_int_equal(domain_mark(w.domain, first, BLOCK_PINNED, &place), 0);
    assert_int_equal(domain_mark(w.domain, last, BLOCK_PINNED, &place), 0);
    assert_int_not_equal(take(MIB), hole);
    give(first);
    give(last);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), 2 * MIB);
}

/* A small block that keeps a setting of the program's: of its chunk nothing is handed out again, by
 * whatever way. */
static void a_pinned_small_block_keeps_its_chunk(void **state)
{
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:2", 64 * MIB);
    uint64_t block[9]; /* one more than a chunk holds */
    for (unsigned i = 0; i < 9; i++)
        block[i] = take(MIB / 4);
    assert_int_equal(domain_mark(w.domain, block[0], BLOCK_PINNED, &place), 0);
    give(block[1]);
    assert_int_not_equal(take(MIB / 4), block[1]);
    for (unsigned i = 0; i < 9; i++)
        if (i != 1)
            give(block[i]);
    assert_int_equal(domain_empty_cache(w.domain, 1), 4 * MIB - 2 * MIB);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 2 * MIB);
}

static void the_chunks_of_an_exported_block_are_lent(void **state)
{
    struct block_loan loan;
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:2", 64 * MIB);
    w.device.instant = 1;
    give(take(8 * MIB));
    uint64_t first = take(5 * MIB / 2), second = take(5 * MIB);
    assert_int_equal(domain_find(w.domain, second, &place), 0);
    assert_int_equal(lend(second, place.name, &loan), ALLOCATOR_UNKNOWN); /* not exported */
    assert_int_equal(mark(second, BLOCK_LENT), 0);
    assert_int_equal(lend(second, place.name, &loan), 0);
    assert_int_equal(loan.offset, MIB / 2);
    assert_int_equal(loan.bytes, 6 * MIB);
    assert_int_equal(count, 3);
    assert_int_equal(lent_bytes[2], 2 * MIB);
    assert_true(lent[0] && lent[0] != lent[1] && lent[1] != lent[2]);
    assert_int_equal(lend(second, place.name + 1, &loan), ALLOCATOR_UNKNOWN);
    assert_int_equal(lend(first, place.name, &loan), ALLOCATOR_UNKNOWN);
    assert_int_equal(fake_segment(take(20 * MIB)), 0); /* later ones are mapped, too */
}

/* What is being exported is not given back, and ends with its block. */
static void a_chunk_stays_while_it_is_lent(void **state)
{
    struct block_loan loan;
    (void)state;
    world_remake("expandable_segments:True,large_segment_size_mb:2", 64 * MIB);
    w.device.instant = 1;
    uint64_t block = freed_meanwhile = take(6 * MIB);
    assert_int_equal(mark(block, BLOCK_LENT), 0);
    assert_int_equal(lend(block, place.name, &loan), ALLOCATOR_UNKNOWN);
    freed_meanwhile = 0;
    assert_int_equal(count, 1);
    assert_int_equal(released_meanwhile, 4 * MIB);
    assert_int_equal(domain_empty_cache(w.domain, 0), 2 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(a_pinned_block_is_never_handed_out_again),
        RULE(its_segment_with_it),
        RULE(the_place_of_an_exported_block),
        RULE(from_then_on_large_blocks_are_whole_segments),
        RULE(dedicated_blocks_are_used_again_whole),
        RULE(what_the_program_does_not_hold_is_refused),
        RULE(a_block_is_found_without_a_walk),
        RULE(a_name_is_one_hand_outs_alone),
        RULE(neighbours_are_pinned_one_after_another),
        RULE(a_pinned_small_block_keeps_its_chunk),
        RULE(the_chunks_of_an_exported_block_are_lent),
        RULE(a_chunk_stays_while_it_is_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
