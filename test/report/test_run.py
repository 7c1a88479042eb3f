"""cachalot run, when it waits for the program: whose reports it judges, signals, what is refused before the start."""

import fcntl
import json
import os
import pathlib
import pty
import shlex
import shutil
import signal
import subprocess
import time
import types

import pytest
from conftest import COMMAND, built

from cachalot_command.reading import ended_run
from cachalot_command.reading.report import Report
from cachalot_command.writing import summary

CACHALOT = shlex.join(COMMAND)


def leak(place):
    """A program that leaks 3 MiB, and says so in a report."""
    place.environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"  # should make_page have it
    return shlex.join([built("make_page"), str(place.pages), "report"])


def judged(place, *words, gates="max-leaked=0"):
    return place.cachalot("run", "--check", gates, *words)


def test_reports_of_children_that_stand_elsewhere(place):
    """Also where the output and the directory of pages are relative."""
    (place.work / "sub").mkdir()
    for more in ({}, {"CACHALOT_OUTPUT": "r.%p.json", "CACHALOT_PAGE_DIR": os.path.relpath(place.pages, place.work)}):
        place.environment.update(more)
        done = judged(place, "sh", "-c", f"cd sub; {leak(place)}")
        assert done.returncode == 1 and "FAIL max-leaked" in done.stderr, done.stderr
    assert not list((place.work / "sub").iterdir())


def test_a_run_within_a_run(place):
    """It judges what it started; the outer one judges that, too, and no report is lost for a name."""
    within = f"{leak(place)}; {CACHALOT} run --check max-oom=0 true; echo inner $?"
    for options in ((), ("--summary",)):
        assert "inner 3" in place.cachalot("run", *options, "sh", "-c", within).stdout
    done = judged(place, "--output", "r.json", "sh", "-c", f"{leak(place)}; {CACHALOT} run --summary {leak(place)}; {leak(place)}")
    assert done.returncode == 1 and "3 processes" in done.stderr and "different runs" not in done.stderr
    assert len(list(place.work.glob("r*.json"))) == 3


def test_a_pipe_is_not_executed(place):
    """Nor waited for: as execve has it."""
    os.mkfifo(place.work / "pipe", 0o777)
    (place.work / "script").write_text(f"#!{place.work}/pipe\n")
    (place.work / "script").chmod(0o755)
    for program in ("./pipe", "./script", "/dev/null"):
        done = place.run("timeout", "9", *COMMAND, "run", program)
        assert done.returncode == 126 and done.stderr.startswith("cachalot: "), (program, done)


