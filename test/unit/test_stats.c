/* The numbers themselves: peaks, moments, histogram bins, copies that belong together; and descriptors. */
#include "world.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats/counters/stats.h"
#include "stats/os/descriptor.h"

static struct device_stats s;

static int zero(void **state)
{
    (void)state;
    memset(&s, 0, sizeof s);
    return 0;
}

static void current_is_what_came_less_what_went(void **state)
{
    (void)state;
    stats_add(&s, STAT_active, SMALL_POOL, 3);
    stats_add(&s, STAT_active, LARGE_POOL, 4);
    stats_subtract(&s, STAT_active, SMALL_POOL, 2);
    assert_int_equal(stats_current(&s, STAT_active, SMALL_POOL), 1);
    assert_int_equal(stats_current(&s, STAT_active, LARGE_POOL), 4);
    assert_int_equal(stats_current_all(&s, STAT_active), 5);
    assert_int_equal(s.stat[STAT_active].peak[SMALL_POOL], 3);
    assert_int_equal(s.stat[STAT_active].peak[STAT_POOLS], 7);
    assert_int_equal(stats_current_all(&s, STAT_segment), 0);
}

static void bins_are_powers_of_two(void **state)
{
    static const struct {
        uint64_t bytes;
        unsigned bin;
    } table[] = {{0, 0},
                 {1, 0},
                 {2, 1},
                 {3, 2},
                 {4, 2},
                 {5, 3},
                 {512, 9},
                 {513, 10},
                 {GIB, 30},
                 {GIB + 1, 31},
                 {UINT64_MAX / 4, HISTOGRAM_BINS - 1}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        zero(NULL);
        stats_histogram(&s, table[i].bytes, 1);
        assert_int_equal(s.histogram_total[table[i].bin], 1);
        assert_int_equal(s.histogram_live[table[i].bin], 1);
        assert_true(s.histogram_live_bytes[table[i].bin] == table[i].bytes);
        stats_histogram(&s, table[i].bytes, -1);
        assert_int_equal(s.histogram_total[table[i].bin], 1);
        assert_int_equal(s.histogram_live[table[i].bin], 0);
        assert_int_equal(s.histogram_live_bytes[table[i].bin], 0);
    }
}

static void moments_are_of_the_first_time_at_the_peak(void **state)
{
    (void)state;
    stats_add(&s, STAT_reserved_bytes, SMALL_POOL, 100);
    stats_set(&s, COUNTER_reusable_bytes, 60);
    stats_note_peaks(&s);
    stats_set(&s, COUNTER_reusable_bytes, 10);
    stats_note_peaks(&s);
    assert_int_equal(s.at_peak_reserved[MOMENT_reusable_bytes], 60);
    stats_add(&s, STAT_allocated_bytes, LARGE_POOL, 90);
    stats_note_peaks(&s);
    assert_int_equal(s.at_peak_reserved[MOMENT_reusable_bytes], 60);
    assert_int_equal(s.at_peak_allocated[MOMENT_reusable_bytes], 10);
    assert_int_equal(s.at_peak_allocated[MOMENT_reserved_bytes], 100);
}

static _Atomic int stop;

static void *keep_writing(void *argument)
{
    (void)argument;
    for (uint64_t i = 0; !atomic_load(&stop); i++) {
        stats_begin(&s);
        stats_add(&s, STAT_reserved_bytes, SMALL_POOL, 512);
        stats_add(&s, STAT_active_bytes, SMALL_POOL, 512);
        stats_set(&s, COUNTER_num_hits, i);
        stats_set(&s, COUNTER_reusable_bytes, i);
        stats_end(&s);
        if (i % 8 == 0)
            usleep(20); /* as real writers do, it leaves the readers a gap */
    }
    return NULL;
}

