"""cachalot export: what other tools read, and where it goes."""

import contextlib
import copy
import io
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
from datetime import datetime, timedelta

from cachalot_command.command import export as export_module
from cachalot_command.reading import history as history_module
from cachalot_command.reading import recorded
from cachalot_command.reading import report as report_module
from cachalot_command.writing.html import pages_of_run
import pytest
import trace_processor
from conftest import ROOT, SCHEMA, built, command_help_fits, in_process, jsonschema
from history_of import report_with_history, report_with_mapped

TRACE = b"op,id,bytes,stream\na,1,1000,0\na,2,5000000,0\nf,1,,0\na,1,77,3\nf,2\n"


@pytest.fixture(scope="module")
def history(model):
    return report_with_history(model, 2000)


def run(*arguments):
    return in_process(export_module.main, *arguments)


def export(work, content, option):
    """The file that is made of the report or trace."""
    path, made = work / "in.json", work / ("out" + option)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    code, said = run(path, option, made)
    assert code == 0, said
    return made


def replay(path):
    environment = {**os.environ, "CACHALOT_LIBRARY": os.path.join(os.path.dirname(built("cachalot-replay")), "x.so")}
    done = subprocess.run([sys.executable, ROOT / "scripts/cachalot", "replay", path, "--format", "json"],
                          env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["totals"]


def test_the_names_of_events_are_the_library_s():
    """In its order: a recorded trace has their numbers."""
    names = re.findall(r"^    X\((\w+)\)", (ROOT / "stats/events/events.h").read_text(), re.MULTILINE)
    assert names == list(recorded.ACTIONS)
    assert names == SCHEMA["$defs"]["event"]["properties"]["action"]["enum"]
    assert {*names, "free_requested"} == {*history_module.CHANGES, *recorded.UNCACHED}
    layout = (ROOT / "stats/page/layout.h").read_text()
    kinds = re.findall(r"^    X\(\w+, (\w+)\)", layout[layout.index("#define UNCACHED_LIST"):layout.index("enum uncached_kind")], re.MULTILINE)
    assert list(recorded.KINDS) == ["device", *kinds] == ["device", *SCHEMA["$defs"]["kind"]["properties"]["kind"]["enum"]]


def test_the_fixture_is_what_the_library_writes(history):
    def check(values, name):
        schema = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "$defs": SCHEMA["$defs"]}
        jsonschema.Draft202012Validator(schema).validate(values)

    segments = copy.deepcopy(history["devices"][0]["segments"])
    for segment in segments:
        assert sum(b["size_bytes"] for b in segment["blocks"]) == segment["total_bytes"]
        for block in segment["blocks"]:
            block.pop("site", None)
    check(segments, "segment")
    rows = history["events"]["rows"]
    check(rows[:200] + [row for row in rows if row["action"] in ("oom", "fence_wait")], "event")


def test_help_and_usage(tmp_path):
    command_help_fits(export_module.HELP)
    path = tmp_path / "t.csv"
    path.write_bytes(TRACE)
    for wrong in ((), (path,), (path, path, "--csv", "x"), (path, "--csv"), (path, "--else"), (path, "--csv="),
                  (path, "--csv", "-", "--html", "-"), (path, "--csv", "x", "--device", "one")):
        assert run(*wrong)[0] == 2, wrong
    for place in (tmp_path / "no" / "x", tmp_path):
        assert run(path, "--csv", place)[0] == 1
    assert run(tmp_path / "none.json", "--csv", tmp_path / "x")[0] == 3
    assert sorted(os.listdir(tmp_path)) == ["t.csv"]


# The history.

def levels_at_the_end(history):
    now = list(history.levels)
    for event in history.events:
        for i, sign in enumerate(history_module.CHANGES.get(event.action, ())):
            now[i] += sign * event.size
    return now


