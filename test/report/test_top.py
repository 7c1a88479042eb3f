"""cachalot top: pages read by their own description, rates, growth, terminals of all sizes."""

import collections
import fcntl
import http.client
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time
import unicodedata

import pytest
from conftest import COMMAND
from hypothesis import given, settings
from hypothesis import strategies as st

from cachalot_command.command import metrics
from cachalot_command.command import top as top_module
from cachalot_command.reading import live

MIB = 1 << 20
SLOW = settings(max_examples=60)


def top(place, *options):
    done = place.cachalot("top", "--once", "--interval", "0.2", *options)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "\x1b" not in done.stdout
    return done.stdout


def top_json(place):
    verdict = json.loads(top(place, "--json"))
    return verdict["processes"], verdict["problems"]


def foreign(place, **changes):
    """A copy of a page, as of another container: nobody can tell whether its process lives."""
    process, path = place.start("exit")
    process.wait()
    fields = live.Page(path).fields
    data = bytearray(pathlib.Path(path).read_bytes())
    for name, value in {"pid_namespace": 1, **changes}.items():
        at = fields[name][0]
        if isinstance(value, int):
            struct.pack_into("=Q", data, at, value)
        else:
            data[at:at + len(value) + 1] = value + b"\0"
    copy = place.pages / f"copy{len(list(place.pages.iterdir()))}.page"
    copy.touch(mode=0o600)
    copy.write_bytes(data)
    return copy


@pytest.mark.parametrize("given, rank", [(b"0", 0), (b"12", 12), (b"", None), (b"a", "a"), (b"0123456789", "0123456789"), (b"-1", "-1")])
def test_rank_and_state_have_one_name_and_type(place, given, rank):
    """In the report, in `top` and in `ls`."""
    place.start("hang")
    (page,) = place.pages.glob("*.page")
    with open(page, "r+b") as file:
        file.seek(live.Page(page).fields["rank"][0])
        file.write(given + b"\0")
    ((found,), _) = top_json(place)
    listed = json.loads(place.cachalot("ls", "--json").stdout)
    assert json.loads(place.tool("json", page).stdout)["process"]["rank"] == found["rank"] == listed["rank"] == rank
    assert found["state"] == listed["state"] == "running"
    for command in (("ls",), ("top", "--once")):
        assert rank is None or str(rank) in place.cachalot(*command).stdout.split()


def test_figures_are_those_of_the_report(place):
    process, page = place.start("hang")
    ((found,), problems) = top_json(place)
    (device,) = found["devices"]
    report = json.loads(place.tool("json", page).stdout)
    stats, totals = report["devices"][0]["statistics"], report["totals"]
    assert problems == [] and found["pid"] == process.pid and found["program"] == "make_page"
    assert found["state"] == "running" and found["hostname"] == report["process"]["hostname"]
    for key in ("allocated_bytes", "reserved_bytes"):
        assert device[key] == stats[key]["all"]["current"]
    assert device["waste_bytes"] == device["reserved_bytes"] - device["allocated_bytes"] > 0
    assert (device["requests"], device["hits"], device["blocks"]) == (3, 1, 2)
    assert device["hits"] == totals["hits"] and device["hit_ratio"] == pytest.approx(1 / 3)
    assert device["hits_per_s"] == 0 and device["growing_bytes_per_s"] is None
    assert device["name"] == "NVIDIA Test" and device["total_bytes"] == 80 << 30


def test_sums_of_parts_are_summed(place):
    _, path = place.start("hang")
    page = live.Page(path)
    offset, _, parts, part_stride = page.fields["submissions.kernels"]
    assert parts > 1
    with open(path, "r+b") as file:
        for i in range(parts):
            file.seek(offset + i * part_stride)
            file.write(struct.pack("=Q", i))
    assert page.number(page.read(), "submissions.kernels") == parts * (parts - 1) // 2
    page.close()


def test_the_last_minute(place):
    """The peak of each part, from the page's series; a damaged one is no reason to stop."""
    place.start("serve")
    time.sleep(1.2)
    title, row = top(place).splitlines()[3:5]
    column = slice(title.index("LAST MINUTE") - 1, title.index("LAST MINUTE") + 11)
    assert row[column] == " " * 11 + "█", row
    page = foreign(place)
    data, places = bytearray(page.read_bytes()), live.Page(str(page)).series_places
    assert len(places) >= 1 and struct.unpack_from("=2Q", data, places[0]) == (1, 3)
    for damage in (b"\xff" * 32768, b"\1" + b"\0" * 7 + b"\xff" * 32760):
        page.write_bytes(bytes(data[:places[0]]) + damage + bytes(data[places[0] + 32768:]))
        assert f"{top(place)}".count("make_page") == 2


