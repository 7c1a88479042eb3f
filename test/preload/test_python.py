"""Frames of Python at call sites are those that Python itself says, in every state that a thread can be in."""

import json
import re
import shutil
import struct
import subprocess

import pytest
import sanitizer

from conftest import HERE, LIBRARY, ROOT
from test_sites import LOAD, PYTHONS, STEPS, must_run, run

SITE_TEXT = int(re.search(r"SITE_TEXT (\d+)", (ROOT / "stats/events/sites.h").read_text()).group(1))

# What Python says of each request: chains[size], innermost first.
SAY = LOAD + """
import json
chains = {}
def note(size, frame):
    chain = chains[size] = []
    while frame and len(chain) < 6:
        chain.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
def take(size):
    note(size, sys._getframe()); cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), size)
def say():
    print(json.dumps([[size, chains[size]] for size in sorted(chains)]), flush=True)
"""

WAYS = SAY + """
import asyncio, functools, gc, signal, threading
def generate():
    take(1001)
    yield 1
def outer():
    yield from generate()
async def inner():
    await asyncio.sleep(0)
    take(1002)
async def middle():
    await inner()
async def main():
    await asyncio.gather(middle(), middle())
class Made:
    def __init__(self, size):
        if size:
            take(size)
class Node:
    def __del__(self):
        take(1003)
class Called:
    def __lt__(self, other):
        take(1004)
        return True
    def __call__(self, size):
        take(size)
    @property
    def value(self):
        take(1005)
def recurse(n):
    recurse(n - 1) if n else take(1006)
def make(size):
    return Made(size)

list(outer())
asyncio.run(main())
for i in range(200):
    make(0)  # until its call is a specialised one
make(1007)
node = Node(); node.itself = node; del node
gc.collect()
sorted([Called(), Called()])
Called().value
list(map(functools.partial(Called()), [1008]))
recurse(500)
[take(1009) for _ in (1,)]
(lambda: take(1010))()
try:
    raise KeyError("kept")
except KeyError:
    take(1011)
signal.signal(signal.SIGUSR1, lambda *_: take(1012))
signal.raise_signal(signal.SIGUSR1)
thread = threading.Thread(target=lambda: take(1013))
thread.start(); thread.join()
# A thread of C that calls back, and one that is no thread of Python's.
libc = ctypes.CDLL(None)
back = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: take(1014))
for start in (back, cuda.cudaMalloc):
    known = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(known), None, start, ctypes.byref(pointer)) == 0
    assert libc.pthread_join(known, None) == 0
exec(compile("def f(): take(1015)\\nf()", "\\u00e4\\u0436\\U0001f40b.py", "exec"))
def traced(frame, event, argument):
    return traced
sys.settrace(traced)
take(1016)
sys.settrace(None)
for line in range(300, 70000, 9000):  # far away, and back
    exec("\\n" * line + "def f(\\na=\\ntake(%d)): pass" % (line + 2000), {"take": take})
say()
"""


def frame_text(file, line, function):
    return f"{file[-95:]}:{line} {function[-95:]}"


def compare(done, report):
    """Every size that Python named is held by the site with its frames."""
    named = dict(json.loads(done.out.splitlines()[-1]))
    found = {}
    for leak in report["leaks"]:
        found.setdefault(leak["requested_bytes"], []).append(report["sites"][leak["site"]]["frames"])
    assert named
    for size, chain in named.items():
        expected = [frame_text(*frame) for frame in chain]
        while sum(len(text.encode()) + 1 for text in expected) >= SITE_TEXT:
            expected.pop()
        for frames in found[size]:
            assert frames[:len(expected)] == expected, size
    return named


@pytest.mark.parametrize("loader", ["CDLL", "PyDLL"])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_ways_into_c(place, python, loader):
    must_run(python)
    assert len(compare(*run(place, WAYS.replace("cuda = ctypes.CDLL", f"cuda = ctypes.{loader}"), python))) == 24


