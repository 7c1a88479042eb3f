"""cachalot show: a report as a table laid out like torch.cuda.memory_summary()."""

import glob
import os

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, printable, say
from cachalot_command.reading.processes import looks_like_report, reports_in
from cachalot_command.reading.report import Report, last_of_each
from cachalot_command.writing.holders import peak_lines
from cachalot_command.writing.summary import by_rank, summary_lines
from cachalot_command.writing.table import head_lines, lines_of
from cachalot_command.writing.words import unnamed

HELP = """\
usage: cachalot show [REPORT…] [--peak] [--symbols]

Prints reports as tables, laid out like torch.cuda.memory_summary(), with hits,
fences, fragmentation, leaks, warnings, and the course of memory. Several are
preceded by a table with a line for each process, in the order of ranks.
  REPORT     a file, or a folder of reports (default: the newest report here)
  --peak     only who held the memory of each device at its peak, a row for each
             line of code, from a sample of all requests
  --symbols  look up names of call sites also if another host wrote the report

Exit code: 0, 2 usage, 3 a file is missing or no report (others are shown).
example: cachalot show cachalot.train.py.4711.json
"""


def newest_here():
    found = [path for path in glob.glob("*.json") if looks_like_report(path)]
    if not found:
        raise Failure(2, "no report lies here: give its file; see `cachalot show --help`")
    return max(found, key=os.path.getmtime)


def main(arguments):
    """cachalot show."""
    words, options = split("show", arguments, ("--peak", "--symbols"))
    if not words:
        words = [newest_here()]
        say(f"cachalot: {printable(words[0])} is the newest report here")
    code, reports = 0, []
    for path in (path for word in words for path in reports_in(word)):
        try:
            reports.append(Report(path, "--symbols" in options))
        except Failure as failure:
            say(f"cachalot: {failure}")
            code = failure.code
    if len(reports) > 1 and "--peak" not in options:
        print("\n".join(summary_lines(last_of_each(reports))), end="\n\n")
    for report in sorted(reports, key=by_rank):
        print("\n".join([*head_lines(report)[:1], *peak_lines(report), *unnamed(report)] if "--peak" in options else lines_of(report)))
    return code
