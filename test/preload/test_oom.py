"""Out of memory explains itself: in the report, and in `cachalot show`."""

import pytest
import sanitizer

from conftest import KIB, MIB, PROGRAMS, SIM, WORKLOADS, Report, load


def event_of(place, **more):
    """out_of_memory asks for 16 MiB three times."""
    assert place.run("out_of_memory", "malloc", **more).code == 99
    (report,) = place.harvest()
    (event,) = report["oom_events"]
    assert (event["asked_bytes"], event["largest_hole_bytes"], event["pending_bytes"]) == (16 * MIB, 0, 0)
    assert "out_of_memory" in str(report["sites"][event["site"]]["frames"])  # always looked at
    return event


@pytest.mark.parametrize("conf, capacity, options, said", [
    ("", "44M", [], "more than the device has left, also without a cache"),
    ("memory_limit_mb:40", "44M", [], "more than both the limit and the device have"),
    ("memory_limit_mb:40", "64M", ["memory_limit_mb:51"], "the limit of 40.0 MiB that was set is reached"),
    ("per_process_memory_fraction:0.625", "64M", ["per_process_memory_fraction:1"],
     "the limit of 40.0 MiB that was set is reached"),
])
def test_why(place, conf, capacity, options, said):
    event = event_of(place, CACHALOT_CONF=conf, CACHALOT_SIM_CAPACITY=capacity)
    assert event["would_serve"] == options
    assert said in event["explanation"] and not event["native_would_fit"]
    assert "asked for 16.0 MiB while it held 32.0 MiB" in event["explanation"]
    for option in options:  # it is true
        done = place.run("out_of_memory", "malloc", CACHALOT_CONF=option, CACHALOT_SIM_CAPACITY=capacity)
        assert done.code == 0, option


@pytest.mark.parametrize("more, options", [
    ("", "expandable_segments:True or cache:off"),
    (",roundup_power2_divisions:1", "cache:off"),  # how much more that takes is not known
])
def test_holes(place, more, options):
    """Certified: seed 4(b) under 8 GiB, where the largest of 3 GiB to hand out is no piece of 4 GiB."""
    done = place.cachalot("run", "--conf", "memory_limit_mb:8192,expandable_segments:False" + more, "--output", "r.json",
                          WORKLOADS / "seed4b_tenants", LD_LIBRARY_PATH=SIM)
    assert "point out of memory" in done.out
    shown = place.cachalot("show", "r.json").out.split("Out of memory: once:\n")[1]
    text = " ".join(shown.split())
    assert "asked for 4.00 GiB while it held 2.00 GiB" in text and "for one request 3.00 GiB" in text
    assert "enough in sum, but in no one piece; without a cache it would have fitted" in text
    assert f"Would have served it: CACHALOT_CONF={options}" in text


REQUESTS = 1 + 8 + 2 + 1 + 1  # of refused.c


def refusals(place, rule, program="refused", *arguments):
    """(the program, requests counted, [(number, kind, bytes)] that were refused)."""
    (place.work / "r.json").unlink(missing_ok=True)
    done = place.run(program, *arguments, CACHALOT_CONF=f"fail_alloc:{rule}", CACHALOT_OUTPUT="r.json")
    report = load(place.work / "r.json")
    counters = report["coverage"]["counters"]
    events = [(e["refused"], e["kind"], e["requested_bytes"]) for e in report["oom_events"]]
    assert counters["fail_alloc_refused"] == len(events) and all("on purpose" in e["explanation"] for e in report["oom_events"])
    assert report["totals"]["ooms"] == (len(events) if report["devices"] else 0)
    return done, counters["fail_alloc_requests"], events


@pytest.mark.parametrize("mapped", ["False", "True"])
def test_each_allocation_is_counted(place, mapped):
    """Also hits, which thread caches would hide, small and large; not those of a capture."""
    done, requests, events = refusals(place, f"0,expandable_segments:{mapped}")
    assert (done.code, done.out, requests, events) == (0, "fast\n", REQUESTS, [])


