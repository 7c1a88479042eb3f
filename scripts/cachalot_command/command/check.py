"""cachalot check: a gate for CI on one report or many."""

import glob
import itertools
import os
import shlex
import sys

from cachalot_command.common.limits import OTHERS, PARSERS
from cachalot_command.common.tools import Failure, printable
from cachalot_command.reading.report import Report, Stranger, begins_as_report
from cachalot_command.writing import formats
from cachalot_command.writing import output
from cachalot_command.writing.gates import LIMITS, Process, counted, judge
from cachalot_command.writing.words import signal_text

HELP = """\
usage: cachalot check REPORT… GATES…     REPORT: a file, or a folder of reports

All reports are one run; where they differ, the worst process is named. Gates,
of which all that are given apply, also several of one kind:
  --max-peak-reserved, --max-peak-allocated, --max-leaked SIZE   8GiB, 512MiB, 0
                  a peak is, on several GPUs, the sum of the devices' peaks
  --max-oom, --max-retries, --max-double-frees, --max-warnings N
                  each process; sum:N or sum:SIZE: all together
  --min-utilization (allocated of reserved, at the peaks), --min-hits SHARE  90%
  --max-spread SHARE      how far the processes' peaks may lie apart
  --baseline OLD          peaks, leaks, out-of-memory: at most --max-increase
                          SHARE (5%) over OLD's
  --require-reports N     from at least N processes that asked for memory
  --require-coverage full|partial|none    how much of CUDA must have come
                          through the cache (partial, and something was served)
  --format text|github|junit|json|openmetrics (this one also without a gate)
  --output FILE           that format goes there, and text to the terminal

A figure that is unknown fails its gate. Exit code: 0 passed, 1 a gate failed,
2 usage, 3 a report is missing or is none, or FILE cannot be written.
example: cachalot check cachalot.*.json --max-leaked 0 --max-peak-reserved 8GiB
example: cachalot check reports/ --require-reports 8 --baseline last/
"""

FILES_MOST = 100000
LOOKED_AT_MOST = 1000  # files of a folder that was not given
RANKS_SHOWN = 8


def parse_value(option, parser, value):
    """The value; what is wrong with it names its option."""
    try:
        return parser(value)
    except Failure as failure:
        raise Failure(2, f"{option}: {failure}") from failure


def parse_limit(option, value):
    """[sum:]VALUE as (scope, limit)."""
    unit = LIMITS[option][1]
    scope, colon, rest = value.partition(":")
    if not colon:
        scope, rest = "each", value
    elif scope != "sum" or unit == "ratio":
        raise Failure(2, f"{option}: `{printable(value)}` is not a limit")
    return scope, parse_value(option, PARSERS[unit], rest)


def add_gate(gates, option, value):
    """All that are given apply; what is given twice counts once."""
    limits = gates.setdefault(option, [])
    limit = parse_limit(option, value) if option in LIMITS else parse_value(option, OTHERS[option], value)
    limits += [limit] * (limit not in limits)


def parse(arguments):
    """(files, gates, options)."""
    words, gates, options = [], {}, {"--format": "text"}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            words += rest
        elif name in (*LIMITS, *OTHERS, "--format", "--output"):
            value = value if equals else next(rest, None)
            if value is None:
                raise Failure(2, f"{name} needs a value; see `cachalot check --help`")
            if name == "--output" and name in options:
                raise Failure(2, f"{name} is given twice, and only one file is written")
            if name in ("--format", "--output"):
                options[name] = value
            else:
                add_gate(gates, name, value)
        elif argument.startswith("-") and argument != "-":
            raise Failure(2, f"unknown option {argument}; see `cachalot check --help`")
        else:
            words.append(argument)
    check_options(gates, options)
    return words, gates, options


def check_options(gates, options):
    if options.get("--output") == "":
        raise Failure(2, "--output needs a file name")
    if options["--format"] not in formats.FORMATS:
        raise Failure(2, f"--format is one of {', '.join(formats.FORMATS)}")
    if not gates and options["--format"] != "openmetrics":  # figures are of use without one
        raise Failure(2, "no gate given, so nothing could fail; see `cachalot check --help`")
    if "--max-increase" in gates and "--baseline" not in gates:
        raise Failure(2, "--max-increase needs a --baseline")
    gates.setdefault("--max-increase", [0.05])


def split_words(text):
    splitter = shlex.shlex(text, posix=True, punctuation_chars=False)
    splitter.whitespace += ","
    splitter.whitespace_split = True
    splitter.commenters = ""
    try:
        return list(splitter)
    except ValueError as error:
        raise Failure(2, f"{text}: {error}") from error


def parse_words(*texts):
    """Gates in one word, as each `cachalot run --check` takes them: max-leaked=0,max-oom=0."""
    words = [word for text in texts for word in split_words(text)]
    named = [w if w.startswith("--") or "=" not in w else f"--{w}" for w in words]
    files, gates, options = named, {}, {}
    if not named or any(word.startswith("--") for word in named):
        files, gates, options = parse(named)
    if files:
        raise Failure(2, f"`{files[0]}` is not a gate; write max-leaked=0,max-oom=0")
    return gates, options


