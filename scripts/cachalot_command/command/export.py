"""cachalot export: a report or a recorded trace in the forms that other tools read, and as a page."""

import os
import sys
from datetime import timedelta

from cachalot_command.command.pages import split
from cachalot_command.common.tools import Failure, printable, say, show_progress
from cachalot_command.reading.sources import missing_map, read_source
from cachalot_command.reading.traces import device_number
from cachalot_command.writing import html
from cachalot_command.writing import output
from cachalot_command.writing import perfetto
from cachalot_command.writing import viz

HELP = """\
usage: cachalot export REPORT|TRACE OPTION…

Writes a report, or a trace that `cachalot run --trace` recorded, as:
  --html FILE        one page that needs no network: memory over time, map of
                     segments and blocks, sizes, fragmentation in words
  --memory-viz FILE  a snapshot as PyTorch makes it, for its viewers:
                     pytorch.org/memory_viz, torch/cuda/_memory_viz.py
  --perfetto FILE    a trace for ui.perfetto.dev
  --csv FILE         RMM's log (Thread,Time,Action,Pointer,Size,Stream), which
                     `cachalot replay` reads; of one device
  --device N         only what happened on this device
FILE may be - (standard output). Several options may be given at once.

A report has what happened over time if the program ran with CACHALOT_EVENTS=N
(the last N events); the map then, too, or by `cachalot dump --segments`. A
trace has a map only of what was not mapped (`expandable_segments:False`).

Exit code: 0 done, 1 not written, 2 usage, 3 no or broken report, or one without
events, 125 there is no Chart.js for --html.
example: cachalot export cachalot.python3.4711.json --html memory.html
example: cachalot export run.trace --csv run.csv --perfetto run.perfetto
"""

EXPORTS = ("--html", "--memory-viz", "--perfetto", "--csv")


class Csv:
    """RMM's log of one device."""

    def __init__(self, begin, file):
        self.begin, self.file, self.second, self.clock = begin, file, None, ""

    def time(self, ns):
        second, rest = divmod(ns, 1000000000)
        if second != self.second:
            self.second = second
            try:
                self.clock = (self.begin + timedelta(seconds=second)).strftime("%H:%M:%S")
            except OverflowError:
                self.clock = "23:59:59"
        return f"{self.clock}:{rest // 1000:06}"

    def line(self, thread, time, action, address, size):
        self.file.write(f"{thread},{self.time(time)},{action},{address:#x},{size},0x0\n".encode())

    def write(self, history):
        self.file.write(b"Thread,Time,Action,Pointer,Size,Stream\n")
        first = history.events[0].time
        for block in history.before:
            self.line(0, first, "allocate", block.address, block.requested)
        held = {block.address for block in history.before}
        for event in history.events:
            if event.action == "alloc":
                held.add(event.address)
                self.line(event.thread, event.time, "allocate", event.address, event.requested)
            elif event.action == "free_requested" and event.address in held:
                held.discard(event.address)
                self.line(event.thread, event.time, "free", event.address, event.requested)
            elif event.action == "oom":
                self.line(event.thread, event.time, "allocate failure", 0, event.requested)


def write_csv(source, file):
    """One device only: in RMM's log nothing tells devices apart."""
    used = [h for h in source.histories if h.events]
    if len(used) > 1:
        raise Failure(2, f"{source.path} has events of devices {', '.join(str(h.device) for h in used)}; "
                         "choose one with --device")
    Csv(source.start, file).write(used[0])


def need_events(source, option):
    if not any(h.events for h in source.histories):
        raise Failure(3, f"{source.path} has no events, which {option} needs: run the program with "
                         "CACHALOT_EVENTS=100000")


def need_events_or_segments(source, option):
    if not any(h.segments for h in source.histories):
        need_events(source, option)


