"""cachalot doctor: will it work here, and with this program? Each finding says what to do."""

import contextlib
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile

from cachalot_command.common.arguments import split
from cachalot_command.common.pattern import Places, check_patterns
from cachalot_command.common.program import (by_shell, check_library, check_program, find_program, hooks, loaded_by, preload,
                                             preloadable, safe_directory)
from cachalot_command.common.tools import Failure, find_library, page_directory, printable, tool
from cachalot_command.common.variables import check_conf, check_counts, is_disabled, misspelt, report_signal
from cachalot_command.reading.pages import list_pages
from cachalot_command.reading.report import Report

HELP = """\
usage: cachalot doctor [PROGRAM ARG…]

Looks whether the cache can work here: the library, the driver, the place for
pages, the environment, and whether a few allocations really come through it
(this takes a context on the first GPU for a moment). With PROGRAM: also whether
it can be preloaded into it, what it needs, and the trial by its own runtime.

Each line begins with `ok`, `note` (it works, but you should know), or `FAIL`.

Exit code: 0 it will work, 1 something will not (a line says FAIL), 2 usage.
example: cachalot doctor python3 train.py
example: cachalot doctor ./train && cachalot run ./train
"""

# Variables that would exclude the trial, make it write the user's files or join a run, or load foreign modules.
NOT_FOR_TRIAL = ("CACHALOT_ONLY", "CACHALOT_LOG", "CACHALOT_TRACE", "CACHALOT_SESSION", "PYTHONPATH")
PAGE_ROOM = 4 << 20
CUDA_RUNTIME = re.compile(r"libcudart\b")
# Frameworks with a cache of their own: what switches it off, and what to say where that is not found.
CACHES = {
    "torch": ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PyTorch keeps a cache of its own in front of us; PYTORCH_NO_CUDA_MEMORY_CACHING=1 "
                                                "hands its requests to this one (CuPy, JAX: see the README)"),
    "cupy": ("set_allocator", "CuPy keeps a cache of its own in front of us; cupy.cuda.set_allocator(None) at the start hands its requests "
                              "to this one"),
    "jax": ("XLA_PYTHON_CLIENT_ALLOCATOR", "JAX keeps a cache of its own in front of us; XLA_PYTHON_CLIENT_ALLOCATOR=platform hands its "
                                           "requests to this one (up to JAX 0.10)"),
}
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python
CONTEXT_EVENTS_SINCE = 12050

DRIVER, LOOKED_UP, RUNTIME = "the driver", "cuGetProcAddress", "the runtime"  # ways into CUDA
STUB_DRIVER = 34  # what cuInit of the toolkit's stub answers

# Runs in a process of its own without modules of the user's folder: the way and the runtime's path are its arguments. Prints the
# driver's version and the results of a few allocations that are set.
TRIAL = """
import sys
sys.path[:] = filter(None, sys.path)
import ctypes, json
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
way, path = sys.argv[1:]
size, pointer, version, count, context, name = c_size_t(1 << 20), c_void_p(), c_int(), c_int(), c_void_p(), ctypes.create_string_buffer(256)
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    runtime = ctypes.CDLL(path) if path else None
except OSError as error:
    raise SystemExit(print(json.dumps({"problem": str(error)})))
def function(name, version=2000):
    if way != "cuGetProcAddress" and hasattr(cuda, name):
        return getattr(cuda, name)
    found = c_void_p()
    code = cuda.cuGetProcAddress_v2(name.replace("_v2", "").encode(), byref(found), version, c_uint64(0), None)
    return ctypes.CFUNCTYPE(c_int)(found.value) if code == 0 and found.value else lambda *_: code or 500
with open("/proc/self/maps", errors="replace") as maps:
    driver = next((line[73:].strip() for line in maps if "/libcuda.so" in line), "libcuda.so.1")
cuda.cuDriverGetVersion(byref(version))
if version.value < 12000:  # it has no cuGetProcAddress_v2
    way = "the driver"
found = {"driver": version.value, "file": driver, "init": function("cuInit")(0)}
if found["init"] == 0:
    function("cuDeviceGetCount")(byref(count))
    function("cuDeviceGetName")(name, 256, 0)
    found.update(devices=count.value, name=name.value.decode("utf-8", "replace"))
    if runtime:
        take, free = runtime.cudaMalloc, runtime.cudaFree
        fill, code = (lambda pointer: runtime.cudaMemset(pointer, 0, size)), 0
    else:
        take, free = function("cuMemAlloc_v2", 3020), function("cuMemFree_v2", 3020)
        fill = lambda pointer: function("cuMemsetD8_v2", 3020)(pointer, ctypes.c_ubyte(0), size)
        code = function("cuDevicePrimaryCtxRetain", 7000)(byref(context), 0) or function("cuCtxSetCurrent", 4000)(context)
    for _ in range(2 if code == 0 else 0):
        code = code or take(byref(pointer), size) or fill(pointer) or free(pointer)
    found["error"] = code
print(json.dumps(found))
"""


