"""The table that `cachalot run --summary` prints when the program has ended."""

import glob
import os
import sys

from cachalot_pages import harvest_page
from cachalot_pattern import DEFAULT_OUTPUT, SEQUENCE
from cachalot_report import Report, bytes_text
from cachalot_tools import Failure, list_pages, page_directory, printable
from cachalot_words import doubts, end_text, oom_lines, signal_text

CLOCKS_APART = 3600  # seconds by which a file server's clock may differ from ours
ROW = "{}{:>9}  {:<20}  {:>11}  {:>11}  {:>6}  {:>10}  {}"


def is_of_run(session, run):
    """A run within a run has its session, and more behind a slash."""
    return session == run or session.startswith(run + "/")


def generation(page):
    """How often its process had called exec: PID.START.GENERATION.page."""
    digits = os.path.basename(page.path).split(".")[2:3]
    return int(digits[0]) if digits and digits[0].isdecimal() else 0


def end_of(page, child, pages):
    """Options that tell `cachalot-page report` what we saw of a process's end: not of one that went on by exec."""
    if page.pid != child.pid or any(other.pid == page.pid and generation(other) > generation(page) for other in pages):
        return []
    if child.returncode >= 0:
        return ["--code", str(child.returncode)]
    reason = "killed" if child.returncode == -9 else "signal"
    return ["--reason", reason, "--signal", str(-child.returncode)]


def harvest_session(child, session):
    """Reports of the run's processes that could not write one, and what was in the way of others.
    Live processes are left alone."""
    paths, problems = [], []
    try:
        pages = [page for page in list_pages() if is_of_run(page.session, session)]
    except Failure as failure:
        return [], [str(failure)]
    for page in pages:
        if page.life != "dead":
            problems.append(f"process {page.pid} of this run still runs")
            continue
        try:
            paths.append(harvest_page(page, *end_of(page, child, pages)))
        except Failure as failure:
            problems.append(str(failure))
    return [path for path in paths if path], problems


def written_reports(pattern):
    """Files that the processes of the run may have written."""
    wanted = SEQUENCE.sub("*", glob.escape(pattern))
    stem = wanted[:-5] if wanted.endswith(".json") else wanted
    return glob.glob(stem + "*")


def reports_of(session, paths, started):
    """The session's reports, each once."""
    reports = []
    for path in sorted(set(map(os.path.abspath, paths))):
        try:
            if os.path.isfile(path) and os.path.getmtime(path) >= started - CLOCKS_APART:
                report = Report(path)
                if is_of_run(report.text("process", "session"), session):
                    reports.append(report)
        except (OSError, Failure):
            continue  # someone else's file
    return reports


def reports_of_run(started, environment=os.environb, paths=()):
    """The reports of the run that `environment` names, and what of `paths` belongs to it."""
    session = os.fsdecode(environment[b"CACHALOT_SESSION"])
    pattern = os.fsdecode(environment.get(b"CACHALOT_OUTPUT", b"")) or DEFAULT_OUTPUT
    return reports_of(session, [*paths, *written_reports(pattern)], started)


def remarks(report):
    """What is to be said of a process beside its figures."""
    yield from doubts(report)
    if signal_text(report):
        yield f"{end_text(report)}; what it held then counts as leaked"
    events = report.list("oom_events")
    if events:
        yield f"out of memory: {'. '.join(oom_lines(events[-1]))}"


def rank_column(value):
    return f"{printable(value)[:6]:>6}  "


def row(report, has_ranks):
    ratio = report.number("totals", "hit_ratio")
    return ROW.format(
        rank_column(report.text("process", "rank")) if has_ranks else "",
        report.text("process", "pid"),
        os.path.basename(report.text("process", "exe"))[:20],
        bytes_text(report.number("totals", "peak_allocated_bytes")),
        bytes_text(report.number("totals", "peak_reserved_bytes")),
        f"{100 * ratio:.1f}%" if ratio is not None else "-",
        bytes_text(report.number("totals", "leaked_bytes")),
        printable(os.path.relpath(report.path)))


def is_own(directory):
    """As the library checks it, before it puts a page there."""
    status = os.lstat(directory)
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def missing_report(environment, problems):
    """Why there is no report, where that is not said already."""
    pages = os.fsdecode(environment.get(b"CACHALOT_PAGE_DIR", b"")) or page_directory()
    if problems:
        return []
    if environment.get(b"CACHALOT_OUTPUT") == os.fsencode(os.devnull):
        return ["no report: CACHALOT_OUTPUT is /dev/null"]
    said = "no report: no process of this run initialised CUDA through the cache (`cachalot doctor PROGRAM` says whether one can)"
    if os.path.isdir(pages) and not is_own(pages):
        said += f", or it could write none where it ran, and keep no page: {pages} is open to others, or not this user's"
    return [said]


def collect(child, environment, started):
    """The reports of an ended run, those of killed processes too, and what is missing."""
    session = os.fsdecode(environment[b"CACHALOT_SESSION"])
    harvested, problems = harvest_session(child, session)
    reports = reports_of_run(started, environment, harvested)
    if not reports:
        problems += missing_report(environment, problems)
    return reports, problems


def print_summary(reports):
    """A line for every report of the run."""
    if not reports:
        return
    has_ranks = any(report.get("process", "rank") is not None for report in reports)
    print(ROW.format(rank_column("rank") if has_ranks else "", "pid", "program", "peak alloc", "peak reserv", "hits",
                     "leaked", "report"), file=sys.stderr)
    for report in sorted(reports, key=lambda r: (r.number("process", "rank") is None, r.number("process", "rank") or 0)):
        print(row(report, has_ranks), file=sys.stderr)
    for report in reports:
        for remark in remarks(report):
            print(f"cachalot: process {report.text('process', 'pid')}: {remark}", file=sys.stderr)
