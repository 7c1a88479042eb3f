/* Cachalot's functions for programs. Look them up with dlsym(RTLD_DEFAULT, …): without the library in
 * front of the program they do not exist. */
#ifndef CACHALOT_H
#define CACHALOT_H

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CACHALOT_SLEEP_PARTIAL = 1, /* memory in ordinary segments stays on the device */
    CACHALOT_SLEEP_HOLD = 2     /* only cachalot_wake and `cachalot wake` wake the process */
};

/* Moves the live bytes of this process's device memory to host memory, and gives the device memory
 * back. Returns 0, or -1 if nothing has changed: a report then has the reason. The next call that
 * needs device memory wakes the process. */
int cachalot_sleep(unsigned flags);

/* Moves them back to the same addresses. Returns 0, also if the process is awake; -1 if it sleeps on,
 * because the device has too little memory. */
int cachalot_wake(void);

#ifdef __cplusplus
}
#endif

#endif
