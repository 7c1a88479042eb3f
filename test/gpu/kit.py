"""What the cases share: places, environments, programs run natively and in front, their reports."""

import concurrent.futures
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMAND = [sys.executable, str(ROOT / "scripts/cachalot")]
MIB = 1 << 20
GIB = 1 << 30
SKIPPED = 77  # a script's exit code: its framework is missing
slots = threading.Semaphore(1)  # how many programs run at once; set by the runner


class Skip(Exception):
    """The case cannot be run here."""


class Failed(Exception):
    """The case could not go on; says why."""


class Figures:
    """A report and the numbers that cases look at. Sums over devices; there is mostly one."""

    def __init__(self, path):
        self.path = str(path)
        self.report = json.loads(pathlib.Path(path).read_text())
        self.totals = self.report["totals"]
        self.allocated = self.totals["allocated_bytes"]
        self.reserved = self.totals["reserved_bytes"]
        self.requests = self.totals["requests"]
        self.peak = self.totals["peak_allocated_bytes"]

    def statistic(self, name, part="current"):
        return sum(d["statistics"][name]["all"][part] for d in self.report["devices"])

    @property
    def inactive_split(self):
        return self.statistic("inactive_split_bytes")

    @property
    def forwarded(self):
        return self.report["coverage"]["counters"].get("forwarded_allocations", 0)

    @property
    def coverage(self):
        return self.report["coverage"]["status"]

    def others(self):
        """Bytes that went past the cache, by kind, where there were any."""
        return {kind: row["peak_bytes"] for kind, row in self.report["others"].items()
                if row["allocated"]}


