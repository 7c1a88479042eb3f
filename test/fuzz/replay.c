/* Runs the target on every file of the folders named, without libFuzzer. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static int run(const char *path)
{
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    /* Of its own size, so that a sanitizer sees a read past the end. */
    uint8_t *copy = malloc(size ? size : 1);
    for (size_t i = 0; copy && i < size; i++)
        copy[i] = data[i];
    if (copy)
        LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return copy != NULL;
}

int main(int count, char **folder)
{
    int files = 0;
    for (int i = 1; i < count; i++) {
        DIR *directory = opendir(folder[i]);
        for (struct dirent *entry; directory && (entry = readdir(directory));) {
            char path[4096];
            if (entry->d_name[0] == '.' ||
                snprintf(path, sizeof path, "%s/%s", folder[i], entry->d_name) >= (int)sizeof path)
                continue;
            files += run(path);
        }
        if (directory)
            closedir(directory);
    }
    printf("%d inputs\n", files);
    return files == 0;
}
