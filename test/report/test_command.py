"""The command scripts/cachalot: run, dump, empty-cache, harvest."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import time

import pytest
from conftest import COMMAND, ROOT, built, load

SUBCOMMANDS = re.findall(r"^    \"([a-z-]+)\": \(", (ROOT / "scripts/cachalot").read_text(), re.M)


def page_child(place, what):
    return [built("make_page"), str(place.pages), what]


@pytest.mark.parametrize("arguments", [(), *((c,) for c in SUBCOMMANDS)])
def test_help_fits_a_screen_and_has_an_example(place, arguments):
    done = place.cachalot(*arguments, "--help")
    assert done.returncode == 0 and "example: cachalot" in done.stdout
    assert "Exit code: " in done.stdout and done.stdout.startswith("usage: cachalot ")
    assert len(done.stdout.splitlines()) <= 24
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert place.cachalot(*arguments, "-h").stdout == done.stdout


def test_nothing_is_said_of_an_interrupt_before_the_command_begins(place):
    shutil.copytree(ROOT / "scripts", place.work / "scripts")
    tools = place.work / "scripts/cachalot_command/common/tools.py"
    tools.write_text(f"import os\nos.kill(os.getpid(), {signal.SIGINT:d})\n" + tools.read_text())
    for ignored, code in (("", -signal.SIGINT), ("trap '' INT; ", 0)):
        done = place.run("sh", "-c", f"{ignored}exec python3 scripts/cachalot --help")
        assert (done.returncode, done.stderr) == (code, "")


def test_usage(place):
    assert place.cachalot().returncode == 2
    assert place.cachalot("else").returncode == 2
    assert place.cachalot("--version").stdout.startswith("cachalot 0.")
    for command in SUBCOMMANDS:
        assert place.cachalot(command, "--else").returncode == 2, command
        assert place.cachalot("help", command).stdout == place.cachalot(command, "--help").stdout


def test_options_in_either_form(place):
    """key=value is key:value, for all who take options; and what has a = within its value stays."""
    shown = place.cachalot("run", "--conf", "max_split_size_mb=128, free_mode:fence,cache=on", "sh", "-c", "echo $CACHALOT_CONF").stdout
    assert shown == "max_split_size_mb:128, free_mode:fence,cache:on\n"
    assert "CACHALOT_CONF=max_split_size_mb:128\n" in place.cachalot("env", "--conf=max_split_size_mb=128").stdout
    (place.work / "t").write_text("a,0,1000000,0\n")
    done = place.cachalot("replay", "t", "--conf", "expandable_segments=False")
    assert "Options: expandable_segments:False" in done.stdout, done.stderr
    tuned = place.cachalot("tune", "t", "--conf", "expandable_segments=False").stdout
    assert "CACHALOT_CONF=expandable_segments:False" in tuned
    assert place.cachalot("replay", "t", "--capacity", ".5GiB").returncode == 0


def test_what_was_done_is_said(place):
    (place.work / "t").write_text("a,0,1000000,0\nf,0\n")
    done = place.cachalot("export", "t", "--perfetto", "x.json", "--csv", "-")
    assert re.fullmatch(r"cachalot: x.json: [0-9.]+ K?i?B, 3 events of 1 device\n", done.stderr), done.stderr
    process, _ = place.start("report")
    process.wait()
    done = place.cachalot("harvest")
    assert done.stdout == "" and done.stderr == f"cachalot: make_page ({process.pid}): its page is removed, its report is there\n"
    assert "nothing to do" in place.cachalot("harvest").stderr


@pytest.mark.parametrize("words, code, said", [
    ("run --summary=1 true", 2, "--summary takes no value"), ("ls --json=1", 2, "--json takes no value"),
    ("run --html= true", 2, "--html needs a value"), ("show -- none", 3, "none: No such file"),
    ("show x --json", 2, "unknown option --json; see `cachalot show --help`"), ("shwo x", 2, "; did you mean show?"),
    ("ls --jsn", 2, "; did you mean --json?"), ("check x --max-leak 0", 2, "; did you mean --max-leaked?"),
    ("run --sumary true", 2, "; did you mean --summary?"), ("help cnof", 2, "; did you mean conf?"),
    ("run --conf expandble_segments:True true", 2, "; did you mean expandable_segments?"),
    ("show run.trace", 3, "a recorded trace, not a report"), ("check run.trace --max-oom 0", 3, "a recorded trace, not a report"),
    ("replay x.json", 3, "x.json: line 1: this is JSON, not a trace"),
    ("show x.json", 3, "x.json is a report of version 2.0.0; this cachalot reads version 1")])
def test_mistakes_are_named(place, words, code, said):
    (place.work / "run.trace").write_bytes(b"CACHALOT-TRACE\n\0" + bytes(4096))
    (place.work / "x.json").write_text('{"schema_version": "2.0.0"}')
    done = place.cachalot(*words.split())
    assert done.returncode == code and said in done.stdout + done.stderr


def test_modules_of_the_users_are_not_loaded(place):
    """Wherever PYTHONPATH has them; for the program it stays as it is."""
    for name in ("secrets", "html", "contextlib", "json"):
        (place.work / f"{name}.py").write_text("raise SystemExit(9)\n")
    (place.work / "x.json").write_text("{}")
    for path in (".", ":/none", str(place.work), f"{os.path.dirname(os.__file__)}:."):
        place.environment["PYTHONPATH"] = path
        assert place.cachalot("run", "sh", "-c", "echo $PYTHONPATH").stdout == f"{path}\n"
        assert place.cachalot("check", "x.json", "--max-oom", "0").returncode == 3


@pytest.mark.parametrize("name", ["-pages", "a\u2028b", "a\nb", "a b\t"])
def test_a_directory_of_pages_of_any_name(place, name):
    (place.work / name).mkdir(mode=0o700)
    process, path = place.start("hang")
    process.kill()
    process.wait()
    shutil.move(path, place.work / name)
    for words, more in ((["--", name], {}), ([], {"CACHALOT_PAGE_DIR": name})):
        done = place.cachalot("ls", "--json", *words, env={**place.environment, **more})
        assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "killed"), done
    done = place.cachalot("harvest", env={**place.environment, "CACHALOT_PAGE_DIR": name})
    assert done.returncode == 0 and not list((place.work / name).iterdir()), done


def test_an_empty_path_is_the_current_directory(place):
    for name, mode in (("own", 0o755), ("other", 0o644)):
        (place.work / name).write_text("#!/bin/sh\necho own\n")
        (place.work / name).chmod(mode)
    for path in ("", ":/none", "/none::/none"):
        place.environment["PATH"] = path
        assert place.cachalot("run", "own").stdout == "own\n"
        assert [place.cachalot("run", name).returncode for name in ("other", "none", "")] == [126, 127, 127]


@pytest.mark.parametrize("name", ["try", "test", "package"])
def test_scripts_say_what_they_are(place, name):
    """Also through a link; nothing is built."""
    (place.work / name).symlink_to(ROOT / "scripts" / name)
    for option in ("--help", "-h"):
        done = place.run(f"./{name}", option)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(f"usage: scripts/{name}"), done
        assert "\n\n" not in done.stdout and "set -eu" not in done.stdout
    assert {path.name for path in place.work.iterdir()} == {"lib", name}


def test_scripts_load_no_module_from_where_they_are_called(place, model):
    for name in ("ctypes", "json", "signal"):
        (place.work / f"{name}.py").write_text("print('mine')\nraise SystemExit(9)\n")
    model["process"]["session"] = "s"
    (place.work / "cachalot.x.1.json").write_text(json.dumps(model))
    script = f". {shlex.quote(str(ROOT))}/scripts/build/setup.sh; gpu_name; say_reports"
    done = place.run("bash", "-c", script, env={**place.environment, "CACHALOT_SESSION": "s"})
    assert "mine" not in done.stdout and "cachalot.x.1.json" in done.stdout, done


def test_run_sets_the_environment_and_keeps_the_rest(place):
    place.environment["LD_PRELOAD"] = "libnothere.so libasan.so.8"
    place.environment.pop("LC_CTYPE", None)
    place.environment["LC_ALL"] = ""
    done = place.cachalot("run", "--output", "o %p", "--", "env", "-0")
    got = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    library = place.environment["CACHALOT_LIBRARY"]
    assert got["LD_PRELOAD"] == f"libasan.so.8:{library}:libnothere.so"
    assert got["CACHALOT_OUTPUT"] == "o %p" and got["CACHALOT_SESSION"]
    for name in ("LD_PRELOAD", "CACHALOT_OUTPUT", "CACHALOT_SESSION"):
        got.pop(name)
    assert {**got, "LD_PRELOAD": "libnothere.so libasan.so.8"} == place.environment


def test_run_keeps_pid_arguments_and_session(place):
    place.environment["CACHALOT_SESSION"] = "outer"
    script = 'echo $$ "$0" "$CACHALOT_SESSION" $1'
    with subprocess.Popen([*COMMAND, "run", "sh", "-c", script, "-x", "--summary"],
                          env=place.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.read() == f"{process.pid} -x outer --summary\n"


@pytest.mark.parametrize("option", [(), ("--summary",)])
@pytest.mark.parametrize("script, code", [
    ("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("kill -USR1 $$; exit 3", 3)])
def test_run_ends_like_the_program(place, option, script, code):
    assert place.cachalot("run", *option, "sh", "-c", script).returncode == code


def test_signals_of_the_program_are_as_usual(place):
    look = ("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status")

    def masks(done):
        return [int(mask, 16) for mask in re.findall("[0-9a-f]{16}", done.stdout)]

    blocked, ignored = usual = masks(subprocess.run(look, stdout=subprocess.PIPE, text=True, check=True))
    assert masks(place.cachalot("run", *look)) == [blocked, ignored | 1 << (signal.SIGUSR1 - 1)]
    place.environment["CACHALOT_SIGNAL"] = "none"
    for option in ((), ("--summary",)):
        assert masks(place.cachalot("run", *option, *look)) == usual


def test_summary_forwards_signals(place):
    script = 'trap "exit 5" TERM; echo ready; while :; do sleep 0.05; done'
    with subprocess.Popen([*COMMAND, "run", "--summary", "sh", "-c", script], text=True,
                          env=place.environment, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.terminate()
        assert process.wait(10) == 5


@pytest.mark.parametrize("words, where, code", [
    ("check x.json --max-oom 0", ">/dev/full", 3), ("show x.json", ">/dev/full", 3), ("--help", ">/dev/full", 3),
    ("show x.json", ">&-", 0), ("check x.json --max-oom 0", ">&- 2>&-", 0), ("check none.json --max-oom 0", "2>&-", 3),
    ("show none.json", "2>/dev/full", 3), ("run /none/x", "2>/dev/full", 127),
    ("run --summary sh -c 'exit 7'", "2>/dev/full", 7), ("run --check max-oom=0 sh -c 'exit 0'", "2>/dev/full", 3)])
def test_output_that_is_full_or_closed(place, model, words, where, code):
    """No traceback, the program's own exit code, and no verdict where none could be said."""
    (place.work / "x.json").write_text(json.dumps(model))
    done = place.run("sh", "-c", f"{shlex.join(COMMAND)} {words} {where}")
    assert done.returncode == code and "Traceback" not in done.stderr and "ignored" not in done.stderr, done.stderr
    assert code != 3 or "2>" in where or "No space left on device" in done.stderr


