/* Memory for our own structs: zeroed, side by side, where huge pages may be, and nothing of it in a
 * forked child. */
#include "world.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/metadata.h"

static char *taken(struct metadata *metadata, size_t bytes)
{
    char *memory = metadata_take(metadata, bytes);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 128, 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(memory[i], 0);
    memset(memory, 0x5a, bytes);
    return memory;
}

static void it_lies_side_by_side(void **state)
{
    struct metadata metadata = {0};
    char *first = taken(&metadata, 1), *next = taken(&metadata, 64 * 1024);
    (void)state;
    assert_int_equal((uintptr_t)first % (2 * MIB), 0);
    assert_ptr_equal(next, first + 128);
    size_t left = metadata.left;
    assert_int_equal(left, 2 * MIB - 128 - 64 * 1024);
    /* What takes more than half of a huge page has some of its own. */
    assert_int_equal((uintptr_t)taken(&metadata, MIB + 1) % (2 * MIB), 0);
    assert_int_equal((uintptr_t)taken(&metadata, 5 * MIB) % (2 * MIB), 0);
    assert_int_equal(metadata.left, left);
    /* Until no more fits; then there is another. */
    for (; left >= 64 * 1024; left -= 64 * 1024, next += 64 * 1024)
        assert_ptr_equal(taken(&metadata, 64 * 1024), next + 64 * 1024);
    char *other = taken(&metadata, 64 * 1024);
    assert_int_equal((uintptr_t)other % (2 * MIB), 0);
    assert_int_equal(metadata.left, 2 * MIB - 64 * 1024);
}

/* A page of our own, which the kernel was told the same of: emulated ones may not listen. */
static char *told(int advice)
{
    char *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    memset(page, 0x5a, 65536);
    madvise(page, 65536, advice);
    return page;
}

/* Are huge pages asked for there ("hg", proc_pid_smaps(5)), up to `bytes` from it? */
static int is_asked_for(const char *memory, size_t bytes)
{
    char line[256];
    int within = 0, found = 0;
    uintptr_t from = (uintptr_t)memory;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            within = begin <= from && from + bytes <= end;
        if (within && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, " hg") != NULL;
    }
    if (maps)
        fclose(maps);
    return found;
}

static void huge_pages_are_asked_for(void **state)
{
    struct metadata metadata = {0};
    (void)state;
    if (!is_asked_for(told(MADV_HUGEPAGE), 65536))
        return; /* emulated */
    assert_true(is_asked_for(taken(&metadata, 512), 2 * MIB));
}

static void a_forked_child_has_nothing_of_it(void **state)
{
    struct metadata metadata = {0};
    char *ours = taken(&metadata, 4096), *large = taken(&metadata, 3 * MIB);
    char *copied = metadata_take(NULL, 4096), *wiped = told(MADV_WIPEONFORK);
    int status;
    (void)state;
    assert_non_null(copied);
    memset(copied, 0x5a, 4096);
    pid_t child = fork();
    if (child == 0)
        _exit(wiped[0] ? 2 : ours[0] || ours[4095] || large[0] || large[3 * MIB - 1] || !copied[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2)
        return; /* emulated */
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(ours[0] == 0x5a && large[0] == 0x5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_lies_side_by_side),
        cmocka_unit_test(huge_pages_are_asked_for),
        cmocka_unit_test(a_forked_child_has_nothing_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
