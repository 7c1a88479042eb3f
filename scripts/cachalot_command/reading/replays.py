"""Running cachalot-replay: its arguments, its input, and how it ends."""

import contextlib
import os
import re
import stat
import subprocess
import sys

from cachalot_command.common.tools import Failure, find_tool, show_progress
from cachalot_command.common.units import parse_size
from cachalot_command.common.variables import plain_conf
from cachalot_command.reading.traces import check_rest, device_number, open_source

VALUES = ("--conf", "--capacity", "--behind", "--format", "--costs", "--device")


def bytes_of(text):
    """The memory of a device in bytes: 8GiB, 8GB (decimal), 1000."""
    value = parse_size(text)
    if not 0 < value <= 1 << 41:
        raise Failure(2, f"`{text}` is not the memory of a device: give more than 0, and at most 2TiB")
    return value


def tool_arguments(options):
    """The arguments of cachalot-replay for these options."""
    arguments = []
    if options.get("--conf"):
        arguments += ["--conf", plain_conf(options["--conf"])]
    if "--capacity" in options:
        arguments += ["--capacity", str(bytes_of(options["--capacity"]))]
    elif "per_process_memory_fraction" in options.get("--conf", ""):
        raise Failure(2, "per_process_memory_fraction is a share of the device's memory: give --capacity")
    if "--behind" in options:
        if not re.fullmatch("[0-9]{1,15}", options["--behind"]):
            raise Failure(2, f"--behind={options['--behind']} is no number of operations")
        arguments += ["--behind", options["--behind"]]
    if "--costs" in options:
        path = options["--costs"]
        if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
            raise Failure(2, f"--costs={path} is a pipe: it is opened again, so copy it to a file first")
        arguments += ["--costs", path]
    return arguments


def environment():
    """The environment without LD_PRELOAD: the tool does not run under the cache."""
    return {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


def feed(process, chunks):
    """Writes the text to the process until it wants no more."""
    pipe = process.stdin.fileno()
    with contextlib.suppress(BrokenPipeError):  # the process has found an error, and reports it
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(pipe, rest):]
    process.stdin.close()


def feed_file(file, chunks):
    """Keeps the text in a file, so that it can be read several times."""
    try:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
    except OSError as error:
        raise Failure(1, f"no room for the unpacked trace: {error.strerror}; set TMPDIR") from error


def output_of(arguments, chunks=None, **options):
    """(exit code, output) of cachalot-replay, which is killed if this process dies. Errors and progress go to stderr."""
    try:
        process = subprocess.Popen([find_tool("cachalot-replay"), "--parent", str(os.getpid()), *arguments], env=environment(), bufsize=0,
                                   stdin=subprocess.PIPE if chunks else subprocess.DEVNULL, stdout=subprocess.PIPE, **options)
    except OSError as error:
        raise Failure(125, f"cachalot-replay cannot be run: {error}") from error
    with process:
        try:
            if chunks:
                feed(process, chunks)
            output = process.stdout.read()
        except BaseException:
            process.kill()  # first, or it would complain about its input
            show_progress()
            raise
    return process.returncode, output


def ended_by(code):
    return f"cachalot-replay was ended by signal {-code}"


def run(source, arguments):
    """(exit code, JSON) of one replay."""
    arguments = [*arguments, *source.arguments, "--name", source.name]
    if sys.stderr.isatty():
        arguments.append("--progress")
    result = output_of([*arguments, os.path.abspath(source.path) if source.path else "-"], source.chunks)
    if result[0] == 3 and source.packed:
        check_rest(source.packed, source.name)
    return result


def one_trace(command, words, options):
    """(source, format, arguments of cachalot-replay) for a command line."""
    if len(words) != 1:
        raise Failure(2, f"give one trace; see `cachalot {command} --help`")
    form = options.get("--format", "table")
    if form not in ("table", "json"):
        raise Failure(2, f"--format={form} is neither table nor json")
    known = tool_arguments(options)
    source = open_source(words[0], device_number(options.get("--device")))
    if source.note:
        print(f"cachalot: {source.note}", file=sys.stderr)
    return source, form, known
