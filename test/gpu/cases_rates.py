"""Rates natively and in front, in pairs: launches that are watched, sixteen busy streams."""

import json
import os
import statistics

from cases_programs import driver_library
from cases_reuse import compile_cuda, lane_figures, shared_cudart
from kit import HERE, Failed, cuda_home, mib

WATCHED = 5  # ns that a launch may cost more
SETS = {"one lane": [2], "two streams": [3], "all": []}


def said_by(kit, command, environment, timeout=100):
    run = kit.run(command, environment, timeout=timeout)
    said = run.results()
    if run.code != 0 or not said:
        raise Failed(run.complaint())
    return said[-1], run


def watch_cost(kit):
    """A launch through us and past us, by turns in one process, on several processors one after the other; natively both are the
    driver's. Where another program shares a core of the host all takes twice as long: the least of the medians is one undisturbed."""
    program = kit.work / "watch_cost"
    kit.build(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", f"-I{cuda_home() / 'include'}", "-o", program, HERE / "watch_cost.c",
               *driver_library()])
    native, ours = kit.native(), kit.front(kit.native())
    control = said_by(kit, [program, 400], native)[0]
    cpus = sorted(os.sched_getaffinity(0))
    rows = [said_by(kit, ["taskset", "-c", cpu, program, 200], ours)[0] for cpu in cpus[::max(1, len(cpus) // 8)]]
    for way, figures in control.items():
        more = sorted(row[way][2] for row in rows)
        kit.check(f"watched: {way}", more[0] <= WATCHED,
                  f"{more[0]:+.1f} ns, median of {len(more)} processors {statistics.median(more):+.1f}, most {more[-1]:+.1f}; natively "
                  f"{figures[2]:+.1f} of {figures[1]:.1f}")


def launch_rate(kit):
    """ns of each way, natively and in front, and the differences of the pairs."""
    if not kit.options.only or "watched" in kit.options.only:
        watch_cost(kit)
    pairs = max(5, kit.options.repeat)
    sets = {name: ways for name, ways in SETS.items() if not kit.options.only or name in kit.options.only}
    for linked, more in (("static", []), ("shared", shared_cudart())) if sets else ():
        program = compile_cuda(kit, f"launch_rate_{linked}", ["launch_rate.cu"], *more)
        for name, ways in sets.items():
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
                kit.note(f"{linked} cudart, {name}: {way}",
                         f"native {statistics.median(native):.1f} ns, in front {statistics.median(ours):.1f}, "
                         f"difference {difference:+.1f} ({min(more_ns):+.1f} to {max(more_ns):+.1f})")


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
