"""The verdict on the reports of a run, and the forms in which it is given."""

import json
import os
import re
from html import escape

from cachalot_command.common.limits import FORMS
from cachalot_command.common.tools import Failure, printable, unguarded
from cachalot_command.common.units import bytes_text, counted, processes_text
from cachalot_command.reading.processes import COUNTS, LATER, UNKNOWNS, read_baseline, read_new_reports
from cachalot_command.reading.report import number
from cachalot_command.writing.gates import judge, odd_text, summary_of
from cachalot_command.writing.openmetrics import family, label
from cachalot_command.writing.output import write

RED, PLAIN = "\x1b[1;31m", "\x1b[0m"
METRICS = {  # key of the totals: (metric, unit, meaning)
    "requests": ("requests", "", "Allocations that the program asked for."),
    "hits": ("hits", "", "Requests served without a driver allocation."),
    "peak_allocated_bytes": ("peak_allocated_bytes", "bytes",
                             "Most memory allocated at once; on several GPUs the sum of the devices' peaks."),
    "peak_reserved_bytes": ("peak_reserved_bytes", "bytes",
                            "Most memory obtained from the driver at once; on several GPUs the sum of the devices' peaks."),
    "ooms": ("out_of_memory", "", "Requests answered with out of memory."),
    "alloc_retries": ("alloc_retries", "", "Requests for which the cache was emptied first."),
    "double_frees": ("double_frees", "", "Frees of a block that was free already."),
    "faults": ("faults", "", "Frees, copies and writes of memory that was not the program's."),
    "warnings": ("warnings", "", "Warnings in the report."),
    "leaked_bytes": ("leaked_bytes", "bytes", "Memory never freed."),
    "leaked_blocks": ("leaked_blocks", "", "Allocations never freed."),
    "hit_ratio": ("hit_ratio", "ratio", "Hits of requests."),
    "peak_utilization_ratio": ("peak_utilization_ratio", "ratio",
                               "Peak allocated of peak reserved."),
}


RUN_NAME_MOST = 200


def run_name(paths, processes):
    """What tells this run from others: the folders that were judged, and the command line of the first process. No pids: a
    reader of JUnit files follows a name from build to build."""
    argv = processes[0].report.get("process", "argv") if processes else None
    words = [os.path.basename(str(argv[0])), *map(str, argv[1:])] if isinstance(argv, list) and argv else [processes[0].program] if processes else []
    folders = [path for path in paths if os.path.isdir(path)]
    return printable(": ".join(filter(None, [", ".join(folders), " ".join(words)])) or "no report")[:RUN_NAME_MOST]


class Verdict:
    """The results and all that the forms show."""

    def __init__(self, reports, results, code, paths=()):
        self.run = run_name(paths, reports.processes)
        self.processes, self.problems, self.notes = (reports.processes, reports.problems,
                                                     reports.notes)
        self.results, self.code = results, code

    def failed(self):
        return [result for result in self.results if not result.passed]

    def last_line(self):
        if self.code == 3:
            return "no verdict: a report is missing or damaged" + (
                f", and {counted(len(self.failed()), 'gate')} failed" if self.failed() else "")
        count = len(self.results)
        if self.failed():
            return f"failed: {len(self.failed())} of {counted(count, 'gate')}"
        return f"passed: {counted(count, 'gate')}, {processes_text(len(self.processes))}"


def together(verdict):
    """Lines on all processes together."""
    if len(verdict.processes) < 2:
        return []
    summary = summary_of(verdict.processes)
    line = (f"peak reserved of {summary['processes']} processes: "
            f"most {bytes_text(summary['max']).strip()} ({summary['worst'].name()}), "
            f"sum {bytes_text(summary['sum']).strip()}, spread {100 * summary['spread']:.1f} %")
    return [line] + ([odd_text(summary)] if summary["odd"] else [])


def text(verdict):
    """The form for people."""
    lines = [f"error: {problem}" for problem in verdict.problems]
    for result in verdict.results:
        mark = "ok  " if result.passed else "FAIL"
        lines.append(f"{mark} {result.title()}: {result.text}")
        lines += [f"       - {hint}" for hint in result.hints]
    lines += [f"  {line}" for line in together(verdict)]
    lines += [f"  note: {note}" for note in verdict.notes]
    return "".join(printable(line) + "\n" for line in [*lines, verdict.last_line()])


