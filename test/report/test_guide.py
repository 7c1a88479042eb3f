"""cachalot ls, doctor, env: what is there, will it work, what to paste."""

import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys

import pytest
from conftest import BUILD, COMMAND, ROOT, built

from cachalot_command.reading import live
from cachalot_command.reading.report import Report
from cachalot_command.writing import summary

SIM = BUILD / "test/sim"
FORMS = ("shell", "slurm", "mpirun", "docker", "apptainer", "kubernetes", "jupyter")


@pytest.fixture
def real(place):
    """With the real library, and the simulated device for a driver."""
    if not (SIM / "libcuda.so.1").exists():
        pytest.skip("no simulated device is built")
    place.environment.update(CACHALOT_LIBRARY=built("libcachalot.so"), LD_LIBRARY_PATH=str(SIM),
                             ASAN_OPTIONS="detect_leaks=0")
    return place


def states(place, *directory):
    done = place.cachalot("ls", "--json", *directory)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_ls_of_nothing(place):
    done = place.cachalot("ls")
    assert done.returncode == 0 and done.stdout.startswith("no program of this user")
    assert states(place) == (0, [])
    assert place.cachalot("ls", place.work / "none").returncode == 3
    assert place.cachalot("ls", "a", "b").returncode == 2


def test_ls_of_all_kinds(place):
    running, _ = place.start("hang", RANK="7")
    killed, _ = place.start("hang")
    killed.kill()
    killed.wait()
    reported, _ = place.start("report")
    reported.wait()
    (place.pages / "x.page").write_text("no page\x1b[2J")
    (place.pages / "x.page").chmod(0o644)  # whatever the umask is
    (place.pages / "stranger").write_text("is not even asked")
    code, entries = states(place)
    by_state = {entry["state"]: entry for entry in entries}
    assert code == 3 and len(entries) == 4
    assert [by_state[s]["pid"] for s in ("running", "killed", "reported")] == [running.pid, killed.pid, reported.pid]
    assert by_state["running"]["allocated_bytes"] > 0 and by_state["running"]["program"].endswith("make_page")
    assert by_state["damaged"]["problem"] and by_state["damaged"]["path"].endswith("x.page")
    lines = place.cachalot("ls").stdout.splitlines()
    assert len(lines) == 5 and "\x1b" not in "".join(lines) and lines[-1].endswith("another user")


def test_a_rank_is_whole_or_not_shown(place, model, capsys):
    """Cut, it would be another's."""
    _, path = place.start("hang")
    with open(path, "r+b") as file:
        file.seek(live.Page(path).fields["rank"][0])
        file.write(b"123456789012345")
    line = place.cachalot("ls").stdout.splitlines()[-1]
    assert line.split()[2] == "123456789012345"
    for columns, is_shown in (("80", True), ("56", False)):
        place.environment["COLUMNS"] = columns
        out = place.cachalot("top", "--once", "--interval", "0.2").stdout
        assert (" 123456789012345 make_page " in out, "RANK" in out) == (is_shown, is_shown), out
    for rank, title in ((123456789012345, "           rank    "), (7, "  rank    ")):
        (place.work / "r.json").write_text(json.dumps({**model, "process": {**model["process"], "rank": rank}}))
        summary.print_summary([Report(str(place.work / "r.json"))])
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith(title) and lines[1].split()[0] == str(rank), lines


def test_ls_among_many_strangers(place):
    """Directories, links, pipes, pages without rights: all are named, none is followed, nothing waits."""
    (place.pages / "folder.page").mkdir()
    (place.pages / "link.page").symlink_to("/etc/passwd")
    (place.pages / "loop.page").symlink_to("loop.page")
    os.mkfifo(place.pages / "pipe.page", 0o600)
    (place.pages / "open.page").write_text("x")
    for number in range(500):
        (place.pages / f"{number}.page").touch(mode=0o600)
    code, entries = states(place)
    assert code == 3 and len(entries) == 505 and {entry["state"] for entry in entries} == {"damaged"}
    assert "root" not in json.dumps(entries)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_pages_of_another_user_are_not_read(place):
    _, path = place.start("hang")
    os.chown(path, 65534, 65534)
    code, (entry,) = states(place)
    assert code == 0 and entry["state"] == "foreign" and "another user" in entry["problem"]
    assert entry["program"] is None and entry["allocated_bytes"] is None
    done = place.cachalot("harvest")
    assert done.returncode == 3 and "1 of another user" in done.stderr and "remove" not in done.stderr and os.path.exists(path)


