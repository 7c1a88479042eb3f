"""NVIDIA's tools on top of us, each step said: what they print, what their child was started with, what was loaded;
a tool that is called back by CUPTI; and UCX beside us, which takes GPU buffers."""

import pathlib
import re
import shutil
import sys

from cases_coverage import place_cupti, with_cupti
from cases_programs import driver_library
from kit import HERE, Failed, Figures, Skip, cuda_home

CHILD = "told.py"
KERNELS = re.compile(r"^\s*told_fill\b|\bGrid Size\b|launch__grid_size|launch__block_size")


def find_ncu():
    """Nsight Compute's command: in PATH, in the toolkit, or where its own installer puts it."""
    places = [shutil.which("ncu"), cuda_home() / "bin/ncu",
              *sorted(pathlib.Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)]
    for place in filter(None, places):
        if pathlib.Path(place).exists():
            return str(place)
    raise Skip("no ncu")


def said_by_child(run, word):
    return [line[len(word) + 1:] for line in run.lines if line.startswith(word + " ")]


def tell(kit, name, run):
    """Everything there is to be learnt of one run."""
    lines = run.lines + run.errors.splitlines()
    kit.note(f"{name}: exit code", run.code)
    for line in [line for line in lines if line.startswith("==")][:12]:
        kit.note(f"{name}: ncu says", line[:300])
    for word in ("env", "loaded"):
        for line in said_by_child(run, word)[:20]:
            kit.note(f"{name}: {word}", line[:300])
    if not said_by_child(run, "loaded"):
        kit.note(f"{name}: the child said nothing; last lines", " | ".join(lines[-4:])[:600])


def reports_of(kit):
    """Takes the reports of one run away, so that the next one's are its own."""
    found = []
    for path in sorted(kit.work.glob("report.*.json")):
        found.append(Figures(path))
        path.unlink()
    return found


def nsight(kit):
    """Nsight Compute: it makes LD_PRELOAD anew for the program, and takes libraries to be loaded before its own by
    --preload-library. First without us, then with us in the environment only, then as it wants it."""
    ncu = [find_ncu(), "--clock-control", "none", "--metrics", "launch__grid_size,launch__block_size"]
    child = kit.script(CHILD)
    plain = kit.natively(child, kit.native())
    tell(kit, "no tool, without us", plain)
    front = kit.run(child, kit.front(kit.native()))
    tell(kit, "no tool, in front", front)
    kit.note("no tool, in front: requests", [figures.requests for figures in reports_of(kit)])
    native = kit.run([*ncu, *child], kit.native(), timeout=120)
    tell(kit, "under ncu, without us", native)
    environment = kit.front(kit.native())
    inherited = kit.run([*ncu, *child], environment, timeout=120)
    tell(kit, "under ncu, LD_PRELOAD", inherited)
    kit.note("under ncu, LD_PRELOAD: requests", [figures.requests for figures in reports_of(kit)])
    environment.pop("LD_PRELOAD")
    run = kit.run([*ncu, "--preload-library", kit.library, *child], environment, timeout=120)
    tell(kit, "under ncu, --preload-library", run)
    reports = [figures for figures in reports_of(kit) if figures.requests]
    if said_by_child(native, "result") != said_by_child(plain, "result"):
        raise Skip("the program does not run under ncu without us either")
    kit.check("ncu: the program's result is the same",
              run.code == native.code and said_by_child(run, "result") == said_by_child(plain, "result"),
              said_by_child(run, "result"))
    kit.check("ncu: we were in front", [(one.requests, one.coverage) for one in reports] == [(100, "full")],
              [(one.requests, one.coverage) for one in reports])
    profiled = [[line.strip() for line in one.lines if KERNELS.search(line)] for one in (native, run)]
    kit.check("ncu: the same kernels profiled", profiled[0] == profiled[1] and profiled[0],
              f"{len(profiled[0])} lines without us, {len(profiled[1])} with us")


def find_ucx(named):
    """A folder with include/ucp and lib/libucp.so: the one named, or the package's in Python's path."""
    places = [named] if named else [pathlib.Path(folder or ".") / "libucx" for folder in sys.path]
    for place in places:
        if (place / "include/ucp/api/ucp.h").is_file() and list(place.glob("lib/libucp.so*")):
            return place.resolve()
    raise Skip("no UCX: pip install libucx-cu12, or --ucx DIR")


EXCHANGES = {"default": None, "ordinary segments": "expandable_segments:False", "dedicated": "ipc:dedicated",
             "mapped memory": "expandable_segments:True"}


