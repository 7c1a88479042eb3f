"""How two outputs of a program on a real GPU are compared: what may differ, and what may not."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
import alike  # noqa: E402

SUMS = ["device 0: sum 17", "max error 0.25", "Test PASSED"]


def told(*natives, front):
    return alike.compare([list(native) for native in natives], list(front))


def test_the_same():
    assert told(SUMS, SUMS, front=SUMS) == (True, "3 lines")


@pytest.mark.parametrize("change", [("17", "18"), ("0.25", "0.5"), ("PASSED", "FAILED"), ("device ", ""),
                                    ("PASSED", "PASSED twice")])
def test_a_word_that_is_the_same_natively(change):
    same, why = told(SUMS, SUMS, front=[line.replace(*change) for line in SUMS])
    assert not same and "natively" in why


def test_lines_lost_and_added():
    assert not told(SUMS, SUMS, front=SUMS[:2])[0]
    assert not told(SUMS, SUMS, front=[*SUMS, "warning"])[0]
    assert not told(SUMS, SUMS, front=[])[0]


@pytest.mark.parametrize("lines", [
    ["took {} ms", "sum 17"], ["Bandwidth = {}.5 GB/s"], ["elapsed time {}.25"], ["Ran 12 tests in 1.{}s"],
    ["at 0x7f00{}00"], ["W1121 15:{}:17.5 main"], ["2026-{}-01 done"], ["{} s, 17 done"], ["time: {}.1, 3 streams"]])
def test_what_is_never_the_same(lines):
    first, *rest = ([line.format(n) for line in lines] for n in (10, 11, 12))
    assert told(first, rest[0], front=rest[1])[0]
    assert told(first, first, front=rest[1])[0], "not even where it is by chance the same natively"


def test_a_result_beside_a_time():
    assert not told(["time 1.5, sum 17"], ["time 1.6, sum 17"], front=["time 1.7, sum 18"])[0]


def test_words_that_vary_natively():
    natives = [["pid 17 seed 5"], ["pid 18 seed 5"]]
    assert told(*natives, front=["pid 19 seed 5"]) == (True, "1 lines, 1 words differ natively")
    assert not told(*natives, front=["pid 19 seed 6"])[0]


def test_lines_in_another_order():
    assert told(["child 1 ok", "parent is here ok"], ["parent is here ok", "child 1 ok"],
                front=["child 1 ok", "parent is here ok"])[0]
    assert not told(["child 1 ok", "parent is here ok"], ["parent is here ok", "child 1 ok"],
                    front=["child 1 failed", "parent is here ok"])[0]


def test_lines_of_several_that_print_at_once():
    native, front = ["child 1 ok", "child 2 ok"], ["child 2 ok", "child 1 ok"]
    assert alike.compare([native, native], front, at_once=True) == (True, "2 lines, in any order")
    assert not alike.compare([native, native], front)[0]
    assert not alike.compare([native, native], ["child 2 ok", "child 2 ok"], at_once=True)[0]


def test_lines_in_another_order_that_look_alike():
    natives = [["child 1 ok", "child 2 bad"], ["child 2 bad", "child 1 ok"]]
    assert told(*natives, front=["child 1 ok", "child 2 bad"])[0]
    assert not told(*natives, front=["child 1 bad", "child 2 ok"])[0]


def test_different_numbers_of_lines():
    natives = [["waiting", "waiting", "done"], ["waiting", "done"]]
    assert told(*natives, front=["waiting", "waiting", "waiting", "done"])[0]
    assert not told(*natives, front=["waiting", "done", "error"])[0]
    assert not told(*natives, front=["waiting"])[0]
