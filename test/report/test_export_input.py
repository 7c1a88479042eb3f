"""cachalot export, given files that are not what they should be."""

import contextlib
import gzip
import json
import os
import pickle

from cachalot_command.command import export
from cachalot_command.reading import mapped as mapped_module
from cachalot_command.reading import sources
from cachalot_command.writing import html
import pytest
import trace_processor
from cachalot_command.reading.history import Event
from cachalot_command.reading.sources import read_source
from conftest import in_process
from history_of import report_with_history
from hypothesis import example, given, settings
from hypothesis import strategies as st

MIB = 1 << 20
OPTIONS = ("--html", "--memory-viz", "--perfetto", "--pprof", "--speedscope", "--csv")


def run(*arguments):
    return in_process(export.main, *arguments)


STRANGE = (b"", b"{", b"[]", b"null", b'{"schema_version": 7}', b"\x1f\x8b\x08", b"\x80\x04",
           b"\x80\x04cos\nsystem\n(S'x'\ntR.", b"op,id,bytes,stream\n", b"hello\x1b[31m\n",
           b'{"schema_version": "2.0.0", "devices": []}', b"\xff\xfe", b"[" * 100000, b"op,id,bytes,stream\nf,1,,0\n",
           b"a,1,-1,0", b"Thread,Time,Action,Pointer,Size,Stream\n1\n")


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("content", STRANGE, ids=range(len(STRANGE)))
def test_what_is_no_report_and_no_trace(tmp_path, content, option):
    path = tmp_path / "in\x1b[31m.json"
    path.write_bytes(content)
    code, said = run(path, option, tmp_path / "out")
    assert code == 3 and said and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("line", ["a,2,-4,0", "a,\x1b[31m1,5,0", "a,+2,5,0", "a,2,1_0,0", "a, 2,5,0", "a,2,99999999999999999999,0", "a,1,512,0", "f,3,,0",
                                  "a,2,5", "a,2,5,", "a,2,5,0,0"])
def test_a_line_that_cannot_be_is_not_passed_over(tmp_path, line):
    """As in `cachalot replay`: a page that leaves operations out would be wrong."""
    (tmp_path / "x").write_text(f"op,id,bytes,stream\na,1,600,0\n{line}\nf,1,,0\n")
    code, said = run(tmp_path / "x", "--csv", tmp_path / "y")
    assert code == 3 and "line 3: this is no operation" in said


@pytest.mark.parametrize("line", ["1,1,allocate,0x8,5", "1,1,allocate,0x8,5,", "1,1,allocate,0x8,5,0x0,0"])
def test_a_log_that_is_cut_off_is_refused_as_replay_refuses_it(tmp_path, line):
    (tmp_path / "x").write_text(f"Thread,Time,Action,Pointer,Size,Stream\n1,1,allocate,0x7,5,0x0\n{line}")
    code, said = run(tmp_path / "x", "--csv", tmp_path / "y")
    assert code == 3 and "line 3: this is no operation" in said


@pytest.mark.parametrize("pointer", ["7", "0x", "0x+7", "0x 7", "0x12345678901234567", "nil"])
def test_a_pointer_is_read_as_replay_reads_it(tmp_path, pointer):
    (tmp_path / "x").write_text(f"Thread,Time,Action,Pointer,Size,Stream\n1,1,allocate,0x7,5,0x0\n1,1,free,{pointer},5,0x0\n")
    code, said = run(tmp_path / "x", "--csv", tmp_path / "y")
    assert code == 3 and "line 3: this is no operation" in said


def test_what_is_read_is_not_overwritten(tmp_path):
    (tmp_path / "x").write_text("op,id,bytes,stream\na,1,600,0\n")
    (tmp_path / "link").symlink_to("x")
    for options in (("--csv", tmp_path / "x"), ("--csv", tmp_path / "link"), ("--csv", tmp_path / "y", "--html", tmp_path / "y")):
        code, said = run(tmp_path / "x", *options)
        assert code == 2 and ("overwritten" in said or "same file" in said)
    assert (tmp_path / "x").read_text().startswith("op,") and not (tmp_path / "y").exists()


