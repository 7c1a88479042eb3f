/* Seed 4 (a): ten tensors of 4 MiB, every second one freed, then 64 MiB that no hole serves. */
#include "seed.h"

int main(void)
{
    void *tensor[10];
    for (int i = 0; i < 10; i++)
        tensor[i] = take(4 * MIB);
    point("ten");
    for (int i = 0; i < 10; i += 2)
        give(tensor[i]);
    point("five");
    take(64 * MIB);
    point("64 MiB");
    return 0;
}
