"""scripts/package: the Debian package installs, works, and leaves nothing behind. (dpkg --root: this machine stays as it is.)"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["CACHALOT_BUILD"]).absolute()
pytestmark = pytest.mark.skipif(not (shutil.which("dpkg-deb") and shutil.which("dpkg")), reason="no dpkg")


def call(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900, check=False, **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return pathlib.Path(call(ROOT / "scripts/package", tmp_path_factory.mktemp("package")).splitlines()[-1])


@pytest.fixture
def system(tmp_path):
    """An empty system for dpkg."""
    root = tmp_path / "root"
    for name in ("info", "updates", "parts"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    return root


def files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir() and "var/lib/dpkg" not in str(p))


def test_control_and_contents(package):
    assert call("dpkg-deb", "-f", package, "Package", "Version") == \
        f"Package: cachalot\nVersion: {json.loads((BUILD / 'meson-info/intro-projectinfo.json').read_text())['version']}\n"
    depends = call("dpkg-deb", "-f", package, "Depends")
    assert call("dpkg-deb", "-f", package, "Recommends") == "libjs-chart.js\n"  # `run --html`
    assert "libc6 (>= 2." in depends and "python3 (>= 3.9)" in depends and depends.count(",") == 1
    lines = [line.split(maxsplit=5) for line in call("dpkg-deb", "-c", package).splitlines()]
    assert {line[1] for line in lines} == {"root/root"}
    assert all(line[0][5] != "w" and line[0][8] != "w" or line[0].startswith("l") for line in lines)


def test_installs_works_and_is_removed(package, system, tmp_path):
    dpkg = ["dpkg", f"--root={system}", "--force-depends", "--force-not-root", f"--log={tmp_path}/log"]
    before = files(system)
    # ldconfig and the like may be out of reach of an ordinary user.
    environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    call(*dpkg, "-i", package, env=environment)
    assert call(*dpkg, "-s", "cachalot").splitlines()[1] == "Status: install ok installed"
    assert not call(*dpkg, "-V", "cachalot")
    command = system / "usr/bin/cachalot"
    pages = tmp_path / "pages"
    pages.mkdir(0o700)
    environment.update(LD_LIBRARY_PATH=str(BUILD / "test/sim"), CACHALOT_PAGE_DIR=str(pages))
    call(command, "run", "--check", "max-oom=0", "--output", "r.json", BUILD / "test/preload/allocate_130", cwd=tmp_path,
         env=environment)
    assert json.loads((tmp_path / "r.json").read_text())["totals"]["requests"] > 0
    call(*dpkg, "-P", "cachalot", env=environment)
    assert files(system) == before
    assert not list(system.glob("usr/lib/**/cachalot"))


def test_built_elsewhere_it_is_equal_to_the_byte(package, tmp_path):
    """From a copy of the source in another folder, with other times and rights."""
    copy = tmp_path / "a copy" / "cachalot"
    copy.mkdir(parents=True)
    for name in ("meson.build", "meson_options.txt", "LICENSE", "README.md", "NEWS.md"):
        shutil.copyfile(ROOT / name, copy / name)
    for name in ("allocator", "docs", "interpose", "scripts", "stats"):
        shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copyfile)
    for script in (*copy.glob("scripts/*"), *copy.rglob("*.sh")):
        script.chmod(0o700)
    mask = os.umask(0o077)
    try:
        again = pathlib.Path(call(copy / "scripts/package", tmp_path / "other").splitlines()[-1])
    finally:
        os.umask(mask)
    assert again.read_bytes() == package.read_bytes()
    for name in ("libcachalot.so", "cachalot-page", "cachalot-replay"):
        assert (again.parent / "build" / name).read_bytes() == (package.parent / "build" / name).read_bytes(), name


def test_lintian_finds_nothing(package):
    if not shutil.which("lintian"):
        pytest.skip("no lintian here (apt-get install lintian)")
    assert call("lintian", "--allow-root", "--fail-on=error,warning", package) == ""