def test_children_ignored(place):
    """As some daemons leave it to whom they start: the end is noticed, and the program is left what it had."""
    def ignoring(*words):
        return place.cachalot(*words, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

    assert ignoring("run", "--summary", "sh", "-c", "exit 7").returncode == 7
    assert ignoring("run", "--conf", "bad:1", "true").returncode == 2
    for option in ((), ("--summary",)):
        ignored = int(ignoring("run", *option, "grep", "SigIgn", "/proc/self/status").stdout.split()[1], 16)
        assert ignored >> signal.SIGCHLD - 1 & 1


@pytest.mark.parametrize("pattern", ["reports/", "%", "a%", "%q{HOME", "%q{}", ".", "%x.json", "a" * 220, f"%q{{{'A' * 70}}}"])
@pytest.mark.parametrize("name", ["output", "trace"])
def test_patterns_that_name_no_file_are_refused(place, name, pattern):
    for words, more in ((("--" + name, pattern), {}), ((), {"CACHALOT_" + name.upper(): pattern})):
        done = place.run(*COMMAND, "run", *words, "echo", "started", env={**place.environment, **more})
        assert done.returncode == (2 if words else 125) and done.stdout == "" and pattern in done.stderr
    assert place.cachalot("run", "--" + name, "a%%b.%q{HOME}.%p%h%e%r%t%n", "true").returncode == 0


@pytest.mark.parametrize("number", ["PROF", "WINCH", "URG", "IO", "ABRT", "RTMIN+1"])
def test_signals_are_forwarded(place, number):
    script = f"import signal, os; signal.signal(signal.SIG{number}, lambda *_: os._exit(5)); print('ready', flush=True)\nwhile True: signal.pause()"
    with subprocess.Popen([*COMMAND, "run", "--summary", "python3", "-c", script], text=True, env=place.environment,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGRTMIN + 1 if "+" in number else signal.Signals["SIG" + number])
        assert process.wait(10) == 5


def wait_until_asleep(pid):
    """Three looks without any time of a processor between them."""
    looks = []
    for _ in range(100):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        looks.append((fields[0], fields[11], fields[12]))
        if len(looks) > 2 and looks[-1][0] == "S" and len(set(looks[-3:])) == 1:
            return
        time.sleep(0.1)
    raise AssertionError(looks)


def test_interrupted_when_the_program_has_ended(place):
    """What is still to be said then can be done without."""
    end, start = os.pipe()
    os.write(start, b"x" * (fcntl.fcntl(start, fcntl.F_SETPIPE_SZ, 4096)))
    with subprocess.Popen([*COMMAND, "run", "--summary", "sh", "-c", "echo ended"], env=place.environment, text=True,
                          stdout=subprocess.PIPE, stderr=start) as process:
        assert process.stdout.readline() == "ended\n"
        wait_until_asleep(process.pid)
        process.send_signal(signal.SIGINT)
        os.read(end, 4096)
        assert process.wait(10) == 130
    os.close(end)
    os.close(start)


def test_no_directory_of_pages_to_look_into(place):
    """What was reported is shown and judged; what was killed there nobody knows."""
    place.environment["CACHALOT_PAGE_DIR"] = "/dev/null"
    done = judged(place, "sh", "-c", leak(place), gates="max-oom=0")
    assert done.returncode == 3 and "/dev/null: Not a directory" in done.stderr and "ok   max-oom" in done.stderr


def test_only_the_last_of_an_exec_chain_ended_so():
    child = types.SimpleNamespace(pid=7, returncode=-9)
    pages = [types.SimpleNamespace(pid=7, path=f"/x/7.100.{n}.page") for n in (0, 2, 1)]
    ends = [ended_run.end_of(page, child, pages) for page in pages]
    assert ends == [[], ["--reason", "killed", "--signal", "9"], []]


def test_what_ended_the_program_comes_once_more(place):
    """`timeout` sends it to us, and then to the whole group: there is a verdict all the same."""
    for _ in range(5):
        done = place.run("timeout", "0.7", *COMMAND, "run", "--check", "max-leaked=0", "sleep", "9")
        assert done.returncode == 124 and "no verdict" in done.stderr


def test_a_timer_that_was_inherited(place):
    done = place.run("perl", "-e", "alarm 1; exec @ARGV", *COMMAND, "run", "--summary", "sleep", "9")
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize("name", ["a\nb", "a\tb"])
def test_where_the_directory_has_control_characters(place, name):
    (place.work / name).mkdir()
    script = f"cd {shlex.quote(name)} && exec {CACHALOT} run --check max-leaked=9MiB {leak(place)}"
    assert place.run("sh", "-c", script).returncode == 0 and len(list((place.work / name).glob("*.json"))) == 1


def test_where_the_directory_is_gone(place):
    (place.work / "gone").mkdir()
    done = place.run("sh", "-c", f"cd gone; rmdir ../gone; exec {CACHALOT} run --summary echo started")
    assert done.returncode == 0 and done.stdout == "started\n"


def test_the_verdict_has_a_file_of_its_own(place):
    for more in (("--html", "same"), ("--trace", "same"), ("--output", "same")):
        done = place.cachalot("run", "--check", "max-oom=0,output=same", *more, "echo", "started")
        assert done.returncode == 125 and done.stdout == ""
    assert place.cachalot("run", "--check", "max-oom=0,output=", "true").returncode == 2


@pytest.mark.parametrize("output, baseline, kept", [
    ("--output=x.json", "x.json", "x.json"), ("--output=base/%p.json", "base", "base/old.json"), ("--summary", ".", "old.json"),
    ("--output=%q{IN}.json", "a_b.json", "a_b.json"), ("--output=%e.json", "make_page.json", "make_page.json")])
def test_the_baseline_is_kept(place, output, baseline, kept):
    """Neither replaced by this run's report, nor read with it."""
    place.run("sh", "-c", f"CACHALOT_OUTPUT={kept} {leak(place)}")
    before = (place.work / kept).read_bytes()
    place.environment["IN"] = "a/b"
    done = place.cachalot("run", output, "--check", f"baseline={baseline},max-increase=5%", *shlex.split(leak(place)))
    assert done.returncode == 125 and done.stdout == "" and f"baseline={baseline}" in done.stderr
    assert (place.work / kept).read_bytes() == before and len(list(place.work.rglob("*.json"))) == 1


def test_the_name_of_a_script_is_no_reports(place):
    """Its report has its interpreter's."""
    (place.work / "run.sh").write_text(f"#!/bin/sh\n{leak(place)}\n")
    (place.work / "run.sh").chmod(0o755)
    place.run("sh", "-c", f"CACHALOT_OUTPUT=run.sh.json {leak(place)}")
    done = place.cachalot("run", "--output=%e.json", "--check", "baseline=run.sh.json,max-increase=5%,8MiB", "./run.sh")
    assert done.returncode == 0, done.stderr


def test_a_baseline_of_other_reports_beside(place):
    """A name that is only like it is no reason to refuse."""
    place.run("sh", "-c", f"CACHALOT_OUTPUT=cachalot.make_page.1.json {leak(place)}")
    done = judged(place, "sh", "-c", leak(place), gates="baseline=cachalot.make_page.1.json,max-increase=5%")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words, more", [
    (("--output", "F", "--trace", "F"), {}), (("--output", "./F"), {"CACHALOT_TRACE": "F"}), (("--trace", "F"), {"CACHALOT_OUTPUT": "F"}),
    (("--trace", "f.%p"), {"CACHALOT_OUTPUT": "f.%p"}), (("--output", "%e.json", "--trace", "echo.json"), {}),
    (("--trace", "cachalot.%e.%p.json"), {}), (("--trace", "/proc/x"), {}), (("--trace", "/dev/null"), {}), (("--trace", "/dev/full"), {}),
    (("--trace", "file/in/it"), {}), ((), {"CACHALOT_TRACE": "/proc/none/x"})])