@pytest.mark.parametrize("lost", [0, 1, 700, 1999])
def test_levels_end_where_the_report_says(tmp_path, model, lost):
    report = report_with_history(model, 2000, lost=lost)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report))
    source = history_module.from_report(str(path))
    history = source.histories[0]
    stats = report["devices"][0]["statistics"]
    assert levels_at_the_end(history) == [stats[n]["all"]["current"] for n in history_module.LEVELS]
    assert (history.levels == (0, 0, 0)) == (lost == 0)
    held = sum(b.size for b in history.before)
    assert held == history.levels[0] if lost < 2000 else held >= 0
    assert source.lost == lost


def test_a_free_is_two_events_and_completed_when_it_was():
    event = history_module.Event
    rows = [event(1, "alloc", 512, 512, 5), event(2, "free", 512, 512, 5), event(3, "alloc", 512, 512, 5),
            event(4, "free", 512, 512, 5), event(5, "free_completed", 512, 512, 5), event(6, "free", 1024, 512, 5),
            event(7, "free", 2048, 512, 5)]
    made = [(e.time, e.action) for e in history_module.two_frees(rows, [1024])]
    assert made == [(1, "alloc"), (2, "free_requested"), (2, "free_completed"), (3, "alloc"), (4, "free_requested"),
                    (5, "free_completed"), (6, "free_requested"), (7, "free_requested"), (7, "free_completed")]


# CSV.

@pytest.mark.parametrize("lost", [0, 900])
def test_csv_replays_with_the_peaks_of_the_run(tmp_path, model, lost):
    report = report_with_history(model, 3000, lost=lost)
    made = export(tmp_path, report, "--csv")
    lines = made.read_text().splitlines()
    assert lines[0] == "Thread,Time,Action,Pointer,Size,Stream"
    source = history_module.from_report(str(tmp_path / "in.json"))
    now = peak = sum(b.requested for b in source.histories[0].before)
    for event in source.histories[0].events:
        now += {"alloc": 1, "free_requested": -1}.get(event.action, 0) * event.requested
        peak = max(peak, now)
    totals = replay(made)
    blocks = [b for s in report["devices"][0]["segments"] for b in s["blocks"] if b["state"] == "allocated"]
    assert totals["peak_requested_bytes"] == peak
    assert now == sum(b["requested_bytes"] for b in blocks)
    assert totals["requests"] - totals["frees"] == len(blocks)


