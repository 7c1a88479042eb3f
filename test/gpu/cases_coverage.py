"""Did a submission go past us? What CUPTI says that the GPU ran, against what our report says that we saw."""

import collections
import glob
import json
import os
import pathlib
import re
import shutil
import sys

from cases_reuse import gpus
from kit import HERE, Failed, Figures, Skip, cuda_home

CLASSES = ("kernels", "copies", "sets")
TORCH = ("cublas", "cudnn", "cufft", "cusolver", "cusparse", "flash", "efficient", "cudnn_attention",
         "lstm", "copies", "triton", "graphs")
KIND_OF = (("GraphLaunch", "graphs"), ("HostFunc", "host_functions"), ("Launch", "kernels"),
           ("emset", "sets"), ("emcpy", "copies"))
LAUNCHES = re.compile(r"^(?:cuda|cu)(?:Launch|GraphLaunch|Mem(?:cpy|set)(?!Node))")


class Trace:
    """What CUPTI wrote of one process. `ran`: class → correlations outside of graphs."""

    def __init__(self, path):
        self.ran, self.in_graphs = {name: {} for name in CLASSES}, collections.Counter()
        self.errors, self.programmatic = [], collections.Counter()
        self.api, calls = {}, []
        for line in pathlib.Path(path).read_text(errors="replace").splitlines():
            self.take(line, calls)
        self.calls, self.names = collections.Counter(), collections.Counter()
        self.exact = collections.Counter()  # of the driver's own: what we must have seen
        for domain, name, code in leaves(calls):
            self.names[f"{domain}:{name}"] += 1
            kind = next((kind for part, kind in KIND_OF if part in name), None)
            if kind and code == 0:
                self.calls[kind] += 1
                self.exact[kind] += domain == "driver"

    def take(self, line, calls):
        kind, _, rest = line.partition(" ")
        if kind == "G":
            group, correlation, graph, name = rest.split(" ", 3)
            if graph == "0":
                self.ran[group].setdefault(int(correlation), name)
            else:
                self.in_graphs[group] += 1
        elif kind == "A":
            domain, thread, begin, end, correlation, code, name = rest.split(" ", 6)
            self.api.setdefault(int(correlation), f"{domain}:{name}")
            if domain != "internal" and LAUNCHES.match(name):
                calls.append((domain, int(thread), int(begin), int(end), int(code), name))
        elif kind == "P":
            domain, _, name = rest.partition(" ")
            self.programmatic[domain] += 1
            self.programmatic[f"{domain} {name[:60]}"] += 1
        elif kind == "E":
            self.errors.append(rest)

    def unknown(self):
        """Names of what ran though no call was recorded that brought it."""
        return collections.Counter(name for group in CLASSES for correlation, name in
                                   self.ran[group].items() if correlation not in self.api)


def leaves(calls):
    """Calls without those of the runtime that made one of the driver's: (domain, name, code)."""
    threads = collections.defaultdict(list)
    for call in calls:
        threads[call[1]].append(call)
    for found in threads.values():
        found.sort(key=lambda call: (call[2], -call[3]))
        for number, (domain, _, begin, end, code, name) in enumerate(found):
            after = found[number + 1] if number + 1 < len(found) else None
            if domain == "runtime" and after and after[0] == "driver" and after[2] <= end:
                continue
            yield domain, name, code


def find_cupti():
    """(folder of libcupti, its file name, folder of its headers or None)."""
    places, headers = [], [cuda_home() / "include", cuda_home() / "extras/CUPTI/include"]
    for folder in sys.path:
        places += glob.glob(os.path.join(folder, "nvidia", "*", "lib"))
        headers += map(pathlib.Path, glob.glob(os.path.join(folder, "nvidia", "*", "include")))
    places += [cuda_home() / "lib64", cuda_home() / "lib", cuda_home() / "extras/CUPTI/lib64"]
    for place in map(pathlib.Path, places):
        found = sorted(place.glob("libcupti.so.[0-9]*"))
        if found:
            include = next((folder for folder in headers if (folder / "cupti.h").exists()), None)
            return place, found[0].name, include
    raise Skip("no libcupti.so")


def with_cupti(kit, name, source, *more):
    """Built of a C file and CUPTI, or the build folder's and where libcupti is."""
    path = kit.work / name
    built = kit.options.build / name
    folder, library, include = find_cupti()
    try:
        if include is None:
            raise Failed("no cupti.h")
        kit.build(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-o", path, HERE / source, f"-I{include}",
                   f"-I{cuda_home() / 'include'}", f"-L{folder}", f"-l:{library}", f"-Wl,-rpath,{folder}", *more])
    except (Skip, Failed) as reason:
        if not built.is_file():
            raise
        kit.note("CUPTI", f"{reason}: taken from the build folder")
        shutil.copy(built, path)
        return path, folder
    return path, None


