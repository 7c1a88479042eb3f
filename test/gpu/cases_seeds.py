"""Published experiments 1 to 7 in PyTorch, and 5 and 7 as programs: figures against our report's."""

import itertools
import pathlib

from kit import GIB, HERE, MIB, Failed, cuda_home, find_cudart, mib

# What was published, as differences of allocated bytes from the first point; None: only compare.
PUBLISHED = {
    "1": {"parameters": 1452544, "forward": 1452544 + 57344},
    "2": {"first freed": -4 * MIB, "both freed": -20 * MIB, "emptied": -20 * MIB},
    "2-held": {"first freed": 0, "both freed": 0, "emptied": 0},
    "3": {"y": 3072 * MIB, "backward": 6144 * MIB},
    "3-one": {"backward": 3072 * MIB},
    "4a": {"five": -20 * MIB, "64 MiB": 44 * MIB},
}
RESERVED = {"2": {"both made": 20971520, "both freed": 20971520, "emptied": 0},
            "2-held": {"both made": 20971520, "both freed": 20971520, "emptied": 20971520},
            "4a": {"ten": 40 * MIB, "five": 40 * MIB, "64 MiB": 104 * MIB}}
CERTIFIED = "expandable_segments:False,thread_cache:off"  # what PyTorch's default rules are held against
EMPTIED = ("emptied", "20 steps", "40 steps")
VGG16 = 553430176  # bytes of its parameters
FORGOTTEN = 20 * 3000001 + 4 * 4096  # bytes of 20 steps of experiment 7


def both(kit, which):
    """One experiment natively and in front with the certified rules: (native points, in-front figures, the run in front)."""
    command = kit.script("torch_seeds.py", which)
    native, run = kit.together(
        lambda: kit.natively(command, kit.native()),
        lambda: kit.good(command, kit.front(conf=CERTIFIED), at=dict.fromkeys(EMPTIED, ["empty-cache"])))
    kit.same_lines(f"{which}: result", native, run) if native.lines else None
    return native.points, run.figures, run


def compare_differences(kit, which, own, ours, slack=0):
    """Allocated bytes: each point less the first, PyTorch's against ours, and the published. `slack`: of unsplit tails."""
    first = next(iter(own))
    for name in itertools.islice(own, 1, None):
        native = own[name]["allocated"] - own[first]["allocated"]
        front = ours[name].allocated - ours[first].allocated
        kit.check(f"{which}: allocated, {first} → {name}", abs(native - front) <= slack,
                  f"native {native:+d}, in front {front:+d}")
        published = PUBLISHED.get(which, {}).get(name)
        if published is not None and published != native:
            kit.note(f"{which}: published for {first} → {name}", f"{published:+d}")


def compare_reserved(kit, which, own, ours):
    """Reserved bytes, where the experiment publishes them."""
    for name, published in RESERVED[which].items():
        native, front = own[name]["reserved"], ours[name].reserved
        kit.check(f"{which}: reserved, {name}", native == front == published,
                  f"native {native}, in front {front}, published {published}")


def seed1(kit):
    own, ours, _ = both(kit, "1")
    compare_differences(kit, "1", own, ours)


def seed2(kit):
    for which in ("2", "2-held"):
        own, ours, _ = both(kit, which)
        compare_differences(kit, which, own, ours)
        compare_reserved(kit, which, own, ours)


def seed3(kit):
    for which in ("3", "3-one"):
        own, ours, run = both(kit, which)
        compare_differences(kit, which, own, ours)
        native = own["backward"]["peak"] - own["x"]["allocated"]
        front = run.exit.peak - ours["x"].allocated
        kit.check(f"{which}: peak less x", native == front,
                  f"native {native:+d}, in front {front:+d}, "
                  f"{mib(run.exit.peak)} at the peak")


def seed4a(kit):
    own, ours, _ = both(kit, "4a")
    compare_differences(kit, "4a", own, ours)
    compare_reserved(kit, "4a", own, ours)
    native, front = own["64 MiB"]["inactive_split"], ours["64 MiB"].inactive_split
    kit.check("4a: inactive split bytes", native == front == 20971520,
              f"native {native}, in front {front}")


def program_of(kit, name):
    """A program of test/workloads with a real runtime."""
    program, folder = kit.work / name, HERE.parent / "workloads"
    cudart = pathlib.Path(find_cudart())
    kit.build(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-o", program, folder / f"{name}.c",
               folder / "seed.c", f"-I{cuda_home() / 'include'}", f"-L{cudart.parent}",
               f"-l:{cudart.name}", f"-Wl,-rpath,{cudart.parent}"])
    return program


