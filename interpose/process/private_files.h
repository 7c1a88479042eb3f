/* Files are opened where the program does not see it. */
#ifndef CACHALOT_INTERPOSE_PROCESS_PRIVATE_FILES_H
#define CACHALOT_INTERPOSE_PROCESS_PRIVATE_FILES_H

/* This thread, one of ours that calls no driver (whose own files it would miss), has a table of
 * descriptors of its own from here on, with none of the program's: else the program would find
 * numbers taken that it thinks free, put other files there while we write, or leave them to its
 * children. Where the kernel refuses, it shares them as before. */
void files_apart(void);

/* The program's standard error, in such a thread opened anew; negative: there is none. close: it,
 * or another descriptor of ours. */
int files_stderr(void);
void files_close(int fd);

/* Runs `function` in such a thread, and waits for it; here, if there can be none. */
void files_run(void (*function)(void *), void *argument);

#endif
