"""The processes of one run, each with its last report, and what is odd about the files."""

import glob
import itertools
import os
import time

from cachalot_command.common.limits import KINDS, LEVELS, ON_DEVICE
from cachalot_command.common.tools import Failure, printable
from cachalot_command.common.units import counted
from cachalot_command.reading.kinds import figures
from cachalot_command.reading.report import COUNT_MOST, ENDS, Report, Stranger, begins_as_report, get, identity, last_of_each, number, signal_text
from cachalot_command.reading.runs import ALL, ONE, age_problem, choose

FILES_MOST = 100000
LOOKED_AT_MOST = 1000  # files, in a folder that was not named
RANKS_SHOWN = 8
COUNTS = ("requests", "hits", "peak_allocated_bytes", "peak_reserved_bytes", "ooms",
          "alloc_retries", "double_frees", "warnings")
LATER = ("faults",)  # unknown in reports of older versions
# Figures that may be null: the process still ran, or reserved nothing.
UNKNOWNS = {"leaked_bytes": COUNT_MOST, "leaked_blocks": COUNT_MOST,
            "hit_ratio": 1, "peak_utilization_ratio": 1}


class Process:
    """A report with checked figures, so that gates can rely on them."""

    def __init__(self, report):
        self.report = report
        self.path = report.path
        self.kind = report.get("kind")
        if self.kind == "replay":
            raise Stranger(3, f"{self.path} is what `cachalot replay` found, not a report")
        self.totals = {key: self.figure(key, COUNT_MOST) for key in COUNTS}
        for key, most in UNKNOWNS.items():
            self.totals[key] = self.figure(key, most, may_be_null=True)
        self.totals |= {key: self.figure(key, COUNT_MOST) if key in (report.get("totals") or ()) else None for key in LATER}
        self.past = {kind: self.past_the_cache(kind) for kind in KINDS}
        self.coverage = report.get("coverage", "status")
        if self.kind not in ("exit", "signal", "request", "harvest"):
            raise Failure(3, f"{self.path} is damaged: `kind` is {self.kind!r:.40}")
        if self.coverage not in LEVELS:
            raise Failure(3, f"{self.path} is damaged: `coverage.status` is {self.coverage!r:.40}")
        for part in ("leaks", "oom_events"):
            for i, site in enumerate(get(entry, "site") for entry in report.list(part)):
                if site is not None and type(site) is not int:
                    raise Failure(3, f"{self.path} is damaged: `{part}[{i}].site` is {site!r:.40}")
        rank = report.get("process", "rank")
        self.rank = rank if isinstance(rank, (int, str)) else None
        self.program = report.program()

    def figure(self, key, most, may_be_null=False):
        totals = self.report.get("totals")
        if isinstance(totals, dict) and key not in totals:
            raise Failure(3, f"{self.path} is of an older version, or damaged: it has no `totals.{key}`")
        value = number(totals, key)
        if may_be_null and isinstance(totals, dict) and totals[key] is None:
            return None
        is_whole = most == 1 or isinstance(value, int)
        if value is None or not is_whole or not 0 <= value <= most:
            found = get(totals, key)
            raise Failure(3, f"{self.path} is damaged: `totals.{key}` is {found!r:.40}")
        return value

    def past_the_cache(self, kind):
        """(most at once, leaked) of memory of a kind that the cache did not serve. Damaged figures are no figures."""
        found = figures(self.report, kind)
        if not all(value is None or isinstance(value, int) and 0 <= value <= COUNT_MOST for value in found):
            raise Failure(3, f"{self.path} is damaged: `others` has {found!r:.60} for {kind} memory")
        return found

    def of_kind(self, key, kind):
        """A figure of the totals for one kind of memory; kind None: for all device memory."""
        values = [self.totals[key]] if kind in (None, "device") else []
        values += [self.past[each][key == "leaked_bytes"] for each in ((kind,) if kind else ON_DEVICE)]
        return None if None in values else sum(values)

    def is_final(self):
        return self.kind in ENDS

    def name(self):
        rank = "" if self.rank is None else f"rank {printable(self.rank)[:20]}, "
        return (f"{rank}{self.program[:40]} pid {self.report.text('process', 'pid')[:20]} on "
                f"{self.report.text('process', 'hostname')[:40]}")

    def is_idle(self):
        """True if the process made no request through the cache."""
        return self.totals["requests"] == 0


def looks_like_report(path):
    try:
        return os.path.isfile(path) and begins_as_report(path)
    except OSError:
        return False


