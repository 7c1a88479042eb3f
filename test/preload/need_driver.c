/* Makes the program need the driver. */
int cuInit(unsigned flags);

void *needed[] = {(void *)cuInit};
