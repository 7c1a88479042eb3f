"""cachalot help TOPIC: reference pages, made from the tables that the code uses itself."""

import json
import os
import textwrap

from cachalot_command.common.exit_codes import EXIT_CODES
from cachalot_command.common.tools import HERE, ROOT, Failure, first_file, tool
from cachalot_command.common.variables import VARIABLES

WIDTH, INDENT = 79, 6

CONF = """\
Options of the cache: `cachalot run --conf KEY:VALUE,KEY:VALUE`, or the same in
CACHALOT_CONF. Where that is unset, keys with a * are taken from the first of
PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and PYTORCH_ALLOC_CONF that is
set, as in PyTorch 2.15, and read as there (128.5 is 128, -1 is unlimited).
"""
REPORT = """\
Fields of a report. [bytes], [ns] and the like are units; `[]` is a list, of
which the fields of one element follow. null: unknown.
"""
ENVIRONMENT = """\
Environment variables. Except for the last two, the library reads them in the
program; `cachalot run` has options for some.
"""
EXIT = """\
Exit codes of all commands; `cachalot COMMAND --help` says which one has. That
of `cachalot run` is the program's own.
"""
FAULTS = """\
Faults of a program, looked for by options of `cachalot run`. Each is off by
default. With --fail-alloc there are no thread caches, and a hit costs more.

--fail-alloc RULE  refuses allocations, as if there were no memory: of device,
      pinned, pool, vmm, managed and array memory, and nodes of graphs. The call
      returns out of memory; the report's oom_events name it. Each process
      counts its own. While a stream is captured nothing counts.
        N          the N-th; 0: counts them
        every:N    every N-th
        p:1%:SEED  each with that chance, the same ones for the same SEED
        kind:KIND  only memory of that kind counts; more than one may be given
        site:TEXT  only call sites count that have TEXT in a Python line, or in
                   FILE+0xOFFSET of a frame (CACHALOT_SITES=1)
      A comma joins them: kind:pinned,3. A kind or a site alone refuses all.
--fail-alloc sweep  runs the program once for each allocation, with that one
      refused, and prints how each run ended: survived, other exit code,
      crashed, hung, other output. Words behind it, after commas:
        jobs=N, deadline=SECONDS, most=N   runs at once, time of one (default:
                   ten times the first run's, at least 10 s), most runs (1000)
        kind:KIND, site:TEXT   only such allocations
      Exit code 1: a run crashed, hung, or ended well with another output.
--fit SIZE  runs the program as on a device of that size (24GiB): allocations,
      device properties and cudaMemGetInfo agree. Contexts, modules and other
      processes count as they are. Says whether it fits, with how much
      to spare at least, or what would have served it. NVML and nvidia-smi show
      the real device; managed memory and memory of graphs are not held to it.
--fit search  finds the least size: a recorded run is replayed on smaller and
      smaller devices, and real runs confirm it. For one process on one device.
      Exit code: the program's; where that is 0: 1 does not fit, 3 no report.
--uninitialised  runs the program with zeros, NaN and random words in the memory
      that it gets (option fill), and says whether its exit code or its output
      depends on memory that it never wrote; by halving, on which allocation.
      Exit code: 0 no, 1 yes, 3 not known.
--conf bounds:warn  names copies and sets that run past the end of their block,
      or begin in memory of the cache that was freed, in the report's faults;
      bounds:refuse answers them with invalid value. One, two and three
      dimensions, batches and peers; batches in three dimensions and nodes of
      graphs are not looked at, nor is what a kernel does.
--conf slack:check  finds writes behind the request, up to the end of the block,
      by whomever: when the block is freed, at the exit, and for each report.
      Double, interior and foreign frees are faults without an option. Gate:
      cachalot check --max-faults 0.
example: cachalot run --fit 24GiB python3 train.py
example: cachalot run --fail-alloc sweep,kind:pinned,jobs=4 ./program
"""


def entry(name, text, column=INDENT, depth=0):
    """Lines of a name and its text, beside each other or one below the other."""
    head, indent = "  " * (depth + 1) + name, " " * column
    if len(head) + 2 > column:
        return [head, *textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)]
    return textwrap.wrap(text, WIDTH, initial_indent=head.ljust(column), subsequent_indent=indent, break_on_hyphens=False)


