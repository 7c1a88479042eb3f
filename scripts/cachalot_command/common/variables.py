"""The environment variables of the library: what each is for, and values that it would not take."""

import os
import signal

from cachalot_command.common.tools import Failure, tool

VARIABLES = {  # what the man page says of each; nothing of those that only tests set
    "CACHALOT_CONF": "options, key:value,... as PYTORCH_ALLOC_CONF has them",
    "CACHALOT_OUTPUT": "the report's name; default cachalot.%e.%p.json",
    "CACHALOT_SIGNAL": "the signal that asks for a report: USR1 (default), another, or none",
    "CACHALOT_PAGE_DIR": "where live pages lie; default /dev/shm/cachalot-UID",
    "CACHALOT_LOG": "stderr or a file: warnings as they happen",
    "CACHALOT_REDACT": "argv: leave the program's arguments out of its report",
    "CACHALOT_ONLY": "a pattern: act only in programs of such a name",
    "CACHALOT_DISABLE": "1: do nothing at all",
    "CACHALOT_TRACE": "a file for a recording of all allocations",
    "CACHALOT_EVENTS": "how many of the last events to keep",
    "CACHALOT_SITES": "1: remember where live memory was taken",
    "CACHALOT_CHART_JS": "Chart.js 3 or 4 for pages, where it is no package of the distribution",
    "CACHALOT_SESSION": "set by `cachalot run` for all processes of one run",
    "CACHALOT_LIBRARY": "the library that `cachalot run` preloads",
    **dict.fromkeys((f"CACHALOT_SIM_{name}" for name in ("DEVICES", "CAPACITY", "LATENCY_NS", "DRIVER", "FAIL", "CLOCK",
                                                         "DELAY", "EXPORTS", "PEERS", "SHARED")), ""),
}
COUNTS = {  # in the environment: the most that the library takes, and what they are
    "CACHALOT_EVENTS": (1 << 19, f"a number of events up to {1 << 19}"),
    "CACHALOT_SITES": (10**9 - 1, "1, or N for one request of N"),
}
SIGNALS = ("USR1", "USR2", "HUP", "PROF", "WINCH", "URG", "IO")


def check_counts():
    """Refuses in the environment what the library would only warn of, and then not record."""
    wrong = []
    for name, (most, what) in COUNTS.items():
        text = os.environ.get(name) or "0"
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= most):
            wrong.append(f"{name}={text}: give {what}")
    if wrong:
        raise Failure(125, "; ".join(wrong))


def report_signal():
    """The signal that asks for a report, or None: those that the library takes."""
    text = os.environ.get("CACHALOT_SIGNAL") or "USR1"
    name = text.upper().removeprefix("SIG")
    if name in ("NONE", "0"):
        return None
    if name in SIGNALS:
        return signal.Signals["SIG" + name]
    if name.isdecimal() and signal.SIGRTMIN <= int(name) <= signal.SIGRTMAX:
        return int(name)
    raise Failure(125, f"CACHALOT_SIGNAL={text}: give {', '.join(SIGNALS)}, a number from {signal.SIGRTMIN:d} to "
                       f"{signal.SIGRTMAX:d}, or none")


def check_conf(conf, where, code=125):
    """Refuses options that the library would only warn of."""
    checked = tool("conf", "--", conf)
    if checked.returncode:
        lines = checked.stderr.replace("cachalot-page: ", "").splitlines()
        raise Failure(code, f"{where}: {'; '.join(lines)}")
