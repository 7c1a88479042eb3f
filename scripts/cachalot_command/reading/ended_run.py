"""What a run leaves when it has ended: reports, and pages of processes that were killed."""

import contextlib
import glob
import os

from cachalot_command.common.pattern import DEFAULT_OUTPUT, SEQUENCE
from cachalot_command.common.tools import Failure, open_at_once, page_directory
from cachalot_command.common.variables import is_disabled, misspelt
from cachalot_command.reading.pages import harvest_page, list_pages
from cachalot_command.reading.report import Report

BEGIN_MOST = 1 << 16  # first bytes of a report, which contain its session
NAMES_MOST = 8


def is_of_run(session, run):
    """True for the session of the run itself, and for that of a run within it, which adds a slash and more."""
    return session == run or session.startswith(run + "/")


def generation(page):
    """How often the page's process had called exec. Pages are named PID.START.GENERATION.page."""
    digits = os.path.basename(page.path).split(".")[2:3]
    return int(digits[0]) if digits and digits[0].isdecimal() else 0


def end_of(page, child, pages):
    """Options that tell `cachalot-page report` how the child ended. Empty for other processes, and for pages from before an
    exec."""
    if page.pid != child.pid or any(other.pid == page.pid and generation(other) > generation(page) for other in pages):
        return []
    if child.returncode >= 0:
        return ["--code", str(child.returncode)]
    reason = "killed" if child.returncode == -9 else "signal"
    return ["--reason", reason, "--signal", str(-child.returncode)]


def folder_of_reports(environment):
    """The folder that the run's own pattern names, as far as it is the same for all processes; its reports may go below it."""
    pattern = os.path.abspath(os.fsdecode(environment.get(b"CACHALOT_OUTPUT", b"")) or DEFAULT_OUTPUT)
    return os.path.dirname(pattern.replace("%%", "\0").partition("%")[0].replace("\0", "%"))


def harvest(child, pages, folder):
    """(reports of the run's dead processes that wrote none, problems). Live processes are left alone."""
    paths, problems = [], []
    for page in pages:
        if page.life == "elsewhere":
            problems.append(f"process {page.pid} of this run is in another pid namespace: from here nobody can tell whether it still runs; "
                            "`cachalot harvest` there makes its report")
        elif page.life != "dead":
            problems.append(f"process {page.pid} of this run still runs")
        else:
            try:
                paths.append(harvest_page(page, "--below", folder, *end_of(page, child, pages))[0])
            except Failure as failure:
                problems.append(str(failure))
    return [path for path in paths if path], problems


def name_if_of_run(pid, session):
    """The name of a process of the run; None for another process, or one that this user may not inspect."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:
        if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return None  # its page has another pid
        sessions = [os.fsdecode(entry[17:]) for entry in environ.read().split(b"\0") if entry.startswith(b"CACHALOT_SESSION=")]
        if any(is_of_run(given, session) for given in sessions):
            with open(f"/proc/{pid}/comm", "rb") as comm:
                return os.fsdecode(comm.read().strip())
    return None


def is_served(pid):
    """True if the process uses the cache: the library's service thread runs in it. Its page may be another user's, or nameless."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/comm", "rb") as comm:
                if comm.read() == b"cachalot\n":
                    return True
    return False


def note_on(named, what):
    if not named:
        return []
    more = ", …" * (len(named) > NAMES_MOST)
    said = "1 process of this run still runs" if len(named) == 1 else f"{len(named)} processes of this run still run"
    return [f"note: {said}, {what}: {', '.join(named[:NAMES_MOST])}{more}"]


def without_cuda(session, known):
    """Notes on processes of the run that still run and have neither page nor report here: they have not used CUDA so far, or
    keep their page where it cannot be read."""
    if os.environ.get("CACHALOT_SESSION") == session:  # the session is not of this run alone: the parent has it, too
        return []
    with contextlib.suppress(OSError):
        own = [entry.name for entry in os.scandir("/proc") if entry.name.isdecimal() and int(entry.name) not in known]
        named = {f"{name} ({pid})": is_served(pid) for pid in own if (name := name_if_of_run(pid, session)) is not None}
        return (note_on([name for name, served in named.items() if not served], "of which no CUDA has been seen so far") +
                note_on([name for name, served in named.items() if served],
                        "with a page that cannot be read here (of another user, or without a name); a report follows at the end"))
    return []


def written_reports(pattern):
    """Files that processes of the run may have written."""
    wanted = SEQUENCE.sub("*", glob.escape(pattern))
    stem = wanted[:-5] if wanted.endswith(".json") else wanted
    return glob.glob(stem + "*")


def names(path, session):
    """True if the first bytes of the report hold the session. A folder may have thousands of other reports, which need not
    be read."""
    with open_at_once(path) as file:
        return session.encode() in file.read(BEGIN_MOST)


def reports_of(session, paths):
    """The reports of the session among the files, each once."""
    reports = []
    for path in sorted(set(map(os.path.abspath, paths))):
        with contextlib.suppress(OSError, Failure):  # a file of another run
            if os.path.isfile(path) and names(path, session):
                report = Report(path)
                if is_of_run(report.text("process", "session"), session):
                    reports.append(report)
    return reports


def reports_of_run(environment=os.environb, paths=()):
    """The reports of the run that `environment` names: among `paths`, by its pattern, and by the name that the library
    falls back to."""
    pattern = os.fsdecode(environment.get(b"CACHALOT_OUTPUT", b"")) or DEFAULT_OUTPUT
    return reports_of(os.fsdecode(environment[b"CACHALOT_SESSION"]), [*paths, *written_reports(pattern), *written_reports(DEFAULT_OUTPUT)])


def is_own(directory):
    """True if the library would put a page there: the same check."""
    status = os.lstat(directory)
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def missing_report(environment, problems):
    """The reason why there is no report, unless it was given already."""
    pages = os.fsdecode(environment.get(b"CACHALOT_PAGE_DIR", b"")) or page_directory()
    if problems:
        return []
    if environment.get(b"CACHALOT_OUTPUT") == os.fsencode(os.devnull):
        return ["no report: CACHALOT_OUTPUT is /dev/null"]
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    if is_disabled(given.get("CACHALOT_DISABLE", "")):
        return ["no report: CACHALOT_DISABLE is set, so the library did nothing; unset it"]
    said = "no report: no process of this run initialised CUDA through the cache (`cachalot doctor PROGRAM` says whether one can)"
    if os.path.isdir(pages) and not is_own(pages):
        said += f", or it could write none where it ran, and keep no page: {pages} is open to others, or not this user's"
    else:
        said += ", or one that did was killed where it could keep no page (a sandbox), or as another user (`cachalot harvest` as that one)"
    if given.get("CACHALOT_ONLY"):
        said += f"; CACHALOT_ONLY={given['CACHALOT_ONLY']} leaves programs of other names alone"
    return ["; ".join([said, *misspelt(given)])]


def collect(child, environment):
    """(reports of an ended run with those of killed processes, problems, notes)."""
    session = os.fsdecode(environment[b"CACHALOT_SESSION"])
    try:
        pages, problems = [page for page in list_pages() if is_of_run(page.session, session)], []
    except Failure as failure:
        pages, problems = [], [str(failure)]
    harvested, unharvested = harvest(child, pages, folder_of_reports(environment))
    reports = reports_of_run(environment, harvested)
    problems += unharvested
    if not reports:
        problems += missing_report(environment, problems)
    known = {page.pid for page in pages} | {report.number("process", "pid") for report in reports}
    return reports, problems, without_cuda(session, known)
