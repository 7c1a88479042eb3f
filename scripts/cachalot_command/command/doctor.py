"""cachalot doctor: will it work here, and with this program? Each finding says what to do."""

import contextlib
import difflib
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile

from cachalot_command.common.arguments import split
from cachalot_command.common.pattern import Places, check_patterns
from cachalot_command.common.program import (by_shell, check_library, check_program, find_program, preload, preloadable,
                                             safe_directory)
from cachalot_command.common.tools import Failure, find_library, page_directory, printable, tool
from cachalot_command.common.variables import VARIABLES, check_conf, check_counts, report_signal
from cachalot_command.reading.pages import list_pages
from cachalot_command.reading.report import Report

HELP = """\
usage: cachalot doctor [PROGRAM]

Looks whether the cache can work here: the library, the driver, the place for
pages, the environment, and whether a few allocations really come through it
(this takes a context on the first GPU for a moment). With PROGRAM: also whether
it can be preloaded into it, and what it needs.

Each line begins with `ok`, `note` (it works, but you should know), or `FAIL`.

Exit code: 0 it will work, 1 something will not (a line says FAIL), 2 usage.
example: cachalot doctor python3
example: cachalot doctor ./train && cachalot run ./train
"""

# Variables that would exclude the trial, make it write the user's files or join a run, or load foreign modules.
NOT_FOR_TRIAL = ("CACHALOT_ONLY", "CACHALOT_LOG", "CACHALOT_TRACE", "CACHALOT_SESSION", "PYTHONPATH")
PAGE_ROOM = 4 << 20
CONTEXT_EVENTS_SINCE = 12050

# Runs in a process of its own without modules of the user's folder. Prints the driver's version and the results of a few allocations.
TRIAL = """
import sys
sys.path[:] = filter(None, sys.path)
import ctypes, json
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    raise SystemExit(print(json.dumps({"problem": str(error)})))
version, count, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuDriverGetVersion(ctypes.byref(version))
found = {"driver": version.value, "init": cuda.cuInit(0)}
if found["init"] == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
    found["devices"] = count.value
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, 256, device)
    found["name"] = name.value.decode("utf-8", "replace")
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda.cuCtxSetCurrent(context)
    for _ in range(2 if code == 0 else 0):
        code = code or cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) or cuda.cuMemFree_v2(pointer)
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
    for name in sorted(os.environ):
        if name.startswith("CACHALOT_") and name not in VARIABLES:
            near = difflib.get_close_matches(name, list(VARIABLES), 1)
            findings.say("note", "environment", f"{name} means nothing{f'; {near[0]}?' if near else ''}")
    if os.environ.get("CACHALOT_DISABLE", "0") not in ("", "0"):
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


def trial(path):
    """(what the trial printed, its report or None). The trial runs in the working directory of the program, and leaves
    nothing there."""
    with tempfile.TemporaryDirectory(prefix="cachalot-doctor-") as folder:
        python = sys.executable or os.path.realpath("/proc/self/exe")  # Python does not know its path without PATH
        environment = {k: v for k, v in os.environ.items() if k not in NOT_FOR_TRIAL}
        environment.update(LD_PRELOAD=preload(path, os.environ.get("LD_PRELOAD", ""), python),
                           CACHALOT_OUTPUT=os.path.join(folder, "trial.json").replace("%", "%%"))
        done = subprocess.run([python, "-c", TRIAL], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=120, check=False)
        try:
            found = json.loads(done.stdout.strip().rpartition("\n")[2])
        except ValueError:
            raise Failure(1, f"the trial ended with {done.returncode}: {done.stderr.strip()[-300:]}") from None
        try:
            return found, Report(os.path.join(folder, "trial.json"))
        except Failure:
            return found, None


def check_driver(findings, path):
    """Checks that there is a driver and a GPU, and that allocations come through the cache."""
    try:
        found, report = trial(path)
    except (Failure, OSError, subprocess.TimeoutExpired) as failure:
        findings.say("FAIL", "trial", failure)
        return
    if "problem" in found:
        findings.say("FAIL", "driver", f"{found['problem']} (a login node? in a container: docker run --gpus all)")
        return
    driver = f"libcuda.so.1, CUDA {found['driver'] // 1000}.{found['driver'] % 1000 // 10}"
    if found["init"]:
        findings.say("FAIL", "driver", f"{driver}, but cuInit gives error {found['init']}: no GPU can be used here")
        return
    findings.say("ok", "driver", f"{driver}; {found['devices']} GPU, first {found['name']}")
    if found["driver"] < CONTEXT_EVENTS_SINCE:
        findings.say("note", "driver", "before 12.5: frees wait as they do natively (free_mode:strict)")
    if found["error"]:
        findings.say("FAIL", "trial", f"a first allocation of 1 MiB gives error {found['error']}; is the GPU full?")
    elif report is None or not report.number("totals", "requests"):
        findings.say("FAIL", "trial", "two allocations did not come through the cache")
    else:
        findings.say("ok", "trial", f"{report.text('totals', 'requests')} allocations came through the cache, "
                                    f"coverage {report.text('coverage', 'status')}")


def mentions(path, *words):
    """True if the file contains one of these words."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(data.find(word) >= 0 for word in words)
    except (OSError, ValueError):
        return False


def check_named(findings, name, header):
    """Checks the program."""
    try:
        path = find_program(name)
        check_program(path, header)
    except Failure as failure:
        findings.say("FAIL", "program", failure)
        return
    if os.path.basename(os.path.realpath(path)).startswith("python"):
        findings.say("ok", "program", f"{path} can be preloaded into")
        if not os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
            findings.say("note", "program", "PyTorch keeps a cache of its own in front of us; PYTORCH_NO_CUDA_MEMORY_CACHING=1 "
                                            "hands its requests to this one (CuPy, JAX: see the README)")
    elif mentions(path, b"libcuda.so", b"libcudart", b"cuMemAlloc", b"cudaMalloc"):
        findings.say("ok", "program", f"{path} uses CUDA, and can be preloaded into")
    else:
        findings.say("note", "program", f"{path} can be preloaded into, but names no CUDA itself: its libraries, or what "
                                        "it starts, may")


def main(arguments):
    """cachalot doctor."""
    words, _ = split("doctor", arguments)
    if len(words) > 1:
        raise Failure(2, "give one program; see `cachalot doctor --help`")
    findings, program = Findings(), ""
    with contextlib.suppress(Failure, IndexError):  # check_named reports problems of the program
        program, _ = by_shell(find_program(words[0]), words)
    own = check_own(findings)
    if own:
        check_pages(findings)
        check_environment(findings, program)
        check_driver(findings, own[0])
        if words:
            check_named(findings, words[0], own[1])
    print("it will not work; see the lines that say FAIL" if findings.failed else "it will work")
    return 1 if findings.failed else 0
