"""cachalot check: a gate for CI on one report or many."""

import sys

from cachalot_command.common.limits import parse
from cachalot_command.writing.verdict import check

HELP = """\
usage: cachalot check REPORT… GATES…     REPORT: a file, or a folder of reports

All reports must be of one run; the worst process is named. Where the variable
CACHALOT_SESSION is set only its reports are judged. All gates given apply:
  --max-peak-reserved, --max-peak-allocated, --max-leaked SIZE   8GiB, 512MiB, 0
                  of all device memory; KIND=SIZE of one kind: device,
                  stream_ordered, managed, vmm, array, pinned
                  a peak is, on several GPUs, the sum of the devices' peaks
  --max-oom, --max-retries, --max-double-frees, --max-faults, --max-warnings N
                  each process; sum:N all together; gpu:SIZE a peak per GPU
  --min-utilization (allocated of reserved, at the peaks), --min-hits SHARE  90%
  --max-spread SHARE      how far the processes' peaks may lie apart
  --baseline OLD          peaks, leaks, out-of-memory: at most --max-increase
                          SHARE, SIZE or SHARE,SIZE (5%) over OLD's
  --require-reports N     from at least N processes that asked for memory
  --require-coverage full|partial|none    how much of CUDA must have come
                          through the cache (partial, and something was served)
  --format text|github|junit|json|openmetrics (this one also without a gate)
  --output FILE           that format goes there, and text to the terminal
  --runs newest|all       of several runs: the newest only, or as if one
A figure that is unknown fails its gate. Exit code: 0 passed, 1 a gate failed,
2 usage, 3 a report is missing or is none, or FILE cannot be written.
example: cachalot check cachalot.*.json --max-leaked 0 --max-peak-reserved 8GiB
example: cachalot check reports/ --max-leaked pinned=0 --baseline last/
"""


def main(arguments):
    """cachalot check."""
    paths, gates, options = parse(arguments)
    if options.get("--output") == "-":  # where the text goes, too
        del options["--output"]
    problems = [] if paths else ["no report given; a check without reports is never a pass"]
    return check(paths, gates, options, sys.stdout, problems)
