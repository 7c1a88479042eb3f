/* Pages of others: whatever is in the file, it is refused with a reason or becomes a report that is
 * JSON. Input: what is changed in a good page (offset of 4 bytes, length, bytes), or after "raw",
 * all of a page. */
#include "fuzz.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stats/page/page.h"
#include "stats/report/document.h"

static char path[64];
static int file;
static uint8_t *good, *mapped;
static size_t good_bytes;

static void prepare(void)
{
    const char *problem = NULL;
    char folder[] = "/dev/shm/cachalot-fuzz-XXXXXX";
    HOLDS(mkdtemp(folder));
    struct page *page =
        page_create(folder, (struct page_shape){.devices = 2, .events = 16, .shown = 16}, &problem);
    HOLDS(page && !problem);
    good_bytes = page->page_bytes;
    good = malloc(good_bytes);
    HOLDS(good);
    memcpy(good, page, good_bytes);
    memset(good + offsetof(struct page, own), 0, sizeof page->own);
    page_close(page, 1);
    snprintf(path, sizeof path, "%s/f.page", folder);
    file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    HOLDS(file >= 0 && ftruncate(file, (off_t)good_bytes) == 0);
    mapped = mmap(NULL, good_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    HOLDS(mapped != MAP_FAILED);
}

static void clean_up(void)
{
    if (!path[0])
        return;
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
}

static void change(const uint8_t *data, size_t size)
{
    memcpy(mapped, good, good_bytes);
    while (size > 5) {
        uint32_t offset;
        memcpy(&offset, data, 4);
        size_t length = data[4] < size - 5 ? data[4] : size - 5, at = offset % good_bytes;
        memcpy(mapped + at, data + 5, length < good_bytes - at ? length : good_bytes - at);
        data += 5 + length;
        size -= 5 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        prepare();
        atexit(clean_up);
    }
    int raw = size >= 3 && memcmp(data, "raw", 3) == 0;
    if (raw) {
        HOLDS(ftruncate(file, (off_t)(size - 3)) == 0);
        HOLDS(pwrite(file, data + 3, size - 3, 0) == (ssize_t)(size - 3));
    } else {
        change(data, size);
    }
    const char *problem = NULL;
    struct page *page = page_open(path, NULL, &problem);
    HOLDS(page || (problem && problem[0]));
    if (page) {
        const struct snapshot snapshot = {.page = page};
        const struct report_options options = {.kind = REPORT_HARVEST, .exit_reason = "unknown"};
        char *text = report_text(&snapshot, &options);
        json_t *json = text ? json_loads(text, 0, NULL) : NULL;
        HOLDS(json_is_object(json));
        json_decref(json);
        free(text);
        page_close(page, 0);
    }
    if (raw)
        HOLDS(ftruncate(file, (off_t)good_bytes) == 0);
    return 0;
}
