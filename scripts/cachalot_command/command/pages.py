"""cachalot dump, empty-cache, sleep, wake and harvest: requests to live pages, and reports of dead ones."""

import os
import sys

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, printable, say, tool
from cachalot_command.reading.pages import harvest_page, list_pages, named_directory, say_path
from cachalot_command.reading.report import Report
from cachalot_command.writing.words import coverage_advice

DUMP_HELP = """\
usage: cachalot dump PID|--all [--segments] [--timeout SECONDS]

Asks a running program for a report, without a signal, and prints its path.
  --all       every running program of this user that uses the cache
  --segments  list every segment and block in the report
  --timeout   how long to wait for an answer (10)

Exit code: 0, 1 no answer or no report, 2 usage, 3 no such program.
example: cachalot dump 4711 && cachalot show cachalot.train.py.4711.1.json
"""

EMPTY_HELP = """\
usage: cachalot empty-cache PID|--all [--timeout SECONDS]

Has a running program give all reusable memory back to the driver, as
torch.cuda.empty_cache() does, and says how much that was.
  --all       every running program of this user that uses the cache
  --timeout   how long to wait for an answer (10)

Exit code: 0, 1 no answer, 2 usage, 3 no such program.
example: cachalot empty-cache 4711
"""

SLEEP_HELP = """\
usage: cachalot sleep PID|--all [--partial] [--hold] [--timeout SECONDS]

Moves the live bytes of a running program to host memory and gives its device
memory back. The program wakes when it next needs device memory: that call
waits. Addresses and contents stay. A program that cannot sleep says why, and
nothing of it has changed.
  --all      every running program of this user that uses the cache
  --partial  memory in ordinary segments stays on the device
  --hold     only `cachalot wake` wakes it
  --timeout  how long to wait for an answer (60)

Exit code: 0, 1 no answer or not asleep, 2 usage, 3 no such program.
example: cachalot sleep 4711
"""

WAKE_HELP = """\
usage: cachalot wake PID|--all [--timeout SECONDS]

Moves the bytes of a sleeping program back to the device, at the same addresses.
  --all      every running program of this user that uses the cache
  --timeout  how long to wait for an answer (60)

Exit code: 0, 1 no answer or still asleep, 2 usage, 3 no such program.
example: cachalot wake 4711
"""

HARVEST_HELP = """\
usage: cachalot harvest [DIRECTORY] [--output FILE]

Makes reports of programs that were killed before they could write one. Says
each path before it writes, and prints those that it wrote.
  DIRECTORY  where the pages are (CACHALOT_PAGE_DIR, else /dev/shm/cachalot-UID)
  --output   the path; .PID is added to several. Else where the program was to
             write, if that is below the current directory, or else in it

Exit code: 0 all written (or nothing to do), 1 a report could not be written,
2 usage, 3 no such directory, pages that are damaged or another user's.
example: cachalot harvest --output killed.json
"""


def pages_of(command, words, options):
    """The live pages that PID or --all means."""
    if ("--all" in options) == bool(words) or len(words) > 1:
        raise Failure(2, f"give one PID or --all; see `cachalot {command} --help`")
    pages = [page for page in list_pages(named_directory([])) if page.life == "alive"]
    if not words:
        return pages
    if not words[0].isdecimal():
        raise Failure(2, f"`{words[0]}` is not a process id")
    pages = [page for page in pages if page.pid == int(words[0])]
    if not pages:
        raise Failure(3, f"process {words[0]} is not a running program of this user that uses the "
                         "cache; was it started with `cachalot run`, and has it used CUDA yet?")
    return pages


def say_what_is_left_out(path):
    """Says what to do if not everything came through the cache."""
    try:
        advice = coverage_advice(Report(path))
    except Failure:
        return  # a file of another container cannot be read here
    for line in advice:
        print(f"cachalot: {printable(path)}: {line}", file=sys.stderr)


