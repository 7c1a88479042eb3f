"""The books of all kinds of memory: what lives, what leaks, what ends, whoever frees it."""

import pickle
import sys

import pytest

from conftest import KIB, MIB, ROOT, load

sys.path.insert(0, str(ROOT / "scripts"))
from cachalot_command.reading import traces  # noqa: E402

SIZES = {"device": [5 * MIB], "stream_ordered": [MIB, MIB], "pinned": [4 * MIB, 8 * KIB], "managed": [3 * MIB], "vmm": [6 * MIB],
         "array": [MIB], "imported": [], "graph": []}


def kinds_of(report):
    return {row["kind"]: row for row in report["kinds"]}


def leaks_of(report):
    """{kind: sizes of leaked blocks}"""
    found = {}
    for leak in report["leaks"]:
        found.setdefault(leak["kind"], []).extend([leak["requested_bytes"]] * leak["count"])
    return {kind: sorted(sizes, reverse=True) for kind, sizes in found.items()}


def test_each_kind_that_is_kept(place):
    report = place.report("book", "keep")
    rows = kinds_of(report)
    assert list(rows) == list(SIZES)
    for kind, sizes in SIZES.items():
        row = rows[kind]
        assert [row[key] for key in ("current_bytes", "peak_bytes", "total_bytes", "leaked_bytes")] == [sum(sizes)] * 4, kind
        assert (row["allocations"], row["blocks"], row["leaked_blocks"], row["frees"]) == (*[len(sizes)] * 3, 0), kind
        assert sum(bin["live_bytes"] for bin in row["live_sizes"]) == sum(sizes), kind
    assert leaks_of(report) == {kind: sizes for kind, sizes in SIZES.items() if sizes}
    assert {leak["device"] for leak in report["leaks"] if leak["kind"] != "pinned"} == {0}
    assert {leak["device"] for leak in report["leaks"] if leak["kind"] == "pinned"} == {None}
    assert report.totals["leaked_bytes"] == 5 * MIB  # what the cache served


def test_what_a_killed_process_held(place):
    """The page has bins of sizes."""
    place.run("book", "kill")
    (report,) = place.harvest()
    for kind, sizes in SIZES.items():
        leaks = [leak for leak in report["leaks"] if leak["kind"] == kind]
        assert sum(leak["count"] for leak in leaks) == len(sizes) == kinds_of(report)[kind]["leaked_blocks"], kind
        assert sum(leak["total_requested_bytes"] for leak in leaks) == sum(sizes), kind


def test_whichever_function_frees_it(place):
    report = place.report("book", "cross")
    for kind, count in {"device": 1, "stream_ordered": 2, "pinned": 2, "managed": 1}.items():
        row = kinds_of(report)[kind]
        assert (row["allocations"], row["frees"], row["current_bytes"], row["blocks"]) == (count, count, 0, 0), kind
    assert report["leaks"] == [] and report["coverage"]["counters"]["unseen_frees"] == 0


def test_a_handle_lives_until_its_last_hold_is_gone(place):
    report = place.report("book", "handles")
    row = kinds_of(report)["vmm"]
    assert leaks_of(report) == {"vmm": [6 * MIB, 4 * MIB]}
    assert (row["allocations"], row["frees"], row["peak_bytes"], row["current_bytes"]) == (5, 3, 30 * MIB, 10 * MIB)


@pytest.mark.parametrize("how", ["destroy", "reset", "release"])
def test_memory_ends_with_its_context(place, how):
    report = place.report("book", how)
    rows = kinds_of(report)
    assert {kind: row["ended_with_context"] for kind, row in rows.items()} == {
        "device": 0, "stream_ordered": 2, "pinned": 2, "managed": 301, "vmm": 0, "array": 1, "imported": 0, "graph": 0}
    assert leaks_of(report) == {"vmm": [6 * MIB]}
    assert sum(row["current_bytes"] for row in rows.values()) == 6 * MIB


def test_a_context_that_the_cache_does_not_know_ends(place):
    report = place.report("book", "unserved")
    row = kinds_of(report)["managed"]
    assert (row["ended_with_context"], row["current_bytes"], report["devices"]) == (1, 0, [])


def test_a_free_after_the_exit_began(place):
    report = place.report("book", "late")
    row = kinds_of(report)["pinned"]
    assert (row["allocations"], row["frees"], row["leaked_bytes"]) == (1, 1, 0) and report["leaks"] == []


