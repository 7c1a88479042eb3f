"""Real work natively and in front: training, graphs, CuPy, JAX, modes, a limit, signals."""

import os
import signal
import time

from cases_programs import harvest
from kit import MIB, Failed, Figures, Skip, mib

STEPS = 40
MODES = {"default": None, "free_mode:fence": "free_mode:fence",
         "free_mode:strict": "free_mode:strict", "cache:off": "cache:off",
         "max_split_size_mb:20": "max_split_size_mb:20"}


def summary(run):
    """What a run in front did, in a few words."""
    figures = run.exit
    hits = figures.totals["hits"] / max(1, figures.requests)
    return (f"; {figures.requests} requests, {100 * hits:.1f} % hits, "
            f"peak {mib(figures.peak)} of {mib(figures.totals['peak_reserved_bytes'])}, "
            f"coverage {figures.coverage}")


def training(kit):
    """Losses of a deterministic training with and without PyTorch's cache, and in front."""
    command = kit.script("torch_train.py", STEPS)
    fronts = [(f"no cache + us, {mode}", kit.front(conf=conf)) for mode, conf in MODES.items()]
    fronts.append(("own cache + us", kit.front(kit.native())))
    bare, cached, *runs = kit.together(
        lambda: kit.natively(command, kit.no_cache()),
        lambda: kit.natively(command, kit.native()),
        *(lambda e=e: kit.good(command, e) for _, e in fronts))
    kit.same_lines("training: native, own cache against no cache", cached, bare)
    for (name, _), run in zip(fronts, runs):
        kit.same_lines(f"training: {name}", bare, run, summary(run))
        kit.check(f"training: {name}: sound report",
                  run.exit.requests > 0 and run.exit.totals["ooms"] == 0
                  and run.exit.coverage == "full" and run.exit.totals["double_frees"] == 0,
                  f"{run.exit.totals['warnings']} warnings, "
                  f"{run.exit.totals['late_frees']} late frees")


def graphs(kit):
    """CUDA graphs with PyTorch's own cache on; in-place also without it."""
    kinds = [("training", kit.native), ("callables", kit.native), ("in-place", kit.native),
             ("in-place", kit.no_cache)]

    def one(kind, environment):
        command = kit.script("torch_graphs.py", kind)
        try:
            native = kit.natively(command, environment())
        except Skip as skip:
            return None, skip
        return native, kit.run(command, kit.front(environment()))

    results = kit.together(*(lambda k=k, e=e: one(k, e) for k, e in kinds))
    for (kind, environment), (native, run) in zip(kinds, results):
        cache = "own cache" if environment == kit.native else "no cache"
        name = f"graphs: {kind}, {cache}"
        if native is None:
            kit.skip(name, run)
        elif run.exit is None or run.code != 0:
            kit.check(name, False, run.complaint())
        else:
            kit.same_lines(name, native, run, summary(run))


def framework(kit, name, command, environments):
    """Native against in front, with the first environment that the framework can live in."""
    for last, environment in enumerate(environments, 1):
        native = kit.run(command, kit.native(**environment), timeout=120)
        if native.code == 0:
            break
        if last == len(environments):
            raise Skip(f"fails natively: {native.complaint()}")
    again, run = kit.together(
        lambda: kit.natively(command, kit.native(**environment), timeout=120),
        lambda: kit.good(command, kit.front(kit.native(**environment)), timeout=120))
    if again.lines != native.lines:
        kit.note(f"{name}: two native runs", "differ: nothing follows from a difference in front")
    kit.same_lines(f"{name}: results", native, run, summary(run))
    others = run.exit.others()
    if run.exit.requests <= 100 and others.get("vmm"):
        # XLA since May 2026 takes all device memory by cuMemCreate (openxla/xla#43125): passed on and counted.
        kit.note(f"{name}: memory", f"{run.exit.requests} cudaMalloc; by cuMemCreate: {others['vmm']} bytes")
    else:
        kit.check(f"{name}: requests came to us", run.exit.requests > 100,
                  f"{run.exit.requests}; past the cache: {others or 'nothing'}")


def cupy(kit):
    """CuPy with its pool off."""
    framework(kit, "CuPy", kit.script("cupy_loop.py"), [{}])


def jax(kit):
    """JAX with XLA_PYTHON_CLIENT_ALLOCATOR=platform."""
    platform = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    framework(kit, "JAX", kit.script("jax_loop.py"),
              [platform, {**platform, "XLA_FLAGS": "--xla_gpu_autotune_level=0"},
               {**platform, "XLA_FLAGS": ""}])