def test_a_pid_that_was_taken_again_is_dead(place):
    """The page says another start than the process that has its pid now."""
    process, path = place.start("hang")
    process.kill()
    process.wait()
    data = bytearray(pathlib.Path(path).read_bytes())
    at = data.index(process.pid.to_bytes(8, "little"))
    data[at:at + 8] = os.getpid().to_bytes(8, "little")
    pathlib.Path(path).write_bytes(data)
    code, (entry,) = states(place)
    assert code == 0 and (entry["pid"], entry["state"]) == (os.getpid(), "killed")
    assert place.cachalot("dump", os.getpid()).returncode == 3


def test_doctor_says_that_it_works(real):
    done = real.cachalot("doctor", "python3")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[-1] == "it will work" and not any(line.startswith("FAIL") for line in lines)
    assert any("2 allocations came through the cache, coverage full" in line for line in lines)
    assert any("PYTORCH_NO_CUDA_MEMORY_CACHING" in line for line in lines)
    assert not list(real.work.glob("*.json")) and not list(real.pages.iterdir())


@pytest.mark.parametrize("environment, said", [
    ({"CACHALOT_DISABLE": "1"}, "CACHALOT_DISABLE is set"),
    ({"CACHALOT_CONF": "max_split:1"}, "CACHALOT_CONF: "),
    ({"CACHALOT_SIGNAL": "NONESUCH"}, "CACHALOT_SIGNAL=NONESUCH: give USR1, "),
    ({"LD_LIBRARY_PATH": ""}, "libcuda.so.1"),
    ({"CACHALOT_LIBRARY": "/none/libcachalot.so"}, "is not a file"),
    ({"CACHALOT_LIBRARY": "/etc/passwd"}, "is not a shared library"),
    ({"CACHALOT_PAGE_DIR": "/proc/none"}, "is missing, or open to others"),
    ({"CACHALOT_SIM_DEVICES": "0"}, "no GPU can be used"),
    ({"CACHALOT_OUTPUT": "%z"}, "CACHALOT_OUTPUT=%z: unknown %"),
    ({"CACHALOT_OUTPUT": "/proc/none/r.json"}, "the report /proc/none/r.json cannot be made in /proc: "),
    ({"CACHALOT_TRACE": "/proc/x.trace"}, "cannot be made in /proc"),
    ({"CACHALOT_TRACE": "r.json", "CACHALOT_OUTPUT": "r.json"}, "is where the report goes"),
])
def test_doctor_says_what_will_not_work(real, environment, said):
    done = real.cachalot("doctor", env={**real.environment, **environment})
    assert done.returncode == 1 and done.stdout.endswith("it will not work; see the lines that say FAIL\n")
    assert any(line.startswith("FAIL") and said in line for line in done.stdout.splitlines()), done.stdout


def test_doctor_stands_where_the_program_will_and_leaves_nothing(real):
    """Neither in what is recorded already, nor in the current directory, of which it loads no module."""
    for name, what in (("trace", "recorded"), ("json.py", "raise SystemExit(9)")):
        (real.work / name).write_text(what)
    (real.work / "sim").symlink_to(SIM)
    there = sorted(real.work.iterdir())
    real.environment.update(LD_LIBRARY_PATH="sim", CACHALOT_TRACE="trace", PYTHONPATH=".")
    done = real.cachalot("doctor")
    assert done.returncode == 0, done.stdout
    assert (real.work / "trace").read_text() == "recorded" and sorted(real.work.iterdir()) == there and not list(real.pages.iterdir())


