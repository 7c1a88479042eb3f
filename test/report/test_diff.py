"""cachalot diff: two runs side by side."""

import copy
import json

from cachalot_command.command import diff
import pytest
from conftest import command_help_fits, in_process
from hypothesis import given, settings
from hypothesis import strategies as st
from history_of import report_with_history


def run(*arguments):
    return in_process(diff.main, *arguments)


@pytest.fixture
def pair(tmp_path, model):
    """(old, new, write): change them, then write."""
    old, new = copy.deepcopy(model), copy.deepcopy(model)

    def write():
        for name, report in (("old", old), ("new", new)):
            (tmp_path / f"{name}.json").write_text(json.dumps(report))
        return tmp_path / "old.json", tmp_path / "new.json"

    return old, new, write


def test_help_and_usage(pair):
    command_help_fits(diff.HELP)
    old, new = pair[2]()
    for wrong in ((), (old,), (old, new, old), (old, new, "--else")):
        assert run(*wrong)[0] == 2, wrong
    assert run(old, "none.json")[0] == 3


def test_folders_are_compared_process_by_process(tmp_path, model, capsys):
    """Those of the newest run in each, by rank, whatever the files are called."""
    for which, peaks, session in (("old", (10, 20, 30), "1"), ("new", (10, 40), "2"), ("new", (7, 7), "older")):
        (tmp_path / which).mkdir(exist_ok=True)
        for rank, peak in enumerate(peaks):
            report = copy.deepcopy(model)
            report["process"].update(rank=rank, pid=rank + (100 if which == "old" else 500 - rank * 3), session=session)
            report["time"]["start"] = f"202{3 if session == 'older' else 5}-01-01T00:00:00.000000Z"
            report["totals"]["peak_reserved_bytes"] = peak << 20
            (tmp_path / which / f"{session}.{report['process']['pid']}.json").write_text(json.dumps(report))
    code, out = run(tmp_path / "old", tmp_path / "new")
    said = capsys.readouterr().err
    assert code == 0 and out.count("Peak reserved memory is the same.") == 1 and "reserved 20 MiB (100.0 %) more" in out
    assert "only in the old run: " in said and "rank 2, pid 102" in said and "2 reports of other runs" in said
    pairs = json.loads(run(tmp_path / "old", tmp_path / "new", "--json")[1])["pairs"]
    assert [(pair["old"][-8:], pair["new"][-8:]) for pair in pairs] == [("100.json", "500.json"), ("101.json", "498.json")]
    for path in (tmp_path / "old").glob("*.json"):
        if "101" not in path.name:
            path.unlink()
    code, out = run(tmp_path / "old", tmp_path / "new")
    assert code == 0 and "rank 1, pid 498" in out
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "old", tmp_path / "empty")[0] == 3


def test_the_same_twice(pair):
    paths = pair[2]()
    code, out = run(*paths)
    assert code == 0 and "Peak reserved memory is the same." in out and "Options" not in out
    assert "Peak reserved  " not in out and "Peak reserved  " in run(*paths, "--all")[1]


def test_what_has_changed_is_aligned_and_in_human_units(pair):
    old, new, write = pair
    old["totals"].update(peak_reserved_bytes=10 << 30, peak_allocated_bytes=7 << 30, hit_ratio=0.9, requests=1000,
                         fence_wait_ns=1500000)
    new["totals"].update(peak_reserved_bytes=8 << 30, peak_allocated_bytes=7 << 30, hit_ratio=0.95, requests=123456,
                         fence_wait_ns=0)
    new["devices"][0]["at_peak_reserved"]["external_ratio"] = 0.25
    old["devices"][0]["at_peak_reserved"]["external_ratio"] = 0.5
    lines = run(*write())[1].splitlines()
    table = {line[:26].strip(): line[26:].split("  ") for line in lines if line[:1].isupper() and len(line) > 60}
    table = {key: [v.strip() for v in values if v.strip()] for key, values in table.items()}
    assert table["Peak reserved"] == ["10 GiB", "8 GiB", "-2 GiB", "-20.0 %"]
    assert table["From the cache"] == ["90.0 %", "95.0 %", "+5.0 points"]
    assert table["Requests"] == ["1 000", "123 456", "+122 456", "x123"]
    assert table["Time waited"] == ["1.5 ms", "0.0 ms", "-1.5 ms", "-100.0 %"]
    assert table["External fragmentation"] == ["50.0 %", "25.0 %", "-25.0 points"]
    assert "Peak allocated" not in table
    assert lines[-1] == "The new run reserved 2 GiB (20.0 %) less at its peak."
    ends = {line.index("GiB") + 3 for line in lines if line.startswith("Peak reserved")}
    assert ends == {40} and max(map(len, lines[2:])) <= 80  # but for the paths of old and new


