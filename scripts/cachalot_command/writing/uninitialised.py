"""`cachalot run --uninitialised`: does what a program prints depend on memory that it never wrote?"""

import os
import tempfile

from cachalot_command.common.tools import Failure, say, show_progress
from cachalot_command.common.units import size_text
from cachalot_command.reading.trials import deadline_after, most_of, run_once
from cachalot_command.writing.sweep import refused_of

FILLS = ("nan", "random:1")
SAID = "depends on memory it never wrote"


class Runs:
    """Runs of one program, each with other bytes in the memory that it gets."""

    def __init__(self, program, folder):
        self.program, self.folder, self.count, self.deadline = program, folder, 0, None
        self.first = self.run("fill:zero")
        self.deadline = deadline_after(self.first)

    def run(self, options):
        self.count += 1
        show_progress(f"run {self.count}")
        more = [self.deadline] if self.deadline else []
        trial = run_once(*self.program, options, os.path.join(self.folder, str(self.count)), *more)
        show_progress()
        return trial

    def differs(self, fill):
        """True if the program ends or prints otherwise than with zeros."""
        trial = self.run(f"fill:{fill}")
        return trial.hung or (trial.code, trial.output) != (self.first.code, self.first.output)

    def culprit(self, fill, total):
        """The number of the one allocation whose bytes make the difference; None: there are several together."""
        low, high = 1, total
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.differs(f"[{fill},{low}-{middle}]") else (middle + 1, high)
        return low if self.differs(f"[{fill},{low}-{low}]") else None

    def block(self, number):
        """What the report says of an allocation: the run refuses it for that."""
        trial = self.run(f"fill:zero,fail_alloc:[kind:device,kind:stream_ordered,kind:pinned,{number}]")
        found = refused_of(trial.reports(), number)
        kind, size, site = found or ("unknown", None, "-")
        return f"allocation {number}, {size_text(size)} of {kind} memory, asked for at {site}"


def judge(runs):
    """(lines, exit code)"""
    if runs.first.hung:
        raise Failure(3, "the program runs for more than an hour: too long to be run again and again")
    total = int(most_of(runs.first.reports(), "coverage", "counters", "fills"))
    if not total:
        return [f"{SAID}: no, as it allocated nothing that is filled"], 0
    if runs.differs("zero"):
        return [f"{SAID}: not known, since two runs with the same bytes end or print differently"], 3
    fill = next((fill for fill in FILLS if runs.differs(fill)), None)
    if not fill:
        return [f"{SAID}: no. {total} allocations; exit code {runs.first.code} and the same output with zeros, NaN and random words"], 0
    number = runs.culprit(fill, total)
    where = runs.block(number) if number else "several allocations make it together"
    return [f"{SAID}: yes. With {fill} in place of zeros it ends or prints otherwise", where], 1


def uninitialised(path, words, environment):
    """Prints whether the program depends on memory that it never wrote, and on which block."""
    environment = {b"CACHALOT_SITES": b"1", **environment}
    with tempfile.TemporaryDirectory(prefix="cachalot-fill-") as folder:
        runs = Runs((path, words, environment), folder)
        lines, code = judge(runs)
        print("\n".join(lines))
        say(f"cachalot: {runs.count} runs")
    return code
