"""examples/: the Dockerfile's own lines build its one file; recipes are built where conda-build and Spack are."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from test_fetched import copy_of_the_source

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BUILD = pathlib.Path(os.environ["CACHALOT_BUILD"]).absolute()


def call(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900, check=False, **options)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def test_every_example_has_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "test").rglob("test_*.py"))
    for example in EXAMPLES.rglob("*"):
        assert example.is_dir() or f"{example.relative_to(EXAMPLES).parts[0]}" in tests, example


def stages():
    """{stage: its instructions} of the Dockerfile, each in one line."""
    text = re.sub(r"^#.*\n", "", (EXAMPLES / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    begins = [n for n, (word, _) in enumerate(lines) if word == "FROM"] + [len(lines)]
    return [lines[begin:end] for begin, end in zip(begins, begins[1:])]


def test_the_last_stage_of_the_dockerfile_has_one_file(tmp_path):
    """Its RUN lines, as the shell of the image would read them, in a copy of the source."""
    build, last = stages()
    assert last[0][1] == "scratch" and [word for word, _ in last] == ["FROM", "COPY"]
    begin, made, wanted = re.fullmatch(r"(--from=build) (/\S+) (/\S+)", last[1][1]).groups()
    assert begin and wanted == "/libcachalot.so"
    copy_of_the_source(tmp_path / "source")
    runs = [line for word, line in build if word == "RUN" and "apt-get" not in line]
    assert runs and {word for word, _ in build} == {"FROM", "RUN", "COPY", "WORKDIR"}
    for run in runs:
        done = subprocess.run(["sh", "-c", run.replace("/out/", f"{tmp_path}/out/")], cwd=tmp_path / "source", capture_output=True, text=True,
                              timeout=900, check=False)
        if "from PyPI" in done.stderr:
            pytest.skip("PyPI is not here")
        assert done.returncode == 0, done.stdout + done.stderr
    library = tmp_path / made.lstrip("/")
    assert re.findall(r"NEEDED.*\[(.*)\]", call("readelf", "-d", library)) == ["libc.so.6"] or os.uname().machine != "x86_64"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CACHALOT_")}
    environment.update(LD_PRELOAD=str(library), LD_LIBRARY_PATH=str(BUILD / "test/sim"), CACHALOT_OUTPUT="%e.json", CACHALOT_PAGE_DIR=str(tmp_path))
    call(BUILD / "test/preload/allocate_130", cwd=tmp_path, env=environment)
    assert (tmp_path / "allocate_130.json").is_file()


def test_conda_builds_its_recipe(tmp_path):
    if not shutil.which("conda-build"):
        pytest.skip("no conda-build here")
    call("conda-build", "--output-folder", tmp_path, EXAMPLES / "conda")
    assert list(tmp_path.rglob("cachalot-*.conda")) + list(tmp_path.rglob("cachalot-*.tar.bz2"))


def test_spack_builds_its_recipe(tmp_path):
    if not shutil.which("spack"):
        pytest.skip("no spack here")
    copy_of_the_source(tmp_path / "source")
    recipes = tmp_path / "recipes"
    (recipes / "packages/cachalot").mkdir(parents=True)
    (recipes / "repo.yaml").write_text("repo:\n  namespace: cachalot_example\n  api: v2.0\n")
    shutil.copy(EXAMPLES / "spack/package.py", recipes / "packages/cachalot")
    call("spack", "-C", tmp_path, "repo", "add", recipes)
    call("spack", "-C", tmp_path, "dev-build", "-d", tmp_path / "source", "cachalot@main")
