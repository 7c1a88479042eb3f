"""cachalot export: a report or a recorded trace in the forms that other tools read, or as a page."""

import os
import sys

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, printable, say, show_progress
from cachalot_command.common.units import counted, size_text
from cachalot_command.reading.processes import read_reports
from cachalot_command.reading.runs import NEWEST
from cachalot_command.reading.sources import missing_map, read_source
from cachalot_command.reading.traces import device_number
from cachalot_command.writing import html, output, perfetto, pprof, speedscope, viz
from cachalot_command.writing.rmm_log import write_csv
from cachalot_command.writing.summary import by_rank
from cachalot_command.writing.words import unnamed

HELP = """\
usage: cachalot export REPORT|TRACE|FOLDER OPTION…

Writes a report, or a trace that `cachalot run --trace` recorded, as:
  --html FILE        one page that needs no network: memory over time, who held
                     it, map of segments and blocks, fragmentation in words
  --memory-viz FILE  a snapshot as PyTorch's, for pytorch.org/memory_viz
  --perfetto FILE    a trace for ui.perfetto.dev: memory, events if it has any
  --pprof FILE       who held memory, at the peak of each device and at the end,
  --speedscope FILE  for `go tool pprof`, and for speedscope.app
  --csv FILE         RMM's log (Thread,Time,Action,Pointer,Size,Stream), which
                     `cachalot replay` reads; of one device
  --device N         only what happened on this device
  --symbols          look up names of call sites also if another host wrote it
FILE may be - (standard output). Several options may be given at once. Of a
FOLDER, --html makes one page of all processes of its newest run.

A report has each event if the program ran with CACHALOT_EVENTS=N (the last N),
and the map then, too, or by `dump --segments`. A trace has no map of what was
mapped (`expandable_segments:True`).

Exit code: 0 done, 1 not written, 2 usage, 3 no or broken report, or one without
events, 125 there is no Chart.js for --html.
example: cachalot export cachalot.train.py.4711.json --html memory.html
example: cachalot export run.trace --csv run.csv --perfetto run.perfetto
"""

EXPORTS = ("--html", "--memory-viz", "--perfetto", "--pprof", "--speedscope", "--csv")


def need_events(source, option):
    if not any(h.events for h in source.histories):
        raise Failure(3, f"{source.path} has no events, which {option} needs: run the program with "
                         "CACHALOT_EVENTS=100000")


def need_events_or_segments(source, option):
    if not any(h.segments for h in source.histories):
        need_events(source, option)


def need_sites(source, option):
    if not source.report or not source.report.list("sites"):
        raise Failure(3, f"{source.path} has no call sites, which {option} needs")


def write_export(option, source, file):
    if option == "--html":
        html.write(source, file)
    elif option == "--memory-viz":
        need_events_or_segments(source, option)
        viz.write(source, file, int(source.start.timestamp() * 1000000))
    elif option == "--perfetto":
        if not source.series:
            need_events(source, option)
        perfetto.write(source, file)
    elif option in ("--pprof", "--speedscope"):
        need_sites(source, option)
        (pprof if option == "--pprof" else speedscope).write(source, file)
    else:
        need_events(source, option)
        write_csv(source, file)


def only_device(source, device):
    """Leaves out the other devices."""
    there = [h.device for h in source.histories]
    if device not in (None, *there):
        raise Failure(2, f"{source.path} has no device {device}, but {', '.join(map(str, there)) or 'none at all'}")
    source.histories = [h for h in source.histories if device in (None, h.device)]


def say_what_is_missing(source, options):
    if source.report is None and options.keys() & {"--html", "--memory-viz"} and all(h.segments is None for h in source.histories):
        print(f"cachalot: {printable(source.path)}: {missing_map(source)}", file=sys.stderr)


def export_run(folder, options, device, symbols):
    """One page of the newest run in a folder."""
    if options.keys() != {"--html"} or not options["--html"] or device is not None:
        raise Failure(2, "of a folder only one page is made: `cachalot export --html FILE FOLDER`")
    html.find_chart()
    found = read_reports([folder], NEWEST)
    if found.problems:
        raise Failure(3, found.problems[0])
    reports = sorted((process.report for process in found.processes), key=by_rank)
    for report in reports:
        output.refuse_overwriting(report.path, options.values())
    sources = [read_source(report.path, None, symbols)[0] for report in reports]
    path = options["--html"]
    output.make(path, lambda file: html.write_run(sources, folder, file))
    if not output.DESCRIPTOR.fullmatch(output.place_of(path)):
        say(f"cachalot: {printable(path)}: {counted(len(sources), 'report')} on one page")
    return 0


def main(arguments):
    """cachalot export."""
    words, options = split("export", arguments, ("--symbols",), (*EXPORTS, "--device"))
    device, symbols = device_number(options.pop("--device", None)), options.pop("--symbols", False)
    if len(words) != 1 or not options:
        raise Failure(2, "give one report and what to make of it; see `cachalot export --help`")
    if list(options.values()).count("-") > 1:
        raise Failure(2, "only one of them can go to standard output")
    if os.path.isdir(words[0]):
        return export_run(words[0], options, device, symbols)
    output.refuse_overwriting(words[0], options.values())
    if "--html" in options:
        html.find_chart()
    try:
        source, note = read_source(words[0], device, symbols)
    finally:
        show_progress()
    for line in unnamed(source.report) if source.report else ():
        print(f"cachalot: {printable(source.path)}: {line}", file=sys.stderr)
    if note:
        print(f"cachalot: {note}", file=sys.stderr)
    only_device(source, device)
    say_what_is_missing(source, options)
    for option, path in options.items():
        if not path:
            raise Failure(2, f"{option} needs a file name")
        show_progress(f"{printable(path)} is being made")
        try:
            output.make(path, lambda file: write_export(option, source, file))
        finally:
            show_progress()
        if not output.DESCRIPTOR.fullmatch(output.place_of(path)):
            events = sum(len(history.events) for history in source.histories)
            size = f"{size_text(os.path.getsize(path))}, " if os.path.isfile(path) else ""
            say(f"cachalot: {printable(path)}: {size}{counted(events, 'event')} of {counted(len(source.histories), 'device')}")
    return 0