def is_own_output(path):
    """True for the output of this command: in `cachalot check reports/ >reports/gate.json` the shell has made the file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def holds_report(path):
    """True for a folder with a report somewhere below it. Only so many files are looked at."""
    files = (os.path.join(place, name) for place, _, names in os.walk(path) for name in names)
    return any(map(looks_like_report, itertools.islice(files, LOOKED_AT_MOST)))


def reports_in(path):
    """The files in a folder that look like reports; the path itself if it is no such folder, so that reading it says why."""
    found = [name for name in sorted(glob.glob(os.path.join(glob.escape(path), "*.json")))[:FILES_MOST]
             if looks_like_report(name) and not is_own_output(name)]
    return found or [path]


class Reports:
    """The processes that the files tell of, problems and notes."""

    def __init__(self):
        self.processes, self.problems, self.notes = [], [], []
        self.strangers = self.unasked = 0
        self.folders = set()  # folders with reports below the given ones

    def read(self, path, may_be_strange):
        try:
            self.processes.append(Process(Report(path)))
        except Stranger as failure:
            if may_be_strange:
                self.strangers += 1
            else:
                self.problems.append(str(failure))
        except Failure as failure:
            self.problems.append(str(failure))

    def read_folder(self, path):
        if not os.access(path, os.R_OK | os.X_OK):
            self.problems.append(f"{path} may not be read")
            return
        names = sorted(glob.glob(os.path.join(glob.escape(path), "*.json")))
        for name in names[:FILES_MOST]:
            if os.path.isfile(name) and not is_own_output(name):
                self.read(name, may_be_strange=True)
        if len(names) > FILES_MOST:
            self.problems.append(f"{path} has more than {FILES_MOST} files")
        others = glob.glob(os.path.join(glob.escape(path), "*"))
        folders = list(filter(holds_report, others))
        self.unasked += sum(looks_like_report(name) for name in others if not name.endswith(".json"))
        self.folders.update(map(os.path.realpath, folders))
        if not self.processes and not self.problems:
            only = f" itself, only {counted(len(folders), 'folder')} with reports: name them" * bool(folders)
            self.problems.append(f"{path} has no report in it{only}")

    def keep_last(self):
        """Keeps one report of each process: that of its end, else the last."""
        kept = {id(report) for report in last_of_each(process.report for process in self.processes)}
        dropped = len(self.processes) - len(kept)
        if dropped:
            self.notes.append(f"left out: {counted(dropped, 'earlier report')} of the same processes")
        self.processes = [process for process in self.processes if id(process.report) in kept]

    def keep_run(self, which, environment):
        """Keeps the reports of one run, as `runs.choose` says."""
        chosen, problem = choose(self.processes, which, environment)
        dropped = len(self.processes) - len(chosen)
        if dropped:
            self.notes.append(f"left out: {counted(dropped, 'report')} of other runs")
        if problem:
            self.problems.append(problem)
        self.processes = chosen

    def note_gaps(self):
        """Notes ranks without a report: ranks count from 0."""
        ranks = {p.rank for p in self.processes if isinstance(p.rank, int) and 0 <= p.rank < FILES_MOST}
        missing = sorted(set(range(max(ranks) + 1)) - ranks) if len(ranks) > 1 else []
        if missing:
            shown = ", ".join(map(str, missing[:RANKS_SHOWN])) + (", …" if len(missing) > RANKS_SHOWN else "")
            self.notes.append(f"there is no report of rank {shown}: did it use the cache?")

    def look_around(self):
        """Adds notes that a reader of the verdict should know."""
        if self.strangers:
            self.notes.append(f"left out: {counted(self.strangers, 'file')}, being no report of cachalot")
        if self.folders:
            self.notes.append(f"left out: {counted(len(self.folders), 'folder')} with reports; name them")
        if self.unasked:
            self.notes.append(f"left out: {counted(self.unasked, 'file')} with the look of a report, not being named *.json")
        self.note_gaps()
        for process in self.processes:
            ended = signal_text(process.report)
            if ended:
                self.notes.append(f"{process.name()} was ended by {ended}")
            elif process.kind == "harvest" and process.report.text("exit", "reason") == "unknown":
                self.notes.append(f"{process.name()} wrote no report itself: it was killed, or left by _exit")
            elif not process.is_final():
                self.notes.append(f"{process.name()} still ran: its figures are not final")
            if process.coverage == "partial":
                self.notes.append(f"coverage of {process.name()} is partial")


def read_reports(paths, which=ALL, environment=os.environb):
    """The processes of the run that `which` chooses (runs.py)."""
    reports = Reports()
    for path in dict.fromkeys(paths):
        if os.path.isdir(path):
            reports.read_folder(path)
        else:
            reports.read(path, may_be_strange=False)
    reports.folders -= set(map(os.path.realpath, paths))
    reports.keep_last()
    reports.keep_run(which, environment)
    reports.look_around()
    return reports


def read_new_reports(paths, which):
    """The reports to judge. Unless a choice was made, those of a folder must be of today's run."""
    reports = read_reports(paths, which)
    if which == ONE and not os.environ.get("CACHALOT_SESSION") and any(map(os.path.isdir, paths)):
        problem = age_problem(reports.processes, time.time())
        reports.problems += [problem] * bool(problem)
    return reports


def read_baseline(paths, reports, which):
    """The processes of the baseline. A problem with it is a problem of the whole check."""
    baseline = read_reports(paths, which, {})
    reports.problems += [f"baseline: {problem}" for problem in baseline.problems]
    ours = {identity(p.report) for p in reports.processes} - {None}
    if any(identity(p.report) in ours for p in baseline.processes):
        reports.problems.append("the baseline has a report of the same process as the reports have")
    return baseline.processes
