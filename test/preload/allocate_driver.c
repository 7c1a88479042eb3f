/* Linked to the driver: 6 requests, 5 frees. Also built as a plugin. */
#include "driver_case.h"

int run(void);
int run(void)
{
    static const size_t sizes[] = {1, 1000, 1 << 20, 3 << 20, 30 << 20};
    CUdeviceptr block[5];
    begin();
    for (int i = 0; i < 5; i++)
        block[i] = make(sizes[i]);
    for (int i = 0; i < 5; i++)
        SAY(cuMemFree(block[i]));
    SAY(make(1000) != 0);
    return 0;
}

int main(void)
{
    return run();
}
