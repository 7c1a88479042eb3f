"""What others planted is not used, what others wrote is not read, and nothing is written but what was named."""

import contextlib
import ctypes
import mmap
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import sanitizer
from conftest import LIBRARY, MIB, PROGRAMS, SIM, load
from test_ipc import Shell, shared

NOBODY = 65534
SERIES_BYTES = 32 + 2046 * 16
EVERYTHING = {"CACHALOT_EVENTS": "64", "CACHALOT_SITES": "1", "CACHALOT_TRACE": "t", "CACHALOT_LOG": "log", "CACHALOT_GROUP": "a"}
EVERY_OPTION = "fill:zero,bounds:warn,device_size_mb:4096,group_limit_mb:2048,fail_alloc:1000000,idle_return_s:1"
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")


def test_inert_in_a_process_with_rights(place):
    """AT_SECURE."""
    native = place.native("allocate_130")
    ours = place.run("allocate_130", preload=(PROGRAMS / "libsecure.so", LIBRARY), CACHALOT_LOG="log")
    assert (ours.code, ours.out, ours.err) == (0, native.out, "")
    assert list(place.work.iterdir()) == [] and place.left_pages() == []


@pytest.mark.parametrize("value", ["../../up", "/etc/up", "..", ".", "%p", "a\nb", "x" * 500, "\x1b[2J"],
                         ids=lambda value: ascii(value)[:12])
def test_values_stay_in_their_folder(place, value):
    (place.work / "in").mkdir()
    place.same("allocate_130", CACHALOT_OUTPUT="in/%r/%q{WHO}", RANK=value, WHO=value)
    assert [path.name for path in place.work.iterdir()] == ["in"]
    (folder,) = (place.work / "in").iterdir()
    (path,) = folder.iterdir()
    assert all(32 <= ord(c) < 127 for c in folder.name + path.name)
    assert load(path)["totals"]["requests"] == 6


def test_nothing_is_written_elsewhere(place):
    folders = {name: place.work / name for name in ("home", "tmp", "cwd", "out")}
    for folder in folders.values():
        folder.mkdir()
    script = f"cd {folders['cwd']} && exec {PROGRAMS}/allocate_130"
    ours = place.run("/bin/sh", "-c", script, HOME=folders["home"], TMPDIR=folders["tmp"],
                     XDG_CACHE_HOME=folders["home"], XDG_RUNTIME_DIR=folders["tmp"],
                     CACHALOT_OUTPUT=folders["out"] / "r.json")
    assert (ours.code, ours.err) == (0, "")
    left = [path for name in ("home", "tmp", "cwd") for path in folders[name].iterdir()]
    assert left == [] and place.left_pages() == []
    (report,) = folders["out"].iterdir()
    assert stat.S_IMODE(report.stat().st_mode) & 0o022 == 0


