"""scripts/package --wheel: what pip installs works in clean environments of each Python that is here, offline, and is gone afterwards."""

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["CACHALOT_BUILD"]).absolute()
LARGEST = 3 << 20
VERSIONS = [f"3.{minor}" for minor in range(9, 15)]


def call(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900, check=False, **options)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def make(folder, *options):
    done = subprocess.run([ROOT / "scripts/package", *options, folder], capture_output=True, text=True, timeout=900, check=False)
    if "from PyPI" in done.stderr:
        pytest.skip("PyPI is not here")
    assert done.returncode == 0, (done.stdout, done.stderr)
    return pathlib.Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return make(tmp_path_factory.mktemp("wheel") / "of it", "--wheel")


def python(version):
    """The interpreter of this version: the system's, this one, or one of pyenv or uv."""
    places = [f"/usr/bin/python{version}", f"/usr/local/bin/python{version}", sys.executable,
              *glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")),
              *glob.glob(os.path.expanduser(f"~/.local/share/uv/python/cpython-{version}.*/bin/python"))]
    for place in places:
        said = subprocess.run([place, "-IVV"], capture_output=True, text=True, check=False).stdout if os.access(place, os.X_OK) else ""
        if said.startswith(f"Python {version}."):
            return place
    pytest.skip(f"no python{version} here")


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_contents(wheel):
    assert re.fullmatch(r"cachalot-[0-9.]+-py3-none-manylinux_2_(\d+)_x86_64\.whl", wheel.name) or os.uname().machine != "x86_64"
    assert wheel.stat().st_size <= LARGEST
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "scripts/cachalot_command"
    modules = {f"cachalot/cachalot_command/{p.relative_to(package)}" for p in package.rglob("*")
               if p.is_file() and p.suffix != ".pyc" and p.name not in ("README.md", "meson.build")}
    own = {f"cachalot/{name}" for name in ("__init__.py", "cachalot", "cachalot-page", "cachalot-replay", "chart.min.js", "libcachalot.so",
                                           "report.schema.json")}
    assert {name for name in names if not name.endswith("/") and not name.split("/")[0].endswith(".dist-info")} == own | modules


def test_the_tag_is_what_auditwheel_says(wheel):
    said = call(ROOT / "build-tools/bin/auditwheel", "show", wheel)
    platform = wheel.stem.rsplit("-", 1)[1]
    assert f'"{platform}"' in " ".join(said.split()), said


@pytest.mark.parametrize("version", VERSIONS)
def test_installed_and_removed(wheel, version, tmp_path):
    place = tmp_path / "a folder" / f"of {version}"
    done = subprocess.run([python(version), "-m", "venv", place], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no ensurepip for python{version} here")
    before = files(place)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CACHALOT_", "PYTHON", "PIP_"))}
    pages = tmp_path / "pages"
    pages.mkdir(0o700)
    environment.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", LD_LIBRARY_PATH=str(BUILD / "test/sim"),
                       CACHALOT_PAGE_DIR=str(pages), PATH=f"{place}/bin:{os.environ['PATH']}")

    def run(*command):
        return call(*command, cwd=tmp_path, env=environment)

    run(place / "bin/python", "-m", "pip", "install", wheel)
    run("cachalot", "run", "--output", "r.json", "--html", "r.html", BUILD / "test/preload/allocate_130")
    assert json.loads((tmp_path / "r.json").read_text())["totals"]["requests"] > 0
    assert "Chart.js" in (tmp_path / "r.html").read_text()
    assert run("cachalot", "doctor").endswith("it will work\n")
    assert f"{place}/lib" in run("cachalot", "run", "cat", "/proc/self/maps")
    assert "peak" in run("cachalot", "show", "r.json")
    run("cachalot", "replay", "--costs", "default")
    failed = subprocess.run(["cachalot", "show", "none.json"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert failed.returncode == 3 and "none.json" in failed.stderr and "Traceback" not in failed.stderr
    run(place / "bin/python", "-m", "pip", "uninstall", "-y", "cachalot")
    assert files(place) == before


def test_for_the_other_processor(tmp_path):
    if os.uname().machine != "x86_64" or not shutil.which("aarch64-linux-gnu-gcc") or \
            not os.path.exists("/usr/lib/aarch64-linux-gnu/libjansson.a"):
        pytest.skip("no aarch64-linux-gnu-gcc or libjansson-dev:arm64 here")
    wheel = make(tmp_path, "--wheel=aarch64")
    assert wheel.name.endswith("_aarch64.whl") and "-py3-none-manylinux_2_" in wheel.name
    assert wheel.stat().st_size <= LARGEST
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for name in ("libcachalot.so", "cachalot-page", "cachalot-replay"):
        assert "Machine:                           AArch64" in call("readelf", "-h", tmp_path / "cachalot" / name)
    if shutil.which("qemu-aarch64"):
        (tmp_path / "cachalot/cachalot-page").chmod(0o755)
        assert "max_split_size_mb" in call("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", tmp_path / "cachalot/cachalot-page", "options")
