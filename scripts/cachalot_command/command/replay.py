"""cachalot replay: a recorded trace once more, through the allocator of the library."""

import contextlib
import json
import os
import re
import stat
import subprocess
import sys

from cachalot_command.command.pages import split
from cachalot_command.command.show import device_table, pairs, rule
from cachalot_command.common.limits import parse_size
from cachalot_command.common.tools import Failure, find_tool, printable, show_progress
from cachalot_command.reading.report import COUNT_MOST, bytes_text, count_text, times_text
from cachalot_command.reading.traces import check_rest, device_number, open_source

HELP = """\
usage: cachalot replay TRACE [--conf OPTIONS] [--capacity BYTES]
                       [--behind OPERATIONS] [--format table|json]
                       [--costs FILE] [--device N]

Replays the allocations of a recorded run through the library's allocator, with
no GPU: all work is done at once. Prints peaks, fragmentation, and what the
calls to the driver would have cost.
  TRACE       by `cachalot run --trace`, op,id,bytes,stream lines, an RMM log,
              or a snapshot by PyTorch's torch.cuda.memory._dump_snapshot;
              gzipped or not
  --conf      options, as in CACHALOT_CONF
  --capacity  memory of the device (8GiB; default: 2TiB, which is the most);
              with it, what was out of memory in the run is asked for again
  --behind    the device is so many operations behind the program, as one that
              is busy: what would have to wait for it is not done (default: 0)
  --costs     other prices of driver calls: lines call,bytes,ns
              (`--costs default` alone prints those in use, measured on an H200)
  --device    which device of a snapshot or of a recorded trace (text has none)

Exit code: 0 done, 1 no room or no memory, 2 usage, 3 no or broken trace, or
what was to be printed is lost.
example: cachalot replay run.csv.gz --conf max_split_size_mb:128
example: cachalot replay snapshot.pickle --capacity 24GiB --format json
"""

VALUES = ("--conf", "--capacity", "--behind", "--format", "--costs", "--device")


def bytes_of(text):
    """8GiB, 8GB (decimal), 1000: in bytes."""
    value = parse_size(text)
    if not 0 < value <= 1 << 41:
        raise Failure(2, f"`{text}` is not the memory of a device: give more than 0, and at most 2TiB")
    return value


def tool_arguments(options):
    """What cachalot-replay is to be told."""
    arguments = []
    if options.get("--conf"):
        arguments += ["--conf", options["--conf"]]
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
    """Not under the cache, whatever started us."""
    return {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


def feed(process, chunks):
    """Gives the text to the process, as long as it wants any."""
    pipe = process.stdin.fileno()
    with contextlib.suppress(BrokenPipeError):  # it has found something wrong, and says so
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(pipe, rest):]
    process.stdin.close()


def feed_file(file, chunks):
    """Keeps the text in a file, for those who read it again and again."""
    try:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
    except OSError as error:
        raise Failure(1, f"no room for the unpacked trace: {error.strerror}; set TMPDIR") from error


def output_of(arguments, chunks=None, **options):
    """(exit code, output) of cachalot-replay, which ends with us; errors and progress are on stderr."""
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
            process.kill()  # before its input ends, of which it would say something
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


def time_text(ns):
    return "not known" if ns is None else f"{ns / 1e6:.3f} ms"


def cost_lines(driver):
    """The driver's calls that were made."""
    lines = [f"| {'Driver calls':<21} | {'count':>10} | {'failed':>6} | {'bytes':>10} | {'cost':>14} |", rule()]
    for name, call in driver["calls"].items():
        if call["count"] or call["failed"]:
            lines.append(f"| {name:<21} | {count_text(call['count']):>10} | {call['failed']:>6} | "
                         f"{bytes_text(call['bytes']):>10} | {time_text(call['cost_ns']):>14} |")
    lines.append(rule())
    return lines + pairs(("All together", time_text(driver["cost_ns"])),
                         ("Last four fifths", time_text(driver["steady_cost_ns"])))


def unpriced_lines(driver):
    """What the sums leave out."""
    names = [name for name, call in driver["calls"].items() if call["count"] and call["cost_ns"] is None]
    return [f"Not counted, for want of a price (--costs): {', '.join(names)}"] if names else []


def oom_lines(replay):
    lines = []
    for event in replay["oom_events"]:
        fits = ", natively it would have fitted" if event["native_would_fit"] else ""
        more = " or more" * (event["requested_bytes"] == COUNT_MOST)
        lines.append(f"Out of memory: operation {event['operation']} asked for {event['requested_bytes']} bytes{more} "
                     f"with {event['allocated_bytes']} of {event['reserved_bytes']} reserved in use{fits}")
    more = replay["totals"]["ooms"] - len(lines)
    return lines + ([f"and {times_text(more)} before"] if more > 0 else [])


def failure_lines(trace):
    """What is to be said of what was out of memory in the run itself."""
    count = trace["recorded_failures"]
    if not count:
        return []
    tried = ("tried again, and given back at once where it was served" if trace["failures_tried"] else
             "left out; --capacity tries it again")
    return [f"Out of memory when this was recorded: {times_text(count)}; {tried}"]


def table(replay):
    """The lines of the table."""
    trace, totals, given = replay["trace"], replay["totals"], replay["config"]
    conf = ",".join(f"{k}:{v['value']}" for k, v in given.items() if v["source"] != "default")
    ratio = replay["reserved_per_requested"]
    behind = replay["driver"]["behind_operations"]
    lines = [f"{printable(trace['name'])}: {trace['operations']} operations, {trace['mallocs']} allocations, "
             f"{trace['live_at_end']} live at the end" + (f"; the device {behind} operations behind" if behind else ""),
             f"Options: {conf or 'the defaults'}", *device_table(replay["devices"][0]), *cost_lines(replay["driver"]),
             rule("="),
             f"Peak requested {totals['peak_requested_bytes']}, allocated {totals['peak_allocated_bytes']}, "
             f"active {totals['peak_active_bytes']}, reserved {totals['peak_reserved_bytes']} bytes"]
    if ratio is not None:
        lines.append(f"Reserved for each byte requested, at the peaks: {ratio:.4f}")
    if trace["recorded_peak_reserved_bytes"]:
        lines.append(f"PyTorch itself had reserved at most {trace['recorded_peak_reserved_bytes']} bytes")
    return lines + unpriced_lines(replay["driver"]) + failure_lines(trace) + oom_lines(replay)


def one_trace(command, words, options):
    """(source, format, arguments of cachalot-replay) that the command line means."""
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


def main(arguments):
    """cachalot replay."""
    words, options = split("replay", arguments, (), VALUES)
    if not words and options == {"--costs": "default"}:
        form, (code, output) = "text", output_of(["--print-costs"])
    else:
        source, form, known = one_trace("replay", words, options)
        code, output = run(source, known)
    if code == 0 and form == "table":
        print("\n".join(table(json.loads(output))))
    elif code == 0:
        sys.stdout.buffer.write(output)
    elif code < 0:
        raise Failure(1, ended_by(code))
    return code
