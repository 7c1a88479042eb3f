"""cachalot run: starts a program with the library in LD_PRELOAD."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time

from cachalot_command.common.pattern import CONTROL, DEFAULT_OUTPUT, Places, check_patterns
from cachalot_command.common.program import by_shell, check_library, check_program, find_program, preload, preloadable
from cachalot_command.common.tools import INHERITED_SIGCHLD, Failure, find_library, meant, printable, say
from cachalot_command.common.variables import SESSION_MOST, check_conf, check_counts, conf_with, plain_conf, plain_session, report_signal
from cachalot_command.writing.output import refuse

HELP = """\
usage: cachalot run [OPTIONS] [--] PROGRAM ARG…

Runs PROGRAM with the cache in front of cudaMalloc and cudaFree; nothing else of
it changes. Its children have the cache too, and reports of their own.
  --output FILE   where a report goes (CACHALOT_OUTPUT; cachalot.%e.%p.json):
                  %e program, %p pid, %h host, %r rank, %t start, %n number,
                  %q{VAR}, %%
  --conf OPTIONS  key:value,… or key=value,… (CACHALOT_CONF)
  --trace FILE    records all its allocations for `cachalot replay` and `tune`
                  (CACHALOT_TRACE; the same patterns; if taken, FILE.PID)
  --summary       at the end, a table of all its processes on stderr
  --check GATES   then hold their reports against gates (`cachalot check`):
                  max-leaked=0,max-oom=0,format=junit,output=gate.xml
                  given more than once, all apply
                  (a child that has another CACHALOT_OUTPUT is not judged)
  --html FILE     and make a page of what happened (`cachalot export`; of more
                  processes FILE.PID), with the last CACHALOT_EVENTS (100000)
  --fail-alloc RULE, --fit SIZE, --uninitialised
                  find faults of PROGRAM (`cachalot help faults`)

Exit code: PROGRAM's (or it dies by PROGRAM's signal); 2 usage, 125 cachalot
failed, 126 PROGRAM is not executable, 127 not found. With --check, where it is
0: 1 a gate failed, 3 there is no report, or not of all processes.
example: cachalot run --check max-leaked=0,max-oom=0 python3 test.py
"""

NOT_FORWARDED = {getattr(signal, "SIG" + name) for name in (  # signals of this process itself, or of its terminal
    "KILL", "STOP", "TSTP", "TTIN", "TTOU", "SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS", "PIPE", "XCPU", "XFSZ", "CHLD")}
VALUES = ("--output", "--conf", "--check", "--trace", "--html", "--fail-alloc", "--fit")
TIMERS = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}  # exec keeps timers, a child does not inherit them
CLOSED = {signal.SIGHUP, signal.SIGCONT}  # a closed terminal sends these to the session leader only
EVENTS_FOR_PAGE = "100000"


def keep(options, name, value):
    """Keeps an option. Gates add up; of several outputs the last counts, so that a wrapper can give one. Any other option
    given twice is refused, since one value would be lost."""
    if not value and name != "--conf":  # no options are the defaults
        raise Failure(2, f"{name} needs a value, and what it was given is empty")
    if name in options and name not in ("--check", "--output"):
        raise Failure(2, f"{name} is given twice")
    options[name] = [*options.get(name, ()), value] if name == "--check" else value


def parse(arguments):
    """(options, program and its arguments). Options end at the first word that is none."""
    options = {}
    while arguments and arguments[0].startswith("-"):
        name, equals, value = arguments[0].partition("=")
        arguments = arguments[1:]
        if name == "--" and not equals:
            break
        if name in VALUES:
            if not equals and not arguments:
                raise Failure(2, f"{name} needs a value; see `cachalot run --help`")
            keep(options, name, value if equals else arguments[0])
            arguments = arguments if equals else arguments[1:]
        elif name in ("--summary", "--uninitialised", "--help", "-h"):
            if equals:
                raise Failure(2, f"{name} takes no value")
            options["--help" if name == "-h" else name] = True
        else:
            raise Failure(2, f"unknown option {name}; see `cachalot run --help`{meant(name, (*VALUES, '--summary', '--uninitialised', '--help'))}")
    return options, arguments


def original_environment():
    """The environment that this process was started with. Python itself may have added LC_CTYPE."""
    environment = dict(os.environb)
    try:
        with open("/proc/self/environ", "rb") as file:
            first = {entry.split(b"=")[0] for entry in file.read().split(b"\0")}
    except OSError:
        return environment
    if b"LC_CTYPE" not in first:
        environment.pop(b"LC_CTYPE", None)
    return environment


def pid_namespace():
    """The inode of the PID namespace, 0 if unknown. It belongs to the pid in a session: the library asks whether that process has ended."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def session_within(existing):
    """A session for this run, which extends that of an outer run: gates judge what this run started."""
    if not existing:
        return f"{os.getpid()}-{pid_namespace()}-{int(time.time())}-{os.urandom(8).hex()}"
    own = "/" + os.urandom(4).hex()
    if not re.search("/[0-9a-f]{8}$", existing):  # a session that no `run` has extended
        existing = existing[:SESSION_MOST - len(own)]
    return existing + own if len(existing + own) <= SESSION_MOST else existing


