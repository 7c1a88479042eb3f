/* Chunks are as large as what is reserved makes them: an arena that is outgrown serves its holes, and
 * moves what is idle, until that becomes chunks of another one. */
#include "world.h"

#include "allocator/arena.h"
#include "allocator/domain.h"
#include "allocator/share.h"

#define SMALL 1536 /* chunks of 2 MiB */
#define SMALL_CHUNKS (SMALL * 2 * MIB)
#define STEP (64 * MIB)
#define STEPS (SMALL_CHUNKS / STEP)

static uint64_t block[STEPS];

static int setup(void **state)
{
    (void)state;
    world_remake("expandable_segments:True", 64 * GIB);
    for (unsigned i = 0; i < STEPS; i++)
        block[i] = take(STEP);
    assert_int_equal(w.device.ranges, 1);
    assert_int_equal(w.device.calls[FAKE_CREATE], SMALL_CHUNKS / (2 * MIB));
    return 0;
}

static void chunks_grow(void **state)
{
    (void)state;
    take(STEP);
    assert_int_equal(w.device.ranges, 2);
    assert_int_equal(w.device.calls[FAKE_CREATE], SMALL + 8);
    take(20 * GIB);
    assert_int_equal(w.device.ranges, 2); /* they are large enough */
    assert_int_equal(CURRENT(reserved_bytes), 20 * GIB + SMALL_CHUNKS + STEP);
    assert_int_equal(CURRENT(segment), SMALL + 8 + 2560);
}

static void who_asks_for_much_gets_large_ones(void **state)
{
    (void)state;
    world_remake("expandable_segments:True", 64 * GIB);
    take(5 * GIB);
    assert_int_equal(w.device.calls[FAKE_CREATE], 640);
    world_remake("expandable_segments:True,large_segment_size_mb:4", 64 * GIB);
    take(5 * GIB);
    assert_int_equal(w.device.calls[FAKE_CREATE], 1280);
    assert_int_equal(w.device.ranges, 1);
}

static const struct lane_ops no_lane; /* but others' work may be under way */

/* Nobody waits for it. */
static void device_is_busy(int busy)
{
    w.device.instant = !busy;
    w.domain->lane.ops = busy ? &no_lane : NULL;
}

/* What is idle in the arena that is outgrown becomes chunks of the other one, whatever is under way. */
static void what_is_idle_serves_the_larger_chunks(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        setup(NULL);
        give(block[3]);
        give(block[9]);
        device_is_busy(busy);
        uint64_t waits = w.device.calls[FAKE_WAIT], released = w.device.calls[FAKE_RELEASE];
        uint64_t made = w.device.calls[FAKE_CREATE], mapped = w.device.calls[FAKE_MAP];
        take(3 * STEP);
        assert_int_equal(w.device.calls[FAKE_CREATE] - made, STEP / (8 * MIB));
        assert_int_equal(w.device.calls[FAKE_MAP] - mapped,
                         2 * STEP / (2 * MIB) + STEP / (8 * MIB));
        assert_int_equal(w.device.calls[FAKE_RELEASE], released);
        assert_int_equal(w.device.calls[FAKE_WAIT], waits);
        assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
        assert_int_equal(CURRENT(segment), SMALL - 2 * STEP / (2 * MIB) + 3 * STEP / (8 * MIB));
        assert_int_equal(w.device.most_used, SMALL_CHUNKS + STEP);
        device_is_busy(0);
    }
}

/* Together with what is idle in the other one nothing need grow. */
static void what_is_idle_in_both_is_enough(void **state)
{
    (void)state;
    give(take(STEP));
    give(block[3]);
    give(block[9]);
    device_is_busy(1);
    take(3 * STEP);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
    assert_int_equal(CURRENT(active_bytes), SMALL_CHUNKS + STEP);
    device_is_busy(0);
}

/* It goes back as any memory does, and its old place is as new. */
static void what_served_the_larger_chunks_goes_back(void **state)
{
    (void)state;
    give(block[3]);
    give(block[9]);
    uint64_t large = take(3 * STEP);
    give(large);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS - 2 * STEP);
    assert_int_equal(w.device.used, SMALL_CHUNKS - 2 * STEP);
    assert_int_equal(w.device.mapped, (SMALL_CHUNKS - 2 * STEP) / (2 * MIB));
    assert_true(take(3 * STEP) == large);
    give(block[4]);
    assert_true(take(STEP) == block[4]);
}