def test_rates_are_of_the_interval(place):
    place.start("busy")
    time.sleep(0.3)
    ((found,), _) = top_json(place)
    (device,) = found["devices"]
    # One a millisecond. Between two looks it is 0.2 s, and more where somebody else was in the processor.
    assert 10 < device["hits_per_s"] < 5000 and 0 <= device["fence_waits_per_s"] < 500
    assert device["requests_per_s"] >= 0.9 * device["hits_per_s"]
    assert 0 <= device["fence_wait_ratio"] < 1 and device["torn"] is False


def test_pages_are_only_read(place):
    _, path = place.start("hang")
    before = pathlib.Path(path).read_bytes()
    top(place)
    assert pathlib.Path(path).read_bytes() == before


def test_only_the_living_are_shown(place):
    place.start("exit")[0].wait()
    place.start("exit")  # a zombie
    become, _ = place.start("exec")
    living, path = place.start("hang")
    shutil.copy(path, place.pages / "1.page")  # that pid lives, but has not mapped this file
    for _ in range(100):
        if "sleep" in os.readlink(f"/proc/{become.pid}/exe"):
            break
        time.sleep(0.05)
    processes, _ = top_json(place)
    assert [p["pid"] for p in processes] == [living.pid]


def test_a_program_that_ends_or_execs_disappears(place):
    process, path = place.start("hang")
    watch = live.Watch(str(place.pages))
    (found,) = watch.look()
    found.place = ("elsewhere", "now")  # as if exec had been
    assert len(watch.look()) == 1  # the page is still mapped
    found.page.start_ticks += 1
    assert watch.look() == []  # another process has this pid
    assert len(watch.look()) == 1
    process.kill()
    process.wait()
    assert watch.look() == [] and watch.problems == {}


def test_exec_is_noticed_while_watching(place):
    reader, writer = os.pipe()
    process = subprocess.Popen(["sh", "-c", "read x; exec sleep 100"], stdin=reader)
    place.started.append(process)
    process.stdout = open(os.devnull)
    path = foreign(place, pid_namespace=os.stat("/proc/self/ns/pid").st_ino, pid=process.pid,
                   start_ticks=int(live.stat_fields(process.pid)[19]))
    each = live.Process(live.Page(str(path)))
    each.place = tuple(live.stat_fields(process.pid)[i] for i in (23, 25))
    assert each.is_alive()
    os.write(writer, b"go\n")
    for _ in range(100):
        if not each.is_alive():
            break
        time.sleep(0.05)
    else:
        pytest.fail("exec was not noticed")
    os.close(reader)
    os.close(writer)


def test_no_program(place):
    assert "no running program" in top(place)
    assert top_json(place) == ([], [])


def test_a_unit_is_not_cut_off():
    """Ten columns, with its sign."""
    assert top_module.COLUMNS["GROWS/S"][0] == len(top_module.grows_text(10239 << 10)) == 10


def test_other_containers_are_marked(place):
    path = foreign(place)
    (found,), _ = top_json(place)
    assert found["state"] == "elsewhere" and found["page"] == str(path)
    assert f"{found['pid']}*" in top(place)
    path.rename(place.pages / "kept.page")  # and not harvested
    for other in place.pages.glob("*.0.page"):
        other.unlink()
    running, page = place.start("hang", CACHALOT_OUTPUT="running.json")
    with open(page, "r+b") as file:  # a number in the page decides nothing
        file.seek(live.Page(page).fields["pid_namespace"][0])
        file.write(struct.pack("=Q", 1))
    done = place.cachalot("harvest")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 and not (place.work / "running.json").exists()
    assert [str(p) for p in place.pages.iterdir()] == [page]


