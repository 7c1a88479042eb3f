/* The policy: each number has a row of its own, and can be set by name unless it is PyTorch's or would be no number to
 * divide by. */
#include "allocator/base/policy.h"

#include <string.h>

#include "allocator/base/device.h"
#include "world.h"

static void each_row_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < policy_count(); i++) {
        const struct policy_row *row = policy_row(i);
        assert_true(*row->name && *row->unit && *row->family && *row->trades);
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(row->name, policy_row(j)->name);
        assert_int_equal(policy_set(row->name, row->initial), row->is_fixed ? -1 : 0);
        if (!strcmp(row->unit, "1/n"))
            assert_int_equal(policy_set(row->name, 0), -1);
    }
}

static void a_number_is_set_by_name(void **state)
{
    (void)state;
    assert_int_equal(policy_set("keep", 9), 0);
    assert_int_equal(policy_set("price_map", 123), 0);
    assert_true(policy.keep == 9 && device_costs.map == 123);
    policy_reset();
    assert_true(policy.keep == 4 && device_costs.map == 900);
}

static void what_is_no_number_of_the_policy_is_refused(void **state)
{
    (void)state;
    assert_int_equal(policy_set("kept", 9), -1);
    assert_int_equal(policy_set("spills", UINT64_C(1) << 31), -1); /* an int */
    assert_int_equal(policy_set("pace", UINT64_MAX), -1);
    assert_int_equal(policy_set("varied_sizes", POLICY_VARIED_SIZES + 1), -1); /* an array */
    assert_int_equal(policy_set("handle_most", POLICY_HANDLE_MOST + 1), -1);
    assert_true(policy.spills == 8 && policy.pace == 1024 && policy.varied_sizes == 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_has_a_name_of_its_own),
        cmocka_unit_test(a_number_is_set_by_name),
        cmocka_unit_test(what_is_no_number_of_the_policy_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