def test_what_is_read_twice_cannot_be_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "x")
    code, said = run(tmp_path / "x", "--csv", tmp_path / "y")
    assert code == 3 and "copy it to a file first" in said


def test_of_no_bytes_there_is_no_block(tmp_path):
    (tmp_path / "x").write_text("op,id,bytes,stream\na,1,0,0\na,2,600,0\nf,1,,0\n")
    assert run(tmp_path / "x", "--csv", tmp_path / "y") == (0, "")
    assert [line.split(",")[2:5:2] for line in (tmp_path / "y").read_text().split("\n")[1:-1]] == [["allocate", "600"]]


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_line_without_an_end_is_not_waited_for(tmp_path, pack):
    """Also not one that unpacks to more than there is memory for."""
    (tmp_path / "x").write_bytes(pack(b"op,id,bytes,stream\n" + bytes(64 << 20)))
    code, said = run(tmp_path / "x", "--csv", tmp_path / "y")
    assert code == 3 and "line 2: longer than 4096 bytes" in said


def test_a_file_of_a_gigabyte_is_refused_at_once(tmp_path):
    path = tmp_path / "big.json"
    with open(path, "wb") as file:
        file.write(b'{"schema_version"')
        file.truncate(1 << 30)
    assert run(path, "--html", tmp_path / "x") == (3, f"{path} is larger than any report (256 MiB)")


def test_a_report_without_events(tmp_path, model):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({key: value for key, value in model.items() if key != "events"}))
    for option in ("--memory-viz", "--csv"):
        code, said = run(path, option, tmp_path / "x")
        assert code == 3 and "CACHALOT_EVENTS" in said
    for option in ("--html", "--perfetto"):  # these draw memory over time
        assert run(path, option, tmp_path / "x")[0] == 0


def test_without_the_chart_library_it_says_what_to_install(tmp_path, model, monkeypatch):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(model))
    monkeypatch.setenv("CACHALOT_CHART_JS", str(tmp_path / "none.js"))
    code, said = run(path, "--html", tmp_path / "x")
    assert code == 125 and "apt-get install libjs-chart.js" in said and "125 there is no Chart.js" in export.HELP
    monkeypatch.setenv("CACHALOT_CHART_JS", str(path))
    assert run(path, "--html", tmp_path / "x")[0] == 125


PLACES = st.sampled_from([("events", "rows", 5, k) for k in ("time_ns", "action", "device", "address", "size_bytes",
                                                               "requested_bytes", "thread", "site")]
                         + [("events",), ("events", "rows"), ("events", "rows", 3), ("events", "lost"), ("sites",),
                            ("sites", 0), ("sites", 0, "frames"), ("sites", 0, "frames", 0), ("oom_events",),
                            ("oom_events", 0, "explanation"), ("oom_events", 0, "would_serve"), ("oom_events", 0, "site"),
                            ("oom_events", 0, "time_ns"), ("time", "start"), ("process", "argv"), ("process", "rank"),
                            ("exit", "code"), ("warnings",), ("leaks",), ("config",)]
                         + [("devices", 0, k) for k in ("device", "name", "segments", "size_histogram", "statistics",
                                                         "at_peak_reserved", "counters")]
                         + [("devices", 0, "segments", 0, k) for k in ("address", "total_bytes", "pool", "blocks")]
                         + [("devices", 0, "segments", 0, "blocks", 0, k)
                            for k in ("address", "size_bytes", "requested_bytes", "state", "site")])
VALUES = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(-10, 10), st.sampled_from(
    [2**31, 2**53, 2**63, 2**64, -2**63, 10**30, 10**400, "</script><script>alert(1)</script>", "\x1b[31m", "0x" + "f" * 16,
     "0x" + "f" * 17, "\ud800", "\u202e", "{{data}}", "x" * 100000, [], {}, [[]], [None], [{}], {"frames": [{}]},
     {"all": {"current": 1e300}}]))