@pytest.mark.parametrize("rule, code, out, expected", [
    ("1", 3, "", [(1, "device", 4 * KIB)]),
    ("5", 0, "fast\n", [(5, "device", 4 * KIB)]),
    ("[every:12]", 0, "slow\n", [(12, "pinned", MIB)]),
    ("[kind:pinned]", 0, "slow\n", [(1, "pinned", MIB)]),
    ("[kind:device,4]", 0, "fast\n", [(4, "device", 4 * KIB)]),
    ("[site:refused+0x,1]", 3, "", [(1, "device", 4 * KIB)]),
    ("[site:another+0x]", 0, "fast\n", []),
])
def test_refused_on_purpose(place, rule, code, out, expected):
    done, _, events = refusals(place, rule)
    assert (done.code, done.out, events) == (code, out, expected), done.err


def test_each_kind_can_be_refused(place):
    for kind, bytes_of in (("managed", [MIB]), ("pinned", 2 * [MIB]), ("array", [MIB, MIB, 1196032]), ("vmm", [2 * MIB]),
                           ("stream_ordered", 2 * [MIB])):
        done, _, events = refusals(place, f"[kind:{kind}]", "others", "made only")
        assert [size for _, _, size in events] == bytes_of and [n for n, _, _ in events] == list(range(1, len(events) + 1)), kind
        assert done.out.count(": 2\n") == len(events) and done.code == 0


def test_chance_is_repeatable(place):
    runs = [refusals(place, f"[kind:device,p:30%:{seed}]")[2] for seed in (1, 1, 2, 3)]
    assert runs[0] == runs[1] and len({str(run) for run in runs}) > 1


NAMED = sanitizer.unless_sanitized("a run has its runtime, which does not start in the bounded memory of what finds names", ("asan", "tsan"))


@NAMED
def test_sweep(place):
    done = place.cachalot("run", "--fail-alloc", "sweep,deadline=2,jobs=4", PROGRAMS / "refused")
    rows = [line.split() for line in done.out.splitlines()]
    assert done.code == 1 and "other output" in done.out
    assert [" ".join(row[4:]).split("  ")[0].split(" refused!")[0] for row in rows[1:1 + REQUESTS]] == [
        "exit code 3", *8 * ["survived"], "survived", "crashed: SIGSEGV", "other output", "hung"]
    assert f"{REQUESTS} allocations refused, one in each run" in done.out
    done = place.cachalot("run", "--fail-alloc", "sweep,kind:device,most=2", PROGRAMS / "refused")
    assert done.code == 0 and "The first 2 of 11 allocations were refused" in done.out


@pytest.mark.parametrize("rule", ["0.5", "every:0", "p:101%", "p:x%:1", "kind:ram", "1,2", "site:", "every:2,p:1%", "sweep,job=2"])
def test_rules_that_are_not_understood(place, rule):
    done = place.cachalot("run", "--fail-alloc", rule, "true")
    assert done.code == 2 and done.err, rule


@pytest.mark.parametrize("kind", ["device", "runtime", "pool", "array", "vmm"])
def test_smaller_device(place, kind):
    """Figures, memory and what is left, as on a device that has no more."""
    small = place.run("fit", kind, CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_CAPACITY="130M")
    ours = place.run("fit", kind, CACHALOT_CONF="device_size_mb:130,expandable_segments:True", CACHALOT_OUTPUT="r.json")
    assert (ours.code, ours.out) == (0, small.out) and "16 pieces, 2097152 left" in ours.out
    coverage, (event,) = (load(place.work / "r.json")[key] for key in ("coverage", "oom_events"))
    assert coverage["fit_least_free_bytes"] <= 2 * MIB and coverage["counters"]["fit_refused"] >= 1
    assert event["kind"] == {"runtime": "device", "pool": "stream_ordered"}.get(kind, kind) and event["requested_bytes"] == 8 * MIB


def test_fit(place):
    """memory_info holds 160 MiB at most."""
    for size, code, said in (("160MiB", 0, "yes, with at least 0 B to spare"), ("162MiB", 0, "yes, with at least 2 MiB"),
                             ("158MiB", 99, "About 162 MiB would have served"), ("9GiB", 1, "not known")):
        done = place.cachalot("run", "--fit", size, PROGRAMS / "memory_info")
        assert done.code == code and said in done.err and ("NVML" in done.err) == (size != "9GiB"), (size, done.err)
    done = place.cachalot("run", "--fit", "100MiB", PROGRAMS / "fit", "pool")
    assert done.code == 1 and "no. The program asked for 8.0 MiB" in done.err


