"""cachalot show: a report as a table laid out like torch.cuda.memory_summary()."""

import sys

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure
from cachalot_command.reading.processes import reports_in
from cachalot_command.reading.report import Report
from cachalot_command.writing.table import lines_of

HELP = """\
usage: cachalot show REPORT… [--symbols]

Prints reports as tables, laid out like torch.cuda.memory_summary(), with hits,
fences, fragmentation, leaks and warnings.
  REPORT     a file, or a folder of reports
  --symbols  look up names of call sites also if another host wrote the report

Exit code: 0, 2 usage, 3 a file is missing or no report (others are shown).
example: cachalot show cachalot.python3.4711.json
"""


def main(arguments):
    """cachalot show."""
    words, options = split("show", arguments, ("--symbols",))
    if not words:
        raise Failure(2, "give the files of reports; see `cachalot show --help`")
    code = 0
    for path in (path for word in words for path in reports_in(word)):
        try:
            print("\n".join(lines_of(Report(path, "--symbols" in options))))
        except Failure as failure:
            sys.stdout.flush()
            print(f"cachalot: {failure}", file=sys.stderr)
            code = failure.code
    return code