def test_a_script_without_its_first_line_is_the_shells(real):
    """As execvp has it, and `doctor` says so; what is neither is refused."""
    for name, what in (("no", b"echo hi $0 $1\n"), ("empty", b""), ("none", b"#!\necho hi $0 $1\n"), ("binary", b"hi\0")):
        (real.work / name).write_bytes(what)
        (real.work / name).chmod(0o755)
    for name, said in (("no", "hi ./no x\n"), ("empty", ""), ("none", "hi ./none x\n")):
        for option in ((), ("--summary",)):
            done = real.cachalot("run", *option, f"./{name}", "x")
            assert (done.returncode, done.stdout) == (0, said), done.stderr
        assert real.cachalot("doctor", f"./{name}").returncode == 0
    assert real.cachalot("run", "./binary").returncode == 126


def test_doctor_names_what_is_odd(real):
    real.start("hang")[0].kill()
    real.started[-1].wait()
    odd = {"CACHALOT_OUTPTU": "x", "CACHALOT_SIM_DRIVER": "12040", "CACHALOT_ONLY": "train*", "LD_PRELOAD": "/none.so"}
    out = real.cachalot("doctor", env={**real.environment, **odd}).stdout
    for said in ("CACHALOT_OUTPTU means nothing; CACHALOT_OUTPUT?", "before 12.5", "other programs than train*",
                 "/none.so, which is no file", "1 program ended without a report"):
        assert any(line.startswith("note") and said in line for line in out.splitlines()), out


def test_doctor_knows_a_disk_and_all_variables(real):
    disk = real.work / "pages"
    disk.mkdir(mode=0o700)
    out = real.cachalot("doctor", env={**real.environment, "CACHALOT_PAGE_DIR": str(disk), "CACHALOT_CHART_JS": "/none"}).stdout
    on_disk = subprocess.run(["stat", "-f", "-c", "%T", disk], capture_output=True, text=True, check=True).stdout.strip() != "tmpfs"
    assert (f"{disk} is on a disk (" in out) is on_disk and "CACHALOT_CHART_JS" not in out
    assert "on a disk" not in real.cachalot("doctor").stdout


def test_doctor_of_programs(real):
    static, pipe, script = (real.work / name for name in ("static", "pipe", "script"))
    os.mkfifo(pipe, 0o777)
    script.write_text(f"#!{pipe}\n")
    script.chmod(0o755)
    subprocess.run(["cc", "-static", "-xc", "-", "-o", static], text=True, check=True, input="int main(void){return 0;}")
    for program, level, said in ((static, "FAIL", "statically linked"), ("none", "FAIL", "no such program"),
                                 ("/etc/passwd", "FAIL", "is not executable"),
                                 (pipe, "FAIL", "is not executable"), (script, "FAIL", "is not a regular file"), ("true", "note", "names no CUDA")):
        done = real.cachalot("doctor", program)
        assert any(line.startswith(level) and said in line for line in done.stdout.splitlines()), done.stdout
        assert done.returncode == (level == "FAIL")


def test_run_knows_why_there_is_no_report(real):
    program = BUILD / "test/preload/allocate_130"
    for name, value, said in (("CACHALOT_DISABLE", "1", "no report: CACHALOT_DISABLE is set"),
                              ("CACHALOT_ONLY", "train*", "CACHALOT_ONLY=train* leaves programs of other names alone"),
                              ("CACHALOT_DISABEL", "0", "CACHALOT_DISABEL means nothing; CACHALOT_DISABLE?")):
        words = ["true"] if name == "CACHALOT_DISABEL" else [program]
        done = real.cachalot("run", "--summary", *words, env={**real.environment, name: value})
        assert (done.returncode, said in done.stderr) == (0, True), done.stderr
    done = real.cachalot("run", "--check", "max-oom=0", program, env={**real.environment, "CACHALOT_DISABLE": "1"})
    assert done.returncode == 3 and "CACHALOT_DISABLE is set" in done.stderr


