#!/usr/bin/env python3
"""What a cached pair costs, as one table: `meson test --benchmark`, or by hand on a machine with a GPU:

    CACHALOT_BUILD=build test/bench/bench.py --gpu /usr/local/cuda [--cudart static] [--library PATH] [--compiler nvcc]

Every figure is a median of rounds; its baseline is measured in the same rounds. The goals are those for an H200
host with 16 processors; elsewhere the ratios say more than the figures. Over a goal is no failure."""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from kit import BUILD, HERE, Failed, environment, fixed_addresses, run

SOURCES = ("bench.c", "hits.c", "pairs.c", "patterns.c", "threads.c")
SIZES = {"256 B": 256, "4 KiB": 4096, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "20 MiB": 20 << 20, "256 MiB": 256 << 20}
COUNTED = BUILD / "test/bench/libcachalot_counted.so"
LIBC = "the same loop, libc's malloc of 64 B"


class Table:
    """Rows: what, figure, unit, its range, ratio to the baseline, the baseline, the goal, met or not."""

    def __init__(self):
        self.rows = [("row", "median", "range", "baseline", "ratio", "goal", "")]
        self.notes = []

    def add(self, what, values, unit, base=None, ratio=None, goal="", met=None, form="{:.1f}"):
        one = statistics.median(values)
        spread = f"{form.format(min(values))}–{form.format(max(values))}" if len(values) > 1 else ""
        self.rows.append((what, f"{form.format(one)} {unit}", spread, base or "", f"{ratio:.2f}" if ratio else "", goal,
                          "" if met is None else "ok" if met else "OVER"))

    def missing(self, what, goal, why):
        self.rows.append((what, "–", "", "", "", goal, ""))
        self.notes.append(f"{what}: {why}")

    def show(self):
        widths = [max(len(row[i]) for row in self.rows) for i in range(7)]
        for row in self.rows:
            cells = [row[0].ljust(widths[0])] + [row[i].rjust(widths[i]) for i in range(1, 5)]
            print("  ".join([*cells, row[5].ljust(widths[5]), row[6]]).rstrip())
        for note in self.notes:
            print(f"  {note}")


