"""cachalot tune: its lines say what a replay with them says, and the order is as promised."""

import gzip
import json
import os
import pickle
import subprocess

import pytest
from conftest import BUILD, command, replay, trace_of

MIB = 1 << 20


def tuned(path, *arguments):
    done = command("tune", path, "--format", "json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(path, got, *arguments):
    """Each setting's figures are those of a replay with its line."""
    assert 1 <= len(got["best"]) <= 3 and len({e["conf"] for e in got["best"]}) == len(got["best"])
    for entry in [*got["best"], got["now"]]:
        totals = (again := replay(path, *arguments, "--conf", entry["conf"] if "expandable" in entry["conf"] else f"expandable_segments:auto,{entry['conf']}"))["totals"]
        assert (entry["peak_reserved_bytes"], entry["ooms"]) == (totals["peak_reserved_bytes"], totals["ooms"])
        assert (entry["cost_ns"], entry["steady_cost_ns"]) == (again["driver"]["cost_ns"], again["driver"]["steady_cost_ns"])
        assert entry["reserved_per_requested"] == again["reserved_per_requested"]


def test_a_recorded_run():
    path = trace_of("resnet50")
    got = tuned(path)
    check(path, got)
    assert got["now"]["peak_reserved_bytes"] < 1.03 * 5830299284 and got["now"]["conf"] == ""
    assert got["best"][0]["peak_reserved_bytes"] <= 1.01 * min(e["peak_reserved_bytes"] for e in got["best"])
    assert got["best"][0]["peak_reserved_bytes"] <= 1.01 * got["now"]["peak_reserved_bytes"]


def holes():
    """A hole of 4 GiB is split for 1 GiB, and then lacks for 4 GiB under 8 GiB."""
    gib = 1 << 30
    return (f"a,0,{gib},0\na,1,{4 * gib},0\nf,1,,0\na,2,{gib},0\nf,0,,0\na,3,{gib},0\na,4,{4 * gib},0\n")


def test_a_setting_that_fits_comes_before_one_that_does_not(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(holes())
    arguments = ("--capacity", "8GiB", "--conf", "expandable_segments:False")
    got = tuned(path, *arguments)
    assert got["now"]["ooms"] == 1 and got["best"][0]["ooms"] == 0
    assert [entry["ooms"] for entry in got["best"]] == sorted(entry["ooms"] for entry in got["best"])
    assert "max_split_size_mb" in got["best"][0]["conf"] and "expandable_segments:False" in got["best"][0]["conf"]
    check(path, got, "--capacity", "8GiB")


def test_where_nothing_fits_it_is_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("".join(f"a,{i},{4 * MIB},0\n" for i in range(14)))
    done = command("tune", path, "--capacity", "40MiB")
    assert done.returncode == 0 and "peak requested 56 MiB" in done.stdout
    assert "None of them serves all: a request of 4096 KiB is refused; on a device of 2 TiB 56 MiB are held at once" in done.stdout
    assert tuned(path, "--capacity", "40MiB")["peak_requested_bytes"] == 56 * MIB


def test_what_the_run_itself_was_refused_is_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(f"a,0,{4 * MIB},0\no,0,{8 << 30},0\n")
    done = command("tune", path, "--capacity", "1GiB")
    assert "None of them serves all: a request of 8192 MiB is refused; on a device of 2 TiB 4096 KiB are held at once" in done.stdout, done.stdout


def test_lines_can_be_pasted(tmp_path):
    """Into a shell, whatever is in the options."""
    path = tmp_path / "x.csv"
    path.write_text(f"a,0,{4 * MIB},0\n")
    done = command("tune", path, "--conf", " , roundup_power2_divisions:[256:1,512:2,>:8],, ,max_split_size_mb: 128,")
    for line in done.stdout.splitlines()[-3:]:
        told = subprocess.run(["sh", "-c", f'{line}; printf %s "$CACHALOT_CONF"'], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert told.stdout.startswith("roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb: 128") and not told.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.csv"]


def test_of_equals_the_cheaper_and_plainer_comes_first(tmp_path):
    """One small block takes 2 MiB by any setting, and one call of the driver instead of three where that is its own."""
    path = tmp_path / "x.csv"
    path.write_text("a,0,1000,0\n")
    got = tuned(path)
    assert got["best"][0]["conf"] == "expandable_segments:False"
    assert got["best"][0]["peak_reserved_bytes"] == got["now"]["peak_reserved_bytes"]
    assert got["best"][0]["cost_ns"] < got["now"]["cost_ns"]


def test_the_three_differ_where_outcomes_do(tmp_path):
    """As of a training loop, for which many settings come to the same."""
    path = tmp_path / "x.csv"
    path.write_text("".join(f"a,{i},{(i * 37 % 11 + 1) * 1000000 + i},0\n" for i in range(60)))
    best = tuned(path)["best"]
    outcomes = {(e["peak_reserved_bytes"], e["cost_ns"], e["steady_cost_ns"], e["ooms"]) for e in best}
    assert len(best) == len(outcomes) == 3, best


def test_other_forms(tmp_path):
    text = "".join(f"a,{i},{(i * 37 % 11 + 1) * MIB},0\n" for i in range(60)) + "f,3,,0\na,99,30000000,0\n"
    (tmp_path / "x.csv").write_text(text)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = tuned(tmp_path / "x.csv"), tuned(tmp_path / "x.csv.gz")
    assert plain == packed
    events = [{"action": "alloc", "addr": 4096, "size": 5 * MIB, "stream": 0}]
    (tmp_path / "s.pickle").write_bytes(pickle.dumps({"device_traces": [events], "segments": []}))
    assert tuned(tmp_path / "s.pickle")["peak_requested_bytes"] == 5 * MIB


def test_a_name_like_an_option(tmp_path):
    (tmp_path / "--print-costs").write_text("a,0,1000,0\n")
    done = command("tune", "--format=json", "--", "--print-costs", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["best"], done


def test_a_replay_that_is_killed_says_so(tmp_path):
    """By the kernel, say, for want of memory."""
    tool = tmp_path / "cachalot-replay"
    tool.write_text("#!/bin/sh\nkill -9 $$\n")
    tool.chmod(0o755)
    (tmp_path / "libcachalot.so").symlink_to(BUILD / "libcachalot.so")
    (tmp_path / "x.csv").write_text("a,0,1,0\n")
    for name in "replay", "tune":
        done = command(name, tmp_path / "x.csv", library=tmp_path / "libcachalot.so")
        assert (done.returncode, done.stdout) == (1, "") and done.stderr == "cachalot: cachalot-replay was ended by signal 9\n", done


def test_the_table_has_lines_to_paste(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(holes())
    done = command("tune", path, "--capacity", "8GiB")
    lines = done.stdout.splitlines()
    pasted = [line for line in lines if line.startswith("CACHALOT_CONF=")]
    assert done.returncode == 0 and len(pasted) == 3 and "settings tried" in lines[0] and not done.stderr


@pytest.mark.parametrize("arguments, code", [
    ((), 2), (("a", "b"), 2), (("broken", "--format", "x"), 2), (("broken", "--conf", "no:1"), 2), (("broken", "--conf", "-x"), 2), (("broken",), 3),
    (("none",), 3), (("damaged.gz",), 3)])
def test_what_is_refused(tmp_path, arguments, code):
    (tmp_path / "broken").write_text("a,0,1,0\nf,7,,0\n")
    (tmp_path / "damaged.gz").write_bytes(gzip.compress(b"a,0,1,0\n" * 999)[:-3])
    done = command("tune", *arguments, cwd=tmp_path)
    assert done.returncode == code and not done.stdout and "Traceback" not in done.stderr, done


def test_without_input_and_output(tmp_path):
    """What the unpacked snapshot is then called is no other file."""
    events = [{"action": "alloc", "addr": 4096, "size": 5 * MIB, "stream": 0}]
    (tmp_path / "s.pickle").write_bytes(pickle.dumps({"device_traces": [events], "segments": []}))
    done = command("tune", "s.pickle", cwd=tmp_path, preexec_fn=lambda: os.closerange(0, 2), timeout=20)
    assert done.returncode == 0 and not done.stderr, done