@settings(max_examples=150)
@example(changes=[(("sites", 0, "frames", 0), "</script><script>alert(1)</script>")], option="--html")
@given(changes=st.lists(st.tuples(PLACES, VALUES), min_size=1, max_size=3), option=st.sampled_from(OPTIONS))
def test_hostile_values(tmp_path, model, changes, option):
    report = report_with_history(model, 60)
    for place, value in changes:
        with contextlib.suppress(LookupError, TypeError, AttributeError):
            inner = report
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
    path, made = tmp_path / "r.json", tmp_path / "made"
    path.write_text(json.dumps(report))
    code, said = run(path, option, made)
    assert code in (0, 2, 3), said
    if code == 0 and option == "--html":
        text = made.read_text(encoding="utf-8")
        data = text.split('<script id="data" type="application/json">')[1].split("</script>")[0]
        assert json.loads(data)["devices"] is not None and "\x1b" not in text
        assert text.count("</script") == 6 and "{{" not in data.replace("{{data}}", "")
    elif code == 0 and option == "--memory-viz":
        pickle.loads(made.read_bytes())
    elif code == 0 and option == "--csv":
        assert made.read_bytes().isascii() and b"\x1b" not in made.read_bytes()


@settings(max_examples=40)
@given(fraction=st.floats(0, 0.999))
def test_reports_that_are_cut_off(tmp_path, model, fraction):
    data = json.dumps(report_with_history(model, 100)).encode()
    path = tmp_path / "r.json"
    path.write_bytes(data[:int(len(data) * fraction)])
    assert run(path, "--html", tmp_path / "x")[0] == 3


def test_the_map_of_a_killed_program_comes_from_its_events(tmp_path, model):
    """Where all of them were kept, and every block lies in a segment that they tell of (in mapped memory none does)."""
    def segments(report):
        (tmp_path / "r.json").write_text(json.dumps(report))
        (history,) = read_source(tmp_path / "r.json")[0].histories
        return history.segments and [(s.address, s.size, [b[:2] for b in s.blocks if b.state == "active"]) for s in history.segments]

    report = report_with_history(model)
    listed = segments(report)
    report["devices"][0]["segments"] = None
    assert listed and sorted(segments(report)) == sorted(listed)
    report["events"]["lost"] = 1
    assert segments(report) is None
    report["events"]["lost"] = 0
    report["events"]["rows"] = [row for row in report["events"]["rows"] if row["action"] != "segment_alloc"]
    assert segments(report) is None


def test_a_page_says_why_it_is_empty(tmp_path, model):
    def page(report):
        (tmp_path / "r.json").write_text(json.dumps(report))
        return html.page_object(read_source(tmp_path / "r.json")[0])

    report = {**model, "devices": [], "totals": {**model["totals"], "requests": 0}}
    assert page(report)["warnings"] == ["nothing was allocated through the cache"]
    report = {**report, "others": {"pool": {"peak_bytes": 64 << 20}}, "coverage": {"status": "none", "reasons": ["a reason"]}}
    assert page(report)["warnings"][0] == "coverage none: a reason" and "Next: " in page(report)["warnings"][1]
    report = {**model, "events": {"rows": [], "capacity": 1024, "lost": 0}}
    assert page(report)["devices"][0]["timelineHint"].startswith("Nothing was allocated or freed")


