/* Seed 1: parameters and activations of a five-layer network (Linear 3-300-300-400-300-100, batch
 * 10, float). */
#include "seed.h"

int main(void)
{
    static const size_t width[] = {3, 300, 300, 400, 300, 100};
    take(4608);
    point("before");
    for (int i = 0; i < 5; i++) {
        take(width[i] * width[i + 1] * sizeof(float));
        take(width[i + 1] * sizeof(float));
    }
    point("parameters");
    for (int i = 0; i < 5; i++)
        take(10 * width[i + 1] * sizeof(float));
    point("forward");
    return 0;
}