static void a_copy_belongs_together(void **state)
{
    static struct device_stats copy;
    pthread_t thread;
    (void)state;
    const char *steps = getenv("CACHALOT_TEST_STEPS");
    if (steps && !atoi(steps))
        skip();
    assert_int_equal(pthread_create(&thread, NULL, keep_writing, NULL), 0);
    for (int i = 0; i < 1000; i++) {
        if (stats_copy(&copy, &s))
            continue;
        assert_int_equal(copy.sequence % 2, 0);
        assert_int_equal(stats_current_all(&copy, STAT_reserved_bytes),
                         stats_current_all(&copy, STAT_active_bytes));
        assert_int_equal(stats_get(&copy, COUNTER_num_hits),
                         stats_get(&copy, COUNTER_reusable_bytes));
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}

static void a_row_left_odd_is_said_to_be(void **state)
{
    static struct device_stats copy;
    (void)state;
    stats_begin(&s);
    stats_count(&s, COUNTER_num_hits, 7);
    assert_int_equal(stats_copy(&copy, &s), -1);
    assert_int_equal(stats_get(&copy, COUNTER_num_hits), 7);
    stats_end(&s);
    assert_int_equal(stats_copy(&copy, &s), 0);
}

#ifdef __x86_64__
/* Rows as they lie in a page, shared with the process that changes them. */
struct shared {
    struct device_stats stats;
    struct cache_row row[2];
};

static struct shared *some_rows(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    stats_hand_out(&shared->stats, SMALL_POOL, 1024, 1000);
    for (int i = 0; i < 2; i++) {
        stat_set(&shared->row[i].device, 1);
        stat_set(&shared->row[i].allocated_bytes, 4096u << i);
        stat_set(&shared->row[i].freed_bytes, 1024);
        for (unsigned bin = 0; bin < (i ? 3 : CACHE_BINS); bin++)
            shared->row[i].bin[bin] = (struct cache_bin){bin + 2, bin, bin * 7, bin * 5};
    }
    return shared;
}

static int is_stopped(pid_t child)
{
    int status;
    return waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status);
}

static void a_fold_may_be_cut_off_anywhere(void **state)
{
    static struct device_stats whole, found;
    const size_t numbers = offsetof(struct device_stats, undo_count);
    struct shared *shared = some_rows();
    int folding = 0, steps = 0, status;
    (void)state;
    assert_int_equal(stats_gather(&whole, &shared->stats, shared->row, 2, 0), 0);
    assert_int_equal(stats_get(&whole, COUNTER_num_hits), CACHE_BINS * (2 + 22) / 2 + 2 + 3 + 4);
    pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(77);
        raise(SIGSTOP);
        stats_fold(&shared->stats, &shared->row[0], (UINT32_C(1) << CACHE_BINS) - 1);
        stats_fold(&shared->stats, &shared->row[1], 7);
        raise(SIGKILL);
    }
    if (!is_stopped(child) || ptrace(PTRACE_SINGLESTEP, child, NULL, NULL)) {
        kill(child, SIGKILL);
        skip(); /* nobody can be traced here */
    }
    for (; is_stopped(child); ptrace(PTRACE_SINGLESTEP, child, NULL, NULL)) {
        assert_int_equal(stats_gather(&found, &shared->stats, shared->row, 2, 0), 0);
        assert_memory_equal(&found, &whole, numbers);
        folding += stat_get(&shared->row[0].folding) != 0;
        steps++;
    }
    assert_true(steps > folding && folding > 500);
    assert_int_equal(stat_get(&shared->row[0].allocated_bytes), 0);
    assert_memory_equal(&shared->stats, &whole, numbers);
    assert_int_equal(waitpid(child, &status, 0), -1);
    munmap(shared, sizeof *shared);
}
#endif

static void a_descriptor_is_ours_while_its_file_is(void **state)
{
    struct descriptor taken;
    (void)state;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), file = open("/dev/null", O_RDONLY);
    assert_int_equal(descriptor_take(&taken, fd, S_IFSOCK), 0);
    assert_true(taken.fd > 64 && fcntl(fd, F_GETFD) == -1);
    assert_int_equal(dup2(file, taken.fd - 1), taken.fd - 1); /* the program took the number */
    int number = taken.fd - 1;
    assert_false(descriptor_is_ours(&taken));
    descriptor_close(&taken);
    assert_int_not_equal(fcntl(number, F_GETFD), -1);
    int next = dup(file);
    close(next);
    assert_int_equal(descriptor_take(&taken, file, S_IFSOCK), -1); /* before it was taken */
    assert_int_equal(taken.fd, 0);
    assert_int_equal(fcntl(file, F_DUPFD, 64), number + 1); /* and no copy is left */
    close(number + 1);
    assert_int_equal(dup(file), next);
    close(next);
    assert_int_not_equal(fcntl(file, F_GETFD), -1);
    assert_int_equal(descriptor_take(&taken, -1, 0), -1);
    close(number);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(current_is_what_came_less_what_went, zero),
        cmocka_unit_test_setup(bins_are_powers_of_two, zero),
        cmocka_unit_test_setup(moments_are_of_the_first_time_at_the_peak, zero),
        cmocka_unit_test_setup(a_copy_belongs_together, zero),
        cmocka_unit_test_setup(a_row_left_odd_is_said_to_be, zero),
        cmocka_unit_test(a_descriptor_is_ours_while_its_file_is),
#ifdef __x86_64__ /* an emulated program cannot be traced */
        cmocka_unit_test_setup(a_fold_may_be_cut_off_anywhere, zero),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