@pytest.mark.parametrize("mapped, noted", [(0, 0), (1, 0), (1, 1)])
def test_reserved_of_a_recorded_trace(mapped, noted):
    """Known where all blocks lie in segments, or the trace has events of mapped memory (older ones have none)."""
    events = [Event(0, "segment_alloc", 4 * MIB, 2 * MIB, 0), Event(1, "alloc", 4 * MIB, 512, 512)]
    events += [Event(2, "segment_map", 64 * MIB, 14 * MIB, 0)] * noted + [Event(3, "alloc", 64 * MIB, 8 * MIB, 8 * MIB)] * mapped
    source = sources.Source("x", "p", histories=[sources.trace_history(0, events)])
    (device,) = html.page_object(source)["devices"]
    tiles = dict(tile[:2] for tile in device["tiles"])
    assert ("Peak reserved" in tiles) == (not mapped or bool(noted))
    assert not noted or tiles["Peak reserved"] == "16 MiB"
    assert (device["segments"] is None) is bool(mapped)
    assert ("No map of segments" in device["mapHint"]) is bool(mapped)
    assert tiles["Never freed"] == "8 MiB" if mapped else "512 B"
    assert device["largest"]["rows"][0][0] == ("8 MiB" if mapped else "512 B")
    assert not any("run --trace" in word for word in device["words"])


def test_a_wrong_guess_of_what_went_is_taken_back():
    """Memory comes where some should still lie: so the other part went."""
    events = [Event(0, "segment_map", 64 * MIB, 2 * MIB, 0), Event(1, "segment_map", 66 * MIB, 2 * MIB, 0),
              Event(2, "segment_unmap", 0, 2 * MIB, 0), Event(3, "segment_map", 64 * MIB, 2 * MIB, 0)]
    mapped = mapped_module.Mapped(sources.History(0, "", events), events)
    assert mapped.steps[2:] == [(2, 66 * MIB, -2 * MIB), (3, 66 * MIB, 2 * MIB)] and mapped.untold == 0


def test_what_was_taken_before_the_events_of_a_page_is_on_it(monkeypatch):
    monkeypatch.setattr(html, "EVENTS_MOST", 10)
    events = [Event(0, "alloc", 1 << 40, 1 << 30, 1 << 30)]
    events += [Event(i, action, 4096, 512, 512) for i in range(1, 20) for action in ("alloc", "free_requested", "free_completed")]
    source = sources.Source("x", "p", histories=[sources.History(0, "recorded trace", events)])
    (device,) = html.page_object(source)["devices"]
    assert [row[0] for row in device["largest"]["rows"]] == ["1 GiB"] and ["Never freed", "1 GiB"] in [t[:2] for t in map(list, device["tiles"])]
    assert "48 older ones are not on this page" in device["timelineHint"] and "CACHALOT_EVENTS" not in device["timelineHint"]


def test_failures_of_a_log_stay_failures(tmp_path):
    """In every form. A trace of another form cannot tell of them: then no number is said, also not none."""
    (tmp_path / "x").write_text("Thread,Time,Action,Pointer,Size,Stream\n1,1,allocate,0x7,600,0x0\n"
                                "1,2,allocate failure,(nil),5000,0x0\n1,3,allocate failure,0x0,0,0x0\n1,4,free,0x7,600,0x0\n")
    assert run(tmp_path / "x", "--csv", tmp_path / "csv", "--memory-viz", tmp_path / "viz") == (0, "")
    rows = [line.split(",")[2:5:2] for line in (tmp_path / "csv").read_text().splitlines()[1:]]
    assert rows == [["allocate", "600"], ["allocate failure", "5000"], ["allocate failure", "0"], ["free", "600"]]
    (trace,) = pickle.loads((tmp_path / "viz").read_bytes())["device_traces"]
    assert [(e["size"], e["device_free"]) for e in trace if e["action"] == "oom"] == [(5000, 0), (0, 0)]
    (tmp_path / "y").write_text("op,id,bytes,stream\na,1,600,0\nf,1,,0\n")
    for name, said in (("x", "2"), ("y", None)):
        (device,) = html.page_object(read_source(tmp_path / name)[0])["devices"]
        assert dict(tile[:2] for tile in device["tiles"]).get("Out of memory") == said
        assert [oom["title"] for oom in device["ooms"]] == ["4.88 KiB asked for, operation 1: out of memory",
                                                            "0 B asked for, operation 2: out of memory"][:2 if said else 0]


