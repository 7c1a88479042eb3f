/* Seed 2: allocated against reserved. With an argument a second reference to each tensor is held:
 * nothing is freed. At the point `emptied` the cache is emptied from outside. */
#include "seed.h"

int main(int argc, char **argv)
{
    int held = argc > 1;
    (void)argv;
    void *small = take(1024 * 1024 * sizeof(float)), *large = take(2048 * 2048 * sizeof(float));
    point("both made");
    if (!held)
        give(small);
    point("first freed");
    if (!held)
        give(large);
    point("both freed");
    point("emptied");
    return 0;
}
