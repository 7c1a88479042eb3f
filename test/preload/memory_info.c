/* What cuMemGetInfo answers while memory comes and goes, in sizes that the driver does not round.
 */
#include "driver_case.h"

static void say(const char *when)
{
    size_t available, total;
    OK(cuMemGetInfo(&available, &total));
    printf("%s: %zu of %zu MiB\n", when, available / MIB, total / MIB);
}

int main(void)
{
    begin();
    CUdeviceptr block[4];
    say("at first");
    for (int i = 0; i < 4; i++) {
        block[i] = make((size_t)(i + 1) * 16 * MIB);
        say("made one");
    }
    for (int i = 0; i < 4; i++) {
        OK(cuMemFree(block[i]));
        say("freed one");
    }
    block[0] = make(2 * MIB);
    say("a small one");
    SAY(cuMemGetInfo(NULL, NULL));
    return 0;
}