@pytest.mark.parametrize("text, rank", [(b"7", 7), (b"node-3", "node-3"), (b"", None), (b"007", 7)])
def test_one_name_and_one_type_in_all_outputs(place, text, rank):
    _, page = place.start("hang")
    with open(page, "r+b") as file:
        file.seek(live.Page(page).fields["rank"][0])
        file.write(text + b"\0")
    report = json.loads(place.tool("json", page).stdout)
    (row,), _ = top_json(place)
    entry = json.loads(place.cachalot("ls", "--json").stdout)
    assert row["rank"] == entry["rank"] == report["process"]["rank"] == rank
    assert row["program"] == entry["program"] == report["process"]["program"] == "make_page"
    assert row["exe"] == entry["exe"] == report["process"]["exe"]
    assert row["state"] == entry["state"] == "running" and row["devices"][0]["device"] == report["devices"][0]["device"] == 0


def test_texts_of_pages_stay_texts(place):
    foreign(place, program=b"\x1b[2J\n\xff", hostname=b"\x1b]0;x\x07", rank="7".encode())
    foreign(place, program="鯨鯨鯨鯨鯨鯨鯨鯨".encode())
    out = top(place)
    assert all(c.isprintable() or c == "\n" for c in out) and "RANK" in out and "鯨" in out


def test_bad_pages_are_named_and_left_out(place):
    living, path = place.start("hang")
    (place.pages / "empty.page").touch(mode=0o600)
    shutil.copy(path, place.pages / "open.page")
    (place.pages / "open.page").chmod(0o644)
    (place.pages / "link.page").symlink_to(path)
    os.mkfifo(place.pages / "fifo.page", 0o600)
    processes, problems = top_json(place)
    assert [p["pid"] for p in processes] == [living.pid] and len(problems) == 4
    assert "and 2 more pages that cannot be read" in top(place)


def read_page(place, data):
    """Figures, or a BadPage; nothing else."""
    path = place.pages / "fuzz.page"
    path.touch(mode=0o600)
    path.write_bytes(data)
    try:
        page = live.Page(str(path))
    except live.BadPage:
        return None
    try:
        process = live.Process(page)
        process.update()
        process.update()
        objects = [top_module.process_object(process)]
        rows = top_module.rows_of(objects, "grows")
        json.dumps(objects)
        return top_module.table_lines(rows, 200)
    except live.BadPage:
        return None
    finally:
        page.close()


@pytest.fixture
def page(place):
    return foreign(place).read_bytes()


WORD = st.sampled_from([0, 1, 7, 2**31, 2**32 - 1, 2**53, 2**63, 2**64 - 1])


@SLOW
@given(changes=st.lists(st.tuples(st.integers(0, 10000), WORD), max_size=20))
def test_numbers_changed(place, page, changes):
    data = bytearray(page)
    for at, value in changes:
        struct.pack_into("=Q", data, at * 8 % (len(data) - 8), value)
    read_page(place, bytes(data))


@SLOW
@given(word=st.integers(2, 10), value=st.integers(0, 2**32 - 1) | WORD.filter(lambda w: w < 2**32))
def test_header_changed(place, page, word, value):
    data = bytearray(page)
    struct.pack_into("=I", data, word * 4, value)
    read_page(place, bytes(data))


def test_a_page_without_the_fields_is_of_another_version(place, page):
    for name in (b"device.sequence\0", b"device.num_hits\0", b"device.name\0", b"exe\0"):
        assert page.count(name) == 1
        assert read_page(place, page.replace(name, b"x" + name[1:])) is None


@SLOW
@given(fraction=st.floats(0, 1))
def test_truncated(place, page, fraction):
    cut = int(len(page) * fraction)
    assert (read_page(place, page[:cut]) is None) == (cut < len(page))


