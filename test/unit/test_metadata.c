/* Memory for our own structs: zeroed, side by side, where huge pages may be, and nothing of it in a
 * forked child. */
#include "world.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/metadata.h"

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

/* Huge pages are asked for ("hg"), for as much as was mapped (proc_pid_smaps(5)). */
static void huge_pages_are_asked_for(void **state)
{
    struct metadata metadata = {0};
    char line[256];
    int within = 0, found = 0;
    uintptr_t memory = (uintptr_t)taken(&metadata, 512);
    FILE *maps = fopen("/proc/self/smaps", "r");
    (void)state;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            within = begin <= memory && memory + 2 * MIB <= end;
        if (within && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, " hg") ? 1 : -1;
    }
    if (maps)
        fclose(maps);
    if (!found || access("/sys/kernel/mm/transparent_hugepage", F_OK))
        skip(); /* emulated, or a kernel without them */
    assert_int_equal(found, 1);
}

static void a_forked_child_has_nothing_of_it(void **state)
{
    struct metadata metadata = {0};
    char *ours = taken(&metadata, 4096), *large = taken(&metadata, 3 * MIB);
    char *copied = metadata_take(NULL, 4096);
    int status;
    (void)state;
    assert_non_null(copied);
    memset(copied, 0x5a, 4096);
    if (madvise(copied, 0, MADV_WIPEONFORK))
        skip(); /* emulated */
    pid_t child = fork();
    if (child == 0)
        _exit(!(!ours[0] && !ours[4095] && !large[0] && !large[3 * MIB - 1] && copied[0] == 0x5a));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
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
