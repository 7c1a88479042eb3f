/* The ordered sets against a plain array. */
#include <string.h>

#include "world.h"

#include "allocator/base/size_bins.h"
#include "random.h"

#define NODES 400

static struct treap_node node[NODES];
static int in_tree[NODES];

static int before(const struct treap_node *n, uint64_t major, uint64_t minor)
{
    return n->major < major || (n->major == major && n->minor < minor);
}

static struct treap_node *expect(uint64_t major, uint64_t minor, int at_least)
{
    struct treap_node *best = NULL;
    for (int i = 0; i < NODES; i++) {
        struct treap_node *n = &node[i];
        int is_before = before(n, major, minor), equal = n->major == major && n->minor == minor;
        if (!in_tree[i] || (at_least ? is_before : !is_before && !equal))
            continue;
        if (!best || before(n, best->major, best->minor) == at_least)
            best = n;
    }
    return best;
}

static int depth(const struct treap_node *n)
{
    int left = n ? depth(n->left) : 0, right = n ? depth(n->right) : 0;
    return n ? 1 + (left > right ? left : right) : 0;
}

static int same_shape(const struct treap_node *a, const struct treap_node *b)
{
    if (!a || !b)
        return a == b;
    return a->major == b->major && a->minor == b->minor && same_shape(a->left, b->left) &&
           same_shape(a->right, b->right);
}

/* The shape depends on the set alone, not on its history. */
static void expect_shape(const struct treap *tree)
{
    static struct treap_node copy[NODES];
    struct treap fresh = {NULL};
    for (int i = 0; i < NODES; i++)
        if (in_tree[i]) {
            copy[i] = node[i];
            treap_insert(&fresh, &copy[i]);
        }
    assert_true(same_shape(tree->root, fresh.root));
}

static void random_operations(void **state)
{
    struct treap tree = {NULL};
    uint64_t seed = 7;
    (void)state;
    for (int i = 0; i < NODES; i++) {
        node[i].major = random_below(&seed, 20) * 512; /* many of the same size */
        node[i].minor = (uint64_t)i * 512;
    }
    for (int step = 0; step < 40000; step++) {
        int i = (int)random_below(&seed, NODES);
        if (in_tree[i])
            treap_remove(&tree, &node[i]);
        else
            treap_insert(&tree, &node[i]);
        in_tree[i] = !in_tree[i];
        uint64_t major = random_below(&seed, 21) * 512,
                 minor = random_below(&seed, NODES + 1) * 512;
        assert_ptr_equal(treap_at_least(&tree, major, minor), expect(major, minor, 1));
        assert_ptr_equal(treap_at_most(&tree, major, minor), expect(major, minor, 0));
        assert_ptr_equal(treap_last(&tree), expect(UINT64_MAX, UINT64_MAX, 0));
        if (step % 100 == 0)
            expect_shape(&tree);
    }
}

/* Sizes of all orders of magnitude, some a grain apart: neighbours of one bin and of others. */
static void bins_answer_as_one_tree_does(void **state)
{
    static struct bins bins;
    uint64_t seed = 11;
    (void)state;
    memset(in_tree, 0, sizeof in_tree);
    assert_null(bins_at_least(&bins, 0, 0));
    assert_null(bins_last(&bins));
    for (int i = 0; i < NODES; i++) {
        node[i].major = random_below(&seed, 8) + ((8 + random_below(&seed, 8)) << i % 60);
        node[i].minor = (uint64_t)(NODES - i) * 512;
    }
    node[0].major = 0;
    node[1].major = node[2].major = UINT64_MAX;
    for (int step = 0; step < 40000; step++) {
        int i = (int)random_below(&seed, NODES);
        if (step > 20000 && !in_tree[i]) /* few in the end, and gaps between them */
            i = (int)random_below(&seed, 30);
        if (in_tree[i])
            bins_remove(&bins, &node[i]);
        else
            bins_insert(&bins, &node[i]);
        in_tree[i] = !in_tree[i];
        uint64_t size = node[random_below(&seed, NODES)].major + random_below(&seed, 3) - 1;
        uint64_t address = random_below(&seed, NODES + 2) * 512;
        assert_ptr_equal(bins_at_least(&bins, size, address), expect(size, address, 1));
        assert_ptr_equal(bins_last(&bins), expect(UINT64_MAX, UINT64_MAX, 0));
    }
}

static void an_empty_tree_has_nothing(void **state)
{
    struct treap tree = {NULL};
    (void)state;
    assert_null(treap_at_least(&tree, 0, 0));
    assert_null(treap_at_most(&tree, UINT64_MAX, UINT64_MAX));
    assert_null(treap_last(&tree));
}

/* In order of insertion, the worst for a plain tree, it stays shallow. */
static void sorted_inserts_stay_shallow(void **state)
{
    static struct treap_node many[100000];
    struct treap tree = {NULL};
    (void)state;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        many[i].minor = i * 2 * MIB;
        treap_insert(&tree, &many[i]);
    }
    assert_in_range(depth(tree.root), 17, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_tree_has_nothing),
        cmocka_unit_test(random_operations),
        cmocka_unit_test(bins_answer_as_one_tree_does),
        cmocka_unit_test(sorted_inserts_stay_shallow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
