"""Each planted bug is found: by the program that bugs.py names, within its time."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / room) for room in ("preload", "replay")]
import traces  # noqa: E402
from bugs import BUGS  # noqa: E402
from conftest import BUILD, PROGRAMS, Place, place  # noqa: E402, F401  (a fixture)

PLANTED = BUILD / "test/planted"
MODEL = pathlib.Path(__file__).resolve().parent.parent / "unit/test_model.py"
CLOCK = {"CACHALOT_SIM_CLOCK": "manual", "CACHALOT_SIM_LATENCY_NS": "1000", "CACHALOT_SIM_CAPACITY": "64G"}
MOVING = {"CACHALOT_SIM_CAPACITY": "320M", "CACHALOT_CONF": "expandable_segments:True,large_segment_size_mb:2"}
TIME = 20  # seconds: what is not done then hangs


def end_code(where, bug, program, *arguments, timeout=5 * TIME, **environment):
    """The exit code of the program with the bug in front of it."""
    library = PLANTED / f"libcachalot_{bug.name}.so"
    return where.run(program, *arguments, preload=(library,), timeout=timeout, **environment).code


def is_found(where, bug, program, *arguments, **environment):
    """Does the program, with the bug in front of it, end as it should not, or not at all?"""
    try:
        return end_code(where, bug, program, *arguments, timeout=TIME, **environment) != 0
    except subprocess.TimeoutExpired:
        return True


def by_stress(where, bug):
    more = {"CACHALOT_SIM_DELAY": bug.delay} if bug.delay else {}
    return any(is_found(where, bug, "reuse_stress", *run.split(), **CLOCK, **more) for run in bug.runs)


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """Orders of calls, and whether they end natively."""
    native = Place(tmp_path_factory.mktemp("orders"))
    path = native.work / "orders"
    assert native.native("hang", "note", path, 9).code == 0
    native.close()
    return path


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_it_is_found(place, orders, bug):  # noqa: F811
    if bug.found.startswith("unit "):
        assert subprocess.run([PLANTED / f"{bug.program}_{bug.name}"], capture_output=True, timeout=5 * TIME, check=False).returncode
    elif bug.found == "hang":
        assert is_found(place, bug, "hang", "check", orders, 9)
    elif bug.found == "model":
        model = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", MODEL, "-k", "mapped"]
        environment = {**os.environ, "CACHALOT_LINE_DRIVER": str(PLANTED / f"line_driver_{bug.name}"), "CACHALOT_TEST_FIRST": "1"}
        said = subprocess.run(model, capture_output=True, env=environment, timeout=5 * TIME, check=False, text=True)
        assert said.returncode == 1 and "AssertionError" in said.stdout
    elif bug.found == "mapped":
        assert any(is_found(place, bug, "mapped_stress", *run.split(), **MOVING) for run in bug.runs)
    elif bug.found == "sleep":
        assert any(is_found(place, bug, "sleep_stress", *run.split(), **MOVING) for run in bug.runs)
    elif bug.found == "replay":
        replay = [PLANTED / f"replay_{bug.name}", "--conf", "expandable_segments:True", "--behind", "50", "-"]
        said = [subprocess.run(replay, input=traces.read(traces.PROGRAMS, name), capture_output=True, timeout=TIME, check=False)
                for name in ("dcgan", "vae_train", "conv3d_train", "word_lstm_tbptt")]
        assert any(run.returncode == -signal.SIGABRT and b"window_is_safe" in run.stderr for run in said)
    elif bug.found.startswith("unseen "):
        done = place.run("unseen", bug.found.split()[1], 1, 20, PROGRAMS / "libunseen_plugin.so", preload=(PLANTED / f"libcachalot_{bug.name}.so",))
        assert done.value("aborted") > 0
    elif bug.found == "pinned_stress":
        assert any(is_found(place, bug, "pinned_stress", *run.split(), **CLOCK) for run in bug.runs)
    elif bug.found == "pinned contexts":
        assert is_found(place, bug, "pinned", "contexts")
    elif bug.found == "spin_in_stream":
        assert is_found(place, bug, "spin_in_stream")
    elif bug.found == "stream_of_each":
        assert end_code(place, bug, bug.found, CACHALOT_SIM_CLOCK="manual") == -signal.SIGABRT
    elif bug.found == "capture_full":
        full = {"CACHALOT_SIM_CAPACITY": "64M", "CACHALOT_CONF": "expandable_segments:True"}
        assert end_code(place, bug, bug.found, 1, **full) == -signal.SIGABRT
    elif bug.found == "stream_race":
        # A block that a thread's cache keeps is not met by the other. Slow rounds are no finding.
        race = {"CACHALOT_CONF": "thread_cache:off", "CACHALOT_SIM_CLOCK": "manual", "CACHALOT_SIM_DELAY": "cuStreamDestroy_v2:1"}
        assert any(end_code(place, bug, "stream_race", 200, **race) for _ in range(20))
    else:
        assert by_stress(place, bug)