def samples(text):
    """{name: [(labels, value)]} of OpenMetrics, as a strict reader has it; gauges only."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    families = list(parser.text_string_to_metric_families(text))
    assert {family.type for family in families} == {"gauge"} and all(family.documentation for family in families)
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}


def test_metrics(place):
    """As a text and as a file: what `top` says, with labels that tell programs apart."""
    pod = "0123abcd-0000-1111-2222-333344445555"
    place.environment.update(SLURM_JOB_ID='7"7\\')
    process, path = place.start("serve")
    stranger = foreign(place, rank=b"3", program=b"a \xff\nb")
    done = place.cachalot("metrics")
    assert (done.returncode, done.stderr) == (0, "")
    found, (processes, _) = samples(done.stdout), top_json(place)
    told = {str(p["pid"]): (p, p["devices"][0]) for p in processes}
    for name, key in (("allocated_bytes", "allocated_bytes"), ("peak_reserved_bytes", "peak_reserved_bytes"), ("requests", "requests")):
        assert {labels["pid"]: value for labels, value in found[f"cachalot_{name}"]} == {pid: d[key] for pid, (_, d) in told.items()}
    own = next(labels for labels, _ in found["cachalot_hits"] if labels["pid"] == str(process.pid))
    assert own == {"program": "make_page", "slurm_job": '7"7\\', "pid": str(process.pid), "gpu": "0",
                   "uuid": "GPU-00000000-0000-0000-0000-000000000000"}
    (other,) = [labels for labels, _ in found["cachalot_hits"] if labels != own]
    assert other["rank"] == "3" and "slurm_job" not in other and "\n" not in other["program"]
    assert {value for _, value in found["cachalot_device_free_bytes"]} == {60 << 30}
    assert found["cachalot_programs"] == [({}, 2)]
    stranger.unlink()
    made = place.work / "gpu.prom"
    assert place.cachalot("metrics", "--output", made).returncode == 0
    assert samples(made.read_text()).keys() == found.keys() and made.stat().st_mode & 0o777 == 0o644
    match = metrics.POD.search(f"0::/kubepods.slice/kubepods-pod{pod.replace('-', '_')}.slice/cri-containerd-x.scope")
    assert match[1].replace("_", "-") == pod and metrics.POD.search(f"0::/kubepods/burstable/pod{pod}/x")[1] == pod


@pytest.mark.parametrize("arguments", [
    ["x"], ["--listen", "70000"], ["--listen", "1", "--output", "f"], ["--interval", "5"], ["--interval", "0", "--output", "f"]])
def test_metrics_usage(place, arguments):
    done = place.cachalot("metrics", *arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_metrics_over_http(place):
    place.start("serve")
    server = subprocess.Popen([*COMMAND, "metrics", "--listen", "0"], stderr=subprocess.PIPE, text=True, env=place.environment)
    try:
        port = int(re.fullmatch(r"cachalot: http://127.0.0.1:(\d+)/metrics\n", server.stderr.readline())[1])

        def get(path="/metrics", **headers):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type"), answer.read().decode()

        status, kind, text = get(Accept="application/openmetrics-text; version=1.0.0, text/plain")
        assert status == 200 and kind.startswith("application/openmetrics-text; version=1.0.0")
        assert len(samples(text)["cachalot_allocated_bytes"]) == 1
        assert get()[1].startswith("text/plain; version=0.0.4")
        assert [get("/other")[0], get(Host="evil.example")[0], get(Host=f"localhost:{port}")[0]] == [404, 403, 200]
        sock = socket.create_connection(("127.0.0.1", port))  # a reader that says nothing, and goes
        sock.close()
        assert get()[0] == 200
        listening = pathlib.Path("/proc/net/tcp").read_text()
        assert f"0100007F:{port:04X}" in listening and f"00000000:{port:04X}" not in listening
    finally:
        server.kill()
        server.communicate()


def test_metrics_of_a_hundred_programs_take_20_ms(place, monkeypatch):
    data = foreign(place).read_bytes()
    for i in range(99):
        (place.pages / f"more{i}.page").touch(mode=0o600)
        (place.pages / f"more{i}.page").write_bytes(data)
    monkeypatch.setenv("CACHALOT_PAGE_DIR", str(place.pages))
    exporter, spent = metrics.Exporter(), []
    for _ in range(20):
        begin = time.process_time()
        text = exporter.text()
        spent.append(time.process_time() - begin)
    assert "cachalot_programs 100\n" in text and min(spent) <= 0.02, spent


def history(values, step=1.0):
    return collections.deque((i * step, value) for i, value in enumerate(values))


def test_growth():
    saw = [i % 7 * MIB for i in range(60)]
    leak = [value + i * 1000 for i, value in enumerate(saw)]
    assert live.growth_of(history(saw)) == 0
    assert live.growth_of(history(leak)) == pytest.approx(1000, rel=0.2)
    assert live.growth_of(history(leak[:7])) is None
    assert live.growth_of(history(leak, 0.1)) is None  # six seconds tell nothing
    assert live.growth_of(history([5] * 60)) == 0
    assert live.growth_of(history([5] * 30 + list(range(5, 35)))) == 0
    assert live.growth_of(history(range(60, 0, -1))) == 0


@given(st.lists(st.integers(0, 2**40), min_size=9, max_size=80), st.integers(0, 2**40))
def test_no_growth_where_the_least_comes_again(values, least):
    values = [value + least for value in values]
    values[0] = values[-1] = least
    assert live.growth_of(history(values)) == 0


def columns_of(line):
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
               for c in line)


ROW = st.fixed_dictionaries({
    "pid": st.integers(0, 2**22), "state": st.sampled_from(["running", "elsewhere"]),
    "rank": st.sampled_from([None, 0, 3, "x" * 15]), "program": st.text(min_size=1, max_size=60),
    "hostname": st.text(max_size=20), "devices": st.lists(st.fixed_dictionaries({
        "device": st.integers(0, 99), "name": st.text(max_size=40),
        **{key: st.integers(0, 2**64) for key in ("allocated_bytes", "reserved_bytes",
                                                  "waste_bytes", "ooms", "asked_bytes", "given_bytes")},
        **{key: st.none() | st.floats(0, 1e12) for key in (
            "hits_per_s", "fence_waits_per_s", "growing_bytes_per_s")},
        **{key: st.none() | st.floats(0, 1) for key in ("hit_ratio", "fence_wait_ratio")}}),
        max_size=3)})


@given(st.lists(ROW, max_size=12), st.integers(1, 300), st.integers(1, 40),
       st.sampled_from(sorted(top_module.SORTS)))
def test_every_screen_holds_its_lines(objects, width, height, sort):
    watch = live.Watch("/nowhere")
    watch.problems = {f"/a/{i}\n": "is \x1b bad" for i in range(3)}
    rows = top_module.rows_of(objects, sort)
    lines = top_module.screen(watch, objects, rows, os.terminal_size((width, height)),
                                {"interval": 1.0})
    assert len(lines) <= height and all(columns_of(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)


def test_wide_terminals_show_all_and_narrow_ones_the_first(place):
    place.start("hang")
    for width, titles in ((200, "DEVICE"), (80, "LAST MINUTE"), (45, "RESERVED"), (20, "PROGRAM")):
        place.environment["COLUMNS"] = str(width)
        lines = top(place).splitlines()
        assert titles in lines[3] and max(map(len, lines[3:])) <= width
        assert ("HOST" in lines[3]) == (width == 200)


@pytest.mark.parametrize("arguments", [
    ("x",), ("--else",), ("--interval", "0"), ("--interval", "nan"), ("--interval", "x"),
    ("--sort", "x"), ("--interval",)])
def test_usage(place, arguments):
    assert place.cachalot("top", *arguments).returncode == 2


class Screen:
    """The command on a terminal of its own."""

    def __init__(self, place, *options):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 90, 0, 0))
        environment = {**place.environment, "TERM": "xterm"}
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen([*COMMAND, "top", *options], env=environment, stdin=slave,
                                        stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.process.stdout = open(os.devnull)
        place.started.append(self.process)
        self.text = ""

    def until(self, wanted):
        end = time.monotonic() + 60
        while wanted not in self.text:
            assert time.monotonic() < end, (wanted, self.text)
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536).decode("utf-8", "replace")
        seen, self.text = self.text, ""
        return seen

    def type(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        code = self.process.wait(60)
        self.until(top_module.LEAVE)
        assert termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return code


def test_on_a_terminal(place):
    place.start("busy")
    screen = Screen(place, "--interval", "0.5")
    drawn = screen.until("make_page")
    assert top_module.ENTER in drawn and "WASTE" in drawn and "HOST" not in drawn
    screen.type("a")
    screen.until("make_page")
    fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 34, 0, 0))
    os.kill(screen.process.pid, signal.SIGWINCH)
    while "RESERVED" in screen.until(top_module.CLEAR_REST):
        pass
    screen.type("q")
    assert screen.end() == 0


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_the_terminal_as_it_was(place, number, code):
    screen = Screen(place)
    screen.until("no running program")
    screen.process.send_signal(number)
    assert screen.end() == code


def test_lines_of_json_go_on(place):
    place.start("busy")
    with subprocess.Popen([*COMMAND, "top", "--json", "--interval", "0.1"], env=place.environment,
                          stdout=subprocess.PIPE, text=True) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.kill()
    hits = [line["processes"][0]["devices"][0]["hits"] for line in lines]
    assert hits == sorted(hits) and hits[0] < hits[2]
