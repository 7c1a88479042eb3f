/* Ways by which work could reach the driver past this library: the structure net
 * (allocator/reuse/look.c). Never takes the loader's lock. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_UNSEEN_H
#define CACHALOT_INTERPOSE_RESOLVE_UNSEEN_H

#include "allocator/reuse/lane.h"

/* The calling thread is about to load an object, from a function with this frame. */
void unseen_load_begins(const void *frame);

/* The program got this function of CUDA before it was relocated, when nothing could be put in its
 * place. */
void unseen_note_early(const void *function);

/* Looks at the loaded objects, and returns the way past us, with its object; NULL: none is known. */
const char *unseen_way(void);

/* The same for lane_ops, once the process is served: knows of loads under way, and of objects whose
 * calls were led back to us since the last look, so that some have passed us. */
enum lane_sight unseen_look(void);

#endif