/* Also when the driver did not take the mapping of one of them down at first. */
static void what_stays_mapped_goes_back_later(void **state)
{
    (void)state;
    for (uint64_t call = 1; call < 4; call++) {
        setup(NULL);
        give(block[3]);
        give(block[9]);
        give(take(3 * STEP));
        w.device.failing = FAKE_UNMAP;
        w.device.failing_number = w.device.calls[FAKE_UNMAP] + call;
        domain_empty_cache(w.domain, 1);
        domain_empty_cache(w.domain, 1);
        assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS - 2 * STEP);
        assert_int_equal(w.device.used, SMALL_CHUNKS - 2 * STEP);
        assert_int_equal(w.device.mapped, (SMALL_CHUNKS - 2 * STEP) / (2 * MIB));
    }
}

/* At its old place it is nobody's, nor is its number. */
static void what_serves_the_larger_chunks_serves_nobody_else(void **state)
{
    (void)state;
    give(block[3]);
    give(block[4]);
    take(3 * STEP);
    give(block[10]);
    give(block[20]);
    uint64_t mapped = w.device.calls[FAKE_MAP];
    take(2 * STEP - MIB); /* would fit in there, but other memory must be mapped for it */
    assert_int_equal(w.device.calls[FAKE_MAP] - mapped, 2 * STEP / (2 * MIB));
    for (int i = 0; i < 8; i++)
        take(MIB);
    assert_int_equal(w.device.used, CURRENT(reserved_bytes));
}

/* The driver refuses one of the pieces: the request is served otherwise, and nothing is lost. */
static void a_piece_that_cannot_be_mapped_stays(void **state)
{
    (void)state;
    for (int piece = 1; piece < 6; piece++) {
        setup(NULL);
        give(block[3]);
        w.device.failing = FAKE_MAP;
        w.device.failing_number = w.device.calls[FAKE_MAP] + (uint64_t)piece;
        uint64_t one = take(STEP + MIB), other = take(2 * STEP);
        for (unsigned i = 0; i < STEPS; i++)
            if (i != 3)
                give(block[i]);
        domain_empty_cache(w.domain, 1);
        assert_true(CURRENT(reserved_bytes) >= 3 * STEP + MIB);
        assert_true(CURRENT(reserved_bytes) <= 3 * STEP + 2 * 8 * MIB);
        assert_int_equal(w.device.used, CURRENT(reserved_bytes));
        give(one);
        give(other);
        domain_empty_cache(w.domain, 1);
        assert_int_equal(w.device.used, 0);
        assert_int_equal(w.device.mapped, 0);
    }
}

/* Another process gets it piece by piece. */
static uint64_t pieces, piece_bytes, last_handle;

static int note_piece(void *unused, uint64_t handle, uint64_t bytes)
{
    (void)unused;
    assert_true(handle && handle != last_handle);
    last_handle = handle;
    pieces++;
    piece_bytes += bytes;
    return 0;
}

static void its_pieces_are_lent(void **state)
{
    struct block_place place;
    struct block_loan loan;
    (void)state;
    give(block[3]);
    uint64_t shared = take(STEP + 16 * MIB);
    assert_int_equal(domain_mark(w.domain, shared, BLOCK_LENT, &place), 0);
    pieces = piece_bytes = last_handle = 0;
    assert_int_equal(domain_lend(w.domain, shared, place.name, &loan, note_piece, NULL), 0);
    assert_int_equal(loan.offset, 0);
    assert_int_equal(loan.bytes, STEP + 16 * MIB);
    assert_int_equal(piece_bytes, loan.bytes);
    assert_int_equal(pieces, STEP / (2 * MIB) + 2);
}

/* What a larger chunk is made of keeps its numbers, also where lower ones have become free. */
static void its_pieces_keep_their_numbers(void **state)
{
    (void)state;
    give(block[1]);
    domain_empty_cache(w.domain, 1);
    give(block[3]);
    give(block[9]);
    take(3 * STEP);
    for (unsigned i = 0; i < 2 * STEP / MIB; i++) /* more than have become free */
        take(MIB);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + 2 * STEP);
    assert_int_equal(w.device.used, CURRENT(reserved_bytes));
}

static void what_is_idle_serves_first(void **state)
{
    (void)state;
    take(STEP);
    give(block[3]);
    give(block[9]);
    uint64_t made = w.device.calls[FAKE_CREATE];
    uint64_t hole = take(STEP), moved = 0;
    give(block[12]);
    assert_true(hole == block[3] || hole == block[9]);
    moved = take(2 * STEP); /* of two holes that lie apart */
    assert_int_equal(w.device.calls[FAKE_CREATE], made);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
    give(moved);
    give(hole);
    domain_empty_cache(w.domain, 1);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS - 2 * STEP);
    assert_int_equal(w.device.used, SMALL_CHUNKS - 2 * STEP);
}

static void without_addresses_it_grows_on(void **state)
{
    (void)state;
    w.device.code[FAKE_RESERVE] = FAKE_OOM;
    take(STEP);
    w.device.code[FAKE_RESERVE] = 0;
    take(STEP);
    assert_int_equal(w.device.ranges, 1);
    assert_int_equal(w.device.calls[FAKE_CREATE], SMALL + 64);
}

