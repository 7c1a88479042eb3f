"""Gates: each compares figures of all processes of a run with a limit."""

import statistics
from dataclasses import dataclass, field

from cachalot_command.common.limits import KIND_LIMITS, LEVELS, LIMITS, ON_DEVICE, Limit, share_text, value_text
from cachalot_command.common.tools import printable
from cachalot_command.common.units import bytes_text, counted, processes_text
from cachalot_command.reading.holders import is_sample
from cachalot_command.reading.report import get, number, signal_text
from cachalot_command.writing.words import coverage_advice, frames_of, leak_text, oom_lines, past_the_cache

LEAKS_SHOWN, CALLERS_SHOWN = 3, 3
COMPARED = ("peak_reserved_bytes", "peak_allocated_bytes", "leaked_bytes", "ooms")
BY_KIND = {LIMITS[option][0] for option in KIND_LIMITS}


@dataclass
class Result:
    """The result of one gate."""

    name: str
    limit: Limit
    passed: bool
    text: str
    value: object = None
    unit: str = "count"
    process: object = None  # the worst, or the only one
    failed: int = 0  # processes that fail it
    hints: list = field(default_factory=list)

    def title(self):
        is_least = self.name.startswith(("min-", "require-", "coverage"))
        return f"{self.name} (at {'least' if is_least else 'most'} {self.limit})"


def where_hints(process, indexes):
    """The source lines that a failed gate points to, or how to learn them."""
    if is_sample(process.report) or not process.report.list("sites"):
        return ["Next: run it with CACHALOT_SITES=1, then the lines that asked for it are named"]
    found = (frames_of(process.report, index) for index in dict.fromkeys(indexes))
    return ["at " + ", called by ".join(frames[:CALLERS_SHOWN]) for frames in found if frames]


def figure(process, key, kind=None):
    """A figure of the totals. Of bytes it is that of a kind, or of all device memory."""
    return process.of_kind(key, kind) if key in BY_KIND else process.totals[key]


def kinds_text(process, key, kind):
    """What the bytes of a figure are: ` of pinned memory`, or ` of all device memory: device 5 MiB, vmm 6 MiB`."""
    if key not in BY_KIND:
        return ""
    if kind:
        return f" of {kind} memory"
    parts = [(each, process.of_kind(key, each)) for each in ON_DEVICE]
    said = ", ".join(f"{each} {bytes_text(value).strip()}" for each, value in parts if value)
    return " of all device memory" + f": {said}" * any(value for each, value in parts if each != "device")


def leak_hints(process, kind=None):
    kinds = (kind,) if kind else ON_DEVICE
    leaks = [leak for leak in process.report.list("leaks")
             if (get(leak, "kind") or "device") in kinds or get(leak, "rest")][:LEAKS_SHOWN]
    ended = signal_text(process.report)
    return [f"{leak_text(leak)} still allocated" for leak in leaks] \
        + [f"it was ended by {ended}: what it held then counts as leaked"] * bool(ended) \
        + where_hints(process, [get(leak, "site") for leak in leaks])


def oom_hints(process, _=None):
    events = process.report.list("oom_events")[-1:]
    return [f"device {printable(get(event, 'device'))}: {'. '.join(oom_lines(event))}" for event in events] \
        + where_hints(process, [get(event, "site") for event in events])


def fault_hints(process, _=None):
    faults = process.report.list("faults", "first")[:LEAKS_SHOWN]
    return [printable(get(fault, "text")) for fault in faults] + where_hints(process, [get(fault, "site") for fault in faults])


HINTS = {"leaked_bytes": leak_hints, "ooms": oom_hints, "faults": fault_hints}


def why_unknown(process, key):
    if key == "faults":
        return "not known: the report is of an older version"
    if key.endswith("_ratio"):
        return "nothing was reserved" if key.startswith("peak") else "nothing was requested"
    return f"not known: the report was made while the program ran ({process.kind})"


def judge_unknown(name, limit, key, unit, process):
    return Result(name, limit, False, f"{why_unknown(process, key)} ({process.name()})", None, unit,
                  process, 1)


def judge_sum(name, key, unit, limit, processes, kind=None):
    def known(process):
        return figure(process, key, kind)

    unknown = next((p for p in processes if known(p) is None), None)
    shown = Limit(limit, unit, "sum")
    if unknown is not None:
        return judge_unknown(name, shown, key, unit, unknown)
    value = sum(map(known, processes))
    worst = max(processes, key=known)
    what = f" of {kind or 'all device'} memory" * (key in BY_KIND)
    text = f"{value_text(value, unit)}{what} in {processes_text(len(processes))}, most in {worst.name()}"
    return finish(name, shown, key, unit, value, limit, worst, [worst], text, kind)