def test_a_trace_that_would_be_lost_is_refused(place, words, more):
    (place.work / "file").touch()
    for option in ((), ("--summary",)):
        done = place.run(*COMMAND, "run", *option, *words, "/bin/echo", "started", env={**place.environment, **more})
        assert done.returncode == 125 and done.stdout == "" and "the trace " in done.stderr
    assert place.cachalot("run", "--trace", "made/by/it", "/bin/echo", "started").stdout == "started\n"


def test_of_a_trace_that_cannot_be_long_it_is_said(place):
    for limit, said in ((100, "no file here may have more than 102400 bytes (ulimit -f)"), ("unlimited", "")):
        done = place.run("bash", "-c", f"ulimit -S -f {limit}; exec {CACHALOT} run --trace t /bin/echo started")
        assert (done.returncode, done.stdout) == (0, "started\n") and said in done.stderr and bool(said) == bool(done.stderr)


@pytest.mark.parametrize("words", [(), ("--summary",)])
def test_a_report_that_could_not_be_written_is_said_before_the_start(place, words):
    """And not refused: its page has it."""
    done = place.cachalot("run", *words, "--output", "/proc/none/r.json", "/bin/echo", "started")
    said = done.stderr.splitlines()[0]
    assert (done.returncode, done.stdout) == (0, "started\n") and "r.json cannot be made in /proc: " in said and "harvest --output" in said
    for output in ("made/by/it.json", "/dev/null", "file"):
        (place.work / "file").touch()
        assert not place.cachalot("run", "--output", output, "true").stderr


def test_the_page_is_not_where_the_environment_puts_the_trace(place):
    place.environment["CACHALOT_TRACE"] = "F"
    for words in (("--html", "F"), ("--check", "max-oom=0,output=F")):
        done = place.cachalot("run", *words, "echo", "started")
        assert done.returncode == 125 and done.stdout == "" and "F is where" in done.stderr


@pytest.mark.parametrize("words", [("--html", "x.html"), ("--trace", "x"), ("--check", "max-oom=0,output=x")])
def test_a_file_of_a_directory_that_is_gone(place, words):
    """It is said what is missing, before the start."""
    (place.work / "gone").mkdir()
    done = place.run("sh", "-c", f"cd gone; rmdir ../gone; exec {CACHALOT} run {shlex.join(words)} echo started")
    assert done.returncode == 125 and done.stdout == "" and "the current directory: No such file" in done.stderr


def test_a_trace_outside_of_a_directory_that_is_gone(place):
    (place.work / "gone").mkdir()
    done = place.run("sh", "-c", f"cd gone; rmdir ../gone; exec {CACHALOT} run --trace {place.work}/t echo started")
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr


def test_a_directory_whose_name_is_too_long(place):
    script = "for i in 1 2 3 4 5 6; do mkdir $NAME; cd $NAME; done; " + shlex.join([*COMMAND, "run", "--check", "max-oom=0", "echo", "started"])
    done = place.run("bash", "-c", script, env={**place.environment, "NAME": "a" * 190})
    assert done.returncode == 125 and done.stdout == "" and "path is too long" in done.stderr


