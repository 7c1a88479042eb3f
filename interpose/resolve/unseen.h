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

/* Looks at the loaded objects. PAST: there is a way past us, and unseen_way names it.
 * unseen_look_final: also while an object is being loaded. */
enum lane_sight unseen_look(void);
enum lane_sight unseen_look_final(void);

/* A way that the last look has found, with its object; "" if there is none. */
const char *unseen_way(void);

#endif
