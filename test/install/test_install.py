"""`meson install` with DESTDIR: all is there, and works from a prefix that has a blank in its path."""

import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["CACHALOT_BUILD"]).absolute()
SIM, PRELOAD = BUILD / "test/sim", BUILD / "test/preload"
OPTIONS = {o["name"]: o["value"] for o in json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text())}
PREFIX, LIBDIR = OPTIONS["prefix"].lstrip("/"), OPTIONS["libdir"]
NAMES = {"libcachalot.so", "cachalot", "cachalot-page", "cachalot-replay", "report.schema.json"}
COMPLETIONS = {"bash": "share/bash-completion/completions/cachalot.bash", "zsh": "share/zsh/site-functions/_cachalot",
               "fish": "share/fish/vendor_completions.d/cachalot.fish"}


def meson():
    """What configured the build: another Meson might refuse it."""
    found = re.search(r"command = (.*) --internal regenerate", (BUILD / "build.ninja").read_text())
    return shlex.split(found[1])


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """The prefix, below a folder with a blank."""
    folder = tmp_path_factory.mktemp("a b") / "stage of it"
    subprocess.run([*meson(), "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder], check=True,
                   stdout=subprocess.DEVNULL, timeout=300)
    return folder / PREFIX


@pytest.fixture
def place(tmp_path, staged):
    """Runs what is installed; pages and reports lie apart."""
    pages = pathlib.Path(f"/dev/shm/cachalot-test-{os.getpid()}-{tmp_path.name}")
    pages.mkdir(0o700)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CACHALOT_")}
    environment.update(CACHALOT_PAGE_DIR=str(pages), LD_LIBRARY_PATH=str(SIM))

    def run(*command, **options):
        return subprocess.run([str(c) for c in command], cwd=tmp_path, env=environment, capture_output=True, text=True,
                              timeout=60, check=False, **options)
    run.work, run.cachalot, run.environment = tmp_path, staged / "bin/cachalot", environment
    yield run
    shutil.rmtree(pages)


def test_all_is_there(staged):
    found = {str(path.relative_to(staged)) for path in staged.rglob("*") if not path.is_dir()}
    own = f"{LIBDIR}/cachalot/"
    modules = {path for path in found if path.startswith(own + "cachalot_command/")}
    assert found - modules == {own + name for name in NAMES} | {
        "bin/cachalot", f"{LIBDIR}/pkgconfig/cachalot.pc", "share/man/man1/cachalot.1",
        *COMPLETIONS.values()}
    for path in found:
        assert not (staged / path).stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_the_package_is_installed_as_it_lies_in_the_source(staged):
    """All of it, and nothing that is for the source tree only."""
    def files(folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    package = pathlib.Path(__file__).resolve().parents[2] / "scripts/cachalot_command"
    assert files(staged / LIBDIR / "cachalot/cachalot_command") == files(package) - {"README.md", "meson.build"}


def test_it_runs_from_there(place):
    """No other library is found: the link in LD_PRELOAD leads to the one in the folder with a blank."""
    done = place(place.cachalot, "run", "--summary", PRELOAD / "allocate_130")
    assert done.returncode == 0 and "allocate_130" in done.stderr, done.stderr
    (report,) = place.work.glob("cachalot.*.json")
    assert json.loads(report.read_text())["coverage"]["status"] == "full"
    maps = place(place.cachalot, "run", "cat", "/proc/self/maps").stdout
    assert str(place.cachalot.resolve().parent / "libcachalot.so") in maps
    assert place(place.cachalot, "show", report).returncode == 0
    assert place(place.cachalot, "check", report, "--max-oom", "0").returncode == 0
    assert place(place.cachalot, "doctor").stdout.endswith("it will work\n")
    assert place(place.cachalot, "replay", "--costs", "default").returncode == 0
    assert place(place.cachalot, "--version").stdout == f"cachalot {version()}\n"
    for topic, said in (("conf", "max_split_size_mb"), ("report", "leaked_bytes")):
        assert said in place(place.cachalot, "help", topic).stdout


def version():
    return json.loads((BUILD / "meson-info/intro-projectinfo.json").read_text())["version"]


def test_pkg_config_names_the_library(place, staged):
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config")
    folder = f"--with-path={staged}/{LIBDIR}/pkgconfig"
    for name in ("library", "schema"):
        path, = shlex.split(place("pkg-config", folder, f"--variable={name}", "cachalot").stdout)  # as a shell reads it
        assert pathlib.Path(path).is_relative_to(staged) and pathlib.Path(path).is_file()  # it was moved there
    assert place("pkg-config", folder, "--modversion", "cachalot").stdout.strip() == version()


def commands(place):
    lines = re.findall(r"^  ([a-z][a-z, -]*)\b", place(place.cachalot, "--help").stdout, re.M)
    return [name for line in lines for name in re.match(r"[a-z-]+(, [a-z-]+)*", line)[0].split(", ")]


def test_man_page(place, staged):
    if not shutil.which("man"):
        pytest.skip("no man")
    page = staged / "share/man/man1/cachalot.1"
    done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=True, timeout=60,
                          env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
    assert done.stderr == ""
    for name in commands(place):
        assert f"\n   {name}\n" in done.stdout and f"usage: cachalot {name}" in done.stdout, name
    for said in ("CACHALOT_PAGE_DIR", "key:value,…", "max_split_size_mb*", "largest_allocatable_bytes", "130"):
        assert said in done.stdout, said


# What a shell offers for the words, as lines. zsh's own functions are stood in for: they choose by what is typed.
COMPLETE = {
    "bash": 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cachalot; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'compadd() { print -l -- "$@" }; _describe() { print -l -- ${(P)2} }; _files() { print FILES }; '
           '_command_names() { print pkg-config }; _normal() { print NORMAL "$words[@]" }; '
           'file=$1; shift; words=("$@"); CURRENT=$#; PREFIX=$words[CURRENT]; source $file',
    "fish": 'source $argv[1]; complete -C "$argv[2..]"',
}


def complete(place, staged, shell, *words):
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = place(shell, *options, "-c", COMPLETE[shell], *["bash"] * (shell == "bash"), *["zsh"] * (shell == "zsh"),
                 staged / COMPLETIONS[shell], *words)
    assert done.stderr == ""
    return {re.split("[\t:]", line)[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("shell", COMPLETE)
@pytest.mark.parametrize("words, includes, excludes", [
    ("", {"run", "check", "ls", "--help"}, {"--conf"}),
    ("ch", {"check"}, {"run"}),
    ("help re", {"report", "replay"}, {"conf"}),
    ("check --max-o", {"--max-oom"}, {"--max-leaked"}),
    ("check --format ", {"github", "junit"}, {"--format"}),
    ("env --for ku", {"kubernetes"}, {"slurm"}),
    ("run --su", {"--summary"}, {"--output"}),
    ("run --summary pkg-conf", {"pkg-config"}, {"--summary"}),
])
def test_completion(place, staged, shell, words, includes, excludes):
    got = complete(place, staged, shell, "cachalot", *words.split(" "))
    assert includes - ({"--help"} if shell == "fish" else set()) <= got and (shell == "zsh" or not excludes & got), got


def test_completion_offers_what_the_commands_take(place, staged):
    text = (staged / COMPLETIONS["bash"]).read_text()
    offered = re.findall(r'^    ([a-z-]+):-\*\) words="(.*)" ;;$', text, re.M)
    assert len(offered) == len(commands(place))
    for command, words in offered:
        for word in set(words.split()) - {"--help"}:
            done = subprocess.run([place.cachalot, command, word], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  cwd=place.work, timeout=60, env={**os.environ, "CACHALOT_PAGE_DIR": page_directory(place)}) \
                if (command, word) != ("top", "--json") else None
            assert done is None or "unknown option" not in done.stderr, (command, word, done.stderr)


@pytest.mark.parametrize("shell", COMPLETE)
def test_completion_of_pids(place, staged, shell):
    process = subprocess.Popen([place.cachalot, "run", PRELOAD / "wait_for_input"], stdin=subprocess.PIPE, cwd=place.work,
                               stdout=subprocess.PIPE, env={**os.environ, "LD_LIBRARY_PATH": str(SIM),
                                                            "CACHALOT_PAGE_DIR": page_directory(place)})
    try:
        process.stdout.readline()
        place.environment["PATH"] = f"{place.cachalot.parent}:{os.environ['PATH']}"
        assert complete(place, staged, shell, "cachalot", "dump", "") - {"--"} == {f"{process.pid}"}
    finally:
        process.communicate(timeout=20)


def page_directory(place):
    return place(*"sh -c".split(), "echo $CACHALOT_PAGE_DIR").stdout.strip()
