"""Rates natively and in front, in pairs: launches that are watched, sixteen busy streams."""

import json
import statistics

from cases_reuse import compile_cuda, lane_figures, shared_cudart
from kit import Failed, mib

WATCHED = 5  # ns that a launch may cost more; where the driver refuses it at once that can be seen
SETS = {"one lane": [2], "two streams": [3], "refused": [4], "refused, legacy": [5], "all": []}


def said_by(kit, command, environment, timeout=100):
    run = kit.run(command, environment, timeout=timeout)
    said = run.results()
    if run.code != 0 or not said:
        raise Failed(run.complaint())
    return said[-1], run


def launch_rate(kit):
    """ns of each way, natively and in front, and the differences of the pairs."""
    pairs = max(5, kit.options.repeat)
    for linked, more in (("static", []), ("shared", shared_cudart())):
        program = compile_cuda(kit, f"launch_rate_{linked}", ["launch_rate.cu"], *more)
        for name, ways in SETS.items():
            if kit.options.only and name not in kit.options.only:
                continue
            found = {}
            for number in range(pairs):
                order = (False, True) if number % 2 else (True, False)
                for front in order:
                    environment = kit.front(kit.native()) if front else kit.native()
                    said, _ = said_by(kit, [program, 5 if name == "all" else 60, *ways], environment)
                    for way, (median, _, _) in list(said.items())[1:]:
                        found.setdefault(way, ([], []))[front].append(median)
            for way, (native, ours) in found.items():
                more_ns = [b - a for a, b in zip(native, ours)]
                difference = statistics.median(more_ns)
                what, said = f"{linked} cudart, {name}: {way}", (
                    f"native {statistics.median(native):.1f} ns, in front {statistics.median(ours):.1f}, "
                    f"difference {difference:+.1f} ({min(more_ns):+.1f} to {max(more_ns):+.1f})")
                if name.startswith("refused"):
                    kit.check(what, difference <= WATCHED, said)
                else:
                    kit.note(what, said)


def streams16(kit):
    """Time against native, reserved against allocated, nothing corrupted."""
    program = compile_cuda(kit, "streams16", ["streams16.cu"])
    for threads in (1, 16):
        rows = {"native": []}
        for _ in range(max(3, kit.options.repeat)):
            said, _ = said_by(kit, [program, 400, threads], kit.native(), 170)
            rows["native"].append(said)
            for mode in kit.options.modes:
                said, run = said_by(kit, [program, 400, threads],
                                    kit.front(kit.native(), f"free_mode:{mode}"), 170)
                rows.setdefault(mode, []).append(
                    {**said, "reserved": run.exit.totals["peak_reserved_bytes"],
                     "active": run.exit.totals["peak_active_bytes"], "more": lane_figures(run.exit)})
        for mode in kit.options.modes:
            ratios = [a["seconds"] / b["seconds"] for a, b in zip(rows[mode], rows["native"])]
            fat = [row["reserved"] / row["peak"] for row in rows[mode]]
            ratio, last = statistics.median(ratios), rows[mode][-1]
            good = mode == "strict" or (ratio <= 0.5 and statistics.median(fat) <= 1.5)
            kit.check(f"16 streams, {threads} threads, {mode}",
                      good and not any(row["corrupted"] for row in rows[mode]),
                      f"{ratio:.3f} of native's time ({min(ratios):.3f} to {max(ratios):.3f}), peak reserved "
                      f"{statistics.median(fat):.2f} of allocated ({min(fat):.2f} to {max(fat):.2f}; {mib(last['reserved'])} "
                      f"of {mib(last['peak'])}, active {mib(last['active'])}), "
                      + json.dumps({key: last[key] for key in ("seconds", "mallocs", "corrupted")}) + " " + last["more"])
