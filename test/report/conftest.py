"""What the tests of report and command share. CACHALOT_BUILD: where the programs are."""

import contextlib
import copy
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import jsonschema
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("CACHALOT_BUILD", ROOT / "build")).absolute()
SCHEMA = json.loads((ROOT / "stats/report/report.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "test")]
from cachalot_command.command import check as check_command  # noqa: E402
import examples  # noqa: E402, F401  (settings)
from cachalot_command.common.tools import Failure  # noqa: E402

COMMAND = [sys.executable, str(ROOT / "scripts/cachalot")]


def built(name):
    """A built program: in the build folder or below test/report in it."""
    for path in (BUILD / name, BUILD / "test/report" / name):
        if path.exists():
            return str(path)
    pytest.skip(f"{name} is not built")


def load(path):
    """A report, checked against the schema."""
    report = json.loads(pathlib.Path(path).read_text())
    VALIDATOR.validate(report)
    return report


def command_help_fits(text):
    """A screen of 80 columns and 24 lines, with an example and the exit codes."""
    lines = text.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "cachalot" in text and "example" in text and "Exit code" in text


def in_process(main, *arguments):
    """(exit code, what it printed or said) of a command of ours, without a process of its own."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            code, said = main([str(argument) for argument in arguments]), ""
        except Failure as failure:
            code, said = failure.code, str(failure)
            assert said.isprintable()
    assert "\x1b" not in out.getvalue()
    return code, said or out.getvalue()


class Place:
    """A working directory, a page directory on tmpfs, and an environment that points to both."""

    def __init__(self, work):
        self.work = work
        self.pages = pathlib.Path(tempfile.mkdtemp(prefix="cachalot-test-", dir="/dev/shm"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("CACHALOT_")}
        self.environment.update(CACHALOT_PAGE_DIR=str(self.pages), CACHALOT_LIBRARY=self.library())
        self.started = []

    def library(self):
        """Any shared library beside cachalot-page will do: nothing here calls CUDA."""
        path = self.work / "lib" / "libcachalot.so"
        path.parent.mkdir(exist_ok=True)
        (path.parent / "cachalot-page").symlink_to(built("cachalot-page"))
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "/dev/null", "-o", path], check=True)
        return str(path)

    def start(self, what, **environment):
        """Starts make_page; returns it and its page's path."""
        process = subprocess.Popen([built("make_page"), str(self.pages), what], cwd=self.work,
                                   env={**self.environment, **environment}, text=True,
                                   stdout=subprocess.PIPE)
        self.started.append(process)
        return process, process.stdout.readline().rstrip("\n")

    def run(self, *command, **options):
        options.setdefault("env", self.environment)
        return subprocess.run([str(c) for c in command], cwd=self.work, capture_output=True,
                              text=True, errors="surrogateescape", timeout=60, **options)

    def tool(self, *arguments, **options):
        return self.run(built("cachalot-page"), *arguments, **options)

    def cachalot(self, *arguments, **options):
        return self.run(*COMMAND, *arguments, **options)

    def close(self):
        for process in self.started:
            process.kill()
            process.wait()
            process.stdout.close()
        shutil.rmtree(self.pages)


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A report as the library writes it: 22 MiB reserved, 3073 KiB leaked, no out-of-memory."""
    place = Place(tmp_path_factory.mktemp("model"))
    process, _ = place.start("report")
    path = process.stdout.readline()[:-1]
    process.wait()
    report = load(path)
    place.close()
    report["oom_events"], report["warnings"] = [], []
    for key in ("events", "sites"):  # tests that want them have their own
        report.pop(key, None)
    return report


class Run:
    """A folder of reports, and `cachalot check` on them, in this process."""

    def __init__(self, work, model):
        self.work, self.model, self.count = work, model, 0
        self.folder = work / "reports"
        self.folder.mkdir()

    def add(self, name=None, folder=None, rank=None, coverage=None, kind="exit", process=None,
            **totals):
        report = copy.deepcopy(self.model)
        self.count += 1
        report["process"].update({"pid": 1000 + self.count, "rank": rank, **(process or {})})
        report["totals"].update(totals)
        report["kind"] = kind
        if coverage:
            report["coverage"].update(status=coverage, reasons=["a reason"])
        path = (folder or self.folder) / (name or f"r{self.count}.json")
        path.write_text(json.dumps(report))
        return path

    def check(self, *arguments):
        out, errors, code = io.StringIO(), "", 0
        with contextlib.redirect_stdout(out):
            try:
                code = check_command.main([str(argument) for argument in arguments])
            except Failure as failure:
                code, errors = failure.code, f"cachalot: {failure}\n"
        assert "\x1b" not in out.getvalue() + errors
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors)

    def gates(self, *arguments):
        """Exit code and the JSON verdict."""
        done = self.check(*arguments, "--format", "json")
        verdict = json.loads(done.stdout)
        assert verdict["exit_code"] == done.returncode
        assert verdict["passed"] is (done.returncode == 0)
        return done.returncode, verdict


@pytest.fixture
def run(tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Run(tmp_path, model)
