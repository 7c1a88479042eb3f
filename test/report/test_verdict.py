"""cachalot check: the forms of the verdict, hostile texts in them, the language of limits."""

import copy
import json
import os
import stat
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import COMMAND, ROOT, SCHEMA, Failure, check_command
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cachalot_command.common import limits
from cachalot_command.writing import gates as gates_module

FORMATS = ("text", "github", "junit", "json", "openmetrics")
MIB = 1 << 20


def test_output_file_and_text(run):
    run.add(leaked_bytes=1)
    target = run.work / "gate.xml"
    target.write_text("old")
    done = run.check(run.folder, "--max-leaked", "0", "--format", "junit", "--output", target)
    assert done.returncode == 1 and "FAIL max-leaked" in done.stdout
    suite = ElementTree.parse(target).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert not list(run.work.glob(".cachalot*"))


def test_a_verdict_into_the_folder_that_is_judged(run):
    """The shell makes the file before we look."""
    run.add()
    for _ in range(2):  # then the older one is there, and is no report
        with open(run.folder / "gate.json", "wb") as gate:
            done = subprocess.run([*COMMAND, "check", run.folder, "--max-oom", "0", "--format", "json"], stdout=gate, check=False)
        assert done.returncode == 0 and json.loads((run.folder / "gate.json").read_text())["passed"]


def test_what_is_no_file_is_written_to_not_replaced(run):
    """As root, /dev/null would be gone."""
    run.add()
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    (run.work / "file").touch()
    (run.work / "link").symlink_to("file")
    for name in ("pipe", "link"):
        assert run.check(run.folder, "--max-oom", "0", "--format", "json", "--output", name).returncode == 0
    assert json.loads(os.read(reader, 100000))["passed"] and stat.S_ISFIFO(os.lstat("pipe").st_mode)
    assert json.loads((run.work / "file").read_text())["passed"] and (run.work / "link").is_symlink()
    os.close(reader)
    for name in (run.folder, "no/folder/x"):
        done = run.check(run.folder, "--max-oom", "0", "--output", name)
        assert done.returncode == 3 and "passed: 2 gates" in done.stdout  # the verdict is not lost with it


def test_github_annotations_name_file_and_gate(run):
    path = run.add(leaked_bytes=1, peak_utilization_ratio=0.5)
    lines = run.check(path, "--max-leaked", "0", "--min-utilization", "90%", "--format",
                      "github").stdout.splitlines()
    errors = [line for line in lines if line.startswith("::error ")]
    assert len(errors) == 2 and all(f"file={path}," in line for line in errors)
    assert "90.00 %25" in errors[1] and "title=cachalot%3A max-leaked::" in errors[0]


HOSTILE = st.text(max_size=30) | st.sampled_from(
    ["\x1b[2J", "::error::x", "##[error]x", "\n::stop-commands::x", 'a"b\\c', "]]>", "<a&b>",
     "\ud800", "\u202e", "%0A::warning::", "# EOF\n"])


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=8)
@given(texts=st.lists(HOSTILE, min_size=6, max_size=6))
@example(texts=['a"b\\c', "##[error]x", "<a&b>", "::error::x", "# EOF\n", "]]>"])
@example(texts=["::error::x", '"\\', "\n::warning::", "\ud800", "\x1b[2J", "\u202e"])
def test_hostile_texts_stay_texts(place, model, texts, form):
    report = copy.deepcopy(model)
    report["process"].update(zip(("hostname", "exe", "rank", "session"), texts))
    report["process"]["pid"] = texts[4]
    report["coverage"].update(status="partial", reasons=texts)
    report["others"] = {texts[5]: {"peak_bytes": 1}}
    report["leaks"] = [{"device": text, "count": text} for text in texts]
    report["totals"]["requests"] = 0
    path = place.work / "h.json"
    path.write_text(json.dumps(report))
    done = place.cachalot("check", path, "--max-leaked", "0", "--max-oom", "0", "--format", form)
    assert done.returncode == 1 and done.stderr == "", done.stderr
    assert all(c.isprintable() or c == "\n" for c in done.stdout)
    if form == "junit":
        ElementTree.fromstring(done.stdout)
    elif form == "json":
        json.loads(done.stdout)
    elif form == "openmetrics":
        parse_metrics(done.stdout)
    else:
        assert "##[" not in done.stdout
        commands = [line for line in done.stdout.splitlines() if line.lstrip().startswith("::")]
        assert all(line.startswith(("::error file=", "::notice title=cachalot::"))
                   for line in commands)


@pytest.mark.parametrize("more, coloured", [({"GITHUB_ACTIONS": "true"}, True), ({}, False), ({"GITHUB_ACTIONS": "true", "NO_COLOR": "1"}, False)])
@pytest.mark.parametrize("form", ["text", "github"])
def test_what_fails_is_red_where_colours_are_known(place, model, more, coloured, form):
    """And nothing that a report says is."""
    report = copy.deepcopy(model)
    report["process"].update(hostname="\x1b[31mFAIL\nFAIL")
    (place.work / "h.json").write_text(json.dumps(report))
    done = place.cachalot("check", "h.json", "--max-leaked", "0", "--format", form, env={**place.environment, **more})
    assert done.returncode == 1 and done.stdout.count("\x1b[1;31mFAIL\x1b[0m max-leaked") == int(coloured)
    assert done.stdout.count("\x1b") == 2 * coloured
    done = place.cachalot("check", "h.json", "--max-leaked", "0", "--format", "json", env={**place.environment, **more})
    assert "\x1b" not in done.stdout


