"""Work that does not pass the library: no block is handed out under it, and the report says so."""

import shutil

import pytest
import sanitizer

from conftest import PROGRAMS, SIM
from test_stress import SHARE

PLUGIN = PROGRAMS / "libunseen_plugin.so"
PROGRAMS_EACH = max(4, 40 // SHARE)


def run(place, way, first, count, **environment):
    done = place.run("unseen", way, first, count, PLUGIN, timeout=170, **environment)
    assert (done.code, done.err) == (0, "")
    return done.value("ended"), done.value("aborted"), done.value("said")


@sanitizer.unless_sanitized("its runtime does not allow RTLD_DEEPBIND")
@pytest.mark.parametrize("way", ["linked", "deep", "lazy", "registers", "denied", "namespace", "copy", "taken"])
def test_programs_whose_work_may_pass_us(place, way):
    """Each ends as natively. What is bound past us is led back to us, except where tables cannot be written."""
    shutil.copy(SIM / "libcuda.so.1", place.work / "copy_of_libcuda.so")
    ended, aborted, said = run(place, way, 1, PROGRAMS_EACH)
    assert (ended, aborted) == (PROGRAMS_EACH, 0)
    named = way in ("denied", "namespace", "copy")
    assert said == PROGRAMS_EACH if named else (said > 0) == (way == "taken")


@sanitizer.unless_sanitized("its runtime does not allow RTLD_DEEPBIND")
def test_the_generator_finds_unsafe_reuse(place):
    """Nothing names how `late` finds its function, and frees are believed by then: some blocks are reused under its work."""
    assert run(place, "late", 1, 20)[1] > 0


@sanitizer.unless_sanitized("its runtime does not allow RTLD_DEEPBIND")
def test_it_is_said_and_fails_the_gate(place):
    """By the report, with the object, by the summary, and by the coverage gate."""
    for words, code in ((["--summary"], 0), (["--check", "require-coverage=partial"], 1), (["--check", "require-coverage=none"], 0)):
        done = place.cachalot("run", *words, "--", PROGRAMS / "unseen", "denied", 1, 0, PLUGIN)
        assert done.code == code
        assert code == 1 or "--check" in words or "libunseen_plugin.so" in done.out + done.err
    report = place.reports()[-1]
    assert report["coverage"]["status"] == "partial" and report["coverage"]["counters"]["unseen_work"] > 0
    assert any("libunseen_plugin.so" in reason for reason in report["coverage"]["reasons"])
