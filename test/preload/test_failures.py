"""Every call may fail: the N-th of every function of the driver that a mixed piece of work reaches, with
each error that cuda.h says it may return, and of every function of libc that the library itself calls.
The program sees an error that the function it called has natively, or none; nothing is lost, nothing
hangs, and the cache serves afterwards. CACHALOT_EVERY=1 tries all (minutes); otherwise a sample."""

import json
import os
import pathlib
import re
import subprocess
import zlib

import pytest

import sanitizer
from conftest import LIBRARY, PROGRAMS, ROOT

EVERY = int(os.environ.get("CACHALOT_EVERY", 90 * sanitizer.SLOWER))
CASES = {"CACHALOT_SIM_CAPACITY": "128M", "CACHALOT_SIM_DEVICES": 2, "CACHALOT_OUTPUT": "case.%q{CASE}.json"}
FAIL_LIBC = PROGRAMS / "libfail_libc.so"
WAYS = {"async": "", "mapped": "expandable_segments:True", "fence": "free_mode:fence", "strict": "free_mode:strict", "off": "cache:off",
        "watched": "fill:nan,device_size_mb:8000,slack:check,bounds:warn"}
# What cuda.h says leaves the context unusable: from then on the driver serves, what was freed is never reusable.
LASTING = {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 805, 807, 911}
LATER = (700, 719, 999)  # "may also return error codes from previous, asynchronous launches"
NOT_READY = 600
STARTING = {"cuInit", "cuDeviceGetCount", "on_exit"}  # without these there is nothing to serve


def read_header():
    """{function: errors that it may return} from the comments of cuda.h."""
    home = subprocess.run([ROOT / "scripts/build/cuda_home.sh"], capture_output=True, text=True, check=True)
    text = (pathlib.Path(home.stdout.strip()) / "include/cuda.h").read_text(errors="replace")
    numbers = {name: int(value) for name, value in re.findall(r"^\s+(CUDA_ERROR_\w+)\s*=\s*(\d+)", text, re.M)}
    errors = {}
    for comment, name in re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*(?:__CUDA_DEPRECATED\s+)?CUresult\s+CUDAAPI\s+(\w+)",
                                    text, re.S):
        returns = re.search(r"\\return(.*?)(?:\n \*\s*\n|\\note|\\sa|$)", comment, re.S)
        codes = {numbers[error] for error in re.findall(r"CUDA_ERROR_\w+", returns[1] if returns else "")}
        if "notefnerr" in comment:
            codes.update(LATER)
        errors[name] = codes - {NOT_READY}
    return errors


ERRORS = read_header()


def native_errors(function):
    """Also of versions and twins that are not in the header under their own name."""
    plain = re.sub(r"_pt[ds][sz]$", "", function)
    names = (plain, re.sub(r"_v\d$", "", plain))
    return next((ERRORS[name] for name in names if ERRORS.get(name)), {1, 4, 3, 201})


class Answer:
    """One line of the program: what failed, and what was there at the end."""

    def __init__(self, line):
        self.case, _, rest = line.partition(":" if line.startswith("NONE") else ": ")
        words = [word.split("=") for word in rest.split()]
        self.values = {name: value for name, value in words if name[0] not in "c#"}
        self.failed = [(name, int(code)) for name, code in words if name.startswith("cu")]
        self.counts = {name[1:]: int(count) for name, count in words if name[0] == "#"}
        kind, _, what = self.case.partition("=")
        self.function, *numbers = what.split(",")[0].split(":")
        self.error = int(numbers[1]) if len(numbers) > 1 else 0
        self.kind, self.lasting = kind, self.error in LASTING or "+" in what

    def problems(self, report, cached):
        """What should not be. `cached`: the cache is on."""
        if "died" in self.values:
            return [f"died: {self.values['died']}"]
        found = [f"{name} gives {code}" for name, code in self.failed
                 if code not in native_errors(name) | ({self.error} if self.function == "*" else set())]
        if self.lasting:
            return found
        if self.values.get("missing") != "0":
            found.append(f"{self.values.get('missing')} bytes are missing")
        # Without memory for the books nothing is served, and a report says that nothing came through us.
        aside = self.kind == "LIBC" and (not report or report["coverage"]["status"] == "none")
        if self.function not in STARTING and not aside and self.values.get("served") != str(int(cached)):
            found.append("not served")
        return found + (books(report) if report else [])


def books(report):
    totals = report["totals"]
    found = []
    later = any("stays pending" in warning["text"] for warning in report["warnings"])
    for name in ("allocated_bytes", "leaked_bytes", *(() if later else ("requested_bytes", "active_bytes"))):
        if totals.get(name):
            found.append(f"{name} is {totals[name]}")
    if totals["requests"] != totals["frees"]:
        found.append(f"{totals['requests']} requests, {totals['frees']} frees")
    return found


