/* Makes the program need the run-time and the driver. */
int cudaMalloc(void **pointer, unsigned long bytes);
int cuInit(unsigned flags);

void *needed[] = {(void *)cudaMalloc, (void *)cuInit};