def judge_each(name, key, unit, limit, processes, kind=None):
    def known(process):
        return figure(process, key, kind)

    shown = Limit(limit, unit)
    if unit == "ratio":  # a process without requests has no ratio
        processes = [p for p in processes if known(p) is not None] or processes
    unknown = next((p for p in processes if known(p) is None), None)
    if unknown is not None:
        return judge_unknown(name, shown, key, unit, unknown)
    least = name.startswith("min-")
    worst = (min if least else max)(processes, key=known)
    value = known(worst)
    failed = [p for p in processes if (known(p) < limit if least else known(p) > limit)]
    text = f"{value_text(value, unit, limit)}{kinds_text(worst, key, kind)} ({worst.name()})"
    if len(failed) > 1:
        text += f"; {len(failed)} of {len(processes)} processes fail"
    return finish(name, shown, key, unit, value, limit, worst, failed, text, kind)


def judge_gpu(name, key, unit, limit, processes):
    """Each device of each process. A peak that cannot be read fails."""
    shown = Limit(limit, unit, "gpu")
    peaks = [(number(device, "statistics", key.removeprefix("peak_"), "all", "peak"), process, get(device, "device"))
             for process in processes for device in process.report.list("devices")]
    unknown = next((process for value, process, _ in peaks if type(value) is not int or value < 0), None)
    unknown = unknown or next((p for p in processes if p.totals[key] and not p.report.list("devices")), None)
    if unknown is not None:
        return Result(name, shown, False, f"the report does not say it of each GPU ({unknown.name()})", None, unit, unknown, 1)
    value, worst, index = max(peaks, key=lambda peak: peak[0], default=(0, processes[0], "-"))
    failed = list({id(process): process for peak, process, _ in peaks if peak > limit}.values())
    text = f"{value_text(value, unit)} on GPU {printable(index)[:9]} ({worst.name()})"
    return finish(name, shown, key, unit, value, limit, worst, failed, text, None)


def finish(name, shown, key, unit, value, limit, worst, failed, text, kind):
    passed = value >= limit if name.startswith("min-") else value <= limit
    hints = [] if passed else HINTS.get(key, lambda *_: [])(worst, kind)
    if not passed and unit == "bytes":
        text += f"; {counted(value - limit, 'byte')} too many"
    return Result(name, shown, passed, text, value, unit, worst, 0 if passed else len(failed),
                  hints)


def reasons_of(process):
    reasons = process.report.get("coverage", "reasons")
    said = [printable(r) for r in reasons[:3]] if isinstance(reasons, list) else []
    return said + coverage_advice(process.report)


def judge_coverage(required, processes, is_booked):
    """Fails where allocations were not seen: figures of an unseen program prove nothing. is_booked: the gates judge only
    what the books have of memory that the cache does not serve."""
    least = LEVELS.index(required)

    def fails(process):
        past = process.is_idle() or process.report.number("coverage", "counters", "unseen_work")
        unseen = process.coverage == "partial" and past and required != "none"
        return unseen or LEVELS.index(process.coverage) < least

    failed = [p for p in processes if fails(p)]
    worst = min(failed or processes, key=lambda p: LEVELS.index(p.coverage))
    text, hints = f"{worst.coverage} ({worst.name()})", reasons_of(worst)
    is_judged = is_booked and any(most for p in processes for most, _ in p.past.values())
    if required != "none" and not failed and all(p.is_idle() for p in processes) and not is_judged:
        failed = processes
        text = "no cudaMalloc came through the cache: nothing was judged"
        hints = [*past_the_cache([p.report for p in processes]),
                 "Next: switch off the cache of the framework itself (README); --require-coverage none where no memory is asked for"]
    if len(failed) > 1:
        text += f"; {len(failed)} of {len(processes)} processes fail"
    return Result("coverage", Limit(required, "text"), not failed, text, worst.coverage, "text", worst,
                  len(failed), hints if failed else [])


def summary_of(processes, key="peak_reserved_bytes"):
    """Maximum, sum and spread over the processes that used the cache, and the process farthest from the median."""
    used = [p for p in processes if not p.is_idle()] or processes
    values = [p.totals[key] for p in used]
    middle = statistics.median(values)
    odd = max(used, key=lambda p: abs(p.totals[key] - middle))
    off = (odd.totals[key] - middle) / middle if middle else 0
    most, least = max(values), min(values)
    return {"processes": len(used), "max": most, "min": least, "sum": sum(values),
            "median": middle, "spread": (most - least) / most if most else 0,
            "worst": max(used, key=lambda p: p.totals[key]),
            "odd": odd if len(used) > 2 and abs(off) > 0.1 else None, "odd_off": off}


