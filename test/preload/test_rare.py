"""Programs that exit in the middle of a malloc, take all keys, fork all the time, or speak another language."""

import os
import subprocess
import sys

import pytest

import sanitizer


@sanitizer.unless_sanitized("its runtime's own malloc is interrupted")
def test_exit_in_the_middle_of_malloc(place):
    """Natively a program of one thread takes no lock there; with a thread of ours it does."""
    for i in range(12):
        ours = place.run("exit_in_malloc", 3000 + 700 * i, timeout=20)
        assert (ours.code, ours.out, ours.err) == (7, "", "")
    assert all(report["exit"]["code"] == 7 for report in place.reports())
    assert len(place.reports()) == 12 and place.left_pages() == []


@sanitizer.unless_sanitized("its runtime's own locks are interrupted")
def test_exit_in_the_middle_of_making_threads(place):
    for i in range(24):
        ours = place.run("exit_in_create", 5000 + 417 * i, timeout=20)
        assert (ours.code, ours.out, ours.err) == (7, "", "")
    assert len(place.reports()) == 24


@sanitizer.unless_sanitized("its stacks are its own")
def test_no_thread_and_no_stack(place):
    place.same("large_tls", code=9)


@sanitizer.unless_sanitized("too slow for a processor that is never let go")
@pytest.mark.parametrize("what", ["mark", "cache"])
def test_threads_of_two_priorities_on_one_processor(place, what):
    native = place.native("priorities", what)
    if native.code == 77:
        pytest.skip("no real-time priorities here")
    ours = place.run("priorities", what)
    assert native.code == ours.code == 0, ours.err


@sanitizer.unless_sanitized("its runtime takes a key")
def test_a_program_that_takes_all_keys(place):
    report = place.report("all_keys")
    assert report.totals["requests"] == report.totals["frees"] == 297


@sanitizer.unless_sanitized("its runtime's own locks are held in the child")
@pytest.mark.parametrize("environment", [{}, {"CACHALOT_DISABLE": 1}, {"CACHALOT_ONLY": "another"}], ids=str)
def test_children_of_a_busy_process(place, environment):
    """Also where we have nothing to do."""
    place.same("forks", **environment)


@sanitizer.unless_sanitized("its runtime's own thread stays", ("tsan",))
@pytest.mark.parametrize("arguments, requests", [([], 2), (["late"], 1)], ids=str)
def test_a_main_thread_that_ends(place, arguments, requests):
    """The process ends with its last thread, which is none of ours. What /proc says of the main thread is nothing then."""
    place.findings.leaks = False
    report = place.report("main_thread_ends", *arguments, timeout=20)
    assert (report["exit"]["code"], report.totals["requests"], place.left_pages()) == (0, requests, [])
    process = report["process"]
    assert [os.path.basename(process["exe"]), *process["argv"][1:]] == ["main_thread_ends", *arguments]


def test_a_destructor_that_exits(place):
    """Ours does not run then."""
    report = place.report("exit_in_destructor", code=3)
    assert (report.totals["requests"], report.totals["frees"], place.left_pages()) == (1, 1, [])


def test_a_decimal_comma(place):
    """Options are written with a point, whatever the program's language."""
    folder = place.work / "de_DE.UTF-8"
    if not os.path.exists("/usr/share/i18n/locales/de_DE"):
        pytest.skip("no sources of locales: apt-get install locales")
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", folder], capture_output=True, check=False)  # 1: with warnings
    script = ("import ctypes, locale; locale.setlocale(locale.LC_ALL, ''); assert locale.localeconv()['decimal_point'] == ','; "
              "cudart = ctypes.CDLL('libcudart.so.13'); block = ctypes.c_void_p(); print(cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000)))")
    place.findings.leaks = False
    ours = place.run(sys.executable, "-c", script, LC_ALL="de_DE.UTF-8", LOCPATH=place.work,
                     CACHALOT_CONF="garbage_collection_threshold:0.8,per_process_memory_fraction:0.5")
    assert (ours.code, ours.out, ours.err) == (0, "0\n", "")
    report = place.only_report()
    assert report.warnings == {} and report.totals["requests"] == 1
    assert [report["config"][name]["value"] for name in ("garbage_collection_threshold", "per_process_memory_fraction")] == ["0.8", "0.5"]
