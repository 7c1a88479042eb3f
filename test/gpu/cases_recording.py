"""What is recorded of real work: its timeline, its trace replayed, the lines of its leaks, and what each costs."""

import json

from kit import mib

STEPS = 40
PAIRS = 3, 5  # rounds, steps in each
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
    """A decoder that allocates all the time, in pairs with PyTorch's own cache, plain and with each kind of recording: what each does to
    the ratio. The steps of one process beside those of another would say more of the machine."""
    trace = kit.work / "t"
    kinds = {"plain": {}, "events": {"CACHALOT_EVENTS": "100000"}, "trace": {"CACHALOT_TRACE": str(trace)},
             "sites, one of 100": {"CACHALOT_SITES": "100"}}
    plain = None
    for kind, settings in kinds.items():
        run = kit.good(kit.script("torch_pairs.py", "decode", *PAIRS), {**kit.front(kit.native()), **settings}, timeout=100)
        (said,) = run.results()
        rounds = [ratio / said["ratio"] for ratio in said["rounds"]]
        plain = plain or said["ratio"]
        cost = said["ratio"] / plain
        figures = f"{cost:.3f} of plain (rounds {min(rounds):.3f} to {max(rounds):.3f} of their median), {said['ours_ms']:.1f} ms"
        if kind in ("events", "trace"):
            kit.check(f"recording: cost of {kind}", cost <= 1.05, figures)
        else:
            kit.note(f"recording: cost of {kind}", figures)
    kit.check("recording: the trace is there", trace.stat().st_size > 1 << 20, mib(trace.stat().st_size))