def exchange(kit):
    """Two processes exchange GPU buffers by UCX, forth and back, each byte compared: natively, then in front."""
    ucx = find_ucx(kit.options.ucx)
    program = kit.work / "exchange"
    kit.build(["gcc", "-O1", "-o", program, HERE / "exchange.c", f"-I{ucx / 'include'}", f"-L{ucx / 'lib'}",
               "-lucp", "-lucs", f"-Wl,-rpath={ucx / 'lib'}", "-ldl"])
    host = kit.natively([program, "host"], kit.native())
    kit.note("exchange of host memory, natively", f"{len(host.lines)} lines, {host.seconds:.1f} s")
    native = kit.natively([program, "cuda"], kit.native(UCX_LOG_LEVEL="warn"), timeout=40)
    kit.note("exchange of GPU memory, natively", f"{len(native.lines)} lines, {native.seconds:.1f} s")
    for name, conf in EXCHANGES.items():
        run = kit.run([program, "cuda"], kit.front(kit.native(UCX_LOG_LEVEL="warn"), conf))
        kit.same_lines(f"exchange, {name}: output", native, run, f", {run.seconds:.1f} s")
        reports = reports_of(kit)
        kit.check(f"exchange, {name}: both processes served",
                  len(reports) == 2 and all(one.requests and one.coverage == "full" for one in reports),
                  [(one.requests, one.coverage, one.statistic("reserved_bytes", "peak")) for one in reports])
        for line in [warning["text"] for one in reports for warning in one.report["warnings"]]:
            kit.note(f"exchange, {name}: warning", line[:300])
        for line in run.errors.splitlines()[:5]:
            kit.note(f"exchange, {name}: UCX says", line[:300])


WATCHED = ("cuLaunchKernel", "cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemMap", "cuEventRecord",
           "cuCtxRecordEvent", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease",
           "cuDevicePrimaryCtxReset", "cuStreamSynchronize", "*")
OURS = ("cuMemAlloc", "cuMemFree")  # the driver's may never be called with us in front


def take_inside(run):
    """Takes what the tool in the program was answered out of its lines: (how often it acted, the answers)."""
    of_tool = [line for line in run.lines if line.startswith(("acted ", "inside "))]
    run.lines = [line for line in run.lines if line not in of_tool]
    return int(of_tool[0].split()[1]) if of_tool else 0, set(of_tool[1:])


def called_back_in(kit, program, environment, function, side):
    """One function and side natively, and, where that ends, in front. The native ending is True or False."""
    name, command = f"called back, {function} {side}", [program, function, side]
    try:
        native = kit.run(command, environment, timeout=10)
    except Failed as reason:
        kit.note(name, f"natively {reason}")
        return False
    acted, answers = take_inside(native)
    if native.code != 0 or not acted and function != "none":
        kit.note(name, f"natively acted {acted}, {native.complaint()}")
        return False
    refused = sorted(line for line in answers if not line.endswith(": 0"))
    if refused:
        kit.note(name, f"natively {', '.join(refused)}")
    try:
        run = kit.good(command, kit.front(environment), timeout=30)
    except Failed as reason:
        kit.check(name, False, reason)
        return True
    times, ours = take_inside(run)
    other = sorted(line for line in ours - answers if not line.endswith(": 0"))
    kit.same_lines(f"{name}: output", native, run, f", acted {acted} and {times} times, {native.seconds:.1f} "
                   f"and {run.seconds:.1f} s, coverage {run.exit.coverage}")
    kit.check(f"{name}: the tool's answers", not other and run.exit.requests
              and (times or function in (*OURS, "none")), ", ".join(other) or f"acted {times} times")
    return True


def called_back(kit):
    """A tool that CUPTI calls back within the driver's functions uses the driver there. The driver may hold a lock of
    its own: only what ends natively must end in front."""
    program, folder = with_cupti(kit, "called_back", "called_back.c", *driver_library())
    environment = place_cupti(kit.native(), folder)
    if not called_back_in(kit, program, environment, "none", "enter"):
        raise Skip("fails natively though the tool does nothing")
    works = [(function, side) for function in WATCHED for side in ("enter", "leave")]
    ended = kit.together(*(lambda w=work: called_back_in(kit, program, environment, *w) for work in works))
    kit.check("called back: a tool can do this natively", any(ended), f"{sum(ended)} of {len(ended)} end natively")