def waits(options):
    """True if there is something to do when the program has ended."""
    return bool({"--summary", "--check", "--html", "--fit"} & options.keys()) or sweeps(options)


def sweeps(options):
    """True if the program is to run again and again: with one allocation after the other refused, or on other devices."""
    return bool(again(options))


def again(options):
    """The option that has the program run again and again, with what belongs to it; or None."""
    if "--uninitialised" in options:
        return "--uninitialised"
    if options.get("--fail-alloc", "").split(",")[0] == "sweep":
        return "--fail-alloc sweep"
    return "--fit search" if options.get("--fit") == "search" else None


def run_again(options, path, words, environment):
    """Runs the program again and again, as the options say."""
    if "--uninitialised" in options:
        from cachalot_command.writing.uninitialised import uninitialised
        return uninitialised(path, words, environment)
    if options.get("--fit") == "search":
        return fit_module().search(path, words, environment)
    from cachalot_command.writing.sweep import sweep
    return sweep(path, words, environment, options["--fail-alloc"].split(",")[1:])


def check_sweep(options):
    """Refuses what each of several runs would do once more."""
    main_option = again(options)
    alone = sorted({"--output", "--trace", "--summary", "--check", "--html", "--fit", "--fail-alloc"} & options.keys() - {main_option.split()[0]})
    if alone:
        raise Failure(2, f"{alone[0]} and {main_option} do not go together: the runs' reports are read here")


def end_modules():
    """The modules for the end of a run. Other runs do not load them, so that programs start at once."""
    from cachalot_command.reading import ended_run
    from cachalot_command.writing import summary, verdict
    return ended_run, summary, verdict


def page_module():
    """The module that makes pages."""
    from cachalot_command.writing import html
    return html


def fit_module():
    """The module that judges whether a program fits."""
    from cachalot_command.writing import fit
    return fit


LONG = 3800  # bytes of a path (limit 4095); expanding a pattern needs the rest


def from_here(pattern):
    """The pattern as an absolute path, which means the same in each working directory; unchanged if that is not possible."""
    try:
        here = os.getcwd()
    except OSError:  # the folder was removed
        return pattern
    path = os.path.join(here.replace("%", "%%"), pattern)
    return pattern if CONTROL.search(here) or len(os.fsencode(path)) > LONG else path


def places(environment):
    """Paths of report and pages that mean the same in each working directory of the run's processes."""
    output, pages = (os.fsdecode(environment.get(name, b"")) for name in (b"CACHALOT_OUTPUT", b"CACHALOT_PAGE_DIR"))
    found = {}
    with contextlib.suppress(OSError):  # the folder was removed
        here = os.getcwd()
        if not CONTROL.search(here):  # the library accepts control characters in its directory, but not in a pattern
            found["CACHALOT_OUTPUT"] = os.path.join(here.replace("%", "%%"), output or DEFAULT_OUTPUT)
        elif not os.path.isabs(output):
            print("cachalot: this directory's name has a control character: reports of children that stand in another are not found; "
                  "give all of them a place with --output", file=sys.stderr)
        if pages:
            found["CACHALOT_PAGE_DIR"] = os.path.abspath(pages)
    return found