# Program → its argument or option, exit code, and at each point (allocated, reserved; None: not published). Peak, or None.
PUBLISHED_PROGRAMS = {
    "seed1_activations": [("", 0, {"before": (4608, None), "parameters": (1457152, None), "forward": (1514496, None)}, 1514496)],
    "seed2_reserved": [
        ("", 0, {"both made": (20 * MIB, 20 * MIB), "first freed": (16 * MIB, 20 * MIB), "both freed": (0, 20 * MIB), "emptied": (0, 0)}, None),
        ("held", 0, dict.fromkeys(("both made", "first freed", "both freed", "emptied"), (20 * MIB, 20 * MIB)), None)],
    "seed3_backward": [
        ("", 0, {"x": (3072 * MIB, None), "y": (6144 * MIB, None), "backward": (9216 * MIB, None)}, 12288 * MIB),
        ("one-expression", 0, {"x": (3072 * MIB, None), "backward": (6144 * MIB, None)}, 9216 * MIB)],
    "seed4a_holes": [("", 0, {"ten": (40 * MIB, 40 * MIB), "five": (20 * MIB, 40 * MIB), "64 MiB": (84 * MIB, 104 * MIB)}, None)],
    "seed4b_tenants": [
        ("memory_limit_mb:8192", 3, {"B came": (2 * GIB, 5 * GIB), "out of memory": (2 * GIB, 5 * GIB)}, None),
        *[(f"memory_limit_mb:8192,max_split_size_mb:{mib_}", 0, {"B came": (2 * GIB, 6 * GIB), "served": (6 * GIB, 6 * GIB)}, None)
          for mib_ in (128, 256, 512)]],
}


def seed_programs(kit):
    """The same experiments as programs in C: to the byte. 5 and 7 are with their scripts."""
    for name, runs in PUBLISHED_PROGRAMS.items():
        program = program_of(kit, name)
        for what, code, points, peak in runs:
            conf, words = (f"{CERTIFIED},{what}", []) if ":" in what else (CERTIFIED, what.split())
            run = kit.good([program, *words], kit.front(kit.native(), conf), at={"emptied": ["empty-cache"]}, code=code)
            found = {point: (run.figures[point].allocated, run.figures[point].reserved if reserved is not None else None)
                     for point, (_, reserved) in points.items()}
            kit.check(f"{name} {what}".strip() + ": as published", found == points and peak in (None, run.exit.peak),
                      found if found != points else f"{len(points)} points, peak {run.exit.peak}")


def seed5(kit):
    own, ours, _ = both(kit, "5")
    compare_differences(kit, "5", own, ours, 4 * MIB)

    def requested(points, name, first):
        return points[name].statistic("requested_bytes") - points[first].statistic("requested_bytes")

    kit.check("5: VGG16's parameters as by the formula", requested(ours, "parameters", "before") == VGG16,
              f"{requested(ours, 'parameters', 'before')} bytes requested")
    run = kit.good([program_of(kit, "seed5_vgg16")], kit.front(kit.native()))
    points = run.figures
    kit.check("5: the program's parameters, momentum",
              points["parameters"].statistic("requested_bytes") == VGG16
              == requested(points, "momentum", "embedding"), f"{VGG16} bytes; {len(points)} points")
    kit.check("5: the program's activations, gradients", requested(points, "forward", "momentum")
              == requested(points, "backward", "forward") > 0,
              f"{requested(points, 'forward', 'momentum')} bytes each")


def seed7(kit):
    own, ours, _ = both(kit, "7")
    compare_differences(kit, "7", own, ours)
    for name in ("20 steps", "40 steps"):
        native, front = own[name]["reserved"], ours[name].reserved
        kit.check(f"7: reserved, {name}, emptied", native == front,
                  f"native {native}, in front {front}")
    run = kit.good([program_of(kit, "seed7_growth")], kit.front(kit.native()),
                   at=dict.fromkeys(EMPTIED, ["empty-cache"]))
    if "40 steps" not in run.figures:
        raise Failed(run.complaint())
    sizes = [run.figures[name].statistic("requested_bytes") for name in ("20 steps", "40 steps")]
    kit.check("7: the program's growth", sizes == [FORGOTTEN, 2 * FORGOTTEN], sizes)
    leaks = {leak["requested_bytes"]: leak["count"] for leak in run.exit.report["leaks"]}
    kit.check("7: named as leaks at exit", leaks == {3000001: 40, 4096: 8}, leaks)


