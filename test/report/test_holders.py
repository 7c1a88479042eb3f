"""Who held the memory at the peak: `cachalot show --peak`, `export --pprof` and `--speedscope`."""

import gzip
import json

from cachalot_command.command import export, show
from cachalot_command.reading import holders
from cachalot_command.reading.report import Report
import pytest
from conftest import in_process
from history_of import MIB, report_with_history

FRAMES = {
    "step": ["train.py:10 forward", "train.py:30 step", "python3.11!main+0x5"],
    "library": ["libc10_cuda.so!raw_alloc+0x7", "/usr/lib/python3/dist-packages/torch/nn.py:5 linear", "train.py:30 step", "libc.so.6!start+0x1"],
    "native": ["libfoo.so!grow+0x3 (foo.c:7)", "libc.so.6+0x20"],
}


def site(frames, peak, live, error=0, device=0):
    return {"frames": frames, "native": [], "live_bytes": live, "live_blocks": 1, "live_error_bytes": 0, "peak_bytes": peak,
            "peak_blocks": 2, "peak_error_bytes": error, "allocations": 9, "device": device, "kind": "device"}


@pytest.fixture
def report(model):
    made = report_with_history(model, 100)
    made["sites"] = [site(FRAMES["step"], 5 * MIB, 0, 3 * MIB), site(FRAMES["library"], 7 * MIB, MIB, 4 * MIB),
                     site(FRAMES["native"], 0, 3 * MIB), site(FRAMES["native"], 2 * MIB, 0), site([], MIB, 0, device=None)]
    made.update(modules=[], sites_every=None, sites_mean_bytes=2 * MIB, sites_lost=0)
    return made


def made_of(tmp_path, report, option):
    path, made = tmp_path / "in.json", tmp_path / "out"
    path.write_text(json.dumps(report))
    code, said = in_process(export.main, path, option, made)
    return code, said, made.read_bytes() if made.exists() else b""


def test_the_program_s_own_line_comes_first():
    assert holders.own_line(FRAMES["library"]) == "train.py:30 step"
    assert holders.own_line(FRAMES["native"]) == "libfoo.so!grow+0x3 (foo.c:7)"
    assert holders.own_line(["libc.so.6+0x1", "libtorch_cpu.so!f+0x3"]) == "libc.so.6+0x1"
    assert holders.own_line(["/x/site-packages/a.py:1 f", "python3.12!main+0x2"]) == "/x/site-packages/a.py:1 f"
    assert holders.own_line([]) == "unknown"


def test_a_row_for_each_line(tmp_path, report):
    report["sites"].append(site(["train.py:10 forward", "other.py:1 main"], MIB, 0))
    (tmp_path / "in.json").write_text(json.dumps(report))
    code, said = in_process(show.main, tmp_path / "in.json", "--peak")
    rows = [line for line in said.splitlines() if line.startswith("  ")]
    assert code == 0 and len(rows) == 3
    assert "7168 KiB ± 4096 KiB" in " ".join(rows[0].split()) and rows[0].endswith("train.py:30 step")
    assert "6144 KiB ± 3072 KiB" in " ".join(rows[1].split()) and rows[1].endswith("train.py:10 forward")
    assert rows[2].endswith("libfoo.so!grow+0x3 (foo.c:7)")
    assert "15 MiB ± 5 MiB was held by 3 lines of code" in said and "one byte of 2 MiB" in said, said


def test_without_sites(tmp_path, model):
    plain = report_with_history(model, 100)
    plain.pop("sites", None)
    (tmp_path / "in.json").write_text(json.dumps(plain))
    assert "CACHALOT_SITES=0" in in_process(show.main, tmp_path / "in.json", "--peak")[1]
    for option in ("--pprof", "--speedscope"):
        code, said, _ = made_of(tmp_path, plain, option)
        assert code == 3 and "no call sites" in said


def test_speedscope(tmp_path, report):
    code, said, made = made_of(tmp_path, report, "--speedscope")
    assert code == 0, said
    read = json.loads(made)
    assert read["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in read["shared"]["frames"]]
    peak, end = read["profiles"]
    assert (peak["name"], end["name"]) == ("GPU 0 at the peak", "GPU 0 at the end")
    for profile in (peak, end):
        assert profile["type"] == "sampled" and profile["unit"] == "bytes" and len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
    stacks = {tuple(names[i] for i in stack): weight for stack, weight in zip(peak["samples"], peak["weights"])}
    assert stacks[tuple(reversed(FRAMES["step"]))] == 5 * MIB  # outermost first
    assert end["weights"] == [3 * MIB, MIB]


def fields(data):
    """[(number, value)] of a message of protobuf."""
    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7f) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at
    at, found = 0, []
    while at < len(data):
        key, at = varint(at)
        value, at = varint(at)
        assert key & 7 in (0, 2)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found.append((key >> 3, value))
    return found


def varints(data):
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


def test_pprof(tmp_path, report):
    """Decoded by the numbers of fields in google/pprof's profile.proto."""
    code, said, made = made_of(tmp_path, report, "--pprof")
    assert code == 0, said
    message = fields(gzip.decompress(made))
    texts = [value.decode() for number, value in message if number == 6]
    assert texts[0] == "" and len(set(texts)) == len(texts)
    types = [texts[dict(fields(value))[1]] for number, value in message if number == 1]
    assert types == ["peak_objects", "peak_space", "inuse_objects", "inuse_space"]
    assert texts[dict(message)[14]] == "peak_space"
    functions = {dict(fields(v))[1]: texts[dict(fields(v))[2]] for number, v in message if number == 5}
    locations = {dict(fields(v))[1]: functions[dict(fields(dict(fields(v))[4]))[1]] for number, v in message if number == 4}
    samples = {tuple(locations[i] for i in varints(dict(fields(v))[1])): varints(dict(fields(v))[2]) for number, v in message if number == 2}
    assert samples[tuple(FRAMES["step"])] == [2, 5 * MIB, 0, 0]
    assert samples[tuple(FRAMES["library"])] == [2, 7 * MIB, 1, MIB]
    assert samples[tuple(FRAMES["native"])] == [2, 2 * MIB, 1, 3 * MIB]


@pytest.mark.parametrize("key, value", [("peak_bytes", "many"), ("peak_bytes", -5), ("frames", None), ("frames", [1, None]), ("frames", ["\x1b[31m"] * 500),
                                        ("device", "0"), ("device", 7), ("peak_error_bytes", None), ("kind", 3), ("peak_blocks", 1e300)])
def test_hostile_sites(tmp_path, report, key, value):
    report["sites"][0][key] = value
    (tmp_path / "in.json").write_text(json.dumps(report))
    code, said = in_process(show.main, tmp_path / "in.json", "--peak")
    assert code == 0 and "\x1b" not in said
    for option in ("--pprof", "--speedscope", "--html"):
        assert made_of(tmp_path, report, option)[0] == 0
    assert all(holder.bytes > 0 for holder in holders.holders(Report(tmp_path / "in.json"), "peak"))