def place_cupti(environment, folder):
    """The environment that finds libcupti there, where the program itself does not say."""
    if not folder:
        return environment
    paths = [str(folder), environment.get("LD_LIBRARY_PATH", "")]
    return {**environment, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}


def compare(kit, name, trace, report):
    """One process: a row for what CUPTI saw and what we did."""
    ours = Figures(report).report["coverage"].get("submissions")
    if ours is None:
        raise Failed("the report has no coverage.submissions")
    unknown, said, past = trace.unknown(), [], []
    for group in CLASSES:
        ran, calls = len(trace.ran[group]), trace.calls[group]
        missing = max(0, ran - ours[group], trace.exact[group] - ours[group])
        said.append(f"{group} {ran} ran (+{trace.in_graphs[group]} in graphs), {calls} calls "
                    f"({trace.exact[group]} the driver's), ours {ours[group]}, "
                    f"difference {ours[group] - (trace.exact[group] or ran)}")
        if missing:
            past.append(f"{missing} {group}")
    for group in ("graphs", "host_functions"):
        said.append(f"{group} {trace.calls[group]} calls, ours {ours[group]}")
        if trace.calls[group] > ours[group]:  # a call of the runtime's is one of the driver's
            past.append(f"{trace.calls[group] - ours[group]} {group}")
    if past:
        said.append("PAST US: " + ", ".join(past) + "; calls " + json.dumps(trace.names.most_common(12)))
    if unknown:
        said.append(f"{sum(unknown.values())} without a call: {unknown.most_common(8)}")
    kit.check(name, not past and any(trace.ran.values()), "; ".join(said))
    launches = [(key, count) for key, count in trace.programmatic.most_common(8) if " " in key]
    kit.note(f"{name}: programmatic launches", f"driver {trace.programmatic['driver']}, runtime "
             f"{trace.programmatic['runtime']} of {trace.calls['kernels']}; {launches}")
    if trace.errors:
        kit.note(f"{name}: CUPTI", "; ".join(trace.errors[:5]))


def covered(kit, name, command, environment, library, folder):
    """Runs it in front and under CUPTI; a row for each of its processes that ran something."""
    place = kit.work / f"cupti.{name.replace(' ', '-').replace('/', '-')}"
    environment = kit.front(environment)
    environment.update(CUDA_INJECTION64_PATH=str(library), CACHALOT_CUPTI=str(place))
    run = kit.run(command, place_cupti(environment, folder), timeout=170)
    if run.code != 0:
        raise Failed(run.complaint())
    traces = sorted(kit.work.glob(f"{place.name}.*"))
    rows = 0
    for path in traces:
        report = kit.report_path(path.suffix[1:])
        trace = Trace(path)
        if trace.errors and not any(trace.ran.values()):
            kit.note(f"{name}: CUPTI", "; ".join(trace.errors[:5]))
        if report.exists() and any(trace.ran.values()):
            compare(kit, f"{name}" + (f", process {rows}" if rows else ""), trace, report)
            rows += 1
    if rows == 0:
        raise Failed(f"CUPTI saw nothing: {len(traces)} traces, {' | '.join(run.lines[-2:])}")


def coverage(kit):
    """Every library of the list, each in a process of its own."""
    library, folder = with_cupti(kit, "libcupti_count.so", "cupti_count.c", "-shared", "-fPIC", "-lpthread")
    platform = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    cache = kit.work / "inductor"
    compiling = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(cache),
                 "TRITON_CACHE_DIR": str(cache / "triton")}
    works = [(f"torch {name}", kit.script("cover_torch.py", name),
              kit.native(**compiling) if name in ("triton", "graphs") else kit.no_cache())
             for name in TORCH]
    works += [("CuPy", kit.script("cupy_loop.py"), kit.native()),
              ("JAX", kit.script("jax_loop.py"), kit.native(**platform))]
    if gpus() > 1:
        works += [(f"NCCL, {way}", kit.script("cover_nccl.py", way), kit.no_cache())
                  for way in ("processes", "threads")]
    else:
        kit.skip("NCCL", "needs two GPUs")

    def one(name, command, environment):
        try:
            covered(kit, name, command, environment, library, folder)
        except Skip as reason:
            kit.skip(name, reason)
        except Failed as reason:
            kit.check(name, False, reason)

    kit.together(*(lambda w=work: one(*w) for work in works))
