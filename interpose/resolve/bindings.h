/* Calls of CUDA that the loader has bound past this library. */
#ifndef CACHALOT_INTERPOSE_RESOLVE_BINDINGS_H
#define CACHALOT_INTERPOSE_RESOLVE_BINDINGS_H

/* From now on bindings_look acts, unless the process is not to be served. Only the constructor calls
 * it: before that, objects may be unrelocated. The first look that finds a CUDA library in the
 * process calls `cuda_is_here`. */
void bindings_begin(void (*cuda_is_here)(void));

/* Looks at the tables of objects that were loaded since the last look. An entry that holds a
 * function of a CUDA library, and that this library exports, gets our function. Takes the lock of
 * dl_iterate_phdr only, and leaves errno and dlerror alone. */
void bindings_look(void);

/* Whether bindings_look has something to do. For code that may run before a sanitizer is ready. */
extern _Atomic int bindings_looking __attribute__((visibility("hidden")));

/* An object behind us that defines dlopen gets its own function back where its tables hold ours.
 * Acts once, at the first dlopen at the latest. */
void bindings_return_dlopen(void);

/* Is a CUDA library in the process? Also callable in a signal handler. */
int bindings_find_cuda(void);

/* The object that contains `function` calls CUDA past us, or is called past us. */
void bindings_go_past(const void *function);

/* The file of such an object, or of one with an entry that could not be changed; NULL: there is
 * none. */
const char *bindings_unreached(void);

#endif
