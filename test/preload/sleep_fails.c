/* Sleeps and wakes, while one call of the driver fails. Says the result, the bytes that are wrong, and
 * how often each function was called before and after. */
#include "sleeper.h"

static const size_t sizes[] = {700, 3 * MIB, 20 * MIB, 5 * MIB, MIB, 40 * MIB};
enum { BLOCKS = sizeof sizes / sizeof *sizes, FUNCTIONS = 2000 };
static struct block block[BLOCKS];
static unsigned long long before[FUNCTIONS];

int main(int count, char **argument)
{
    CUstream stream;
    const char *name;
    size_t wrong = 0;
    begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = (struct block){make(sizes[i]), sizes[i], (uint32_t)i * 31 + 3};
        fill_block(&block[i], stream);
    }
    for (size_t i = 0; i < FUNCTIONS && (name = cachalot_sim_name(i)); i++)
        before[i] = cachalot_sim_calls(name);
    printf("slept: %d\n", call_sleep(0) == 0);
    int held = count > 1 && !strcmp(argument[1], "by_command");
    if (held)
        printf("woke: %d\n", call_wake() == 0);
    OK(cuMemsetD8(block[0].address, byte_at(block[0].number, 0), 1)); /* on demand */
    for (size_t i = 0; i < FUNCTIONS && (name = cachalot_sim_name(i)); i++)
        if (cachalot_sim_calls(name) > before[i])
            printf("call %s %llu %llu\n", name, before[i], cachalot_sim_calls(name));
    for (int i = 0; i < BLOCKS; i++)
        wrong += wrong_bytes(&block[i], stream);
    printf("wrong: %zu\n", wrong);
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemFree(block[i].address));
    CUdeviceptr again = make(50 * MIB);
    OK(cuMemsetD8(again, 1, 50 * MIB));
    OK(cuCtxSynchronize());
    OK(cuMemFree(again));
    return 0;
}
