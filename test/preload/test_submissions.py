"""Every call that carries work is seen, and counted once, however the program found it."""

import re

import pytest

from conftest import ROOT

KINDS = ["kernels", "copies", "sets", "graphs", "host_functions", "memory_operations",
         "pool_operations", "others"]


@pytest.mark.parametrize("way", ["linked", "dlsym", "proc_address"])
def test_every_submission_is_counted(place, way):
    done = place.same("submissions", way)
    seen = place.only_report()["coverage"]["submissions"]
    assert seen == {kind: done.value(kind) for kind in KINDS}


def names(path, pattern):
    return set(re.findall(pattern, (ROOT / path).read_text()))


def test_the_list_is_whole(place):
    """All that the simulated driver has of the table's submissions is in the program."""
    hooks = (ROOT / "interpose/resolve/hooks.h").read_text()
    hooked = set(re.findall(r"X\((cu\w+)\)", hooks[hooks.index("X(cuLaunchKernel)"):
                                                    hooks.index("X(cuGraphInstantiate)")]))
    simulated = set()
    for path in sorted((ROOT / "test/sim").glob("calls_[!o]*.def")):
        for macro, name, suffix in re.findall(r"^(FN|TWIN)\((\w+), (\w+)", path.read_text(),
                                              re.MULTILINE):
            simulated |= {name, name + suffix} if macro == "TWIN" else {name}
    done = place.native("submissions", "linked")
    called = set(re.findall(r"^(cu\w+): ", done.out, re.MULTILINE))
    assert len(hooked & simulated) > 120
    assert sorted(hooked & simulated - called) == []


def test_copies_and_sets_had_an_effect(place):
    done = place.same("submissions", "linked")
    for line in done.out.splitlines():
        if line.startswith(("cuMemcpy", "cuMemset", "updated")):
            assert not line.endswith(": 0"), line
