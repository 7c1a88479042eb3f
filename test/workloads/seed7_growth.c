/* Seed 7: growth that is not cache: each step forgets 3 000 001 bytes, every fifth also 4 096; a
 * scratch buffer is freed. At the points the cache is emptied from outside, and what was forgotten
 * stays. */
#include "seed.h"

int main(void)
{
    for (int step = 1; step <= 40; step++) {
        void *scratch = take(8 * MIB);
        take(3000001);
        if (step % 5 == 0)
            take(4096);
        give(scratch);
        if (step % 20 == 0)
            point(step == 20 ? "20 steps" : "40 steps");
    }
    return 0;
}
