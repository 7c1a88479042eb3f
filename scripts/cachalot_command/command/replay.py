"""cachalot replay: replays a recorded trace through the library's allocator."""

import json
import sys

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, printable
from cachalot_command.common.units import bytes_text, count_text, time_text, times_text
from cachalot_command.reading.replays import VALUES, ended_by, one_trace, output_of, run
from cachalot_command.reading.report import COUNT_MOST
from cachalot_command.writing.table import device_table, pairs, rule
from cachalot_command.writing.words import failure_lines

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


def cost_lines(driver):
    """The calls of the driver and their prices."""
    lines = [f"| {'Driver calls':<21} | {'count':>10} | {'failed':>6} | {'bytes':>10} | {'cost':>14} |", rule()]
    for name, call in driver["calls"].items():
        if call["count"] or call["failed"]:
            lines.append(f"| {name:<21} | {count_text(call['count']):>10} | {call['failed']:>6} | "
                         f"{bytes_text(call['bytes']):>10} | {time_text(call['cost_ns']):>14} |")
    lines.append(rule())
    return lines + pairs(("All together", time_text(driver["cost_ns"])),
                         ("Last four fifths", time_text(driver["steady_cost_ns"])))


def unpriced_lines(driver):
    """A line on calls that the sums leave out."""
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
        sys.stdout.write(output.decode(errors="replace"))
    elif code < 0:
        raise Failure(1, ended_by(code))
    return code
