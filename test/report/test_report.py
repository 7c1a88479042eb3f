"""Reports made of pages, through cachalot-page."""

import fcntl
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from cachalot_command.command import doctor
import jsonschema
import pytest
from conftest import COMMAND, ROOT, VALIDATOR, built, load


def end(process, number=signal.SIGKILL):
    process.send_signal(number)
    process.wait()


def test_exit_report_is_valid_and_counts(place):
    process, _ = place.start("report")
    report = load(process.stdout.readline().rstrip("\n"))
    totals = report["totals"]
    assert (totals["requests"], totals["frees"], totals["hits"]) == (3, 1, 1)
    assert totals["leaked_bytes"] == (3 << 20) + 1024 and totals["leaked_blocks"] == 2
    assert report["coverage"]["status"] == "full" and report["exit"]["clean"] is True
    flat = report["devices"][0]["memory_stats"]
    assert flat["allocated_bytes.all.peak"] == (3 << 20) + 2048
    assert flat["max_split_size"] == -1 and flat["num_hits"] == 1
    assert [w["count"] for w in report["warnings"]] == [2]
    assert len(report["devices"]) == 1  # the unused row is not listed


def test_out_of_memory_and_events(place):
    process, _ = place.start("report")
    report = load(process.stdout.readline().rstrip("\n"))
    (event,) = report["oom_events"]
    assert event["pending_bytes"] == 2 << 20 and "2.0 MiB were freed but still in use" in event["explanation"]
    events = report["events"]
    assert (events["capacity"], events["lost"], len(events["rows"])) == (16, 4, 16)
    assert [int(row["address"], 16) for row in events["rows"]] == [4096 * i for i in range(4, 20)]
    assert {row["site"] for row in events["rows"]} == {None}  # there is no table of sites


def test_schema_refuses_what_is_not_a_report(place):
    process, _ = place.start("report")
    report = load(process.stdout.readline().rstrip("\n"))
    for change in ({"extra": 1}, {"kind": "else"}, {"totals": {}}, {"sequence": 2**53}):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({**report, **change})


def test_killed_process_is_harvested(place):
    process, page = place.start("hang")
    assert place.tool("report", page).returncode == 1  # alive
    end(process)
    done = place.tool("report", page, "--reason", "killed", "--signal", "9")
    assert done.returncode == 0, done.stderr
    report = load(done.stdout[:-1])
    assert report["kind"] == "harvest" and report["time"]["uptime_ns"] is None
    assert report["exit"] == {"reason": "killed", "code": None, "signal": 9, "clean": False}
    assert [leak["up_to_bytes"] for leak in report["leaks"]] == [4 << 20, 1024]


def test_no_snapshot_is_lost_to_the_last_report(place):
    place.environment["CACHALOT_OUTPUT"] = "r.%n.json"
    process, _ = place.start("serve")
    for number in (1, 2):
        assert place.cachalot("dump", process.pid).stdout == f"{place.work}/r.{number}.json\n"
    end(process)
    assert place.cachalot("harvest").stdout == f"{place.work}/r.3.json\n"
    assert [load(place.work / f"r.{number}.json")["kind"] for number in (1, 2, 3)] == ["request", "request", "harvest"]


def test_names_that_are_no_text(place):
    """Of the page directory, and of where the report goes."""
    odd = os.fsdecode(b"\xe9")
    pages = place.pages / odd
    pages.mkdir(mode=0o700)
    place.environment.update(CACHALOT_PAGE_DIR=str(pages), CACHALOT_OUTPUT=f"{odd}.json")
    for what in ("hang", "serve"):
        place.started.append(subprocess.Popen([built("make_page"), pages, what], cwd=place.work, env=place.environment,
                                              stdout=subprocess.PIPE))
        assert place.started[-1].stdout.readline()
    assert place.cachalot("dump", place.started[1].pid).stdout == f"{place.work}/?.1.json\n"
    for process in place.started:
        end(process)
    (pages / "bad.page").touch(mode=0o644)
    listed = place.cachalot("ls")
    assert listed.returncode == 3 and "killed" in listed.stdout and "/?/bad.page: " in listed.stdout
    done = place.cachalot("harvest")
    assert done.returncode == 3 and done.stdout.count(f"{place.work}/?.") == 2 and "/?/bad.page: " in done.stderr
    assert load(place.work / f"{odd}.json")["kind"] == "harvest"
    assert os.listdir(pages) == ["bad.page"]


