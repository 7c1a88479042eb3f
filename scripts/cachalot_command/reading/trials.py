"""Runs of one program again and again, each with other options: how each ended, what it printed, and its reports."""

import contextlib
import hashlib
import os
import signal
import subprocess
import time

from cachalot_command.common.tools import Failure
from cachalot_command.common.variables import conf_with
from cachalot_command.reading.ended_run import collect
from cachalot_command.reading.report import last_of_each, number

FIRST_DEADLINE_S = 3600
LEAST_DEADLINE_S, TIMES_LONGER = 10, 10  # a run hangs when it takes so much longer than the first one
PIECE = 1 << 20


class Trial:
    """One run that has ended."""

    def __init__(self, child, environment, folder, seconds, hung):
        self.child, self.environment, self.folder, self.seconds, self.hung = child, environment, folder, seconds, hung
        self.code = child.returncode
        self.output = digest(os.path.join(folder, "stdout"))

    def reports(self):
        """The last report of each process of the run, those of killed ones too. Not for several threads at once."""
        return last_of_each(collect(self.child, self.environment)[0])


def digest(path):
    with open(path, "rb") as file:
        made = hashlib.sha256()
        while piece := file.read(PIECE):
            made.update(piece)
    return made.hexdigest()


def end_group(child):
    with contextlib.suppress(ProcessLookupError):  # it has ended, with all its children
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def run_once(path, words, environment, options, folder, deadline_s=FIRST_DEADLINE_S):
    """Runs the program with `options` added to its configuration. Its reports and what it prints go to `folder`, a new one."""
    os.mkdir(folder)
    session = environment[b"CACHALOT_SESSION"] + b"/" + os.urandom(4).hex().encode()
    added = conf_with(environment, options)
    own = {**environment, b"CACHALOT_CONF": os.fsencode(added), b"CACHALOT_SESSION": session,
           b"CACHALOT_OUTPUT": os.fsencode(os.path.join(folder, "%p.json").replace("%", "%%").replace("%%p.json", "%p.json"))}
    begin, hung = time.monotonic(), False
    with open(os.path.join(folder, "stdout"), "wb") as out, open(os.path.join(folder, "stderr"), "wb") as err:
        try:
            child = subprocess.Popen(words, executable=path, env=own, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                     start_new_session=True)
        except OSError as error:
            raise Failure(126, f"{path}: {error.strerror}") from error
        try:
            child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            end_group(child)
    return Trial(child, own, folder, time.monotonic() - begin, hung)


def deadline_after(first):
    """The seconds after which a run hangs, if the first one took so long."""
    return max(LEAST_DEADLINE_S, TIMES_LONGER * first.seconds)


def most_of(reports, *keys):
    """The largest of the numbers at that place in the reports."""
    return max((number(report.root, *keys) or 0 for report in reports), default=0)
