"""What is recorded of real work: its timeline, its trace replayed, the lines of its leaks, and what each costs."""

import json
import re
import statistics

from kit import Failed, mib

STEPS = 40
MEDIAN = re.compile(r"^(\d+) .* median ([0-9.]+) ms", re.MULTILINE)
PEAKS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def recording(kit):
    """A training with everything recorded: the same losses, a replay with its peaks, lines of Python."""
    command = kit.script("torch_train.py", STEPS)
    plain = kit.good(command, kit.front())
    recorded = kit.good(command, {**kit.front(), "CACHALOT_TRACE": str(kit.work / "t"), "CACHALOT_SITES": "1",
                                  "CACHALOT_EVENTS": "100000"})
    kit.same_lines("recording: losses", plain, recorded)
    report = recorded.exit.report
    replayed = json.loads(kit.cachalot("replay", kit.work / "t", "--format", "json"))
    within = report["devices"][0]["counters"]["peak_uncertainty_bytes"]  # of threads that count alone at a peak
    for name in PEAKS:
        was, now = (document["devices"][0]["memory_stats"][f"{name}.all.peak"] for document in (report, replayed))
        exact = name != "reserved_bytes"  # blocks behind fences are not reusable at once
        kit.check(f"recording: peak {name} of the replay", abs(now - was) <= within if exact else now <= 1.02 * was,
                  f"{now} against {was} bytes, which are right within {mib(within)}")
    rows = report["events"]["rows"]
    ordered = all(a["time_ns"] <= b["time_ns"] for a, b in zip(rows, rows[1:]))
    kit.check("recording: events", ordered and rows[-1]["time_ns"] <= report["time"]["uptime_ns"],
              f"{len(rows)} rows, {report['events']['lost']} lost")
    frames = [frame for site in report["sites"] for frame in site["frames"]]
    kit.check("recording: lines of Python", any("torch_train.py:" in frame for frame in frames),
              f"{len(report['sites'])} sites, {report['sites_lost']} requests without a place")


def recording_cost(kit):
    """A step of a decoder that allocates all the time, plain and with each, by turns: medians of the ratios to its neighbour."""
    trace = kit.work / "t"
    kinds = {"plain": "plain", "events": "CACHALOT_EVENTS=100000", "trace": f"CACHALOT_TRACE={trace}.%p",
             "sites, one of 100": "CACHALOT_SITES=100"}
    found, times = list(kinds), {kind: [] for kind in kinds}
    run = kit.run(kit.script("torch_recorded.py", "decode", max(3, kit.options.repeat), 15, *kinds.values()), kit.front(), 200)
    for number, ms in MEDIAN.findall("\n".join(run.lines)):
        times[found[int(number)]].append(float(ms))
    plain = times.pop("plain")
    if run.code or not plain:
        raise Failed(run.complaint())
    kit.check("recording: traces are there", len(list(kit.work.glob("t.*"))) == len(times["trace"]), f"{len(times['trace'])} of them")
    for kind, rows in times.items():
        ratios = [ours / beside for ours, beside in zip(rows, plain)]
        ratio = statistics.median(ratios)
        said = f"{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f}) of {statistics.median(plain):.2f} ms"
        if kind in ("events", "trace"):
            kit.check(f"recording: cost of {kind}", ratio <= 1.05, said)
        else:
            kit.note(f"recording: cost of {kind}", said)