def test_zombie_and_exec_count_as_dead(place):
    process, page = place.start("exit")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert "\tdead\t" in place.tool("list", place.pages).stdout
    process.wait()
    other, page = place.start("exec")
    for _ in range(50):
        line = next(l for l in place.tool("list", place.pages).stdout.splitlines() if page in l)
        if "\tdead\t" in line:
            break
        time.sleep(0.05)
    assert "\tdead\t" in line and other.poll() is None
    assert load(place.tool("report", page).stdout[:-1])["exit"]["reason"] == "exec"


def test_json_of_a_live_page_writes_nothing(place):
    _, page = place.start("hang")
    report = json.loads(place.tool("json", page).stdout)
    VALIDATOR.validate(report)
    assert report["kind"] == "request" and report["exit"]["reason"] == "running"
    assert report["totals"]["leaked_bytes"] is None and report["leaks"] == []
    assert not list(place.work.glob("*.json"))


def test_second_writer_takes_another_name_while_the_first_lives(place):
    first, _ = place.start("serve", CACHALOT_OUTPUT="r.json")
    assert place.cachalot("dump", first.pid).stdout == f"{place.work}/r.1.json\n"
    (place.work / "r.1.json").rename(place.work / "r.json")
    second, _ = place.start("report", CACHALOT_OUTPUT="r.json")
    assert second.stdout.readline() == f"{place.work}/r.{second.pid}.json\n"
    assert load(place.work / "r.json")["process"]["pid"] == first.pid
    end(first)
    third, _ = place.start("report", CACHALOT_OUTPUT="r.json")
    assert third.stdout.readline() == f"{place.work}/r.{third.pid}.json\n"
    assert load(place.work / "r.json")["process"]["pid"] == first.pid


def test_processes_of_one_session_do_not_replace_each_other(place):
    names = []
    for _ in range(3):
        process, _ = place.start("report", CACHALOT_OUTPUT="r.json", CACHALOT_SESSION="s")
        names.append(process.stdout.readline())
        process.wait()
    assert len(set(names)) == 3 and names[0] == f"{place.work}/r.json\n"


@pytest.mark.parametrize("content", ["not json", "[]", '{"process": 3}', "[" * 66_000_000],
                         ids=("text", "list", "object", "brackets"))
def test_what_is_no_report_stays(place, content):
    (place.work / "r.json").write_text(content)
    process, _ = place.start("report", CACHALOT_OUTPUT="r.json")
    assert load(process.stdout.readline().rstrip("\n")) and (place.work / f"r.{process.pid}.json").exists()
    assert (place.work / "r.json").read_text() == content
    used = os.wait4(process.pid, 0)[2]
    assert used.ru_utime + used.ru_stime < 0.5  # it is not parsed


def test_an_empty_file_is_replaced(place):
    """As mktemp makes it."""
    (place.work / "r.json").touch()
    process, _ = place.start("report", CACHALOT_OUTPUT="r.json")
    assert process.stdout.readline() == f"{place.work}/r.json\n" and load(place.work / "r.json")


def test_a_target_that_is_no_file_is_an_error(place):
    (place.work / "d.json").mkdir()
    os.mkfifo(place.work / "f.json")
    for name in ("d.json", "f.json", "/dev/full", "/dev/null/r.json"):
        process, page = place.start("report", CACHALOT_OUTPUT=name)
        process.wait()
        assert process.returncode == 1, name
    assert not list(place.work.glob(".cachalot*"))


