"""The environment variables: what each is for, and checks of values that the library would not take."""

import os
import re
import signal

from cachalot_command.common.tools import Failure, meant, tool

VARIABLES = {  # texts of the reference page; those of the simulated device have none
    "CACHALOT_CONF": "Options, KEY:VALUE,KEY:VALUE as PYTORCH_ALLOC_CONF has them (`cachalot help conf`).",
    "CACHALOT_OUTPUT": "The report's name (default cachalot.%e.%p.json): %e program, %p pid, %h host, %r rank, %t start, %n number, "
                       "%q{VAR} a variable, %% a percent sign. /dev/null: no report.",
    "CACHALOT_SIGNAL": "The signal that asks for a report: USR1 (default), USR2, HUP, PROF, WINCH, URG, IO, the number of a real-time "
                       "signal, or none.",
    "CACHALOT_PAGE_DIR": "The directory of live pages, best on tmpfs (default /dev/shm/cachalot-UID).",
    "CACHALOT_LOG": "stderr or a file: warnings are written there as they happen.",
    "CACHALOT_GROUP": "The name of the processes that share the option group_limit_mb (default: the Slurm job, else the cgroup).",
    "CACHALOT_REDACT": "argv: the report leaves out the program's arguments.",
    "CACHALOT_ONLY": "A pattern as of a shell (* ? []): the library acts only in programs whose name matches.",
    "CACHALOT_DISABLE": "Any value but 0: the library does nothing at all.",
    "CACHALOT_TRACE": "A file for a recording of all allocations, with patterns as in CACHALOT_OUTPUT. `cachalot replay` and `tune` "
                      "read it. 48 bytes an event.",
    "CACHALOT_EVENTS": "N: reports list the last N events (up to 524288), and segments with their blocks. 48 bytes an event.",
    "CACHALOT_SITES": "1: leaks and blocks name the lines of the program that asked for them. N: one request of N is looked at. 0: none, not even a sample.",
    "CACHALOT_SESSION": "The same for all processes of one run. `cachalot run` sets it, or adds to it. Where it is set, `check` judges its reports only.",
    "CACHALOT_CHART_JS": "The file of Chart.js 3 or 4, for pages, where no package of the distribution has it.",
    "CACHALOT_LIBRARY": "The library that `cachalot run` preloads (default: the one beside the command).",
    **dict.fromkeys((f"CACHALOT_SIM_{name}" for name in ("DEVICES", "CAPACITY", "LATENCY_NS", "DRIVER", "FAIL", "CLOCK",
                                                         "DELAY", "EXPORTS", "PEERS", "SHARED")), ""),
}
COUNTS = {  # name: (largest value that the library takes, what to give)
    "CACHALOT_EVENTS": (1 << 19, f"a number of events up to {1 << 19}"),
    "CACHALOT_SITES": (10**9 - 1, "1, or N for one request of N"),
}
SESSION_MOST = 63  # bytes that a page holds
SIGNALS = ("USR1", "USR2", "HUP", "PROF", "WINCH", "URG", "IO")


def plain_session(session):
    """A session in characters that are the same in the environment, a page, a report and here."""
    return re.sub(rb"[^A-Za-z0-9_.:/@+-]", b"_", session[:SESSION_MOST]).decode()


def check_counts():
    """Refuses numbers of which the library would only warn, and then record nothing."""
    wrong = []
    for name, (most, what) in COUNTS.items():
        text = os.environ.get(name) or "0"
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= most):
            wrong.append(f"{name}={text}: give {what}")
    if wrong:
        raise Failure(125, "; ".join(wrong))


def misspelt(names):
    """A text for each of the names of variables that begins like ours and means nothing."""
    import difflib  # slow to load, and rarely needed

    wrong = sorted(name for name in names if name.startswith("CACHALOT_") and name not in VARIABLES)
    near = {name: difflib.get_close_matches(name, list(VARIABLES), 1) for name in wrong}
    return [f"{name} means nothing{f'; {near[name][0]}?' if near[name] else ''}" for name in wrong]


def is_disabled(value):
    """As the library reads CACHALOT_DISABLE."""
    return value not in ("", "0")


def report_signal():
    """The number of the signal that asks for a report, or None. Only signals that the library takes are allowed."""
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


def plain_conf(conf):
    """The options as the library reads them: key=value is taken for key:value."""
    return re.sub(r"(^|,)(\s*\w+\s*)=", r"\1\2:", conf)


PYTORCH_VARIABLES = (b"PYTORCH_CUDA_ALLOC_CONF", b"PYTORCH_HIP_ALLOC_CONF", b"PYTORCH_ALLOC_CONF")  # first set one, as the library
PYTORCH_KEYS = ("max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions", "garbage_collection_threshold")


def conf_with(environment, more):
    """The options that `environment` sets, with more of them: PyTorch's variables count only where ours is not set."""
    if b"CACHALOT_CONF" in environment:
        given = os.fsdecode(environment[b"CACHALOT_CONF"])
    else:
        theirs = next((os.fsdecode(environment[name]) for name in PYTORCH_VARIABLES if name in environment), "")
        items = re.findall(r"(?:\[[^\]]*\]|[^,\[])+", theirs)
        given = ",".join(item for item in items if item.split(":")[0].strip() in PYTORCH_KEYS)
    return ",".join(filter(None, [given, more]))


def check_conf(conf, where, code=125):
    """Refuses options of which the library would only warn."""
    checked = tool("conf", "--", conf)
    if checked.returncode:
        said, *names = checked.stderr.replace("cachalot-page: ", "").splitlines()
        known = names[-1].removeprefix("the options are ").split(", ") if names else []
        keys = [key for key in re.findall(r"(?:^|,)\s*(\w+)", conf) if key not in known]
        raise Failure(code, "; ".join([f"{where}: {said}", *names]) + next(filter(None, (meant(key, known) for key in keys)), ""))