def limit(kit):
    """Within memory_limit_mb:1024 there are 8 times 128 MiB, an error, and more after a free."""
    run = kit.good(kit.script("torch_limit.py"), kit.front(conf="memory_limit_mb:1024"))
    (said,) = run.results()
    kit.check("limit: mem_get_info", said["free_bytes"] == 1024 * MIB, mib(said["free_bytes"]))
    kit.check("limit: tensors of 128 MiB", (said["first"], said["failed"]) == (8, True),
              f"{said['first']}, then out of memory: {said['failed']}")
    kit.check("limit: after freeing half", (said["second"], said["again"]) == (8, True)
              and said["right"], f"{said['second']}, contents right: {said['right']}")
    totals = run.exit.totals
    kit.check("limit: reserved", totals["peak_reserved_bytes"] <= 1024 * MIB,
              f"{mib(totals['peak_reserved_bytes'])}, {totals['ooms']} out of memory")
    kit.check("limit: oom_events", len(run.exit.report["oom_events"]) == totals["ooms"] >= 2, [
        mib(event["allocated_bytes"]) for event in run.exit.report["oom_events"]])


def handles(kit):
    """Handles of several chunks, while the device is behind: no tensor loses what is in it. Replays of it keep at most 1.049."""
    run = kit.good(kit.script("torch_handles.py", 1, 10), kit.front(conf="expandable_segments:True"))
    (said,) = run.results()
    kit.check("handles: tensors that lost what was in them", said["wrong"] == 0, f"{said['wrong']} in {said['operations']} operations")
    moved = sum(device["counters"]["num_maps"] - device["counters"]["num_device_alloc"] for device in run.exit.report["devices"])
    kit.check("handles: mapped a second time", moved >= 100, f"{moved}")
    size = run.exit.statistic("reserved_bytes", "peak") / run.exit.statistic("segment", "peak") / 2**20
    kit.check("handles: MiB of one", size >= 3, f"{size:.1f}")
    ratio = run.exit.statistic("reserved_bytes", "peak") / run.exit.statistic("requested_bytes", "peak")
    counters = run.exit.report["devices"][0]["counters"]
    kit.check("handles: reserved for each byte requested", ratio <= 1.06, f"{ratio:.4f}; " + ", ".join(
        f"{name} {counters[name]}" for name in ("num_device_alloc", "num_device_free", "num_unmaps", "num_lane_frees", "num_fence_frees", "num_fence_waits")))


def wait_for_report(kit, path, seconds=15):
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise Failed(f"no report {path.name} within {seconds} s")
        time.sleep(0.01)
    return Figures(path)


def signals(kit):
    """SIGUSR1 at rest and in the middle of training: reports right, losses unchanged."""
    stop, more, steps = 10, 4, 200  # enough that it still trains when the last signal comes
    command = kit.script("torch_train.py", steps, stop)
    native = kit.natively(command, kit.no_cache())
    program = kit.start(command, kit.front())
    if program.next_point() != "stop":
        raise Failed(program.end().complaint())
    os.kill(program.pid, signal.SIGUSR1)
    signalled = wait_for_report(kit, kit.report_path(program.pid, 1))
    asked = program.dump()
    kit.check("signal: the same as asked for with `cachalot dump`",
              signalled.report["kind"] == "signal"
              and [d["statistics"] for d in signalled.report["devices"]]
              == [d["statistics"] for d in asked.report["devices"]],
              f"{signalled.requests} requests, {mib(signalled.allocated)} allocated")
    program.go()
    seen = []
    for number in range(3, 3 + more):
        for _ in range(3):
            program.next_line()
        os.kill(program.pid, signal.SIGUSR1)
        seen.append(wait_for_report(kit, kit.report_path(program.pid, number)))
    run = program.end()
    kit.same_lines("signal: losses with signals in the middle", native, run)
    counts = [figures.requests for figures in (signalled, *seen, run.exit)]
    kit.check("signal: requests grow from report to report", counts == sorted(set(counts)), counts)
    kit.check("signal: each report is sound",
              all(0 < f.allocated <= f.reserved and f.report["kind"] == "signal" for f in seen),
              [mib(figures.allocated) for figures in seen])


def killed_training(kit):
    """SIGKILL in the middle of training: the harvest has at least what was seen before."""
    program = kit.start(kit.script("torch_train.py", 100000, 10), kit.front())
    if program.next_point() != "stop":
        raise Failed(program.end().complaint())
    before = program.dump()
    program.go()
    for _ in range(5):
        program.next_line()
    os.kill(program.pid, signal.SIGKILL)
    run = program.end()
    kit.check("killed training: no report of its own", run.exit is None, f"exit code {run.code}")
    after = harvest(kit)
    kit.check("killed training: nothing lost", after.requests > before.requests
              and after.report["kind"] == "harvest" and after.peak >= before.peak,
              f"{before.requests} requests seen before, {after.requests} harvested, "
              f"{mib(after.allocated)} live")