@pytest.mark.parametrize("option, pattern", [("--output", "AAAA%q{A}.json"), ("--trace", "AAAA%q{A}"), ("--output", "%q{A}%q{A}%q{A}%q{A}/%p")])
def test_a_name_that_becomes_too_long_is_refused(place, option, pattern):
    """Where it is known what it becomes: the library would write elsewhere."""
    pattern = pattern.replace("AAAA", "a" * 140)
    place.environment["A"] = "b" * 70  # of which 64 count
    done = place.cachalot("run", option, pattern, "echo", "started")
    assert (done.returncode, done.stdout) == (125, "") and "too long" in done.stderr
    place.environment["A"] = "b" * 55
    assert place.cachalot("run", option, pattern, "echo", "started").stdout == "started\n"
    program = place.work / ("p" * 210)
    shutil.copy(shutil.which("echo"), program)
    assert place.cachalot("run", option, "%e" + "a" * 130, program, "started").stdout == "started\n"


def test_a_report_of_any_age(place):
    """Clocks are set back; what a report is of, its session says."""
    for back in ("touch -d '1 day ago' *.json", "touch -d @0 *.json"):
        done = judged(place, "sh", "-c", f"{leak(place)}; {back}")
        assert done.returncode == 1 and "FAIL max-leaked" in done.stderr and "2 processes" not in done.stderr


@pytest.mark.parametrize("session", [b"a\tb", b"\xff\xfe", "b\xfc".encode(), b"\"a\\", b"x" * 70, b"\xc3\xbc" * 40, b"a b"])
@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_session_of_any_characters(place, session, locale):
    environment = {os.fsencode(k): os.fsencode(v) for k, v in {**place.environment, **locale}.items()} | {b"CACHALOT_SESSION": session}
    within = f"{CACHALOT} run --check max-leaked=0 {leak(place)}; echo inner $?"
    done = place.run(*COMMAND, "run", "--check", "max-leaked=0", "sh", "-c", within, env=environment)
    assert done.returncode == 1 and "inner 1" in done.stdout and "FAIL max-leaked" in done.stderr, done.stderr


@pytest.mark.parametrize("session", ["x" * 70, "x" * 55, "job"])
def test_runs_of_the_same_session(place, session):
    """Each is judged alone."""
    place.environment["CACHALOT_SESSION"] = session
    assert judged(place, "sh", "-c", leak(place)).returncode == 1
    done = judged(place, "sh", "-c", f"{leak(place)}; {leak(place)}", gates="require-reports=2,max-oom=0")
    assert done.returncode == 0 and "2 processes" in done.stderr, done.stderr


def test_children_that_stand_below_a_directory_with_control_characters(place):
    """Their reports cannot be given a place there, and are not found: that is said, where it is so."""
    odd = place.work / "a\nb"
    (odd / "sub").mkdir(parents=True)
    for more, said in (("", True), (f"--output {shlex.quote(str(place.work))}/r.%p.json", False)):
        script = f"cd {shlex.quote(str(odd))} && exec {CACHALOT} run {more} --check max-leaked=0 sh -c {shlex.quote(f'cd sub; {leak(place)}')}"
        done = place.run("sh", "-c", script)
        assert ("control character" in done.stderr) is said and ("FAIL max-leaked" in done.stderr) is not said, done.stderr


def test_what_still_runs_and_has_not_used_cuda(place):
    """Its report comes when nobody judges it any more."""
    for words, gates in (((), "max-leaked=9MiB"), ((*COMMAND, "run", "--summary"), "max-leaked=9MiB")):
        done = judged(place, *words, "sh", "-c", f"sleep 5 >&- 2>&- & sleep 0.3; {leak(place)}", gates=gates)
        said = done.stderr.count("note: 1 process of this run still runs, of which no CUDA has been seen so far: sleep (")
        assert done.returncode == 0 and said == 1 + bool(words), done.stderr
    assert "note: " not in judged(place, "sh", "-c", leak(place)).stderr


def test_what_still_runs_where_the_session_is_not_our_own(place):
    """No room for a session of this run: others have it, who started us among them."""
    place.environment["CACHALOT_SESSION"] = "x" * 63
    assert "note: " not in judged(place, "sh", "-c", leak(place)).stderr