def run(place, cases, preload=(LIBRARY,), **environment):
    """The program's answers, in order."""
    place.findings.leaks = False  # thousands of children, many of which give up in the middle
    process = place.start("failures", preload=preload, **CASES, **environment)
    out, err = process.communicate("".join(case + "\n" for case in cases), timeout=3600)
    place.running.remove(process)
    assert process.returncode == 0, err
    assert len(place.left_pages()) < 20  # of peers that end later than who made them
    return [Answer(line) for line in out.splitlines()]


def check(place, cases, way="async", **more):
    answers = run(place, cases, CACHALOT_CONF=WAYS[way], **more)
    assert [answer.case for answer in answers] == cases
    found = []
    for number, answer in enumerate(answers):
        path = place.work / f"case.{number}.json"
        report = json.loads(path.read_text()) if path.exists() else None
        problems = answer.problems(report, way != "off")
        if problems:
            found.append(f"{answer.case}: {'; '.join(problems)}")
    assert not found, f"{len(found)} of {len(cases)}:\n" + "\n".join(found[:200])


def sample(cases, way):
    """Every so many of them, and in the usual mode more and the first of each function."""
    seen, some, every = set(), [], EVERY if way == "async" else 4 * EVERY
    for case in cases:
        function = case.split(":")[0]
        if way == "async" and function not in seen or zlib.crc32(case.encode()) % every == 0:
            some.append(case)
        seen.add(function)
    return some if EVERY > 1 else cases


def reached(place, way="async", **more):
    """{name: calls} of a run in which nothing fails."""
    (answer,) = run(place, ["NONE="], CACHALOT_CONF=WAYS[way], **more)
    assert answer.problems(None, way != "off") == []
    return answer.counts


@pytest.mark.parametrize("way", WAYS)
def test_driver(place, way):
    cases = [f"DRIVER={name}:{number}:{error}" for name, count in reached(place, way).items() if name != "*"
             for number in range(1, count + 1) for error in sorted(native_errors(name))]
    check(place, sample(cases, way), way)


def test_the_programs_context_stays_current(place):
    """All of these, not a sample."""
    name = "cuCtxPopCurrent_v2"
    check(place, [f"DRIVER={name}:{number}:{error}" for number in range(1, reached(place)[name] + 1) for error in (3, 999)])


# {called only where another one fails: that one}
SECOND = {"cuCtxSynchronize": "cuCtxRecordEvent:1+:801", "cuDeviceGetUuid": "cuDeviceGetUuid_v2:1+:500",
          "cuEventDestroy_v2": "cuCtxRecordEvent:1+:999", "cuCtxGetApiVersion": "cuCtxDestroy_v2:1:999"}


@pytest.mark.parametrize("second", SECOND)
def test_the_second_way_fails_too(place, second):
    first = SECOND[second]
    count = reached(place, CACHALOT_SIM_FAIL=first)[second]
    check(place, [f"DRIVER={second}:{number}:{error},{first}" for number in range(1, min(count, 5) + 1)
                  for error in sorted(native_errors(second) - LASTING)])


RECORDED = {"CACHALOT_TRACE": "case.%p.trace", "CACHALOT_EVENTS": "1000", "CACHALOT_SITES": "1"}
LIBC_WAYS = {"async": {}, "mapped": {}, "strict": {}, "recorded": RECORDED}


def libc_counts(place, way):
    conf = way if way in WAYS else "async"
    counts = reached(place, conf, preload=(FAIL_LIBC, LIBRARY), **LIBC_WAYS[way])
    return conf, {name: count for name, count in counts.items() if not name.startswith("cu") and name != "*"}


@sanitizer.unless_sanitized("its runtime is in the way of libc's functions", ("asan", "tsan"))
@pytest.mark.parametrize("way", LIBC_WAYS)
def test_libc(place, way):
    conf, counts = libc_counts(place, way)
    cases = [f"LIBC={name}:{number}" for name, count in counts.items() for number in range(1, count + 1)]
    check(place, sample(cases, way), conf, preload=(FAIL_LIBC, LIBRARY), **LIBC_WAYS[way])


@sanitizer.unless_sanitized("its runtime is in the way of libc's functions", ("asan", "tsan"))
@pytest.mark.parametrize("conf", ["expandable_segments:True", "expandable_segments:False"])
@pytest.mark.parametrize("threads, size", [(1, 600), (2, 600), (4, 20000)])
def test_no_host_memory_for_long(place, threads, size, conf):
    """The device is almost empty: natively all of it is served. What the cache put back for want of books is not lost."""
    ours = place.run("host_full", threads, size, preload=(FAIL_LIBC, LIBRARY), CACHALOT_CONF=conf, CACHALOT_SIM_CAPACITY="8G")
    assert (ours.code, ours.out, ours.err) == (0, "", "")
    report = place.reports()[-1]
    assert report.totals["allocated_bytes"] == 0
    assert report["devices"][0]["memory_stats"]["num_hits"] > 10000


