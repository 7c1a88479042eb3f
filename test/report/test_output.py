"""Where goes what `check` and `export` make: files, pipes, what is open already, what cannot be replaced."""

import contextlib
import errno
import json
import os
import subprocess
import tempfile
import threading
import time

from cachalot_command.command import export
from cachalot_command.writing import output as output_module
import pytest
from cachalot_command.common.tools import Failure
from conftest import COMMAND, in_process

OPEN = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1")
MADE = {"check": "# EOF\n", "export": "Thread,Time,"}  # something that is in what each makes


@pytest.fixture(params=MADE)
def made(request, run):
    """(words that the output's name ends, what is in what is made) of a command."""
    run.add("r", run.work)
    (run.work / "t").write_text("op,id,bytes,stream\na,1,600,0\nf,1,,0\n")
    words = {"check": ["check", "r", "--format", "openmetrics", "--output"], "export": ["export", "t", "--csv"]}[request.param]
    return [*COMMAND, *words], MADE[request.param]


@pytest.mark.parametrize("name", OPEN)
def test_what_is_open_is_written_to(made, name):
    """It may be a pipe, which has no name, or a log in which others go on to write."""
    done = subprocess.run([*made[0], name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and made[1] in done.stdout
    for mode in ("w", "a"):
        with open("log", mode, encoding="utf-8") as log:
            log.write("before\n")
            log.flush()
            assert subprocess.run([*made[0], name], stdout=log, check=False).returncode == 0
            log.write("after\n")
        with open("log", encoding="utf-8") as log:
            text = log.read()
        assert text.startswith("before\n") and made[1] in text and text.endswith("after\n")


def test_what_others_have_open_is_added_to(made):
    with open("log", "a", encoding="utf-8") as log:
        log.write("before\n")
        log.flush()
        subprocess.run([*made[0], f"/proc/{os.getpid()}/fd/{log.fileno()}"], stdout=subprocess.DEVNULL, check=True)
        log.write("after\n")
    with open("log", encoding="utf-8") as log:
        text = log.read()
    assert text.startswith("before\n") and made[1] in text and text.endswith("after\n")


def test_the_verdict_of_a_run_is_added_to_a_log(place):
    for output, begin in (("/dev/stderr", "before\n"), ("-", "{")):
        with open(place.work / "log", "w", encoding="utf-8") as log:
            log.write("before\n")
            log.flush()
            done = subprocess.run([*COMMAND, "run", "--check", f"max-oom=0,format=json,output={output}", "true"], cwd=place.work,
                                  env=place.environment, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
        text = done.stdout if output == "-" else (place.work / "log").read_text()
        assert text.startswith(begin) and json.loads(text[text.index("{"):])["exit_code"] == done.returncode == 3
        assert "no verdict: " in (place.work / "log").read_text() and not (place.work / "-").exists()


def test_standard_output_and_no_name(run):
    path = run.add()
    assert json.loads(run.check(path, "--max-oom", "0", "--format", "json", "--output", "-").stdout)["passed"]
    assert not os.path.exists("-")
    done = run.check(path, "--max-oom", "0", "--output", "")
    assert (done.returncode, done.stderr) == (2, "cachalot: --output needs a file name\n")


@pytest.mark.parametrize("step, reason", [((os, "replace"), errno.EBUSY), ((os, "replace"), errno.EXDEV), ((os, "replace"), errno.EPERM),
                                          ((tempfile, "NamedTemporaryFile"), errno.EACCES), ((tempfile, "NamedTemporaryFile"), errno.EROFS)])
def test_what_cannot_be_replaced_is_written_to(run, monkeypatch, step, reason):
    """A file that is mounted, as into a container, or lies in a folder where no other can be made."""
    def refuse(*_, **__):
        raise OSError(reason, os.strerror(reason))

    (run.work / "t").write_text("op,id,bytes,stream\na,1,600,0\nf,1,,0\n")
    monkeypatch.setattr(*step, refuse)
    path = run.work / "out"
    for write in (lambda: run.check(run.add(), "--format", "openmetrics", "--output", path).returncode,
                  lambda: in_process(export.main, "t", "--csv", path)[0]):
        path.unlink(missing_ok=True)
        assert write() in (1, 3) and not path.exists()
        path.write_text("old" * 10000)
        number = path.stat().st_ino
        assert write() == 0 and path.stat().st_ino == number and "old" not in path.read_text() and path.read_text()
    path.write_text("old")
    run.add("report", run.work)
    with contextlib.suppress(Failure):  # it has no events
        in_process(export.main, "report", "--csv", path)
    assert path.read_text() == "old" and not list(run.work.glob(".cachalot*"))


def test_a_pipe_that_nobody_reads_is_not_waited_for(made):
    os.mkfifo("pipe")
    begun = time.monotonic()
    done = subprocess.run([*made[0], "pipe"], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == (1 if "export" in made[0] else 3) and time.monotonic() - begun < 20
    assert done.stderr == "cachalot: pipe: it is a pipe that nobody reads\n"
    got = []
    reader = threading.Thread(target=lambda: (time.sleep(0.5), got.append(open("pipe", encoding="utf-8").read())))
    reader.start()  # one that comes late
    assert subprocess.run([*made[0], "pipe"], stdout=subprocess.DEVNULL, check=False).returncode == 0
    reader.join()
    assert made[1] in got[0]


@pytest.mark.parametrize("name", ["/dev/fd/9", "/proc/self/fd/99999999999999999999", "/dev/full", "loop", "no/x", "."])
def test_what_cannot_be_written_is_an_error(made, name):
    os.symlink("loop2", "loop")
    os.symlink("loop", "loop2")
    done = subprocess.run([*made[0], name], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 3) and done.stderr.startswith(f"cachalot: {name}: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words", [(), ("none.json",), ("r.json", "--baseline", "r.json"), ("r.json", "--baseline", "none.json")])
def test_no_verdict_is_written_where_the_last_one_was(run, words):
    """Collectors would go on to read that all is well."""
    run.add("r.json", run.work)
    for path, code in ((("r.json",), 0), (words, 3)):
        done = run.check(*path, "--max-oom", "0", "--format", "openmetrics", "--output", "v.prom")
        assert done.returncode == code and ("error: " in done.stdout) is (code == 3), done
        assert f"\ncachalot_check_exit_code {code}\n" in (run.work / "v.prom").read_text()


def test_a_verdict_that_nobody_reads_is_written(run):
    """A terminal that was closed, a full disk."""
    run.add("r.json", run.work)
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([*COMMAND, "check", "r.json", "--max-oom", "0", "--format", "json", "--output", "v"], stdout=full, check=False)
    assert done.returncode == 3 and json.loads((run.work / "v").read_text())["passed"]


def test_where_no_file_can_be_made_one_that_is_there_can_be_written(run, monkeypatch):
    """Before the start of a program as after it."""
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    (run.work / "mounted").touch()
    for name in ("mounted", "/dev/stdout", "-", "/dev/null"):
        output_module.refuse("--html", name)
    with pytest.raises(Failure, match="--html: new cannot be written: Read-only file system"):
        output_module.refuse("--html", "new")
