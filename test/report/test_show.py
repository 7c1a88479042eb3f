"""cachalot show: what it prints of a report, and of what is none; and the remarks of run --summary."""

import copy
import json
import os
import subprocess

from cachalot_command.command import pages
from cachalot_command.command import show
from cachalot_command.writing import summary as summary_module
import pytest
from cachalot_command.reading.report import Report
from conftest import COMMAND, built, in_process


def test_show(place):
    process, _ = place.start("report")
    path = process.stdout.readline()[:-1]
    done = place.cachalot("show", path)
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert done.returncode == 0 and {len(line) for line in table} == {77}
    assert "\x1b" not in done.stdout and "Leaked: 3073 KiB in 2 blocks" in done.stdout
    assert "a warning with" in done.stdout


def test_memory_over_time(tmp_path, model):
    """Drawn as high as it was, where it was; with letters of ASCII where the output has no others."""
    def drawn(points, encoding="utf-8", uptime=10000):
        report = {**model, "time": {**model["time"], "uptime_ns": uptime * 1000000},
                  "series": [{"device": 0, "points": points}, {"device": 7}, 5]}
        (tmp_path / "r.json").write_text(json.dumps(report))
        done = subprocess.run([*COMMAND, "show", tmp_path / "r.json"], capture_output=True, encoding=encoding, check=True,
                              env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"})
        lines = done.stdout.splitlines()
        at = next((i for i, line in enumerate(lines) if line.startswith("Device 0 over time")), None)
        return lines[at:at + 9] if at is not None else []

    gib = 1 << 30
    steps = [[0, gib, 2 * gib, None], [2500, 3 * gib, 3 * gib, 9 * gib], [2570, gib, 3 * gib, 8 * gib], [5000, 0, 0, 60 * gib], "x", [1, 2, 3],
             [4000, 9, 9, 9], [6000, -1, 0, 0]]
    title, *rows, axis, times = drawn(steps)
    assert title == "Device 0 over time: █ allocated, ░ reserved; at least 8 GiB of it were free"
    assert rows[0].startswith("    3 GiB |") and rows[3].startswith("  1.5 GiB |") and axis.startswith("        0 +----")
    inside = [row[11:] for row in rows]
    assert [row.count("█") for row in inside] == [1, 1, 1, 1, 33, 33]
    assert [len(row.rstrip()) for row in inside] == [33] * 6 and inside[0].index("█") == 16
    assert times.split() == ["0", "5", "s", "10", "s"] and max(map(len, [*rows, axis, times])) <= 77
    plain = drawn(steps, "ascii")
    assert plain[0].startswith("Device 0 over time: # allocated, - reserved;") and plain[1][11:].count("#") == 1
    assert drawn([[0, 0, 0, None]]) == [] and drawn([]) == []
    assert drawn([[0, 512, 512, 1]], uptime=0)[1].startswith("    600 B |▁▁▁▁▁")
    assert drawn([[0, (1 << 53) - 1, (1 << 53) - 1, 1], [(1 << 53) - 1, 1, 1, 1]])[1].startswith(" 8192 TiB |█")


def test_a_folder_of_reports(tmp_path, model):
    """Those that look like reports, all of them, whatever one of them is."""
    for name, text in (("b", json.dumps(model)), ("a", json.dumps(model)), ("notes", "{}"), ("cut", json.dumps(model)[:500])):
        (tmp_path / f"{name}.json").write_text(text)
    done = subprocess.run([*COMMAND, "show", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and done.stdout.count("Cachalot memory summary") == 2 and "cut.json is cut off" in done.stderr
    assert done.stderr.count("\n") == 1
    for rank in (10, 9):
        other = {**model, "process": {**model["process"], "rank": rank, "pid": rank}}
        (tmp_path / f"r{rank}.json").write_text(json.dumps(other))
    title, *rows, blank = subprocess.run([*COMMAND, "show", tmp_path], capture_output=True, text=True, check=False).stdout.splitlines()[:5]
    assert title.split()[:3] == ["rank", "pid", "program"] and [row.split()[0] for row in rows] == ["9", "10", "-"] and blank == ""
    (tmp_path / "none").mkdir()
    done = subprocess.run([*COMMAND, "show", tmp_path / "none"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "Is a directory" in done.stderr


def test_the_newest_report_here(place, model):
    assert place.cachalot("show").returncode == 2
    for name, age in (("old", 100), ("new", 0), ("older", 200)):
        (place.work / f"{name}.json").write_text(json.dumps({**model, "process": {**model["process"], "hostname": name}}))
        os.utime(place.work / f"{name}.json", (1e9 - age, 1e9 - age))
    (place.work / "none.json").write_text("{}")
    done = place.cachalot("show")
    assert done.returncode == 0 and " on new, started" in done.stdout and done.stderr == "cachalot: new.json is the newest report here\n"


def test_ranks_are_shown(tmp_path, model, capsys):
    """In the table of a run, in their order, and of one report."""
    reports, model = [], copy.deepcopy(model)
    for rank in (10, None, 9):
        model["process"].update(rank=rank, pid=rank or 8)
        (tmp_path / "x.json").write_text(json.dumps(model))
        reports.append(Report(tmp_path / "x.json"))
    assert "make_page, rank 9, pid " in in_process(show.main, tmp_path / "x.json")[1]
    summary_module.print_summary(reports)
    lines = capsys.readouterr().err.splitlines()
    assert [line[:6].strip() for line in lines[:4]] == ["rank", "9", "10", "-"]
    summary_module.print_summary(reports[1:2])
    assert capsys.readouterr().err.split()[0] == "pid"


def test_snapshots_are_no_processes(place):
    """Of each process the last report has a line, and a page."""
    script = f"{built('make_page')} {place.pages} report; for i in 1 2; do for j in 1 2 3; do cp s.json s$i.$j.json; done; done; rm s.json"
    change = "import json, glob\n" \
             "for path in glob.glob('s*.json'):\n" \
             "    report, (i, j) = json.load(open(path)), map(int, path[1:4].split('.'))\n" \
             "    report['process']['pid'], report['sequence'], report['totals']['leaked_bytes'] = i, j, j << 20\n" \
             "    report['kind'] = 'exit' if (i, j) == (1, 2) else 'signal'\n" \
             "    json.dump(report, open(path, 'w'))"
    (place.work / "change.py").write_text(change)
    done = place.cachalot("run", "--summary", "--output", "s.json", "sh", "-c", f"{script}; python3 change.py")
    rows = [line.split() for line in done.stderr.splitlines() if line.split()[0].isdecimal()]
    assert [(row[0], row[-1]) for row in rows] == [("1", "s1.2.json"), ("2", "s2.3.json")], done.stderr


@pytest.mark.parametrize("status, wanted", [("none", "Nothing of what"), ("partial", "leave out"), ("full", None)])
def test_what_to_do_next_where_figures_leave_something_out(place, model, status, wanted, capsys):
    report = copy.deepcopy(model)
    report["coverage"].update(status=status, reasons=["a reason"])
    report["process"]["exe"] = "/opt/a program\x1b"
    path = place.work / "x.json"
    path.write_text(json.dumps(report))
    pages.say_what_is_left_out(path)  # dump
    shown = place.cachalot("show", path).stdout
    said = [" ".join(text.split()) for text in (shown, capsys.readouterr().err)]
    doctor = "Next: `cachalot doctor '/opt/a program?'`" if status == "none" else "`cachalot doctor '/opt/a program?'` looks"
    assert all((wanted in text and doctor in text) if wanted else "Next:" not in text for text in said), said
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("end, said", [
    (("signal", None, 11), "signal 11 (SIGSEGV)"), (("killed", None, 9), "killed by signal 9 (SIGKILL)"),
    (("exit", 3, 0), "exit with code 3"), (("exit", 0, 0), "exit"), (("unknown", None, None), "unknown"),
    (("signal", None, 999), "signal 999"), (("signal", None, "x"), "signal")])
def test_the_end_and_what_went_past_the_cache_are_shown(tmp_path, model, end, said, capsys):
    report = copy.deepcopy(model)
    report["exit"].update(zip(("reason", "code", "signal"), end))
    report["others"]["pool"]["peak_bytes"] = 64 << 20
    report["totals"]["requests"] = 0
    report["oom_events"] = [{"explanation": "It was too much", "would_serve": ["a:1"]}]
    (tmp_path / "x.json").write_text(json.dumps(report))
    shown = in_process(show.main, tmp_path / "x.json")[1]
    assert f"; end: {said}; " in shown and "\nMemory that was taken past the cache: stream_ordered 64 MiB\n" in shown
    summary_module.print_summary([Report(tmp_path / "x.json")])
    summary = capsys.readouterr().err
    assert "past the cache: stream_ordered 64 MiB" in summary and ("counts as leaked" in summary) == (end[2] in (9, 11, 999))
    assert "out of memory: It was too much. Would have served it: CACHALOT_CONF=a:1\n" in summary


def test_show_goes_on_after_what_is_no_report(place, model):
    (place.work / "a.json").write_text("{}")
    (place.work / "b.json").write_text(json.dumps(model))
    done = place.cachalot("show", "a.json", "none.json", "b.json")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 2) and "Leaked: " in done.stdout


@pytest.mark.parametrize("name, lines", [
    ("NVIDIA H200", 1), ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 2),
    ("word " * 40, 4), ("x" * 200, 4)])
def test_show_cuts_no_name(place, name, lines):
    (place.work / "x.json").write_text(json.dumps(
        {"schema_version": "1.0.0", "devices": [{"device": 0, "name": name}]}))
    out = place.cachalot("show", "x.json").stdout
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert {len(line) for line in table} == {77}
    titles = [line[1:-1].strip() for line in table[1:1 + lines]]
    assert table[1 + lines] == "|" + "-" * 75 + "|"
    assert "".join(titles).replace(" ", "").endswith(name.replace(" ", ""))


@pytest.mark.parametrize("content", [
    "", "{}", "[]", "nonsense", '{"schema_version": "2.0.0"}', "[" * 100000, "\xff", "9" * 10000])
def test_show_of_what_is_no_report(place, content):
    (place.work / "x.json").write_text(content, encoding="latin-1")
    done = place.cachalot("show", "x.json")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert place.cachalot("show", "none.json").returncode == 3


@pytest.mark.parametrize("command", ["show", "check"])
def test_what_is_larger_than_any_report_is_not_read(place, command):
    """Not into memory: it has less than the file."""
    with open(place.work / "x.json", "wb") as file:
        file.write(b'{"schema_version": "1.0.0", "x": "')
        file.truncate(1 << 30)
    for path in ("x.json", "/dev/zero"):
        script = 'ulimit -v 1500000; exec "$@"'
        done = place.run("sh", "-c", script, "sh", *COMMAND, command, path, *(["--max-oom", "0"] if command == "check" else []))
        assert done.returncode == 3 and "is larger than any report" in done.stdout + done.stderr, done.stderr


@pytest.mark.parametrize("content", [
    '{"schema_version": "1.0.0"}',
    '{"schema_version": "1.0.0", "devices": [{"statistics": 3, "name": "\\u001b[2J"}],'
    ' "leaks": [{}], "warnings": [1, {}], "totals": {"leaked_bytes": 1e999},'
    ' "coverage": {"reasons": [null], "status": [{}]}}'])
def test_show_of_an_odd_report(place, content):
    (place.work / "x.json").write_text(content)
    done = place.cachalot("show", "x.json")
    assert done.returncode == 0 and "\x1b" not in done.stdout, done.stderr
