"""Cases that need no framework: the doors, counted calls, a kill, compute-sanitizer."""

import pathlib
import shutil
import signal
import struct
import time

from kit import HERE, Failed, Figures, Skip, cuda_home, find_cudart

MODES = {"default": None, "strict": "free_mode:strict", "cache off": "cache:off"}


def compare_modes(kit, name, program, requests):
    """A program natively and in front in each mode: same output and code, every call counted."""
    native = kit.natively([program], kit.native(), code=7)
    for mode, conf in MODES.items():
        run = kit.run([program], kit.front(kit.native(), conf))
        kit.same_lines(f"{name}, {mode}: output", native, run)
        if run.exit is None:
            kit.check(f"{name}, {mode}: report", False, "none was written")
            continue
        seen = run.exit.requests + run.exit.forwarded
        kit.check(f"{name}, {mode}: calls counted", requests in (None, seen),
                  f"{seen} requests, coverage {run.exit.coverage}")


def nvcc():
    return shutil.which("nvcc") or str(cuda_home() / "bin/nvcc")


def driver_program(kit, name, folder=HERE):
    """A C program of this folder, or of the tests on the simulated device, linked to libcuda."""
    program = kit.work / name
    kit.build(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", f"-I{cuda_home() / 'include'}", f"-I{HERE.parent / 'sim'}", "-o", program,
               folder / f"{name}.c", *driver_library()])
    return program


def runtime_program(kit, source):
    """A C program linked to the shared cudart, and to libcuda."""
    program, cudart = kit.work / source.stem, pathlib.Path(find_cudart())
    kit.build(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", f"-I{cuda_home() / 'include'}", "-o", program, source, cudart,
               *driver_library(), f"-Wl,-rpath,{cudart.parent}"])
    return program


def answers(kit):
    """Rare and wrong calls: the driver's answers, in each mode."""
    # Those of `preload` are programs of the tests on the simulated device, "across devices" is one, too: does that answer as the driver does?
    preload = HERE.parent / "preload"
    current = driver_program(kit, "current", preload)
    for name, program in {"answers": [driver_program(kit, "answers")],
                          "wrong calls": [runtime_program(kit, preload / "bad_input_runtime.c")],
                          "across devices": [runtime_program(kit, HERE / "across.c")], "ends of contexts": [driver_program(kit, "ends")],
                          "a context taken away": [runtime_program(kit, preload / "current_runtime.c")],
                          "what is current": [current, "primary"], "what is current, own": [current, "own"]}.items():
        native = kit.run(program, kit.native())
        if native.code:
            kit.skip(name, f"natively exit code {native.code}")  # one device
            continue
        for mode, conf in {**MODES, "fence": "free_mode:fence", "ordinary segments": "expandable_segments:False"}.items():
            kit.same_lines(f"{name}, {mode}", native, kit.good(program, kit.front(kit.native(), conf)))


STORM_MIB = 16384


def storm(kit):
    """Random sizes up to an exact limit: what fails although natively there was room, and what is lost."""
    program = driver_program(kit, "storm")
    for seed in (4, 5):
        run = kit.good([program, 4000, STORM_MIB, seed],
                       kit.front(kit.native(), f"expandable_segments:True,memory_limit_mb:{STORM_MIB}"), timeout=90)
        (said,) = run.results()
        totals = run.exit.totals
        ratio = totals["peak_reserved_bytes"] / totals["peak_allocated_bytes"]
        kit.check(f"storm, seed {seed}: nothing wrong or failed, reserved", not said["wrong"] and not said["failed"] and ratio <= 1.05,
                  f"{said}, peak reserved {ratio:.4f} of allocated, {run.seconds:.1f} s")
    for seed in (1, 2, 3):  # corners of chunks serve: the same memory at two addresses
        run = kit.good([program, 8000, 96, seed, 12], kit.front(kit.native(), "expandable_segments:True,memory_limit_mb:96"), timeout=90)
        (said,) = run.results()
        kit.check(f"storm, corners, seed {seed}: nothing wrong", not said["wrong"] and said["failed"] < said["mallocs"] / 20, f"{said}, {run.seconds:.1f} s")


def driver_library():
    """What to link for libcuda: the toolkit's stub, else the driver's own library."""
    home = cuda_home()
    for folder in (home / "lib64/stubs", home / "lib/stubs", *home.glob("targets/*/lib/stubs")):
        if (folder / "libcuda.so").exists():
            return [f"-L{folder}", "-lcuda"]
    folders = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
    for folder in folders:
        path = pathlib.Path(folder) / "libcuda.so.1"
        if path.exists():
            return [str(path), "-Wl,--allow-shlib-undefined"]
    raise Skip("no libcuda to link with")


