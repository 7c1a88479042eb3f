"""cachalot run in front of what starts several processes: each has a report, with its rank, and they are judged together."""

import json
import shutil
import sys

import pytest
import sanitizer

from conftest import PROGRAMS, SIM, load

ALLOCATE = PROGRAMS / "allocate_130"
# Starts itself as so many workers, as torchrun does; the second one asks for twice as much.
TORCHRUN = """
import os, subprocess, sys
workers = [subprocess.Popen([sys.argv[2 + (rank == 1)]], stdout=subprocess.DEVNULL,
                            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": sys.argv[1]})
           for rank in range(int(sys.argv[1]))]
sys.exit(max(worker.wait() for worker in workers))
"""


def launch(place, *words, **environment):
    return place.cachalot("run", *words, **environment)


@pytest.mark.parametrize("variables, rank, source", [
    ({"RANK": 3, "SLURM_PROCID": 0}, 3, "RANK"),
    ({"OMPI_COMM_WORLD_RANK": 2, "PMIX_RANK": 1}, 2, "OMPI_COMM_WORLD_RANK"),
    ({"PMIX_RANK": 1, "SLURM_PROCID": 0}, 1, "PMIX_RANK"),
    ({"PMI_RANK": 12}, 12, "PMI_RANK"),
    ({"SLURM_PROCID": 4711}, 4711, "SLURM_PROCID"),
    ({}, None, None)])
def test_ranks_of_all_launchers(place, variables, rank, source):
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        variables.setdefault(name, None)
    done = launch(place, ALLOCATE, CACHALOT_OUTPUT="cachalot.r%r.json", **variables)
    assert done.code == 0
    report = place.only_report()
    assert (report["process"]["rank"], report["process"]["rank_source"]) == (rank, source)
    (path,) = place.work.glob("cachalot.*.json")
    assert path.name == f"cachalot.r{'none' if rank is None else rank}.json"


def test_each_child_has_a_report(place):
    script = f"{ALLOCATE} & {ALLOCATE} & wait; exec {ALLOCATE}"
    done = launch(place, "--check", "require-reports=3,max-oom=0", "sh", "-c", script)
    assert done.code == 0, done.err
    pids = {report["process"]["pid"] for report in place.reports()}
    assert len(pids) == 3 and len({report["process"]["session"] for report in place.reports()}) == 1


def test_a_report_that_fell_back_to_the_usual_name_is_found(place):
    """Of a child for which the name was too long."""
    done = launch(place, "--check", "max-oom=0", "--output", "a" * 160 + ".%q{LONG}.json", "sh", "-c", f"LONG={'b' * 60}; export LONG; {ALLOCATE}")
    assert done.code == 0 and "passed" in done.err, done.err


def test_workers_of_torchrun_are_judged_together(place):
    done = launch(place, "--check", "require-reports=3,max-oom=0,max-spread=10%,format=json,output=v.json",
                  sys.executable, "-c", TORCHRUN, "3", ALLOCATE, PROGRAMS / "fill")
    verdict = json.loads((place.work / "v.json").read_text())
    assert {report["process"]["rank"] for report in place.reports()} == {0, 1, 2}
    assert done.code == 1 and verdict["peak_reserved_bytes"]["odd_process"].startswith("rank 1,"), done.err
    assert "odd one: rank 1," in done.err and "sum " in done.err and "spread " in done.err


def test_a_rank_that_is_killed_is_not_missing(place):
    worker = (f"mkfifo p; {PROGRAMS / 'wait_for_input'} <p >ready & exec 3>p; "
              "until test -s ready; do sleep 0.02; done; kill -9 $!; wait")
    done = launch(place, "--summary", "sh", "-c", worker, RANK=5)
    report = place.only_report()
    assert done.code == 0 and report["kind"] == "harvest" and report["process"]["rank"] == 5
    assert " wait_for_input " in done.err


@pytest.mark.skipif(not shutil.which("mpirun"), reason="no mpirun")
def test_ranks_under_open_mpi(place):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3"]
    done = launch(place, "--check", "require-reports=3,max-oom=0", *mpirun, ALLOCATE)
    assert done.code == 0, done.err
    found = {(r["process"]["rank"], r["process"]["rank_source"]) for r in place.reports()}
    assert found == {(rank, "OMPI_COMM_WORLD_RANK") for rank in range(3)}
    # The other way: nothing around mpirun itself, the lines of `cachalot env`.
    lines = place.cachalot("env", "--for", "mpirun").out
    line = next(line for line in lines.splitlines() if line.startswith("mpirun"))
    line = line.replace("mpirun", " ".join(mpirun), 1).replace("./program", str(ALLOCATE))
    done = place.run("/bin/sh", "-c", line, preload=())
    assert done.code == 0, done.err
    assert {load(path)["process"]["rank"] for path in place.work.glob("reports/*.json")} == {0, 1, 2}


LOADER = "/lib64/ld-linux-x86-64.so.2"


@sanitizer.unless_sanitized("its runtime must come first")
@pytest.mark.skipif(not shutil.which(LOADER), reason="another processor's loader")
@pytest.mark.parametrize("words", [[], ["--argv0", "other"]], ids=" ".join)
def test_a_program_is_named_after_itself(place, words):
    """Not after the loader that was started to run it."""
    done = launch(place, "--summary", "--output", "%e.json", LOADER, *words, ALLOCATE)
    assert done.code == 0 and f" {ALLOCATE.name} " in done.err, done.err
    assert load(place.work / f"{ALLOCATE.name}.json")["process"]["exe"] == str(ALLOCATE)


def test_a_child_whose_page_cannot_be_read(place):
    """It uses the cache, as its threads say; only the other one is said not to."""
    script = f"sleep 4 | CACHALOT_PAGE_DIR=/proc/none {PROGRAMS}/allocate_on >&- 2>&- & sleep 1; exec {ALLOCATE}"
    done = launch(place, "--summary", "sh", "-c", script)
    assert done.code == 0 and "with a page that cannot be read here (of another user, or without a name)" in done.err, done.err
    (unseen,) = [line for line in done.err.splitlines() if "no CUDA has been seen so far" in line]
    (served,) = [line for line in done.err.splitlines() if "cannot be read here" in line]
    assert "sleep (" in unseen and "allocate_on (" in served and "allocate_on" not in unseen


PAST_US = [PROGRAMS / "load_deep", "namespace", PROGRAMS / "liballocate_plugin_130.so"]


@pytest.mark.parametrize("words, said", [
    (["true"], "no report: no process of this run initialised CUDA through the cache"),
    ([PROGRAMS / "no_cuda"], "no report: no process of this run initialised CUDA through the cache"),
    ([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{SIM}/libcuda.so.1').cuInit(0)"],
     "nothing was allocated through the cache"),
    (PAST_US, "coverage none: "),
    (PAST_US, "Next: `cachalot doctor ")])
def test_no_well_where_nothing_was_served(place, words, said):
    done = launch(place, "--summary", *words)
    assert done.code == 0 and said in done.err, done.err
    gate = launch(place, "--check", "max-oom=0,max-leaked=0", *words)
    assert gate.code in (1, 3) and "passed" not in gate.err