def test_csv_has_rmms_fields(tmp_path, history):
    import csv
    with open(export(tmp_path, history, "--csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert {r["Action"] for r in rows} == {"allocate", "free", "allocate failure"}
    for row in rows:
        failed = row["Action"] == "allocate failure"
        assert re.fullmatch(r"\(nil\)" if failed else "0x[0-9a-f]+", row["Pointer"]) and int(row["Size"]) > 0
        assert row["Stream"] == "0"
        assert re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}", row["Time"])
    began = datetime.strptime(history["time"]["start"], "%Y-%m-%dT%H:%M:%S.%fZ")
    first = began + timedelta(microseconds=history["events"]["rows"][0]["time_ns"] // 1000)
    assert rows[0]["Time"] >= first.strftime("%H:%M:%S.%f")
    assert [r["Time"] for r in rows] == sorted(r["Time"] for r in rows) or history["time"]["start"][11:13] == "23"


def test_recorded_training_keeps_its_peaks(tmp_path):
    trace = ROOT / "test/replay/traces/certified/resnet50.csv.gz"
    assert run(trace, "--csv", tmp_path / "csv", "--memory-viz", tmp_path / "viz")[0] == 0
    first, second, third = replay(trace), replay(tmp_path / "csv"), replay(tmp_path / "viz")
    keys = ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "requests")
    assert [first[k] for k in keys] == [second[k] for k in keys] == [third[k] for k in keys]


# Perfetto.

class Tracks:
    """What a Perfetto trace says, read by Perfetto's own definitions."""

    def __init__(self, trace):
        self.names, self.values, self.slices, self.instants = {}, {}, [], []
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            if packet.HasField("track_descriptor"):
                self.names[packet.track_descriptor.uuid] = packet.track_descriptor.name
            if packet.HasField("track_event"):
                self.add(packet.timestamp, packet.track_event)

    def add(self, time, event):
        assert event.track_uuid in self.names
        name = self.names[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            self.values.setdefault(name, []).append((time, event.counter_value))
        elif event.type == event.TYPE_INSTANT:
            self.instants.append((time, event.name))
        else:
            self.slices.append((time, name, event.type == event.TYPE_SLICE_BEGIN))


def perfetto_trace(data):
    module = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2",
                                 reason="Perfetto's definitions are not here: pip install perfetto")
    trace = module.Trace()
    assert trace.ParseFromString(data) == len(data)
    assert not unknown_fields(trace)
    return trace


def unknown_fields(message):
    """Does any message in it have a field that the schema does not know?"""
    from google.protobuf.unknown_fields import UnknownFieldSet
    if len(UnknownFieldSet(message)):
        return True
    values = [v for field, value in message.ListFields() if field.message_type
              for v in (value if hasattr(value, "__len__") and not hasattr(value, "ListFields") else [value])]
    return any(unknown_fields(v) for v in values)


@pytest.mark.parametrize("lost", [0, 700])
def test_perfetto_has_the_levels(tmp_path, model, lost):
    report = report_with_history(model, 2000, lost=lost)
    tracks = Tracks(perfetto_trace(export(tmp_path, report, "--perfetto").read_bytes()))
    stats = report["devices"][0]["statistics"]
    for name in ("allocated", "active", "reserved"):
        values = [v for _, v in tracks.values[f"GPU 0 {name}"]]
        assert values[-1] == stats[f"{name}_bytes"]["all"]["current"] and min(values) >= 0
        assert max(values) == stats[f"{name}_bytes"]["all"]["peak"] or lost
    oom = next(r for r in report["events"]["rows"] if r["action"] == "oom")
    assert (oom["time_ns"], "out of memory") in tracks.instants
    waits = [r for r in report["events"]["rows"] if r["action"] == "fence_wait"]
    assert len(tracks.slices) == 2 * len(waits) > 0


def test_perfetto_has_the_whole_life(tmp_path, model):
    """Also of a report without events."""
    points = [[0, 1024, 2048, None], [10, 4096, 8192, 512], [500, 0, 8192, 1024]]
    report = {key: value for key, value in model.items() if key != "events"}
    report["series"] = [{"device": 0, "points": points}]
    values = Tracks(perfetto_trace(export(tmp_path, report, "--perfetto").read_bytes())).values
    assert values["GPU 0 allocated, whole life"] == [(ms * 1000000, allocated) for ms, allocated, *_ in points]
    assert values["GPU 0 free, whole life"] == [(10000000, 512), (500000000, 1024)] and len(values) == 3


def test_perfettos_own_processor_reads_it(tmp_path, model):
    """As ui.perfetto.dev would: levels, waits, instants and names, and nothing that it could not read."""
    report = report_with_history(model, 2000)
    levels, slices, processes = trace_processor.query(
        export(tmp_path, report, "--perfetto").read_bytes(), trace_processor.LEVELS,
        "select ts, dur, name from slice", "select pid, name from process where pid")
    stats = report["devices"][0]["statistics"]
    for name in ("allocated", "active", "reserved"):
        values = [value for track, _, value in levels if track == f"GPU 0 {name}"]
        assert (values[-1], max(values)) == tuple(stats[f"{name}_bytes"]["all"][part] for part in ("current", "peak"))
    rows = report["events"]["rows"]
    assert sorted(s[:2] for s in slices if s[2] == "wait for a fence") == \
        sorted((r["time_ns"] - r["duration_ns"], r["duration_ns"]) for r in rows if r["action"] == "fence_wait")
    oom = next(r for r in rows if r["action"] == "oom")
    assert (oom["time_ns"], 0, "out of memory") in slices
    assert processes == [(report["process"]["pid"], history_module.program_of(report_module.Report(tmp_path / "in.json")))]


# run --html, and where files go.

def test_several_at_once_and_to_standard_output(tmp_path, history):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(history))
    command = [sys.executable, ROOT / "scripts/cachalot", "export", path, "--csv", "-", "--html", tmp_path / "p.html"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith(b"Thread,Time,") and (tmp_path / "p.html").is_file()
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "p.html").stat().st_mode == plain.stat().st_mode


