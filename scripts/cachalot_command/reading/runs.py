"""Which run a report is of. A folder may hold the reports of earlier runs, which say nothing about this one."""

import os
from datetime import datetime

from cachalot_command.common.limits import RUNS
from cachalot_command.common.units import counted
from cachalot_command.common.variables import SESSION_MOST, plain_session

OLD_S = 12 * 3600  # a folder whose newest report is older was not written by today's run
PAUSE_S = 60  # without a session, a longer pause between two processes ends a run
ONE, NEWEST, ALL = RUNS
OWN_BYTES = 9  # what `cachalot run` adds to a session that was given


def seconds(process, key):
    """A time of the report in seconds, or 0."""
    try:
        return datetime.strptime(process.report.text("time", key)[:19] + "+0000", "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return 0


def life_of(process):
    """(begin, end) of the process. The report of a killed process does not say when it ended."""
    begin = seconds(process, "start")
    return begin, begin + (process.report.number("time", "uptime_ns") or 0) / 1e9


def runs_of(processes):
    """Lists of the processes of one run, the newest run first. Processes without a session are of one run while they
    follow each other closely."""
    runs, end = {}, None
    for process in sorted(processes, key=life_of):
        session = process.report.get("process", "session")
        if session is None:
            begin, last = life_of(process)
            number = len(runs) if end is None or begin > end + PAUSE_S else number
            end = max(last, end or 0)
        key = number if session is None else process.report.text("process", "session").partition("/")[0]
        runs.setdefault(key, []).append(process)
    return sorted(runs.values(), key=lambda run: max(map(life_of, run)), reverse=True)


def is_within(process, session):
    """True for a process of the session, or of a run within it."""
    own = plain_session(process.report.text("process", "session").encode())
    return own == session or own.startswith((session + "/", session[:SESSION_MOST - OWN_BYTES] + "/"))


def age_problem(processes, now):
    """What to say of a folder in which no report is of today's run, or None."""
    age = now - max((seconds(process, "written") for process in processes), default=now)
    return None if age <= OLD_S else f"the newest report was written {age / 3600:.0f} hours ago, so this run has left none: " \
                                     "--runs newest judges it all the same"


def choose(processes, which, environment=os.environb):
    """(the processes to judge, problem or None). ONE: those of the environment's session; without one all must be of one
    run."""
    session = plain_session(environment.get(b"CACHALOT_SESSION", b"")) if which == ONE else ""
    if session:
        chosen = [process for process in processes if is_within(process, session)]
        return chosen, None if chosen or not processes else \
            f"none of {counted(len(processes), 'report')} is of this run (CACHALOT_SESSION={session}); --runs newest judges the newest"
    runs = runs_of(processes) if which != ALL else [processes]
    if which == ONE and len(runs) > 1:
        newest = runs[0]
        return processes, f"the reports are of {len(runs)} runs, {counted(len(newest), 'report')} of the newest " \
            f"({newest[0].name()}, {newest[0].report.text('time', 'start')[:19]}): --runs newest judges that run, --runs all takes " \
            "them for one; or give each run a folder of its own"
    return runs[0] if runs else [], None