class Bench:
    """The programs to measure, and how."""

    def __init__(self, options, folder):
        self.options, self.folder, self.table = options, folder, Table()
        self.simulated = options.gpu is None

    def program(self, cudart):
        if self.simulated:
            return BUILD / f"test/bench/bench_{cudart}"
        program = pathlib.Path(self.folder, f"bench_{cudart}").resolve()
        if not program.exists():
            toolkit = self.options.gpu
            linked = ["-lcudart"] if cudart == "shared" else ["-lcudart_static", "-ldl", "-lrt"]
            where = [f"-L{toolkit}/{lib}" for lib in ("lib64", "lib") if os.path.isdir(f"{toolkit}/{lib}")]
            host = ["-Xcompiler=-pthread,-rdynamic", f"-cudart={cudart}"]
            plain = ["-pthread", "-rdynamic", f"-I{toolkit}/include", *where, *linked,
                     f"-Wl,-rpath,{toolkit}/lib64"]
            more = host if pathlib.Path(self.options.compiler).name == "nvcc" else plain
            subprocess.run([self.options.compiler, "-O2", "-o", program, *(HERE / name for name in SOURCES), *more],
                           check=True)
        return program

    def at_once(self):
        if self.simulated:
            return BUILD / "test/bench/libat_once.so"
        library = pathlib.Path(self.folder, "libat_once.so").resolve()
        if not library.exists():
            subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, HERE / "at_once.c"], check=True)
        return library

    def front(self):
        return environment(self.options.library, self.simulated)

    def rounds(self, *measurement, cudart=None, library=None):
        env = environment(library, self.simulated) if library else self.front()
        return run([self.program(cudart or self.options.cudart), *measurement], env)

    def ns_row(self, what, found, most=None):
        ns = [one["ns"] for one in found]
        ratio = statistics.median(one["ns"] / one["base"] for one in found)
        goal = (f"<= {most} ns", statistics.median(ns) <= most) if most else ()
        self.table.add(what, ns, "ns", f"{statistics.median(one['base'] for one in found):.1f} ns", ratio, *goal)

    def rate_row(self, what, found, ratio, goal, met):
        """All threads together: millions of pairs in a second, and ns for one of them."""
        base = statistics.median(one["base_rate"] for one in found) / 1e6
        rate = [one["rate"] / 1e6 for one in found]
        self.table.add(what, rate, f"M/s {1000 / statistics.median(rate):5.1f} ns", f"{base:.1f} M/s", ratio, goal, met)

    def pairs(self):
        n, count = self.options.rounds, self.options.pairs
        for cudart, most in (("shared", 50), ("static", 100)):
            self.ns_row(f"one thread, 4 KiB, {cudart} cudart", self.rounds("pair", 4096, n, count, cudart=cudart), most)
        self.ns_row("the same, static cudart alone", self.rounds("pair", 4096, n, count, cudart="static", library=self.at_once()))
        found = self.rounds("door", 4096, n, count)
        self.table.add("the same, the driver's functions themselves", [one["ns"] for one in found], "ns",
                       f"{statistics.median(one['base'] for one in found):.1f} ns")
        self.table.notes.append("static cudart alone: without us, and the driver's functions return at once. The driver's functions themselves: ours, "
                                "without cudart. Its baseline: cuCtxGetCurrent, which we call for each pair there where the process has several contexts")
        for name, size in SIZES.items():
            self.ns_row(f"one thread, {name}", self.rounds("pair", size, n, count), 80)
        self.ns_row("10 000 live, mixed sizes, replaced", self.rounds("churn", n, count), 120)

    def threads(self):
        n, ms = self.options.rounds, self.options.ms
        for threads in (2, 4, 8, 16):
            found = self.rounds("threads", threads, n, ms)
            ratio = statistics.median(one["rate"] / one["base_rate"] for one in found)
            goal, met = ">= 0.8 of own counters", ratio >= 0.8
            if threads == 16:
                goal, met = ">= 0.8 and 100 M/s", met and statistics.median(one["rate"] for one in found) >= 100e6
            self.rate_row(f"{threads} threads, 4 KiB", found, ratio, goal, met)
        for what, classes in (("mixed", 12), ("with large", 16)):
            found = self.rounds("passing", 16, n, ms, classes)
            ratio = statistics.median(one["rate"] / one["base_rate"] for one in found)
            goal = (">= 4 x one thread", ratio >= 4) if classes == 12 else ("", None)
            self.rate_row(f"16 threads, {what}, freed by another", found, ratio, *goal)
        self.table.notes.append("mixed: 512 B to 1 MiB, each power of two as often, as in PyTorch's figures; with large: to 16 MiB, "
                                "a quarter of the blocks above 1 MiB, which take the lock")

    def patterns(self):
        n, times = self.options.rounds, self.options.pairs
        for live in (10_000, 1_000_000):
            self.ns_row(f"{live:,} live, 512 B to 64 KiB, replaced", self.rounds("beside", live, n, times))
        for what in ("larson", "xmalloc", "mstress", "sh8"):
            for threads in (2, 16):
                found = self.rounds(what, threads, n, times)
                ratio = statistics.median(one["rate"] / one["base_rate"] for one in found)
                self.rate_row(f"{what}, {threads} threads", found, ratio, "", None)
        self.table.notes.append("patterns: the baseline is malloc with the same sizes; put another library in front to compare with that")

    def start_of(self, env):
        """ms from before the program is started until it holds its first block."""
        begin = time.monotonic_ns()
        return (run([self.program(self.options.cudart), "start"], env)[0]["at"] - begin) / 1e6

    @staticmethod
    def life_of_true(env):
        begin = time.monotonic_ns()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], env), 0)
        return (time.monotonic_ns() - begin) / 1e6

    def starts(self):
        for what, measure, most in (("added to a CUDA program's start", self.start_of, 5),
                                    ("added to /bin/true", self.life_of_true, 1)):
            pairs = []
            for number in range(self.options.starts + 2):
                order = [self.front(), environment(None, self.simulated)]
                times = [measure(env) for env in (order if number % 2 else order[::-1])]
                pairs.append(times if number % 2 else times[::-1])
            pairs = pairs[2:]
            added = [ours - bare for ours, bare in pairs]
            bare = statistics.median(pair[1] for pair in pairs)
            self.table.add(what, added, "ms", f"{bare:.2f} ms", statistics.median(a / b for a, b in pairs), f"<= {most} ms",
                           statistics.median(added) <= most, "{:.2f}")

    def hits(self):
        what, goal, n = "most instructions in one hit", "<= 20 000", self.options.hits
        counted = self.options.counted
        if counted == COUNTED:  # all sources once more: not built by default
            with contextlib.suppress(OSError):  # no Ninja
                subprocess.run(["ninja", "-C", BUILD, COUNTED.relative_to(BUILD)], stdout=subprocess.DEVNULL, check=False)
        if not counted.exists():
            self.table.missing(what, goal, f"no {counted}: build the target libcachalot_counted.so")
            return
        program = self.program("shared")
        report = pathlib.Path(self.folder, "report.json")
        found, misses = {}, {}
        for count in (0, n):
            env = {**environment(counted, self.simulated), "CACHALOT_OUTPUT": str(report)}
            found = run([program, "hits", count], env, preexec_fn=fixed_addresses)[0]
            totals = json.loads(report.read_text())["totals"]
            misses[count] = totals["requests"] - totals["hits"]
            report.unlink()
        blocks, numbers = found["worst"][0][0], [number for _, number in found["worst"]]
        stepped = run([program, "steps", n, max(1, n // 2000), *numbers], self.front(), preexec_fn=fixed_addresses)[0]
        base = f"{found['blocks_per_pair']:.0f} blocks/pair"
        if not stepped["sampled"]:
            self.table.missing(what, goal, f"{blocks} basic blocks at most in {2 * n} calls ({base}); no trap flag here")
            return
        most = max(stepped["worst"], stepped["sample_worst"])
        self.table.add(what, [most], "", f"{stepped['per_pair']:.0f} per pair", most / (stepped["per_pair"] / 2), goal,
                       most <= 20000, "{:.0f}")
        self.table.notes.append(
            f"{what}: all {2 * n:,} calls ({misses[n] - misses[0]} misses) counted in basic blocks (dearest {blocks}, {base}); the {len(numbers)} dearest "
            f"and {stepped['sampled']} more pairs stepped through instruction by instruction; ratio: to half a pair")

    def memory(self):
        count = self.options.live
        found = [run([self.program(self.options.cudart), "live", count], self.front())[0]["bytes"] for _ in range(3)]
        self.table.add(f"memory per live block, {count:,} live", found, "B", goal="<= 128 B",
                       met=statistics.median(found) <= 128)
        self.table.notes.append("memory per live block: all private pages of the process that were written meanwhile, "
                                "the driver's for its segments included")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", metavar="TOOLKIT", help="measure on a real GPU; compile against this CUDA toolkit")
    parser.add_argument("--compiler", default="gcc", help="compiler for --gpu: gcc or nvcc (gcc)")
    parser.add_argument("--programs", help="folder for --gpu that has bench_shared and bench_static, or gets them")
    parser.add_argument("--cudart", choices=("shared", "static"), default="shared", help="runtime of all rows but the first two (shared)")
    parser.add_argument("--library", type=pathlib.Path, default=BUILD / "libcachalot.so", help="the library to measure")
    parser.add_argument("--counted", type=pathlib.Path, default=COUNTED, help="the library that counts basic blocks")
    parser.add_argument("--only", nargs="+", default=["pairs", "threads", "patterns", "starts", "hits", "memory"], help="parts of the table (all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each figure (5)")
    parser.add_argument("--pairs", type=int, default=200_000, help="pairs in a round of one thread (200000)")
    parser.add_argument("--ms", type=int, default=100, help="length of a round of many threads (100)")
    parser.add_argument("--starts", type=int, default=21, help="starts of a program (21)")
    parser.add_argument("--hits", type=int, default=5_000_000, help="replaced blocks, two calls each (5000000)")
    parser.add_argument("--live", type=int, default=1_000_000, help="live blocks (1000000)")
    return parser.parse_args()


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="cachalot-bench-") as folder:
        bench = Bench(options, options.programs or folder)
        device = "the simulated device" if bench.simulated else f"a GPU, {options.gpu}"
        print(f"On {device}, {os.cpu_count()} processors, {options.cudart} cudart; medians of {options.rounds} rounds. "
              f"Baseline of one thread: {LIBC}; of many: as many threads that count alone, for as long a pair; "
              "of freed by another: one thread.", flush=True)
        failed = 0
        for part in options.only:
            try:
                getattr(bench, part)()
            except (Failed, subprocess.SubprocessError) as reason:
                bench.table.notes.append(f"FAILED {part}: {reason}")
                failed = 1
        bench.table.show()
    return failed


if __name__ == "__main__":
    sys.exit(main())
