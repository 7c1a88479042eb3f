/* Stream captures. While one is active anywhere in the process, recording a context event or
 * synchronising a context would invalidate it, so neither is done. */
#ifndef CACHALOT_INTERPOSE_CONTEXT_CAPTURE_H
#define CACHALOT_INTERPOSE_CONTEXT_CAPTURE_H

#include "interpose/resolve/cuda_api.h"

/* Around the driver's call that begins a capture on `stream`; the capture counts before the driver
 * begins it. `context` is the stream's, which need not be the current one. It is asked for before:
 * of a capturing stream the driver does not say. */
void capture_before_begin(void);
void capture_after_begin(CUstream stream, int per_thread, CUcontext context, CUresult result);

/* Around the driver's call that may end the capture on `stream`, or that destroys the stream with
 * its capture. `number` is the result of the first call: the capture's number; 0: there is none. */
uint64_t capture_before_end(CUstream stream, int per_thread);
void capture_after_end(CUstream stream, int per_thread, uint64_t number);
void capture_after_destroy(CUstream stream, uint64_t number, CUresult result);

/* A context has ended, and with it the captures on its streams up to number `last`. capture_last
 * returns the last number before the driver was told. */
uint64_t capture_last(void);
void capture_context_ended(CUcontext context, uint64_t last);

/* May a context event be recorded now? If so (1), no capture begins until capture_record_end. */
int capture_record_begin(void);
void capture_record_end(void);

int capture_active(void);

/* Is this stream capturing? Asks the driver. */
int capture_is_on(CUstream stream, int per_thread);

/* The error that the driver gives for a stream that does not exist or has no context; else
 * CUDA_SUCCESS. */
CUresult capture_stream_error(CUstream stream, int per_thread);

/* Called when a thread ends: its own default stream ends with it. */
void capture_thread_ends(void);

#endif