@pytest.fixture
def theirs(place):
    """A folder of another user's, in which programs can run, the page directory of that user, and the user's number: one that has
    no pages yet."""
    user = next(user for user in range(60000 + os.getpid() % 4000, NOBODY) if not os.path.lexists(f"/dev/shm/cachalot-{user}"))
    pages = pathlib.Path(f"/dev/shm/cachalot-{user}")
    open_to_all = (p for p in map(pathlib.Path, (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")) if os.access(p, os.W_OK) and
                   all(q.stat().st_mode & stat.S_IXOTH for q in (p, *p.parents)))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cachalot-theirs-", dir=next(open_to_all)))
    for path in (LIBRARY, SIM / "libcuda.so.1", SIM / "libcudart.so.13", PROGRAMS / "allocate_130"):
        shutil.copy(path, folder)
    os.chown(folder, user, user)
    yield folder, pages, user
    shutil.rmtree(folder)
    if pages.is_dir() and not pages.is_symlink():
        shutil.rmtree(pages)
    elif pages.exists() or pages.is_symlink():
        pages.unlink()


def plant(pages, what, victim, user):
    if what == "link":
        victim.mkdir(0o700)
        os.chown(victim, user, user)
        pages.symlink_to(victim)
    elif what == "file":
        pages.write_text("planted")
    else:
        pages.mkdir()
        pages.chmod(0o777 if what == "open" else 0o700)
        os.chown(pages, 0 if what == "another's" else user, user)


@as_root
@sanitizer.unless_sanitized("its runtime cannot be read by that user", ("asan", "tsan"))
@pytest.mark.parametrize("what", ["link", "file", "open", "another's"])
def test_a_planted_page_directory_is_refused(place, theirs, what):
    folder, pages, user = theirs
    plant(pages, what, folder / "victim", user)
    environment = {"LD_PRELOAD": str(folder / "libcachalot.so"), "LD_LIBRARY_PATH": str(folder), "PATH": "/bin"}
    done = subprocess.run([folder / "allocate_130"], cwd=folder, env=environment, user=user, group=user,
                          extra_groups=[], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = folder.glob("*.json")
    warnings = [warning["text"] for warning in load(path)["warnings"]]
    assert any("the page has no file" in text for text in warnings), warnings
    assert not pages.is_dir() or list(pages.iterdir()) == []


@as_root
@pytest.mark.skipif(subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0, reason="no mounts here")
def test_root_uses_no_folder_of_others(place):
    """Which it could open."""
    script = (f"unset CACHALOT_PAGE_DIR && mount -t tmpfs none /dev/shm && mkdir -m 700 /dev/shm/cachalot-0 && chown {NOBODY} /dev/shm/cachalot-0 && "
              f"{PROGRAMS}/allocate_130 && exec ls /dev/shm/cachalot-0")
    ours = place.run("/usr/bin/unshare", "-m", "/bin/sh", "-c", script)
    native = place.native("allocate_130")
    assert (ours.code, ours.out, ours.err) == (0, native.out, "")
    assert place.only_report().warned("the page has no file") == 1


def test_a_planted_page_is_not_written_through(place):
    """The name of the page that a program will make, before it is there: the link's target stays, and a page is made."""
    victim = place.work / "victim"
    victim.write_text("mine")
    script = ("start=$(cut -d' ' -f22 /proc/$$/stat); "
              f"ln -s {victim} {place.pages}/$$.$start.0.page && exec {PROGRAMS}/end kill")
    native = place.native("/bin/sh", "-c", f"exec {PROGRAMS}/end kill")
    ours = place.run("/bin/sh", "-c", script)
    assert (ours.code, ours.out, ours.err) == (native.code, native.out, native.err)
    assert victim.read_text() == "mine"
    (page,) = [path for path in place.left_pages() if not path.is_symlink()]
    assert page.name.endswith(".1.page")
    done = place.cachalot("harvest")
    assert done.code == 3 and "0.page: cannot be opened" in done.err
    assert [load(path)["totals"]["requests"] for path in done.out.split()] == [2]
    assert victim.read_text() == "mine"


@as_root
@sanitizer.unless_sanitized("its runtime cannot be read by that user", ("asan", "tsan"))
def test_anothers_report_in_a_sticky_folder(place, theirs):
    """It cannot be replaced there, so the next name is taken."""
    folder, pages, user = theirs
    place.run("allocate_130", CACHALOT_OUTPUT="old.json")
    shared = folder / "shared"
    shared.mkdir()
    shutil.copy(place.work / "old.json", shared / "out.json")
    os.chown(shared, 0, 0)
    shared.chmod(0o1777)
    os.chown(shared / "out.json", 1, 1)
    environment = {"LD_PRELOAD": str(folder / "libcachalot.so"), "LD_LIBRARY_PATH": str(folder), "PATH": "/bin",
                   "CACHALOT_OUTPUT": str(shared / "out.json")}
    done = subprocess.run([folder / "allocate_130"], cwd=folder, env=environment, user=user, group=user,
                          extra_groups=[], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = [path for path in shared.iterdir() if path.name != "out.json"]
    assert load(path)["totals"]["requests"] == 6 and not list(pages.glob("*.page"))


@as_root
def test_pages_of_others_are_not_read(place):
    place.run("end", "kill")
    (page,) = place.left_pages()
    os.chown(page, NOBODY, NOBODY)
    done = place.cachalot("harvest")
    assert done.code == 3 and "another user" in done.err
    assert page.exists() and list(place.work.iterdir()) == []


def fields_of(data):
    """(offset, bytes) of every number and text in a page: of its beginning, its table, and its series; and of what has no name
    in the table (paths, options, requests, needs, events without memory, warnings, rows of devices), of ring and sites word by
    word."""
    _, _, _, size, count, offset, _, _, _, events, sites, series, many = struct.unpack_from("=8s12I", data)
    yield from ((at, 4) for at in range(8, 56, 4))
    for i in range(count):
        _, at, stride, parts, part_stride, unit = struct.unpack_from("=56s4I8s", data, offset + i * 80)
        for place in ((row * stride, part * part_stride) for row in range(2 if stride else 1) for part in range(parts or 1)):
            yield at + sum(place), 64 if unit.startswith(b"text") else 8
    yield from ((at, 8) for at in range(56, offset, 8))
    yield from ((at, 8) for at in range(offset + 56, offset + count * 80, 80))
    yield from ((at, 8) for at in range(series, series + many * SERIES_BYTES, 8) if series)
    yield from ((at, 8) for begin in (events, size - 4096 * 4) for at in range(begin, min(begin + 4096, size), 8) if begin)
    yield from ((at, 8) for at in range(sites, min(sites + 65536, size - 8), 8) if sites)


def write_all_over(file, decoy, places, alive, times):
    """Each field by hand, then all at random; texts become the path of the decoy. Returns how often it wrote."""
    random_ = random.Random(1)
    size = os.fstat(file).st_size
    text = os.fsencode(decoy)
    evil = [b"\0" * 8, b"\xff" * 8, b"\1" + b"\0" * 7, b"\0" * 7 + b"\x80", b"\xff" * 7 + b"\x7f", b"/" * 8]
    written = 0
    with mmap.mmap(file, size) as page:
        def put(at, bytes_):
            page[at:at + len(bytes_)] = bytes_
        texts = [at for at in range(48, size - len(text), 8) if page[at:at + 1] == b"/" or page[at:at + 5] == b"cacha"]
        for at in texts:
            put(at, text + b"\0")
        for value in evil:
            for at, length in places:
                put(at, value[:length] if length < 64 else (text + b"\0" * 64)[:length])
                written += 1
        while alive() and written < times:
            at, length = random_.choice(places)
            put(at, random_.choice([random_.randbytes(min(length, 8)), random_.choice(evil)[:length]]))
            written += 1
            if written % 1000 == 0:
                for at in texts:
                    put(at, text + b"\0")
                time.sleep(0.001)
    return written


@pytest.mark.parametrize("conf", ["expandable_segments:True", "expandable_segments:False", "thread_cache:off", EVERY_OPTION])
@pytest.mark.parametrize("more", [{}, {name: value for name, value in EVERYTHING.items() if name != "CACHALOT_LOG"}], ids=["plain", "all"])
def test_a_page_that_is_written_by_others(place, conf, more):
    """The program takes nothing from it: it reports where it was told to, and works on."""
    decoy = place.work / "decoy"
    decoy.write_bytes(b"")
    decoy.chmod(0o600)
    process = place.start("allocate_on", CACHALOT_OUTPUT="r.json", CACHALOT_CONF=conf, **more)
    assert process.stdout.readline() == "ready\n"
    (page,) = place.pages.glob("*.page")
    was = decoy.stat()
    file = os.open(page, os.O_RDWR)
    try:
        size = os.fstat(file).st_size
        places = [one for one in fields_of(os.pread(file, size, 0)) if sum(one) <= size]
        wanted = 200000 // sanitizer.SLOWER
        written = write_all_over(file, decoy, places, lambda: process.poll() is None, 200000)
        if process.poll() == -signal.SIGABRT and "is_valid(a)' failed" in process.stderr.read():
            pytest.skip("this build has assertions: they compare the blocks with the page's numbers")
        assert written >= wanted
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        write_all_over(file, decoy, places, lambda: process.poll() is None, 1)
    finally:
        os.close(file)
    out, err = process.communicate("", timeout=60)
    assert (process.returncode, out, err) == (0, "cudaGetLastError(): 0\n", "")
    now = decoy.stat()
    assert (now.st_ino, now.st_mtime_ns, now.st_size) == (was.st_ino, was.st_mtime_ns, 0)
    assert not page.exists()
    assert {path.name for path in place.work.iterdir()} <= {"decoy", "r.json", "t"} | {f"r.{i}.json" for i in range(99)}
    assert load(place.work / "r.json")["process"]["pid"] == process.pid


@as_root
@sanitizer.unless_sanitized("its runtime cannot be read by that user", ("asan", "tsan"))
def test_no_page_where_the_users_differ(place):
    """Whoever may write it would have the program act with the rights of another user."""
    place.pages.chmod(0o1777)
    script = (f"import ctypes, os; os.setresuid(0, {NOBODY}, 0); ctypes.CDLL('libcuda.so.1').cuInit(0); "
              "print(os.listdir(os.environ['CACHALOT_PAGE_DIR'])); os.setresuid(0, 0, 0)")
    ours = place.run(sys.executable, "-c", script)
    assert (ours.code, ours.out, ours.err) == (0, "[]\n", "")
    assert place.only_report().warned("real, effective and saved user differ") == 1


USERS = f"""
import ctypes, os, sys
NOBODY, cuda, libc = {NOBODY}, ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
def begin():
    context, block = ctypes.c_void_p(), ctypes.c_uint64()
    assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
    for size in (1000, 5000000):
        assert not cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size))
def nobody_who_may_become_root():
    KEEPCAPS, DUMPABLE, SETUID_AND_SETGID = 8, 4, 0xc0
    assert not libc.prctl(KEEPCAPS, 1, 0, 0, 0)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    assert not libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(SETUID_AND_SETGID, SETUID_AND_SETGID))
    libc.prctl(DUMPABLE, 1, 0, 0, 0)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@as_root
@sanitizer.unless_sanitized("its runtime cannot be read by that user", ("asan", "tsan"))
@pytest.mark.parametrize("steps, owner, code", [
    (["begin()", "os.setresuid(NOBODY, NOBODY, NOBODY)"], 0, 0),
    (["begin()", "os.seteuid(NOBODY)"], 0, 0),
    (["begin()", "os.setresuid(NOBODY, 0, 0)"], 0, 0),
    (["nobody_who_may_become_root()", "begin()", "os.setresuid(0, 0, 0)"], NOBODY, 1),
    (["nobody_who_may_become_root()", "begin()", "os.seteuid(1)"], NOBODY, 1),
    (["os.seteuid(NOBODY)", "begin()"], None, None),
    (["os.setresuid(NOBODY, NOBODY, 0)", "begin()"], None, None),
    (["os.setresuid(NOBODY, 0, 0)", "begin()", "os.setresuid(0, 0, 0)"], None, None)],
    ids=["all", "effective", "real", "to root", "to another", "first", "saved", "and back"])
def test_requests_after_a_change_of_user(place, steps, owner, code):
    """Who could write the page before gets nothing done by it afterwards, except root; the last report is right."""
    place.pages.chmod(0o1777)
    process = place.start(sys.executable, "-c", USERS, CACHALOT_OUTPUT=place.pages / "r.json")  # where each user may write
    for step in steps:
        process.stdin.write(step + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
    assert [page.stat().st_uid for page in place.left_pages()] == [owner] * (owner is not None)
    for page in place.left_pages():
        try:
            asked = subprocess.run([LIBRARY.parent / "cachalot-page", "request", page, "report"], user=owner, extra_groups=[],
                                   capture_output=True, text=True, check=False, timeout=60)
        except PermissionError:
            process.kill()
            pytest.skip("other users may not read where this was built")
        assert (asked.returncode, "changed its user" in asked.stderr) == (code, code == 1), asked
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 0
    reports = {path.name: load(path) for path in place.pages.glob("*.json")}
    assert sorted(reports) == ["r.1.json", "r.json"][code != 0:]
    assert reports["r.json"]["kind"] == "exit" and reports["r.json"]["totals"]["requests"] == 2
    place.cachalot("harvest")
    assert place.left_pages() == [] or "seteuid(1)" in steps[-1]  # who may not remove a page of another user's
    assert len(list(place.pages.glob("*.json"))) == len(reports) and list(place.work.iterdir()) == []


def test_a_page_that_is_cut_off_while_it_is_read(place):
    """The tool says so, or reads what was there; no signal ends it."""
    place.run("end", "kill", CACHALOT_EVENTS="100000")
    (page,) = place.left_pages()
    data, stop = page.read_bytes(), threading.Event()

    def cut():
        file = os.open(page, os.O_RDWR)
        while not stop.is_set():
            os.ftruncate(file, 4096)
            os.pwrite(file, data, 0)
        os.close(file)
    thread = threading.Thread(target=cut)
    thread.start()
    codes = {subprocess.run([LIBRARY.parent / "cachalot-page", "json", page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            check=False).returncode for _ in range(60)}
    stop.set()
    thread.join()
    assert codes <= {0, 3}


@sanitizer.unless_sanitized("descriptors stay shared there", ("tsan",))
@pytest.mark.parametrize("way", ["plain", "warn", "ipc"])
def test_a_program_that_closes_what_it_does_not_know(place, way):
    """It keeps its files and gets the lowest numbers, but while memory is shared, which passes as descriptors through its table."""
    process = place.start("closes_unknown", 3, *[way][way == "plain":], CACHALOT_EVENTS="64", CACHALOT_TRACE="t", CACHALOT_LOG="log",
                          CACHALOT_CONF="expandable_segments:True" if way == "ipc" else "")
    while process.poll() is None:
        place.cachalot("dump", process.pid)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    for line in out.splitlines():
        rounds, lost, moved, *_ = map(int, re.findall(r"\d+", line))
        assert rounds > 300
        assert way == "ipc" or (lost, moved) == (0, 0), line
    assert len(place.reports()) > 3


@sanitizer.unless_sanitized("the race is what it shows", ("tsan",))
def test_an_export_takes_the_lowest_number_natively(place):
    """So a program that closes what it does not know has no better numbers where another library exports memory."""
    done = place.native("closes_unknown", 1, "native")
    rounds, _, moved, *_ = map(int, re.findall(r"\d+", done.out))
    assert done.code == 0 and rounds > 100 and moved > 0


def descriptors_of(process):
    """{number: (what it means, its flags)}. One may be closed meanwhile."""
    found = {}
    for name in os.listdir(f"/proc/{process.pid}/fd"):
        with contextlib.suppress(OSError):
            flags = re.search(r"flags:\s*(\d+)", pathlib.Path(f"/proc/{process.pid}/fdinfo/{name}").read_text(encoding="ascii"))
            found[int(name)] = os.readlink(f"/proc/{process.pid}/fd/{name}"), int(flags[1], 8)
    return found


@sanitizer.unless_sanitized("descriptors stay shared there", ("tsan",))
def test_numbers_of_our_descriptors(place):
    """With every option, and while memory is shared: all are 64 or above, and no program inherits them."""
    seen = {}
    native = Shell(place, preload=())
    native.number("make", MIB)
    conf = {**EVERYTHING, "CACHALOT_CONF": f"expandable_segments:True,{EVERY_OPTION}"}
    a, b = Shell(place, **conf), Shell(place, **conf)
    _, handle = shared(a)
    for _ in range(20):
        assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
        assert a.number("free", a.number("make", 3 * MIB)) == 0
        for shell in (a, b):
            shell.process.send_signal(signal.SIGUSR1)
        for _ in range(20):
            seen.update(descriptors_of(a.process) | descriptors_of(b.process))
    ours = {number: what for number, what in seen.items() if what[0] not in {name for name, _ in descriptors_of(native.process).values()}
            and not what[0].startswith(("pipe:", "/memfd:cachalot-sim"))}
    assert any(name.startswith("socket:") for name, _ in ours.values())
    assert all(number >= 64 and flags & os.O_CLOEXEC for number, (_, flags) in ours.items()), ours
    for shell in (native, a, b):
        shell.end()


class Opened:
    """What the threads that share the program's table open, as strace tells it."""

    CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")
    OPENS = ("open", "openat", "socket", "accept4", "memfd_create", "pipe2", "dup", "eventfd2", "epoll_create1", "userfaultfd")

    def __init__(self, text):
        self.found = []
        apart, begun, open_now = set(), {}, {}
        for line in text.splitlines():
            thread, _, rest = line.partition(" ")
            rest = rest.strip()
            if rest.endswith("<unfinished ...>"):
                begun[thread] = rest[:-16]
                continue
            resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", rest)
            call = self.CALL.match(begun.pop(thread, "") + resumed[1] if resumed else rest)
            if not call:
                continue
            name, words, result = call[1], call[2], int(call[3])
            if result == 0 and ("CLOSE_RANGE_UNSHARE" in words or name == "unshare" and "CLONE_FILES" in words):
                apart.add(thread)
            elif thread in apart:
                continue
            elif name in self.OPENS and result >= 0:
                self.found.append(words)
                open_now[result] = words
            elif name == "fcntl" and "F_DUPFD_CLOEXEC, 64" in words:
                self.found.remove(open_now.pop(int(words.split(",")[0])))


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
@sanitizer.unless_sanitized("its runtime opens files, and descriptors stay shared there", ("asan", "tsan"))
@pytest.mark.parametrize("words, more", [
    (["allocate_130"], {}), (["allocate_130"], {**EVERYTHING, "CACHALOT_CONF": EVERY_OPTION}),
    (["load_deep", "deep", PROGRAMS / "liballocate_plugin_130.so"], {}),
    (["end", "return"], {"CACHALOT_TRACE": "t"})], ids=["plain", "all", "deep", "exit"])
def test_no_file_of_ours_passes_through_the_programs_table(place, words, more):
    """Not for a moment, but on its way to 64 and above. What the loader opens of us is no such file."""
    program, *arguments = place.words(words[0], words[1:])
    paths = {}
    for kind, preload in (("native", ()), ("ours", (LIBRARY,))):
        environment = [f"-E{name}={value}" for name, value in {"LD_PRELOAD": place.preload(*preload), **(more if preload else {})}.items() if value]
        done = place.run(shutil.which("strace"), "-f", "-qq", "-s999", "-e", "trace=desc,network,memfd_create,unshare,close_range", "-e", "signal=none",
                         *environment, "-o", place.work / kind, program, *arguments, preload=())
        assert done.err == ""
        paths[kind] = Opened((place.work / kind).read_text(errors="replace")).found
    ours = [path for path in paths["ours"] if path not in paths["native"] and ".so" not in path and "locale" not in path]
    assert ours == [] and len(paths["native"]) > 3


@pytest.mark.parametrize("more", [{}, {"CACHALOT_EVENTS": "64", "CACHALOT_TRACE": "t"}], ids=["plain", "all"])
@sanitizer.unless_sanitized("its runtime needs more", ("asan", "tsan"))
def test_a_main_thread_with_a_small_stack(place, more):
    """Natively 16 KiB are enough, wherever the stack begins: so without random addresses."""
    def prepare():
        ctypes.CDLL(None).personality(0x0040000)
        resource.setrlimit(resource.RLIMIT_STACK, (16384, 16384))
    native = place.start("allocate_driver", preload=(), prepare=prepare)
    out, _ = native.communicate("", timeout=60)
    ours = place.start("allocate_driver", prepare=prepare, **more)
    assert native.returncode == 0
    assert (ours.communicate("", timeout=60), ours.returncode) == ((out, ""), 0)
    assert len(place.reports()) == 1


NATIVE = """access arch_prctl brk clock_nanosleep close execve exit_group fcntl futex getpid getrandom ioctl kill madvise memfd_create
mmap mprotect munmap newfstatat openat pipe2 poll pread64 prlimit64 read readlink rseq sched_yield set_robust_list
set_tid_address write writev ftruncate clone clone3 lseek fstat dup close_range rt_sigreturn""".split()
NUMBERS = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def allowed_calls():
    """Those that the reference page lists for filters."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    return re.findall(r"`(\w+)`", text.partition("\n| for | calls |\n")[2].partition("\n\n")[0])


def kill_others(names):
    """A seccomp filter that kills at any other call."""
    known = dict(re.findall(r"#define __NR_(\w+) (\d+)", NUMBERS.read_text(encoding="ascii")))
    numbers = sorted({int(known[name]) for name in names})
    code = [(0x20, 0, 0, 0)]
    for number in numbers:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x7FFF0000)]
    code.append((0x06, 0, 0, 0x80000000))
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(program)))
    libc = ctypes.CDLL(None)

    def install(_kept=program):
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, head, 0, 0):
            os._exit(9)
    return install


@pytest.mark.skipif(not NUMBERS.exists(), reason="no numbers of calls here")
@sanitizer.unless_sanitized("its runtime makes calls of its own", ("asan", "tsan"))
@pytest.mark.parametrize("more", [{}, {"CACHALOT_EVENTS": "64", "CACHALOT_SITES": "1", "CACHALOT_TRACE": "t", "CACHALOT_LOG": "log"}],
                         ids=["plain", "all"])
def test_a_filter_that_kills(place, more):
    """The listed calls are enough for three seconds of service, snapshots, and IPC."""
    install = kill_others(NATIVE + allowed_calls())
    native = place.start("allocate_on", preload=(), prepare=kill_others(NATIVE))
    assert native.communicate("", timeout=60)[0] == "ready\ncudaGetLastError(): 0\n" and native.returncode == 0
    process = place.start("allocate_on", prepare=install, **more)
    assert process.stdout.readline() == "ready\n"
    time.sleep(2.5)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    out, err = process.communicate("", timeout=60)
    assert (process.returncode, out, err) == (0, "cudaGetLastError(): 0\n", "")
    assert [report["kind"] for report in place.reports()] == ["exit", "signal"] or len(place.reports()) == 2
    (a, b) = (Shell(place, prepare=install, **more) for _ in range(2))
    _, handle = shared(a)
    assert b.number("read", b.number("open", handle, 21 * MIB)) == 7
    a.end(), b.end()
