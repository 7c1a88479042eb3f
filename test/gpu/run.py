#!/usr/bin/env python3
"""Programs on a real GPU, natively and with us in front. Frameworks only in child scripts.

usage: CACHALOT_BUILD=build test/gpu/run.py [OPTIONS] [CASE…]

Prints a table; exit code 0 all well, 1 a difference, 2 usage. What is missing is skipped and said.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import cases_coverage  # noqa: E402
import cases_footprint  # noqa: E402
import cases_ipc  # noqa: E402
import cases_irregular  # noqa: E402
import cases_programs  # noqa: E402
import cases_rates  # noqa: E402
import cases_recording  # noqa: E402
import cases_reuse  # noqa: E402
import cases_seeds  # noqa: E402
import cases_timing  # noqa: E402
import cases_tools  # noqa: E402
import cases_unchanged  # noqa: E402
import cases_work  # noqa: E402
import kit  # noqa: E402

CASES = {
    "door-runtime": cases_programs.door_runtime,
    "door-driver": cases_programs.door_driver,
    "ctypes": cases_programs.counted,
    "answers": cases_programs.answers,
    "killed": cases_programs.killed,
    "storm": cases_programs.storm,
    "recording": cases_recording.recording,
    "recording-cost": cases_recording.recording_cost,
    "sanitizer": cases_programs.sanitized,
    "nsight": cases_tools.nsight,
    "called-back": cases_tools.called_back,
    "exchange": cases_tools.exchange,
    "seed1": cases_seeds.seed1,
    "seed2": cases_seeds.seed2,
    "seed3": cases_seeds.seed3,
    "seed4a": cases_seeds.seed4a,
    "seed4b": cases_seeds.seed4b,
    "seed-programs": cases_seeds.seed_programs,
    "seed5": cases_seeds.seed5,
    "seed7": cases_seeds.seed7,
    "saving": cases_seeds.saving,
    "training": cases_work.training,
    "graphs": cases_work.graphs,
    "cupy": cases_work.cupy,
    "jax": cases_work.jax,
    "limit": cases_work.limit,
    "handles": cases_work.handles,
    "signal": cases_work.signals,
    "killed-training": cases_work.killed_training,
    "timing": cases_timing.timing,
    "pairs": cases_timing.pairs,
    "reserved": cases_timing.reserved,
    "facts": cases_reuse.facts,
    "hunter": cases_reuse.hunter,
    "hang": cases_reuse.hang,
    "coverage": cases_coverage.coverage,
    "launch-rate": cases_rates.launch_rate,
    "streams16": cases_rates.streams16,
    "programs": cases_unchanged.programs,
    "ipc": cases_ipc.programs,
    "ipc-torch": cases_ipc.torch,
    "ipc-nccl": cases_ipc.nccl,
    "ipc-facts": cases_ipc.facts,
    "footprint": cases_footprint.footprint,
    "irregular": cases_irregular.irregular,
}
LONG = {"facts", "storm", "pairs", "reserved", "hunter", "hang", "coverage", "launch-rate", "streams16",
        "programs", "ipc-nccl", "ipc-facts", "footprint", "irregular"}  # only where they are named
ALONE = {"timing", "recording-cost", *LONG} - {"coverage", "reserved"}  # nothing else may run meanwhile


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Runs programs on a real GPU, natively and with Cachalot, and compares them.",
        epilog="cases: " + " ".join(CASES))
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all but " + " ".join(sorted(LONG)))
    parser.add_argument("--build", type=pathlib.Path,
                        default=os.environ.get("CACHALOT_BUILD", kit.ROOT / "build"),
                        help="folder of libcachalot.so and cachalot-page (CACHALOT_BUILD)")
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT"),
                        help="folder for the record gpu.json (OUT)")
    parser.add_argument("--jobs", type=int, default=4, help="programs that run at once (4)")
    parser.add_argument("--except", dest="without", action="append", default=[], metavar="CASE", help="leave CASE out")
    parser.add_argument("--torch-work", default=os.environ.get("CACHALOT_TORCH_WORK"),
                        help="path of torch_work.py, for `timing` (CACHALOT_TORCH_WORK)")
    parser.add_argument("--work", nargs="+", default=["gptfix"], metavar="NAME",
                        help="workloads of torch_work.py or torch_more.py: decode unet-train unet-sample lstm "
                        "(gptfix)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of `timing`, pairs of `footprint` (3); runs without any cache take one")
    parser.add_argument("--steps", type=int, default=12, help="steps in a round of `pairs` (12)")
    parser.add_argument("--seconds", type=int, default=20, help="length of a run of `hunter` (20)")
    parser.add_argument("--seed", type=int, default=1, help="first random number of `hunter` (1)")
    parser.add_argument("--styles", default="aba", help="styles of `hunter`, one run for each (aba)")
    parser.add_argument("--modes", nargs="+", default=["async", "fence", "strict"], metavar="MODE",
                        help="values of free_mode for `hunter` and `hang` (async fence strict)")
    parser.add_argument("--conf", default="", help="CACHALOT_CONF of every run with Cachalot; what the case sets comes after it")
    parser.add_argument("--own-conf", default="", help="PYTORCH_CUDA_ALLOC_CONF for runs with PyTorch's own cache, in `timing` and `pairs`")
    parser.add_argument("--every", type=int, default=4, help="`hang` tries each N-th order of calls (4)")
    parser.add_argument("--unsafe", nargs="+", default=[], metavar="LIBRARY",
                        help="libraries with a planted bug, which `hunter` must find")
    parser.add_argument("--arch", default="sm_90", help="what nvcc compiles for (sm_90)")
    parser.add_argument("--programs", type=pathlib.Path, metavar="DIR",
                        help="folder of the sources of `programs`: it has Samples/NAME, Common and Python")
    parser.add_argument("--ucx", type=pathlib.Path, metavar="DIR",
                        help="folder of UCX for `exchange`: it has include and lib, as PyPI's libucx-cu12")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts of `programs` and `irregular`, sets of `launch-rate` (all)")
    options = parser.parse_args(arguments)
    options.programs = options.programs and options.programs.resolve()
    options.build = pathlib.Path(options.build).resolve()
    unknown = [name for name in options.cases + options.without if name not in CASES]
    if unknown:
        parser.error(f"no case {' '.join(unknown)}; there are {' '.join(CASES)}")
    for name in ("libcachalot.so", "cachalot-page"):
        if not (options.build / name).is_file():
            parser.error(f"no {name} in {options.build}; set CACHALOT_BUILD")
    options.cases = [name for name in options.cases or CASES if name not in options.without
                     and (options.cases or name not in LONG)]
    return options


def run_case(options, name):
    """One case to its end, whatever comes: its record."""
    started = time.monotonic()
    place = kit.Kit(options, name)
    try:
        CASES[name](place)
    except kit.Skip as reason:
        place.skip(name, reason)
    except kit.Failed as reason:
        place.check(name, False, reason)
    except Exception as error:  # a case must not end the others
        place.check(name, False, f"{type(error).__name__}: {error}")
    finally:
        place.close()
    seconds = round(time.monotonic() - started, 1)
    print(f"{name}: {seconds} s", file=sys.stderr, flush=True)
    return {"case": name, "seconds": seconds, "rows": place.rows}


def run_all(options):
    """Records of all cases in order; those that need the machine for themselves at the end."""
    kit.slots = threading.Semaphore(max(1, options.jobs))
    beside = [name for name in options.cases if name not in ALONE]
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        records = list(pool.map(lambda name: run_case(options, name), beside))
    return records + [run_case(options, name) for name in options.cases if name in ALONE]


def table(records):
    """Aligned: case, what was compared, result, figures."""
    rows = [("case", "what was compared", "result", "figures")]
    rows += [(record["case"], row["what"], row["result"], " ".join(row["figures"].split()))
             for record in records for row in record["rows"]]
    wide = [max(len(row[i]) for row in rows) for i in range(3)]
    return [f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c:<{wide[2]}}  {d}".rstrip() for a, b, c, d in rows]


def machine():
    """What this ran on."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    gpu = None
    if shutil.which(query[0]):
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        gpu = done.stdout.strip() or None
    return {"gpu": gpu, "system": " ".join(os.uname()[:3]), "python": sys.version.split()[0],
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def main(arguments):
    options = parse(arguments)
    started = time.monotonic()
    records = run_all(options)
    seconds = round(time.monotonic() - started, 1)
    results = [row["result"] for record in records for row in record["rows"]]
    counts = {result: results.count(result) for result in ("ok", "FAILED", "skip", "note")}
    empty = [record["case"] for record in records if not record["rows"]]
    print("\n".join(table(records)))
    print(f"\n{counts['ok']} ok, {counts['FAILED']} failed, {counts['skip']} skipped in {seconds} s"
          + (f"; nothing compared in {' '.join(empty)}" if empty else ""))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        record = {"machine": machine(), "seconds": seconds, "counts": counts, "cases": records}
        (options.out / "gpu.json").write_text(json.dumps(record, indent=1) + "\n")
    return 1 if counts["FAILED"] or empty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
