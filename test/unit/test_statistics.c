/* What each number means, at each step of a block's life. */
#include "world.h"

struct row {
    uint64_t allocation, allocated, requested, active, active_bytes, segment, reserved, split,
        split_bytes;
};

static void expect(struct row row)
{
    assert_int_equal(CURRENT(allocation), row.allocation);
    assert_int_equal(CURRENT(allocated_bytes), row.allocated);
    assert_int_equal(CURRENT(requested_bytes), row.requested);
    assert_int_equal(CURRENT(active), row.active);
    assert_int_equal(CURRENT(active_bytes), row.active_bytes);
    assert_int_equal(CURRENT(segment), row.segment);
    assert_int_equal(CURRENT(reserved_bytes), row.reserved);
    assert_int_equal(CURRENT(inactive_split), row.split);
    assert_int_equal(CURRENT(inactive_split_bytes), row.split_bytes);
}

/* Allocated falls at the free; requested and active when the block really becomes reusable. */
static void through_the_life_of_a_block(void **state)
{
    (void)state;
    w.device.instant = 0;
    expect((struct row){0});
    uint64_t block = take(1000);
    expect((struct row){1, 1024, 1000, 1, 1024, 1, 2 * MIB, 1, 2 * MIB - 1024});
    give(block);
    expect((struct row){0, 0, 1000, 1, 1024, 1, 2 * MIB, 1, 2 * MIB - 1024});
    pass_all();
    domain_poll(w.domain);
    expect((struct row){0, 0, 0, 0, 0, 1, 2 * MIB, 0, 0});
    w.device.instant = 1;
    assert_int_equal(domain_empty_cache(w.domain, 1), 2 * MIB);
    expect((struct row){0});
    assert_int_equal(COUNTER(num_hits), 0);
    assert_int_equal(COUNTER(num_device_alloc), 1);
    assert_int_equal(COUNTER(num_device_free), 1);
    assert_int_equal(COUNTER(num_fences), 1);
}

static void peaks_by_pool_and_of_both_together(void **state)
{
    (void)state;
    uint64_t small = take(MIB);
    give(small);
    uint64_t large = take(4 * MIB);
    give(large);
    take(512 * KIB);
    const struct pool_stat *stat = &w.stats.stat[STAT_allocated_bytes];
    assert_int_equal(stat->peak[SMALL_POOL], MIB);
    assert_int_equal(stat->peak[LARGE_POOL], 4 * MIB);
    assert_int_equal(stat->peak[STAT_POOLS],
                     4 * MIB); /* not the sum of the two: they were not at once */
    assert_int_equal(stat->allocated[SMALL_POOL], MIB + 512 * KIB);
    assert_int_equal(stat->freed[SMALL_POOL], MIB);
    assert_int_equal(PEAK(allocation), 1);
    assert_int_equal(PEAK(reserved_bytes), 22 * MIB);
    assert_int_equal(PEAK(segment), 2);
}

static void hits_are_what_the_driver_was_not_asked_for(void **state)
{
    uint64_t block;
    (void)state;
    take(512);
    take(512);
    assert_int_equal(COUNTER(num_hits), 1);
    assert_int_equal(hit(512, &block), 0);
    assert_int_equal(COUNTER(num_hits), 2);
    assert_int_equal(hit(8 * MIB, &block), ALLOCATOR_MISS);
    assert_int_equal(COUNTER(num_hits), 2);
    assert_int_equal(COUNTER(num_ooms), 0);
    give(take(8 * MIB));
    take(8 * MIB);
    assert_int_equal(COUNTER(num_hits), 3);
}

static void an_unsplit_tail_is_allocated_but_not_requested(void **state)
{
    (void)state;
    take(19 * MIB);
    assert_int_equal(CURRENT(allocated_bytes), 20 * MIB);
    assert_int_equal(CURRENT(requested_bytes), 19 * MIB);
}

static void reusable_bytes_and_the_largest_of_them(void **state)
{
    uint64_t block[3];
    (void)state;
    for (int i = 0; i < 3; i++)
        block[i] = take(4 * MIB);
    assert_int_equal(COUNTER(reusable_bytes), 8 * MIB);
    assert_int_equal(COUNTER(largest_allocatable_bytes), 8 * MIB);
    give(block[0]);
    assert_int_equal(COUNTER(reusable_bytes), 12 * MIB);
    assert_int_equal(COUNTER(largest_allocatable_bytes), 8 * MIB);
    give(block[1]);
    assert_int_equal(COUNTER(largest_allocatable_bytes), 8 * MIB);
    give(block[2]);
    assert_int_equal(COUNTER(largest_allocatable_bytes), 20 * MIB);
    take(512);
    assert_int_equal(COUNTER(reusable_bytes), 22 * MIB - 512);
    take(20 * MIB);
    assert_int_equal(COUNTER(largest_allocatable_bytes), 2 * MIB - 512);
}

