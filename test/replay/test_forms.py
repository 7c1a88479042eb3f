"""The forms that a trace may have, and which are refused: with the line and the reason."""

import gzip
import json
import re
import resource
import subprocess
import sys
import time
import zlib

import pytest
from conftest import OWN, RMM, ROOT, TOOL, command, replay, write

sys.path.insert(0, str(ROOT / "scripts"))
from cachalot_command.common.tools import Failure  # noqa: E402
from cachalot_command.reading import recorded as recorded_module  # noqa: E402
from cachalot_command.reading import traces  # noqa: E402


@pytest.mark.parametrize("change", [
    lambda rows: [row[:2][::-1] + row[2:] for row in rows], lambda rows: [row[:4] + row[:3:-1] for row in rows],
    lambda rows: [[f'"{field}"' for field in row] for row in rows], lambda rows: [row + ["note"] for row in rows],
    lambda rows: [row[2:] for row in rows], lambda rows: [[f"{field} " for field in row] for row in rows]])
@pytest.mark.parametrize("end, mark", [("\n", ""), ("\r\n", "\ufeff")])
def test_columns_in_another_order_and_quoted(tmp_path, change, end, mark):
    rows = [RMM.strip().split(",")] + [["1", "t", action, hex(at), "4096", "0"]
                                       for action, at in (("allocate", 16), ("allocate", 32), ("free", 16))]
    text = mark + end.join(map(",".join, change(rows)))
    for content in (text.encode(), gzip.compress(text.encode())):
        got = replay(write(tmp_path / "x", content))
        assert (got["totals"]["requests"], got["trace"]["live_at_end"], got["totals"]["peak_requested_bytes"]) == (2, 1, 8192)
    done = command("replay", write(tmp_path / "y", text + end + ",".join(change([["1", "t", "free", "0x40", "5", "0"]])[0])))
    assert done.returncode == 3 and "y: line 5: frees what is not allocated" in done.stderr
    assert command("export", tmp_path / "x", "--csv", "-").stdout.count("allocate") == 2
    got = replay(write(tmp_path / "z", mark + end.join(["op,id,bytes", "a,1,4096", "f,1", ""])))
    assert (got["totals"]["requests"], got["trace"]["live_at_end"]) == (1, 0)


def test_a_header_that_is_longer_than_what_is_read_at_once(tmp_path):
    more = [f"note{i}" for i in range(3000)]
    text = ",".join(["id,op,bytes", *more]) + "\n1,a,512" + ",0" * len(more) + "\n1,f\n2,f\n"
    for content in (text.encode(), gzip.compress(text.encode())):
        for words in (("replay",), ("export", "--csv", "-")):
            done = command(*words, write(tmp_path / "x", content))
            assert done.returncode == 3 and "x: line 4: " in done.stderr and "not allocated" in done.stderr, done.stderr


@pytest.mark.parametrize("first", [OWN, RMM, "a,1,512,0\n", "1,t,allocate,0x10,512,0\n"])
def test_a_byte_order_mark_before_whatever_comes_first(tmp_path, first):
    rest = {OWN: "a,1,512,0\n", RMM: "1,t,allocate,0x10,512,0\n"}.get(first, "")
    path = write(tmp_path / "x", "\ufeff" + first + rest)
    assert replay(path)["totals"]["peak_requested_bytes"] == 512
    assert command("export", path, "--csv", "-").stdout.count("allocate,") == 1


def test_lines_in_another_order_that_are_shorter_or_longer(tmp_path):
    """The end of a free's may be missing; what is there is what its column says."""
    header = "op,bytes,id,stream\n"
    got = replay(write(tmp_path / "x", header + "a,100,100,0\na,50,7,0\nf,100,7\n"))
    assert got["devices"][0]["memory_stats"]["requested_bytes.all.current"] == 100
    for more, said in (("a,5,8\n", "cut off after the bytes"), ("f,5\n", "the id is not a number of 1 to 19 digits"), ("a,5,8,0,1\n", "5 columns, where the header has 4"),
                       ("f,100,10", "cut off in the column `id`, or its newline is missing"), ("f", "cut off in the column `op`")):
        done = command("replay", write(tmp_path / "y", header + "a,100,100,0\n" + more))
        assert done.returncode == 3 and "y: line 3: " in done.stderr and said in done.stderr, done.stderr