def environment_for(options, library, program):
    """The environment of the program."""
    environment = original_environment()
    existing = environment.get(b"LD_PRELOAD", b"").decode("utf-8", "surrogateescape")
    ours = {"LD_PRELOAD": preload(library, existing, program)}
    if "--output" in options:
        ours["CACHALOT_OUTPUT"] = options["--output"]
    if "--trace" in options:
        ours["CACHALOT_TRACE"] = options["--trace"]
    if "--conf" in options:
        ours["CACHALOT_CONF"] = plain_conf(options["--conf"])
        check_conf(ours["CACHALOT_CONF"], "--conf", code=2)
    elif conf := environment.get(b"CACHALOT_CONF"):
        check_conf(os.fsdecode(conf), "CACHALOT_CONF")
    if "--fail-alloc" in options and not sweeps(options):
        ours["CACHALOT_CONF"] = conf_with({**environment, **{os.fsencode(k): os.fsencode(v) for k, v in ours.items()}},
                                          f"fail_alloc:[{options['--fail-alloc'].strip('[]')}]")
        check_conf(ours["CACHALOT_CONF"], "--fail-alloc", code=2)
    if "--fit" in options and not sweeps(options):
        ours["CACHALOT_CONF"] = conf_with({**environment, **{os.fsencode(k): os.fsencode(v) for k, v in ours.items()}},
                                          f"device_size_mb:{fit_module().parse(options['--fit'])}")
    if "--html" in options and not environment.get(b"CACHALOT_EVENTS"):
        ours["CACHALOT_EVENTS"] = EVENTS_FOR_PAGE
    given = environment.get(b"CACHALOT_SESSION", b"")[:SESSION_MOST]
    session = plain_session(given)
    ours["CACHALOT_SESSION"] = session_within(session) if not session or waits(options) else os.fsdecode(given)
    environment.update({os.fsencode(k): os.fsencode(v) for k, v in ours.items()})
    check_patterns(environment, options)
    if "--trace" in options:
        environment[b"CACHALOT_TRACE"] = os.fsencode(from_here(options["--trace"]))
    if waits(options):
        environment.update({os.fsencode(k): os.fsencode(v) for k, v in places(environment).items()})
    return environment


def set_signals():
    """Restores signals for the program. The report's signal is ignored, since one that comes early must not kill the
    program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
        signal.signal(number, signal.SIG_DFL)
    asked = report_signal()
    if asked:
        signal.signal(asked, signal.SIG_IGN)
    if INHERITED_SIGCHLD is not None:
        signal.signal(signal.SIGCHLD, INHERITED_SIGCHLD)


def execute(path, words, environment):
    try:
        os.execve(path, words, environment)
    except FileNotFoundError as error:
        raise Failure(127, f"{path}: {error.strerror}, or what interprets it is missing") from error
    except OSError as error:
        raise Failure(126, f"{path}: {error.strerror}") from error


def wait_forwarding(child, waited):
    """Waits for the child and returns the signals that were forwarded to it: those from other processes, and those that the
    kernel sends to this process alone. Keys of the terminal reach the child by themselves."""
    alone, sent = TIMERS | (CLOSED if os.getsid(0) == os.getpid() else set()), set()
    while True:
        info = signal.sigwaitinfo(waited)
        if info.si_signo == signal.SIGCHLD:
            if child.poll() is not None:
                return sent
        elif info.si_code <= 0 or info.si_signo in alone:
            sent.add(info.si_signo)
            child.send_signal(info.si_signo)


def run_and_wait(path, words, environment):
    """Runs the program as a child. Returns it, ended, and the signal mask for what follows: the original mask and the
    forwarded signals, which may come once more (`timeout` signals this process, and then its group)."""
    waited = (signal.valid_signals() - NOT_FORWARDED) | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)

    def prepare():
        set_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        child = subprocess.Popen(words, executable=path, env=environment, preexec_fn=prepare,
                                 close_fds=False)
    except FileNotFoundError as error:
        raise Failure(127, f"{path}: {error.strerror}, or what interprets it is missing") from error
    except OSError as error:
        raise Failure(126, f"{path}: {error.strerror}") from error
    return child, before | wait_forwarding(child, waited)


def end_like(code):
    """Returns the program's exit code, or dies by its signal."""
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    if -code in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    os.kill(os.getpid(), -code)
    return 128 - code


