#include "lane_world.h"

struct lane_thread *self;
uint64_t joins, barriers, joined_mark, contexts[M + 1];
int capturing[M + 1];

static uint64_t context_of(const struct lane_stream *stream)
{
    return contexts[stream->key];
}

static int is_capturing(const struct lane_stream *stream)
{
    return capturing[stream->key];
}

static int join(const struct lane_stream *stream, void *event)
{
    (void)stream;
    joins++;
    joined_mark = *(const uint64_t *)event; /* the fake device's number */
    return 0;
}

static int barrier(void)
{
    barriers++;
    return 0;
}

static const struct lane_ops ops = {
    .context = context_of, .is_capturing = is_capturing, .join = join, .barrier = barrier};

void lane_world_remake(const char *conf)
{
    world_remake(conf, UINT64_MAX);
    w.device.instant = 0;
    joins = barriers = joined_mark = 0;
    for (int key = 0; key <= M; key++) {
        contexts[key] = HERE;
        capturing[key] = 0;
    }
    lane_start(w.domain, &ops);
    self = lane_thread_begin(w.domain);
}

int lane_world_setup(void **state)
{
    (void)state;
    lane_world_remake("");
    return 0;
}

int enter(struct lane_thread *thread, uint64_t key)
{
    const struct lane_stream stream = {.key = key, .name = key};
    return lane_enter(thread, key) ? -1 : lane_submit(w.domain, thread, &stream);
}

int submit(uint64_t key)
{
    int way = enter(self, key);
    lane_leave(self);
    return way;
}

int mode(void)
{
    return (int)(atomic_load(&w.domain->lane.state.word) & LANE_MODE);
}

uint64_t marks(void)
{
    return COUNTER(num_lane_marks);
}

void assert_reused_at_once(void)
{
    uint64_t block = take(4 * MIB);
    give(block);
    assert_true(take(4 * MIB) == block);
    give(block);
}

void assert_not_reused(void)
{
    uint64_t block = take(4 * MIB);
    give(block);
    uint64_t other = take(4 * MIB);
    assert_true(other != block);
}

void pass_candidate(void)
{
    give(take(512));
    pass_all();
    domain_poll(w.domain);
}
