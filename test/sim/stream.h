/*
 * Streams and events as the program holds them, and stream capture.
 */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "engine.h"

#include <cuda.h>

struct sim_context;
struct sim_thread;
struct sim_capture;

#define CAPTURE_STREAMS 32

/* How far each stream of a capture has come: tells at the end whether all were joined. */
struct capture_clock {
    unsigned at[CAPTURE_STREAMS];
};

struct sim_stream {
    struct sim_context *context;
    struct sim_queue *queue;
    struct sim_thread *thread; /* of a per-thread default stream */
    struct sim_stream *next;
    unsigned long long id;
    unsigned flags;
    int alive, priority;
    struct sim_capture *capture;
    int capture_index;
    struct capture_clock seen;
    struct sim_clock beside_clock; /* what the last programmatic launch was behind, */
    struct sim_point beside_point; /* and the number of the piece that joined it */
    uint64_t beside_number;
};

struct sim_event {
    struct sim_context *context;
    unsigned long long context_id;  /* a context's memory is another one's later */
    struct sim_event *next, *every; /* every: all there have been, for leak checkers */
    unsigned flags;
    int alive, recorded;
    struct sim_point point;
    struct sim_clock clock;
    uint64_t turn, time;
    unsigned long long capture_id; /* 0: last recorded outside of any capture */
    struct capture_clock seen;
};

struct sim_stream *stream_new(struct sim_context *context, unsigned flags, int priority);
struct sim_stream *stream_from(CUstream handle, CUresult *why);
void stream_end(struct sim_stream *stream);
void streams_end_context(struct sim_context *context);
void streams_end_thread(struct sim_thread *thread);
/* Owns the work from here; *point, if given, is where it will have finished. */
CUresult stream_submit(struct sim_stream *stream, struct sim_work *work, struct sim_point *point);
struct sim_event *event_from(CUevent handle);
void event_finish(struct sim_event *event, uint64_t turn, uint64_t time);
void event_point(struct sim_event *event, struct sim_point point, const struct sim_clock *clock);

#endif