def test_a_last_line_that_lacks_its_newline(tmp_path):
    """Whole where only what does not count may be cut off."""
    for header, last, live in (("\ufeffop,id,bytes,stream\n", "a,1,512,0", 1), ("id,op,bytes,stream\n", "1,a,512,1", 1)):
        assert replay(write(tmp_path / "x", header + last))["trace"]["live_at_end"] == live
    for header, lines in (("\ufeffop,id,bytes,stream\n", "a,12,1,0\na,123,1,0\nf,12"), ("op,id,stream,bytes\n", "a,12,0,1\nf,12,0,\na,123,0,12")):
        done = command("replay", write(tmp_path / "y", (header + lines).encode()))
        assert done.returncode == 3 and "y: line 4: cut off " in done.stderr


def recorded(state, events, missing=0):
    """What CACHALOT_TRACE would have written of so many allocations, the last ones of which are missing."""
    header = recorded_module.HEADER.pack(recorded_module.MAGIC, recorded_module.FORMAT, recorded_module.EVENT.size,
                                           state, events, *[0] * 7, 100, 100, b"", b"", b"program", b"", b"").ljust(4096, b"\0")
    whole = b"".join(recorded_module.EVENT.pack(i, i, i * 4096, 512, 512, 0) for i in range(1, events - missing + 1))
    return header + whole + bytes(missing * recorded_module.EVENT.size)


def test_events_that_are_missing_are_said(tmp_path):
    for gone in (0, 3):
        done = command("replay", write(tmp_path / "t", recorded(recorded_module.ENDED, 20, gone)))
        assert done.returncode == 0 and ("3 of its events are missing" in done.stderr) == (gone > 0) and f"{20 - gone} live at the end" in done.stdout
        done = command("tune", tmp_path / "t")
        assert done.returncode == 0 and done.stderr.count("events are missing") == (gone > 0), done.stderr


def test_ids_that_differ_in_their_highest_bits_alone(tmp_path):
    """A table that has them all in one place takes 15 s for them."""
    path = write(tmp_path / "t", "".join(f"a,{i << 44},0,0\n" for i in range(1 << 17)))
    assert command("replay", path, "--conf", "expandable_segments:False", timeout=10).returncode == 0


def test_more_than_any_device_has_is_out_of_memory(tmp_path):
    """And takes little of ours."""
    got = replay(write(tmp_path / "t", f"a,0,{1 << 40},0\na,1,{1 << 42},0\n"), "--conf", "expandable_segments:True")
    assert got["totals"]["ooms"] == 1 and got["totals"]["peak_requested_bytes"] == 1 << 40
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 20


BROKEN = [
    ("x\n", 1, "neither op,id,bytes,stream nor an RMM log"), ("a,1\n", 1, "cut off after the id"), ("a,1,2\n", 1, "cut off after the bytes"),
    (OWN + "a,1,5,0\na,1,5,0\n", 3, "allocated already"), (OWN + "a,1,5,0\nf,1,,0\nf,1,,0\n", 4, "not allocated"),
    (OWN + "f,1,,0\n", 2, "not allocated"), (OWN + "a,12,5,0\na,1,5,0\nf,1", 4, "cut off after the id"), ("a,1,-5,0\n", 1, "bytes"), ("a,-1,5,0\n", 1, "id"),
    ("a,1,99999999999999999999,0\n", 1, "the bytes are not a number of 1 to 19 digits"), ("a,1,5,0x\n", 1, "more than"), ("a,1,5,\n", 1, "stream"),
    ("a,1,5,0,9\n", 1, "more than"), ("a,1,5 ,0\n", 1, "bytes"), (b"a,1\0,5,0\n", 1, "not text"),
    ("a,1,5,0\n" + "9" * 300000 + "\n", 2, "neither"), (RMM + "1,t,allocate,0x1,5\n", 2, "size"),
    (RMM + "1,t,alloc,0x1,5,0\n", 2, "action"), (RMM + "1\n", 2, "cut off before the action"),
    (RMM + "1,t,free,0x1,5,0\n", 2, "not allocated"), (RMM + "1,t,allocate,1,5,0\n", 2, "pointer"),
    (RMM + "1,t,allocate,0x1,5,0\n1,t,allocate,0x1,5,0\n", 3, "allocated already"),
    (RMM + "1,t,allocate,0x11112222333344445,5,0\n", 2, "pointer"), (RMM + "1,t,allocate,0x1,5,\n", 2, "stream"),
    (RMM + "1,t,allocate,0x1,5,0,1\n", 2, "more than"),
]