def ask(command, action, arguments, flags):
    """Sends a request to each page and prints the answers."""
    words, options = split(command, arguments, ("--all", *flags), ("--timeout",))
    pages = pages_of(command, words, options)
    if not pages:
        print("cachalot: no running program of this user uses the cache", file=sys.stderr)
        return 3
    more = ["--blocks"] if "--segments" in options else []
    if "--timeout" in options:
        more.append(f"--timeout={options['--timeout']}")
    code = 0
    for page in pages:
        answer = tool("request", page.path, action, *more)
        if answer.returncode == 2:
            raise Failure(2, f"--timeout={options.get('--timeout')} is not a number of seconds")
        who = "" if action == "report" else f"{os.path.basename(page.program)} ({page.pid}): "
        print(f"{who}{printable(answer.stdout.strip())}" if answer.stdout else "", end="\n" if answer.stdout else "", flush=True)
        sys.stderr.write(answer.stderr.replace("cachalot-page:", "cachalot:"))
        if action == "report" and answer.stdout:
            say_what_is_left_out(answer.stdout.rstrip("\n"))
        code = max(code, answer.returncode)
    return code


def dump(arguments):
    """cachalot dump."""
    return ask("dump", "report", arguments, ("--segments",))


def empty_cache(arguments):
    """cachalot empty-cache."""
    return ask("empty-cache", "empty-cache", arguments, ())


def with_patience(arguments):
    """Memory moves for seconds."""
    given = any(word == "--timeout" or word.startswith("--timeout=") for word in arguments)
    return arguments if given else [*arguments, "--timeout=60"]


def sleep(arguments):
    """cachalot sleep."""
    action = "sleep" + "".join(f"-{name}" for name in ("partial", "hold") if f"--{name}" in arguments)
    return ask("sleep", action, with_patience(arguments), ("--partial", "--hold"))


def wake(arguments):
    """cachalot wake."""
    return ask("wake", "wake", with_patience(arguments), ())


def with_pid(path, pid):
    stem, dot = (path[:-5], ".json") if path.endswith(".json") else (path, "")
    return f"{stem}.{pid}{dot}"


def harvest_all(pages, output):
    """(paths of the reports made, worst exit code). Says what became of each page that has no path."""
    dead = [page for page in pages if page.life == "dead"]
    unreported = [page for page in dead if page.state not in ("reported", "making")]
    paths, code = [], 0
    for page in dead:
        options = []
        if output:
            options = ["--output", with_pid(output, page.pid) if len(unreported) > 1 else output]
        try:
            path, missing = harvest_page(page, *options, hear=say_path)
            paths.append(path)
            code = code or int(missing)
            if not path:
                say(f"cachalot: {os.path.basename(page.program)} ({page.pid}): its page is removed, "
                    f"{'it had allocated nothing' if page.state == 'making' else 'its report is there'}")
        except Failure as failure:
            print(f"cachalot: {failure}", file=sys.stderr)
            code = 1
    return [path for path in paths if path and path != os.devnull], code


def harvest(arguments):
    """cachalot harvest."""
    words, options = split("harvest", arguments, (), ("--output",))
    if len(words) > 1:
        raise Failure(2, "give one directory; see `cachalot harvest --help`")
    if options.get("--output") == "":
        raise Failure(2, "--output needs a file name")
    pages = list_pages(named_directory(words))
    paths, code = harvest_all(pages, options.get("--output"))
    for path in paths:
        print(printable(path))
    if not any(page.life == "dead" for page in pages):
        say("cachalot: nothing to do: no program of this user was killed and left a page")
    elsewhere = sum(page.life == "elsewhere" for page in pages)
    if elsewhere:
        print(f"cachalot: {elsewhere} of other containers: nobody here can tell whether they run; `cachalot harvest` there",
              file=sys.stderr)
    foreign = sum(page.life == "foreign" for page in pages)
    if foreign:
        print(f"cachalot: {foreign} of another user, not read: `cachalot harvest` as that user", file=sys.stderr)
        code = code or 3
    for page in pages:
        if page.life == "bad":
            print(f"cachalot: {printable(page.path)}: {page.program}; remove it by hand",
                  file=sys.stderr)
            code = code or 3
    return code