def github_property(value):
    value = printable(value).replace("%", "%25")
    return value.replace(":", "%3A").replace(",", "%2C")


def github_line(level, title, message, path=None):
    place = f"file={github_property(path)}," if path else ""
    message = printable(message).replace("%", "%25")
    return f"::{level} {place}title={github_property(title)}::{message}\n"


def github(verdict):
    """The text, and annotations that GitHub shows at the run and its pull request."""
    lines = [github_line("error", "cachalot: no verdict", p) for p in verdict.problems]
    for result in verdict.failed():
        path = result.process.path if result.process else None
        message = ". ".join([f"{result.title()}: {result.text}", *result.hints])
        lines.append(github_line("error", f"cachalot: {result.name}", message, path))
    lines += [github_line("notice", "cachalot", note) for note in verdict.notes]
    return text(verdict) + "".join(lines)


def junit(verdict):
    """One test case per gate, and one for the reports themselves. Readers merge suites of one name, and count cases of one
    class and name as one: both carry the name of the run."""
    run = escape(verdict.run)
    problems = "; ".join(map(printable, verdict.problems))
    error = f'\n      <error message="{escape(problems)}"/>' * bool(problems)  # a case has at most one
    cases = [f'    <testcase classname="cachalot {run}" name="reports">{error}</testcase>']
    for result in verdict.results:
        name = escape(printable(result.title()))
        said = printable(result.text)
        body = f"\n      <system-out>{escape(said)}</system-out>" if result.passed else (
            f'\n      <failure message="{escape(said)}">'
            f"{escape(chr(10).join(map(printable, result.hints)))}</failure>")
        cases.append(f'    <testcase classname="cachalot {run}" name="{name}">{body}</testcase>')
    counts = (f'tests="{len(cases)}" failures="{len(verdict.failed())}" '
              f'errors="{int(bool(problems))}"')
    notes = "\n".join(printable(line) for line in [*together(verdict), *verdict.notes])
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>",
                      f'  <testsuite name="cachalot check {run}" {counts}>', *cases,
                      f"    <system-out>{escape(notes)}</system-out>", "  </testsuite>",
                      "</testsuites>", ""])


def process_object(process):
    pid = process.report.number("process", "pid")
    return {"path": printable(process.path), "pid": pid, "rank": process.rank,
            "hostname": process.report.text("process", "hostname"), "program": process.program,
            "kind": process.kind, "coverage": process.coverage, **process.totals}


def result_object(result):
    name = result.process.name() if result.process else None
    return {"gate": result.name, "limit": str(result.limit), "passed": result.passed,
            "value": result.value, "unit": result.unit, "process": name, "failed": result.failed,
            "text": printable(result.text), "hints": list(map(printable, result.hints))}


def summary_object(processes):
    if not processes:
        return None
    summary = summary_of(processes)
    odd = summary["odd"].name() if summary["odd"] else None
    return {"processes": summary["processes"], "max": summary["max"], "min": summary["min"],
            "sum": summary["sum"], "median": summary["median"], "spread_ratio": summary["spread"],
            "max_process": summary["worst"].name(), "odd_process": odd}


def as_json(verdict):
    """The form for programs, in ASCII."""
    return json.dumps({
        "schema_version": "1.0.0", "kind": "check", "passed": verdict.code == 0, "exit_code": verdict.code,
        "problems": list(map(printable, verdict.problems)),
        "notes": list(map(printable, verdict.notes)),
        "gates": [result_object(result) for result in verdict.results],
        "peak_reserved_bytes": summary_object(verdict.processes),
        "processes": [process_object(process) for process in verdict.processes],
    }, indent=2) + "\n"


def labels_of(process, index):
    """The labels that tell processes apart. `index` is added only if nothing else does."""
    labels = [label("hostname", process.report.text("process", "hostname")),
              label("pid", process.report.text("process", "pid")),
              label("program", process.program)]
    if process.rank is not None:
        labels.append(label("rank", process.rank))
    return ",".join(labels + [label("report", index)] * (index > 0))


