/* The books of a group: claims of several members, of which any may claim, stop or end at any moment. */
#include "world.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats/page/group.h"

#define UUID "GPU-0"
#define LIMIT (100 * MIB)

static struct page page;
static char folder[64];

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/dev/shm/cachalot-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(page.path, sizeof page.path, "%s/1.1.0.page", folder);
    return 0;
}

static struct group join(void)
{
    struct group group = {.limit = LIMIT};
    assert_null(group_open(&group, &page, UUID, 1));
    return group;
}

static void leave(struct group *group)
{
    munmap(group->books, sizeof *group->books);
}

static int end(void **state)
{
    char path[sizeof page.path];
    (void)state;
    snprintf(path, sizeof path, "%s/%016x.%s.group", folder, 1, UUID);
    unlink(path);
    return rmdir(folder);
}

static void the_sum_of_all_is_limited(void **state)
{
    (void)state;
    struct group one = join(), two = join();
    assert_int_equal(group_claim(&one, 60 * MIB), GROUP_HAS);
    assert_int_equal(group_claim(&two, 41 * MIB), GROUP_FULL);
    assert_int_equal(group_claim(&two, 40 * MIB), GROUP_HAS);
    assert_int_equal(group_bytes(&one), LIMIT);
    assert_int_equal(group_claim(&two, UINT64_MAX), GROUP_FULL);
    group_give(&one, 10 * MIB);
    assert_int_equal(group_claim(&two, 10 * MIB), GROUP_HAS);
    leave(&one);
    leave(&two);
}

static void a_pending_claim_counts_and_is_no_refusal(void **state)
{
    (void)state;
    struct group one = join(), two = join();
    atomic_store(&one.books->line[one.own].pending, 60 * MIB);
    assert_int_equal(group_claim(&two, 41 * MIB), GROUP_BUSY);
    assert_int_equal(group_claim(&two, 40 * MIB), GROUP_HAS);
    assert_int_equal(two.books->line[two.own].pending, 0);
    leave(&one);
    leave(&two);
}

/* Neither a killed member's share nor its claim; the living keep theirs. */
static void the_dead_are_struck_out(void **state)
{
    (void)state;
    struct group dead = join(), living = join(), stays = join();
    assert_int_equal(group_claim(&dead, 50 * MIB), GROUP_HAS);
    assert_int_equal(group_claim(&living, 10 * MIB), GROUP_HAS);
    atomic_store(&dead.books->line[dead.own].pending, 30 * MIB);
    assert_int_equal(group_bury(&stays), 0);
    leave(&dead);
    assert_int_equal(group_claim(&stays, 60 * MIB), GROUP_FULL);
    int beside = open(stays.path, O_RDWR); /* another one buries it at the same moment */
    struct flock lock = {.l_type = F_RDLCK, .l_start = 8, .l_len = 1};
    assert_int_equal(fcntl(beside, F_OFD_SETLK, &lock), 0);
    assert_int_equal(group_bury(&stays), 1);
    close(beside);
    assert_int_equal(group_bytes(&stays), 10 * MIB);
    assert_int_equal(group_claim(&stays, 90 * MIB), GROUP_HAS);
    leave(&living);
    leave(&stays);
}

/* The lock is the mapping's: it outlives the descriptor, and a child does not keep it. */
/* Does fork leave out what MADV_DONTFORK names? An emulator of programs (qemu) takes the advice and does not follow it. */
static int fork_leaves_out(void)
{
    int status;
    char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(madvise(memory, 4096, MADV_DONTFORK), 0);
    pid_t child = fork();
    if (!child)
        _exit(mincore(memory, 4096, (unsigned char[1]){0}) == 0); /* mapped */
    assert_int_equal(waitpid(child, &status, 0), child);
    munmap(memory, 4096);
    return status == 0;
}

static void a_child_keeps_no_line(void **state)
{
    (void)state;
    if (!fork_leaves_out())
        return; /* there is nothing to test */
    struct group one = join(), two = join();
    assert_int_equal(group_claim(&one, MIB), GROUP_HAS);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (!child) {
        char letter;
        close(pipes[1]);
        _exit(read(pipes[0], &letter, 1) != 0);
    }
    leave(&one);
    assert_int_equal(group_bury(&two), 1);
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    leave(&two);
}

