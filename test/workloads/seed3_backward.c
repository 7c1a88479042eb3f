/* Seed 3: y = 5·x, mean(y).backward() for x of 3 GiB; with an argument as one expression,
 * mean(5·x).backward(), so that y ends with it. The loss and its gradient, of 4 bytes each, are
 * below what was published and left out. */
#include "seed.h"

int main(int argc, char **argv)
{
    const size_t bytes = (size_t)3 * 1024 * 1024 * 256 * sizeof(float);
    int one_expression = argc > 1;
    (void)argv;
    take(bytes);
    point("x");
    void *y = take(bytes);
    if (one_expression)
        give(y);
    else
        point("y");
    void *gradient_of_y = take(bytes);
    take(bytes); /* gradient of x */
    give(gradient_of_y);
    point("backward");
    return 0;
}