def device_families(processes, labels):
    shown = (("allocated_bytes", "Most memory allocated at once on a device."),
             ("reserved_bytes", "Most memory reserved at once on a device."))
    lines = []
    for key, meaning in shown:
        samples = {}
        for process, own in zip(processes, labels):
            for device in process.report.list("devices"):
                peak = number(device, "statistics", key, "all", "peak")
                index = number(device, "device")
                if peak is not None and index is not None:
                    samples[f'{own},{label("device", int(index))}'] = int(peak)
        lines += family(f"cachalot_device_peak_{key}", "bytes", meaning, list(samples.items()))
    return lines


def unique_labels(processes):
    seen, labels = set(), []
    for process in processes:
        index = 0
        while labels_of(process, index) in seen:
            index += 1
        labels.append(labels_of(process, index))
        seen.add(labels[-1])
    return labels


def openmetrics(verdict):
    """OpenMetrics text, which node_exporter's textfile collector reads as well."""
    labels = unique_labels(verdict.processes)
    lines = family("cachalot_check_exit_code", "",
                   "Verdict: 0 passed, 1 a gate failed, 3 a report is missing or damaged.",
                   [("", verdict.code)])
    gates = [(f'{label("gate", r.name)},{label("limit", r.limit.exact())}', int(r.passed))
             for r in verdict.results]
    lines += family("cachalot_gate_passed", "", "1 where a gate passed, 0 where it failed.",
                    gates)
    for key in (*COUNTS, *LATER, *UNKNOWNS):
        name, unit, meaning = METRICS[key]
        samples = [(own, p.totals[key]) for own, p in zip(labels, verdict.processes)
                   if p.totals[key] is not None]
        lines += family(f"cachalot_{name}", unit, meaning, samples)
    lines += device_families(verdict.processes, labels)
    return "\n".join([*lines, "# EOF", ""])


WRITERS = dict(zip(FORMS, (text, github, junit, as_json, openmetrics)))


def write_file(path, text):
    try:
        write(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise Failure(3, f"{path}: {error.strerror}") from error


def refuse_overwriting(path, reports):
    if os.path.realpath(path) in map(os.path.realpath, reports) and os.path.isfile(path):
        raise Failure(2, f"--output: {path} is one of the reports, and would be overwritten")


def has_colours(stream):
    """True for a terminal, and for the log of GitHub; never with NO_COLOR."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and \
        (stream.isatty() or os.environ.get("GITHUB_ACTIONS") == "true")


def show(made, stream, form):
    """Writes the verdict. In these two forms each line begins with words of ours, and all texts in it are printable."""
    if form in ("text", "github") and has_colours(stream):
        made = re.sub("^FAIL", f"{RED}FAIL{PLAIN}", made, flags=re.M)
        unguarded(stream).write(made)
    else:
        (unguarded(stream) if form == "github" else stream).write(made)


def check(paths, gates, options, stream, problems=()):
    """Judges the reports, writes the verdict, and returns the exit code. With `problems` there is no verdict."""
    reports = read_new_reports(paths, options["--runs"])
    reports.problems += problems
    baseline = read_baseline(gates["--baseline"], reports, options["--runs"]) if "--baseline" in gates else []
    results = []
    if reports.processes and (baseline or "--baseline" not in gates):
        results = judge(reports.processes, gates, baseline)
    failed = any(not result.passed for result in results)
    code = 3 if reports.problems or not results else int(failed)
    verdict = Verdict(reports, results, code, paths)
    made = WRITERS[options["--format"]](verdict)
    if "--output" not in options:
        show(made, stream, options["--format"])
        return code
    try:
        show(text(verdict), stream, "text")  # first, so that a problem with the file does not lose it
        stream.flush()
    finally:  # nor does a closed terminal lose the file
        refuse_overwriting(options["--output"], [*paths, *(process.path for process in [*reports.processes, *baseline])])
        write_file(options["--output"], made)
    return code
