"""cachalot tune: replays a trace with many settings and names the best."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, show_progress, tool
from cachalot_command.common.units import bytes_text, time_text
from cachalot_command.common.variables import plain_conf
from cachalot_command.reading.replays import VALUES, ended_by, feed_file, one_trace, output_of
from cachalot_command.reading.report import COUNT_MOST
from cachalot_command.writing.words import failure_lines

HELP = """\
usage: cachalot tune TRACE [--conf OPTIONS] [--capacity BYTES]
                     [--behind OPERATIONS] [--format table|json]
                     [--costs FILE] [--device N]

Replays a recorded run with many settings and prints the best three as
CACHALOT_CONF lines: first those without out-of-memory, then by peak reserved
memory; of those within 1 % of each other the one whose driver calls cost less.
  TRACE       as for `cachalot replay`
  --conf      options that stay as given; tried are the others of
              expandable_segments, max_split_size_mb, large_segment_size_mb and
              roundup_power2_divisions
  --capacity  memory of the device (8GiB; default: 2TiB, which is the most);
              with it, what was out of memory in the run is asked for again
  --behind, --costs, --device  as for `cachalot replay`

Exit code: 0 done, 1 no room or no memory, 2 usage, 3 no or broken trace, or
what was to be printed is lost.
example: cachalot tune run.csv.gz --capacity 24GiB
"""

# Values to try for each option. Those that the library does not know are left out.
TRIED = (
    ("expandable_segments", ("True", "False")),
    ("max_split_size_mb", ("20", "32", "64", "128", "256", "512", "1024")),
    ("large_segment_size_mb", ("2", "4", "10", "32", "64")),
    ("roundup_power2_divisions", ("4", "8", "16", "32")),
)
WITHIN = 0.01
SHOWN = 3
BEST = 2  # values of each option that are combined with others


@dataclass
class Result:
    """The outcome of a setting."""

    conf: tuple  # of (key, value)
    ooms: int
    reserved: int
    cost: int
    steady: int
    ratio: float  # peak reserved per byte requested and served; None: nothing was served
    refused: int  # bytes of the largest refused request

    def outcome(self):
        return self.ooms, self.reserved, self.cost, self.steady

    def text(self):
        return ",".join(f"{key}:{value}" for key, value in self.conf)


class Tuner:
    """The trace at `path`, and the results so far."""

    def __init__(self, path, source, fixed, arguments, file):
        self.path, self.source, self.fixed, self.file = path, source, fixed, file
        at = arguments.index("--capacity") if "--capacity" in arguments else len(arguments)
        self.capacity, self.arguments = arguments[at:at + 2], arguments[:at] + arguments[at + 2:]
        self.results, self.requested, self.trace, self.most, self.said = {}, 0, {}, 0, None

    def one_replay(self, arguments):
        """The result of a replay with these arguments."""
        arguments = [*arguments, *self.source.arguments, "--name", self.source.name, self.path]
        code, output = output_of(arguments, stderr=self.said, pass_fds=[self.file.fileno()] if self.file else [])
        if code:
            if code < 0:
                raise Failure(1, ended_by(code))
            if self.said:
                raise Failure(code, "no room or no memory for one of the replays")
            raise SystemExit(code)  # cachalot-replay has reported the error
        return json.loads(output)

    def measure(self):
        """Measures how much is held at once on a device without a limit."""
        shown = ["--progress"] if sys.stderr.isatty() else []
        got, self.said = self.one_replay([*self.arguments, *shown]), subprocess.DEVNULL  # notes on the trace appear once
        self.requested, device = got["totals"]["peak_requested_bytes"], got["trace"]["device"]
        if device is not None:
            self.arguments = [*self.arguments, "--device", str(device)]

    def replay(self, conf):
        """Tries one more setting."""
        if conf in self.results:
            return
        show_progress(f"setting {len(self.results) + 1} of {self.most} at most")
        text = ",".join([*self.fixed, *(f"{key}:{value}" for key, value in conf)])
        got = self.one_replay([*self.arguments, *self.capacity, *(["--conf", text] if text else [])])
        totals, driver, self.trace = got["totals"], got["driver"], got["trace"]
        self.results[conf] = Result(conf, totals["ooms"], totals["peak_reserved_bytes"], driver["cost_ns"],
                                    driver["steady_cost_ns"], got["reserved_per_requested"], max((event["requested_bytes"] for event in got["oom_events"]), default=0))

    def best(self):
        """All results, the best first."""
        results = sorted(self.results.values(), key=lambda r: (r.ooms, r.reserved, r.cost, len(r.conf)))
        ordered = []
        while results:
            near = [r for r in results if r.ooms == results[0].ooms and
                    r.reserved <= results[0].reserved * (1 + WITHIN)]
            ordered += sorted(near, key=lambda r: (r.cost, r.reserved, len(r.conf)))
            results = [r for r in results if r not in near]
        return ordered

    def shown(self):
        """The results to show, best first: the plainest setting of each outcome, then others if there are too few outcomes."""
        best, outcomes = self.best(), {}
        for result in best:
            outcomes.setdefault(result.outcome(), result)
        first = list(outcomes.values())
        return sorted((first + [result for result in best if result not in first])[:SHOWN], key=best.index)

    def try_all(self, options):
        """Tries each option alone, then the best values together."""
        self.most = sum(len(values) for _, values in options) + math.prod(1 + min(BEST, len(values)) for _, values in options)
        self.measure()
        self.replay(())
        for key, values in options:
            for value in values:
                self.replay(((key, value),))
        good = {}
        for result in self.best():
            if len(result.conf) == 1:
                good.setdefault(result.conf[0][0], []).append(result.conf[0])
        together = [()]
        for key, _ in options:
            together += [(*conf, pair) for conf in together for pair in good[key][:BEST]]
        for conf in together:
            self.replay(conf)
        show_progress()


def knows(text):
    return tool("conf", "--", text).returncode == 0


def tried_options(fixed):
    """The options and values to try beside the given ones."""
    given = {item.partition(":")[0].strip() for text in fixed for item in text.split(",")}
    options = [(key, tuple(v for v in values if knows(f"{key}:{v}"))) for key, values in TRIED if key not in given]
    return [(key, values) for key, values in options if values]


def tune(source, fixed, arguments):
    """Tries all settings."""
    if not source.chunks:
        tuner = Tuner(os.path.abspath(source.path), source, fixed, arguments, None)
        tuner.try_all(tried_options(fixed))
        return tuner
    with tempfile.TemporaryFile() as file:
        feed_file(file, source.chunks)
        tuner = Tuner(f"/proc/self/fd/{file.fileno()}", source, fixed, arguments, file)
        tuner.try_all(tried_options(fixed))
        return tuner


def conf_of(result, fixed):
    return ",".join([*fixed, *([result.text()] if result.conf else [])])


def line(result, fixed):
    """The setting as a line for a shell."""
    return "CACHALOT_CONF=" + shlex.quote(conf_of(result, fixed)) if conf_of(result, fixed) else "CACHALOT_CONF="


def table(tuner, best, fixed):
    """The lines of the table: the best settings, and the present one."""
    lines = [f"{tuner.source.name}: {len(tuner.results)} settings tried; peak requested "
             f"{bytes_text(tuner.requested).strip()}", "",
             f"{'':<4}{'peak reserved':>14} {'per requested':>14} {'driver calls':>14} {'last 4/5':>12} {'OOMs':>6}"]
    rows = [(f"{i}.", result) for i, result in enumerate(best, 1)] + [("now", tuner.results[()])]
    for name, result in rows:
        lines.append(f"{name:<4}{bytes_text(result.reserved):>14} {'-' if result.ratio is None else format(result.ratio, '.3f'):>14} "
                     f"{time_text(result.cost):>14} {time_text(result.steady):>12} {result.ooms:>6}")
    lines += failure_lines(tuner.trace)
    lines.append("")
    if best[0].ooms:
        more = " or more" * (best[0].refused == COUNT_MOST)
        lines += [f"None of them serves all: a request of {bytes_text(best[0].refused).strip()}{more} is refused; on a device of 2 TiB "
                  f"{bytes_text(tuner.requested).strip()} are held at once, rounding not counted.", ""]
    return lines + [line(result, fixed) for result in best]


def document(tuner, best, fixed):
    def entry(result):
        return {"conf": conf_of(result, fixed), "peak_reserved_bytes": result.reserved,
                "reserved_per_requested": result.ratio, "cost_ns": result.cost,
                "steady_cost_ns": result.steady, "ooms": result.ooms}
    return {"schema_version": "1.0.0", "kind": "tune", "settings": len(tuner.results),
            "peak_requested_bytes": tuner.requested, "best": [entry(r) for r in best], "now": entry(tuner.results[()])}


def main(arguments):
    """cachalot tune."""
    words, options = split("tune", arguments, (), VALUES)
    source, form, known = one_trace("tune", words, options)
    fixed = list(filter(None, [re.sub(r"\s*,[\s,]*", ",", plain_conf(options.get("--conf", ""))).strip(", ")]))
    if fixed:
        known = known[2:]  # each setting contains it
        checked = tool("conf", "--", fixed[0])
        if checked.returncode:
            raise Failure(2, checked.stderr.splitlines()[0].replace("cachalot-page: ", ""))
    tuner = tune(source, fixed, known)
    best = tuner.shown()
    if form == "json":
        print(json.dumps(document(tuner, best, fixed), indent=2))
    else:
        print("\n".join(table(tuner, best, fixed)))
    return 0