def write_export(option, source, file):
    if option == "--html":
        html.write(source, file)
    elif option == "--memory-viz":
        need_events_or_segments(source, option)
        viz.write(source, file, int(source.start.timestamp() * 1000000))
    elif option == "--perfetto":
        need_events(source, option)
        perfetto.write(source, file)
    else:
        need_events(source, option)
        write_csv(source, file)


def export(source, option, path):
    """Writes `source` to `path`, in the form that the option asks for."""
    try:
        output.write(path, lambda file: write_export(option, source, file))
    except OSError as error:
        if path == "-":
            raise  # as of all that is printed
        raise Failure(1, f"{path}: {error.strerror}") from error


def check_page(path, others):
    """Refuses before a program is started what could not be written after it, or would be written over."""
    html.find_chart()
    if os.path.realpath(path) in map(os.path.realpath, others):
        raise Failure(125, f"--html: {path} is where the report or the trace goes")
    output.refuse("--html", path)


ENDS = ("exit", "harvest")  # kinds of reports that are a process's last


def pages_of_run(reports, path, pid):
    """A page for each report: `path` for what the program that was started became in the end, with .PID for others, and the
    generation for those that went on by exec. Returns problems."""
    problems, stem, end = [], *os.path.splitext(path)

    def process(report):
        return report.number("process", "pid"), report.number("process", "generation"), report.text("process", "hostname")

    ended = {process(report) for report in reports if report.get("kind") in ENDS}
    reports = [report for report in reports if report.get("kind") in ENDS or process(report) not in ended]

    def place(report):
        return report.number("process", "pid") != pid, report.text("process", "pid"), -(report.number("process", "generation") or 0)

    order, before = sorted(reports, key=place), None
    for i, report in enumerate(order):
        number = report.text("process", "pid")
        more = f".{report.text('process', 'generation')}" if number == before else ""
        name, before = f"{stem}.{number}{more}{end}" if i else path, number
        try:
            refuse_overwriting(report.path, [name])
            export(read_source(report.path)[0], "--html", name)
            say(f"cachalot: {printable(name)} shows {printable(report.path)}")
        except Failure as failure:
            problems.append(f"no page: {failure}")
    return problems


def refuse_overwriting(source, paths):
    """Before anything is written: what would be lost."""
    written = [os.path.realpath(path) for path in paths if path not in ("-", os.devnull)]
    if os.path.realpath(source) in written:
        raise Failure(2, f"{source} would be overwritten by what is made of it")
    if len(set(written)) < len(written):
        raise Failure(2, "two of them would go to the same file")


def only_device(source, device):
    """Leaves out the other devices."""
    there = [h.device for h in source.histories]
    if device not in (None, *there):
        raise Failure(2, f"{source.path} has no device {device}, but {', '.join(map(str, there)) or 'none at all'}")
    source.histories = [h for h in source.histories if device in (None, h.device)]


def say_what_is_missing(source, options):
    if source.report is None and options.keys() & {"--html", "--memory-viz"} and all(h.segments is None for h in source.histories):
        print(f"cachalot: {printable(source.path)}: {missing_map(source)}", file=sys.stderr)


def main(arguments):
    """cachalot export."""
    words, options = split("export", arguments, (), (*EXPORTS, "--device"))
    device = device_number(options.pop("--device", None))
    if len(words) != 1 or not options:
        raise Failure(2, "give one report and what to make of it; see `cachalot export --help`")
    if list(options.values()).count("-") > 1:
        raise Failure(2, "only one of them can go to standard output")
    refuse_overwriting(words[0], options.values())
    if "--html" in options:
        html.find_chart()
    try:
        source, note = read_source(words[0], device)
    finally:
        show_progress()
    if note:
        print(f"cachalot: {note}", file=sys.stderr)
    only_device(source, device)
    say_what_is_missing(source, options)
    for option, path in options.items():
        if not path:
            raise Failure(2, f"{option} needs a file name")
        show_progress(f"{printable(path)} is being made")
        try:
            export(source, option, path)
        finally:
            show_progress()
    return 0
