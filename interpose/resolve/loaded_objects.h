/* What the objects of the process define, read from their own tables. Never takes the loader's
 * lock, which a constructor may hold that waits for the thread that asks. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_LOADED_OBJECTS_H
#define CACHALOT_INTERPOSE_RESOLVE_LOADED_OBJECTS_H

/* The function `name` of another object, as the object that `caller` lies in would be given it if
 * we were not there. NULL if there is none, or if only the loader knows which of several. */
void *objects_beside(const void *caller, const char *name);

/* Finds what makes objects_beside fast, with the loader's lock. Without this call it is only
 * slower. */
void objects_prepare(void);

#endif