def tenants(kit, split):
    """4(b) with one max_split_size: (native run, run in front)."""
    command = kit.script("torch_seeds.py", "4b")
    torch_conf = {"PYTORCH_CUDA_ALLOC_CONF": f"max_split_size_mb:{split}"} if split else {}
    conf = f"{CERTIFIED},memory_limit_mb:8192" + (f",max_split_size_mb:{split}" if split else "")
    return kit.together(lambda: kit.natively(command, kit.native(**torch_conf)),
                        lambda: kit.good(command, kit.front(conf=conf)))


def seed4b(kit):
    for split in (None, 128, 256, 512):
        native, run = tenants(kit, split)
        name = f"4b: max_split_size_mb {split or 'unset'}"
        kit.same_lines(f"{name}: served or not", native, run)
        (said,) = run.results()
        kit.check(f"{name}: as published", said["served"] == bool(split), said["served"])
        own, ours = native.points["end"], run.figures["end"]
        expected = (6 * GIB, 6 * GIB) if split else (2 * GIB, 5 * GIB)
        kit.check(f"{name}: allocated, reserved",
                  (own["allocated"], own["reserved"]) == expected
                  and (ours.allocated, ours.reserved) == expected,
                  f"native {mib(own['allocated'])}, {mib(own['reserved'])}; "
                  f"in front {mib(ours.allocated)}, {mib(ours.reserved)}")
        events = run.exit.report["oom_events"]
        why = events[0] if events else {}
        kit.check(f"{name}: oom_events", len(events) == (0 if split else 1),
                  f"{len(events)}" + (f", largest reusable {mib(why['largest_allocatable_bytes'])},"
                                      f" native would fit: {why['native_would_fit']}"
                                      if why else ""))
    run = kit.good(kit.script("torch_seeds.py", "4b"), kit.front(conf="expandable_segments:True,memory_limit_mb:8192"))
    (said,) = run.results()
    kit.check("4b: expandable_segments True: served", said["served"] and run.exit.totals["peak_reserved_bytes"] <= 6 * GIB,
              f"peak reserved {mib(run.exit.totals['peak_reserved_bytes'])}")


# Variant → (the one without, greatest share of its peak, is the result the same to the bit?)
SAVINGS = {
    "no_grad": ("forward", 0.5, True), "detach": ("forward", 0.5, True),
    "half": ("forward", 0.55, False), "bf16": ("forward", 0.55, False),
    "batches": ("train", 0.6, False), "checkpoint": ("train", 0.8, True),
    "free": ("keep", 0.6, True), "cpu": ("keep", 0.6, True),
}
VARIANTS = ["forward", "no_grad", "detach", "half", "bf16", "train", "batches", "checkpoint",
            "keep", "free", "cpu"]


def front_variant(kit, name):
    """One variant in front: (peak over what was there at its begin, result)."""
    run = kit.good(kit.script("torch_saving.py", name), kit.front())
    (said,) = run.results()
    return run.figures[f"{name} end"].peak - run.figures[f"{name} begin"].allocated, said["result"]


def saving(kit):
    native = kit.natively(kit.script("torch_saving.py", *VARIANTS), kit.native())
    own = {said["variant"]: said["result"] for said in native.results()}
    ours = dict(zip(VARIANTS, kit.together(
        *(lambda name=name: front_variant(kit, name) for name in VARIANTS))))
    for name in VARIANTS:
        points = native.points
        there = points[f"{name} end"]["peak"] - points[f"{name} begin"]["allocated"]
        here = ours[name][0]
        # To a few blocks' unsplit tails: which block is taken differs, and a tail may be 1 MiB.
        kit.check(f"{name}: peak over begin", abs(here - there) <= 0.02 * there + 4 * MIB,
                  f"native {mib(there)}, in front {mib(here)}")
        kit.check(f"{name}: result as native", ours[name][1] == own[name], ours[name][1])
    for name, (without, share, same) in SAVINGS.items():
        peak, before = ours[name][0], ours[without][0]
        kit.check(f"{name} against {without}: saved",
                  peak <= share * before and (not same or ours[name][1] == ours[without][1]),
                  f"{mib(before)} → {mib(peak)}, {100 - 100 * peak / before:.0f} % less")