def test_a_process_of_another_pid_namespace(place):
    """Whatever its page says of itself, the kernel knows that nobody writes it any more."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    move = f"import glob; path, = glob.glob('{place.pages}/*.page'); data = open(path, 'rb').read(); " \
           f"open(path, 'wb').write(data.replace(({namespace}).to_bytes(8, 'little'), b'\\7' * 8))"
    done = judged(place, "sh", "-c", f"{leak(place).replace(' report', ' exit')}; python3 -c {shlex.quote(move)}")
    assert done.returncode == 1 and "FAIL max-leaked" in done.stderr and "still runs\n" not in done.stderr, done.stderr


def test_the_summary_says_what_was_not_traced(place, model):
    for text, said in (("nothing is traced: /proc/x: No such file or directory", True), ("the live page is on a disk", False)):
        (place.work / "r.json").write_text(json.dumps({**model, "warnings": [{"text": text, "count": 1}]}))
        assert (text in list(summary.remarks(Report(str(place.work / "r.json"))))) is said


def test_of_options_given_twice_nothing_is_lost_unsaid(place):
    """Gates all apply, and the last output counts: that of who calls a wrapper."""
    for gates in (("max-oom=0", "max-leaked=0"), ("max-leaked=0", "max-oom=0")):
        done = place.cachalot("run", *(f"--check={gate}" for gate in gates), "--output", "a.json", "--output", "b.json", *shlex.split(leak(place)))
        assert done.returncode == 1 and "FAIL max-leaked" in done.stderr and "1 of 3 gates" in done.stderr, done.stderr
    assert not (place.work / "a.json").exists() and (place.work / "b.json").exists()
    for words in (("--html", "a", "--html", "b"), ("--trace", "a", "--trace", "b"), ("--conf=a:1", "--conf=b:1"),
                  ("--check", "max-oom=0,output=a", "--check", "max-leaked=0,output=b")):
        done = place.cachalot("run", *words, "echo", "started")
        assert (done.returncode, done.stdout) == (2, "") and "is given twice" in done.stderr


@pytest.mark.parametrize("option", ["--trace", "--output", "--html", "--check"])
def test_an_empty_value_is_refused(place, option):
    """That of a variable that is not set: nothing would be recorded, or elsewhere."""
    for words in ((option, ""), (option + "=",), ("--check=max-oom=0", option, "")):
        done = place.cachalot("run", *words, "echo", "started")
        assert (done.returncode, done.stdout) == (2, "") and f"{option} needs a value" in done.stderr
    assert place.cachalot("run", "--conf", "", "echo", "started").stdout == "started\n"
    assert place.cachalot("harvest", "--output", "").returncode == 2


def test_a_terminal_that_is_closed(place):
    """The kernel tells the session's leader alone, which is us under `xterm -e` or `ssh -t`. What cannot be said loses no file."""
    script = f"{leak(place)}; trap 'touch closed; exit' HUP; echo ready; for i in $(seq 60); do sleep 0.1; done"
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(place.work)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests under nohup: a shell traps none that it was started without
        words = [*COMMAND, "run", "--summary", "--check", "max-leaked=0,output=v.json,format=json", "sh", "-c", script]
        os.execve(words[0], words, place.environment)
    said = b""
    while b"ready" not in said:
        said += os.read(master, 4096)
    os.close(master)
    os.waitpid(pid, 0)
    assert (place.work / "closed").exists() and json.loads((place.work / "v.json").read_text())["exit_code"] == 1


@pytest.mark.parametrize("name", ["/proc/x", "file/in/it", "no/x", "/proc/self/comm", "."])
@pytest.mark.parametrize("option", ["--html={}", "--check=max-oom=0,output={}"])
def test_what_could_not_be_written_after_the_run_is_refused(place, option, name):
    (place.work / "file").touch()
    done = place.cachalot("run", option.format(name), "echo", "started")
    assert (done.returncode, done.stdout) == (125, "") and f"{name} cannot be written: " in done.stderr


@pytest.mark.parametrize("more", [(), ("--summary",), ("--check", "max-oom=0")])
def test_a_page_alone_is_no_all_well(place, more):
    """What its figures leave out is said, and once."""
    script = f"""{leak(place)}; sed -i 's/"status": "full"/"status": "none"/' cachalot.make_page.*.json"""
    done = place.cachalot("run", "--html", "p.html", *more, "sh", "-c", script)
    assert done.stderr.count("coverage none") == 1 or "FAIL coverage" in done.stderr, done.stderr
    assert done.stderr.count("`cachalot doctor ") == 1
