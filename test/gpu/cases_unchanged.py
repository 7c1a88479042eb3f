"""Programs that nobody here wrote (unchanged_list.py): natively, in front and natively again."""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import site
import sys
import threading

import alike
from cases_programs import driver_library, nvcc
from kit import HERE, Failed, Figures, Skip, cuda_home, find_cudart
from unchanged_list import SAMPLES, SCRIPTS, TOOLS

SOURCES = {".cu", ".cpp", ".cc", ".c"}
AGAIN = 2  # more native runs where two do not show all that varies
SLOWER = 1.1  # time of all in front over that of the two native runs around it, on average


class Tried:
    """A program's runs, and what to say of them."""

    def __init__(self, kit, wanted, command, folder, environment, loads=()):
        self.kit, self.name, self.covers = kit, wanted["name"], wanted["covers"]
        self.at_once = wanted.get("at_once", False)
        self.command, self.folder, self.environment = command, folder, environment
        self.loads = loads  # what a tool has to be told to load us into the program
        self.natives, self.seconds, self.reports = [], None, []

    def run(self, front=False):
        """One run in its own folder: `env -C` becomes the program, under the same process id."""
        environment, command = self.environment, self.command
        if front:
            environment = self.kit.front(environment)
            environment["CACHALOT_OUTPUT"] = str(self.folder / "report.%p.json")
            command = [command[0], *self.loads, *command[1:]]
        run = self.kit.run(["env", "-C", self.folder, *command], environment, timeout=100)
        run.lines += run.errors.splitlines()
        return run

    def native(self):
        """One native run; what cannot be run so leaves nothing to compare."""
        try:
            run = self.run()
        except Failed as reason:
            raise Skip(f"natively {reason}") from None
        if run.code != 0:
            raise Skip(f"natively {run.complaint()}")
        self.natives.append(run)

    def compare(self):
        """Natively, in front, natively; a row for the whole program."""
        self.native()
        front = self.run(front=True)
        self.native()
        self.reports = [Figures(path) for path in sorted(self.folder.glob("report.*.json"))]
        same, how = self.alike(front)
        for _ in range(0 if same else AGAIN):
            self.native()
        if not same:
            same, how = self.alike(front)
        self.seconds = sum(run.seconds for run in self.natives[:2]) / 2, front.seconds
        wrong = [] if same else [how]
        if front.code != 0:
            wrong.append(front.complaint())
        wrong += unsound(self.reports)
        self.kit.check(f"{self.name} ({self.covers})", not wrong,
                       "; ".join(wrong) or f"{how}; {self.summary()}")

    def alike(self, front):
        return alike.compare([run.lines for run in self.natives], front.lines, self.at_once)

    def summary(self):
        """What the reports say, in a few words."""
        requests = sum(figures.requests for figures in self.reports)
        others = sorted({kind for figures in self.reports for kind in figures.others()})
        past = f", also {' '.join(others)}" if others else ""
        live = sum(figures.totals["leaked_blocks"] for figures in self.reports)
        left = f", {live} live at exit" if live else ""
        many = f" in {len(self.reports)} processes" if len(self.reports) > 1 else ""
        native, front = self.seconds
        return f"{requests} requests{many}{left}{past}; {front:.2f} s of {native:.2f} s"


def never_began(figures):
    """No initialisation of CUDA, no context, nothing asked for."""
    return (figures.coverage != "full" and not figures.report["coverage"]["counters"]["init_calls"]
            and not figures.report["devices"] and not figures.requests)


def unsound(reports):
    """What cannot be right in the reports of a program that did nothing wrong. A process that found CUDA's
    functions and never began (a launcher of others) is none: some other has to be served."""
    if not reports:
        return ["no report"]
    wrong = []
    idle = [figures for figures in reports if never_began(figures)]
    if len(idle) == len(reports):
        return [f"coverage {reports[0].coverage} in each of {len(reports)} processes"]
    reports = [figures for figures in reports if figures not in idle]
    for figures in reports:
        totals = figures.totals
        live = totals["requests"] - totals["frees"]
        if figures.coverage != "full":
            wrong.append(f"coverage {figures.coverage} {figures.report['coverage']['reasons']}")
        if totals["double_frees"]:
            wrong.append(f"{totals['double_frees']} double frees")
        if not 0 <= totals["leaked_blocks"] <= live:
            wrong.append(f"{totals['leaked_blocks']} blocks live of {live} not freed")
        if not totals["allocated_bytes"] <= totals["active_bytes"] <= totals["reserved_bytes"]:
            wrong.append("allocated, active, reserved out of order")
        if figures.requests and not figures.peak:
            wrong.append("requests, but no peak")
    return wrong


def toolkit_folders(kind):
    """Where headers (`include`) or libraries (`lib`) are: the toolkit's, then those of Python packages."""
    home = cuda_home()
    places = [home / kind, home / f"{kind}64", *sorted(home.glob(f"targets/*/{kind}"))]
    for packages in {*site.getsitepackages(), *sys.path}:
        places += sorted(pathlib.Path(packages or ".").glob(f"nvidia/*/{kind}"))
    return [place for place in dict.fromkeys(places) if place.is_dir()]


def library(name):
    """Link options for -lNAME: by its path, as Python packages have no libNAME.so."""
    if name == "cuda":
        return [word for option in driver_library() for word in ("-Xlinker", option)]
    if name == "cudadevrt":
        return ["-lcudadevrt"]
    for folder in toolkit_folders("lib"):
        found = sorted([*folder.glob(f"lib{name}.so"), *folder.glob(f"lib{name}.so.[0-9]*")])
        if found:
            return [word for option in (found[0], f"-rpath={folder}", "--allow-shlib-undefined")
                    for word in ("-Xlinker", option)]
    raise Skip(f"no lib{name}")


