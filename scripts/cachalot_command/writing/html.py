"""A history and its report as one page that needs no network and no server."""

import json
import os
import re
from collections import Counter
from dataclasses import replace

from cachalot_command.common.tools import HERE, Failure, installed, printable, say
from cachalot_command.common.units import count_text, counted, size_text
from cachalot_command.reading.history import CHANGES
from cachalot_command.reading.holders import MOMENTS, holders, is_sample
from cachalot_command.reading.mapped import MOVES, Mapped
from cachalot_command.reading.report import end_text, get, last_of_each, number
from cachalot_command.reading.sources import blocks_after, device_of, missing_map, read_source
from cachalot_command.writing.output import make, refuse, refuse_overwriting
from cachalot_command.writing.words import doubts, fragmentation_words, oom_title, oom_words, served, site_text

PAGE = os.path.join(os.path.dirname(__file__), "page")
CHART = "Chart.js 3 or 4 (Debian and Ubuntu: apt-get install libjs-chart.js)"
CHART_PLACES = ("/usr/share/javascript/chart.js/chart.min.js", "/usr/share/nodejs/chart.js/dist/chart.min.js",
                "/usr/share/javascript/chart.js/chart.umd.js")
CHART_MOST = 4 << 20
EVENTS_MOST = 500000
LARGEST = 20
MOVING = " Mapped memory (`expandable_segments`) is a bar wherever it lies in one piece. It moves, and which of what was idle did " \
         "is not told: at a moment before the end that is guessed."
CODES = {name: code for code, name in enumerate(CHANGES)}


def find_chart():
    """The text of Chart.js: CACHALOT_CHART_JS, beside the command, or the distribution's."""
    named = os.environ.get("CACHALOT_CHART_JS")
    places = [named] if named else [os.path.join(HERE, "chart.min.js"), *installed("share/javascript/chart.js/chart.min.js"),
                                    *CHART_PLACES]
    path = next((p for p in places if os.path.isfile(p)), None)
    if path is None:
        missing = f"CACHALOT_CHART_JS={named} is no file" if named else "--html needs the chart library"
        raise Failure(125, f"{missing}: install {CHART}, or name its file with CACHALOT_CHART_JS")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(CHART_MOST)
    except (OSError, ValueError) as error:
        raise Failure(125, f"{path} cannot be read: {error}") from error
    version = re.search(r"Chart\.js v?([0-9]+)\.", text[:1000])
    if not version or version[1] not in ("3", "4") or "</script" in text.lower():
        raise Failure(125, f"{path} is not {CHART}")
    return text


def merged(events):
    """Events in which a free that was completed at once is one event again, as most are."""
    out = []
    for event in events:
        last = out[-1] if out else None
        if event.action == "free_completed" and last and last.action == "free_requested" and \
                (last.address, last.time) == (event.address, event.time):
            out[-1] = last._replace(action="free")
        else:
            out.append(event)
    return out


def latest(history):
    """The history, cut at its old end to as many events as a page can show."""
    drop, levels = len(history.events) - EVENTS_MOST, list(history.levels)
    if drop <= 0:
        return history
    for event in history.events[:drop]:
        levels = [now + sign * event.size for now, sign in zip(levels, CHANGES[event.action])]
    return replace(history, events=history.events[drop:], levels=tuple(levels))


def columns(events):
    """The events by column, as differences where those are shorter."""
    begin = events[0].time if events else 0
    base = min((e.address for e in events if e.address), default=0)
    times = [e.time for e in events]
    return {"begin": begin, "base": base, "time": [b - a for a, b in zip([begin, *times], times)],
            "action": [CODES[e.action] for e in events],
            "address": [e.address - base if e.address else 0 for e in events],
            "size": [e.size for e in events], "waste": [max(0, e.size - e.requested) for e in events],
            "site": [e.site for e in events]}


def life_of(source, device):
    """The device's memory over the whole life, by column: [ms], and bytes; and its end in ms."""
    steps = source.series.get(device, [])
    if not any(step.allocated or step.reserved for step in steps):
        return None
    uptime = source.report.number("time", "uptime_ns")
    return {"end": max(steps[-1].ms + 1, (uptime or 0) / 1e6), "ms": [step.ms for step in steps],
            "levels": [[step.allocated for step in steps], [step.reserved for step in steps], [step.free for step in steps]]}