def test_own_errors(place):
    assert place.cachalot("run").returncode == 2
    assert place.cachalot("run", "--output").returncode == 2
    assert place.cachalot("run", "no-such-program").returncode == 127
    assert place.cachalot("run", "./none").returncode == 127
    assert place.cachalot("run", "/etc/passwd").returncode == 126
    assert place.cachalot("run", "/").returncode == 126
    script = place.work / "s"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert place.cachalot("run", script).returncode == 126


@pytest.mark.parametrize("name, value, said", [
    ("SIGNAL", "NOSUCH", "give USR1"), ("SIGNAL", "TERM", "give USR1"), ("SIGNAL", "KILL", "give USR1"), ("SIGNAL", "12", "give USR1"),
    ("SIGNAL", "sigusr2", None), ("SIGNAL", "40", None), ("SIGNAL", "", None),
    ("CONF", "junk:1", "CACHALOT_CONF: "), ("CONF", "free_mode:fence,", None)])
def test_the_environment_is_looked_at_before_the_program_starts(place, name, value, said):
    """What the library would only warn of is refused; a signal that it does not take is not ignored in the program's stead."""
    place.environment[f"CACHALOT_{name}"] = value
    done = place.cachalot("run", "sh", "-c", "exit 7")
    assert (done.returncode, said is None or said in done.stderr) == (125 if said else 7, True), done.stderr


