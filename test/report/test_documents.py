"""The documents: their commands run, their links lead somewhere, and they keep to their length."""

import re
import shlex

import pytest
from conftest import BUILD, COMMAND, ROOT, built

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
README = (ROOT / "README.md").read_text()
ERRANDS = {title: re.findall(r"^    (.+)$", text, re.M) for title, text in re.findall(
    r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|\Z)", README.partition("## Five errands")[2].partition("\n## ")[0], re.M | re.S)}


@pytest.fixture
def shell(place):
    """Runs lines of the README as a user would, with a program on the simulated device for `python3 train.py`."""
    programs = BUILD / "test/workloads"
    if not (programs / "train_loop").exists() or not (BUILD / "test/sim/libcuda.so.1").exists():
        pytest.skip("no program for the simulated device is built")
    command = place.work / "bin/cachalot"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    place.environment.update(CACHALOT_LIBRARY=built("libcachalot.so"), LD_LIBRARY_PATH=str(BUILD / "test/sim"),
                             PATH=f"{command.parent}:{place.environment['PATH']}", ASAN_OPTIONS="detect_leaks=0")

    def run(title, program="train_loop"):
        lines = "\n".join(ERRANDS[title]).replace("python3 train.py", str(programs / program))
        return place.run("sh", "-c", lines)
    return run


def test_there_are_five_errands():
    assert len(ERRANDS) == 5 and all(1 <= len(lines) <= 6 for lines in ERRANDS.values())


def test_ci_fails_on_a_leak(shell):
    title = "My CI shall fail when GPU memory leaks."
    assert shell(title).returncode == 0
    done = shell(title, "seed4a_holes")
    assert done.returncode == 1 and "FAIL max-leaked" in done.stderr and "seed4a_holes.c:" in done.stderr


def test_out_of_memory_is_explained(shell, place):
    place.environment["CACHALOT_CONF"] = "expandable_segments:False"
    done = shell("Out of memory although memory is free.", "seed4b_tenants")
    if "Chart.js" in done.stderr:
        pytest.skip("no Chart.js")
    assert "Would have served it: CACHALOT_CONF=expandable_segments:True" in done.stderr, done.stderr
    assert (place.work / "memory.html").exists()


def test_what_a_binary_allocates(shell):
    done = shell("What does this binary allocate?")
    assert done.returncode == 0 and "Cachalot memory summary" in done.stdout, done.stderr


def test_a_killed_job_has_a_report(shell, place):
    process, _ = place.start("hang")
    process.kill()
    process.wait()
    done = shell("What happened to the job that was killed?")
    assert done.returncode == 0 and "Cachalot memory summary" in done.stdout, done.stderr


def test_a_job_script_ends_with_its_gate(shell):
    done = shell("A cluster.")
    assert done.returncode == 0 and "reports of 1 process" in done.stdout, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, heading = target.partition("#")
        if "://" in target:
            continue
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), target
        headings = {re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-")
                    for line in re.findall(r"^#+ (.+)$", there.read_text(), re.M)} if heading else {""}
        assert heading in headings, target


ROOMS = ("allocator", "interpose", "stats", "scripts", "test")


@pytest.mark.parametrize("document", [ROOT / "DESIGN.md", ROOT / "CONTRIBUTING.md", *sorted(
    path for room in ROOMS for path in (ROOT / room).rglob("README.md"))], ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_that_documents_name_exist(document):
    """Paths in backticks that begin with a folder of the project; `*` and `{a,b}` stand for several files."""
    named = re.findall(r"`((?:%s)/[\w./{},*-]+)`" % "|".join(ROOMS), document.read_text())
    assert [path for path in named if "{" not in path and not list(ROOT.glob(path.rstrip("/")))] == []


def test_tests_of_the_threat_model_exist():
    """Each row of docs/threats.md names what holds it: a test case, a test of the house, or the row's own words."""
    text = (ROOT / "docs/threats.md").read_text()
    tests = "\n".join(path.read_text() for kind in ("*.py", "*.c") for path in (ROOT / "test").rglob(kind))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if not re.search(rf"\b{name}\(", tests)] == []
    rows = re.findall(r"^\| (?!by way|---).+$", text, re.M)
    assert len(rows) > 20 and all("`" in row.rsplit("|", 2)[1] or "as above" in row for row in rows)
    house = "".join(path.read_text() for path in (ROOT / "test").rglob("meson.build"))
    assert [name for name in re.findall(r"`(house \w+)`", text) if f"'{name}'" not in house] == []


@pytest.mark.parametrize("name, words, lines", [("README.md", 1200, 200), ("DESIGN.md", 3000, 400), ("SECURITY.md", 600, 60), ("NEWS.md", 1200, 40)])
def test_documents_keep_to_their_length(name, words, lines):
    text = (ROOT / name).read_text()
    assert len(text.split()) <= words and len(text.splitlines()) <= lines