def map_of(history, events):
    """Segments at the end, and the moves of mapped memory that led there."""
    if history.segments is None:
        return {"segments": None}
    mapped = Mapped(history, events)
    return {"steps": mapped.steps, "segments": [
        {"address": s.address, "size": s.size, "pool": s.pool, "mapped": s.address in mapped.mapped,
         "blocks": [[b.address, b.size, b.requested, b.state, b.site] for b in s.blocks]} for s in mapped.segments]}


def percent(part, whole):
    return "-" if not whole or part is None else f"{100 * part / whole:.1f} %"


def tiles(device, report):
    """(name, value, meaning, is it bad) of the most important figures."""
    def stat(key, part):
        return number(device, "statistics", key, "all", part)

    requests, hits = stat("allocation", "allocated"), number(device, "counters", "num_hits")
    ooms = number(device, "counters", "num_ooms")
    leaked = report.number("totals", "leaked_bytes") if report else sum(row["live_bytes"] for row in device["size_histogram"])
    allocated, reserved = stat("allocated_bytes", "peak"), stat("reserved_bytes", "peak")
    used, whole = (number(device, "at_peak_reserved", key) for key in ("allocated_bytes", "reserved_bytes"))
    rows = [("Peak allocated", size_text(allocated), "held by the program", False),
            ("Peak reserved", size_text(reserved), "taken from the driver", False),
            ("Used of reserved", percent(used, whole), "when most was reserved", False),
            ("From the cache", percent(hits, requests), f"of {count_text(requests).strip()} requests", False),
            ("Out of memory", count_text(ooms).strip(), "times", bool(ooms)),
            ("Still held", size_text(leaked), "when the program was killed, all devices", False) if report and report.is_cut_off() else
            ("Never freed", size_text(leaked), "at the end, all devices" if report else "where the trace ends", bool(leaked))]
    return [row for row in rows if row[1] != "-"]


def largest_blocks(blocks, sites):
    """The largest blocks that the program holds, equal ones in one row."""
    equal = Counter((block.size, block.requested, site_text(block.site, sites)) for block in blocks)
    order = sorted(equal.items(), key=lambda item: (-item[0][0] * item[1], item[0]))
    rows = [[size_text(size * count), f"{count}", size_text(size), f"{requested}", site][:4 + bool(sites)]
            for (size, requested, site), count in order[:LARGEST]]
    return {"title": f"Largest memory in use at the end, of {counted(len(blocks), 'block')}", "rows": rows,
            "head": ["Together", "Blocks", "Each", "Bytes asked for", "Taken at"][:4 + bool(sites)],
            "kinds": ["number", "number", "number", "number", "place"]}


def held_blocks(history):
    """The blocks that the program holds at the end."""
    blocks = blocks_after(history.events) if history.segments is None else [b for s in history.segments for b in s.blocks]
    return [block for block in blocks if block.state == "active"]


def leaked_sizes(report, index, sites):
    """What was held at the end, by size, for a report without segments."""
    rows = []
    for leak in report.list("leaks"):
        if number(leak, "device") in (index, None):
            each, most = number(leak, "requested_bytes"), number(leak, "up_to_bytes")
            size = size_text(each) if each is not None else f"up to {size_text(most)}" if most else "other sizes"
            rows.append([size_text(number(leak, "total_requested_bytes")), count_text(number(leak, "count")).strip(),
                         size, site_text(get(leak, "site"), sites)][:3 + bool(sites)])
    return {"title": "Largest memory in use at the end, by size", "rows": rows[:LARGEST],
            "head": ["Together", "Blocks", "Each", "Taken at"][:3 + bool(sites)], "kinds": ["number", "number", "number", "place"]}


def histogram(device):
    rows = get(device, "size_histogram")
    bins = [[int(number(r, k) or 0) for k in ("up_to_bytes", "requests", "live", "live_bytes")]
            for r in rows[:256] if isinstance(r, dict)] if isinstance(rows, list) else []
    used = [i for i, b in enumerate(bins) if b[1] or b[2]]
    return bins[used[0]:used[-1] + 1] if used else []