def refused(place, program, text):
    done = place.cachalot("run", program)
    assert done.returncode == 125 and text in done.stderr, done.stderr


def test_static_and_foreign_programs_are_refused(place):
    program = place.work / "static"
    subprocess.run(["cc", "-static", "-xc", "-", "-o", program], text=True, check=True,
                   input="int main(void){return 0;}")
    refused(place, program, "statically linked")
    script = place.work / "script"
    script.write_text(f"#!{program} -x\n")
    script.chmod(0o755)
    refused(place, script, "statically linked")
    data = bytearray(open("/bin/true", "rb").read())
    for name, machine, text in (("arm", 183, "another architecture"), ("musl", None, "musl")):
        changed = bytearray(data)
        if machine:
            struct.pack_into("<H", changed, 18, machine)
        else:
            changed = changed.replace(b"/lib64/ld-linux-x86-64.so.2\0",
                                      b"/lib/ld-musl-x86_64.so.1\0\0\0\0")
        (place.work / name).write_bytes(changed)
        (place.work / name).chmod(0o755)
        refused(place, place.work / name, text)


@pytest.mark.parametrize("length", range(4, 120, 7))
def test_cut_off_elf_is_an_error_not_a_crash(place, length):
    program = place.work / "cut"
    program.write_bytes(open("/bin/true", "rb").read()[:length])
    program.chmod(0o755)
    done = place.cachalot("run", program)
    assert done.returncode in (125, 126) and "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another owner")