def test_options_and_leaks(pair):
    old, new, write = pair
    new["config"]["max_split_size_mb"]["value"] = "128"
    old["config"]["gone\x1b[31m"] = {"value": "1", "source": "environment"}
    new["leaks"][0]["count"] += 2
    new["leaks"][0]["total_requested_bytes"] += 2 << 20
    out = run(*write())[1]
    assert "max_split_size_mb: unlimited -> 128" in out and "gone?[31m: 1 -> not there" in out
    assert "-> 3 blocks (+2 MiB)" in out


def test_notes_on_what_is_hard_to_compare(pair):
    old, new, write = pair
    old["process"]["exe"], new["coverage"]["status"], new["exit"]["reason"] = "/bin/other", "partial", "running"
    out = run(*write())[1]
    assert "different programs" in out and "coverage of the new run is partial" in out and "new run had not ended" in out


@pytest.mark.parametrize("was, now, said", [(2, 0, "It did not run out of memory any more."), (0, 3, "It ran out of memory 3 times, the old"),
                                            (0, 1, "It ran out of memory once, the old"), (1, 1, "Peak reserved memory is the same.")])
def test_out_of_memory_is_in_the_last_line(pair, was, now, said):
    old, new, write = pair
    old["totals"]["ooms"], new["totals"]["ooms"] = was, now
    last = run(*write())[1].splitlines()[-1]
    assert said in last and (was != now or last.endswith("the same."))


def test_json(pair, model):
    old, new, write = pair
    new["totals"]["peak_reserved_bytes"] = 2 * old["totals"]["peak_reserved_bytes"]
    new["totals"]["leaked_bytes"] = None
    document = json.loads(run(*write(), "--json")[1])
    figures = {f["name"]: f for f in document["figures"]}
    peak = figures["totals.peak_reserved_bytes"]
    assert peak["change"] == model["totals"]["peak_reserved_bytes"] and peak["change_ratio"] == 1.0
    assert figures["totals.leaked_bytes"]["change"] is None and document["schema_version"] == "1.0.0"
    assert document["config"] == [] and document["leaks"] == []


def test_next_to_nothing_is_no_share(pair):
    """A ratio that no number can be."""
    old, new, write = pair
    old["totals"].update(hit_ratio=5e-324, peak_reserved_bytes=5e-324, requests=5e-324)
    new["totals"].update(hit_ratio=1, peak_reserved_bytes=1, requests=1)
    code, out = run(*write(), "--json")
    figures = {f["name"]: f for f in json.loads(out)["figures"]}
    assert code == 0 and figures["totals.hit_ratio"]["change_ratio"] is None and figures["totals.hit_ratio"]["change"] == 1
    code, out = run(*write())
    assert code == 0 and "inf" not in out and "+1 B" in out


def test_several_devices(tmp_path, model):
    for name, devices in (("old", 1), ("new", 2)):
        (tmp_path / name).write_text(json.dumps(report_with_history(model, 300, devices=devices)))
    out = run(tmp_path / "old", tmp_path / "new", "--all")[1]
    assert "Peak reserved, GPU 1" in out


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": "2.0.0"}', "\x1b[31m", "[" * 100000], ids=range(6))
def test_what_is_no_report(tmp_path, pair, content):
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    for order in ((pair[2]()[0], bad), (bad, pair[2]()[0])):
        code, said = run(*order)
        assert code == 3 and str(bad) in said


ANY = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from([10**400, -10**30, "\x1b[31m"]),
                   lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2))


@settings(max_examples=100)
@given(key=st.sampled_from(["totals", "devices", "leaks", "config", "process", "coverage", "exit", "time"]),
       inner=st.sampled_from([None, 0, "count", "device", "value", "peak_reserved_bytes", "requested_bytes"]),
       value=ANY, flag=st.sampled_from(["--all", "--json"]))
def test_hostile_values(pair, key, inner, value, flag):
    old, new, write = pair
    new[key] = value if inner is None else {inner: value} if inner == "device" else [{inner: value, "device": value}]
    code, out = run(*write(), flag)
    assert code == 0 and (flag == "--all" or json.loads(out))
    new[key] = copy.deepcopy(old[key])