class Run:
    """What a finished program left: exit code, its lines, points, reports."""

    def __init__(self):
        self.code = None
        self.lines = []    # all lines of stdout but the points
        self.points = {}   # name → what the program itself said there
        self.figures = {}  # name → Figures, in front
        self.exit = None   # Figures of the report at exit, in front
        self.errors = ""
        self.seconds = 0.0

    def results(self):
        """The JSON lines, parsed."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def complaint(self):
        lines = self.errors.strip().splitlines() or self.lines
        telling = [line for line in lines if "rror" in line and ":" in line][:1] + lines[-2:]
        return f"exit code {self.code}: " + " | ".join(dict.fromkeys(telling))[:500]


class Program:
    """A running program; waits at its points for `go`."""

    def __init__(self, kit, command, environment, timeout):
        self.kit, self.run, self.deadline = kit, Run(), timeout
        self.started = time.monotonic()
        self.errors = tempfile.TemporaryFile("w+", dir=kit.work, errors="replace")
        self.process = subprocess.Popen(
            [str(word) for word in command], cwd=kit.work, env=environment, text=True,
            errors="replace", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            start_new_session=True)
        self.timed_out = self.ended = False
        self.watch = threading.Timer(timeout, self.time_out)
        self.watch.start()

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        """Ends the program and what it started: they have a session of their own."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def time_out(self):
        self.timed_out = True
        self.kill()

    def next_line(self):
        """The next line, without its newline; None at the end. Points are noted."""
        line = self.process.stdout.readline()
        if not line:
            return None
        line = line.rstrip("\n")
        if line.startswith('{"point"'):
            own = json.loads(line)
            self.run.points[own.pop("point")] = own
        elif line.startswith("point "):  # of the programs in test/workloads
            self.run.points[line[6:]] = {}
        else:
            self.run.lines.append(line)
        return line

    def next_point(self):
        """The name of the next point; None at the end of the program's output."""
        while (line := self.next_line()) is not None:
            if line.startswith(('{"point"', "point ")):
                return list(self.run.points)[-1]
        return None

    def go(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def ask(self, command):
        return self.kit.cachalot(command, str(self.pid))

    def dump(self):
        return Figures(self.ask("dump"))

    def close(self):
        """Waits for the end and takes what the program left."""
        while self.next_line() is not None:
            pass
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.run.code = self.process.wait()
        self.watch.cancel()
        self.run.seconds = time.monotonic() - self.started
        self.errors.seek(0)
        self.run.errors = self.errors.read()
        self.errors.close()
        self.process.stdout.close()
        self.ended = True
        slots.release()

    def end(self):
        """Waits for the end and returns the Run."""
        self.close()
        path = self.kit.report_path(self.pid)
        if path.exists():
            self.run.exit = Figures(path)
        if self.timed_out and self.run.code == -signal.SIGKILL:
            raise Failed(f"no end within {self.deadline} s: {self.run.complaint()}")
        if self.run.code == SKIPPED:
            raise Skip(next((x[6:] for x in self.run.lines if x.startswith("skip: ")), "skipped"))
        return self.run


class Kit:
    """What one case works with: its folder, environments, and the rows it found."""

    def __init__(self, options, name):
        self.options, self.name, self.rows, self.programs = options, name, [], []
        self.work = pathlib.Path(tempfile.mkdtemp(prefix=f"cachalot-gpu-{name}-"))
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.pages = pathlib.Path(tempfile.mkdtemp(prefix="cachalot-gpu-", dir=base))
        self.library = options.build / "libcachalot.so"

    def close(self):
        for program in self.programs:
            if not program.ended:
                program.kill()
                program.close()
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.pages, ignore_errors=True)

    # Environments

    def native(self, **more):
        """The environment without us."""
        ours = ("CACHALOT_", "PYTORCH_")
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(ours) or k.startswith("CACHALOT_SIM_")}
        clean.pop("LD_PRELOAD", None)
        return {**clean, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}

    def no_cache(self, **more):
        """PyTorch calls cudaMalloc and cudaFree for every tensor."""
        return self.native(PYTORCH_NO_CUDA_MEMORY_CACHING="1", **more)

    def front(self, environment=None, conf=None):
        """The same with us in front; as it stands for PyTorch without its cache."""
        environment = dict(self.no_cache() if environment is None else environment)
        environment.update(LD_PRELOAD=str(self.library), CACHALOT_PAGE_DIR=str(self.pages),
                           CACHALOT_OUTPUT=str(self.work / "report.%p.json"))
        conf = ",".join(filter(None, [self.options.conf, conf]))
        if conf:
            environment["CACHALOT_CONF"] = conf
        return environment

    def report_path(self, pid, number=None):
        return self.work / (f"report.{pid}.json" if number is None
                            else f"report.{pid}.{number}.json")

    # Programs

    def start(self, command, environment, timeout=90):
        slots.acquire()
        try:
            program = Program(self, command, environment, timeout)
        except BaseException:
            slots.release()
            raise
        self.programs.append(program)
        return program

    def script(self, name, *arguments):
        return [sys.executable, str(HERE / name), *map(str, arguments)]

    def run(self, command, environment, timeout=90, at=None):
        """Runs to the end. In front, a report is asked for at each point, after at[point]."""
        program = self.start(command, environment, timeout)
        while (name := program.next_point()) is not None:
            if "LD_PRELOAD" in environment:
                for act in (at or {}).get(name, ()):
                    program.ask(act)
                program.run.figures[name] = program.dump()
            program.go()
        return program.end()

    def good(self, command, environment, timeout=90, at=None, code=0):
        """As run, but another exit code is a failure."""
        run = self.run(command, environment, timeout, at)
        if run.code != code:
            raise Failed(f"{' '.join(map(str, command[:4]))}: {run.complaint()}")
        if "LD_PRELOAD" in environment and run.exit is None:
            raise Failed("no report was written at exit")
        return run

    def natively(self, command, environment, timeout=90, code=0):
        """A native run; where even that fails there is nothing to compare."""
        run = self.run(command, environment, timeout)
        if run.code != code:
            raise Skip(f"fails natively: {run.complaint()}")
        return run

    def together(self, *works):
        """Runs the functions at once; their results in order."""
        with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
            return [future.result() for future in [pool.submit(work) for work in works]]

    def cachalot(self, *arguments):
        """A command of scripts/cachalot; what it printed."""
        environment = self.native(CACHALOT_PAGE_DIR=str(self.pages),
                                  CACHALOT_LIBRARY=str(self.library))
        done = subprocess.run([*COMMAND, *map(str, arguments)], env=environment, timeout=60,
                              cwd=self.work, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"cachalot {arguments[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def build(self, command):
        """Compiles; a missing compiler skips, an error fails."""
        if not shutil.which(command[0]):
            raise Skip(f"no {command[0]}")
        done = subprocess.run([str(word) for word in command], cwd=self.work, timeout=120,
                              capture_output=True, text=True, check=False, env=self.native())
        if done.returncode != 0:
            raise Failed(f"{command[0]}: {(done.stderr or done.stdout).strip()[-400:]}")

    # What was found

    def found(self, what, result, figures):
        """A row of the table, said at once too: who stops us early has what was found until then."""
        self.rows.append({"what": what, "result": result, "figures": str(figures)})
        print(f"{self.name}: {what}: {result}: {' '.join(str(figures).split())}", file=sys.stderr, flush=True)

    def check(self, what, good, figures=""):
        self.found(what, "ok" if good else "FAILED", figures)
        return bool(good)

    def note(self, what, figures):
        self.found(what, "note", figures)

    def skip(self, what, reason):
        self.found(what, "skip", reason)

    def same_lines(self, what, native, other, more=""):
        """Are two outputs the same? Where not, the first difference is shown."""
        if native.lines == other.lines and native.code == other.code and native.lines:
            return self.check(what, True, f"{len(native.lines)} lines the same{more}")
        pairs = zip(native.lines, other.lines)
        first = next((f"{a[:120]} ≠ {b[:120]}" for a, b in pairs if a != b),
                     f"{len(native.lines)} and {len(other.lines)} lines, "
                     f"codes {native.code} and {other.code}")
        return self.check(what, False, first)


def mib(size):
    return f"{size / MIB:.1f} MiB"


def cuda_home():
    """The toolkit's folder."""
    done = subprocess.run([str(ROOT / "scripts/build/cuda_home.sh")], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise Skip("no CUDA toolkit")
    return pathlib.Path(done.stdout.strip())


def find_cudart():
    """The path of a libcudart.so.NN: CACHALOT_CUDART, the toolkit's, or a Python package's."""
    named = os.environ.get("CACHALOT_CUDART")
    if named:
        return named
    places = []
    try:
        home = cuda_home()
        places += [home / "lib64", home / "lib", *home.glob("targets/*/lib")]
    except Skip:
        pass
    for folder in sys.path:
        places += glob.glob(os.path.join(folder, "nvidia", "*", "lib"))
    for place in places:
        found = sorted(glob.glob(os.path.join(str(place), "libcudart.so.[0-9]*")))
        if found:
            return found[0]
    raise Skip("no libcudart.so found; name one in CACHALOT_CUDART")
