"""The numbers of the policy: cachalot-replay lists them, and replays with others."""

import subprocess

import policy_table
import pytest
from conftest import OWN, TOOL, write


def tool(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_the_table_lists_each_number_with_what_it_trades():
    head, *rows = [line.split("\t") for line in tool("--policies").stdout.splitlines()]
    assert head == ["name", "default", "unit", "family", "what it trades", "measured"]
    assert all(len(row) == 6 and all(row[:5]) for row in rows)
    names = [row[0] for row in rows]
    assert len(set(names)) == len(names) and {"keep", "price_access", "PYTORCH_SMALL_SIZE"} <= set(names)


def test_a_number_changes_the_replay(tmp_path):
    """With handles of 2 MiB the driver makes more of them."""
    path = write(tmp_path / "x.csv", OWN + f"a,1,{1 << 30},0\n")
    made = [tool(*policy, path).stdout.partition('"num_device_alloc": ')[2].partition(",")[0] for policy in ((), ("--policy", "handle_most=2097152"))]
    assert int(made[0]) < int(made[1]) == 512


def test_a_price_is_what_the_replay_books(tmp_path):
    path = write(tmp_path / "x.csv", OWN + "a,1,4096,0\n")
    got = tool("--policy", "price_create=7", "--print-costs")
    assert got.returncode == 0 and "chunk_create,0,7\n" in got.stdout
    assert tool("--policy", "price_create=7", path).returncode == 0


@pytest.mark.parametrize("policy", ["keep", "keep=", "keep=x", "kept=4", "PYTORCH_SMALL_SIZE=1", "loss_part=0"])
def test_what_is_no_number(tmp_path, policy):
    got = tool("--policy", policy, write(tmp_path / "x.csv", OWN))
    assert got.returncode == 2 and got.stderr.startswith("usage:")


def test_the_table_of_changes_names_numbers_that_there_are():
    """Of test/replay/policy_table.py, which takes minutes."""
    known = policy_table.numbers(TOOL)
    for name, _, policy in policy_table.changes([], known, TOOL):
        assert tool(*policy_table.options(policy), "--policies").returncode == 0, name
