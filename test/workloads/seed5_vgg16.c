/* Seed 5: VGG16 by formula: parameters, input images, other layers, momentum, activations and their
 * gradients. */
#include "seed.h"

#define POOL 0 /* a 2×2 maximum */
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const size_t channels[] = {64,   64,  POOL, 128, 128,  POOL, 256, 256, 256,
                                  POOL, 512, 512,  512, POOL, 512,  512, 512, POOL};
static const size_t linear[] = {512 * 7 * 7, 4096, 4096, 1000};

static void take_floats(size_t count)
{
    take(count * sizeof(float));
}

/* Weights and biases: Cin·Cout·3·3 + Cout, M·N + N. */
static void parameters(void)
{
    size_t in = 3;
    for (size_t i = 0; i < COUNT(channels); i++) {
        if (channels[i] == POOL)
            continue;
        take_floats(in * channels[i] * 3 * 3);
        take_floats(channels[i]);
        in = channels[i];
    }
    for (size_t i = 0; i + 1 < COUNT(linear); i++) {
        take_floats(linear[i] * linear[i + 1]);
        take_floats(linear[i + 1]);
    }
}

/* What each layer gives for one image of 224×224. */
static void activations(void)
{
    size_t side = 224, depth = 3;
    for (size_t i = 0; i < COUNT(channels); i++) {
        if (channels[i] == POOL)
            side /= 2;
        else
            depth = channels[i];
        take_floats(depth * side * side);
    }
    for (size_t i = 1; i < COUNT(linear); i++)
        take_floats(linear[i]);
}

int main(void)
{
    parameters();
    point("parameters");
    take_floats(3 * 224 * 224);
    point("image of 224");
    take_floats(3 * 500 * 500);
    point("image of 500");
    take_floats((size_t)256 * 3 * 100 * 100);
    point("batch");
    take_floats(64);
    take_floats(64);
    point("batch norm");
    take_floats((size_t)10000 * 128);
    point("embedding");
    parameters();
    point("momentum");
    activations();
    point("forward");
    activations();
    point("backward");
    return 0;
}