def timeline_hint(count, history, source, cut):
    if not count and source.report and get(source.report.root, "events", "capacity"):
        return "Nothing was allocated or freed on this device while events were kept."
    if not count:
        return "This report has no events. Run the program with `CACHALOT_EVENTS=100000` (or by `cachalot run --html`) " \
               "to have the last 100 000 of them here."
    text = f"{count} events. Drag to zoom in" + \
        (". " if history.segments is None else "; click to see that moment in the map below. ")
    if cut:
        text += f"{cut} older ones are not on this page, which shows the last {EVENTS_MOST}. "
    if source.lost:
        text += f"{source.lost} older events were dropped: only the last ones are kept. A larger `CACHALOT_EVENTS` keeps more."
    return text


def is_mapped(history, report):
    """True if memory of the device was mapped. The events that are left may not say so, but the option in force does."""
    return any(event.action in MOVES for event in history.events) or \
        report.text("config", "expandable_segments", "value").endswith("True")


def map_hint(history, source):
    if source.report is None and history.segments is None:
        return missing_map(source)
    if history.segments is None and history.events and is_mapped(history, source.report):
        return "This report has no segments: its program was killed, and only a running one can tell where mapped memory lies. Ask it then: " \
               "`cachalot dump --segments PID`. With `expandable_segments:False` a killed program has a map as well."
    if history.segments is None and history.events:
        return f"This report has no segments: its program was killed, and the {source.lost} oldest of the events that made them were " \
               "dropped. A larger `CACHALOT_EVENTS` keeps more."
    if history.segments is None:
        return "This report has no segments. Run the program with `CACHALOT_EVENTS=100000`, or ask it while it runs: " \
               "`cachalot dump --segments PID`."
    return "Each bar is a segment, memory that came from the driver in one piece. The blocks in it belong to the program, " \
           "or can be used again. Point at one to see what it is."


def device_object(history, device, source):
    cut, held = max(0, len(history.events) - EVENTS_MOST), held_blocks(history)
    history = latest(history)
    report, events = source.report, merged(history.events)
    shown = map_of(history, events)
    sites = [] if report and is_sample(report) else source.sites  # blocks know their sites
    largest = leaked_sizes(report, history.device, sites) if report and not history.segments else largest_blocks(held, sites)
    words = fragmentation_words(device, None if report else os.path.basename(printable(source.path)))
    ooms = oom_words(report, history.device, source.sites) if report else [
        {"time": e.time, "title": oom_title(e.size, e.time, source.has_time), "lines": []} for e in history.events if e.action == "oom"]
    return {"index": history.device, "name": history.name,
            "tiles": tiles(device, report), "words": words, "ooms": ooms,
            "events": columns(events), "levels": history.levels, "life": life_of(source, history.device), **shown,
            "holders": holders_of(report, history.device) if report else None,
            "histogram": histogram(device), "largest": largest,
            "timelineHint": timeline_hint(len(events), history, source, cut),
            "mapHint": map_hint(history, source) + (MOVING if shown.get("steps") else "")}


def holders_of(report, device):
    """Who held memory at the peak of the device and at the end; None where no call site is known."""
    texts, moments = {}, []
    for moment, words in MOMENTS.items():
        found = [holder for holder in holders(report, moment) if holder.device == device]
        rows = [[h.bytes, h.error, [texts.setdefault(text, len(texts)) for text in reversed(h.frames or ("unknown",))]] for h in found]
        moments += [{"name": words, "rows": rows}] if rows else []
    if not moments:
        return None
    hint = "Each bar is a line of code, as wide as the memory that was asked for there or in what it called. Click on one to see it alone. "
    if is_sample(report):
        hint += f"A sample: one byte of {size_text(report.number('sites_mean_bytes'))} at least. CACHALOT_SITES=1 counts each request."
    return {"hint": hint, "moments": moments, "texts": list(texts)}


def facts(report):
    rank = report.get("process", "rank")
    return ", ".join([f"pid {report.text('process', 'pid')} on {report.text('process', 'hostname')}",
                      *([f"rank {printable(rank)}"] if rank is not None else []),
                      f"started {report.text('time', 'start')}", f"end: {end_text(report)}",
                      f"coverage: {report.text('coverage', 'status')}"])


def trace_facts(source):
    return f"a recorded trace, pid {source.pid}" if source.pid else "a recorded trace"