/* Copied when a peak is set, and not when later events reach it again. */
static void fragmentation_at_the_peaks(void **state)
{
    uint64_t block[10];
    (void)state;
    for (int i = 0; i < 10; i++)
        block[i] = take(4 * MIB);
    for (int i = 0; i < 10; i += 2)
        give(block[i]);
    uint64_t big = take(64 * MIB);
    const stat_value *at = w.stats.at_peak_reserved;
    assert_int_equal(at[MOMENT_reserved_bytes], 104 * MIB);
    assert_int_equal(at[MOMENT_allocated_bytes], 84 * MIB);
    assert_int_equal(at[MOMENT_requested_bytes], 84 * MIB);
    assert_int_equal(at[MOMENT_inactive_split_bytes], 20 * MIB);
    assert_int_equal(at[MOMENT_reusable_bytes], 20 * MIB);
    assert_int_equal(at[MOMENT_largest_allocatable_bytes], 4 * MIB);
    give(big);
    take(64 * MIB - 512);
    assert_int_equal(at[MOMENT_requested_bytes],
                     84 * MIB); /* as high again: the first time stands */
    take(4 * MIB);
    assert_int_equal(w.stats.at_peak_allocated[MOMENT_allocated_bytes], 88 * MIB);
    assert_int_equal(w.stats.at_peak_allocated[MOMENT_reusable_bytes], 16 * MIB);
    assert_int_equal(at[MOMENT_allocated_bytes], 84 * MIB);
}

/* At the peak of reserved memory the block that needed the new segment counts as allocated. */
static void the_peak_is_noted_when_the_request_is_served(void **state)
{
    (void)state;
    take(64 * MIB);
    assert_int_equal(w.stats.at_peak_reserved[MOMENT_allocated_bytes], 64 * MIB);
    assert_int_equal(w.stats.at_peak_reserved[MOMENT_reusable_bytes], 0);
}

static void the_histogram_counts_requests(void **state)
{
    (void)state;
    uint64_t a = take(512), b = take(513), c = take(1024);
    take(1);
    assert_int_equal(w.stats.histogram_total[9], 1); /* more than 256, up to 512 */
    assert_int_equal(w.stats.histogram_total[10], 2);
    assert_int_equal(w.stats.histogram_total[0], 1);
    assert_int_equal(w.stats.histogram_live_bytes[10], 1537);
    give(a);
    give(b);
    assert_int_equal(w.stats.histogram_live[9], 0);
    assert_int_equal(w.stats.histogram_live[10], 1);
    assert_int_equal(w.stats.histogram_live_bytes[10], 1024);
    assert_int_equal(w.stats.histogram_total[10], 2);
    give(c);
    assert_int_equal(w.stats.histogram_live_bytes[10], 0);
}

struct tally {
    uint64_t blocks[3], bytes[3], requested, last_end;
    int in_order;
};

static void count(void *context, const struct snapshot_block *block)
{
    struct tally *tally = context;
    tally->blocks[block->state]++;
    tally->bytes[block->state] += block->size_bytes;
    tally->requested += block->requested_bytes;
    tally->in_order &=
        block->address >= tally->last_end && block->address >= block->segment_address;
    tally->last_end = block->address + block->size_bytes;
    tally->in_order &= tally->last_end <= block->segment_address + block->segment_bytes;
    tally->in_order &= fake_segment(block->segment_address) == block->segment_bytes;
    tally->in_order &= block->pool == (block->segment_bytes == 2 * MIB ? SMALL_POOL : LARGE_POOL);
}

static void a_walk_shows_every_block_once_in_order(void **state)
{
    struct tally tally = {.in_order = 1};
    (void)state;
    w.device.instant = 0;
    uint64_t pending = take(5 * MIB);
    take(5 * MIB);
    take(700);
    give(pending);
    domain_walk(w.domain, count, &tally);
    assert_true(tally.in_order);
    assert_int_equal(tally.blocks[SNAPSHOT_ALLOCATED], 2);
    assert_int_equal(tally.blocks[SNAPSHOT_PENDING], 1);
    assert_int_equal(tally.blocks[SNAPSHOT_REUSABLE], 2);
    assert_int_equal(tally.bytes[0] + tally.bytes[1] + tally.bytes[2], 22 * MIB);
    assert_int_equal(tally.requested, 10 * MIB + 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(through_the_life_of_a_block),
        RULE(peaks_by_pool_and_of_both_together),
        RULE(hits_are_what_the_driver_was_not_asked_for),
        RULE(an_unsplit_tail_is_allocated_but_not_requested),
        RULE(reusable_bytes_and_the_largest_of_them),
        RULE(fragmentation_at_the_peaks),
        RULE(the_peak_is_noted_when_the_request_is_served),
        RULE(the_histogram_counts_requests),
        RULE(a_walk_shows_every_block_once_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
