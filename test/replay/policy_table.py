#!/usr/bin/env python3
"""policy_table.py [--tool CACHALOT-REPLAY] [--sealed | --all] [--quick] [--write FILE] [ROW…]: what each number of the policy is worth, as a table.

A row is one change: a number halved or doubled (`keep/2`, `keep*2`), a rule switched off (RULES), numbers set by hand
(`keep=8,few_blocks=4`), or another cachalot-replay (its path). Without ROWs: all of them. Columns, for each set of traces: peak reserved /
peak requested (median, most), modelled driver time in ms (last four fifths, all), requests that fail on a device of 1.05 times the peak
allocated. A third of the traces is set aside (traces.is_set_aside): choose by the others, and judge once by those with --sealed."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys

import caches
import traces
import training
import workloads

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CACHALOT_BUILD", ROOT / "build"))
MIB, GIB, NEVER = 1 << 20, 1 << 30, 1 << 40
CAP = 1.05  # of the peak allocated: what a program must fit in

# Seeds and parameters that no rule and no test was chosen by.
MADE = {
    **{f"lm_{seed}": lambda seed=seed: training.any_language_model(seed) for seed in range(7000, 7024)},
    **{f"first_step_{seed}": lambda seed=seed: training.language_model(width=(1 + seed % 5) * MIB, layers=8 + seed, scale=1 + seed % 3, seed=7100 + seed)
       for seed in range(4)},
    **{f"features_{seed}": lambda seed=seed: workloads.features(600 + 100 * (seed % 4), 2, seed) for seed in range(7200, 7204)},
    **{f"results_{seed}": lambda seed=seed: workloads.results((1, 4, 8, 12)[seed % 4], (1, 2, 4)[seed % 3], 150 + 20 * (seed % 6), 800, seed)
       for seed in range(7300, 7306)},
    **{f"kept_prompts_{seed}": lambda seed=seed: workloads.kept_prompts((16, 24, 32)[seed % 3], (4 + 2 * (seed % 4)) * GIB, 80, seed)
       for seed in range(7400, 7406)},
    **{f"replaced_{seed}": lambda seed=seed: workloads.replaced(200, 2000, seed) for seed in range(7500, 7503)},
    **{f"sessions_{seed}": lambda seed=seed: workloads.sessions(6 + seed % 6, 20, 500, 4096, seed) for seed in range(7600, 7604)},
    **{f"items_{seed}": lambda seed=seed: caches.items((0.4, 1, 2, 4)[seed % 4] * MIB, 2 * GIB, 5000, seed) for seed in range(7700, 7706)},
    **{f"outputs_{seed}": lambda seed=seed: caches.outputs(seed=seed) for seed in range(7800, 7806)},
    **{f"tokens_{seed}": lambda seed=seed: caches.tokens((16, 24, 32)[seed % 3], seed=seed) for seed in range(7900, 7903)},
    **{f"chat_{seed}": lambda seed=seed: workloads.chat(seed) for seed in range(8000, 8003)},
    **{f"unet_{seed}": lambda seed=seed: workloads.unet(seed=seed) for seed in range(8100, 8102)},
    **{f"lstm_{seed}": lambda seed=seed: workloads.lstm(seed=seed) for seed in range(8200, 8202)},
}
# Random sizes under a cap that they fit natively: only their failures count.
STORM_CAP = 16 * GIB
STORMS = {f"storm_{seed}": lambda seed=seed: workloads.storm(6000, STORM_CAP, seed) for seed in range(8300, 8306)}

# Rules that numbers can switch off.
OFF = {
    "no share-no-chunk": {"noted_least": NEVER},
    "no small handles where blocks outlive their sizes": {"varied_most": 0},
    "first fit": {"fit_slots": 1},
    "best fit whatever is left over": {"fit_rest_part": 1},
    "small blocks up to 1 MiB apart": {"apart_most": MIB},
    "handles of 2 MiB": {"handle_most": 2 * MIB},
    "handles of up to 32 MiB": {"handle_most": 32 * MIB},
}
UNSEEN = {"thread caches", "transfer cache", "cache size", "lock", "pressure", "fences", "PyTorch's rules"}  # a replay of one thread has none
QUICK = 3  # each so manieth trace


class Replays:
    """Runs cachalot-replay, two at a time, and keeps what it said."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.known = sqlite3.connect(folder / "results.db", check_same_thread=False)
        self.known.execute("CREATE TABLE IF NOT EXISTS result (key TEXT PRIMARY KEY, value TEXT)")
        self.pool = concurrent.futures.ThreadPoolExecutor(2)

    def file(self, name, make):
        """The trace's text as a file."""
        path = self.folder / f"{name}.csv"
        if not path.exists():
            text = make()
            path.with_suffix(".new").write_bytes(text if isinstance(text, bytes) else text.encode())
            path.with_suffix(".new").rename(path)
        return path

    def run(self, tool, trace, arguments):
        """(peak requested, allocated, reserved, ms in the last four fifths, ms, requests that failed)"""
        key = "|".join((digest(tool), digest(trace), *arguments))
        row = self.known.execute("SELECT value FROM result WHERE key = ?", (key,)).fetchone()
        if row:
            return json.loads(row[0])
        done = subprocess.run([tool, *arguments, trace], capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"{trace} {' '.join(arguments)}: {done.stderr.decode()}")
        got = json.loads(done.stdout)
        stats = got["devices"][0]["memory_stats"]
        value = [stats[f"{what}.all.peak"] for what in ("requested_bytes", "allocated_bytes", "reserved_bytes")]
        value += [got["driver"]["steady_cost_ns"] / 1e6, got["driver"]["cost_ns"] / 1e6, got["totals"]["ooms"]]
        return key, value

    def all(self, jobs):
        """The results of `jobs` (tool, trace, arguments), in their order."""
        results = list(self.pool.map(lambda job: self.run(*job), jobs))
        new = [result for result in results if isinstance(result, tuple)]
        self.known.executemany("INSERT OR REPLACE INTO result VALUES (?, ?)", [(key, json.dumps(value)) for key, value in new])
        self.known.commit()
        return [result[1] if isinstance(result, tuple) else result for result in results]