def test_setuid_is_refused(place):
    program = place.work / "setuid"
    shutil.copy("/bin/true", program)
    os.chown(program, 65534, 65534)
    program.chmod(0o755 | stat.S_ISUID)
    refused(place, program, "setuid")
    program.chmod(0o755 | stat.S_ISGID)
    refused(place, program, "setgid")


@pytest.fixture(params=["a b", "a:b"])
def odd(request, place):
    """A place whose library has a path that LD_PRELOAD cannot hold."""
    (place.work / request.param).mkdir()
    for file in ("libcachalot.so", "cachalot-page"):
        shutil.copy(place.work / "lib" / file, place.work / request.param / file)
    place.environment["CACHALOT_LIBRARY"] = str(place.work / request.param / "libcachalot.so")
    return place


def test_a_blank_in_the_librarys_path_is_got_round(odd):
    for _ in range(2):
        done = odd.cachalot("run", "sh", "-c", "echo $LD_PRELOAD; cat /proc/self/maps")
        path, _, maps = done.stdout.partition("\n")
        assert done.returncode == 0 and done.stderr == "" and path.startswith(str(odd.pages))
        assert os.path.realpath(path) == odd.environment["CACHALOT_LIBRARY"]
        assert odd.environment["CACHALOT_LIBRARY"] in maps
    assert odd.cachalot("ls").returncode == 0  # the link is no page


def test_a_link_where_others_may_change_it_is_not_made(odd):
    odd.pages.chmod(0o777)
    refused(odd, "true", "blank or a colon")


def test_summary_harvests_what_was_killed(place):
    place.environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"  # should make_page have it
    command = ["run", "--summary", "--output", "r.json", "sh", "-c",
               f'{" ".join(page_child(place, "hang"))} >ready & '
               'until test -s ready; do sleep 0.02; done; kill -9 $!; wait; '
               f'{" ".join(page_child(place, "report"))}; '
               f'exec {" ".join(page_child(place, "exit"))}']
    done = place.cachalot(*command)
    assert done.returncode == 0
    assert len(re.findall(r"make_page", done.stderr)) == 3, done.stderr
    reports = [load(path) for path in place.work.glob("r*.json")]
    assert sorted(r["kind"] for r in reports) == ["exit", "harvest", "harvest"]
    assert not list(place.pages.iterdir())