def odd_text(summary):
    if summary["odd"] is None:
        return ""
    side = "above" if summary["odd_off"] > 0 else "below"
    return (f"odd one: {summary['odd'].name()}, {100 * abs(summary['odd_off']):.0f} % {side} "
            "the median")


def judge_spread(limit, processes):
    summary = summary_of(processes)
    shown = Limit(limit, "ratio")
    if summary["processes"] < 2:
        return Result("max-spread", shown, False, "needs the reports of at least two processes",
                      unit="ratio", failed=1)
    value = summary["spread"]
    text = (f"{share_text(value, limit)}: peak reserved from "
            f"{bytes_text(summary['min']).strip()} to {bytes_text(summary['max']).strip()}")
    passed = value <= limit
    worst = summary["odd"] or summary["worst"]
    hints = [odd_text(summary) or f"most: {worst.name()}"]
    return Result("max-spread", shown, passed, text, value, "ratio", worst, 0 if passed else 1,
                  [] if passed else hints)


def pairs_of(processes, baseline):
    """Lists of (new, old): rank by rank if both sides have the same ranks, else all with all."""
    new, old = ({p.rank: p for p in side} for side in (processes, baseline))
    if None not in new and set(new) == set(old) and len(new) == len(processes) and \
            len(old) == len(baseline):
        return [([p], [old[p.rank]]) for p in processes]
    return [(processes, baseline)]


def most_of(processes, key):
    known = [p for p in processes if figure(p, key) is not None]
    return max(known, key=lambda p: figure(p, key)) if len(known) == len(processes) else None


def judge_increase(key, limit, processes, baseline):
    """The largest growth of one figure over the baseline; of those that are too large, if there are any."""
    unit = "bytes" if key.endswith("_bytes") else "count"
    name, shown = f"increase of {key}", Limit(limit, "growth")
    results = []
    for new_side, old_side in pairs_of(processes, baseline):
        new, old = most_of(new_side, key), most_of(old_side, key)
        if new is None:
            unknown = next(p for p in new_side if figure(p, key) is None)
            return judge_unknown(name, shown, key, unit, unknown)
        if old is None:
            return Result(name, shown, False, "the baseline was made while its program ran: "
                          "not known there", None, unit, new, 1)
        before, now = figure(old, key), figure(new, key)
        growth = (now - before) / before if before else (float("inf") if now else 0)
        results.append((not limit.allows(before, now, unit), growth, before, now, new))
    fails, growth, before, now, process = max(results, key=lambda r: r[:2])
    change = share_text(growth, limit.share, 1, "+") if before else "was 0"
    text = f"{value_text(before, unit)} to {value_text(now, unit)}, {change} ({process.name()})"
    hints = HINTS.get(key, lambda *_: [])(process) if fails else []
    value = None if growth == float("inf") else growth
    return Result(name, shown, not fails, text, value, "ratio", process, sum(r[0] for r in results), hints)


def judge_baseline(limit, processes, baseline):
    if all(p.is_idle() for p in baseline):
        return [Result("increase", Limit(limit, "growth"), False,
                       "no cudaMalloc of the baseline came through the cache", failed=1)]
    return [judge_increase(key, limit, processes, baseline) for key in COMPARED]


def judge_reports(least, processes):
    """Counts processes that made requests: launchers that only start others come in any number."""
    count = summary_of(processes)["processes"]
    idle = len(processes) - count
    text = f"reports of {processes_text(count)}" + f", and of {idle} that asked for no memory" * bool(idle)
    return Result("require-reports", Limit(least, "count"), count >= least, text, count, "count", None, int(count < least))


def judge(processes, gates, baseline):
    """The results of all gates. `gates`: option to parsed values; `processes` is not empty."""
    is_booked = {*gates} - {"--require-coverage", "--max-increase"} <= {*KIND_LIMITS}
    results = [judge_coverage(level, processes, is_booked) for level in gates.get("--require-coverage", ["partial"])]
    results += [judge_reports(least, processes) for least in gates.get("--require-reports", ())]
    for option, (key, unit) in LIMITS.items():
        for scope, limit, *kind in gates.get(option, ()):
            judged = {"sum": judge_sum, "gpu": judge_gpu, "each": judge_each}[scope]
            results.append(judged(" ".join([option[2:], *kind]), key, unit, limit, processes, *kind))
    results += [judge_spread(limit, processes) for limit in gates.get("--max-spread", ())]
    for limit in gates["--max-increase"] if baseline else ():
        results += judge_baseline(limit, processes, baseline)
    return results
