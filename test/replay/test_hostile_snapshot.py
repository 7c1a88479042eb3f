"""A pickle of anybody's is plain data or refused: no code runs, nothing but Failure comes out."""

import gzip
import io
import os
import pickle
import resource
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from cachalot_command.common.tools import Failure  # noqa: E402
from cachalot_command.reading import snapshot  # noqa: E402
from cachalot_command.reading import traces  # noqa: E402

QUICK = settings(max_examples=int(os.environ.get("CACHALOT_EXAMPLES", "150")))
NUMBER = st.one_of(st.integers(-2, 6), st.sampled_from([2**63, 2**64, -2**70, 0x7F0000000000]), st.none(),
                   st.floats(), st.text(max_size=3), st.just([1]))
EVENT = st.fixed_dictionaries(
    {}, optional={"action": st.sampled_from(["alloc", "free_requested", "free_completed", "segment_alloc",
                                             "segment_free", "segment_map", "oom", "snapshot", "other", 7]),
                  "addr": NUMBER, "size": NUMBER, "stream": NUMBER, "frames": st.none()})
GOOD = st.fixed_dictionaries({"action": st.sampled_from(["alloc", "alloc", "free_requested", "free_completed"]),
                              "addr": st.integers(0, 9), "size": st.integers(0, 4)}, optional={"stream": NUMBER})
BLOCK = st.fixed_dictionaries({}, optional={"address": NUMBER, "size": NUMBER, "state": st.sampled_from(
    ["active_allocated", "active_pending_free", "inactive", None]), "requested_size": NUMBER})
SEGMENT = st.fixed_dictionaries({}, optional={"device": NUMBER, "address": NUMBER, "total_size": NUMBER,
                                              "blocks": st.lists(BLOCK, max_size=4)})
SNAPSHOT = st.fixed_dictionaries({}, optional={
    "device_traces": st.lists(st.lists(GOOD, max_size=12) | st.lists(EVENT, max_size=12), min_size=1, max_size=2), "segments": st.lists(SEGMENT, max_size=3)})
OPCODES = st.lists(st.sampled_from([bytes([b]) for b in b"().]}0e1Nas2bRicod\x80\x85\x86\x87\x88\x89\x8c\x93\x94\x95"]
                                   + [b"cos\nsystem\n", b"V1\n", b"I7\n", b"K\x01", b"U\x02ab", b"\x80\x04", b"j\xff\xff\xff\xff", b"r\xff\xff\xff\x3f"]),
                   max_size=40).map(b"".join)


def read(data):
    """What the reader makes of it, to the last line."""
    try:
        source = traces.open_snapshot(io.BytesIO(data), "x", None)
        lines = b"".join(source.chunks).decode().splitlines()
    except Failure as failure:
        assert failure.code in (2, 3) and str(failure)
        return
    assert lines[0].startswith("Thread,Time,") and all(line.split(",")[2] in ("allocate", "free") for line in lines[1:])


def read_within(seconds, data):
    least, snapshot.SECONDS_LEAST = snapshot.SECONDS_LEAST, seconds
    try:
        return traces.open_snapshot(io.BytesIO(data), "x", None)
    finally:
        snapshot.SECONDS_LEAST = least


@QUICK
@given(SNAPSHOT)
def test_any_snapshot(value):
    read(pickle.dumps(value))


@QUICK
@given(OPCODES)
def test_any_opcodes(data):
    read(data + b".")


def test_time_is_that_of_the_file():
    """The hash of a tuple of one tuple twice, and so on, takes twice as long with each."""
    with pytest.raises(Failure, match="not read: it takes more than 1 s, and 128 bytes should not"):
        read_within(1, b"\x80\x04})" + 60 * b"2\x86" + b"K\x01s.")


@pytest.mark.parametrize("write", [bytes, gzip.compress])
@pytest.mark.parametrize("index", [2**30 - 1, 2**28])
def test_memory_is_that_of_the_file(tmp_path, write, index):
    """Python's table of what is referred to again has room for the highest number named, whatever the file's size."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    (tmp_path / "x").write_bytes(write(b"\x80\x04Nr" + index.to_bytes(4, "little") + b"."))
    with pytest.raises(Failure, match="not read: it takes more memory than there is, or than 9 bytes should"):
        traces.open_source(str(tmp_path / "x"))
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_memory_is_no_more_than_there_is(tmp_path, monkeypatch):
    """A list of 64 million places."""
    assert snapshot.memory_for(1 << 50) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    path = tmp_path / "s.gz"
    path.write_bytes(b"\x80\x04(" + (64 << 20) * b"N")
    monkeypatch.setattr(snapshot, "memory_for", lambda size: size)
    with pytest.raises(Failure, match="it takes more memory than"):
        traces.open_source(path)


@pytest.mark.parametrize("pieces", [8, 64])
def test_the_packed_size_bounds_memory_and_time(tmp_path, pieces):
    """Half a MB or 4 MB unpack to a thousand times as much, and that would become 4 or 40 GB. 4 MB get 1 GiB and 10 s of
    processor time at most."""
    piece = gzip.compress(b"]" * (64 << 20))
    (tmp_path / "x").write_bytes(gzip.compress(b"\x80\x04(") + pieces * piece)
    most = os.stat(tmp_path / "x").st_size + snapshot.UNPACKED_MOST
    assert snapshot.MEMORY_LEAST + snapshot.MEMORY_PER_BYTE * most <= 1 << 30 and snapshot.seconds_for(most) <= 10
    begun = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with pytest.raises(Failure, match=f"or than {most} bytes should; unpack it by gunzip, and all its bytes count"):
        traces.open_source(str(tmp_path / "x"))
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    assert sum(sum(now[:2]) - sum(before[:2]) for now, before in zip(ended, begun)) < 10
    assert ended[1].ru_maxrss <= max(begun[1].ru_maxrss, begun[0].ru_maxrss + (1 << 20))


def test_a_snapshot_that_packs_well_is_read(tmp_path):
    """A loop's without times packs to a 300th."""
    events = [{"action": action, "addr": 1 << 40, "size": 4096, "stream": 0} for action in ("alloc", "free_requested", "free_completed")]
    path = tmp_path / "s.gz"
    with gzip.open(path, "wb") as file:
        pickle.dump({"device_traces": [[dict(event) for _ in range(250000) for event in events]], "segments": []}, file, 4)
    source = traces.open_source(path)
    assert sum(chunk.count(b"\n") for chunk in source.chunks) == 500001


def test_the_reader_ends_when_nobody_reads_what_it_tells():
    events = [{"action": "alloc", "addr": i + 1, "size": 100, "stream": 0} for i in range(20000)]
    file = io.BytesIO(pickle.dumps({"device_traces": [events], "segments": []}))
    reader = snapshot.Reader(file, "x", 1 << 24, None)
    assert reader.told()["before"] == 0
    reader.pipe.close()
    for _ in range(100):
        if os.waitpid(reader.process, os.WNOHANG)[0]:
            return
        time.sleep(0.05)
    reader.stop()
    pytest.fail("it waits for ever")
