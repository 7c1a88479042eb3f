"""`cachalot run --fail-alloc sweep`: one run for each allocation, with just that one refused."""

import concurrent.futures
import contextlib
import os
import signal
import tempfile

from cachalot_command.common.tools import Failure, say, show_progress
from cachalot_command.common.units import size_text
from cachalot_command.reading.report import get, number
from cachalot_command.reading.trials import deadline_after, most_of, run_once
from cachalot_command.writing.words import frames_of

JOBS_MOST, MOST, FRAMES = 64, 1000, 2
ROW = "{:>7}  {:<8} {:>11}  {:<22} {}"
SURVIVED, OTHER_CODE, CRASHED, HUNG, OTHER_OUTPUT, NOT_REACHED = (
    "survived", "other exit code", "crashed", "hung", "other output", "not reached")
OUTCOMES = (SURVIVED, OTHER_CODE, CRASHED, HUNG, OTHER_OUTPUT, NOT_REACHED)
BAD = (CRASHED, HUNG, OTHER_OUTPUT)


def whole(name, text, most):
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise Failure(2, f"--fail-alloc sweep: {name}={text}: give a whole number from 1 to {most}")
    return int(text)


def parse(words):
    """(number of runs at once, seconds or None, most runs, filters) of the words after `sweep`."""
    jobs, deadline, most, filters = min(4, os.cpu_count() or 1), None, MOST, []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name == "jobs":
            jobs = whole(name, value, JOBS_MOST)
        elif equals and name == "deadline":
            deadline = whole(name, value, 86400)
        elif equals and name == "most":
            most = whole(name, value, 10**6)
        elif word.startswith(("kind:", "site:")):
            filters.append(word)
        else:
            raise Failure(2, f"--fail-alloc sweep: `{word}` means nothing; known are jobs=N, deadline=SECONDS, most=N, kind:KIND, site:TEXT")
    return jobs, deadline, most, filters


def rule(n, filters):
    return f"fail_alloc:[{','.join([*filters, str(n)])}]"


def outcome_of(trial, first, compares):
    if trial.hung:
        return HUNG
    if trial.code != first.code:
        return CRASHED if trial.code < 0 else OTHER_CODE
    return OTHER_OUTPUT if compares and trial.output != first.output else SURVIVED


def end_text(trial, outcome):
    if outcome == CRASHED:
        with contextlib.suppress(ValueError):
            return f"{CRASHED}: {signal.Signals(-trial.code).name}"
    return f"exit code {trial.code}" if outcome == OTHER_CODE else outcome


def refused_of(reports, n):
    """(kind, bytes, call site) of the refused allocation; None if no report has it."""
    for report in reports:
        for event in report.list("oom_events"):
            if number(event, "refused") == n:
                site = " < ".join(frames_of(report, get(event, "site"))[:FRAMES]) or "-"
                return str(get(event, "kind"))[:8], number(event, "requested_bytes"), site
    return None


def judged(trial, n, first, compares):
    """(outcome, line of the table)."""
    refused = refused_of(trial.reports(), n)
    outcome = outcome_of(trial, first, compares)
    if not refused and outcome == SURVIVED:
        outcome = NOT_REACHED
    kind, asked, site = refused or ("-", None, "-")
    return outcome, ROW.format(n, kind, size_text(asked), end_text(trial, outcome), site)


def first_runs(program, filters, folder):
    """(a run in which nothing is refused, its number of allocations, whether such runs print the same)."""
    first, second = (run_once(*program, rule(0, filters), os.path.join(folder, name)) for name in ("first", "second"))
    reports = first.reports()
    if first.hung or second.hung:
        raise Failure(3, "the program runs for more than an hour: too long for a sweep")
    if not reports:
        raise Failure(3, "no process of the program initialised CUDA through the cache; `cachalot doctor PROGRAM` says why")
    if first.code != second.code:
        raise Failure(3, f"two runs without refusals end with exit codes {first.code} and {second.code}: nothing can be compared")
    return first, int(most_of(reports, "coverage", "counters", "fail_alloc_requests")), first.output == second.output


def runs_in_order(program, filters, folder, count, jobs, deadline):
    """(number of the refused allocation, the run), by number, several at once."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {n: pool.submit(run_once, *program, rule(n, filters), os.path.join(folder, str(n)), deadline)
                   for n in range(1, count + 1)}
        try:
            for n, run in waiting.items():
                show_progress(f"run {n} of {count}")
                yield n, run.result()
        finally:
            pool.shutdown(cancel_futures=True)


def print_rest(total, count, compares, first, found):
    if not compares:
        print("Its output differs from run to run, so it is not compared.")
    if count < total:
        print(f"The first {count} of {total} allocations were refused; most={total} refuses all.")
    kinds = [f"{found.count(outcome)} {outcome}" for outcome in OUTCOMES if outcome in found]
    print(f"{count} allocations refused, one in each run: {', '.join(kinds) or 'none'}. Without a refusal: exit code {first.code}.")


def sweep(path, words, environment, asked):
    """Refuses one allocation after the other. Returns 1 if a run crashed, hung, or ended well with another output."""
    jobs, deadline, most, filters = parse(asked)
    environment = {b"CACHALOT_SITES": b"1", **environment}
    program, found = (path, words, environment), []
    with tempfile.TemporaryDirectory(prefix="cachalot-sweep-") as folder:
        first, total, compares = first_runs(program, filters, folder)
        count = min(total, most)
        say(f"cachalot: {count} runs, {jobs} at once; the first one took {first.seconds:.1f} s")
        print(ROW.format("refused", "kind", "bytes", "the program", "call site"))
        for n, trial in runs_in_order(program, filters, folder, count, jobs, deadline or deadline_after(first)):
            outcome, line = judged(trial, n, first, compares)
            show_progress()
            print(line, flush=True)
            found.append(outcome)
        print_rest(total, count, compares, first, found)
    return 1 if any(outcome in BAD for outcome in found) else 0