@pytest.mark.parametrize("text, line, reason", BROKEN, ids=range(len(BROKEN)))
@pytest.mark.parametrize("packed", [False, True])
def test_a_broken_trace_is_refused_with_line_and_reason(tmp_path, text, line, reason, packed):
    data = text if isinstance(text, bytes) else text.encode()
    done = command("replay", write(tmp_path / "x", gzip.compress(data) if packed else data))
    assert done.returncode == 3 and not done.stdout
    assert f"x: line {line}: " in done.stderr and reason in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("cut", [-1, -12, 20, 100])
def test_a_damaged_gzip_file_is_refused(tmp_path, cut):
    data = bytearray(gzip.compress("".join(f"a,{i},{i * 7919 % 5000},0\n" for i in range(20000)).encode()))
    for content in (data[:cut], data[:cut - 9] + bytes([data[cut - 9] ^ 255]) + data[cut - 8:]):
        done = command("replay", write(tmp_path / "x", bytes(content)))
        assert done.returncode == 3 and not done.stdout and "Traceback" not in done.stderr, done.stderr
        assert "line " in done.stderr


@pytest.mark.parametrize("arguments", [
    (), ("a", "b"), ("--conf",), ("x", "--format", "xml"), ("x", "--capacity", "much"), ("x", "--capacity", "0"),
    ("x", "--conf", "no_such:1"), ("x", "--conf", "per_process_memory_fraction:0.5"), ("x", "--costs", "none"),
    ("x", "--nothing"), ("x", "--device", "q")])