DIGESTS = {}


def digest(path):
    if path not in DIGESTS:
        DIGESTS[path] = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]
    return DIGESTS[path]


def sets(which, quick):
    """(set's name, {trace's name: its maker}), of the traces that count now."""
    recorded = {name: kind for kind in (traces.CERTIFIED, traces.PROGRAMS) for name in traces.names(kind)}
    found = {
        "recorded": {name: lambda name=name, kind=kind: traces.read(kind, name) for name, kind in recorded.items()},
        "growing": {name: lambda name=name: traces.read(traces.GROWING, name) for name in traces.names(traces.GROWING)},
        "made": {name: lambda make=make: make().text() for name, make in MADE.items()},
        "storms": {name: lambda make=make: make().text() for name, make in STORMS.items()},
    }
    for name, made in found.items():
        chosen = {trace: make for trace, make in made.items() if which == "all" or traces.is_set_aside(trace) == (which == "sealed")}
        yield name, dict(list(chosen.items())[::QUICK if quick else 1])


def options(policy):
    return [part for name, value in policy.items() for part in ("--policy", f"{name}={value}")]


def measure(replays, files, tool, policy):
    """{set: (keeps of each, keeps of each 200 operations behind, steady ms, ms, late ms, failures)}"""
    jobs = []
    for name, paths in files.items():
        for path, allocated in paths:
            conf, capacity = options(policy), str(STORM_CAP if name == "storms" else int(CAP * allocated))
            jobs.append((tool, path, [*conf, "--capacity", capacity]))
            if name != "storms":
                jobs += [(tool, path, conf), (tool, path, [*conf, "--behind", "200"])]
    results = iter(replays.all(jobs))
    found = {}
    for name, paths in files.items():
        rows = [[next(results) for _ in range(1 if name == "storms" else 3)] for _ in paths]
        found[name] = {
            "fails": sum(row[0][5] for row in rows),
            "keeps": [row[1][2] / row[1][0] for row in rows if len(row) > 1],
            "late": [row[2][2] / row[2][0] for row in rows if len(row) > 1],
            "steady": sum(row[1][3] for row in rows if len(row) > 1),
            "ms": sum(row[1][4] for row in rows if len(row) > 1),
            "late ms": sum(row[2][4] for row in rows if len(row) > 1),
        }
    return found