def test_a_link_is_not_followed(place):
    (place.work / "l.json").symlink_to("elsewhere")
    process, _ = place.start("report", CACHALOT_OUTPUT="l.json")
    assert process.stdout.readline() == f"{place.work}/l.{process.pid}.json\n" and not (place.work / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")
@pytest.mark.parametrize("make", [pathlib.Path.touch, pathlib.Path.mkdir, os.mkfifo])
def test_what_belongs_to_others_is_passed_by(place, make):
    make(place.work / "r.json")
    os.chown(place.work / "r.json", 65534, 65534)
    process, _ = place.start("report", CACHALOT_OUTPUT="r.json")
    assert process.stdout.readline() == f"{place.work}/r.{process.pid}.json\n"


def test_a_lock_of_others_delays_nothing(place):
    """On the folder, and on the report that would be replaced."""
    session = ended_session()
    place.start("report", CACHALOT_OUTPUT="r.json", CACHALOT_SESSION=session)[0].wait()
    with open(place.work / "r.json") as old:
        folder = os.open(place.work, os.O_RDONLY)
        for each in (folder, old):
            fcntl.flock(each, fcntl.LOCK_EX)
        begin = time.monotonic()
        process, _ = place.start("report", CACHALOT_OUTPUT="r.json", CACHALOT_SESSION=ended_session())
        assert process.stdout.readline() == f"{place.work}/r.{process.pid}.json\n" and time.monotonic() - begin < 0.5
        os.close(folder)


def ended_session():
    """A session as `cachalot run` names it, of a command that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return f"{ended.pid}-{os.stat('/proc/self/ns/pid').st_ino}-1-{os.urandom(8).hex()}"


@pytest.mark.parametrize("old, new, replaced", [
    (ended_session, ended_session, True), (lambda: "", ended_session, False), (ended_session, lambda: "", False),
    (lambda: f"{os.getpid()}" + ended_session()[ended_session().index("-"):], ended_session, False),
    (lambda: "slurm-7", lambda: "slurm-8", False), (lambda: ended_session().replace("-4", "-5"), ended_session, False)])
def test_a_run_replaces_what_an_earlier_run_left(place, old, new, replaced):
    first = place.start("report", CACHALOT_OUTPUT="r.json", CACHALOT_SESSION=old())[0]
    first.wait()
    session = new()
    others = [place.start("report", CACHALOT_OUTPUT="r.json", CACHALOT_SESSION=session)[0] for _ in range(8)]
    for process in others:
        process.wait()
    found = [load(path)["process"]["pid"] for path in place.work.glob("*.json")]
    assert sorted(found) == sorted(process.pid for process in [first, *others][replaced:])


@pytest.mark.parametrize("was, now", [('"schema_version": "1.', '"schema_version": "2.'), ('"pid_namespace": ', '"pid_namespace": 1')])
def test_a_run_keeps_what_it_cannot_judge(place, was, now):
    """Of a later version, or of a process in another container that may still be there."""
    place.start("report", CACHALOT_OUTPUT="r.json", CACHALOT_SESSION=ended_session())[0].wait()
    text = (place.work / "r.json").read_text()
    assert was in text
    (place.work / "r.json").write_text(text.replace(was, now))
    place.start("report", CACHALOT_OUTPUT="r.json", CACHALOT_SESSION=ended_session())[0].wait()
    assert (place.work / "r.json").read_text() == text.replace(was, now) and len(list(place.work.glob("*.json"))) == 2


@pytest.mark.skipif(subprocess.run(["unshare", "-fpr", "true"]).returncode, reason="no namespaces here")
@pytest.mark.parametrize("killed", [False, True])
def test_containers_with_equal_pids(place, killed):
    """They share the folders, and their processes overlap in time or do not."""
    run = ["unshare", "-fpr", "--kill-child", built("make_page"), place.pages, "hang" if killed else "report"]
    running = [subprocess.Popen(run, cwd=place.work, env=place.environment, stdout=subprocess.PIPE, text=True) for _ in range(24)]
    for process in running:
        assert process.stdout.readline()
        if killed:
            process.kill()
        process.communicate()
    if killed:
        assert len(place.cachalot("harvest").stdout.splitlines()) == 24 and not list(place.pages.iterdir())
    reports = [load(path) for path in place.work.glob("*.json")]
    assert len(reports) == 24 and {report["process"]["pid"] for report in reports} == {1}


def test_harvest_keeps_each_report(place):
    place.environment["CACHALOT_OUTPUT"] = "r.json"
    started = [place.start("hang")[0] for _ in range(3)]
    for process in started:
        end(process)
    assert len(place.cachalot("harvest").stdout.splitlines()) == 3
    assert {load(path)["process"]["pid"] for path in place.work.glob("*.json")} == {process.pid for process in started}


def test_harvests_at_once_make_each_report_once(place):
    place.environment.update(CACHALOT_OUTPUT="r.json", ASAN_OPTIONS="detect_leaks=0")  # leaks cannot be looked for below strace
    late = ["strace", "-qqo/dev/null", "-einject=renameat2:delay_enter=300000"] if shutil.which("strace") else []
    pages = []
    for _ in range(4):
        process, page = place.start("exit")
        process.wait()
        pages.append(page)
    running = [subprocess.Popen([*late, built("cachalot-page"), "report", page], cwd=place.work, env=place.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for page in pages for _ in range(3)]
    assert [process.wait() for process in running] == [0] * 12
    found = [load(path)["process"]["pid"] for path in place.work.glob("*.json")]
    assert sorted(found) == sorted(process.pid for process in place.started)


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
def test_a_file_system_that_cannot_refuse_to_replace(place):
    """As some network file systems."""
    late = "-einject=?renameat:delay_enter=200000"  # while the empty file is there
    for _ in range(8):
        place.started.append(subprocess.Popen(["strace", "-qqo/dev/null", "-einject=renameat2:error=EINVAL", late, built("make_page"), place.pages, "report"],
                                              cwd=place.work, env={**place.environment, "CACHALOT_OUTPUT": "r.json", "ASAN_OPTIONS": "detect_leaks=0"},
                                              stdout=subprocess.PIPE))
    for process in place.started:
        assert process.wait() == 0
    assert len(list(place.work.glob("r*.json"))) == 8 and all(map(load, place.work.glob("r*.json")))


@pytest.mark.parametrize("wanted, made", [
    ("{}/r.json", "r.json"), ("../elsewhere/r.json", "r.json"), ("link/r.json", "r.json"), (".ssh/r.json", "r.json"),
    ("new/../../elsewhere/r.json", "r.json"), (".profile", "cachalot.PID.json"), ("run.sh", "cachalot.PID.json"), ("a/b/r.json", "a/b/r.json"), ("a%%b.json", "a%b.json")])
def test_harvest_does_not_trust_a_path(place, wanted, made):
    """Another container, or any process of this user, may have written the page."""
    work, elsewhere = place.work, place.work.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (work / "link").symlink_to(elsewhere)
    process, _ = place.start("exit", CACHALOT_OUTPUT=wanted.format(elsewhere))
    process.wait()
    path = work / made.replace("PID", str(process.pid))
    done = place.cachalot("harvest")
    assert (done.stdout, done.stderr) == (f"{path}\n", f"cachalot: writing {path}\n") and load(path)
    assert not list(elsewhere.iterdir()) and not (work / ".profile").exists()


@pytest.mark.skipif(subprocess.run(["unshare", "-mr", "true"]).returncode, reason="no mounts here")
def test_harvest_writes_beside_the_pages_where_it_cannot_write(place):
    place.start("exit")[0].wait()
    done = place.run("unshare", "-mr", "sh", "-c", 'mkdir m && mount -t tmpfs -o ro none m && cd m && exec "$@"', "sh", *COMMAND, "harvest")
    path, = place.pages.iterdir()
    assert done.stdout == f"{path}\n" and load(path)


def test_harvest_says_the_path_before_it_writes(place):
    """Also one to which nothing can be written in the end."""
    place.environment["ASAN_OPTIONS"] = "detect_leaks=0"  # leaks cannot be looked for below strace
    place.start("exit", CACHALOT_OUTPUT="r.json")[0].wait()
    done = place.cachalot("harvest", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    assert done.returncode == 1 and done.stdout == "" and "File too large" in done.stderr
    os.mkfifo(place.work / "r.json")  # a report beside it would surprise
    assert place.cachalot("harvest").returncode == 1
    (place.work / "r.json").unlink()
    (place.work / "r.json").write_text("text")
    strace = ["strace", "-fqq", "-s99", "-e", "trace=write", "-o", "calls"] if shutil.which("strace") else []
    done = place.run(*strace, *COMMAND, "harvest")
    if strace:
        calls = (place.work / "calls").read_text()
        assert 0 < calls.index("cachalot-page: writes ") < calls.index('"{\\n  \\"schema_version')
    assert [line.rpartition(" ")[2] for line in done.stderr.splitlines()] == done.stdout.splitlines()


def test_all_bits_in_the_umask(place):
    place.pages /= "deep"
    before = os.umask(0o777)
    try:
        process, page = place.start("report", CACHALOT_OUTPUT="a/b/r.json")
        process.wait()
    finally:
        os.umask(before)
        place.pages = place.pages.parent
    modes = [path.stat().st_mode & 0o777 for path in (pathlib.Path(page).parent, place.work / "a/b", place.work / "a/b/r.json")]
    assert modes == [0o700, 0o700, 0o600]


def test_no_bits_in_the_umask(place):
    before = os.umask(0)
    try:
        place.start("report", CACHALOT_OUTPUT="a/b/r.json")[0].wait()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (place.work / "a", place.work / "a/b/r.json")] == [0o755, 0o644]


def test_full_disk_keeps_the_old_report(place):
    (place.work / "r.json").write_text("old")
    process, page = place.start("exit", CACHALOT_OUTPUT="r.json")
    process.wait()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = place.tool("report", page, preexec_fn=limit)
    assert done.returncode == 1 and "File too large" in done.stderr
    if os.path.exists("/dev/full"):
        assert place.tool("report", page, "--output", "/dev/full").returncode == 1
    assert (place.work / "r.json").read_text() == "old"
    assert not list(place.work.glob(".cachalot*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
def test_full_tmpfs(place):
    small = place.work / "small"
    small.mkdir()
    if place.run("mount", "-t", "tmpfs", "-o", "size=8k", "none", small).returncode != 0:
        pytest.skip("no mount here")
    try:
        process, page = place.start("exit", CACHALOT_OUTPUT="small/r.json")
        process.wait()
        done = place.tool("report", page)
        assert done.returncode == 1 and "No space left" in done.stderr
        assert not list(small.iterdir())
        # A page that does not fit has no file; the program does not notice.
        place.pages, before = small, place.pages
        process, page = place.start("report")
        place.pages = before
        assert page == "" and load(process.stdout.readline()[:-1]) and not list(small.iterdir())
    finally:
        place.run("umount", small)


@pytest.mark.parametrize("pattern, name", [
    ("%q{X}.json", "_.._evil.json"), ("a/%q{X}/%e.json", "a/_.._evil/make_page.json"),
    ("%r-%%-%n.json", "none-%-0.json"), ("b%%n.json", "b%n.json"), ("c\n.json", "c_.json"),
])
def test_names_from_outside_stay_in_the_directory(place, pattern, name):
    process, _ = place.start("report", CACHALOT_OUTPUT=pattern, X="/../evil")
    assert process.stdout.readline() == f"{place.work}/{name}\n"
    assert load(place.work / name)


def test_pages_of_others_and_no_pages(place, tmp_path):
    _, page = place.start("hang")
    link = tmp_path / "x.page"
    link.symlink_to(page)
    assert place.tool("json", link).returncode == 3
    assert place.tool("json", tmp_path / "none.page").returncode == 3
    assert place.tool("json", "/dev/zero").returncode == 3
    assert place.tool("remove", page).returncode == 1  # alive
    assert place.tool("remove", "/etc/passwd").returncode == 3
    pathlib.Path(page).chmod(0o644)
    assert "another user" in place.tool("json", page).stderr


@pytest.mark.parametrize("arguments", [
    (), ("else",), ("report",), ("json", "a", "b"), ("request", "a", "b", "c"),
    ("report", "a", "--code", "x"), ("report", "a", "--else")])
def test_usage(place, arguments):
    assert place.tool(*arguments).returncode == 2


def test_doctor_tries_where_python_does_not_know_its_own_path(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setenv("ASAN_OPTIONS", "verify_asan_link_order=0")  # should the library have it
    found, _ = doctor.trial("")
    assert "problem" in found or "driver" in found


@pytest.mark.parametrize("name, good, bad, said", [
    ("CACHALOT_EVENTS", "524288", ("524289", "abc", "-1", "1e3", "9" * 5000), "give a number of events up to 524288"),
    ("CACHALOT_SITES", "1000", ("x", "1.5", "+1", "1000000000", "\u0663"), "give 1, or N for one request of N")])
def test_doctor_says_which_numbers_the_library_does_not_take(monkeypatch, capsys, name, good, bad, said):
    most, = re.findall(r"EVENTS_MOST \(1u << (\d+)\)", (ROOT / "stats/events/events.h").read_text())
    assert 1 << int(most) == 524288
    for value in ("", "0", good, *bad):
        monkeypatch.setenv(name, value)
        doctor.check_environment(doctor.Findings())
        line = f"FAIL  environment: {name}={value}: {said}\n"
        assert (line in capsys.readouterr().out) is (value in bad), value
