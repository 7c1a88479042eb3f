/* What lies where a report is to go: any bytes are either somebody's report or somebody's data, and
 * the report finds a name. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stats/page/page.h"
#include "stats/output/report_file.h"

static char folder[] = "/dev/shm/cachalot-fuzz-XXXXXX";
static int directory = -1;

static void clean_up(void)
{
    unlinkat(directory, "r.json", 0);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct page page;
    if (directory < 0) {
        HOLDS(mkdtemp(folder));
        directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        atexit(clean_up);
    }
    page.pid = 4711;
    memcpy(page.hostname, "here", 5);
    int file = openat(directory, "r.json", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    HOLDS(file >= 0 && write(file, data, size) == (ssize_t)size);
    close(file);
    int may = report_file_may_replace(directory, "r.json", &page);
    HOLDS(may == 0 || may == 1);
    return 0;
}