def test_doctor_knows_the_toolkits_stub(real):
    """It stands where a linker needs it, and answers 34 to each call."""
    stubs = real.work / "stubs"
    stubs.mkdir()
    subprocess.run(["cc", "-shared", "-xc", "-", "-o", stubs / "libcuda.so.1"], text=True, check=True,
                   input="int cuInit(unsigned f) { return 34; } int cuDriverGetVersion(int *v) { *v = 13000; return 34; }")
    done = real.cachalot("doctor", env={**real.environment, "LD_LIBRARY_PATH": str(stubs)})
    assert done.returncode == 1 and f"FAIL  driver: {stubs}/libcuda.so.1 is the stub of a CUDA toolkit" in done.stdout, done.stdout


def test_doctor_of_a_script(real):
    """Python's options and the script's arguments are no options of ours."""
    (real.work / "t.py").write_text("import numpy\nfrom cupy import zeros\n")
    for words, code, said in ((["t.py", "--lr", "3"], 0, "cupy.cuda.set_allocator(None)"), (["-W", "ignore", "t.py"], 0, "CuPy keeps"),
                              (["-c", "none.py"], 0, "PyTorch keeps"), (["none.py"], 1, "FAIL  program: none.py: no such file"),
                              (["-u", "none.py"], 1, "none.py: no such file"), (["-um", "none"], 0, "PyTorch keeps")):
        done = real.cachalot("doctor", "python3", *words)
        assert (done.returncode, said in done.stdout) == (code, True), done.stdout
    assert real.cachalot("doctor", "--none").returncode == 2


@pytest.mark.parametrize("program, way", [("allocate_130", " by libcudart.so.13"), ("allocate_static", " by cuGetProcAddress"),
                                          ("allocate_driver", "")])
def test_doctor_tries_the_programs_own_way(real, program, way):
    if not (BUILD / "test/preload" / program).exists():
        pytest.skip("not built")
    real.environment["LD_PRELOAD"] = str(SIM / "libcuda.so.1")  # before the library: it serves all the same
    done = real.cachalot("doctor", BUILD / "test/preload" / program)
    assert done.returncode == 0 and f"trial: 2 allocations{way} came through the cache, coverage full" in done.stdout, done.stdout


def test_doctor_names_a_library_that_is_missing(real):
    program, library = real.work / "program", real.work / "libgone.so"
    subprocess.run(["cc", "-shared", "-xc", "-", "-Wl,-soname,libgone.so", "-o", library], text=True, check=True, input="int gone(void) { return 0; }")
    subprocess.run(["cc", "-xc", "-", "-xnone", library, "-o", program], text=True, check=True, cwd=real.work,
                   input="int gone(void); int main(void) { return gone(); }")
    library.unlink()
    done = real.cachalot("doctor", program)
    assert done.returncode == 1 and f"{program} needs libgone.so, which is not found" in done.stdout, done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_env_holds_what_was_asked(place, form):
    done = place.cachalot("env", "--for", form, "--conf", "max_split_size_mb:128", "--output", "o.%q{SLURM_JOB_ID}.json")
    assert done.returncode == 0 and done.stderr == ""
    folder = os.path.dirname(place.environment["CACHALOT_LIBRARY"])
    assert folder in done.stdout or form == "kubernetes"
    for text in ("LD_PRELOAD", "libcachalot.so", "o.%q{SLURM_JOB_ID}.json", "CACHALOT_CONF", "max_split_size_mb:128"):
        assert text in done.stdout, text


@pytest.mark.parametrize("form", ["shell", "slurm", "mpirun", "jupyter"])
def test_env_leaves_other_hooks_before_the_library(real, form):
    tool, other = BUILD / "test/preload/libanother_preload.so", "/lib/libother.so"
    if not tool.exists():
        pytest.skip("not built")
    library = real.environment["CACHALOT_LIBRARY"]
    done = real.cachalot("env", "--for", form, env={**real.environment, "LD_PRELOAD": f"{other}:{tool}:{library}"})
    assert f"{tool}:{library}" in done.stdout and done.stdout.count(str(tool)) == (2 if form == "mpirun" else 1), done.stdout


