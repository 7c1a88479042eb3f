/* Stream captures: while one is active anywhere in the process, an event of the whole context or a
 * synchronise of it would invalidate it, so none is made. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_CAPTURE_H
#define CACHALOT_INTERPOSE_CONTEXT_CAPTURE_H

#include "interpose/resolve/cuda_api.h"

/* Around the driver's call that begins a capture on `stream`: counted before the driver begins it.
 * `context` is what the first returned: the stream's, which need not be the current one. */
CUcontext capture_before_begin(CUstream stream);
void capture_after_begin(CUstream stream, int per_thread, CUcontext context, CUresult result);

/* Around the driver's call that may end the capture that began on `stream`, or that destroys the
 * stream, and the capture with it. `number` is what the first returned: the capture's; 0: none. */
uint64_t capture_before_end(CUstream stream, int per_thread);
void capture_after_end(CUstream stream, int per_thread, uint64_t number);
void capture_after_destroy(CUstream stream, uint64_t number, CUresult result);

/* A context has ended, and with it the captures on its streams up to the one of number `last`, the
 * last before the driver was told. */
uint64_t capture_last(void);
void capture_context_ended(CUcontext context, uint64_t last);

/* May a context event be recorded now? Then no capture begins before capture_record_end. */
int capture_record_begin(void);
void capture_record_end(void);

int capture_active(void);

/* Is this stream capturing? Asks the driver. */
int capture_is_on(CUstream stream, int per_thread);

/* What the driver has against a stream: there is none such, or no context; else 0. */
CUresult capture_stream_error(CUstream stream, int per_thread);

/* The calling thread's own default stream ends with it. */
void capture_thread_ends(void);

#endif
