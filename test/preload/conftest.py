"""Runs small programs on the simulated device, without and with the library in front of them.
CACHALOT_BUILD names the folder of the built programs."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import jsonschema
import pytest

import sanitizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT, BUILD = sanitizer.ROOT, sanitizer.BUILD
LIBRARY = BUILD / "libcachalot.so"
PROGRAMS = BUILD / "test/preload"
WORKLOADS = BUILD / "test/workloads"
SIM = BUILD / "test/sim"
SCHEMA = json.loads((ROOT / "stats/report/report.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
COMMAND = [sys.executable, str(ROOT / "scripts/cachalot")]
KIB, MIB = 1 << 10, 1 << 20
EMULATOR = os.environ.get("CACHALOT_EMULATOR", "").split()  # runs programs of another processor
CONF = os.environ.get("CACHALOT_TEST_CONF", "expandable_segments:False")  # options that all programs run with
OURS = ("CACHALOT_", "PYTORCH_", "LD_PRELOAD", "RANK")


def load(path):
    """A report, checked against the schema."""
    report = json.loads(pathlib.Path(path).read_text())
    VALIDATOR.validate(report)
    return report


def stop(process):
    """Stops all its threads; what they had begun is done."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


class Report(dict):
    """A report with short ways to what the tests ask for."""

    @property
    def totals(self):
        return self["totals"]

    @property
    def warnings(self):
        return {warning["text"]: warning["count"] for warning in self["warnings"]}

    def warned(self, text):
        """How often warnings that hold `text` were given."""
        return sum(count for warning, count in self.warnings.items() if text in warning)

    def counter(self, name, device=0):
        return self["devices"][device]["counters"][name]

    def statistic(self, name, kind="current", device=0):
        return self["devices"][device]["statistics"][name]["all"][kind]


class Done:
    """A program that has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def value(self, name):
        """What a program's `SAY(name)` printed."""
        (line,) = [line for line in self.out.splitlines() if line.startswith(name + ": ")]
        return int(line.rsplit(": ", 1)[1])


class Place:
    """A working directory and a page directory of a test's own."""

    def __init__(self, work):
        self.work = work
        self.pages = pathlib.Path(tempfile.mkdtemp(prefix="cachalot-test-", dir="/dev/shm"))
        self.base = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        self.base.update(TMPDIR="/dev/shm",  # a short path: Python's workers have sockets there
                         LD_LIBRARY_PATH=str(SIM), CACHALOT_PAGE_DIR=str(self.pages),
                         CACHALOT_LIBRARY=str(LIBRARY), CACHALOT_SIM_LATENCY_NS="1000")
        self.running = []
        self.findings = sanitizer.Findings()

    @staticmethod
    def preload(*libraries):
        """Their LD_PRELOAD."""
        return ":".join(dict.fromkeys(map(str, [*sanitizer.PRELOAD, *libraries])))

    def environment(self, preload, more, leaks=False):
        environment = {**self.base, **self.findings.environment(leaks),
                       **{k: str(v) for k, v in more.items() if v is not None}}
        if CONF and more.get("CACHALOT_CONF", "") is not None:
            environment["CACHALOT_CONF"] = ",".join(filter(None, [CONF, environment.get("CACHALOT_CONF")]))
        if preload:
            environment["LD_PRELOAD"] = self.preload(*preload)
        return environment

    def words(self, program, arguments):
        program = str(program)
        return [program if "/" in program else str(PROGRAMS / program), *map(str, arguments)]

    @staticmethod
    def emulated(words, environment):
        """The loader's variables are the program's, not the emulator's."""
        if not words[0].startswith(str(BUILD)):
            pytest.skip("needs a program of this machine's processor")
        guest = [word for name in ("LD_PRELOAD", "LD_LIBRARY_PATH") if name in environment
                 for word in ("-E", f"{name}={environment.pop(name)}")]
        return [*EMULATOR, *guest, *words]

    def start(self, program, *arguments, preload=(LIBRARY,), prepare=None, **environment):
        """Starts a program with pipes; `prepare` is called in it before."""
        words = self.words(program, arguments)
        if words[0] == sys.executable and not preload:
            preload = sanitizer.PRELOAD  # for the libraries that it loads
        environment = self.environment(preload, environment,
                                       leaks=words[0].startswith(str(BUILD)))
        if EMULATOR:
            words = self.emulated(words, environment)
        process = subprocess.Popen(words, cwd=self.work, text=True, env=environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, preexec_fn=prepare)
        self.running.append(process)
        return process

    def run(self, program, *arguments, preload=(LIBRARY,), timeout=60, **environment):
        process = self.start(program, *arguments, preload=preload, **environment)
        try:
            out, err = process.communicate(timeout=timeout * sanitizer.SLOWER)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            raise
        self.running.remove(process)
        return Done(process.returncode, out, err)

    def native(self, program, *arguments, **environment):
        return self.run(program, *arguments, preload=(), **environment)

    def same(self, program, *arguments, code=0, **environment):
        """Runs it natively and with the library: exit code (`code`) and output must be equal."""
        native = self.native(program, *arguments, **environment)
        ours = self.run(program, *arguments, **environment)
        assert (native.code, native.err) == (code, ""), native.err
        assert (ours.code, ours.out, ours.err) == (native.code, native.out, native.err)
        return ours

    def report(self, program, *arguments, code=0, **environment):
        """The one report of `same`."""
        self.same(program, *arguments, code=code, **environment)
        return self.only_report()

    def reports(self):
        """Every report in the working directory, by time (of files it is coarser)."""
        reports = [Report(load(path)) for path in self.work.glob("cachalot.*.json")]
        return sorted(reports, key=lambda report: report["time"]["written"])

    def only_report(self):
        (report,) = self.reports()
        return report

    def left_pages(self):
        return sorted(self.pages.glob("*.page"))

    def cachalot(self, *arguments, **environment):
        """The command, on this test's pages."""
        preload = sanitizer.PRELOAD if arguments[0] == "run" else ()
        done = subprocess.run([*COMMAND, *map(str, arguments)], cwd=self.work, capture_output=True,
                              text=True, env=self.environment(preload, environment),
                              timeout=60 * sanitizer.SLOWER, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def harvest(self):
        """Makes reports of the dead pages; returns them."""
        done = self.cachalot("harvest")
        assert done.code == 0, done.err
        return [Report(load(path)) for path in done.out.splitlines()]

    def close(self):
        for process in self.running:
            process.kill()
            process.communicate()
        shutil.rmtree(self.pages)
        self.findings.close()


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()