def looks_like_report(path):
    try:
        return os.path.isfile(path) and begins_as_report(path)
    except OSError:
        return False


def is_own_output(path):
    """`cachalot check reports/ >reports/gate.json`: the shell has made the file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def holds_report(path):
    """Is it a folder with a report anywhere below it, as far as one looks?"""
    files = (os.path.join(place, name) for place, _, names in os.walk(path) for name in names)
    return any(map(looks_like_report, itertools.islice(files, LOOKED_AT_MOST)))


class Reports:
    """The processes that files tell of, and what was wrong with files."""

    def __init__(self):
        self.processes, self.problems, self.notes = [], [], []
        self.strangers = self.unasked = 0
        self.folders = set()  # with reports, below those that were given

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
        """Of each process the report of its end, else the last."""
        last = {}
        for process in self.processes:
            key = process.identity() or f"file {process.path}"
            rank = (process.is_final(), process.kind == "exit",
                    number_or(process.report.number("sequence"), 0))
            if key not in last or rank > last[key][0]:
                last[key] = (rank, process)
        dropped = len(self.processes) - len(last)
        if dropped:
            self.notes.append(f"left out: {counted(dropped, 'earlier report')} of the same processes")
        self.processes = [process for _, process in last.values()]

    def note_gaps(self):
        """Ranks count from 0: of one that is missing somebody may want to know."""
        ranks = {p.rank for p in self.processes if isinstance(p.rank, int) and 0 <= p.rank < FILES_MOST}
        missing = sorted(set(range(max(ranks) + 1)) - ranks) if len(ranks) > 1 else []
        if missing:
            shown = ", ".join(map(str, missing[:RANKS_SHOWN])) + (", …" if len(missing) > RANKS_SHOWN else "")
            self.notes.append(f"there is no report of rank {shown}: did it use the cache?")

    def look_around(self):
        """Notes on what a reader of the result should know."""
        if self.strangers:
            self.notes.append(f"left out: {counted(self.strangers, 'file')}, being no report of cachalot")
        if self.folders:
            self.notes.append(f"left out: {counted(len(self.folders), 'folder')} with reports; name them")
        if self.unasked:
            self.notes.append(f"left out: {counted(self.unasked, 'file')} with the look of a report, not being named *.json")
        sessions = {p.report.text("process", "session").partition("/")[0] for p in self.processes}  # runs within it
        if len(sessions - {"-"}) > 1:
            self.notes.append(f"the reports are of {len(sessions)} different runs")
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


def number_or(value, other):
    return other if value is None else value


def read_reports(paths):
    reports = Reports()
    for path in dict.fromkeys(paths):
        if os.path.isdir(path):
            reports.read_folder(path)
        else:
            reports.read(path, may_be_strange=False)
    reports.folders -= set(map(os.path.realpath, paths))
    reports.keep_last()
    reports.look_around()
    return reports


def read_baseline(paths, reports):
    """Its processes. What is wrong with it is a problem of the whole check."""
    baseline = read_reports(paths)
    reports.problems += [f"baseline: {problem}" for problem in baseline.problems]
    ours = {p.identity() for p in reports.processes} - {None}
    if any(p.identity() in ours for p in baseline.processes):
        reports.problems.append("the baseline has a report of the same process as the reports have")
    return baseline.processes


def write_file(path, text):
    try:
        output.write(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise Failure(3, f"{path}: {error.strerror}") from error


def refuse_overwriting(path, reports):
    if os.path.realpath(path) in map(os.path.realpath, reports) and os.path.isfile(path):
        raise Failure(2, f"--output: {path} is one of the reports, and would be overwritten")


def check(paths, gates, options, stream, problems=()):
    """Judges, writes, and returns the exit code. With `problems` there is no verdict."""
    reports = read_reports(paths)
    reports.problems += problems
    baseline = read_baseline(gates["--baseline"], reports) if "--baseline" in gates else []
    results = []
    if reports.processes and (baseline or "--baseline" not in gates):
        results = judge(reports.processes, gates, baseline)
    failed = any(not result.passed for result in results)
    code = 3 if reports.problems or not results else int(failed)
    verdict = formats.Verdict(reports, results, code)
    text = formats.FORMATS[options["--format"]](verdict)
    if "--output" not in options:
        stream.write(text)
        return code
    try:
        stream.write(formats.text(verdict))  # first: it is not lost with the file
        stream.flush()
    finally:  # nor is the file with a terminal that was closed
        refuse_overwriting(options["--output"], [*paths, *(process.path for process in [*reports.processes, *baseline])])
        write_file(options["--output"], text)
    return code


def main(arguments):
    """cachalot check."""
    paths, gates, options = parse(arguments)
    if options.get("--output") == "-":  # where the text would go
        del options["--output"]
    problems = [] if paths else ["no report given; a check without reports is never a pass"]
    return check(paths, gates, options, sys.stdout, problems)
