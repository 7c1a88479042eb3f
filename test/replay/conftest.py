"""What the tests of replay and tune share. CACHALOT_BUILD: where the programs are."""

import json
import os
import pathlib
import subprocess
import sys

import jsonschema
import traces

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CACHALOT_BUILD", ROOT / "build")).absolute()
TOOL = BUILD / "cachalot-replay"
SCHEMA = json.loads((ROOT / "stats/report/report.schema.json").read_text())
sys.path[:0] = [str(ROOT / "test/unit"), str(ROOT / "test")]
import examples  # noqa: E402, F401  (settings)
from measure import peaks  # noqa: E402, F401  (for the tests)


def matches(value, *place):
    """Is `value` what the report's schema says of that property?"""
    schema = SCHEMA
    for key in place:
        schema = schema[key]
    jsonschema.validate(value, {**schema, "$defs": SCHEMA["$defs"]}, cls=jsonschema.Draft202012Validator)


def command(*arguments, library=BUILD / "libcachalot.so", **options):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CACHALOT_")}
    environment["CACHALOT_LIBRARY"] = str(library)
    return subprocess.run([sys.executable, str(ROOT / "scripts/cachalot"), *map(str, arguments)], env=environment,
                          capture_output=True, text=True, check=False, **{"timeout": 120, **options})


def replay(path, *arguments):
    """The document of a replay that must work; of ordinary segments, if nothing else is said."""
    arguments = list(arguments)
    if "--conf" not in arguments:
        arguments += ["--conf", ""]
    conf = arguments.index("--conf") + 1
    if "expandable_segments" not in arguments[conf]:
        arguments[conf] = ",".join(filter(None, ["expandable_segments:False", arguments[conf]]))
    done = command("replay", path, "--format", "json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


RMM = "Thread,Time,Action,Pointer,Size,Stream\n"
OWN = "op,id,bytes,stream\n"


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def trace_of(name):
    """The file of a certified trace."""
    return traces.path_of(traces.CERTIFIED, name)
