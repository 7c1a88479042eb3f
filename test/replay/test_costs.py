"""cachalot replay --costs: what the driver's calls are said to cost, and price lists that are refused."""

import os

import pytest
from conftest import command, replay, trace_of

COUNT_MOST = 2**53 - 1
OWN = "op,id,bytes,stream\n"
RECORDED = os.environ.get("CACHALOT_TEST_TRACES", "gpt").split(",")


def write(path, text):
    path.write_text(text)
    return path


def test_costs(tmp_path):
    """By hand: a line between two sizes, the first one's below, the last two's beyond; then the last four fifths."""
    costs = write(tmp_path / "costs.csv", "call,bytes,ns\nalloc,4194304,100\nalloc,20971520,1000\nalloc,41943040,5000\n"
                                          "free,0,7\n")
    text = OWN + "a,0,1,0\na,1,11534336,0\na,2,60000000,0\nf,2,,0\nf,1,,0\n"
    got = replay(write(tmp_path / "x.csv", text), "--costs", costs)["driver"]
    between = round(100 + (12582912 - 4194304) / (20971520 - 4194304) * 900)
    beyond = round(1000 + (60817408 - 20971520) / (41943040 - 20971520) * 4000)
    assert got["calls"]["alloc"] == {"count": 3, "failed": 0, "bytes": 2097152 + 12582912 + 60817408,
                                     "cost_ns": 100 + between + beyond}
    assert got["cost_ns"] == 100 + between + beyond and got["calls"]["event_record"]["cost_ns"] is None
    assert (got["steady_from_operation"], got["steady_cost_ns"]) == (1, between + beyond)
    got = replay(tmp_path / "x.csv", "--costs", costs, "--conf", "cache:off")["driver"]
    assert got["calls"]["free"] == {"count": 2, "failed": 0, "bytes": 71534336, "cost_ns": 14}


def test_what_has_no_price_is_not_counted_as_nothing(tmp_path):
    path = write(tmp_path / "x.csv", "a,0,4000000,0\nf,0\n")
    strict, default = (command("replay", path, "--conf", f"expandable_segments:False{more}").stdout for more in (",free_mode:strict", ""))
    assert "\nNot counted, for want of a price (--costs): synchronize\n" in strict and "Not counted" not in default


@pytest.mark.parametrize("text", ["alloc,1,2,3\n", "nothing,1,2\n", "alloc,5,1\nalloc,5,1\n", "alloc,1\n", "alloc,1,x\n", "alloc,0,-5\n", "alloc,-1,5\n",
                                  "".join(f"alloc,{i},1\n" for i in range(33))])
def test_broken_costs(tmp_path, text):
    write(tmp_path / "x.csv", "a,0,1,0\n")
    done = command("replay", tmp_path / "x.csv", "--costs", write(tmp_path / "c", "call,bytes,ns\n" + text))
    assert done.returncode == 2 and "line " in done.stderr


@pytest.mark.parametrize("path, said", [("/dev/null", "no price in it"), ("header", "no price in it"), (".", "Is a directory")])
def test_costs_of_nothing(tmp_path, path, said):
    """They would make every setting as good as any."""
    write(tmp_path / "x.csv", "a,0,1,0\n")
    write(tmp_path / "header", "call,bytes,ns\n")
    for name in ("replay", "tune"):
        done = command(name, tmp_path / "x.csv", "--costs", tmp_path / path)
        assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_the_costs_in_use_can_be_printed_and_given_back(tmp_path):
    done = command("replay", "--costs", "default")
    assert done.returncode == 0 and "alloc,1073741824,276244" in done.stdout
    trace = trace_of(RECORDED[0])
    given = replay(trace, "--costs", write(tmp_path / "c", done.stdout))["driver"]
    assert given == replay(trace)["driver"]


def test_a_price_beyond_all_measure(tmp_path):
    path, costs = write(tmp_path / "x.csv", "a,0,40000000,0\n"), write(tmp_path / "c", "alloc,1,0\nalloc,2,999999999999999\n")
    assert replay(path, "--costs", costs)["driver"]["calls"]["alloc"]["cost_ns"] == 999999999999999
    write(tmp_path / "x.csv", "".join(f"a,{i},40000000,0\n" for i in range(18447)))  # just 2^64 ns
    got = replay(path, "--costs", costs, "--conf", "cache:off")["driver"]
    assert got["calls"]["alloc"]["cost_ns"] == got["cost_ns"] == COUNT_MOST >= got["steady_cost_ns"] > COUNT_MOST / 2


def test_a_pipe_of_prices_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = command("replay", write(tmp_path / "x.csv", "a,0,1,0\n"), "--costs", tmp_path / "pipe")
    assert (done.returncode, done.stdout) == (2, "") and "is a pipe: it is opened again, so copy it to a file first" in done.stderr


def test_a_path_that_moves_a_cursor(tmp_path):
    done = command("replay", write(tmp_path / "x.csv", "a,0,1,0\n"), "--costs", tmp_path / "no\x1b[31mpe\nx")
    assert done.returncode == 2 and done.stderr.endswith("no?[31mpe?x: No such file or directory\n") and done.stderr.count("\n") == 1


def test_a_list_as_other_programs_write_it(tmp_path):
    trace = write(tmp_path / "x.csv", OWN + "a,0,4000000,0\n")
    costs = write(tmp_path / "costs.csv", "\ufeffcall,bytes,ns\r\n\r\nalloc,0,70\r\n \r\n")
    assert replay(trace, "--costs", costs)["driver"]["cost_ns"] == 70