static void a_line_that_others_changed_is_written_anew(void **state)
{
    (void)state;
    struct group one = join(), two = join();
    assert_int_equal(group_claim(&one, 20 * MIB), GROUP_HAS);
    atomic_store(&one.books->line[one.own].held, 0);
    assert_int_equal(group_claim(&one, 20 * MIB), GROUP_HAS);
    assert_int_equal(group_bytes(&two), 40 * MIB);
    leave(&one);
    leave(&two);
}

static void damage_is_seen(void **state)
{
    (void)state;
    struct group one = join();
    atomic_store(&one.books->line[GROUP_MEMBERS - 1].held, UINT64_MAX - 5);
    assert_int_equal(group_claim(&one, MIB), GROUP_DAMAGED);
    assert_int_equal(group_bytes(&one), UINT64_MAX);
    atomic_store(&one.books->line[GROUP_MEMBERS - 1].held, 0);
    atomic_store(&one.books->magic, 1);
    assert_int_equal(group_claim(&one, MIB), GROUP_DAMAGED);
    struct group two = {.limit = LIMIT};
    assert_string_equal(group_open(&two, &page, UUID, 1), "its books are damaged");
    assert_null(two.books);
    unlink(one.path);
    assert_int_equal(group_bury(&one), -1);
    leave(&one);
}

static void books_have_lines_for_so_many(void **state)
{
    static struct group all[GROUP_MEMBERS];
    struct group more = {.limit = LIMIT};
    (void)state;
    for (int i = 0; i < GROUP_MEMBERS; i++) {
        all[i] = join();
        assert_int_equal(all[i].own, i);
    }
    assert_string_equal(group_open(&more, &page, UUID, 1), "its books have no line free");
    leave(&all[500]);
    assert_null(group_open(&more, &page, UUID, 1));
    assert_int_equal(more.own, 500);
    for (int i = 0; i < GROUP_MEMBERS; i++)
        leave(i == 500 ? &more : &all[i]);
}

static void names_give_numbers(void **state)
{
    (void)state;
    assert_int_equal(group_number("a"), group_number("a"));
    assert_int_not_equal(group_number("a"), group_number("b"));
    assert_int_not_equal(group_number(""), 0);
    assert_int_equal(group_number(""), group_number(""));
}

#define CLAIMERS 4
#define CLAIM (40 * MIB)

static _Atomic uint64_t really, most;
static long claims;

static void *claim_and_give(void *unused)
{
    struct group group = join();
    for (long i = 0, had = 0; i < claims && had < claims / 100; i++) {
        if (group_claim(&group, CLAIM) != GROUP_HAS)
            continue;
        had++;
        uint64_t now = atomic_fetch_add(&really, CLAIM) + CLAIM, before = atomic_load(&most);
        while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
            ;
        atomic_fetch_sub(&really, CLAIM);
        group_give(&group, CLAIM);
    }
    leave(&group);
    return unused;
}

static void claims_at_once_never_exceed_the_limit(void **state)
{
    pthread_t thread[CLAIMERS];
    const char *steps = getenv("CACHALOT_TEST_STEPS");
    (void)state;
    claims = (steps ? atol(steps) : 2000) * 5;
    for (int i = 0; i < CLAIMERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, claim_and_give, NULL), 0);
    for (int i = 0; i < CLAIMERS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_in_range(most, CLAIM, LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_sum_of_all_is_limited, begin, end),
        cmocka_unit_test_setup_teardown(a_pending_claim_counts_and_is_no_refusal, begin, end),
        cmocka_unit_test_setup_teardown(the_dead_are_struck_out, begin, end),
        cmocka_unit_test_setup_teardown(a_child_keeps_no_line, begin, end),
        cmocka_unit_test_setup_teardown(a_line_that_others_changed_is_written_anew, begin, end),
        cmocka_unit_test_setup_teardown(damage_is_seen, begin, end),
        cmocka_unit_test_setup_teardown(books_have_lines_for_so_many, begin, end),
        cmocka_unit_test_setup_teardown(names_give_numbers, begin, end),
        cmocka_unit_test_setup_teardown(claims_at_once_never_exceed_the_limit, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
