/* What may be set, what is refused, and how it reads back. */
#include "world.h"

#include "allocator/base/policy.h"

#include <stdio.h>
#include <string.h>

static char complaint[512];

static void note(void *context, const char *message)
{
    (*(int *)context)++;
    snprintf(complaint, sizeof complaint, "%s", message);
}

static int parse(struct options *o, const char *text, uint32_t keys)
{
    int count = 0;
    complaint[0] = 0;
    int returned = options_parse(o, text, keys, note, &count);
    assert_int_equal(returned, count);
    return count;
}

static unsigned key(const char *name)
{
    for (unsigned i = 0; options_name(i); i++)
        if (!strcmp(options_name(i), name))
            return i;
    fail_msg("no key %s", name);
    return 0;
}

static const char *value(const struct options *o, const char *name)
{
    static char text[256];
    options_value(o, key(name), text, sizeof text);
    return text;
}

static void every_good_value_reads_back(void **state)
{
    static const struct {
        const char *name, *text, *shown;
    } good[] = {
        {"max_split_size_mb", "20", "20"},
        {"max_split_size_mb", "512", "512"},
        {"max_non_split_rounding_mb", "64", "64"},
        {"roundup_power2_divisions", "4", "4"},
        {"roundup_power2_divisions", "[256:1,512:2,1024:4,>:8]", "[256:1,512:2,1024:4,>:8]"},
        {"roundup_power2_divisions", "[8:1,64:2]", "[8:1,64:2,>:0]"},
        {"roundup_power2_divisions", "[8:0,64:2,512:4,>:4]", "[32:0,64:2,256:0,>:4]"},
        {"garbage_collection_threshold", "0.6", "0.6"},
        {"garbage_collection_threshold", ".5", "0.5"},
        {"large_segment_size_mb", "2", "2"},
        {"large_segment_size_mb", "64", "64"},
        {"large_segment_size_mb", "21", "21"},
        {"expandable_segments", "False", "False"},
        {"expandable_segments", "false", "False"},
        {"per_process_memory_fraction", "0.25", "0.25"},
        {"memory_limit_mb", "4096", "4096"},
        {"free_mode", "strict", "strict"},
        {"free_mode", "fence", "fence"},
        {"free_mode", "async", "async"},
        {"thread_cache", "off", "off"},
        {"thread_cache", "on", "on"},
        {"cache", "off", "off"},
        {"cache", "on", "on"},
        {"ipc", "auto", "auto"},
        {"ipc", "dedicated", "dedicated"},
        {"ipc", "error", "error"},
        {"device_size_mb", "24576", "24576"},
        {"fail_alloc", "0", "0"},
        {"fail_alloc", "[every:2,kind:pinned,kind:stream_ordered]",
         "[every:2,kind:pinned,kind:stream_ordered]"},
        {"fail_alloc", "every:2", "every:2"},
        {"bounds", "refuse", "refuse"},
        {"fill", "zero", "zero"},
        {"fill", "random:7", "random:7"},
        {"fill", "[nan,3-4]", "[nan,3-4]"},
        {"fail_alloc", "[p:0.5%:18446744073709551615]", "[p:0.5%:18446744073709551615]"},
        {"fail_alloc", "[site:a[1]+0x2,7]", "[site:a[1]+0x2,7]"},
        {"fail_alloc", "[p:100%]", "[p:100%]"},
        {"group_limit_mb", "2", "2"},
        {"group_limit_mb", "4096MiB", "4096"},
        {"group_limit_mb", "40GiB", "40960"},
        {"group_limit_mb", "1tib", "1048576"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct options o;
        char text[128];
        options_default(&o);
        snprintf(text, sizeof text, "%s:%s", good[i].name, good[i].text);
        assert_int_equal(parse(&o, text, OPTIONS_ALL), 0);
        assert_string_equal(value(&o, good[i].name), good[i].shown);
        assert_int_equal(o.given, 1u << key(good[i].name));
    }
}

/* What AcceleratorAllocatorConfig of PyTorch 2.15.0 (libc10.so of its wheel) makes of each text. */
static void shared_keys_mean_what_they_mean_to_pytorch(void **state)
{
    static const struct {
        const char *text, *name, *shown; /* shown NULL: PyTorch refuses it */
    } cases[] = {
        {"max_split_size_mb:-1", "max_split_size_mb", "unlimited"},
        {"max_split_size_mb:-20", "max_split_size_mb", "unlimited"},
        {"max_split_size_mb:18446744073709551615", "max_split_size_mb", "unlimited"},
        {"max_split_size_mb:18446744073709551616", "max_split_size_mb", NULL},
        {"max_split_size_mb:128.5", "max_split_size_mb", "128"},
        {"max_split_size_mb:128MB", "max_split_size_mb", "128"},
        {"max_split_size_mb:+64", "max_split_size_mb", "64"},
        {"max_split_size_mb: 1 28 ,", "max_split_size_mb", "128"},
        {"max_split_size_mb\t:\n\v64\r\f", "max_split_size_mb", "64"},
        {"max_split_size_mb:0x40", "max_split_size_mb", NULL},
        {"max_split_size_mb:19.9", "max_split_size_mb", NULL},
        {"max_split_size_mb:x", "max_split_size_mb", NULL},
        {"max_split_size_mb:[64]", "max_split_size_mb", NULL},
        {"max_non_split_rounding_mb:21", "max_non_split_rounding_mb", "21"},
        {"max_non_split_rounding_mb:-1", "max_non_split_rounding_mb", "unlimited"},
        {"max_non_split_rounding_mb:19", "max_non_split_rounding_mb", NULL},
        {"garbage_collection_threshold:5e-1", "garbage_collection_threshold", "0.5"},
        {"garbage_collection_threshold:0.5x", "garbage_collection_threshold", "0.5"},
        {"garbage_collection_threshold:0x.8", "garbage_collection_threshold", "0.5"},
        {"garbage_collection_threshold:0", "garbage_collection_threshold", NULL},
        {"garbage_collection_threshold:1.0", "garbage_collection_threshold", NULL},
        {"garbage_collection_threshold:1e-400", "garbage_collection_threshold", NULL},
        {"garbage_collection_threshold:inf", "garbage_collection_threshold", NULL},
        {"roundup_power2_divisions:[256:1,512:0,>:8]", "roundup_power2_divisions",
         "[256:1,512:0,>:8]"},
        {"roundup_power2_divisions:[256:1,]", "roundup_power2_divisions", "[256:1,>:0]"},
        {"roundup_power2_divisions:[256:4.5]", "roundup_power2_divisions", "[256:4,>:0]"},
        {"roundup_power2_divisions:[2x:4]", "roundup_power2_divisions", "[2:4,>:0]"},
        {"roundup_power2_divisions:[>:8]", "roundup_power2_divisions", "[1:0,>:8]"},
        {"roundup_power2_divisions:[>:8,64:2]", "roundup_power2_divisions", "[64:2,>:8]"},
        {"roundup_power2_divisions:[131072:4]", "roundup_power2_divisions", "4"},
        {"roundup_power2_divisions:[]", "roundup_power2_divisions", "0"},
        {"roundup_power2_divisions:4,roundup_power2_divisions:[256:8]", "roundup_power2_divisions",
         "[256:8,>:4]"},
        {"roundup_power2_divisions:4096", "roundup_power2_divisions", "4096"},
        {"roundup_power2_divisions:2x", "roundup_power2_divisions", "2"},
        {"roundup_power2_divisions:0", "roundup_power2_divisions", NULL},
        {"roundup_power2_divisions:3", "roundup_power2_divisions", NULL},
        {"roundup_power2_divisions:[256:3]", "roundup_power2_divisions", NULL},
        {"roundup_power2_divisions:[0:1]", "roundup_power2_divisions", NULL},
        {"roundup_power2_divisions:[-4:4]", "roundup_power2_divisions", NULL},
        {"roundup_power2_divisions:[256:1", "roundup_power2_divisions", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int theirs = 0; theirs < 2; theirs++) {
            struct options o;
            options_default(&o);
            int count = parse(&o, cases[i].text, theirs ? options_pytorch_keys() : OPTIONS_ALL);
            if (count != !cases[i].shown)
                fail_msg("%s: %d complaints", cases[i].text, count);
            if (cases[i].shown)
                assert_string_equal(value(&o, cases[i].name), cases[i].shown);
        }
}

static void the_size_of_segments_bounds_handles(void **state)
{
    struct options o;
    (void)state;
    options_default(&o);
    assert_true(options_handle_most(&o, 80 * GIB) == policy.handle_most);
    assert_int_equal(parse(&o, "large_segment_size_mb:21", OPTIONS_ALL), 0);
    assert_true(o.large_segment_bytes == 21 * MIB);
    assert_true(options_handle_most(&o, 80 * GIB) == 21 * MIB);
    assert_int_equal(parse(&o, "large_segment_size_mb:4096", OPTIONS_ALL), 0);
    assert_true(options_handle_most(&o, 80 * GIB) == POLICY_HANDLE_MOST);
}

static void every_bad_value_is_one_complaint_and_changes_nothing(void **state)
{
    static const char *const bad[] = {
        "max_split_size_mb:19",
        "max_split_size_mb:",
        "max_split_size_mb",
        "max_split_size_mb:18446744073709551616",
        "max_non_split_rounding_mb:19",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:3]",
        "roundup_power2_divisions:[256]",
        "roundup_power2_divisions:[255:1]",
        "roundup_power2_divisions:[256:1",
        "roundup_power2_divisions:[0:1]",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:1.01",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:-4",
        "large_segment_size_mb:-1",
        "garbage_collection_threshold:nan",
        "garbage_collection_threshold:-0.5",
        "large_segment_size_mb:0",
        "expandable_segments:maybe",
        "per_process_memory_fraction:0",
        "per_process_memory_fraction:1.5",
        "memory_limit_mb:1",
        "memory_limit_mb:x",
        "memory_limit_mb:-1",
        "memory_limit_mb:64.5",
        "free_mode:never",
        "thread_cache:maybe",
        "cache:2",
        "ipc:legacy",
        "group_limit_mb:1",
        "group_limit_mb:0GiB",
        "group_limit_mb:GiB",
        "group_limit_mb:40GB",
        "group_limit_mb:40 GiB of memory",
        "group_limit_mb:1.5GiB",
        "group_limit_mb:99999999999999TiB",
        "group_limit_mb:99999999999999999999999999",
        "no_such_option:1",
        "MAX_SPLIT_SIZE_MB:128",
        ":20",
        "max_split_size_mb:20:20",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct options o, untouched;
        options_default(&untouched);
        options_default(&o);
        if (parse(&o, bad[i], OPTIONS_ALL) != 1)
            fail_msg("%s: not one complaint", bad[i]);
        assert_non_null(strstr(complaint, "is not understood: "));
        assert_memory_equal(&o, &untouched, sizeof o);
    }
}

static void a_bad_item_does_not_spoil_its_neighbours(void **state)
{
    struct options o;
    (void)state;
    options_default(&o);
    assert_int_equal(
        parse(&o,
              "max_split_size_mb:7,bogus:1,roundup_power2_divisions:[256:1,>:2],free_mode:strict",
              OPTIONS_ALL),
        2);
    assert_int_equal(o.free_mode, FREE_STRICT);
    assert_true(o.max_split_size == UINT64_MAX);
    assert_int_equal(o.roundup_power2_divisions[8], 1);
    assert_int_equal(o.roundup_power2_divisions[9], 2);
}

static void blanks_and_empty_items_are_passed_over(void **state)
{
    struct options o;
    (void)state;
    options_default(&o);
    assert_int_equal(parse(&o, " max_split_size_mb : 64 ,, free_mode:strict,", OPTIONS_ALL), 0);
    assert_true(o.max_split_size == 64 * MIB);
    assert_int_equal(o.free_mode, FREE_STRICT);
    assert_int_equal(parse(&o, "", OPTIONS_ALL), 0);
    assert_int_equal(parse(&o, ",", OPTIONS_ALL), 0);
}

static void the_last_of_two_wins(void **state)
{
    struct options o;
    (void)state;
    options_default(&o);
    assert_int_equal(parse(&o, "max_split_size_mb:64,max_split_size_mb:128", OPTIONS_ALL), 0);
    assert_true(o.max_split_size == 128 * MIB);
}

static void an_endless_item_is_one_complaint(void **state)
{
    static char text[5000];
    struct options o;
    (void)state;
    options_default(&o);
    memset(text, 'x', sizeof text - 1);
    assert_int_equal(parse(&o, text, OPTIONS_ALL), 1);
    memcpy(text, "max_split_size_mb:", 18);
    memset(text + 18, '0', sizeof text - 19);
    memcpy(text + sizeof text - 3, "64", 2);
    assert_int_equal(parse(&o, text, OPTIONS_ALL), 1);
    assert_true(o.max_split_size == UINT64_MAX);
}

/* PyTorch's variable speaks for its own allocator too: other keys are not ours to judge. */
static void pytorchs_variable_sets_only_the_shared_keys(void **state)
{
    struct options o;
    uint32_t keys = options_pytorch_keys();
    (void)state;
    options_default(&o);
    assert_int_equal(
        parse(&o,
              "expandable_segments:True,backend:cudaMallocAsync,pinned_use_background_threads:True",
              keys),
        0);
    assert_int_equal(o.given, 0);
    assert_int_equal(
        parse(&o,
              "max_split_size_mb:32,max_non_split_rounding_mb:40,roundup_power2_divisions:8,"
              "garbage_collection_threshold:0.7,large_segment_size_mb:4,free_mode:strict,cache:off",
              keys),
        0);
    assert_true(o.max_split_size == 32 * MIB && o.max_non_split_rounding == 40 * MIB);
    assert_int_equal(o.roundup_power2_divisions[3], 8);
    assert_true(o.garbage_collection_threshold == 0.7);
    assert_true(o.large_segment_bytes == 20 * MIB);
    assert_int_equal(o.free_mode, FREE_ASYNC);
    assert_int_equal(o.cache, 1);
    assert_int_equal(parse(&o, "max_split_size_mb:1", keys), 1);
}

static void bad_rules_are_complaints(void **state)
{
    static const char *const bad[] = {
        "device_size_mb:63",
        "fail_alloc:-1",
        "bounds:on",
        "fill:one",
        "fill:random",
        "fill:random:x",
        "fill:[nan,0-1]",
        "fill:[nan,2-1]",
        "fill:[nan,2-1",
        "fail_alloc:[]",
        "fail_alloc:[every:0]",
        "fail_alloc:[1,2]",
        "fail_alloc:[kind:ram]",
        "fail_alloc:[p:101%]",
        "fail_alloc:[p:1%:-1]",
        "fail_alloc:[p:1]",
        "fail_alloc:[site:]",
        "fail_alloc:[site:a,site:b]",
        "fail_alloc:[site:0123456789012345678901234567890123456789012345678901234567]",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct options o;
        options_default(&o);
        if (parse(&o, bad[i], OPTIONS_ALL) != 1 || *o.fail_alloc.text)
            fail_msg("%s: not one complaint", bad[i]);
    }
}

/* A rule answers from the number alone: a chance as often as it says, and by its seed. */
static void refusals_follow_from_the_number(void **state)
{
    struct fail_rule nth = {0}, every = {0}, chance = {0}, again = {0}, other = {0};
    int drawn = 0, differ = 0;
    (void)state;
    assert_int_equal(fail_rule_read(&nth, "3"), 0);
    assert_int_equal(fail_rule_read(&every, "[every:3]"), 0);
    assert_int_equal(fail_rule_read(&chance, "[p:1%:7]"), 0);
    assert_int_equal(fail_rule_read(&again, "[p:1%:7]"), 0);
    assert_int_equal(fail_rule_read(&other, "[p:1%:8]"), 0);
    for (uint64_t n = 1; n <= 100000; n++) {
        assert_int_equal(fail_rule_refuses(&nth, n), n == 3);
        assert_int_equal(fail_rule_refuses(&every, n), n % 3 == 0);
        assert_int_equal(fail_rule_refuses(&chance, n), fail_rule_refuses(&again, n));
        drawn += fail_rule_refuses(&chance, n);
        differ += fail_rule_refuses(&chance, n) != fail_rule_refuses(&other, n);
    }
    assert_in_range(drawn, 900, 1100);
    assert_in_range(differ, 1800, 2200);
}

static void the_defaults_are_the_published_ones(void **state)
{
    static const char *const shown[][2] = {
        {"max_split_size_mb", "unlimited"},
        {"max_non_split_rounding_mb", "20"},
        {"roundup_power2_divisions", "0"},
        {"garbage_collection_threshold", "0"},
        {"large_segment_size_mb", "20"},
        {"expandable_segments", "auto"},
        {"per_process_memory_fraction", "1"},
        {"memory_limit_mb", "off"},
        {"free_mode", "async"},
        {"thread_cache", "on"},
        {"idle_return_s", "1"},
        {"cache", "on"},
        {"pinned", "on"},
        {"ipc", "auto"},
        {"fail_alloc", "off"},
        {"device_size_mb", "off"},
        {"group_limit_mb", "off"},
        {"fill", "off"},
        {"bounds", "off"},
        {"slack", "off"},
    };
    struct options o;
    (void)state;
    options_default(&o);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        assert_string_equal(value(&o, shown[i][0]), shown[i][1]);
    assert_null(options_name(sizeof shown / sizeof *shown));
}

static void the_limit_is_the_lesser_of_fraction_and_bytes(void **state)
{
    struct options o;
    (void)state;
    options_default(&o);
    assert_true(options_limit(&o, 80 * GIB) == UINT64_MAX);
    parse(&o, "per_process_memory_fraction:0.5", OPTIONS_ALL);
    assert_true(options_limit(&o, 80 * GIB) == 40 * GIB);
    parse(&o, "memory_limit_mb:1024", OPTIONS_ALL);
    assert_true(options_limit(&o, 80 * GIB) == GIB);
    assert_true(options_limit(&o, GIB) == GIB / 2);
    parse(&o, "per_process_memory_fraction:1", OPTIONS_ALL);
    assert_true(options_limit(&o, GIB / 2) == GIB);
    parse(&o, "per_process_memory_fraction:.00000000000001", OPTIONS_ALL);
    assert_true(options_limit(&o, GIB) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_good_value_reads_back),
        cmocka_unit_test(shared_keys_mean_what_they_mean_to_pytorch),
        cmocka_unit_test(the_size_of_segments_bounds_handles),
        cmocka_unit_test(every_bad_value_is_one_complaint_and_changes_nothing),
        cmocka_unit_test(a_bad_item_does_not_spoil_its_neighbours),
        cmocka_unit_test(blanks_and_empty_items_are_passed_over),
        cmocka_unit_test(the_last_of_two_wins),
        cmocka_unit_test(an_endless_item_is_one_complaint),
        cmocka_unit_test(pytorchs_variable_sets_only_the_shared_keys),
        cmocka_unit_test(bad_rules_are_complaints),
        cmocka_unit_test(refusals_follow_from_the_number),
        cmocka_unit_test(the_defaults_are_the_published_ones),
        cmocka_unit_test(the_limit_is_the_lesser_of_fraction_and_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
