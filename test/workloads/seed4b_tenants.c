/* Seed 4 (b): A keeps 1 GiB and uses 4 for a while; B takes 1; A's 1 is freed; A wants 1 + 4 again.
 * Exit code 3 when that ended in out of memory. */
#include "seed.h"

int main(void)
{
    void *one = take(GIB), *four = take(4 * GIB);
    give(four);
    take(GIB);
    point("B came");
    give(one);
    take(GIB);
    void *again = try_take(4 * GIB);
    point(again ? "served" : "out of memory");
    return again ? 0 : 3;
}