@pytest.mark.parametrize("error", [700, 999, 4])
def test_a_driver_that_is_broken_for_good(place, error):
    """From the N-th call of any function on."""
    calls = reached(place)["*"]
    check(place, [f"DRIVER=*:{number}+:{error}" for number in range(1, calls + 100, max(1, EVERY // 3))])


# Functions of libc that do not fail (dlopen: of what is loaded), or whose failure changes nothing (closing, saying, letting go).
CANNOT_FAIL = set("""__environ __overflow __sched_cpucount sched_getaffinity _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __assert_fail __cxa_finalize __errno_location __gmon_start__
    __libc_current_sigrtmax __libc_current_sigrtmin __progname __stack_chk_fail bcmp clock_gettime closedir dirfd dl_iterate_phdr
    dladdr1 dlclose dlopen dlvsym environ exit fclose fgetc fnmatch fputc_unlocked free getauxval getenv geteuid getpid getresuid gettimeofday kill localeconv memchr memcmp memrchr rewinddir
    memcpy memmem memmove memset newlocale prctl program_invocation_short_name pthread_attr_destroy
    pthread_cond_broadcast pthread_cond_timedwait pthread_detach pthread_join pthread_mutex_lock pthread_mutex_unlock pthread_once pthread_setcancelstate qsort raise __register_atfork sched_yield setvbuf
    sigaddset sigaltstack sigemptyset sigfillset sigismember sigpending sigtimedwait snprintf sprintf sscanf stdin strcasecmp strchr strcmp strcspn strerror strlen strncmp strncpy strnlen strrchr strspn strstr
    strtod strtok_r strtol strtoll strtoul strtoull sysconf uselocale vsnprintf""".split())


def plain(name):
    """Of a function that is called checked, large or by a standard's name."""
    return re.sub(r"^__isoc\d+_|^__(?=\w+_(chk|2)$)|_(chk|2)$|64(?=_|$)", "", name)


@sanitizer.unless_sanitized("its runtime's functions are called, too")
def test_every_function_of_libc_fails_or_cannot():
    undefined = subprocess.run(["nm", "-D", "--undefined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    called = {plain(re.sub("@.*", "", line.split()[-1])) for line in undefined.splitlines()}
    fails = set(re.findall(r"^ +X\((\w+),", (ROOT / "test/preload/fail_libc.c").read_text(), re.M))
    assert sorted(called - {plain(name) for name in fails} - CANNOT_FAIL) == []


# Not there in the simulated driver; answered by us; for memory that nobody here has.
NOT_REACHED = {"cuMemAllocPitch_v2", "cuGraphChildGraphNodeGetGraph", "cuModuleGetFunction", "cuModuleGetGlobal_v2", "cuLibraryGetKernel",
               "cuMemGetHandleForAddressRange", "cuMemRetainAllocationHandle", "cuGraphAddNode_v3", "cuLogicalEndpointBindAddr",
               "cuMemGetLocationInfo", "cuMemHostGetDevicePointer_v2", "cuMemHostGetFlags", "cuMulticastBindAddr", "cuMulticastBindAddr_v2"}
# What we do not answer.
PASSED_ON = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuIpcGetMemHandle", "cuMemHostAlloc", "cuMemFreeHost"}
# For a control, under work that passes us: test_unseen.py; if two threads make its stream; for the end of a pool's odd block; for a
# wake: test_sleep.py.
UNSEEN = {"cuMemcpyHtoDAsync_v2", "cuStreamCreate", "cuStreamDestroy_v2", "cuMemsetD8Async_ptsz"}


def calls_below_exports():
    """Functions of the driver that the rooms of interpose/ call on their own."""
    paths = [path for path in sorted((ROOT / "interpose").rglob("*.c")) if path.parent.name != "exports"]
    assert paths
    text = "".join(path.read_text() for path in paths)
    return set(re.findall(r"\b(cu[A-Z]\w*)\(", re.sub(r"/\*.*?\*/", "", text, flags=re.S)))


def most_reached(place, missing):
    """{name: calls}: the most of any way, until none of `missing` is. A machine that is slow for a moment need not wait for what is
    over then."""
    most = {}
    for way in [*WAYS] * 4:
        for name, count in reached(place, way).items():
            most[name] = max(count, most.get(name, 0))
        if not missing(most):
            break
    return most


def test_all_that_is_hooked_is_reached(place):
    """All that the simulated driver has of it, and all that we call ourselves: that more often than natively."""
    hooks = set(re.findall(r"\bX\((cu[A-Z]\w*)\)", (ROOT / "interpose/resolve/hooks.h").read_text()))
    exports = subprocess.run(["nm", "-D", "--defined-only", sanitizer.BUILD / "test/sim/libcuda.so.1"],
                             capture_output=True, text=True, check=True).stdout
    old = set(re.findall(r"OLD\((\w+)", (ROOT / "test/sim/calls_old.def").read_text()))
    wanted = (hooks & set(re.findall(r" (cu\w+)", exports))) - old - NOT_REACHED - set(SECOND)
    own = calls_below_exports() - NOT_REACHED - PASSED_ON - UNSEEN - set(SECOND)
    (native,) = run(place, ["NONE="], preload=())

    def missing(most):
        return sorted((wanted - set(most)) | {name for name in own if most.get(name, 0) <= native.counts.get(name, 0)})

    left = missing(most_reached(place, missing))
    assert not left, ", ".join(left)
