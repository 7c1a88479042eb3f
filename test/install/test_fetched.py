"""What the scripts fetch: packages are pinned, and a compiler with Python suffices to build."""

import os
import pathlib
import platform
import re
import shutil
import subprocess

import pytest

from test_install import OPTIONS, meson

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = sorted((ROOT / "scripts/build/pip").glob("*.txt"))
HIDDEN = ("meson", "ninja")
USER = 65534


def test_packages_are_pinned():
    """One version each, with hashes; and no script installs a package past the lists."""
    assert {path.stem for path in LISTS} >= {"cuda", "meson", "perfetto", "wheel"}
    for path in LISTS:
        packages = re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", path.read_text(), flags=re.M).strip())
        for package in packages:
            assert re.match(r"[\w.-]+==[\w.]+( ; [^\\]+)? \\\n", package) and "--hash=sha256:" in package, (path, package)
    for script in [*(ROOT / "scripts").rglob("*"), *(ROOT / ".ci").glob("*")]:
        if script.is_file() and script.suffix in ("", ".sh"):
            for line in script.read_text().splitlines():
                if re.search(r"pip install\b|-m pip install\b", line) and not re.search(r"give_up|^\s*#|#   ", line):
                    assert "--require-hashes" in line, (script, line)


def copy_of_the_source(folder):
    folder.mkdir(parents=True)
    kept = [*ROOT.glob("*.build"), *ROOT.glob("*.txt"), *ROOT.glob("*.md"), ROOT / "LICENSE"]
    for path in kept:
        shutil.copy2(path, folder)
    for name in ("allocator", "interpose", "scripts", "stats", "test"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("corpus", "__pycache__"))


def test_jansson_is_built_as_our_own_code(tmp_path):
    """Where the system has none: fit for shadow stacks and branch tracking, and equal to the byte wherever it is built."""
    objects = []
    for name in ("here", "and there"):
        copy_of_the_source(tmp_path / name)
        shutil.copytree(ROOT / "subprojects", tmp_path / name / "subprojects", ignore=shutil.ignore_patterns("packagecache", "tmp*"))
        build = tmp_path / name / "a build"
        done = subprocess.run([*meson(), "setup", build, tmp_path / name, "-Dtests=false", "--force-fallback-for=jansson",
                               f"-Dtoolkit={OPTIONS['toolkit']}"], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode and ("download" in done.stdout or "urlopen" in done.stdout):
            pytest.skip("jansson's archive is not here")
        assert done.returncode == 0, done.stdout + done.stderr
        target = next(iter(re.findall(r"^build (\S+/libjansson\.a):", (build / "build.ninja").read_text(), re.M)))
        subprocess.run(["ninja", "-C", build, target], check=True, stdout=subprocess.DEVNULL)
        objects.append({path.name: path for path in build.glob("subprojects/*/*.p/*.o")})
    assert len(objects[0]) > 8
    for name, path in objects[0].items():
        assert path.read_bytes() == objects[1][name].read_bytes(), name
        notes = subprocess.run(["readelf", "-nW", path], check=True, capture_output=True, text=True).stdout
        assert platform.machine() != "x86_64" or re.search("IBT.*SHSTK", notes), name
    undefined = subprocess.run(["nm", "-u", *objects[0].values()], check=True, capture_output=True, text=True).stdout
    assert "__stack_chk_fail" in undefined and "_chk\n" in undefined


def test_a_compiler_and_python_suffice(tmp_path):
    """scripts/try without toolkit, Meson and Ninja, as an ordinary user, below a folder with a blank."""
    if os.geteuid() or not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("needs root, to hide tools by mounts")
    root = pathlib.Path("/tmp") / f"cachalot-{os.getpid()} of a user"
    try:
        copy_of_the_source(root / "cachalot")
        (root / "tmp").mkdir()
        for name in ("empty", "bin"):
            (root / name).mkdir()
        for tool in pathlib.Path("/usr/bin").iterdir():
            if tool.name not in HIDDEN:
                (root / "bin" / tool.name).symlink_to(tool)
        for path in (root, *root.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)
        hide = [f"mount --bind '{root}/empty' '{home}'" for home in {os.path.realpath(p) for p in pathlib.Path("/usr/local").glob("cuda*")}]
        hide += ["mount --bind /dev/null /usr/bin/meson"] if os.path.exists("/usr/bin/meson") else []
        kept = [f"{name}={value}" for name, value in os.environ.items() if re.match(r"(?i)pip_|https?_proxy$|no_proxy$|ssl_cert", name)]
        script = "\n".join([*hide, 'exec "$@"'])
        done = subprocess.run(["unshare", "-m", "sh", "-ec", script, "sh", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
                               "env", "-i", f"PATH={root}/bin", f"HOME={root}", f"TMPDIR={root}/tmp", *kept,
                               root / "cachalot/scripts/try"], capture_output=True, text=True, timeout=800, check=False, cwd=root)
        if "from PyPI" in done.stderr:
            pytest.skip("PyPI is not here")
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "into build-tools/" in done.stdout and "\nReport: " in done.stdout
    finally:
        shutil.rmtree(root, ignore_errors=True)