class Findings:
    """Prints findings, and remembers whether one was bad."""

    def __init__(self):
        self.failed = False

    def say(self, level, what, text):
        self.failed = self.failed or level == "FAIL"
        print(f"{level:<4}  {what}: {printable(text)}")


def check_own(findings):
    """Checks the library and its tool. Returns (the library's path for LD_PRELOAD, its ELF header), or None."""
    try:
        library = find_library()
        header = check_library(library)
        path = preloadable(library)
        version = tool("--version").stdout.strip()
    except Failure as failure:
        findings.say("FAIL", "library", failure)
        return None
    done = subprocess.run(["/bin/true"], env={**os.environ, "LD_PRELOAD": path}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace", check=False)
    if done.returncode or done.stderr:
        findings.say("FAIL", "library", f"{library} cannot be loaded: {done.stderr.strip() or done.returncode}")
        return None
    findings.say("ok", "library", f"{library} ({version})")
    if path != library:
        findings.say("note", "library", f"LD_PRELOAD cannot hold a blank; {path} links to it")
    return path, header


def file_system(path):
    """The kind of file system that the path is on, by the kernel's name; empty if not found."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        kinds = [line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == wanted]
    return kinds[-1] if kinds else ""


def check_pages(findings):
    """Checks the directory of pages."""
    path = page_directory()
    if not safe_directory(path) or not os.access(path, os.W_OK):
        findings.say("FAIL", "pages", f"{path} is missing, or open to others: what is killed leaves no report; "
                                      "name a directory on tmpfs with CACHALOT_PAGE_DIR")
        return
    free = shutil.disk_usage(path).free
    if free < PAGE_ROOM:
        findings.say("FAIL", "pages", f"{path} has only {free >> 10} KiB left: programs run on, but what is killed may leave no report, and "
                                      "`top` may not show it; enlarge it (docker run --shm-size), or name another tmpfs with CACHALOT_PAGE_DIR")
        return
    findings.say("ok", "pages", f"{path}, {free >> 20} MiB free")
    with contextlib.suppress(OSError, IndexError):
        kind = file_system(path)
        if kind not in ("", "tmpfs", "ramfs"):
            findings.say("note", "pages", f"{path} is on a disk ({kind}), whose writes may stall programs; name a directory on tmpfs "
                                          "with CACHALOT_PAGE_DIR")
    try:
        dead = [page for page in list_pages() if page.life == "dead" and page.state != "reported"]
    except Failure as failure:
        findings.say("FAIL", "pages", failure)
        return
    if dead:
        findings.say("note", "pages", f"{len(dead)} program{'s' * (len(dead) != 1)} ended without a report; `cachalot harvest` makes it")


def check_files(program):
    """Checks what `run` would refuse or say about report and trace."""
    check_patterns(os.environb)
    places = Places(os.environb, program)
    places.check_report()
    places.check_trace()
    if problem := places.report_problem():
        raise Failure(1, problem)


def check_environment(findings, program=""):
    """Checks variables that are misspelt, switch the library off, or make `run` refuse the program."""
    for text in misspelt(os.environ):
        findings.say("note", "environment", text)
    if is_disabled(os.environ.get("CACHALOT_DISABLE", "")):
        findings.say("FAIL", "environment", "CACHALOT_DISABLE is set: nothing is served; unset it")
    if os.environ.get("CACHALOT_REDACT", "") not in ("", "0", "argv"):
        findings.say("FAIL", "environment", "CACHALOT_REDACT is not understood: argv")
    if os.environ.get("CACHALOT_ONLY"):
        findings.say("note", "environment", f"CACHALOT_ONLY: other programs than {os.environ['CACHALOT_ONLY']} are left alone")
    conf = os.environ.get("CACHALOT_CONF", "")
    for check, words in ((check_conf, (conf, "CACHALOT_CONF")), (report_signal, ()), (check_counts, ()), (check_files, (program,))):
        try:
            check(*words)
        except Failure as failure:
            findings.say("FAIL", "environment", failure)
        except OSError as error:
            findings.say("FAIL", "environment", f"{error.filename or 'the current directory'}: {error.strerror}")
    for path in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if "/" in path and not os.path.isfile(path):
            findings.say("note", "environment", f"LD_PRELOAD names {path}, which is no file")
        elif hooks(path):
            findings.say("note", "environment", f"LD_PRELOAD names {path}, which hooks the same calls: `run` leaves it before the library")


def trial(path, way=DRIVER, runtime=""):
    """(what the trial printed, its report or None). The trial runs in the working directory of the program, and leaves
    nothing there."""
    with tempfile.TemporaryDirectory(prefix="cachalot-doctor-") as folder:
        python = sys.executable or os.path.realpath("/proc/self/exe")  # Python does not know its path without PATH
        environment = {k: v for k, v in os.environ.items() if k not in NOT_FOR_TRIAL}
        environment.update(LD_PRELOAD=preload(path, os.environ.get("LD_PRELOAD", ""), python),
                           CACHALOT_OUTPUT=os.path.join(folder, "trial.json").replace("%", "%%"))
        done = subprocess.run([python, "-c", TRIAL, way, runtime], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=120, check=False)
        try:
            found = json.loads(done.stdout.strip().rpartition("\n")[2])
        except ValueError:
            raise Failure(1, f"the trial ended with {done.returncode}: {done.stderr.strip()[-300:]}") from None
        try:
            return found, Report(os.path.join(folder, "trial.json"))
        except Failure:
            return found, None


def judge_trial(findings, found, report, by):
    """What the trial shows: do its requests and its work come through the cache?"""
    requests = report.number("totals", "requests") if report else 0
    status = report.text("coverage", "status") if report else "none"
    if found["error"]:
        findings.say("FAIL", "trial", f"a first allocation of 1 MiB{by} gives error {found['error']}; is the GPU full?")
    elif not requests:
        reasons = (report.get("coverage", "reasons") or []) if report else []
        order = (report.get("coverage", "hook_order") or "") if report else ""
        why = "; ".join([*reasons[-1:], *([f"hooks in the order of calls: {order}"] if order else [])])
        findings.say("FAIL", "trial", f"two allocations{by} did not come through the cache{why and ': '}{why}")
    elif status != "full" or not report.number("coverage", "submissions", "sets"):
        findings.say("FAIL", "trial", f"the work{by} goes past the library (coverage {status}): frees would have to wait")
    else:
        findings.say("ok", "trial", f"{requests} allocations{by} came through the cache, coverage {status}")


def check_driver(findings, path, ways):
    """Checks that there is a driver and a GPU, and that allocations come through the cache in each way of the program."""
    for i, (way, runtime) in enumerate(ways):
        try:
            found, report = trial(path, way, runtime)
        except (Failure, OSError, subprocess.TimeoutExpired) as failure:
            findings.say("FAIL", "trial", failure)
            return
        if "problem" in found:
            findings.say("FAIL", "driver", f"{found['problem']} (a login node? in a container: docker run --gpus all)")
            return
        driver = f"libcuda.so.1, CUDA {found['driver'] // 1000}.{found['driver'] % 1000 // 10}"
        if found["init"] == STUB_DRIVER:
            findings.say("FAIL", "driver", f"{found['file']} is the stub of a CUDA toolkit, which is for linking only: take its folder out of "
                                           "LD_LIBRARY_PATH (and out of the program's RUNPATH), so that the driver's own is found")
            return
        if found["init"]:
            findings.say("FAIL", "driver", f"{driver}, but cuInit gives error {found['init']}: no GPU can be used here")
            return
        if i == 0:
            findings.say("ok", "driver", f"{driver}; {found['devices']} GPU, first {found['name']}")
            if found["driver"] < CONTEXT_EVENTS_SINCE:
                findings.say("note", "driver", "before 12.5: frees wait as they do natively (free_mode:strict)")
        by = {DRIVER: "", LOOKED_UP: " by cuGetProcAddress"}.get(way, f" by {os.path.basename(runtime)}")
        judge_trial(findings, found, report, by)


def mentions(path, *words):
    """True if the file contains one of these words."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(data.find(word) >= 0 for word in words)
    except (OSError, ValueError):
        return False


def ways_of(program):
    """The ways in which the program reaches CUDA: [(way, file of the runtime)]. One that is not known takes the driver's two."""
    libraries = loaded_by(program) if program else {}
    runtimes = [(RUNTIME, path) for name, path in libraries.items() if path and CUDA_RUNTIME.match(name)]
    return runtimes or [(DRIVER, ""), (LOOKED_UP, "")]


def check_libraries(findings, path):
    """Names libraries that the program needs and the loader does not find."""
    for name in [name for name, file in loaded_by(path).items() if not file]:
        findings.say("FAIL", "program", f"{path} needs {name}, which is not found: name its folder in LD_LIBRARY_PATH")


def script_of(words):
    """The script that these words have Python run; None: none, or a module or a command."""
    rest = iter(words)
    for word in rest:
        if word in WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return word
        elif word in ("-", "--") or re.match(r"-[a-zA-Z]*[cm]", word):
            return None
    return None


def check_script(findings, path, words):
    """Checks a Python program: its script, and the frameworks that this imports. One that is not known is taken for PyTorch's."""
    script, text = script_of(words), "import torch"
    if script and not os.path.exists(script):
        findings.say("FAIL", "program", f"{script}: no such file")
        return
    if script:
        with contextlib.suppress(OSError), open(script, encoding="utf-8", errors="replace") as file:
            text = file.read()
    findings.say("ok", "program", f"{path} can be preloaded into")
    for name, (switch, advice) in CACHES.items():
        if re.search(rf"^\s*(import|from)\s+{name}\b", text, re.MULTILINE) and switch not in text and not os.environ.get(switch):
            findings.say("note", "program", advice)


def check_named(findings, words, header):
    """Checks the program."""
    try:
        path = find_program(words[0])
        check_program(path, header)
    except Failure as failure:
        findings.say("FAIL", "program", failure)
        return
    if os.path.basename(os.path.realpath(path)).startswith("python"):
        check_script(findings, path, words[1:])
    elif mentions(path, b"libcuda.so", b"libcudart", b"cuMemAlloc", b"cudaMalloc"):
        findings.say("ok", "program", f"{path} uses CUDA, and can be preloaded into")
    else:
        findings.say("note", "program", f"{path} can be preloaded into, but names no CUDA itself: its libraries, or what "
                                        "it starts, may")
    check_libraries(findings, path)
    if mentions(path, b"\0dlmopen\0"):
        findings.say("note", "program", f"{path} calls dlmopen: what it loads so is not served, and the report says so")


def main(arguments):
    """cachalot doctor."""
    words = split("doctor", arguments[:1])[0] + arguments[1:]
    findings, program = Findings(), ""
    with contextlib.suppress(Failure, IndexError):  # check_named reports problems of the program
        program, _ = by_shell(find_program(words[0]), words)
    own = check_own(findings)
    if own:
        check_pages(findings)
        check_environment(findings, program)
        check_driver(findings, own[0], ways_of(program))
        if words:
            check_named(findings, words, own[1])
    print("it will not work; see the lines that say FAIL" if findings.failed else "it will work")
    return 1 if findings.failed else 0