def test_call_sites_by_kind(place):
    """A stack has a site for each kind, and leaks name it."""
    place.run("book", "keep", CACHALOT_SITES="1")
    report = place.only_report()
    sites = report["sites"]
    for leak in report["leaks"]:
        site = sites[leak["site"]]
        assert site["kind"] == leak["kind"] and site["frames"][0].startswith("book+0x")
    held = {kind: sum(site["live_bytes"] for site in sites if site["kind"] == kind) for kind in SIZES}
    assert held == {kind: sum(sizes) for kind, sizes in SIZES.items()}
    place.run("book", "threads", CACHALOT_SITES="1")
    report = place.reports()[-1]
    assert all(site["live_bytes"] == site["live_blocks"] == 0 for site in report["sites"])
    rows = kinds_of(report)
    for kind in ("stream_ordered", "managed"):
        assert sum(site["allocations"] for site in report["sites"] if site["kind"] == kind) == rows[kind]["allocations"]


@pytest.mark.parametrize("what", ["keep", "cross", "handles", "destroy", "threads"])
def test_events_and_trace_by_kind(place, what):
    """Rows of each kind add up to its figures."""
    place.run("book", what, CACHALOT_EVENTS="100000", CACHALOT_TRACE="t")
    report = place.only_report()
    _, traced = traces.recorded_events(place.work / "t")
    for rows in (report["events"]["rows"], list(traced)):
        for kind, row in kinds_of(report).items():
            own = [one for one in rows if one["action"].startswith("uncached_") and one["kind"] == kind]
            live, now, most = {}, 0, 0
            for one in own:
                made = one["action"] == "uncached_alloc"
                assert (one["address"] in live) != made and one["requested_bytes"] == one["size_bytes"]
                if made:
                    live[one["address"]] = one["size_bytes"]
                else:
                    assert live.pop(one["address"]) == one["size_bytes"]
                now = sum(live.values()) if len(own) < 1000 else 0
                most = max(most, now)
            if kind != "device":
                refused = what == "cross" and kind in ("managed", "pinned")  # a free that is taken back
                assert sum(one["action"] == "uncached_alloc" for one in own) == row["allocations"] + refused, kind
                assert sum(live.values()) == row["current_bytes"] and len(live) == row["blocks"]
                assert len(own) >= 1000 or most == row["peak_bytes"]
    done = place.cachalot("replay", place.work / "t")
    said = {"keep": "pinned memory that the cache did not serve is left out: 2 events, at most 4202496 bytes",
            "handles": "vmm memory that the cache did not serve is left out: 8 events, at most 31457280 bytes"}
    assert said.get(what, "memory that the cache did not serve is left out") in done.err
    assert place.cachalot("export", place.work / "t", "--perfetto", place.work / "p.json").code in (0, 3)


@pytest.mark.parametrize("file", ["r.json", "t"])
def test_pytorchs_names_for_pinned_memory(place, file):
    place.run("book", "keep", CACHALOT_EVENTS="1000", CACHALOT_TRACE="t", CACHALOT_OUTPUT="r.json", CACHALOT_SITES="1")
    stats = load(place.work / "r.json")["host_memory_stats"]
    held = 4 * MIB + 8 * KIB
    assert [stats[f"allocated_bytes.{part}"] for part in ("current", "peak", "allocated", "freed")] == [held, held, held, 0]
    assert [stats[f"allocations.{part}"] for part in ("current", "peak", "allocated", "freed")] == [2, 2, 2, 0]
    assert (stats["num_host_alloc"], stats["num_host_free"]) == (2, 0)
    assert place.cachalot("export", place.work / file, "--memory-viz", place.work / "v.pickle").code == 0
    snapshot = pickle.loads((place.work / "v.pickle").read_bytes())
    assert sorted(s["total_size"] for s in snapshot["host_segments"]) == [8 * KIB, 4 * MIB]
    ((large, small), ) = snapshot["host_traces"]
    assert [(e["action"], e["size"]) for e in (large, small)] == [("alloc", 4 * MIB), ("alloc", 8 * KIB)]
    assert large["addr"] in [s["address"] for s in snapshot["host_segments"]] and bool(large["frames"]) == (file == "r.json")
    done = place.cachalot("replay", place.work / "v.pickle")
    assert "events of pinned host memory (host_traces) are left out: 2" in done.err


def test_threads_share_the_books(place):
    report = place.report("book", "threads")
    for kind in ("stream_ordered", "managed"):
        row = kinds_of(report)[kind]
        assert row["allocations"] == row["frees"] > 5000 and row["current_bytes"] == row["blocks"] == 0
        assert row["live_sizes"] == [] and row["total_bytes"] > row["peak_bytes"] > 0
