/* Requests become blocks: multiples of 512, or steps between powers of two. */
#include "world.h"

static struct options o;

static int plain(void **state)
{
    (void)state;
    options_default(&o);
    return 0;
}

static void divisions(unsigned n)
{
    for (unsigned i = 0; i < ROUNDUP_INTERVALS; i++)
        o.roundup_power2_divisions[i] = n;
}

static void up_to_a_multiple_of_512(void **state)
{
    (void)state;
    assert_int_equal(options_round(&o, 0), 512);
    assert_int_equal(options_round(&o, 1), 512);
    assert_int_equal(options_round(&o, 512), 512);
    assert_int_equal(options_round(&o, 513), 1024);
    assert_int_equal(options_round(&o, MIB), MIB);
    assert_int_equal(options_round(&o, MIB + 1), MIB + 512);
    for (uint64_t n = 1; n < 100000; n += 7) {
        uint64_t size = options_round(&o, n);
        assert_true(size % 512 == 0 && size >= n && size - n < 512);
    }
}

/* The example of PyTorch's documentation: 1200 with 4 divisions lies between 1024 and 2048, steps
 * of 256. */
static void the_documented_example(void **state)
{
    (void)state;
    divisions(4);
    assert_int_equal(options_round(&o, 1200), 1536); /* not above 512 * 4: plain */
    assert_int_equal(options_round(&o, 2048), 2048);
    assert_int_equal(options_round(&o, 2049), 2560);
    assert_int_equal(options_round(&o, 4097), 5120);
    assert_int_equal(options_round(&o, 5 * MIB + 1), 6 * MIB);
    assert_int_equal(options_round(&o, 6 * MIB), 6 * MIB);
    assert_int_equal(options_round(&o, 7 * MIB + 1), 8 * MIB);
}

static void one_division_is_none(void **state)
{
    (void)state;
    divisions(1);
    assert_int_equal(options_round(&o, 5 * MIB + 1), 5 * MIB + 512);
}

/* Against the definition, with no cleverness: the least step of the interval that holds the
 * request. */
static void every_step_by_the_definition(void **state)
{
    (void)state;
    for (unsigned d = 2; d <= 64; d *= 2) {
        divisions(d);
        for (uint64_t n = 513; n < 3 * MIB; n += 1 + n / 97) {
            uint64_t want = (n + 511) / 512 * 512;
            if (n > 512 * d) {
                uint64_t floor = 1;
                while (floor * 2 <= n)
                    floor *= 2;
                for (want = floor; want < n;)
                    want += floor / d;
            }
            assert_int_equal(options_round(&o, n), want);
        }
    }
}

/* `[256:1,512:2,1024:4,>:8]`: each power of two has its own. */
static void divisions_by_size(void **state)
{
    (void)state;
    world_remake("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", GIB);
    o = w.options;
    assert_true(options_round(&o, 300 * MIB) == 300 * MIB);
    assert_true(options_round(&o, 500 * MIB) == 500 * MIB);
    assert_true(options_round(&o, 513 * MIB) == 768 * MIB);
    assert_true(options_round(&o, 1025 * MIB) == 1280 * MIB);
    assert_true(options_round(&o, 2049 * MIB) == 2304 * MIB);
    assert_true(options_round(&o, 100 * MIB + 1) == 100 * MIB + 512);
    assert_true(options_round(&o, 128 * GIB + 1) == 144 * GIB);
    world_remake("roundup_power2_divisions:[8:2,64:4]", GIB);
    o = w.options;
    assert_true(options_round(&o, 3 * MIB + 1) == 4 * MIB);
    assert_true(options_round(&o, 9 * MIB) == 12 * MIB);
    assert_true(options_round(&o, 17 * MIB) == 17 * MIB); /* named by none */
    assert_true(options_round(&o, 65 * MIB) == 80 * MIB);
    assert_true(options_round(&o, 129 * MIB) == 129 * MIB);
}

static void never_overflows(void **state)
{
    (void)state;
    for (unsigned d = 0; d <= 8; d += 8) {
        divisions(d);
        assert_true(options_round(&o, UINT64_MAX) == UINT64_MAX);
        assert_true(options_round(&o, UINT64_MAX / 4 + 1) == UINT64_MAX);
        assert_true(options_round(&o, UINT64_MAX / 4) == (uint64_t)1 << 62);
        assert_true(options_round(&o, ((uint64_t)1 << 61) + 1) > (uint64_t)1 << 61);
    }
}

/* A request beyond all bounds is the driver's to refuse. */
static void beyond_bounds_is_not_ours(void **state)
{
    (void)state;
    world_remake("", UINT64_MAX);
    assert_int_equal(try_take(UINT64_MAX), ALLOCATOR_PASS);
    assert_int_equal(try_take(UINT64_MAX / 2), ALLOCATOR_PASS);
    assert_int_equal(w.device.calls[FAKE_ALLOC], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(up_to_a_multiple_of_512, plain),
        cmocka_unit_test_setup(the_documented_example, plain),
        cmocka_unit_test_setup(one_division_is_none, plain),
        cmocka_unit_test_setup(every_step_by_the_definition, plain),
        cmocka_unit_test_setup(divisions_by_size, plain),
        cmocka_unit_test_setup(never_overflows, plain),
        cmocka_unit_test_setup(beyond_bounds_is_not_ours, plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
