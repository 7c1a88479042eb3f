/* What the loaded objects define, read from their own tables. Never takes the loader's lock: a
 * constructor that holds it may wait for the calling thread. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_LOADED_OBJECTS_H
#define CACHALOT_INTERPOSE_RESOLVE_LOADED_OBJECTS_H

/* The function `name` that the object of `caller` would get without this library. NULL if there is
 * none, or if only the loader can decide between several. */
void *objects_beside(const void *caller, const char *name);

/* Looks up what makes objects_beside fast, and which objects hook CUDA's allocation as this library
 * does. Takes the loader's lock. For the constructor. */
void objects_prepare(void);

/* The files of these objects, in the order in which a call meets them; empty if there is only this
 * library. */
const char *objects_hook_order(void);

#endif