def parse_metrics(text):
    """{name: {labels: value}}, by the parsers of OpenMetrics and of what node_exporter reads."""
    pytest.importorskip("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
    from prometheus_client.parser import text_string_to_metric_families as plain
    metrics = {}
    for family in strict(text):
        assert family.documentation and family.type == "gauge", family.name
        metrics[family.name] = {tuple(sorted(s.labels.items())): s.value for s in family.samples}
        assert all(s.timestamp is None for s in family.samples)
    assert {f.name: f.type for f in plain(text)} == dict.fromkeys(metrics, "gauge")
    return metrics


def test_junit_counts_cases_with_errors(run):
    for paths, errors in (((run.add(), "no1", "no2"), "1"), ((run.add(),), "0")):
        suite = ElementTree.fromstring(run.check(*paths, "--max-oom", "0", "--format", "junit").stdout)
        found = [case for case in suite.iter("testcase") if case.find("error") is not None]
        assert suite.get("errors") == suite.find("testsuite").get("errors") == errors == str(len(found)) == str(len(list(suite.iter("error"))))
        assert not found or {"no1: No such file", "no2: No such file"} <= {p[:17] for p in found[0].find("error").get("message").split("; ")}


def test_junit_of_two_runs_is_not_merged(run):
    """Readers merge suites of one name (junitparser), or take cases of one class and name for one (Jenkins)."""
    run.add(process={"argv": ["/usr/bin/python3", "train.py", "--bf16 <&>"]})
    other = run.folder / "other"
    other.mkdir()
    run.add(process={"argv": ["train", "x" * 1000]}).rename(other / "r.json")
    suites = [ElementTree.fromstring(run.check(path, "--max-oom", "0", "--format", "junit").stdout).find("testsuite")
              for path in (next(run.folder.glob("*.json")), other)]
    assert suites[0].get("name") == "cachalot check python3 train.py --bf16 <&>"
    assert suites[1].get("name").startswith(f"cachalot check {other}: train xxx") and len(suites[1].get("name")) <= 230
    classes = [{case.get("classname") for case in suite.iter("testcase")} for suite in suites]
    assert classes == [{suite.get("name").replace(" check", "", 1)} for suite in suites]


def test_openmetrics(run):
    for rank in range(2):
        run.add(rank=rank, peak_reserved_bytes=5 + rank, leaked_bytes=None)
    run.add(process={"pid": 1001}, rank=0)  # the same names, another start
    path = run.folder / "r3.json"
    report = json.loads(path.read_text())
    report["process"]["start_ticks"] += 1
    path.write_text(json.dumps(report))
    done = run.check(run.folder, "--max-oom", "0", "--max-warnings", "0", "--format",
                     "openmetrics")
    metrics = parse_metrics(done.stdout)
    assert metrics["cachalot_check_exit_code"] == {(): 1}
    values = metrics["cachalot_peak_reserved_bytes"]
    assert sorted(values.values()) == [5, 6, 22 * MIB] and len(values) == 3
    assert {dict(labels).get("rank") for labels in values} == {"0", "1"}
    assert len(metrics["cachalot_leaked_bytes"]) == 1  # what is unknown is left out
    gates = {dict(labels)["gate"]: v for labels, v in metrics["cachalot_gate_passed"].items()}
    assert gates == {"coverage": 1, "max-oom": 1, "max-warnings": 0}
    devices = metrics["cachalot_device_peak_allocated_bytes"]
    assert {dict(labels)["device"] for labels in devices} == {"0"}
    done = run.check(run.folder, "--format", "openmetrics")  # of use without a gate, too
    assert done.returncode == 0 and parse_metrics(done.stdout)["cachalot_peak_reserved_bytes"] == values


@pytest.mark.parametrize("gates, failed", [
    ("--max-leaked 88080383 --max-leaked 88080384", ["88080383"]), ("--max-leaked 88080384 --max-leaked 88080383", ["88080383"]),
    ("--max-leaked sum:88080384 --max-leaked 88080383", ["88080383"]), ("--min-hits 0.5 --min-hits 0.500001", ["0.500001"])])
def test_no_gate_hides_another(run, gates, failed):
    run.add(leaked_bytes=88080384, hit_ratio=0.5)
    done = run.check(run.folder, *gates.split(), "--format", "openmetrics")
    metrics = parse_metrics(done.stdout)
    assert metrics["cachalot_check_exit_code"] == {(): 1} and len(metrics["cachalot_gate_passed"]) == 3
    assert [dict(labels)["limit"] for labels, passed in metrics["cachalot_gate_passed"].items() if not passed] == failed
    suite = ElementTree.fromstring(run.check(run.folder, *gates.split(), "--format", "junit").stdout)
    assert len({case.get("name") for case in suite.iter("testcase")}) == 4


@pytest.mark.parametrize("gate, old, new, said", [
    ("--min-hits 100%", {}, {"hit_ratio": 0.99999}, "min-hits (at least 100.00 %): 99.999 % ("),
    ("--min-hits 90.001%", {}, {"hit_ratio": 0.90000999}, "min-hits (at least 90.001 %): 90.000999 % ("),
    ("--min-utilization 99%", {}, {"peak_utilization_ratio": 0.98}, "min-utilization (at least 99.00 %): 98.00 % ("),
    ("--baseline old", {"peak_reserved_bytes": 1000 * MIB}, {"peak_reserved_bytes": 10504 * MIB // 10},
     "increase of peak_reserved_bytes (at most 5.00 %): 1000 MiB to 1050 MiB, +5.04 % ("),
    ("--baseline old", {"peak_reserved_bytes": 1000 * MIB}, {"peak_reserved_bytes": 1050 * MIB + 1}, "+5.0000001 % ("),
    ("--baseline old --max-increase 0", {"leaked_bytes": 1 << 40}, {"leaked_bytes": (1 << 40) + 1}, ", +0.0000000001 % (")])
def test_a_figure_that_fails_is_not_rounded_to_its_limit(run, gate, old, new, said):
    run.add("old", run.work, **old)
    done = run.check(run.add(**new), *gate.split())
    assert done.returncode == 1 and said in done.stdout, done.stdout


def test_spread_is_not_rounded_to_its_limit(run):
    for size in (100000, 94999):
        run.add(peak_reserved_bytes=size)
    assert "FAIL max-spread (at most 5.00 %): 5.001 %: " in run.check(run.folder, "--max-spread", "5%").stdout


def test_only_who_asked_for_memory_counts_as_a_report(run):
    """As in the line of their peaks: not what only starts others."""
    for requests in (0, 5, 5):
        run.add(requests=requests, leaked_bytes=0)
    for least, mark in ((2, "ok  "), (3, "FAIL")):
        done = run.check(run.folder, "--require-reports", least)
        assert done.returncode == (least == 3)
        assert f"{mark} require-reports (at least {least}): reports of 2 processes, and of 1 that asked for no memory\n" in done.stdout
    assert "peak reserved of 2 processes" in done.stdout
    idle = [run.add(f"i{i}", run.work, requests=0) for i in range(2)]
    done = run.check(*idle, "--require-reports", "2", "--require-coverage", "none")
    assert done.returncode == 0 and "(at least 2): reports of 2 processes\n" in done.stdout


def test_what_a_peak_of_several_devices_is_is_said(run):
    run.add()
    metrics = run.check(run.folder, "--format", "openmetrics").stdout
    for text in (metrics, check_command.HELP, SCHEMA["properties"]["totals"]["description"], (ROOT / "docs/reports.md").read_text()):
        assert "on several GPUs" in text and "the sum of the devices' peaks" in text
    assert metrics.count("the sum of the devices' peaks") == 2


@given(st.lists(st.tuples(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1)), min_size=1,
                max_size=8), st.integers(0, 2**53 - 1))
def test_verdict_is_that_of_every_process(values, limit):
    class Fake:
        def __init__(self, rank, reserved, requests):
            self.rank, self.coverage = rank, "full"
            self.totals = {"peak_reserved_bytes": reserved, "requests": requests}
            self.past = {}
            self.report = self

        def get(self, *keys):
            return None

        number = get

        def of_kind(self, key, kind):
            return self.totals[key] if kind in (None, "device") else 0

        def is_idle(self):
            return False

        def name(self):
            return str(self.rank)

    processes = [Fake(i, *value) for i, value in enumerate(values)]
    gates = {"--max-peak-reserved": [("each", limit), ("sum", limit)]}
    _, each, total = gates_module.judge(processes, gates, [])
    reserved = [value for value, _ in values]
    assert each.passed == all(r <= limit for r in reserved)
    assert each.failed == sum(r > limit for r in reserved)
    assert total.passed == (sum(reserved) <= limit) and total.value == sum(reserved)


@given(st.integers(0, 10**15), st.sampled_from(["", "B", "K", "KiB", "MiB", "G", "GB", "TB"]))
def test_sizes(amount, unit):
    scale = {"": 1, "B": 1, "K": 2**10, "KiB": 2**10, "MiB": 2**20, "G": 2**30, "GB": 10**9,
             "TB": 10**12}
    assert limits.parse_size(f"{amount}{unit}") == amount * scale[unit]


@given(st.text(max_size=12))
def test_no_limit_text_is_a_crash(text):
    for parser in (*limits.PARSERS.values(), limits.parse_increase,
                   limits.parse_words):
        try:
            parser(text)
        except Failure as failure:
            assert failure.code == 2


def test_gates_in_one_word():
    gates, options = limits.parse_words(
        "max-leaked=0, --max-oom 2,'baseline=a b.json' format=junit")
    assert gates["--max-leaked"] == [("each", 0)] and gates["--max-oom"] == [("each", 2)]
    assert gates["--baseline"] == ["a b.json"] and options["--format"] == "junit"
