/* What lies where a report is to go: any bytes are either somebody's report or somebody's data, and
 * the report finds a name. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stats/page/page.h"
#include "stats/output/report_file.h"

static char folder[] = "/dev/shm/cachalot-fuzz-XXXXXX";
static int directory = -1;
static const char ours[] =
    "{\n  \"schema_version\": \"1.0.0\",\n  \"kind\": \"exit\",\n  \"time\": {\n"
    "    \"start\": \"2026-01-01T00:00:00.000Z\"\n  },\n  \"process\": {\n"
    "    \"pid\": 4711,\n    \"uid\": 0\n";

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
    int taken = report_file_take(directory, "r.json", geteuid(), ours, &page, 1);
    HOLDS(taken == -EEXIST || taken >= 0);
    HOLDS(taken < 0 || size == 0 || !strncmp((const char *)data, ours, 30));
    if (taken >= 0)
        close(taken);
    return 0;
}
