"""What `cachalot export` makes of real runs: reports with events, and recorded traces, tell the same story."""

import json
import pickle
import sys

import pytest

from conftest import BUILD, ROOT, SIM

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "test/report")]
from cachalot_command.reading import history as history_module  # noqa: E402
from cachalot_command.reading import sources  # noqa: E402
from cachalot_command.writing import html  # noqa: E402
from viewer import reserved_over_time  # noqa: E402

WORKLOADS = BUILD / "test/workloads"
PROGRAMS = {"train_loop": (), "seed4b_tenants": (), "reuse_stress": (3, 4, 500)}
ORDINARY = "expandable_segments:False"  # handles of mapped memory depend on the device
LEVELS = ("allocated_bytes", "active_bytes", "reserved_bytes")


class Both:
    """The report of a run with events, and the histories in it and in its trace."""

    def __init__(self, place, program):
        folder = WORKLOADS if (WORKLOADS / program).exists() else BUILD / "test/preload"
        done = place.cachalot("run", "--conf", ORDINARY, "--trace", "t.trace", folder / program, *PROGRAMS[program],
                              LD_LIBRARY_PATH=SIM, CACHALOT_EVENTS=100000)
        self.place, self.report = place, place.only_report()
        assert done.code == (self.report["exit"]["code"] or 0) and self.report["events"]["lost"] == 0
        (self.path,) = [str(p) for p in place.work.glob("cachalot.*.json")]
        self.used = sources.read_source(self.path)[0].histories
        trace, note = sources.read_source(str(place.work / "t.trace"))
        assert note is None
        self.recorded = trace.histories


def peaks_of(history):
    now, peak = list(history.levels), list(history.levels)
    for event in history.events:
        for i, sign in enumerate(history_module.CHANGES[event.action]):
            now[i] += sign * event.size
            peak[i] = max(peak[i], now[i])
            assert now[i] >= 0
        assert now[0] <= now[1] <= now[2]
    return now, peak


def check_levels(both):
    for used, recorded, device in zip(both.used, both.recorded, both.report["devices"]):
        assert used.levels == recorded.levels == (0, 0, 0) and used.before == []
        assert [e[1:5] for e in used.events] == [e[1:5] for e in recorded.events]
        now, peak = peaks_of(recorded)
        stats = [device["statistics"][level]["all"] for level in LEVELS]
        assert now == [s["current"] for s in stats]
        wrong = device["counters"]["peak_uncertainty_bytes"]  # 0 with one thread
        assert all(abs(s["peak"] - p) <= wrong for s, p in zip(stats, peak))


def check_map(both):
    """That of the trace is that of the report."""
    def place_of(history):
        return [(s.address, s.size, [tuple(b[:2]) + (b.state,) for b in s.blocks if b.state != "inactive"])
                for s in sorted(history.segments, key=lambda s: s.address)]

    for used, recorded in zip(both.used, both.recorded):
        assert place_of(used) == place_of(recorded)
        for segment in recorded.segments:
            assert sum(b.size for b in segment.blocks) == segment.size


def check_figures(both):
    """What the page counts by itself where there is no report. Peaks of several threads are known within some bytes."""
    for history, device in zip(both.recorded, both.report["devices"]):
        counted, wrong = html.device_of(history), device["counters"]["peak_uncertainty_bytes"]
        for level in LEVELS:
            assert abs(counted["statistics"][level]["all"]["peak"] - device["statistics"][level]["all"]["peak"]) <= wrong
            assert abs(counted["at_peak_reserved"][level] - device["at_peak_reserved"][level]) <= wrong
        assert counted["counters"]["num_ooms"] == device["counters"]["num_ooms"]
        used = [(r["up_to_bytes"], r["requests"]) for r in device["size_histogram"] if r["requests"]]
        assert [(r["up_to_bytes"], r["requests"]) for r in counted["size_histogram"]] == used


def check_exports(both, name):
    """All forms; the log replays with the peaks of the run where nothing waited for a fence."""
    place, totals = both.place, both.report.totals
    done = place.cachalot("export", name, "--csv", "c", "--memory-viz", "v", "--perfetto", "p", "--html", "h")
    assert done.code == 0, done.err
    snapshot = pickle.loads((place.work / "v").read_bytes())
    assert sum(s["total_size"] for s in snapshot["segments"]) == totals["reserved_bytes"]
    assert sum(s["allocated_size"] for s in snapshot["segments"]) == totals["allocated_bytes"]
    replayed = json.loads(place.cachalot("replay", "c", "--format", "json", "--conf", ORDINARY).out)["totals"]
    assert replayed["requests"] == totals["requests"]
    if totals["fences"] == 0 and totals["ooms"] == 0:
        for level in ("requested", "allocated", "reserved"):
            assert replayed[f"peak_{level}_bytes"] == totals[f"peak_{level}_bytes"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_reports_and_traces_of_real_runs(place, program):
    both = Both(place, program)
    check_levels(both)
    check_map(both)
    check_figures(both)
    for name in ("t.trace", both.path):
        check_exports(both, name)


def test_a_page_keeps_the_last_events(place, monkeypatch):
    history = Both(place, "train_loop").used[0]
    monkeypatch.setattr(html, "EVENTS_MOST", 500)
    shown = html.latest(history)
    assert len(shown.events) == 500 < len(history.events) and peaks_of(shown)[0] == peaks_of(history)[0]


def cut(report, lost, listed):
    """The report with the first events lost; not listed: of a killed program."""
    report = json.loads(json.dumps(report))
    report["events"].update(rows=report["events"]["rows"][lost:], lost=lost)
    for device in () if listed else report["devices"]:
        device["segments"] = None
    return report


def check_viewer(place, report):
    """PyTorch's viewer finds each block in a segment, and what was reserved wherever that is known."""
    (place.work / "cut.json").write_text(json.dumps(report))
    done = place.cachalot("export", "cut.json", "--memory-viz", "v")
    assert done.code == 0, done.err
    snapshot = pickle.loads((place.work / "v").read_bytes())
    for history in sources.read_source(place.work / "cut.json")[0].histories:
        reserved = reserved_over_time(snapshot, history.device)
        if report["events"]["lost"] == 0:
            now, peak = peaks_of(history)
            at_end = now[2] if history.segments is None else sum(s.size for s in history.segments)  # without what can only go back
            assert (reserved[0], reserved[-1], max(reserved)) == (0, at_end, peak[2]) and at_end <= now[2]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_pytorchs_viewer_finds_mapped_memory(place, program, listed):
    """It moves without an event; with events lost, too, and with segments that were never listed."""
    folder = WORKLOADS if (WORKLOADS / program).exists() else BUILD / "test/preload"
    place.cachalot("run", "--conf", "expandable_segments:True", folder / program, *PROGRAMS[program],
                   LD_LIBRARY_PATH=SIM, CACHALOT_EVENTS=100000)
    report = place.only_report()
    assert any(row["action"] == "segment_map" for row in report["events"]["rows"])
    for lost in (0, 1, len(report["events"]["rows"]) // 3, len(report["events"]["rows"]) - 50):
        check_viewer(place, cut(report, lost, listed))
