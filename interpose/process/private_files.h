/* Opens files where the program does not see their descriptors. */
#ifndef CACHALOT_INTERPOSE_PROCESS_PRIVATE_FILES_H
#define CACHALOT_INTERPOSE_PROCESS_PRIVATE_FILES_H

/* Gives the calling thread a descriptor table of its own, without the program's descriptors.
 * Otherwise the program would find numbers taken that it believes free, put other files there while
 * the library writes, or leave the files to its children. Only for threads of the library that
 * never call the driver, whose own files lie in the program's table. Where the kernel refuses, the
 * table stays shared. */
void files_apart(void);

/* The program's standard error, which a thread with its own table opens anew; negative: there is
 * none. In the program's own table it is the program's. */
int files_stderr(void);
int files_are_apart(void);

/* Runs `function` in a thread with its own table and waits for it. Without a thread, `function`
 * runs in the calling one. */
void files_run(void (*function)(void *), void *argument);

#endif
