/* Planted bugs: name, the configuration in which it is found, and what is wrong in it. */
#ifndef CACHALOT_TEST_MODEL_PLANTS_H
#define CACHALOT_TEST_MODEL_PLANTS_H

/* clang-format off */
#define PLANTS(X)                                                                                      \
    X(NOTHING, "core", "the rule as it is")                                                            \
    X(NO_JOIN, "core", "the lane is left without E being owed")                                        \
    X(JOIN_LOST, "core", "a mark clears early as well as dirty")                                       \
    X(MARK_AT_JOIN, "core", "E is recorded when a stream joins, not before the next submission")       \
    X(FIRST_ONLY, "core", "only the first stream joins")                                               \
    X(NO_MARKING, "core", "others submit while E is being recorded")                                   \
    X(DIRTY_CLEARED_AFTER, "two-blocks", "a free during the marking counts as covered")                \
    X(NO_SLOT_WRITTEN, "two-blocks", "a lane is restored over a submission in flight")                       \
    X(NO_MEMBARRIER, "two-blocks", "slots are looked at without a barrier in those who write them")          \
    X(SLOTS_AT_PASSING, "two-blocks", "slots are looked at when the candidate has passed, not before it is recorded") \
    X(EPOCH_FIRST, "two-blocks", "the epoch is raised before the generation")                                \
    X(NOTE_KEPT, "core", "notes outlive their generation")                                             \
    X(NOTE_OF_DESTROYED, "destroys", "a stream's end does not make notes void")                        \
    X(EARLY_APART, "core", "early and dirty in a word of their own")                                   \
    X(LEFT_BY_STORE, "core", "the lane is left by a store, over what a free has set meanwhile")        \
    X(RECORD_THEN_SEAL, "two-blocks", "a batch of frees is sealed after its fence was recorded")       \
    X(CANDIDATE_SHARED, "two-blocks", "a second fence begins `used` anew, the candidate stays the first")    \
    X(USED_RESET_LATE, "two-blocks", "`used` begins anew when the candidate is recorded, not when it is sealed") \
    X(DESTROY_NOTICED_LATE, "destroys", "the lane hears of a stream's end after the driver")           \
    X(DESTROY_FORGOTTEN, "destroys", "the lane does not hear of a stream's end")                       \
    X(CAPTURE_COUNTED_LATE, "captures", "the driver begins a capture before it is counted")            \
    X(CAPTURE_JOINED, "captures", "a capturing stream joins")                                          \
    X(RESTORED_IN_CAPTURE, "captures", "a lane is restored while a capture is active")                 \
    X(GRAPH_UNCOUNTED, "core", "a graph launch is not a submission")                                   \
    X(KEY_SHARED, "core", "the per-thread default stream is taken for another stream")               \
    X(KEY_COMES_BACK, "thread-ends", "a new thread's default stream has the key of an ended thread's") \
    X(CONTEXT_IGNORED, "contexts", "submissions to a second context are not seen")                     \
    X(OTHER_CONTEXT_MARKS, "contexts", "a free makes a lane of another context dirty")                 \
    X(OTHER_CONTEXT_RESTORES, "other-block", "the candidate is a fence of a context without the work") \
    X(GONE_MARK_USED, "context-ends", "E of a destroyed context is used")                              \
    X(PROGRAMMATIC_KEPT, "programmatic", "a programmatic launch keeps its attribute on the slow path") \
    X(PROGRAMMATIC_BY_WORD, "programmatic", "a programmatic launch keeps its attribute on a clean lane, without a note") \
    X(NOTE_OUTLIVES_MARK, "programmatic", "a mark leaves the word as it was before the free, and notes valid")\
    X(ASYNC_ON_LANE, "async-frees", "cuMemFreeAsync frees on the lane")                                \
    X(GIVEN_AT_ONCE, "gives", "a block is exported or unmapped without a wait for E")                  \
    X(EXPORTED_ON_LANE, "gives", "an exported block is freed on the lane")                           \
    X(KEPT_UNMARKED, "caches", "a free into a thread's cache does not make the lane dirty")            \
    X(KEPT_ANYWAY, "caches", "the word changed between its look and its store")
/* clang-format on */

#define X(name, config, words) PLANT_##name,
enum plant { PLANTS(X) PLANT_END };
#undef X
extern enum plant plant;
#define PLANTED(name) (plant == PLANT_##name)

#endif
