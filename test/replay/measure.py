"""What a trace gives in a replay: cachalot-replay is started directly, with the trace's text as its input."""

import json
import os
import subprocess
from dataclasses import dataclass

MAPPED, RULES, NATIVE = "expandable_segments:True", "expandable_segments:False,thread_cache:off", "cache:off"  # RULES: PyTorch's
BEHIND = (50, 200, 10**6)  # operations that the device is behind the program, as on a GPU
ENOUGH = 1.05  # a device of so many times the peak allocated is enough


def run(tool, text, conf, behind=0, capacity=None):
    """The document of one replay of `text`, on a device of `capacity` bytes."""
    arguments = ["--conf", conf, "--behind", str(behind)] + (["--capacity", str(int(capacity))] if capacity else [])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CACHALOT_")}
    text = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run([tool, *arguments, "-"], input=text, env=environment, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def peaks(document):
    """Bytes requested, allocated and reserved, each at its peak."""
    stats = document["devices"][0]["memory_stats"]
    return tuple(stats[f"{name}.all.peak"] for name in ("requested_bytes", "allocated_bytes", "reserved_bytes"))


def kept(document):
    """Peak reserved / peak requested."""
    requested, _, reserved = peaks(document)
    return reserved / requested


def ooms(document):
    """Requests that failed."""
    return document["totals"]["ooms"]


@dataclass
class Figures:
    """Of one trace. By options: MAPPED, NATIVE, RULES."""

    keeps: float  # in mapped memory
    late: dict  # the same, by operations that the device is behind
    by_rules: float
    steady_ms: float  # driver calls in the last four fifths of the trace, in mapped memory
    ms: float  # all of them
    failed: dict  # requests on a device that is just enough, by options


def figures(tool, text):
    plain, rules = run(tool, text, MAPPED), run(tool, text, RULES)
    capacity = ENOUGH * peaks(rules)[1]
    return Figures(keeps=kept(plain), late={behind: kept(run(tool, text, MAPPED, behind)) for behind in BEHIND}, by_rules=kept(rules),
                   steady_ms=plain["driver"]["steady_cost_ns"] / 1e6, ms=plain["driver"]["cost_ns"] / 1e6,
                   failed={conf: ooms(run(tool, text, conf, capacity=capacity)) for conf in (MAPPED, NATIVE, RULES)})
