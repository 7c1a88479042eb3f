/*
 * Stream captures: which calls they forbid, what they record, and the graphs they end in.
 */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "stream.h"

#include <cuda.h>

struct sim_graph {
    struct sim_work **nodes; /* each is its own handle */
    size_t count;
    int auto_free; /* an executable one: a launch frees what the last has left */
};

struct sim_capture {
    CUstreamCaptureMode mode;
    struct sim_thread *thread;
    struct sim_graph *graph;
    struct sim_stream *members[CAPTURE_STREAMS]; /* the first is the origin */
    int count, invalid, lent;                    /* lent: the graph is the program's */
    unsigned long long id;
    struct sim_capture *next;
};

/* A potentially unsafe call (cuMemAlloc, cuEventQuery, ...): 900, invalidating what it disturbs. */
CUresult capture_unsafe(void);
/* A call that stands for all work of a context: 900, whatever the modes. */
CUresult capture_forbids_context(const struct sim_context *context);
/* The legacy stream is used while a blocking stream of its context captures: 906. */
CUresult capture_implicit(const struct sim_context *context, int invalidate);
/* Work submitted to a capturing stream. */
CUresult capture_add(struct sim_stream *stream, struct sim_work *work);
void capture_record_event(struct sim_stream *stream, struct sim_event *event);
CUresult capture_wait_event(struct sim_stream *stream, struct sim_event *event);
int capture_is_active(unsigned long long id);
void capture_leave(struct sim_stream *stream);
void captures_end_thread(const struct sim_thread *thread);

struct sim_graph *graph_new(void);
void graph_add(struct sim_graph *graph, const struct sim_work *work);
void graph_free(struct sim_graph *graph);

/* Allocation and free nodes: graph_memory.c. */
CUresult graph_alloc_work(struct sim_work *work, int device, size_t bytes, CUdeviceptr *out);
CUresult graph_free_work(struct sim_work *work, CUdeviceptr address);
/* All of a launch's memory is there, or none of it. */
CUresult graph_memory_launch(struct sim_stream *stream, const struct sim_graph *graph);
/* Before the node's work is submitted. */
CUresult graph_memory_submit(struct sim_work *work);

#endif