def test_standard_output_that_is_lost(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(TRACE)
    reader, closed = os.pipe()
    os.close(reader)
    for output, code, said in ((os.open("/dev/full", os.O_WRONLY), 3, "cachalot: No space left on device\n"), (closed, 1, "")):
        done = subprocess.run([sys.executable, ROOT / "scripts/cachalot", "export", path, "--csv", "-"], stdout=output,
                              stderr=subprocess.PIPE, text=True, check=False)
        os.close(output)
        assert (done.returncode, done.stderr) == (code, said)


def test_a_link_is_followed(tmp_path):
    path, link = tmp_path / "t.csv", tmp_path / "link"
    path.write_bytes(TRACE)
    (tmp_path / "folder").mkdir()
    link.symlink_to("folder/made")
    for _ in range(2):
        assert run(path, "--csv", link) == (0, "") and link.is_symlink()
    assert (tmp_path / "folder/made").read_bytes().startswith(b"Thread,") and os.listdir(tmp_path / "folder") == ["made"]


def test_csv_of_several_devices_needs_a_choice(tmp_path, model):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report_with_history(model, 500, devices=2)))
    code, said = run(path, "--csv", tmp_path / "x")
    assert code == 2 and "0, 1" in said
    assert run(path, "--csv", tmp_path / "x", "--device", "1")[0] == 0
    assert run(path, "--csv", tmp_path / "x", "--device", "2")[0] == 2


def test_a_device_is_chosen_in_every_form(tmp_path, model):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report_with_history(model, 500, devices=2)))
    made = {option: tmp_path / option for option in ("--html", "--memory-viz", "--perfetto", "--csv")}
    assert run(path, "--device", "1", *(word for pair in made.items() for word in pair)) == (0, "")
    page = made["--html"].read_text().split('<script id="data" type="application/json">')[1].split("</script>")[0]
    assert [d["index"] for d in json.loads(page)["devices"]] == [1]
    snapshot = pickle.loads(made["--memory-viz"].read_bytes())
    assert [bool(t) for t in snapshot["device_traces"]] == [False, True] and {s["device"] for s in snapshot["segments"]} == {1}
    assert b"GPU 1 allocated" in made["--perfetto"].read_bytes() and b"GPU 0" not in made["--perfetto"].read_bytes()
    for option in made:
        code, said = run(path, option, tmp_path / "x", "--device", "2")
        assert code == 2 and "no device 2, but 0, 1" in said


@pytest.mark.parametrize("make, lost, said", [
    (report_with_mapped, 0, "only a running one can tell where mapped memory lies"), (report_with_mapped, 3, "mapped memory"),
    (report_with_history, 7, "the 7 oldest of the events"), (report_with_history, 0, "Each bar is a segment")])
def test_the_page_of_a_killed_program(tmp_path, model, make, lost, said):
    path, made = tmp_path / "r.json", tmp_path / "page.html"
    report = make(model, lost=lost)
    report.update(kind="harvest", exit={"reason": "killed", "code": None, "signal": 9, "clean": False})
    report["config"]["expandable_segments"] = {"value": "auto: True" if make is report_with_mapped else "False", "source": "default"}
    report["devices"][0]["segments"] = None
    path.write_text(json.dumps(report))
    assert run(path, "--html", made) == (0, "")
    page = json.loads(made.read_text().split('<script id="data" type="application/json">')[1].split("</script>")[0])
    assert said in page["devices"][0]["mapHint"] and ("mapped" in said) is ("mapped" in page["devices"][0]["mapHint"])
    tiles = {name: (meaning, bad) for name, _, meaning, bad in page["devices"][0]["tiles"]}
    assert "Never freed" not in tiles and tiles["Still held"] == ("when the program was killed, all devices", False)