static void what_cannot_be_had_outgrows_nothing(void **state)
{
    uint64_t none;
    (void)state;
    assert_int_equal(allocator_malloc(w.a, 100 * GIB, &none), FAKE_OOM);
    assert_int_equal(w.device.ranges, 1);
    world_remake("expandable_segments:True", 64 * GIB);
    take(4 * MIB);
    assert_int_equal(allocator_malloc(w.a, 100 * GIB, &none), FAKE_OOM);
    uint64_t used = w.device.used;
    take(3 * MIB); /* of chunks of 2 MiB, as before */
    assert_int_equal(w.device.used - used, 4 * MIB);
}

/* What has to go back does so first, whichever arena it is in. */
static void what_can_only_go_back_goes_first(void **state)
{
    struct block_place place;
    (void)state;
    uint64_t pinned = take(STEP);
    take(STEP);
    assert_int_equal(domain_mark(w.domain, pinned, BLOCK_PINNED, &place), 0);
    give(pinned);
    give(block[3]);
    assert_int_equal(arena_retired(w.a), STEP);
    take(2 * STEP);
    assert_int_equal(arena_retired(w.a), 0);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + 2 * STEP);
}

/* Small blocks lie in the first arena alone: what is idle in another one goes back before that grows. */
static void small_blocks_do_not_grow_beside_what_is_idle(void **state)
{
    (void)state;
    give(take(STEP));
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + STEP);
    for (unsigned i = 0; i < 2 * STEP / MIB; i++)
        take(MIB);
    assert_int_equal(CURRENT(reserved_bytes), SMALL_CHUNKS + 2 * STEP);
    assert_int_equal(CURRENT_IN(reserved_bytes, SMALL_POOL), 2 * STEP);
}

static uint64_t other_block;

static void another_grows(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RESERVE || after || other_block)
        return;
    assert_ptr_equal(device, &w.device);
    other_block = 1;
    other_block = take(STEP);
}

static void two_threads_outgrow_it_at_once(void **state)
{
    (void)state;
    other_block = 0;
    w.device.meanwhile = another_grows;
    uint64_t mine = take(STEP);
    w.device.meanwhile = NULL;
    assert_int_equal(w.device.ranges, 2);
    assert_int_equal(w.device.calls[FAKE_CREATE], SMALL + 16);
    give(mine);
    give(other_block);
    assert_int_equal(take(2 * STEP), mine < other_block ? mine : other_block);
}

static void the_context_ends(struct fake_device *device, enum fake_call call, int after)
{
    if (call != FAKE_RESERVE || after)
        return;
    device->meanwhile = NULL;
    assert_int_equal(allocator_forget(w.a), STEPS);
}

static void a_context_that_ends_leaves_nothing(void **state)
{
    (void)state;
    take(STEP);
    give(take(5 * GIB));
    assert_int_equal(w.device.ranges, 2);
    assert_int_equal(allocator_forget(w.a), STEPS + 1);
    assert_int_equal(CURRENT(reserved_bytes), 0);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.mapped, 0);
    assert_int_equal(w.device.ranges, 0);

    setup(NULL);
    w.device.meanwhile = the_context_ends;
    assert_int_equal(try_take(STEP), ALLOCATOR_PASS);
    allocator_bury(w.a);
    assert_int_equal(w.device.used, 0);
    assert_int_equal(w.device.ranges, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(chunks_grow, setup),
        cmocka_unit_test_setup(who_asks_for_much_gets_large_ones, setup),
        cmocka_unit_test_setup(what_is_idle_serves_the_larger_chunks, setup),
        cmocka_unit_test_setup(what_is_idle_in_both_is_enough, setup),
        cmocka_unit_test_setup(what_served_the_larger_chunks_goes_back, setup),
        cmocka_unit_test_setup(what_stays_mapped_goes_back_later, setup),
        cmocka_unit_test_setup(what_serves_the_larger_chunks_serves_nobody_else, setup),
        cmocka_unit_test_setup(a_piece_that_cannot_be_mapped_stays, setup),
        cmocka_unit_test_setup(its_pieces_are_lent, setup),
        cmocka_unit_test_setup(its_pieces_keep_their_numbers, setup),
        cmocka_unit_test_setup(what_is_idle_serves_first, setup),
        cmocka_unit_test_setup(without_addresses_it_grows_on, setup),
        cmocka_unit_test_setup(what_cannot_be_had_outgrows_nothing, setup),
        cmocka_unit_test_setup(what_can_only_go_back_goes_first, setup),
        cmocka_unit_test_setup(small_blocks_do_not_grow_beside_what_is_idle, setup),
        cmocka_unit_test_setup(two_threads_outgrow_it_at_once, setup),
        cmocka_unit_test_setup(a_context_that_ends_leaves_nothing, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