def option_rows(text):
    """(name, default, values, also PyTorch's, meaning) of each option, from the output of `cachalot-page options`."""
    rows = [line.split("\t") for line in text.splitlines()]
    return [(name, default, values, bool(pytorch), meaning) for name, default, values, pytorch, meaning in rows]


def options_text():
    listed = tool("options")
    if listed.returncode:
        raise Failure(125, f"cachalot-page cannot list the options: {listed.stderr.strip()}")
    return listed.stdout


def conf(listed=None):
    """The page of options. `listed`: the output of `cachalot-page options`, if the caller has it."""
    lines = [CONF]
    for name, default, values, is_pytorch, meaning in option_rows(options_text() if listed is None else listed):
        text = f"{values[0].upper()}{values[1:]}. {meaning}"
        lines += [*entry(f"{name}{'*' * is_pytorch} (default: {default})", text), ""]
    return "\n".join(lines[:-1])


def schema():
    """The schema of reports: beside the command, or in the source tree."""
    path = first_file([os.path.join(HERE, "report.schema.json"), os.path.join(ROOT, "stats/report/report.schema.json")])
    if path is None:
        raise Failure(125, f"report.schema.json was not found beside {HERE}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Fields:
    """The properties of the schema in order: (path, depth, name, description)."""

    def __init__(self, root):
        self.root, self.rows, self.seen = root, [], {}
        self.add_all(root, "", 0)

    def resolved(self, value):
        """The definition that a `$ref` leads to, together with what stands beside the `$ref`."""
        while "$ref" in value:
            found = self.root
            for key in value["$ref"].removeprefix("#/").split("/"):
                found = found[key]
            value = {**found, **{key: more for key, more in value.items() if key != "$ref"}}
        return value

    def add_all(self, value, path, depth):
        for name, field in value.get("properties", {}).items():
            if "/properties/" not in field.get("$ref", ""):  # listed where the `$ref` leads
                self.add(name, field, f"{path}.{name}".lstrip("."), depth)

    def add(self, name, field, path, depth):
        whole = self.resolved(field)
        inner, mark, kind = whole, "", field.get("$ref")
        if "items" in whole:
            inner, mark, kind = self.resolved(whole["items"]), "[]", whole["items"].get("$ref")
        elif isinstance(whole.get("additionalProperties"), dict):
            inner, name = whole["additionalProperties"], f"{name}.KEY"
        text, before = whole.get("description", ""), self.seen.get(kind)
        if before and "properties" in inner:
            text += f"; fields as of {before}"
        self.rows.append((path, depth, name + mark, text))
        if "properties" in inner and not before:
            self.seen[kind] = name
            self.seen.pop(None, None)
            self.add_all(inner, path, depth + 1)


def report(words=()):
    """The page of fields: all, or those whose path begins with one of the words."""
    rows = [row for row in Fields(schema()).rows if not words or row[0].startswith(tuple(words))]
    if not rows:
        raise Failure(2, f"no field of a report begins with {' or '.join(words)}")
    lines = [REPORT]
    for _, depth, name, text in rows:
        lines += entry(name, text, 30 + 2 * max(depth - 1, 0), depth)
    return "\n".join(lines)


def environment():
    lines = [ENVIRONMENT]
    for name, text in VARIABLES.items():
        lines += entry(name, text, 24) if text else []
    return "\n".join(lines)


def exit_codes():
    lines = [EXIT]
    for code, text in EXIT_CODES.items():
        lines += entry(f"{code:>3}", text, 8)
    return "\n".join(lines)


def faults():
    return FAULTS.rstrip("\n")


PAGES = {"conf": conf, "report": report, "environment": environment, "exit": exit_codes, "faults": faults}


def main(arguments):
    """cachalot help TOPIC; of `report` only what begins with one of the words behind it, where there are any."""
    topic, *words = arguments
    if words and topic != "report":
        raise Failure(2, f"`{words[0]}` is not expected: `cachalot help {topic}` prints all there is")
    print(report(words) if words else PAGES[topic]())
    return 0