def test_run_makes_the_page(place):
    child = [built("make_page"), str(place.pages), "report"]
    done = place.cachalot("run", "--html", "page.html", *child)
    assert done.returncode == 0, done.stderr
    assert "page.html shows" in done.stderr and "GPU memory of" in (place.work / "page.html").read_text()


def test_run_says_before_it_starts_that_there_can_be_no_page(place):
    done = place.cachalot("run", "--html", "no/page.html", "touch", "started")
    assert done.returncode == 125 and not (place.work / "started").exists()
    place.environment["CACHALOT_CHART_JS"] = "none.js"
    done = place.cachalot("run", "--html", "page.html", "touch", "started")
    assert done.returncode == 125 and "libjs-chart.js" in done.stderr and not (place.work / "started").exists()


@pytest.mark.parametrize("options", [
    ("--output", "same.json", "--html", "same.json"), ("--trace", "t", "--html", "./t"), ("--check", "max-oom=0,output=no/x"),
    ("--check", "max-oom=0,output=.")])
def test_run_refuses_before_it_starts_what_would_be_lost(place, options):
    done = place.cachalot("run", *options, "touch", "started")
    assert done.returncode == 125 and not (place.work / "started").exists()


def test_a_report_is_not_made_into_a_page_of_its_own_name(tmp_path, history):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(history))
    assert "overwritten" in pages_of_run([history_module.Report(str(path))], str(path), 1)[0]
    assert json.loads(path.read_text()) == history


def test_run_asks_for_events_unless_the_user_did(place):
    for given, expected in ((None, "100000"), ("5", "5")):
        place.environment.pop("CACHALOT_EVENTS", None)
        if given:
            place.environment["CACHALOT_EVENTS"] = given
        done = place.cachalot("run", "--html", "p.html", "sh", "-c", 'echo "$CACHALOT_EVENTS"')
        assert done.stdout.strip() == expected and "no report" in done.stderr


def test_pages_of_several_processes(tmp_path, history, capsys):
    reports = []
    for pid in (7, 9):
        report = copy.deepcopy(history)
        report["process"]["pid"] = pid
        path = tmp_path / f"r{pid}.json"
        path.write_text(json.dumps(report))
        reports.append(history_module.Report(str(path)))
    assert pages_of_run(reports, str(tmp_path / "p.html"), 9) == []
    assert (tmp_path / "p.7.html").is_file()
    assert "p.html shows" in capsys.readouterr().err
    assert "pid 9 on" in pathlib.Path(tmp_path / "p.html").read_text()


def test_pages_of_an_exec_chain(place, model):
    """One for each program that the process was, the last one's under the name that was asked for."""
    reports = []
    for n, (pid, generation) in enumerate(((9, 0), (7, 0), (7, 2), (7, 1), (7, 2), (9, 0))):
        model["process"].update(pid=pid, generation=generation)
        model["kind"] = "exit" if n < 4 else "request"  # on the way
        path = place.work / f"{n}.json"
        path.write_text(json.dumps(model))
        reports.append(report_module.Report(str(path)))
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert pages_of_run(reports, str(place.work / "a.html"), 7) == []
    shown = [[os.path.basename(word) for word in line.split()[1::2]] for line in said.getvalue().splitlines()]
    assert shown == [["a.html", "2.json"], ["a.7.1.html", "3.json"], ["a.7.0.html", "1.json"], ["a.9.html", "0.json"]]