def door_runtime(kit):
    """cudart linked statically and shared: every request through the driver's door, or ours."""
    folder = pathlib.Path(find_cudart()).parent
    for linked in ("static", "shared"):
        program = kit.work / f"door_runtime_{linked}"
        kit.build([nvcc(), "-O1", f"-arch={kit.options.arch}", "-cudart", linked, "-o", program,
                   HERE / "door_runtime.cu", "-L", folder, "-Xlinker", f"-rpath={folder}"])
        compare_modes(kit, f"cudart {linked}", program, 4000 + 8)


def door_driver(kit):
    """The driver API, linked and by dlopen and dlsym."""
    include = f"-I{cuda_home() / 'include'}"
    for name, more in (("linked", driver_library()), ("dlopen", ["-DBY_DLOPEN", "-ldl"])):
        program = kit.work / f"door_driver_{name}"
        kit.build(["gcc", "-O1", "-o", program, HERE / "door_driver.c", include, *more])
        compare_modes(kit, f"libcuda {name}", program, None)


def counted(kit):
    """cudaMalloc and cudaFree through ctypes, a known number."""
    command = kit.script("ctypes_count.py", find_cudart(), "count")
    native = kit.natively(command, kit.native())
    run = kit.good(command, kit.front(kit.native()))
    kit.same_lines("ctypes: output", native, run)
    (said,) = native.results()
    kit.check("ctypes: mallocs and requested bytes",
              (run.exit.requests, run.exit.statistic("requested_bytes", "allocated"))
              == (said["mallocs"], said["requested"]),
              f"{run.exit.requests} mallocs, {said['requested']} bytes")
    totals = run.exit.totals
    kit.check("ctypes: blocks still live at exit", totals["leaked_blocks"] == said["kept"],
              f"{totals['leaked_blocks']} blocks, {totals['hits']} hits")


def wait_for(kit, condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise Failed("the program did not get there in time")


def killed(kit):
    """SIGKILL in a loop of mallocs: the harvested report has every one that was done."""
    beat = kit.work / "heartbeat"
    program = kit.start(kit.script("ctypes_count.py", find_cudart(), "forever", beat),
                        kit.front(kit.native()))

    def beats():
        data = beat.read_bytes()[:16] if beat.exists() else b""
        return struct.unpack("=QQ", data) if len(data) == 16 else (0, 0)

    try:
        wait_for(kit, lambda: beats()[1] > 2000 or program.process.poll() is not None, 60)
    finally:
        program.process.send_signal(signal.SIGKILL)
        run = program.end()
    begun, done = beats()
    if done == 0:
        raise Failed(run.complaint())
    kit.check("killed: no report of its own", run.exit is None, f"exit code {run.code}")
    figures = harvest(kit)
    kit.check("killed: mallocs, heartbeat against harvest", done <= figures.requests <= begun,
              f"done {done}, harvested {figures.requests}, begun {begun}")
    live = figures.totals["leaked_blocks"]
    kit.check("killed: live blocks", live in (20, 21), f"{live} blocks, "
              f"reason {figures.report['exit']['reason']}")


def harvest(kit):
    """The report of the one killed program."""
    paths = kit.cachalot("harvest", kit.pages, "--output", kit.work / "killed.json").splitlines()
    if len(paths) != 1:
        raise Failed(f"harvest made {len(paths)} reports, 1 was expected")
    return Figures(paths[0])


def sanitized(kit):
    """The driver API under compute-sanitizer, with us in front."""
    tool = shutil.which("compute-sanitizer") or str(cuda_home() / "bin/compute-sanitizer")
    if not pathlib.Path(tool).exists():
        raise Skip("no compute-sanitizer")
    program = kit.work / "sanitized"
    kit.build(["gcc", "-O1", "-o", program, HERE / "sanitized.c",
               f"-I{cuda_home() / 'include'}", *driver_library()])
    plain = kit.natively([program], kit.native())
    check = [tool, "--tool", "memcheck", "--error-exitcode", "99"]
    native = kit.natively([*check, program], kit.native(), timeout=120)
    kit.note("compute-sanitizer natively", summary_of(native))
    environment = kit.front(kit.native())
    run = kit.run([*check, program], environment, timeout=120)
    reports = sorted(kit.work.glob("report.*.json"))
    if not reports:  # it set LD_PRELOAD anew
        environment.pop("LD_PRELOAD")
        run = kit.run([*check, "--preload-library", kit.library, program], environment, timeout=120)
        reports = sorted(kit.work.glob("report.*.json"))
    said = [line for line in run.lines if line.startswith("mallocs ")]
    kit.check("compute-sanitizer: no error", run.code == 0 and said == plain.lines,
              f"{summary_of(run)}, exit code {run.code}")
    requests = [requests for path in reports if (requests := Figures(path).requests)]
    kit.check("compute-sanitizer: we were in front", requests == [400], f"requests {requests}")


def summary_of(run):
    lines = [line for line in run.lines if "ERROR SUMMARY" in line]
    return lines[-1].strip("= ") if lines else "no summary"