def gates_of(options, places):
    """The gates and options of --check, or None. Wrong ones are refused before the start."""
    if "--check" not in options:
        return None
    from cachalot_command.common.limits import parse_words
    try:
        gates, more = parse_words(*options["--check"])
    except Failure as failure:
        raise Failure(2, f"--check: {failure}") from failure
    places.check_baselines(gates.get("--baseline", ()))
    if "--output" in more:
        refuse("--check: output", more["--output"])
        taken = [*places.taken(), *(options[name] for name in ("--html",) if name in options)]
        if os.path.realpath(more["--output"]) in map(os.path.realpath, taken):
            raise Failure(125, f"--check: output: {more['--output']} is where the page, the trace or the report goes")
    return gates, more


def after(child, environment, options, gates):
    """Does what was asked for the end of the run. Returns the exit code of the gates."""
    ended_run, summary, verdict = end_modules()
    reports, problems, notes = ended_run.collect(child, environment)
    for note in notes:
        say(f"cachalot: {printable(note)}")
    if "--summary" in options:
        summary.print_summary(reports)
    if "--html" in options:
        problems += page_module().pages_of_run(reports, options["--html"], child.pid)
        for line in summary.doubts_of(reports) if not {"--summary", "--check"} & options.keys() else ():
            say(f"cachalot: {printable(line)}")
    code = 0
    if "--fit" in options:
        lines, fits = fit_module().verdict(reports, fit_module().parse(options["--fit"]))
        for line in lines:
            say(f"cachalot: {printable(line)}")
        code = 3 if problems else 0 if fits else 1
    if not gates:
        for problem in problems:
            say(f"cachalot: {printable(problem)}")
        return code
    paths = [report.path for report in reports]
    return verdict.check(paths, gates[0], {**gates[1], "--runs": "all"}, sys.stderr, problems) or code


def prepare(options, words):
    """(path, words, environment, gates) to execute. What cannot work is refused."""
    library = find_library()
    header = check_library(library)
    path = find_program(words[0])
    check_program(path, header)
    path, words = by_shell(path, words)
    report_signal()
    check_counts()
    environment = environment_for(options, preloadable(library), path)
    places = Places(environment, path)
    places.check_report()
    places.check_trace()
    for problem in filter(None, (places.report_problem(), places.trace_problem())):
        say(f"cachalot: {printable(problem)}")
    if waits(options):
        end_modules()  # before the start: when the program ends, another version may be installed
    gates = gates_of(options, places)
    if "--html" in options:
        page_module().check_page(options["--html"], places.taken())
    return path, words, environment, gates


def main(arguments):
    """cachalot run."""
    options, words = parse(arguments)
    if "--help" in options:
        print(HELP, end="")
        return 0
    if not words:
        raise Failure(2, "no program given; see `cachalot run --help`")
    if sweeps(options):
        check_sweep(options)
    try:
        path, words, environment, gates = prepare(options, words)
    except OSError as error:  # no file name: the current directory is meant
        raise Failure(125, f"{error.filename or 'the current directory'}: {error.strerror}") from error
    if sweeps(options):
        return run_again(options, path, words, environment)
    if not waits(options):
        set_signals()
        execute(path, words, environment)
    child, mask = run_and_wait(path, words, environment)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # signals are for this process from here on
        code = after(child, environment, options, gates)
    except KeyboardInterrupt:
        code = 130
    except (Failure, OSError) as failure:
        code = 3 if gates else 0
        say(f"cachalot: {printable(failure)}")
    return end_like(child.returncode) if child.returncode else code  # the program's own code comes first