def test_fit_search(place):
    done = place.cachalot("run", "--fit", "search", PROGRAMS / "memory_info")
    assert (done.code, done.out) == (0, "fits 160 MiB (device_size_mb:160), confirmed by a run; it held 160 MiB at most\n"), done.err
    done = place.cachalot("run", "--fit", "search", "--summary", PROGRAMS / "memory_info")
    assert done.code == 2 and "do not go together" in done.err


@pytest.mark.parametrize("mapped", ["False", "True"])
@pytest.mark.parametrize("fill, expected", [
    ("zero", "00000000 00 00000000 00000000"), ("nan", "ffffffff ff ffffffff ffffffff"), ("[nan,20-20]", "ffffffff ff 00000000 00000000")])
def test_memory_is_filled(place, fill, expected, mapped):
    """Whatever was in it: a block, a block's end, memory of a pool, of the host; before any use on any stream."""
    done = place.run("unwritten", "show", CACHALOT_CONF=f"fill:{fill},expandable_segments:{mapped}", CACHALOT_OUTPUT="r.json")
    assert (done.code, done.out) == (0, f"{expected}\n1\n"), done.err
    report = load(place.work / "r.json")
    assert report["coverage"]["counters"]["fills"] == 1 + 18 + 2 + 1 and report["config"]["free_mode"]["value"] == "fence"


def test_random_fill_is_repeatable(place):
    shown = [place.run("unwritten", "show", CACHALOT_CONF=f"fill:random:{seed}").out for seed in (7, 7, 8)]
    assert shown[0] == shown[1] != shown[2] and len(set(shown[0].split()[:4])) == 4


def test_captures_are_not_filled(place):
    report = place.report("capture_full", 2, CACHALOT_CONF="fill:nan", CACHALOT_SIM_CAPACITY="64M")
    assert report.warned("fill: memory that is allocated while a stream is captured is not filled")


def test_a_fill_that_the_driver_refuses_is_said(place):
    done = place.run("unwritten", "show", CACHALOT_CONF="fill:nan", CACHALOT_SIM_FAIL="cuMemsetD32Async:3", CACHALOT_OUTPUT="r.json")
    report = Report(load(place.work / "r.json"))
    assert done.code == 0 and report.warned("fill: the device was busy for 2 s, or refused") == 1 and "nan" not in done.err


@NAMED
@pytest.mark.parametrize("what, code, said", [
    ("reads", 1, "yes. With nan in place of zeros it ends or prints otherwise\nallocation 20, 4 KiB of device memory, asked for at unwritten"),
    ("writes", 0, "no. 20 allocations"), ("random", 3, "not known, since two runs")])
def test_uninitialised(place, what, code, said):
    done = place.cachalot("run", "--uninitialised", PROGRAMS / "unwritten", what)
    assert done.code == code and f"depends on memory it never wrote: {said}" in done.out, done.out + done.err


@pytest.mark.parametrize("mapped", ["False", "True"])
@pytest.mark.parametrize("bounds, answer", [("warn", 0), ("refuse", 1), ("off", 0)])
def test_copies_and_sets_that_leave_their_block(place, bounds, answer, mapped):
    """Eleven by a byte, of which two copies leave both of their blocks, and two in freed memory."""
    done = place.run("bounds", answer, CACHALOT_CONF=f"bounds:{bounds},expandable_segments:{mapped}", CACHALOT_OUTPUT="r.json")
    assert done.code == 0, done.err
    report = Report(load(place.work / "r.json"))
    counts = report["faults"]["counts"]
    assert (counts["past_end"], counts["after_free"]) == ((0, 0) if bounds == "off" else (11 + 2, 2)), report["faults"]
    said = "cuMemsetD8_v2 of 2 bytes runs 1 bytes past the end of a block of 1836 bytes"
    assert sum(fault["text"] == said for fault in report["faults"]["first"]) == (bounds != "off")