def build(kit, wanted, folder, shared):
    """Compiles a sample in a copy of its folder, its run-time shared or static."""
    sources, common = kit.options.programs / "Samples", kit.options.programs / "Common"
    shutil.copytree(sources / wanted["name"], folder)
    code = [path for path in sorted(folder.iterdir())
            if path.suffix in SOURCES and path.name != wanted["kernel"]]
    code += [common / name for name in wanted["common"]]
    flags = [word for flag in wanted["flags"]
             for word in (library(flag[2:]) if flag.startswith("-l") else [flag])]
    if shared:
        runtime = pathlib.Path(find_cudart()).parent
        flags += ["-cudart", "shared", "-L", runtime, "-Xlinker", f"-rpath={runtime}"]
    headers = [word for place in (common, *toolkit_folders("include")) for word in ("-I", place)]
    compiler = [nvcc(), "-w", "-std=c++17", f"-arch={kit.options.arch}", "-include", HERE / "older_samples.h"]
    try:
        kit.build([*compiler, "-o", folder / wanted["name"], *code, *flags, *headers])
        if wanted["makes"]:
            kind = "-ptx" if wanted["makes"].endswith("ptx") else "-fatbin"
            kit.build([*compiler, kind, "-o", folder / wanted["makes"],
                       folder / wanted["kernel"]])
    except Failed as reason:  # sources of another toolkit's time
        raise Skip(f"does not compile: {' '.join(str(reason).split())[-200:]}") from None


def open_by_name(kit):
    """The native environment in which the toolkit's libraries are also found by name."""
    paths = [os.environ.get("LD_LIBRARY_PATH", ""), *map(str, toolkit_folders("lib"))]
    return kit.native(LD_LIBRARY_PATH=":".join(filter(None, paths)))


def of_sample(kit, number, wanted):
    folder = kit.work / f"sample{number}"
    if wanted["built"]:
        shutil.copytree(wanted["built"], folder)
    else:
        build(kit, wanted, folder, shared=number % 2)
    return Tried(kit, wanted, [f"./{wanted['program']}", *wanted["arguments"]], folder,
                 open_by_name(kit))


def samples(folder):
    """A sample may be there as sources, and built by one or more other toolkits."""
    for entry in SAMPLES:
        name = entry["name"]
        found = sorted(folder.glob(f"Built/*/{name}"))
        if (folder / "Samples" / name).is_dir():
            yield {**entry, "program": name, "built": None}
        for built in found:
            label = f"{name}, CUDA {built.parent.name}"
            yield {**entry, "name": label, "program": name, "built": built}


def of_script(kit, number, wanted):
    folder = kit.work / f"script{number}"
    folder.mkdir()
    words = [sys.executable]
    for word in wanted["command"]:
        path = next((place / word for place in (kit.options.programs / "Python", HERE)
                     if (place / word).is_file()), None)
        if word.endswith(".py") and not path:
            raise Skip(f"no {word}")
        words.append(path if word.endswith(".py") else word)
    return Tried(kit, wanted, words, folder, kit.native(**wanted["environment"]))


def of_tool(kit, number, wanted):
    """A tool on top of us, with a sample under it."""
    name, *more = wanted["command"]
    tool = shutil.which(name) or str(cuda_home() / "bin" / name)
    if not pathlib.Path(tool).exists():
        raise Skip(f"no {name}")
    base = next(entry for entry in SAMPLES if entry["name"] == wanted["sample"])
    folder = kit.work / f"tool{number}"
    build(kit, base, folder, shared=number % 2)
    loads = [wanted["loads"], kit.library] if wanted["loads"] else []
    return Tried(kit, wanted, [tool, *more, f"./{base['name']}"], folder, open_by_name(kit), loads)


def tried(kit, turns, make, number, wanted):
    """One program to its end: its record, or None where it cannot be run here."""
    try:
        program = make(kit, number, wanted)
        with turns[wanted.get("program")]:
            program.compare()
        return program
    except Skip as reason:
        kit.skip(wanted["name"], reason)
    except Failed as reason:
        kit.check(wanted["name"], False, reason)
    return None


def programs(kit):
    """All of them, as many at once as --jobs says; then their times together."""
    if kit.options.programs is None:
        raise Skip("name the folder of the programs: --programs")
    todo = [(make, number, wanted)
            for make, entries in ((of_script, SCRIPTS), (of_tool, TOOLS), (of_sample, [*samples(kit.options.programs)]))
            for number, wanted in enumerate(entries)
            if not kit.options.only or wanted["name"].split(",")[0] in kit.options.only]
    # Two builds of one sample take turns: they may share names of shared memory or sockets.
    turns = {wanted["program"]: threading.Lock() for _, _, wanted in todo if "program" in wanted}
    turns[None] = contextlib.nullcontext()
    with concurrent.futures.ThreadPoolExecutor(max(1, kit.options.jobs)) as pool:
        done = list(pool.map(lambda one: tried(kit, turns, *one), todo))
    times = [program.seconds for program in done if program and program.seconds]
    if not times:
        raise Skip("no program could be run")
    native, front = (sum(column) for column in zip(*times))
    kit.check("time of all together", front <= SLOWER * native,
              f"{len(times)} programs, {front:.1f} s in front, {native:.1f} s natively "
              f"(average of two): {front / native:.3f}")