def cells(found):
    for name, got in found.items():
        if name == "storms":
            yield str(got["fails"])
            continue
        yield f"{statistics.median(got['keeps']):.4f} / {max(got['keeps']):.3f}"
        yield f"{got['steady']:.0f} / {got['ms']:.0f}"
        yield f"{statistics.median(got['late']):.4f} / {max(got['late']):.3f}, {got['late ms']:.0f}"
        yield str(got["fails"])


def head(files):
    for name, paths in files.items():
        what = f"{name} ({len(paths)})"
        yield from [f"{what}: failures"] if name == "storms" else [f"{what}: keeps", "driver ms", "200 behind: keeps, ms", "fail"]


def numbers(tool):
    """{name: default} of those that a replay can see."""
    lines = [line.split("\t") for line in subprocess.run([tool, "--policies"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]]
    return {name: int(value) for name, value, _, family, *_ in lines if family not in UNSEEN and not name.startswith("price_")}


def changes(rows, known, tool):
    """(row's name, tool, policy)"""
    if not rows:
        rows = [f"{name}{change}" for name in known for change in ("/2", "*2")] + list(OFF)
    for row in rows:
        if row in OFF:
            yield row, tool, OFF[row]
        elif "=" in row:
            yield row, tool, dict(part.split("=") for part in row.split(","))
        elif row[-2:] in ("/2", "*2"):
            name = row[:-2]
            value = known[name] * 2 if row[-2:] == "*2" else known[name] // 2
            yield f"{name} {value}", tool, {name: min(value, 128) if name == "varied_sizes" else value}
        else:
            yield row, pathlib.Path(row), {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, default=BUILD / "cachalot-replay", help="the replay program (that of the build)")
    parser.add_argument("--cache", type=pathlib.Path, default=BUILD / "policy_table", help="folder that keeps results of earlier runs (in the build)")
    parser.add_argument("--quick", action="store_true", help=f"replay one of {QUICK} traces")
    parser.add_argument("--sealed", action="store_const", const="sealed", default="open", dest="which", help="replay the traces that are set aside")
    parser.add_argument("--all", action="store_const", const="all", dest="which", help="replay both sets")
    parser.add_argument("--write", type=argparse.FileType("w"), default=sys.stdout, metavar="FILE", help="write the table to FILE (policy_table.md is made this way)")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure (all)")
    arguments = parser.parse_args()
    replays = Replays(arguments.cache)
    paths = {name: [replays.file(trace, make) for trace, make in made.items()] for name, made in sets(arguments.which, arguments.quick)}
    rules = ["--conf", "expandable_segments:False,thread_cache:off"]
    allocated = {name: [got[1] for got in replays.all([(arguments.tool, path, rules) for path in found])] for name, found in paths.items()}
    files = {name: list(zip(paths[name], allocated[name])) for name in paths}
    if arguments.write is not sys.stdout:
        print("# What the numbers of the policy are worth\n\n`policy_table.py --quick --write test/replay/policy_table.md` writes this file; its head says what the columns are.\n", file=arguments.write)
    print("| change | " + " | ".join(head(files)) + " |\n|---|" + "---|" * len(list(head(files))), file=arguments.write)
    for name, tool, policy in [("as it is", arguments.tool, {}), *changes(arguments.rows, numbers(arguments.tool), arguments.tool)]:
        print(f"| {name} | " + " | ".join(cells(measure(replays, files, tool, policy))) + " |", flush=True, file=arguments.write)


if __name__ == "__main__":
    main()
