"""What the program does with memory that is not its own becomes a fault in the report, and changes no answer."""

import os
import subprocess

import pytest

from conftest import PROGRAMS, SIM, WORKLOADS, load

ALL_ON = "bounds:warn,slack:check"
LISTED = subprocess.run([PROGRAMS / "planted_faults"], env={**os.environ, "LD_LIBRARY_PATH": str(SIM)}, capture_output=True, text=True,
                        check=True).stdout
CASES = [tuple(line.split()) for line in LISTED.splitlines()]


def faults_of(place, name, conf, **more):
    """(report, {kind: count}) of a planted fault."""
    (place.work / "r.json").unlink(missing_ok=True)
    done = place.run("planted_faults", name, CACHALOT_CONF=conf, CACHALOT_OUTPUT="r.json", **more)
    assert (done.code, done.out, done.err) == (0, "", ""), done.err
    report = load(place.work / "r.json")
    counts = {kind: count for kind, count in report["faults"]["counts"].items() if count}
    assert report["totals"]["faults"] == sum(counts.values()) == len(report["faults"]["first"])
    return report, counts


def test_there_are_many():
    assert len(CASES) == 70


@pytest.mark.parametrize("mapped", ["False", "True"])
@pytest.mark.parametrize("name, kind", CASES)
def test_planted(place, name, kind, mapped):
    """Natively all of these go on, which the program itself checks."""
    conf = "slack:check" if kind == "overrun" else ALL_ON  # the sets that stand for a kernel would be seen themselves
    report, counts = faults_of(place, name, f"{conf},expandable_segments:{mapped}")
    counts.pop("overrun", None) if kind == "past_end" else None  # sets that run past the end write the slack
    assert counts == {kind: 1}, report["faults"]
    (fault,) = [f for f in report["faults"]["first"] if f["kind"] == kind]
    if kind in ("past_end", "after_free", "interior_free", "overrun", "double_free"):
        assert fault["block_address"] and fault["block_bytes"], fault


@pytest.mark.parametrize("name, kind", [case for case in CASES if case[1] in ("double_free", "interior_free", "foreign_free")])
def test_frees_are_seen_without_an_option(place, name, kind):
    assert faults_of(place, name, "")[1] == {kind: 1}


def test_off_there_are_no_others(place):
    for name in ("to_device_past_end", "to_host_after_free", "overrun_byte"):
        assert faults_of(place, name, "")[1] == {}


def test_what_is_said(place):
    report, _ = faults_of(place, "overrun_far", "slack:check")
    (fault,) = report["faults"]["first"]
    assert fault["text"] == "11 bytes were written from byte 501 of a block of 1 bytes on"
    assert (int(fault["address"], 16) - int(fault["block_address"], 16), fault["bytes"], fault["device"]) == (501, 11, 0)
    report, _ = faults_of(place, "interior_grain", "")
    assert report["faults"]["first"][0]["text"] == "cuMemFree_v2 of an address 512 bytes inside a block of 4096 bytes"
    report, _ = faults_of(place, "set_8_past_end", "bounds:warn")
    assert report["faults"]["first"][0]["text"] == "cuMemsetD8_v2 of 1001 bytes runs 1 bytes past the end of a block of 1000 bytes"


def test_call_sites(place):
    """The fault's, the allocation's and the free's, which differ."""
    report, _ = faults_of(place, "to_host_after_free", ALL_ON, CACHALOT_SITES="1")
    (fault,) = report["faults"]["first"]
    sites = [fault[key] for key in ("site", "block_site", "freed_site")]
    assert None not in sites and len(set(sites)) == 3, fault
    frames = [report["sites"][site]["frames"] for site in sites]
    assert all("planted_faults" in found[0] for found in frames), frames


@pytest.mark.parametrize("command", ["show", "check"])
def test_the_command_says_it(place, command):
    faults_of(place, "double_small", "")
    done = place.cachalot(command, "r.json", *(["--max-faults", "0"] if command == "check" else []))
    assert done.code == (1 if command == "check" else 0)
    assert "cuMemFree_v2 of a block that was free already" in done.out, done.out


def test_the_gate_passes_without_faults(place):
    assert place.run("planted_faults", "overrun_byte", CACHALOT_OUTPUT="r.json").code == 0
    assert place.cachalot("check", "r.json", "--max-faults", "0").code == 0


@pytest.mark.parametrize("program", ["train_loop", "seed2_reserved", "seed5_vgg16"])
def test_no_false_alarm(place, program):
    done = place.cachalot("run", "--conf", ALL_ON, "--output", "r.json", WORKLOADS / program, LD_LIBRARY_PATH=SIM)
    assert done.code == 0, done.err
    report = load(place.work / "r.json")
    assert (report["totals"]["faults"], report["warnings"]) == (0, [])