@pytest.mark.parametrize("python", PYTHONS)
def test_the_table_is_that_of_the_headers(place, python):
    must_run(python)
    asked = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"],
                           stdout=subprocess.PIPE, text=True, check=True)
    include = asked.stdout.strip()
    if not shutil.which("cc") or subprocess.run(["test", "-e", f"{include}/internal"], check=False).returncode:
        pytest.skip(f"{python} has no headers here")
    program = place.work / "layout"
    subprocess.run(["cc", "-w", "-o", program, f"-I{ROOT}", f"-I{include}", f"-I{include}/internal", f"-I{include}/..",
                    HERE / "python_layout.c"], check=True)
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"the headers say {done.stdout}"


@sanitizer.unless_sanitized("the interpreter is not")
@pytest.mark.parametrize("python", PYTHONS)
def test_a_wrong_table_is_noticed(place, python):
    """As of an interpreter that was changed: no lines, but no harm. The thread's frame is looked for in its numbers, the frame's
    caller in its other members."""
    must_run(python)
    asked = subprocess.run([python, "-c", "import sys; print(sys.version_info.minor)"], stdout=subprocess.PIPE, check=True)
    rows = re.findall(r"^    \{([\d, ]+)\},$", (ROOT / "interpose/call_sites/python_layout.h").read_text(), re.MULTILINE)
    (row,) = [row for row in ([int(value) for value in row.split(",")] for row in rows) if row[0] == int(asked.stdout)]
    right = struct.pack("i13H", *row)
    library = LIBRARY.read_bytes()
    assert library.count(right) == 1
    wrong = place.work / "wrong.so"
    for field, value in [(1, 32), (1, 40), (1, 64), (4, 8), (4, 16)]:
        if row[field] == value:
            continue
        changed = [*row[:field], value, *row[field + 1:]]
        wrong.write_bytes(library.replace(right, struct.pack("i13H", *changed)))
        run(place, STEPS, python, preload=(wrong,))


INTERPRETERS = SAY + """
import os
inner = '''
import ctypes
def within():
    ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(ctypes.c_void_p()), 2000)
within()
'''
if sys.version_info >= (3, 13):
    import _interpreters
    other = _interpreters.create("legacy")
    _interpreters.exec(other, inner)
else:
    import _xxsubinterpreters as _interpreters
    other = _interpreters.create(isolated=False)
    _interpreters.run_string(other, inner)
take(2001)
_interpreters.destroy(other)
take(2002)
child = os.fork()
if child == 0:
    take(2003)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
say()
"""


@sanitizer.unless_sanitized("the interpreter is not")
@pytest.mark.parametrize("python", PYTHONS)
def test_interpreters_and_forks(place, python):
    must_run(python)
    done, report = run(place, INTERPRETERS, python)
    compare(done, report)
    (within,) = [report["sites"][leak["site"]]["frames"] for leak in report["leaks"] if leak["requested_bytes"] == 2000]
    assert within[0].split(":")[0] in ("<string>", "<script>") or "script.py" in within[0], within


END = LOAD + """
import threading, time
def take():
    p = ctypes.c_void_p()
    if cuda.cudaMalloc(ctypes.byref(p), 3000) == 0:
        cuda.cudaFree(p)
def work(started):
    while True:
        take()
        started.set()
class Last:
    def __del__(self, take=take):
        take()
for _ in range(4):
    started = threading.Event()
    threading.Thread(target=work, args=(started,), daemon=True).start()
    started.wait()
kept = sys.kept = Last()
"""


@sanitizer.unless_sanitized("the interpreter is not")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_interpreter_ends_under_its_threads(place, python):
    """It frees what daemon threads are in, without waiting for them."""
    must_run(python)
    for _ in range(5):
        _, report = run(place, END, python)
        assert any(site["frames"][0].endswith(" take") for site in report["sites"])


GREENLETS = SAY + """
import greenlet
def inside(size):
    take(size)
    main.switch()
    take(size + 1)
def start(g, size):
    g.switch(size)
    take(size + 2)
main = greenlet.getcurrent()
all = [greenlet.greenlet(inside) for _ in range(3)]
for i, g in enumerate(all):
    start(g, 4000 + 10 * i)
for g in all:
    g.switch()
take(5000)
say()
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_greenlets(place, python):
    must_run(python)
    if subprocess.run([python, "-c", "import greenlet"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no greenlets here")
    compare(*run(place, GREENLETS, python))