def test_env_for_apptainer_has_no_comma_where_it_would_split(place):
    line = place.cachalot("env", "--for", "apptainer", "--conf", "max_split_size_mb:128,free_mode:fence", "--output", "a,b.%p.json").stdout
    words = shlex.split(line)
    assert "APPTAINERENV_CACHALOT_OUTPUT=a,b.%p.json" in words and "APPTAINERENV_CACHALOT_CONF=max_split_size_mb:128,free_mode:fence" in words
    assert not any("," in words[i + 1] for i, word in enumerate(words) if word == "--env")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("output", ["a%z.%q{SLURM_JOB_ID}.json", "%q{SLURM_JOB_ID}/", "a\n%q{SLURM_JOB_ID}.json", "/"])
def test_env_refuses_patterns_for_every_place(place, form, output):
    done = place.cachalot("env", "--for", form, "--output", output)
    assert done.returncode == 2 and done.stdout == ""


@pytest.mark.parametrize("form", ["docker", "kubernetes"])
def test_env_for_containers_looks_at_no_disk_of_this_machine(place, form):
    (place.work / "r.json").mkdir()
    assert place.cachalot("env", "--for", form, "--output", "r.json").returncode == 0


@pytest.mark.parametrize("form, name, is_well", [
    ("slurm", "a,b", False), ("docker", "a:b", False), ("apptainer", "a,b", False), ("apptainer", "a:b", False), ("docker", "a,b", True),
    ("mpirun", "a,b", True), ("shell", "a,b", True)])
def test_env_of_a_library_at_whose_path_a_tool_would_split(place, form, name, is_well):
    shutil.copytree(place.work / "lib", place.work / name)
    place.environment["CACHALOT_LIBRARY"] = str(place.work / name / "libcachalot.so")
    done = place.cachalot("env", "--for", form)
    assert done.returncode == (0 if is_well else 2) and (is_well or f"has a `{name[1]}`, at which" in done.stderr)
    assert is_well or form == "slurm" or place.cachalot("env", "--for", form, "--output", f"/{name}/x.json").returncode == 2


@pytest.mark.parametrize("form", FORMS)
def test_env_prints_the_bytes_that_were_given(place, form):
    output = "ü.%q{SLURM_JOB_ID}.json"
    for more in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}):
        done = subprocess.run([*COMMAND, "env", "--for", form, "--output", output], env={**place.environment, **more}, cwd=place.work,
                              capture_output=True, check=True)
        assert output.encode() in done.stdout, done.stdout


def test_env_that_cannot_be(place):
    assert place.cachalot("env", "--for", "else").returncode == 2
    assert place.cachalot("env", "x").returncode == 2
    assert place.cachalot("env", "--conf", "x:y").returncode == 2
    assert place.cachalot("env", "--output", "reports/").returncode == 2
    done = place.cachalot("env", "--for", "slurm", "--output", "reports/%h.%r.json")
    assert done.returncode == 2 and "reports of earlier jobs are judged" in done.stderr


@pytest.mark.parametrize("name", ["lib", "a 'b' $c"])
def test_env_for_a_shell_can_be_evaluated(place, name):
    folder = place.work / name
    if name != "lib":
        shutil.copytree(place.work / "lib", folder)
        place.environment["CACHALOT_LIBRARY"] = str(folder / "libcachalot.so")
    done = place.cachalot("env", "--output", "a b.json")
    lines = done.stdout
    assert ("on each node" in done.stderr) is (name != "lib")
    shown = place.run("sh", "-c", f'LD_PRELOAD=/none/before.so; {lines}\nexec cat /proc/self/environ').stdout
    got = dict(entry.split("=", 1) for entry in shown.split("\0") if "=" in entry)
    first, last = got["LD_PRELOAD"].split(":")
    assert os.path.realpath(first) == str(folder / "libcachalot.so") and last == "/none/before.so"
    assert got["CACHALOT_OUTPUT"] == "a b.json"
    assert re.fullmatch(r"\d+-\d+", got["CACHALOT_SESSION"])
    shown = place.run("sh", "-c", f"CACHALOT_SESSION=job; {lines}\necho $CACHALOT_SESSION").stdout
    assert shown == "job\n"  # one that is there goes on


