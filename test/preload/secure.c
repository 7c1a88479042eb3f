/* Preloaded before us: the process believes that it was given rights (setuid). */
#include <stdio.h>
#include <sys/auxv.h>

unsigned long getauxval(unsigned long type)
{
    FILE *file = fopen("/proc/self/auxv", "rb");
    unsigned long pair[2], value = 0;
    while (file && fread(pair, sizeof pair, 1, file) == 1 && pair[0])
        value = pair[0] == type ? pair[1] : value;
    if (file)
        fclose(file);
    return type == AT_SECURE ? 1 : value;
}
