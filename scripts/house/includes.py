#!/usr/bin/env python3
"""includes.py ROOT BUILD [--figures]: arrows between rooms run one way, down, and no files form a circle.

An arrow is an include, a call (an undefined symbol of one object that another defines, or a name in an assertion) or
an import. The objects are those that BUILD/compile_commands.json names. A room may use every room below it. Calls count
too, so that a prototype that is declared anew in a low room hides no arrow. A circle is one of nouns (a source and its
header) that call each other; a source that includes a header for its types alone makes none. `--figures` prints what is
there, and judges nothing.
"""

import ast
import collections
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

# Room: the rooms and single headers directly below it. What stands below those is allowed as well.
ROOMS = {
    "stats/os": "",
    "stats/counters": "stats/os",
    "stats/events": "stats/counters",
    "stats/page": "stats/events",
    "stats/report": "stats/page",
    "stats/output": "stats/report",

    "allocator/base": "stats/os",
    "allocator/state": "allocator/base stats/events",
    "allocator/pool": "allocator/state",
    "allocator/reuse": "allocator/pool",
    "allocator/thread_cache": "allocator/reuse",
    "allocator/mapping": "allocator/reuse",
    "allocator/segment": "allocator/reuse",
    "allocator": "allocator/thread_cache allocator/mapping allocator/segment stats/report/snapshot.h",

    "interpose/process": "stats/output allocator/allocator.h allocator/share.h allocator/everywhere.h allocator/reuse/lane.h allocator/base/*.h",
    "interpose/resolve": "interpose/process",
    "interpose/call_sites": "interpose/resolve",
    "interpose/context": "interpose/resolve",
    "interpose/stream": "interpose/context",
    "interpose/sleep": "interpose/context",
    "interpose/memory": "interpose/stream interpose/call_sites",
    "interpose/lifecycle": "interpose/memory interpose/sleep",
    "interpose/exports": "interpose/lifecycle",

    "scripts/replay": "allocator stats/output",
    "scripts/page_tool": "allocator stats/output",

    "scripts/cachalot_command/common": "",
    "scripts/cachalot_command/reading": "scripts/cachalot_command/common",
    "scripts/cachalot_command/writing": "scripts/cachalot_command/reading",
    "scripts/cachalot_command/command": "scripts/cachalot_command/writing",
    "scripts/cachalot_command": "scripts/cachalot_command/command",
}
# Libraries: the folder that may include each.
FOREIGN = re.compile(r"cuda.*|jansson\.h|cmocka\.h|nv.*")
FOREIGN_ALLOWED = {"jansson.h": r"stats/(report|output)/|scripts/", "cuda.h": r"interpose/"}
# The core asks nothing of its surroundings: no environment, no files, no processes.
CORE_CALLS = re.compile(r"\b(getenv|secure_getenv|fopen|open|fprintf|printf|puts|exit|abort|system|fork)\s*\(")