def in_a_job(place, task):
    """An environment with a `srun` that is this machine's shell, and with that for `python3`."""
    nodes = 'case $1 in --ntasks=1) shift 2; exec "$@"; esac; '
    for name, text in (("srun", nodes + 'shift_to="${1#--export=ALL,}"; shift; for r in 0 1; do SLURM_PROCID=$r env "$shift_to" "$@"; done'),
                       ("python3", task)):
        (place.work / name).write_text(f"#!/bin/sh\n{text}\n")
        (place.work / name).chmod(0o755)
    return {**place.environment, "PATH": f"{place.work}:{os.environ['PATH']}", "SLURM_JOB_ID": "5", "SLURM_NTASKS": "2"}


def test_env_for_slurm_runs(place):
    """Tasks have the library, the job script itself has not."""
    environment = in_a_job(place, "echo preloaded:$LD_PRELOAD rank:$SLURM_PROCID")
    lines = place.cachalot("env", "--for", "slurm").stdout
    commands = [line for line in lines.splitlines() if "/cachalot " not in line]
    out = place.run("sh", "-c", "\n".join([*commands, 'echo "after:$LD_PRELOAD"']), env=environment).stdout
    library = place.environment["CACHALOT_LIBRARY"]
    assert out == f"preloaded:{library} rank:0\npreloaded:{library} rank:1\nafter:\n"
    check = shlex.split(next(line for line in lines.splitlines() if "/cachalot check " in line))
    assert os.path.isfile(check[0]) and os.stat(check[0]).st_mode & stat.S_IXUSR


def script_of(place, *options):
    """The lines for a batch script, in which `cachalot` does not run by that `python3`."""
    (place.work / "cachalot").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (place.work / "cachalot").chmod(0o755)
    return re.sub(r"\S*/cachalot'? (check|harvest)", r"cachalot \1", place.cachalot("env", "--for", "slurm", *options).stdout)


@pytest.mark.parametrize("output", [None, "%q{SLURM_JOB_ID}/%h.%r.json", "%r/%q{SLURM_JOB_ID}.json", "-%q{SLURM_JOBID}.%p.%n.json",
                                    "a b/%%[x]/%q{SLURM_JOB_ID}%q{SLURM_PROCID}",
                                    "%q{SLURM_ARRAY_TASK_ID}/x.%p.json"])
def test_env_for_slurm_judges_the_reports_that_it_asks_for(real, output):
    environment = {**in_a_job(real, f"exec {BUILD}/test/preload/allocate_130"), "SLURM_JOBID": "5", "SLURM_ARRAY_TASK_ID": "1"}
    script = script_of(real, *(("--output", output) if output else ()))
    judged = real.run("sh", "-c", script, env=environment)
    assert "ok   require-reports (at least 2): reports of 2 processes" in judged.stdout, (script, judged.stdout)
    again = real.run("sh", "-c", script, env={**environment, "SLURM_RESTART_COUNT": "1"})  # its reports lie beside those of before
    assert "ok   require-reports (at least 2): reports of 2 processes" in again.stdout
    assert "2 reports of other runs" in again.stdout or output and "%p" not in output


def test_env_for_slurm_has_the_reports_of_killed_tasks(real):
    environment = in_a_job(real, f"exec {BUILD}/test/preload/end kill")
    script = script_of(real)
    judged = real.run("sh", "-c", script, env=environment)
    assert "ok   require-reports (at least 2): reports of 2 processes" in judged.stdout, (script, judged.stdout, judged.stderr)