LOG = """Thread,Time,Action,Pointer,Size,Stream
4711,17:35:27.296219,allocate,0x7f0000000200,1000,0
4712,17:35:27.296219,allocate failure,(nil),5000,0
4712,23:59:59.999999,free,0x7f0000000200,1000,0
4713,00:00:00.000001,allocate,0x7f0000000200,77,0
"""


def test_a_log_of_rmm_keeps_its_times_threads_and_addresses(tmp_path):
    """RMM 26.10 writes this form. Its time has no date, so an earlier time of day is one of the next day."""
    (tmp_path / "x").write_text(LOG)
    assert run(tmp_path / "x", "--csv", tmp_path / "csv", "--perfetto", tmp_path / "perfetto") == (0, "")
    assert (tmp_path / "csv").read_text() == LOG
    (tmp_path / "x").write_text(LOG.replace(".", ":"))  # as earlier versions write it
    assert run(tmp_path / "x", "--csv", tmp_path / "csv")[0] == 0 and (tmp_path / "csv").read_text() == LOG
    source = read_source(tmp_path / "x")[0]
    assert [e.time for e in source.histories[0].events] == [0, 0, *2 * [23072703780000], 23072703782000]
    page = html.page_object(source)
    assert page["hasTime"] and page["devices"][0]["ooms"][0]["title"] == "4.88 KiB asked for, after 0.000 s: out of memory"


def test_a_time_that_cannot_be_read_is_that_of_the_line_before(tmp_path):
    """Without any, the numbers of operations stand for times."""
    broken = LOG.replace("23:59:59.999999", "24:00:00").replace("00:00:00.000001", "noon")
    (tmp_path / "x").write_text(broken)
    assert {e.time for e in read_source(tmp_path / "x")[0].histories[0].events} == {0}
    (tmp_path / "x").write_text(broken.replace("17:35:27.296219", "?"))
    source = read_source(tmp_path / "x")[0]
    assert not source.has_time and [e.time for e in source.histories[0].events] == [0, 1, 2, 2, 3]


def test_reserved_is_left_out_where_it_is_not_known(tmp_path):
    (tmp_path / "x").write_text(LOG)
    events = [{"action": action, "addr": 1 << 30, "size": size, "time_us": 1764460000000000 + time}
              for time, (action, size) in enumerate([("segment_alloc", 20 << 20), ("alloc", 5 << 20), ("annotate", 5), ("free_completed", 5 << 20)])]
    segments = [{"device": 0, "address": at, "total_size": 20 << 20, "blocks": []} for at in (1 << 30, 1 << 40)]
    (tmp_path / "s").write_bytes(pickle.dumps({"segments": segments, "device_traces": [events]}))
    for name, expected in (("x", None), ("s", [(0, 20 << 20), (0, 40 << 20)])):
        assert run(tmp_path / name, "--perfetto", tmp_path / "out")[0] == 0
        (levels,) = trace_processor.query((tmp_path / "out").read_bytes(), trace_processor.LEVELS)
        assert [row[1:] for row in levels if row[0] == "GPU 0 reserved"] == (expected or [])
        assert ("GPU 0 allocated", 1000 if name == "s" else 0, 5 << 20 if name == "s" else 1000) in levels
        tiles = [row[0] for row in html.page_object(read_source(tmp_path / name)[0])["devices"][0]["tiles"]]
        assert ("Peak reserved" in tiles) is (expected is not None)
    assert read_source(tmp_path / "s")[0].start.isoformat() == "2025-11-29T23:46:40+00:00"


def test_a_trace_without_a_map_says_so(tmp_path, capsys):
    (tmp_path / "x").write_text("op,id,bytes,stream\na,1,600,0\na,2,700,0\nf,1,,0\n")
    for option, said in (("--html", True), ("--memory-viz", True), ("--csv", False)):
        assert run(tmp_path / "x", option, tmp_path / "y") == (0, "")
        assert ("x: No map of segments and blocks: this trace" in capsys.readouterr().err) is said
