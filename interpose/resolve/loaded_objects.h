/* What the loaded objects define, read from their own tables. Never takes the loader's lock: a
 * constructor that holds it may wait for the calling thread. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_LOADED_OBJECTS_H
#define CACHALOT_INTERPOSE_RESOLVE_LOADED_OBJECTS_H

/* The function `name` that the object of `caller` would get without this library. NULL if there is
 * none, or if only the loader can decide between several. */
void *objects_beside(const void *caller, const char *name);

/* Looks up what makes objects_beside fast; takes the loader's lock. Optional. */
void objects_prepare(void);

#endif
