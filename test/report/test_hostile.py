"""Pages that are damaged or hostile never crash a reader; what is printed is always valid."""

import io
import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import tempfile
import time

from cachalot_command.command import diff
from cachalot_command.command import show
from cachalot_command.command import top
from cachalot_command.common.tools import Guarded
from cachalot_command.reading import symbols
import pytest
from conftest import COMMAND, VALIDATOR, built, in_process
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def page(place):
    process, path = place.start("exit")
    process.wait()
    return pathlib.Path(path).read_bytes()


def check(place, data):
    """Exit 0 with a valid report, or 3 with a message; nothing else."""
    with tempfile.NamedTemporaryFile(dir=place.pages, suffix=".page") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), 0o600)
        done = place.tool("json", file.name)
        listed = place.tool("list", place.pages)
    assert done.returncode in (0, 3), (done.returncode, done.stderr)
    assert listed.returncode == 0
    if done.returncode == 0:
        VALIDATOR.validate(json.loads(done.stdout))
    else:
        assert done.stderr.startswith("cachalot-page: ")
    return done.returncode


SLOW = settings(max_examples=60)


@SLOW
@given(st.binary(max_size=200))
def test_random_bytes(place, data):
    assert check(place, data) == 3


@SLOW
@given(fraction=st.floats(0, 1))
def test_truncated(place, page, fraction):
    cut = int(len(page) * fraction)
    assert check(place, page[:cut]) == (0 if cut == len(page) else 3)


WORD = st.sampled_from([0, 1, 7, 2**31, 2**32 - 1, 2**53, 2**63, 2**64 - 1])


@SLOW
@given(st.lists(st.tuples(st.integers(0, 10000), WORD), min_size=1, max_size=20))
def test_numbers_changed(place, page, changes):
    data = bytearray(page)
    for at, value in changes:
        struct.pack_into("<Q", data, at * 8 % (len(data) - 8), value)
    check(place, bytes(data))


