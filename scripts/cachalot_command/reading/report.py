"""Reports from files that may be cut off, foreign or hostile."""

import json
import os
import re
import select
import signal
import stat

from cachalot_command.common.bounds import available_at_most, memory_bounded
from cachalot_command.common.tools import Failure, open_at_once, printable

TRACES = (b"CACHALOT-TRACE", b"op,id,", b"Thread,Time,")
BEGIN = b'{"schema_version"'  # of a report without its blanks
OUTPUTS = ("check", "diff", "top", "tune")  # kinds of JSON that commands print, beside `replay`, which has tables of a report
OUTPUT = re.compile(rb'\{"schema_version":"[^"]*","kind":"(%s|replay)"' % "|".join(OUTPUTS).encode())
BYTES_MOST = 256 << 20  # twice the size of a report with a million blocks
MEMORY_LEAST, MEMORY_PER_BYTE = 1 << 26, 12  # bytes of memory per byte of a report; reports take up to 6
ENDS = ("exit", "harvest")  # kinds of a process's last report
COUNT_MOST = 2**53 - 1  # larger values are written as this
PIECE = 1 << 20
WRITER_TRIES, WRITER_TRY_S = 50, 0.1


class Stranger(Failure):
    """A file that does not look like a report at all."""


def begin_of_pipe(path, file):
    """The first bytes of a pipe. The wait for a writer is bounded."""
    for _ in range(WRITER_TRIES):
        try:
            piece = os.read(file, PIECE)
        except BlockingIOError:  # there is a writer
            os.set_blocking(file, True)
            return os.read(file, PIECE)
        if piece or select.select([file], [], [], WRITER_TRY_S)[0]:  # data has come, or the writer has closed it
            os.set_blocking(file, True)
            return piece or os.read(file, PIECE)
    raise Failure(3, f"{path} is a pipe that nobody writes to")


def read_pipe(path, file):
    """The content of a pipe or a device, up to a little more than any report has."""
    piece = begin_of_pipe(path, file)
    data = bytearray(piece)
    while piece and len(data) <= BYTES_MOST:
        piece = os.read(file, PIECE)
        data += piece
    return bytes(data)


def read_all(path):
    """The content of a file. A file larger than any report is not read to its end."""
    try:
        with open_at_once(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                data = read_pipe(path, file.fileno())
                if len(data) <= BYTES_MOST:
                    return data
            elif status.st_size <= BYTES_MOST:
                return file.read(status.st_size)
    except OSError as error:
        raise Failure(3, f"{path}: {error.strerror}") from error
    raise Stranger(3, f"{path} is larger than any report ({BYTES_MOST >> 20} MiB)")


def whole_number(text):
    return int(text) if len(text) < 25 else float("inf")


def parse(path, data):
    """The content of a file as Python objects."""
    try:
        return json.loads(data.decode("utf-8"), parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        # A file that begins as a report does, or is empty, is a report that was cut off.
        begin = b"".join(data[:4096].split())
        is_torn = (BEGIN[1:] in begin or BEGIN.startswith(begin)) and not OUTPUT.match(begin)
        kind = Failure if is_torn else Stranger
        what = "is cut off, or is not JSON" if kind is Failure else "is not JSON"
        if data.startswith(TRACES):
            what = "is a recorded trace, not a report: `cachalot replay` and `cachalot export` read it"
        raise kind(3, f"{path} {what if data else 'is empty'}") from error


def begins_as_report(path):
    with open_at_once(path) as file:
        begin = b"".join(file.read(64).split())
        return begin.startswith(BEGIN) and not OUTPUT.match(begin)


class Report:
    """A report from a file, and careful ways to look into it. `symbols`: frames get names also if another host wrote it."""

    def __init__(self, path, symbols=False):
        self.path, self.symbols = path, symbols
        try:
            data = read_all(path)
            with memory_bounded(available_at_most(MEMORY_LEAST + MEMORY_PER_BYTE * len(data))):
                self.root = parse(path, data)
        except MemoryError as error:
            raise Failure(3, f"{path} takes more memory than there is, or than a report of its size should") from error
        if not isinstance(self.root, dict) or "schema_version" not in self.root:
            raise Stranger(3, f"{path} is not a report of cachalot")
        version = self.root["schema_version"]
        if not isinstance(version, str):
            raise Failure(3, f"{path} is damaged: `schema_version` is {version!r:.40}")
        if not version.startswith("1."):
            raise Failure(3, f"{path} is a report of version {version[:20]}; this cachalot reads version 1")
        if self.root.get("kind") in OUTPUTS:
            raise Stranger(3, f"{path} is what `cachalot {self.root['kind']}` found, not a report")

    def get(self, *keys):
        """The value at that place, or None."""
        return get(self.root, *keys)

    def text(self, *keys):
        value = self.get(*keys)
        return "-" if value is None else printable(value)

    def number(self, *keys):
        return number(self.root, *keys)

    def program(self):
        """The name of the program. Older reports have only the executable's path."""
        name = self.get("process", "program")
        return printable(name) if isinstance(name, str) and name else os.path.basename(self.text("process", "exe")) or "-"

    def is_cut_off(self):
        """True if the program had no chance to free what it held: it was killed, left by _exit, or became another program."""
        return self.get("kind") == "harvest"

    def list(self, *keys):
        value = self.get(*keys)
        return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def identity(report):
    """What two reports of one process have in common; None if the report does not say."""
    keys = ("hostname", "pid_namespace", "pid", "start_ticks", "generation")
    parts = [report.get("process", key) for key in keys]
    start = report.get("time", "start")
    return None if None in parts or start is None else repr((*parts, start))


def finality(report):
    """Of two reports of a process the one with more of it counts: that of its end, else the last."""
    kind = report.get("kind")
    return kind in ENDS, kind == "exit", report.number("sequence") or 0


def last_of_each(reports):
    """One report of each process, in the order of their first ones."""
    last = {}
    for report in reports:
        key = identity(report) or f"file {report.path}"
        if key not in last or finality(report) > finality(last[key]):
            last[key] = report
    return list(last.values())


def get(value, *keys):
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def number(value, *keys):
    found = get(value, *keys)
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return found if is_number and abs(found) < 1e24 else None


def signal_text(report):
    """`signal 11 (SIGSEGV)` if a signal ended the process, else None."""
    number_of = report.number("exit", "signal")
    if report.text("exit", "reason") not in ("killed", "signal") or not number_of:
        return None
    names = {int(known): f" ({known.name})" for known in signal.Signals}
    return f"signal {report.text('exit', 'signal')}{names.get(number_of, '')}"


def end_text(report):
    """How the process ended: `exit`, `exit with code 3`, `signal 11 (SIGSEGV)`, `killed by signal 9 (SIGKILL)`."""
    reason, code, ended = report.text("exit", "reason"), report.number("exit", "code"), signal_text(report)
    if ended:
        return f"killed by {ended}" if reason == "killed" else ended
    return f"{reason} with code {code:.0f}" if code else reason
