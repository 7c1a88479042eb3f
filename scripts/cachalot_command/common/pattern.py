"""The patterns of file names of a run, checked before the program starts."""

import contextlib
import os
import re
import resource
import tempfile

from cachalot_command.common.tools import Failure, open_at_once

DEFAULT_OUTPUT = "cachalot.%e.%p.json"
NAME_MOST, PATH_MOST = 200, 1023  # bytes of a report's name (stats/output/path_pattern.c), and of its path (stats/page/layout.h)
FOLDER_MOST = 255  # bytes of a folder's name
VALUE_MOST = 64  # bytes that one sequence adds
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
RUNNER = re.compile(r"(python|pypy)([0-9.]|$)|ld-|ld\.so|ld64\.so|valgrind$")
SEQUENCE = re.compile(r"%q\{([^}]*)\}|%.")


def check_pattern(pattern, where, here=True, code=125):
    """Refuses a pattern of which the library would only warn, and then write elsewhere. `here`: the files lie on this
    machine."""
    literal = SEQUENCE.sub("", pattern)
    if CONTROL.search(pattern) or any(len(os.fsencode(part)) > NAME_MOST for part in literal.split("/")):
        raise Failure(code, f"{where}={pattern}: a name in it is too long, or has a control character")
    if not re.fullmatch(r"(%([phertn%]|q\{[^}]{1,63}\})|[^%])*", pattern):
        raise Failure(code, f"{where}={pattern}: unknown %; there are %p %h %e %r %t %n %q{{VAR}} %%")
    if pattern.endswith("/") or (here and os.path.isdir(pattern)):
        raise Failure(code, f"{where}={pattern} is a directory: name the files in it, as {os.path.join(pattern, 'cachalot.%e.%p.json')}")


def harmless(value):
    """The value as the library puts it into a name."""
    return re.sub(r"/|^\.", "_", CONTROL.sub("_", os.fsdecode(value[:VALUE_MOST] or b"none")))


def check_patterns(environment, options=()):
    """Checks the patterns in the environment. `options`: the options of the command line, which errors name instead of
    variables."""
    for name in ("--output", "--trace"):
        variable = f"CACHALOT_{name[2:].upper()}"
        given = os.fsdecode(environment.get(os.fsencode(variable), b""))
        check_pattern(given, *((name, True, 2) if name in options else (variable,)))


def expanded(pattern, environment, program):
    """The pattern as the library expands it for the program. What is known only later stays: %p, %t, %n, %r, and %e of what
    runs a script or another program."""
    values = {"%%": "%", "%h": harmless(os.fsencode(os.uname().nodename))}
    with contextlib.suppress(OSError), open_at_once(program) as file:
        name = os.path.basename(os.path.realpath(program))
        if file.read(2) != b"#!" and not RUNNER.match(name):
            values["%e"] = harmless(os.fsencode(name))

    def value(found):
        if found[1] is None:
            return values.get(found[0], found[0])
        return harmless(environment.get(os.fsencode(found[1]), b""))

    return SEQUENCE.sub(value, pattern)


def is_too_long(path):
    """True if the library would refuse the path for its length, and write elsewhere or record nothing."""
    *folders, name = map(len, os.fsencode(path).split(b"/"))
    return len(os.fsencode(path)) > PATH_MOST or name > NAME_MOST or max(folders, default=0) > FOLDER_MOST


def problem_of_place(path):
    """The reason why no file can be made at the path, or None."""
    folder = os.path.dirname(path)
    while not os.path.exists(folder):  # the library makes it
        folder = os.path.dirname(folder)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"cannot be made in {folder}: {error.strerror}"
    return None


class Places:
    """Where the report and the trace of the program go. `trace` is None without one."""

    def __init__(self, environment, program):
        output, trace = (os.fsdecode(environment.get(name, b"")) for name in (b"CACHALOT_OUTPUT", b"CACHALOT_TRACE"))
        self.report = expanded(output or DEFAULT_OUTPUT, environment, program)
        self.trace = expanded(trace, environment, program) if trace else None

    def taken(self):
        return [path for path in (self.report, self.trace) if path and path != os.devnull]

    def report_path(self):
        """The report's real path, or None if the working directory was removed."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.realpath(self.report)
        return None

    def check_report(self):
        if is_too_long(self.report):
            raise Failure(125, f"the report's path is too long, or a name in it; give a shorter one with --output: {self.report}")

    def report_problem(self):
        """The reason why the report could not be written, or None. The page keeps the report's content, so the run is not
        refused."""
        path = self.report_path()
        problem = problem_of_place(path) if path and not os.path.exists(path) else None
        return problem and f"the report {self.report} {problem}; `cachalot harvest --output FILE` writes it elsewhere when the program has ended"

    def check_trace(self):
        """Refuses a trace that would be lost. The library would only warn."""
        if not self.trace:
            return
        path = os.path.realpath(self.trace)
        if is_too_long(os.path.abspath(self.trace)):
            raise Failure(125, f"the trace {self.trace} is too long, or a name in it")
        if os.path.exists(path) and not os.path.isfile(path):
            raise Failure(125, f"the trace {self.trace} is a device, or something else that is no file")
        if path == self.report_path():
            raise Failure(125, f"the trace {self.trace} is where the report goes")
        if problem := problem_of_place(path):
            raise Failure(125, f"the trace {self.trace} {problem}")

    def trace_problem(self):
        """The reason why the trace cannot become long, or None."""
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if not self.trace or limit == resource.RLIM_INFINITY:
            return None
        return f"no file here may have more than {limit} bytes (ulimit -f): the trace ends there, or is not begun"

    def check_baselines(self, paths):
        """Refuses a baseline that the report of this run would replace, or that would be read as a report of this run."""
        for path in paths:
            if not os.path.exists(path):
                raise Failure(125, f"--check: {path}: no such baseline")
            place = os.path.dirname(os.path.abspath(self.report)) if os.path.isdir(path) else self.report
            if os.path.realpath(path) == os.path.realpath(place):
                raise Failure(125, f"--check: baseline={path}: the report of this run goes there, too; give it another place with --output")
