/* The files that the process has mapped, read from /proc. The loader is not asked: a thread that
 * waits for us may hold its lock. */
#ifndef CACHALOT_INTERPOSE_PROCESS_MAPPED_FILES_H
#define CACHALOT_INTERPOSE_PROCESS_MAPPED_FILES_H

/* Is a file mapped whose path contains `name`? Finds mappings of other link namespaces too. */
int mapped_files_hold(const char *name);

#endif