@pytest.mark.parametrize("output, folder", [
    (None, "/reports"), ("o.%p.json", "/reports"), ("/out/%h/%p.json", "/out"), ("/a b/c.json", "/a b"), ("/dev/null", "/reports")])
def test_env_for_containers_mounts_where_the_reports_go(place, output, folder):
    more = ("--output", output) if output else ()
    words = shlex.split(place.cachalot("env", "--for", "docker", *more).stdout.partition("docker run")[2])
    mounts = [words[i + 1].partition(":")[2] for i, word in enumerate(words) if word == "-v"]
    (asked,) = (word for word in words if word.startswith("CACHALOT_OUTPUT="))
    assert place.cachalot("env", "--for", "docker", "--output", "../%p.json").returncode == 2
    assert folder in mounts and (asked.startswith(f"CACHALOT_OUTPUT={folder}/") or output == "/dev/null")
    pod = place.cachalot("env", "--for", "kubernetes", *more).stdout
    assert f'mountPath: "{folder}"' in pod and asked.partition("=")[2] in pod
    bound = f"--bind {shlex.quote(folder)} " in place.cachalot("env", "--for", "apptainer", *more).stdout
    assert bound is (folder != "/reports")
    assert place.cachalot("env", "--for", "docker", "--output", "/%p.json").returncode == 2


