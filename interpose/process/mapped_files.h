/* What the process has mapped, as the kernel says it: asked without the loader, whose lock may be
 * held by who waits for us. */
#ifndef CACHALOT_INTERPOSE_PROCESS_MAPPED_FILES_H
#define CACHALOT_INTERPOSE_PROCESS_MAPPED_FILES_H

/* Is there a mapping of a file whose path holds `name`, also one of another link namespace? */
int mapped_files_hold(const char *name);

#endif