def test_wrong_use(tmp_path, arguments):
    write(tmp_path / "x", "a,0,1,0\n")
    done = command("replay", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout and done.stderr.startswith("cachalot: "), done


@pytest.mark.parametrize("name", ["x", "x.gz", "rmm", "odd", "odd.gz"])
@pytest.mark.parametrize("command_name", ["replay", "tune"])
def test_text_has_no_devices(tmp_path, name, command_name):
    text = {"x": "a,0,1,0\n", "rmm": RMM + "1,t,allocate,0x1,5,0\n", "odd": "id,op,bytes\n0,a,1\n"}[name.removesuffix(".gz")].encode()
    write(tmp_path / name, gzip.compress(text) if name.endswith(".gz") else text)
    done = command(command_name, name, "--device", "1", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr == f"cachalot: {name}: a trace of text has no devices: leave out --device\n"


def test_which_column_is_meant(tmp_path):
    done = command("replay", write(tmp_path / "x", "op,id,bytes,bytes\na,0,100,200\n"))
    assert done.returncode == 3 and done.stderr.endswith(" line 1: the column `bytes` is there twice\n")


def test_a_recorded_trace_that_ended_has_all_that_its_header_says(tmp_path):
    whole = recorded(recorded_module.ENDED, 20)
    for data, event, said in ((whole[:4500], 9, "ends here"), (whole[:-1], 20, "ends here"), (whole + b"\0", 21, "goes on"), (whole + whole[-48:], 21, "goes on")):
        for content in (data, gzip.compress(data)):
            path = write(tmp_path / "t", content)
            for words in (("replay", path), ("tune", path), ("export", path, "--csv", "-")):
                done = command(*words)
                assert done.returncode == 3 and f"{path}: event {event}: the file {said}, and its header says 20 events" in done.stderr, done.stderr


@pytest.mark.parametrize("state, said", [(recorded_module.ON, "the trace is cut short"), (recorded_module.STOPPED, "the recording ended early")])
def test_of_a_recorded_trace_that_is_cut_short_it_is_said(tmp_path, state, said):
    whole = recorded(state, 20)
    for data, note in ((whole[:4500], "the trace is cut short: it has 8 of its 20 events"), (whole, said)):
        for content in (data, gzip.compress(data)):
            path = write(tmp_path / "t", content)
            for words in (("replay", path), ("tune", path), ("export", path, "--csv", "-")):
                done = command(*words)
                assert done.returncode == 0 and done.stdout and done.stderr.startswith(f"cachalot: {note}" if note else "")
                assert done.stderr.count("\n") == bool(note), done.stderr


def test_damage_in_a_gzipped_recorded_trace_is_named_by_its_event(tmp_path):
    whole = gzip.compress(recorded(recorded_module.ENDED, 20000))
    for data in (whole[:-20], whole[:len(whole) // 2]):
        last = (len(zlib.decompressobj(31).decompress(data)) - 4096) // 48 + 1
        path = write(tmp_path / "t", data)
        for words in (("replay", path), ("tune", path), ("export", path, "--csv", "-")):
            done = command(*words)
            (event,) = re.findall(f"{path}: event ([0-9]+): the gzip file is damaged from here on", done.stderr)
            assert done.returncode == 3 and last - 200 < int(event) <= last, done.stderr  # it is read 8 KiB at a time


@pytest.mark.parametrize("header", [" op,id,bytes,stream", "op,id,bytes,stream ", "\ufeffop,id,bytes,stream\t", RMM.strip() + " \r"])
def test_blanks_around_a_header(tmp_path, header):
    line = "1,t,allocate,0x10,512,0\n" if "Thread" in header else "a,1,512,0\n"
    path = write(tmp_path / "x", f"{header}\n{line}")
    assert replay(path)["totals"]["peak_requested_bytes"] == 512
    assert command("export", path, "--csv", "-").stdout.count("allocate,") == 1


def test_a_damaged_gzip_file_whose_text_is_refused(tmp_path):
    """Only its end says so, behind the line that is refused."""
    text = (OWN + "".join(f"a,{i},{i * 7919 % 100000 + 1},0\n" for i in range(20000))).encode()
    stored = bytearray(gzip.compress(text, 0))
    at = stored.index(b"a,9000,")
    stored[at:at + 1] = b"?"
    done = command("replay", write(tmp_path / "x", bytes(stored)))
    said = done.stderr.splitlines()
    assert done.returncode == 3 and len(said) == 2 and "line 9002: the operation is neither" in said[0], said
    assert "but the gzip file is damaged, so that its text may not be what was packed" in said[1]
    assert len(command("replay", write(tmp_path / "y", gzip.compress(text.replace(b"a,9000,", b"?,9000,")))).stderr.splitlines()) == 1


def test_a_disk_that_cannot_be_read_is_no_damaged_gzip_file():
    class Disk:
        def read1(self, _):
            raise OSError(5, "Input/output error")
    with pytest.raises(Failure) as raised:
        list(traces.unpack(Disk(), "x"))
    assert str(raised.value) == "x: Input/output error"


def test_a_recorded_trace_that_comes_in_small_pieces(tmp_path):
    data = recorded(recorded_module.ENDED, 300)
    for first in 1, 10, 16, 17, 4000, 4100:
        with subprocess.Popen([TOOL, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False) as process:
            process.stdin.write(data[:first])
            process.stdin.flush()
            time.sleep(0.05)
            process.stdin.write(data[first:])
            process.stdin.close()
            assert json.loads(process.stdout.read())["trace"]["format"] == "recorded"
        assert process.returncode == 0


@pytest.mark.parametrize("words", [("--behind", "-1"), ("--device", "1x"), ("--device", "99999999999"), ("--recorded-reserved", "zz"), ("--capacity", "1 "), ("--behind", ""),
                                   ("--capacity", "0")])
def test_numbers_on_the_command_line(tmp_path, words):
    write(tmp_path / "x", "a,1,512,0\n")
    assert subprocess.run([TOOL, *words, tmp_path / "x"], capture_output=True, check=False).returncode == 2
