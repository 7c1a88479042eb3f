"""cachalot show: a report as a table laid out like torch.cuda.memory_summary()."""

import sys

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure
from cachalot_command.reading.report import Report
from cachalot_command.writing.table import lines_of

HELP = """\
usage: cachalot show REPORT…

Prints reports as tables, laid out like torch.cuda.memory_summary(), with hits,
fences, fragmentation, leaks and warnings.

Exit code: 0, 2 usage, 3 a file is missing or no report (others are shown).
example: cachalot show cachalot.python3.4711.json
"""


def main(arguments):
    """cachalot show."""
    paths, _ = split("show", arguments)
    if not paths:
        raise Failure(2, "give the files of reports; see `cachalot show --help`")
    code = 0
    for path in paths:
        try:
            print("\n".join(lines_of(Report(path))))
        except Failure as failure:
            sys.stdout.flush()
            print(f"cachalot: {failure}", file=sys.stderr)
            code = failure.code
    return code