@SLOW
@given(st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_header_changed(place, page, word, value):
    data = bytearray(page)
    struct.pack_into("<I", data, word * 4, value)
    code = check(place, bytes(data))
    assert code == 3 or word > 4 or data == page  # magic, format, sizes of header and page


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
@pytest.mark.parametrize("at, code", [(0, "is not a page"), (8, "of another version"), (16, "damaged")])
def test_the_first_bytes_decide(place, page, at, code):
    """Of a file of 64 MiB no more is read where they are wrong."""
    path = place.pages / "large.page"
    path.touch(mode=0o600)
    path.write_bytes(page[:at] + b"\xff" * 4 + page[at + 4:])
    os.truncate(path, 64 << 20)
    place.environment["ASAN_OPTIONS"] = "detect_leaks=0"  # leaks cannot be looked for below strace
    done = place.run("strace", "-qq", "-e", "trace=pread64", "-o", "calls", built("cachalot-page"), "json", path)
    calls = (place.work / "calls").read_text()
    assert code in done.stderr and sum(map(int, re.findall(r"= (\d+)$", calls, re.M))) < 65536, calls


@pytest.mark.parametrize("byte", [0x00, 0x41, 0xff, 0x80, 0xed, 0x1b])
def test_everything_but_the_header_is_one_byte(place, page, byte):
    check(place, page[:44] + bytes([byte]) * (len(page) - 44))


def test_list_shows_no_control_characters(place, page):
    data = page.replace(built("make_page").encode(), b"\x1b[2J\n\tx")
    path = place.pages / "hostile.page"
    path.touch(mode=0o600)
    path.write_bytes(data + bytes(len(page) - len(data)))
    assert "\x1b" not in place.tool("list", place.pages).stdout


COMMANDS = ("::error::x", "  ::stop-commands::x", "##[error]x", "a ##vso[task.complete]x", "\n::warning::x", "\r::debug::x", "\u2028::add-mask::x",
            "\u00a0::notice::x", "\x1b[2J", "word " * 14 + "::error::x", "##", "[error]x", "\u202e")


def commanding(value, text):
    """The report with `text` for each of its texts."""
    if isinstance(value, dict):
        return {key: commanding(part, text) for key, part in value.items()}
    if isinstance(value, list):
        return [commanding(part, text) for part in value]
    return text if isinstance(value, str) else value


def commands_nobody(said):
    """As GitHub's runner reads a log: it trims a line, and looks for ##[ anywhere; Azure and TeamCity have a word there."""
    lines = re.split("\r\n|\r|\n", said)
    assert all(c.isprintable() or c in "\n\t" for c in said), said
    assert not any(line.strip().startswith("::") or re.search(r"##\w*\[", line) for line in lines), said


@pytest.mark.parametrize("text", COMMANDS)
def test_no_text_of_a_report_commands_whoever_reads_the_log(place, model, text):
    report = commanding({**model, "oom_events": [{"explanation": "x", "would_serve": ["x"]}], "warnings": [{"text": "x", "count": 1}],
                         "sites": [{"frames": ["x", "x"], "live_bytes": 1, "live_blocks": 1}]}, text)
    report["schema_version"], report["kind"], report["coverage"]["status"] = "1.0.0", model["kind"], "partial"
    report["coverage"]["reasons"] = [text, text]
    path = place.work / f"{text.replace('/', '')}.json"
    path.write_text(json.dumps(report))
    (place.work / "old.json").write_text(json.dumps(model))
    for words in (("show", path), ("diff", "old.json", path), ("diff", path, "old.json", "--all"), ("check", path, "--max-leaked", "0"),
                  ("show", place.work / text), ("replay", path), ("export", path, "--csv", place.work / f"{text}.csv"), ("ls", place.work / text),
                  ("run", "--check", "max-leaked=0", "cp", path, "copy.json"), ("harvest", place.work / text)):
        done = place.cachalot(*words)
        commands_nobody(done.stdout)
        commands_nobody(done.stderr)


@pytest.mark.parametrize("text", COMMANDS)
def test_no_command_comes_in_pieces(text):
    for pieces in [*((text[:i], text[i:]) for i in range(len(text))), text, ("-" * 70, *text), (*"\n \t", *text)]:
        stream = Guarded(io.StringIO())
        for piece in pieces:
            stream.write(piece)
        commands_nobody(stream.getvalue())


def test_no_text_of_a_page_commands_whoever_reads_the_log(place):
    for text in COMMANDS:
        process, path = place.start("exit", CACHALOT_OUTPUT=f"{text.strip()}.%p.json", RANK=text)
        process.wait()
        page = pathlib.Path(path).read_bytes()
        at = page.index(b"make_page")
        pathlib.Path(path).write_bytes(page[:at] + (text.encode() + b"\0" * 9)[:9] + page[at + 9:])
    for words in (("ls",), ("ls", "--json"), ("top", "--once"), ("harvest",), ("dump", "--all")):
        done = place.cachalot(*words)
        commands_nobody(done.stdout)
        commands_nobody(done.stderr)


@pytest.mark.parametrize("left", [0, 2, 12, 40])
def test_a_report_of_which_hardly_anything_is_left_is_no_stranger(run, left):
    """In a folder: what it said of its process might have failed the gate."""
    good = run.add(ooms=0)
    torn = run.folder / "torn.json"
    torn.write_bytes(json.dumps(run.model, indent=2).encode()[:left])
    done = run.check(run.folder, "--max-oom", "0")
    assert done.returncode == 3 and f"{torn} {'is cut off' if left else 'is empty'}" in done.stdout
    for stranger in ('{"name": "x', "[", "<html>", '{"schema": 1'):
        torn.write_text(stranger)
        done = run.check(run.folder, "--max-oom", "0")
        assert done.returncode == 0 and str(torn) not in done.stdout
    assert run.check(torn, good, "--max-oom", "0").returncode == 3


def test_reports_of_other_names_in_a_folder_are_told_of(run):
    """`run --output` takes any name; a folder is asked for *.json only."""
    for name in ("r0", "r1.txt", ".r2.tmp"):
        run.add(name)
    (run.folder / "log").write_text('what is it? {"schema_version": "1.0.0"}')
    (run.folder / "folder").mkdir()
    os.mkfifo(run.folder / "pipe")
    said = "left out: 2 files with the look of a report, not being named *.json"
    done = run.check(run.folder, "--max-oom", "0")
    assert done.returncode == 3 and f"  note: {said}\n" in done.stdout and "reports has no report in it" in done.stdout
    run.add()
    code, verdict = run.gates(run.folder, "--max-oom", "0")
    assert code == 0 and verdict["notes"] == [said]


def test_folders_of_reports_in_a_folder_are_told_of(run):
    """`run --output reports/%h/%p.json` makes them."""
    for name in ("n1", "n2/deep", "other", "other/empty"):
        (run.folder / name).mkdir(parents=True)
    (run.folder / "other/x.json").write_text("{}")
    for name in ("n1", "n2/deep"):
        run.add(folder=run.folder / name)
    done = run.check(run.folder, "--max-oom", "0")
    assert done.returncode == 3 and "reports has no report in it itself, only 2 folders with reports: name them\n" in done.stdout
    run.add()
    for more, notes in (((), ["left out: 2 folders with reports; name them"]), ((run.folder / "n1", run.folder / "n2/deep", run.folder / "n2"), [])):
        assert run.gates(run.folder, *more, "--max-oom", "0")[1]["notes"] == notes


@pytest.mark.parametrize("site", [[], [0], {}, "0", 0.5, True])
@pytest.mark.parametrize("part", ["leaks", "oom_events"])
def test_a_call_site_that_is_no_number_is_damage(run, site, part):
    run.model = {**run.model, "sites": [{"frames": ["train.py:31 step"]}], part: [{"device": 0, "site": None}, {"device": 0, "site": site}]}
    done = run.check(run.add(ooms=1, leaked_bytes=5), "--max-leaked", "0", "--max-oom", "0")
    assert done.returncode == 3 and f"r1.json is damaged: `{part}[1].site` is {site!r}\n" in done.stdout


@pytest.mark.parametrize("content", [b"[%s[]]", b'{"schema_version": "1.0.0", "leaks": [%s[]]}'])
def test_more_than_there_is_memory_for(run, content):
    (run.work / "r.json").write_bytes(content % (b"[]," * (10 << 20)))
    for words in (["show", "r.json"], ["check", "r.json", "--max-oom", "0"], ["export", "r.json", "--perfetto", "x"]):
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)))
        assert done.returncode == 3 and "r.json takes more memory than there is, or than a report of its size should\n" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_report_takes_no_more_memory_than_its_size_allows(run):
    """48 MB of brackets would take 1.2 GB; those of a report with as many blocks take a fifth of that."""
    (run.work / "r.json").write_bytes(b'{"schema_version": "1.0.0", "leaks": [%s[]]}' % (b"[]," * (16 << 20)))
    block = {"address": "0x7f0000000000", "size_bytes": 2097152, "requested_bytes": 2000000, "state": "active", "site": 7}
    (run.work / "large.json").write_text(json.dumps({"schema_version": "1.0.0", "devices": [
        {"name": "a\U0001f40b", "segments": [{"blocks": [block] * 400000}]}]}, ensure_ascii=False))
    for name, code in (("r.json", 3), ("large.json", 0)):
        done = subprocess.run(["/usr/bin/env", "time", "-f", "%M", *COMMAND, "show", name], capture_output=True, text=True, check=False) \
            if shutil.which("time") else subprocess.run([*COMMAND, "show", name], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        kib = done.stderr.split()[-1]
        assert not kib.isdecimal() or int(kib) < 800 << 10


@pytest.mark.parametrize("version", [1, 1.0, 1.5, None, True, ["1.0.0"]])
def test_a_version_that_is_no_text_is_damage(run, version):
    run.model = {**run.model, "schema_version": version}
    done = run.check(run.add(), "--max-oom", "0")
    assert done.returncode == 3 and f"r1.json is damaged: `schema_version` is {version!r}\n" in done.stdout


def test_a_figure_that_older_versions_do_not_have(run):
    run.model = {**run.model, "totals": {k: v for k, v in run.model["totals"].items() if k != "double_frees"}}
    base = run.add("old.json", run.work)
    done = run.check(base, "--max-oom", "0")
    assert done.returncode == 3 and "old.json is of an older version, or damaged: it has no `totals.double_frees`\n" in done.stdout


def test_a_pipe_that_is_written_to_later(place, model):
    """Whoever opens it may come while it is waited for."""
    os.mkfifo(place.work / "pipe")
    with subprocess.Popen([*COMMAND, "show", place.work / "pipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shown:
        time.sleep(0.7)
        (place.work / "pipe").write_text(json.dumps(model))
        text, said = shown.communicate()
    assert (shown.returncode, said) == (0, "") and "Leaked: " in text


@pytest.mark.parametrize("module", ["fifo", 1, True, [], None, "\0", "/dev/zero"])
def test_a_module_that_is_no_file_is_not_opened(place, model, module):
    os.mkfifo(place.work / "fifo")
    site = {"frames": ["a.so+0x10"], "native": [{"module": 0, "offset": "0x10"}], "live_bytes": 512, "live_blocks": 1}
    (place.work / "r.json").write_text(json.dumps({**model, "modules": [module], "sites": [site]}))
    done = place.cachalot("show", "r.json")
    assert done.returncode == 0 and not done.stderr and "Held by call sites:" in done.stdout
    assert re.search(r"at (a\.so|fifo|zero|\?)\+0x10", done.stdout), done.stdout[-300:]


def with_frames(place, model, modules, sites=1, **process):
    """A report whose call sites lie in these modules, one in each and so on."""
    native = [{"module": i % len(modules), "offset": f"{0x1000 + i * 16:#x}"} for i in range(sites)]
    report = {**model, "modules": modules, "process": {**model["process"], "hostname": os.uname().nodename, **process},
              "sites": [{"frames": ["in+0x1"], "native": [frame], "live_bytes": 512, "live_blocks": 1} for frame in native]}
    path = place.work / "r.json"
    path.write_text(json.dumps(report))
    return path


def opened_by(place, *words):
    """Paths that the command and what it starts have opened."""
    if not shutil.which("strace"):
        pytest.skip("no strace")
    place.run("strace", "-f", "-e", "trace=open,openat", "-o", place.work / "calls", *COMMAND, *words)
    return re.findall(r'"([^"]*)"', (place.work / "calls").read_text())


def a_module(place):
    """A program whose main is at a known offset; returns its path and the offset."""
    path = place.work / "named"
    subprocess.run(["cc", "-g", "-no-pie", "-xc", "-", "-o", path], input="int main(void) { return 0; }", text=True, check=True)
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    return str(path), int(re.search(r"(\w+) T main$", listed, re.M)[1], 16) + 4


def test_only_regular_files_with_absolute_paths_are_opened(place, model):
    path, offset = a_module(place)
    os.mkfifo(place.work / "fifo")
    report = with_frames(place, model, ["named", str(place.work / "fifo"), "/dev/full", str(place.work), path], 5)
    for words in (("show", report), ("export", report, "--csv", "x.csv")):
        there = opened_by(place, *words)
        assert path in there and not {"named", str(place.work / "fifo"), "/dev/full", str(place.work)} & {*there}


def test_names_of_another_host_are_looked_up_only_if_asked(place, model):
    path, offset = a_module(place)
    report = json.loads(with_frames(place, model, [path]).read_text())
    report["sites"][0]["native"][0]["offset"] = f"{offset:#x}"
    for host, named, options in ((os.uname().nodename, True, ()), ("another", False, ()), ("another", True, ("--symbols",))):
        report["process"]["hostname"] = host
        (place.work / "r.json").write_text(json.dumps(report))
        out = place.cachalot("show", "r.json", *options).stdout
        assert ("named!main+0x" in out) is named and ("--symbols looks into" in out) is not named, out
        done = place.cachalot("export", "r.json", *options, "--memory-viz", "x.pickle")
        assert done.returncode == 3 and ("--symbols looks into" in done.stderr) is not named
    assert place.cachalot("check", "r.json", "--max-oom", "0").returncode == 0


def elf_of(tables, symbols):
    """An ELF file with so many headers of one and the same symbol table."""
    table = struct.pack("<I2BH2Q", 1, 2, 0, 1, 0x1000, 16) * symbols
    sections = [struct.pack("<2I4Q2I2Q", 0, 2, 0, 0, 64, len(table), tables, 0, 8, 24)] * tables
    sections.append(struct.pack("<2I4Q2I2Q", 0, 3, 0, 0, 64 + len(table), 8, 0, 0, 1, 0))
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<2HI3QI6H", 3, 62, 1, 0, 0, 72 + len(table), 0, 64, 0, 0, 64, len(sections), 0)
    return head + table + b"\0function"[:8] + b"".join(sections)


def test_symbol_tables_are_read_once_and_so_much_in_all(place, model):
    """A hundred names of one file whose table is there ten thousand times; and a thousand such files."""
    (place.work / "module").write_bytes(elf_of(10000, 100000))
    for i in range(100):
        (place.work / f"also{i}").symlink_to("module")
    report = with_frames(place, model, [str(place.work / f"also{i}") for i in range(100)], 100)
    begun = time.monotonic()
    assert "also1!functio+0x10" in place.cachalot("show", report).stdout
    assert time.monotonic() - begun < 15
    (place.work / "module").write_bytes(elf_of(1, 1000000))
    for i in range(1000):
        os.link(place.work / "module", place.work / f"file{i}")
    report = with_frames(place, model, [str(place.work / f"file{i}") for i in range(1000)], 1000)
    done = place.run("sh", "-c", f"ulimit -v 1000000; exec {' '.join(COMMAND)} show {report}")
    assert done.returncode == 0 and "Held by call sites" in done.stdout
    assert time.monotonic() - begun < 55


@pytest.mark.parametrize("left", ["modules", "symbols", "seconds"])
def test_each_bound_on_symbol_tables_holds_alone(tmp_path, monkeypatch, left):
    for name in "ab":
        (tmp_path / name).write_bytes(elf_of(1, 100000))
    monkeypatch.setattr(symbols, "budget", symbols.Budget())
    named = {0x1004: ("functio+0x3", None)}
    assert symbols.read_names(str(tmp_path / "a"), {0x1004}) == named and symbols.budget.symbols == symbols.SYMBOLS_MOST - 100000
    assert symbols.budget.modules == symbols.MODULES_MOST - 1 and symbols.budget.seconds < symbols.SECONDS_MOST
    setattr(symbols.budget, left, 0)
    assert symbols.read_names(str(tmp_path / "a"), {0x1004}) == named  # it is known
    assert symbols.read_names(str(tmp_path / "b"), {0x1004}) in ({}, {0x1004: (None, None)})


def test_what_commands_print_for_programs_is_no_report(run, monkeypatch):
    """It may lie beside the reports: the verdict of the last run, or what was compared."""
    monkeypatch.setenv("CACHALOT_PAGE_DIR", str(run.work))
    good = run.add()
    made = {name: run.folder / f"{name}.json" for name in ("gate", "diff", "top", "tune", "replay")}
    for _ in range(2):
        assert run.check(run.folder, "--max-oom", "0", "--format", "json", "--output", made["gate"]).returncode == 0
    made["diff"].write_text(in_process(diff.main, good, good, "--json")[1])
    line = in_process(top.main, "--once", "--json")[1]
    made["top"].write_text(line + line[:-9])
    for kind in ("tune", "replay"):
        made[kind].write_text(json.dumps({"schema_version": "1.0.0", "kind": kind}, indent=2))
    (run.folder / "gate").write_bytes(made["gate"].read_bytes())
    code, verdict = run.gates(run.folder, "--max-oom", "0")
    assert code == 0 and verdict["notes"] == ["left out: 5 files, being no report of cachalot"]
    for name, path in made.items():
        assert run.check(good, path, "--max-oom", "0").returncode == 3
        assert in_process(show.main, path)[0] == (0 if name == "replay" else 3)
