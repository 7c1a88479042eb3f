"""What scripts/test counts (scripts/build/count_tests.py), of tests that a real Meson ran."""

import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

SCRIPT = ROOT / "scripts/build/count_tests.py"
TESTS = {  # name: (what it does, cases passed, failed, skipped)
    "good": ("echo 1..2; echo ok 1 - a; echo ok 2 - b", 2, 0, 0),
    "plan_last": ('echo ok 1 - a; echo "ok 2 - b # SKIP no gpu"; echo 1..2', 1, 0, 1),
    "none": ('echo "1..0 # skip no gpu"', 0, 0, 1),
    "not_ok": ("echo 1..2; echo ok 1 - a; echo not ok 2 - b", 1, 1, 0),
    "no_plan": ("echo ok 1 - a; exit 0", 1, 1, 0),  # OK to Meson
    "empty": ("exit 0", 0, 1, 0),  # SKIP to Meson
    "short": ("echo 1..5; echo ok 1 - a", 1, 1, 0),  # passed in Meson's JUnit file, as are the next four
    "killed": ("echo 1..2; echo ok 1 - a; kill -9 $$", 1, 1, 0),
    "code": ("echo 1..1; echo ok 1 - a; exit 3", 1, 1, 0),
    "bails": ("echo 1..2; echo ok 1 - a; echo Bail out!", 1, 1, 0),
    "slow": ("echo 1..2; echo ok 1 - a; sleep 30", 1, 1, 0),
}


def count(failed, log):
    """(exit code, last line) of the script."""
    done = subprocess.run([sys.executable, SCRIPT, failed, "", f"here={log}"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A Meson project with these tests."""
    if not shutil.which("meson"):
        pytest.skip("meson is not here")
    work = tmp_path_factory.mktemp("meson")
    lines = [f"test('{name}', sh, args: ['-c', '{does}'], protocol: 'tap', timeout: {1 if name == 'slow' else 30})"
             for name, (does, *_) in TESTS.items()]
    (work / "meson.build").write_text("\n".join(["project('counted')", "sh = find_program('sh')", *lines, ""]))
    subprocess.run(["meson", "setup", work / "build", work], check=True, capture_output=True)
    return work / "build"


@pytest.mark.parametrize("name", TESTS)
def test_what_a_test_counts_as(build, name):
    subprocess.run(["meson", "test", "-C", build, name], check=False, capture_output=True)
    _, passed, failed, skipped = TESTS[name]
    assert count("0", build / "meson-logs/testlog.json") == (int(failed > 0), f"{passed} passed, {failed} failed, {skipped} skipped")


def test_a_run_that_failed_is_a_failure(tmp_path):
    """Also where no test did."""
    (tmp_path / "log").write_text("")
    assert count("1", tmp_path / "log") == (1, "0 passed, 1 failed, 0 skipped")