def test_env_for_jupyter_and_kubernetes_can_be_parsed(place):
    kernel = json.loads(place.cachalot("env", "--for", "jupyter", "--conf", "cache:off").stdout)
    assert kernel["env"]["LD_PRELOAD"] == place.environment["CACHALOT_LIBRARY"]
    assert kernel["env"]["CACHALOT_CONF"] == "cache:off" and "{connection_file}" in kernel["argv"]
    yaml = pytest.importorskip("yaml")
    claim, pod = yaml.safe_load_all(place.cachalot("env", "--for", "kubernetes", "--conf", "cache:off").stdout)
    pod = pod["spec"]
    values = {e["name"]: e["value"] for e in pod["containers"][0]["env"]}
    assert values["LD_PRELOAD"] == "/opt/cachalot/libcachalot.so" and values["CACHALOT_CONF"] == "cache:off"
    assert {m["name"] for m in pod["containers"][0]["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    kept = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if v["name"] == "reports"]
    assert kept == [claim["metadata"]["name"]] and claim["kind"] == "PersistentVolumeClaim"


def test_env_for_docker_copies_one_file(place):
    first, copy = place.cachalot("env", "--for", "docker").stdout.splitlines()[:2]
    place.run("sh", "-c", re.search(r"\(first: (.*)\)", first)[1])
    assert os.path.isfile(place.work / copy.split()[1]) and copy.split()[2] == "/opt/cachalot/"


def docs(what):
    return subprocess.run([sys.executable, "-B", ROOT / "scripts/build/make_docs.py", what, ROOT / "scripts/cachalot", "1.0"],
                          capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not shutil.which("man"), reason="no man")
def test_the_man_page_fits_a_terminal(place):
    (place.work / "cachalot.1").write_text(docs("man"))
    done = place.run("man", "--warnings", "-l", "cachalot.1",
                     env={**place.environment, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
    assert done.stderr == "" and max(map(len, done.stdout.splitlines())) <= 80 and "usage: cachalot top" in done.stdout


@pytest.mark.parametrize("words, offered", [
    *((f"run {option} pyf", "") for option in ("--html", "--output", "--trace", "--conf", "--check", "--summary --html", "--html =")),
    ("run pyf", "pyfound"), ("run --html --trace pyf", "pyfound"), ("run --html = x pyf", "pyfound"), ("run --summary pyf", "pyfound"),
    ("top --sort re", "reserved"), ("top --sort ", "allocated reserved waste hits waits grows pid"), ("check --format gi", "github")])
def test_completion(place, words, offered):
    (place.work / "completion").write_text(docs("bash"))
    (place.work / "pyfound").touch(0o755)
    script = '. ./completion; PATH=$PWD; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cachalot; echo "${COMPREPLY[@]}"'
    done = place.run("bash", "-c", script, "bash", "cachalot", *words.split(" "))
    assert (done.stdout, done.stderr) == (f"{offered}\n", "")


def test_the_example_for_github_actions(place):
    """YAML with the keys that GitHub asks for, and no command or option that there is not."""
    yaml = pytest.importorskip("yaml")
    root = pathlib.Path(__file__).resolve().parents[2]
    flow = yaml.safe_load((root / "examples/github-actions.yml").read_text())
    (job,) = flow["jobs"].values()
    assert {"name", "jobs", True} == set(flow) and {"runs-on", "steps"} <= set(job)  # `on` is YAML's true
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    lines = [step["run"] for step in job["steps"] if step.get("run", "").startswith("cachalot ")]
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line)
        text = place.cachalot(words[1], "--help").stdout
        assert all(word in text for word in words[2:] if word.startswith("--")), line
        assert place.run("sh", "-n", "-c", line).returncode == 0


def in_the_action(place, expression, inputs, event):
    """What GitHub puts in the stead of an expression."""
    known = {"github.run_id": "7", "github.run_attempt": "1", "github.token": "secret", "github.event.pull_request.comments_url": event}
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: inputs[found[1][7:]] if found[1].startswith("inputs.") else known[found[1]], expression)


@pytest.mark.parametrize("event, growth, code", [("https://api/comments", "5%,8MiB", 0), ("", "1%", 1)])
def test_the_action_runs_gates_and_comments(real, event, growth, code):
    """examples/action: its steps by bash, as GitHub's runner calls it, with a `curl` that keeps what it is given."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((pathlib.Path(__file__).resolve().parents[2] / "examples/action/action.yml").read_text())
    inputs = {name: each.get("default") for name, each in action["inputs"].items()}
    holes = shlex.quote(f"{BUILD}/test/workloads/seed4a_holes")
    inputs.update(command=f"{holes} '<b>'", gates="--max-leaked 90MiB --max-oom 0", growth=growth)
    tools = real.work / "tools"
    tools.mkdir()
    for name, text in (("cachalot", f'exec {shlex.join(COMMAND)} "$@"'), ("curl", 'printf "%s\\n" "$@" >>"$RUNNER_TEMP/asked"; cat >>"$RUNNER_TEMP/asked"')):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    (real.work / "temp").mkdir()
    environment = {**real.environment, "PATH": f"{tools}:{os.environ['PATH']}", "RUNNER_TEMP": str(real.work / "temp"),
                   "GITHUB_STEP_SUMMARY": str(real.work / "summary")}
    real.cachalot("run", "--output", "baseline/%e.json", *shlex.split(holes))
    old = json.loads((real.work / "baseline/seed4a_holes.json").read_text())
    old["totals"]["peak_reserved_bytes"] -= 4 << 20
    (real.work / "baseline/seed4a_holes.json").write_text(json.dumps(old))
    codes, said = {}, ""
    for step in action["runs"]["steps"]:
        (real.work / "step.sh").write_text(step["run"])
        own = {name: in_the_action(real, value, inputs, event) for name, value in step.get("env", {}).items()}
        done = real.run("bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh", env={**environment, **own})
        codes[step["name"]], said = done.returncode, said + done.stdout + done.stderr
    assert codes == {"Run": 0, "Reports of what was killed": 0, "What changed": 0, "Gate": code}, said
    assert ("::error title=cachalot%3A increase of peak_reserved_bytes" in said or "::error file=" in said) == bool(code)
    summary = (real.work / "summary").read_text()
    assert "GPU memory: The new run reserved 4 MiB" in summary and "<pre>" in summary
    asked = real.work / "temp/asked"
    assert asked.exists() == bool(event)
    assert not event or (event in asked.read_text() and json.loads(asked.read_text().splitlines()[-1])["body"] == summary)