ASSERTION = re.compile(r"\bassert\((.*?)\);", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
FOLDERS = ("allocator", "interpose", "stats", "scripts")
TARGETS = ("libcore.a.p/", "libcachalot.so.p/", "cachalot-page.p/", "cachalot-replay.p/")

Arrow = collections.namedtuple("Arrow", "source target what")


def room_of(path):
    return os.path.dirname(path)


def below(room, seen=None):
    """The rooms and headers that `room` may use, itself among them."""
    seen = set() if seen is None else seen
    if room not in seen:
        seen.add(room)
        for item in ROOMS.get(room, "").split():
            below(item, seen)
    return seen


def is_allowed(arrow, texts):
    """Whether the table has this arrow. A call into a room of which only headers are open is one of a name that these
    headers, or the headers that they include, mention."""
    allowed = below(room_of(arrow.source))
    target = room_of(arrow.target)
    if target in allowed or any(fnmatch.fnmatch(arrow.target, item) for item in allowed):
        return True
    if arrow.what == "include" or target.split("/")[0] != "allocator":
        return False
    headers = [path for path in texts if any(fnmatch.fnmatch(path, item) for item in allowed if item.endswith(".h"))]
    return any(re.search(rf"\b{arrow.what}\b", texts[path]) for path in closure(headers, texts))


def closure(headers, texts):
    found, left = set(), list(headers)
    while left:
        path = left.pop()
        if path in texts and path not in found:
            found.add(path)
            left += [name for kind, name in INCLUDE.findall(texts[path]) if kind == '"']
    return found


def includes(texts):
    for path, text in texts.items():
        for kind, name in INCLUDE.findall(text):
            if kind == '"' and name in texts:
                yield Arrow(path, name, "include")


def objects(root, build):
    """(object, source) of the library, its core and the two tools."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        if entry["output"].startswith(TARGETS):
            yield os.path.join(entry["directory"], entry["output"]), source


def calls(root, build, texts):
    sources = dict(objects(root, build))
    absent = [path for path in sources if not os.path.exists(path)]
    if absent:
        sys.exit(f"{absent[0]}: not built")
    listing = subprocess.run(["nm", "-A", "-P", *sources], capture_output=True, text=True, check=True).stdout
    definers, users = {}, []
    for line in listing.splitlines():
        path, _, rest = line.rpartition(": ")
        name, kind = rest.split()[:2]
        if kind in "Uwv":
            users.append((sources[path], name))
        elif kind.isupper():
            definers[name] = sources[path]
    for path, text in texts.items():
        users += [(path, name) for inside in ASSERTION.findall(text) for name in re.findall(r"\w+", inside)]
    for source, name in users:
        if name in definers and definers[name] != source:
            yield Arrow(source, definers[name], name)


def modules(texts):
    """Python modules of the command: dotted name, file."""
    found = {}
    for path in texts:
        if path.endswith(".py") and path.startswith("scripts/cachalot"):
            parts = path[len("scripts/"):-len(".py")].split("/")
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path, node):
    """Dotted names that an import, or a call of import_module with a text, may mean."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = path[len("scripts/"):].split("/")[:-node.level] if node.level else []
        base = ".".join(package + ([node.module] if node.module else []))
        return [base] + [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module",
                                                                                                "__import__"):
        return [argument.value for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
    return []


def imports(texts):
    names = modules(texts)
    for path in names.values():
        for node in ast.walk(ast.parse(texts[path])):
            for name in imported(path, node):
                if names.get(name, path) != path and not names[name].endswith("__init__.py"):
                    yield Arrow(path, names[name], "import")


def circles(arrows):
    """Sets of files that reach each other, the largest first."""
    graph = collections.defaultdict(set)
    for arrow in arrows:
        graph[arrow.source].add(arrow.target)

    def reach(start):
        seen, left = set(), [start]
        while left:
            for target in graph.get(left.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    left.append(target)
        return seen

    reached = {node: reach(node) for node in list(graph)}
    found = {frozenset(other for other in reached[node] if node in reached.get(other, ())) for node in graph}
    return sorted((sorted(circle) for circle in found if len(circle) > 1), key=len, reverse=True)


def house(root, build):
    """Texts of the house's files by path, and all arrows between them."""
    texts = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".S", ".py") and "house" not in path.parts:
                texts[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    arrows = set(includes(texts)) | set(calls(root, build, texts)) | set(imports(texts))
    return texts, sorted(arrows)


def nouns(arrows, with_includes=False):
    """The arrows between nouns that count for circles: calls, imports, and what headers include."""
    for source, target, what in arrows:
        a, b = os.path.splitext(source)[0], os.path.splitext(target)[0]
        if a != b and (what != "include" or source.endswith(".h") or with_includes):
            yield Arrow(a, b, what)


def upward(texts, arrows):
    return [arrow for arrow in arrows if room_of(arrow.source) in ROOMS and not is_allowed(arrow, texts)]


def describe(arrow):
    verb = {"include": "includes", "import": "imports"}.get(arrow.what, f"uses {arrow.what} of")
    room = room_of(arrow.source)
    items = ", ".join(sorted(below(room) - {room})) or "nothing else"
    return f"{arrow.source}: {verb} {arrow.target}; {room} may use {items}"


def surroundings(texts):
    """Files outside the rooms, libraries that a room may not include, and what the core asks of its surroundings."""
    for path, text in texts.items():
        if path.split("/")[0] != "scripts" and room_of(path) not in ROOMS:
            yield f"{path}: lies in no room of the table"
        for kind, name in INCLUDE.findall(text):
            if kind == "<" and FOREIGN.fullmatch(name) and not re.match(FOREIGN_ALLOWED.get(name, "$"), path):
                yield f"{path}: may not include <{name}>"
            if kind == '"' and name not in texts:
                yield f"{path}: may not include {name}, which lies in no room"
        if path.startswith("allocator/"):
            for call in CORE_CALLS.findall(text):
                yield f"{path}: the allocator may not call {call}()"


def check(texts, arrows):
    yield from surroundings(texts)
    yield from map(describe, upward(texts, arrows))
    yield from (f"a circle of {len(circle)} nouns: {', '.join(circle)}" for circle in circles(nouns(arrows)))


def figures(texts, arrows):
    up = {(arrow.source, arrow.target) for arrow in upward(texts, arrows)}
    found, wide = circles(nouns(arrows)), circles(nouns(arrows, True))
    has_rooms = any(room_of(path).startswith("allocator/") for path in texts)
    size = collections.Counter(os.path.splitext(path)[0] for path in texts)
    print(f"{'':10}{'files':>7}{'circles':>9}{'files in the largest':>22}{'with includes':>15}{'arrows up':>11}")
    for folder in FOLDERS:
        mine, more = ([sum(size[noun] for noun in circle) for circle in some if circle[0].startswith(folder + "/")]
                      for some in (found, wide))
        files = sum(path.startswith(folder + "/") for path in texts)
        arrows_up = sum(source.startswith(folder + "/") for source, _ in up) if has_rooms else "-"
        print(f"{folder:10}{files:7}{len(mine):9}{max(mine, default=0):22}{max(more, default=0):15}{arrows_up:>11}")


def main(root, build, *options):
    root, build = pathlib.Path(root).resolve(), pathlib.Path(build).resolve()
    texts, arrows = house(root, build)
    if "--figures" in options:
        figures(texts, arrows)
        return 0
    found = list(check(texts, arrows))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
