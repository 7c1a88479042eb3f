#!/usr/bin/env python3
"""submissions.py ROOT INCLUDE [CC…]: every function of CUDA's headers that takes a stream, an address of device memory or a
graph, or a struct that carries one, and every copy, set and launch, is in the table of hooks or, with a reason, in
not_submissions.txt. In all versions: what cuda.h declares, and no fewer than cudaTypedefs.h knows. The simulated driver has
every function that cuda.h declares, if only to refuse it."""

import pathlib
import re
import subprocess
import sys
import tempfile

HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
TYPEDEFS = ("cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h")
FOREIGN = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")  # stood in for by nothing: this is no compiler
MODES = ((), ("-D__CUDA_API_VERSION_INTERNAL",), ("-D__CUDA_API_PER_THREAD_DEFAULT_STREAM",))
BY_NAME = re.compile(r"cu(Memcpy|Memset|Launch)")
SEEDS = {"CUstream", "CUdeviceptr", "CUdeviceptr_v2", "CUgraph", "CUgraphExec", "CUgraphNode"}
ADDRESS = re.compile(r"(?<!const )\bvoid\s*\*\s*(p|ptr|addr\w*|\w*Address)\b")  # as in cuLogicalEndpointBindAddr
SIMULATED = re.compile(r"\b(?:FN|EARLY|OLD|TWIN)\((\w+)(?:,\s*(_pt[sd][sz]))?")
PROTOTYPE = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{}]*)\)\s*;")
POINTER = re.compile(r"\btypedef\s+CUresult\s*\(\s*\*\s*PFN_(cu[A-Z]\w*?)_v(\d+)(_pt[sd][sz])?\)\s*\(([^;{}]*)\)\s*;")
STRUCT = re.compile(r"\btypedef\s+struct\s+\w*\s*(\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})\s*(\w+)\s*;")
ALIAS = re.compile(r"\btypedef\s+(\w+)\s+(\w+)\s*;")


def preprocessed(cc, include, header):
    """The header's text in each mode, or none."""
    if not (include / header).is_file():
        return []
    with tempfile.TemporaryDirectory() as empty:
        for name in FOREIGN:
            path = pathlib.Path(empty, name)
            path.parent.mkdir(exist_ok=True)
            path.touch()
        return [subprocess.run([*cc, "-E", "-P", "-x", "c", *mode, "-I", empty, "-I", include, include / header],
                               check=True, capture_output=True, text=True).stdout for mode in MODES]


def carriers(text):
    """A pattern of SEEDS and the structs that have one inside."""
    names = set(SEEDS)
    while True:
        pattern = re.compile(r"\b(%s)\b" % "|".join(sorted(names)))
        more = {m[2] for m in STRUCT.finditer(text) if pattern.search(m[1])}
        more |= {m[2] for m in ALIAS.finditer(text) if m[1] in names}
        if more <= names:
            return pattern
        names |= more


def carries_work(pattern, name, parameters):
    return bool(BY_NAME.match(name) or pattern.search(parameters) or ADDRESS.search(parameters))


def public(symbol):
    """cuMemcpyHtoD_v2_ptds -> (cuMemcpyHtoD, is it a twin)."""
    base = re.sub(r"_pt[sd][sz]$", "", symbol)
    return re.sub(r"_v\d+$", "", base), base != symbol


def missing_versions(texts, pattern, symbols):
    """Versions and twins that cuGetProcAddress can hand out, of which no header declares the function."""
    known = {}
    for m in (m for text in texts for m in POINTER.finditer(text)):
        if carries_work(pattern, m[1], m[4]):
            known.setdefault((m[1], bool(m[3])), set()).add(int(m[2]))
    declared = {}
    for symbol in symbols:
        declared[public(symbol)] = declared.get(public(symbol), 0) + 1
    for (name, twin), versions in sorted(known.items()):
        if declared.get((name, twin), 0) < len(versions):
            yield (f"{name}: {len(versions)} versions {'for per-thread streams ' if twin else ''}in the typedefs, "
                   f"{declared.get((name, twin), 0)} declared")


def read_exceptions(path):
    """{name: the version of CUDA that it came with, or 0}"""
    exceptions = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            names, colon, reason = line.partition(": ")
            if not colon or not reason.strip():
                raise SystemExit(f"{path}: no reason: {line}")
            for name in names.split():
                name, _, since = name.partition("@")
                exceptions[name] = int(since or 0)
    return exceptions


def not_simulated(root, declared):
    """Functions that a program built for this toolkit would not find in the simulated driver."""
    texts = [path.read_text(encoding="utf-8") for path in (root / "test/sim").glob("calls_*.def")]
    have = {name for text in texts for m in SIMULATED.finditer(text) for name in (m[1], m[1] + (m[2] or ""))}
    yield from (f"{name} is not in the simulated driver: add it to test/sim/calls_old.def" for name in sorted(declared - have))


def problems(root, include, cc):
    hooks = (root / "interpose/resolve/hooks.h").read_text(encoding="utf-8")
    table = set(re.findall(r"\bX\((cu[A-Z]\w*)\)", hooks[hooks.index("HOOK_LIST"):hooks.index("CALL_LIST")]))
    exceptions = read_exceptions(root / "scripts/house/not_submissions.txt")
    version = int(re.search(r"#define\s+CUDA_VERSION\s+(\d+)", (include / "cuda.h").read_text(encoding="utf-8"))[1])
    texts = [text for header in HEADERS for text in preprocessed(cc, include, header)]
    declared = {m[1]: m[2] for text in texts for m in PROTOTYPE.finditer(text)}
    pattern = carriers(texts[0])
    work = sorted(name for name, parameters in declared.items() if carries_work(pattern, name, parameters))
    for name in work:
        if name not in table and name not in exceptions:
            yield f"{name} takes a stream, an address or a graph, or is work by its name, and is in neither list"
    for name, since in sorted(exceptions.items()):
        if name in table:
            yield f"{name} is an exception, and in the table"
        if name not in declared and since <= version:
            yield f"{name} is an exception, and not declared"
    pointers = [text for header in TYPEDEFS for text in preprocessed(cc, include, header)]
    yield from missing_versions(pointers, pattern, declared)
    yield from not_simulated(root, {m[1] for text in preprocessed(cc, include, "cuda.h") for m in PROTOTYPE.finditer(text)})
    if len(work) < 300:
        yield f"only {len(work)} functions found in the headers: this check is blind"
    print(f"CUDA {version}: {len(work)} functions that take a stream, an address or a graph, or are work by name, "
          f"{len(table)} hooks, {len(exceptions)} exceptions")


def main(root, include, *cc):
    found = list(problems(pathlib.Path(root), pathlib.Path(include), cc or ("cc",)))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
