"""When is a freed block handed out again: facts about the driver, the corruption hunter, hangs."""

import json
import os
import pathlib
import subprocess

from cases_programs import driver_library, nvcc
from kit import HERE, cuda_home, find_cudart

LANES = ("num_lane_frees", "num_fence_frees", "num_wait_frees", "num_lane_marks", "num_lane_joins",
         "num_lane_leaves", "num_fences", "num_fence_waits", "fence_wait_ns")


def compile_cuda(kit, name, sources, *more):
    """A program of nvcc, linked to the driver too; its path."""
    program = kit.work / name
    linked = []
    for word in driver_library():
        linked += [word] if word.startswith(("-L", "-l")) else ["-Xlinker", word.removeprefix("-Wl,")]
    kit.build([nvcc(), "-O1", "-std=c++17", f"-arch={kit.options.arch}", *more, "-o", program,
               *(HERE / source for source in sources), *linked])
    return program


def shared_cudart():
    """Options of nvcc."""
    folder = pathlib.Path(find_cudart()).parent
    return ["-cudart", "shared", "-L", folder, "-Xlinker", f"-rpath={folder}"]


def gpus():
    """How many a program sees."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return max(1, len([name for name in named.split(",") if name]))
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30,
                              check=False)
    except OSError:
        return 1
    return max(1, done.stdout.count("GPU "))


def facts(kit):
    """What the rule leans on, and what its calls cost. Natively; nothing is compared."""
    program = compile_cuda(kit, "facts", ["facts.cu", "facts_costs.cu", "facts_contexts.cu", "facts_map.cu", "facts_ipc.cu"])
    run = kit.run([program], kit.native(), timeout=150)
    for said in run.results():
        if "fact" in said:
            kit.note(said["fact"], said["says"])
        else:
            kit.check("facts", False, said)
    kit.check("facts: all found", run.code == 0, f"exit code {run.code} {run.errors.strip()[-200:]}")


def lane_figures(figures):
    """What the report says of lanes and fences."""
    counters = [device["counters"] for device in figures.report["devices"]]
    sums = {name: sum(row.get(name, 0) for row in counters) for name in LANES}
    return " ".join(f"{name} {value}" for name, value in sums.items() if value)


def hunted(kit, what, program, environment, arguments, seconds, planted=False):
    """One hunt: is nothing corrupted, nothing wrong, nothing hung? Its own figures."""
    run = kit.run([program, "--seconds", seconds, *arguments], environment, timeout=seconds + 75)
    said = run.results()[-1] if run.results() else None
    if said is None:
        kit.check(what, False, run.complaint())
        return {"reuses": 0, "corrupted": 0}
    shown = {name: said[name] for name in
             ("reuses", "same", "switches", "corrupted", "early", "errors", "seconds")}
    more = lane_figures(run.exit) if run.exit else ""
    if said["first_error"] or said["hung"]:
        more += f" {said['first_error']} {said['last']}"
    figures = json.dumps(shown) + " " + more
    if planted:
        kit.note(what, figures)
    else:
        good = run.code == 0 and not (said["corrupted"] or said["errors"] or said["hung"])
        kit.check(what, good, figures)
    return said


def planted(kit):
    """Libraries with a bug in them, which a hunt must find."""
    named = [pathlib.Path(path) for path in kit.options.unsafe]
    found = [kit.options.build / "libcachalot_unsafe.so",
             kit.options.build / "test/preload/libcachalot_unsafe.so"]
    return named or [path for path in found if path.is_file()][:1]


def hunter(kit):
    """Corruption hunter in every mode and style; a planted bug it must find, in one style or the other."""
    sources = ["hunter.cu", "hunter_worker.cu", "hunter_kernels.cu"]
    programs = [compile_cuda(kit, "hunter", sources),
                compile_cuda(kit, "hunter_per_thread", sources, "-default-stream", "per-thread",
                             *shared_cudart())]
    pinned = compile_cuda(kit, "hunter_pinned", ["hunter_pinned.cu"])
    hunted(kit, "hunter, natively, pinned memory", pinned, kit.native(), ["--reuses", 1000], 6)
    seconds, sees = kit.options.seconds, {"async": ["--host"], "strict": ["--host"]}
    for program in programs:
        for style in "ab":
            hunted(kit, f"hunter, natively, {program.name}, style {style}", program, kit.native(),
                   ["--style", style, "--host", "--reuses", 3000], 6)
    for library in planted(kit):
        environment = {**kit.front(kit.native()), "LD_PRELOAD": str(library.resolve())}
        found = [hunted(kit, f"hunter, planted {library.name}, style {style}", programs[0], environment,
                        ["--style", style, "--threads", 4], 8, planted=True) for style in "ab"]
        words = [said["corrupted"] for said in found]
        found.append(hunted(kit, f"hunter, planted {library.name}, pinned memory", pinned, environment, [], 8, planted=True))
        kit.check(f"hunter, planted {library.name}: found in pinned memory", found[-1]["corrupted"] > 0, f"{found[-1]['corrupted']} words in 8 s")
        kit.check(f"hunter, planted {library.name}: found within seconds", any(words),
                  f"{words} words in 8 s")
    for mode in kit.options.modes:
        reuses = 0
        for number, style in enumerate(kit.options.styles):
            for devices in sorted({1, min(2, gpus())}):
                threads = (8, 4, 1)[number % 3]
                arguments = ["--style", style, "--threads", threads, "--devices", devices, "--seed",
                             kit.options.seed + number, *sees.get(mode, ()),
                             *(["--often", 3000, "--long-ns", 1000000] if mode == "strict" else [])]
                program = programs[number % 2]
                reuses += hunted(kit, f"hunter, {mode}, {program.name}, style {style}, {threads} "
                                 f"threads, {devices} GPU", program,
                                 kit.front(kit.native(), f"free_mode:{mode}"), arguments,
                                 seconds)["reuses"]
        kit.note(f"hunter, {mode}: reuses", reuses)
        reuses = sum(hunted(kit, f"hunter, {mode}, pinned memory, {threads} threads, {devices} GPU", pinned,
                            kit.front(kit.native(), f"free_mode:{mode}"), ["--threads", threads, "--devices", devices],
                            seconds)["reuses"] for threads in (8, 1) for devices in sorted({1, min(2, gpus())}))
        kit.note(f"hunter, {mode}: reuses of pinned memory", reuses)


def hang(kit):
    """Orders of frees, mallocs and a spinning kernel that end natively end in front too."""
    program, noted = kit.work / "hang", kit.work / "orders"
    include = f"-I{cuda_home() / 'include'}"
    kit.build(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-o", program, HERE / "hang.c",
               HERE / "hang_orders.c", HERE / "hang_gpu.c", include, *driver_library(), "-lpthread"])
    more = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    native = kit.natively([program, "note", noted, kit.options.every], kit.native(**more), timeout=280)
    (said,) = native.results()
    kit.check("hang: orders natively", said["end"] > 0, json.dumps(said))
    for mode in kit.options.modes:
        run = kit.run([program, "check", noted, kit.options.every],
                      kit.front(kit.native(**more), f"free_mode:{mode}"), timeout=200)
        said = run.results()
        figures = json.dumps(said[-1]) if said else run.complaint()
        hung = " | ".join(line for line in run.lines if not line.startswith("{"))
        more_figures = lane_figures(run.exit) if run.exit else ""
        kit.check(f"hang: {mode}", run.code == 0, f"{figures} {hung[:600]} {more_figures}")