def test_harvest(place):
    process, page = place.start("hang")
    assert place.cachalot("harvest").stdout == ""
    process.kill()
    process.wait()
    (place.pages / "bad.page").write_text("x")
    done = place.cachalot("harvest")
    assert done.returncode == 3 and "bad.page" in done.stderr
    assert load(done.stdout[:-1])["process"]["pid"] == process.pid
    assert not os.path.exists(page)
    assert place.cachalot("harvest", "no-such-directory").returncode == 3


def test_harvest_of_several_into_one_name(place):
    for _ in range(2):
        place.start("exit")[0].wait()
    done = place.cachalot("harvest", "--output", "all.json")
    assert done.returncode == 0 and len(set(done.stdout.splitlines())) == 2


def test_harvest_keeps_the_page_when_no_report_could_be_written(place):
    process, page = place.start("exit", CACHALOT_OUTPUT="d.json")
    process.wait()
    (place.work / "d.json").mkdir()
    done = place.cachalot("harvest")
    assert done.returncode == 1 and "cannot be written to" in done.stderr and os.path.exists(page)
    assert f"{place.work}/d.json: Is a directory" in done.stderr


@pytest.mark.parametrize("mode, said", [(0o700, "cannot be written to /proc/none/o.json: "), (0o777, " is open to others")])
def test_a_report_that_could_not_be_written_is_not_none_at_all(place, mode, said):
    """Where its page is kept it is not said that nothing came through the cache."""
    place.pages.chmod(mode)
    child = page_child(place, "exit") if mode == 0o700 else ["true"]
    done = place.cachalot("run", "--check", "max-oom=0", "--output", "/proc/none/o.json", *child)
    assert done.returncode == 3 and said in done.stderr, done.stderr
    assert ("no process of this run" in done.stderr) == (mode != 0o700)


def test_no_directory_of_pages(place):
    """The usual one is made by the first program; one that was named must be there."""
    place.environment["CACHALOT_PAGE_DIR"] = none = str(place.pages / "none")
    done = place.cachalot("top", "--once", "--interval", "0.2")
    assert done.returncode == 3 and f"{none}: No such file or directory" in done.stdout
    for command in ("ls", "harvest", "dump --all", "empty-cache 7"):
        done = place.cachalot(*command.split())
        assert done.returncode == 3 and f"CACHALOT_PAGE_DIR={none} is not a directory" in done.stderr


@pytest.mark.parametrize("command", ["ls", "harvest", "dump --all", "empty-cache --all", "top --once"])
def test_pages_in_what_is_no_directory(place, command):
    place.environment["CACHALOT_PAGE_DIR"] = "/etc/passwd"
    done = place.cachalot(*command.split())
    assert done.returncode == 3 and re.search("/etc/passwd.* [Nn]ot a directory|/etc/passwd is not a directory", done.stdout + done.stderr)


def test_dump_and_empty_cache(place):
    process, _ = place.start("serve")
    done = place.cachalot("dump", process.pid, "--segments")
    assert done.returncode == 0 and load(done.stdout[:-1])["kind"] == "request"
    assert place.cachalot("empty-cache", "--all").stdout == f"make_page ({process.pid}): emptied\n"
    done = place.cachalot("dump", os.getpid())
    assert done.returncode == 3 and "cachalot run" in done.stderr
    for wrong in ((), (1, "--all"), ("x",), (1, 2), (process.pid, "--timeout", "x")):
        assert place.cachalot("dump", *wrong).returncode == 2, wrong


def test_dump_of_a_process_that_does_not_answer(place):
    process, _ = place.start("mute")
    done = place.cachalot("dump", process.pid, "--timeout", "0.3")
    assert done.returncode == 1 and "did not answer" in done.stderr


def test_dump_notices_that_the_process_dies(place):
    process, page = place.start("mute")
    quiet = pathlib.Path(page).read_bytes()
    with subprocess.Popen([*COMMAND, "dump", str(process.pid)], env=place.environment, text=True,
                          stderr=subprocess.PIPE) as asker:
        while pathlib.Path(page).read_bytes() == quiet and asker.poll() is None:
            time.sleep(0.02)
        process.kill()
        process.wait()
        assert "ended before it answered" in asker.stderr.read() and asker.wait() == 1