def page_object(source):
    """The data of the page."""
    report = source.report
    return {"title": f"GPU memory of {source.program[:300]}", "facts": facts(report) if report else trace_facts(source),
            "hasTime": source.has_time, "actions": list(CHANGES.items()), "sites": source.sites,
            "devices": [device_object(h, h.told or device_of(h), source) for h in source.histories],
            "warnings": [*doubts(report), *served(report), *("Fault: " + printable(get(fault, "text"))[:1000] for fault in report.list("faults", "first")), *(printable(get(w, "text"))[:1000] for w in report.list("warnings")[:1000])]
                        if report else [],
            "footer": f"Made by cachalot from {os.path.basename(printable(source.path))}."}


def process_row(report):
    """A row of the table of a run."""
    ratio = report.number("totals", "hit_ratio")
    rank = "-" if report.get("process", "rank") is None else report.text("process", "rank")
    return [rank[:20], report.text("process", "pid"), report.program()[:60], report.text("process", "hostname")[:60],
            *(size_text(report.number("totals", key)) for key in ("peak_allocated_bytes", "peak_reserved_bytes", "leaked_bytes")),
            "-" if ratio is None else f"{100 * ratio:.1f} %", count_text(report.number("totals", "ooms")).strip(), end_text(report)[:60]]


def run_object(sources, name):
    """The data of a page of several reports: their devices one after the other, and a table of the processes."""
    pages = [page_object(source) for source in sources]
    devices = []
    for source, page in zip(sources, pages):
        rank = "" if source.report.get("process", "rank") is None else f"rank {source.report.text('process', 'rank')[:20]}, "
        who = f"{rank}pid {source.report.text('process', 'pid')}"
        devices += [{**device, "label": f"{who}, GPU {device['index']}: {device['name']}", "sites": page["sites"],
                     "facts": f"{source.program[:300]}, {page['facts']}"} for device in page["devices"]]
    warnings = list(dict.fromkeys(warning for page in pages for warning in page["warnings"]))
    return {**pages[0], "title": f"GPU memory of a run of {counted(len(sources), 'report')}", "facts": "", "sites": [], "devices": devices,
            "warnings": warnings[:1000], "footer": f"Made by cachalot from {printable(name)}.",
            "processes": {"rows": [process_row(source.report) for source in sources],
                          "head": ["Rank", "Pid", "Program", "Host", "Peak allocated", "Peak reserved", "Held at the end", "From the cache", "OOM", "End"],
                          "kinds": ["number", "number", "", "", "number", "number", "number", "number", "number", ""]}}


def write(source, file):
    """Writes the page of one report or trace."""
    write_page(page_object(source), file)


def write_run(sources, name, file):
    """Writes one page of several reports, which lie in the folder `name`."""
    write_page(run_object(sources, name), file)


def write_page(page, file):
    """Writes the page. Text of a report goes in as data, and cannot end a script."""
    data = json.dumps(page, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {"data": data, "chart": find_chart()}

    def part(match):
        name = match[1]
        if name in parts:
            return parts[name]
        with open(os.path.join(PAGE, name), encoding="utf-8") as asset:
            return asset.read()

    with open(os.path.join(PAGE, "page.html"), encoding="utf-8") as template:
        text = re.sub(r"\{\{([a-z_.]+)\}\}", part, template.read())
    file.write(text.encode("utf-8"))


def check_page(path, others):
    """Refuses, before the program starts, a page that could not be written or would replace another file."""
    find_chart()
    if os.path.realpath(path) in map(os.path.realpath, others):
        raise Failure(125, f"--html: {path} is where the report or the trace goes")
    refuse("--html", path)


def pages_of_run(reports, path, pid):
    """Writes a page for each report and returns problems. `path` is for the started program at its end; other processes add
    .PID, and earlier programs of one process (exec) add their generation."""
    problems, stem, end = [], *os.path.splitext(path)

    reports = last_of_each(reports)

    def place(report):
        return report.number("process", "pid") != pid, report.text("process", "pid"), -(report.number("process", "generation") or 0)

    order, before = sorted(reports, key=place), None
    for i, report in enumerate(order):
        number = report.text("process", "pid")
        more = f".{report.text('process', 'generation')}" if number == before else ""
        name, before = f"{stem}.{number}{more}{end}" if i else path, number
        try:
            refuse_overwriting(report.path, [name])
            source = read_source(report.path)[0]
            make(name, lambda file: write(source, file))
            say(f"cachalot: {printable(name)} shows {printable(report.path)}")
        except Failure as failure:
            problems.append(f"no page: {failure}")
    return problems
