/* Whether the main thread of the program still runs. */
#ifndef CACHALOT_INTERPOSE_PROCESS_MAIN_THREAD_H
#define CACHALOT_INTERPOSE_PROCESS_MAIN_THREAD_H

/* Called while the process starts. */
void main_thread_note(void);

/* 1: it runs; 0: it has ended; -1: not known here. Makes no system call. */
int main_thread_lives(void);

#endif
