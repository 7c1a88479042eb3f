"""Memory snapshots of PyTorch: read without running anything, checked, and told as a trace."""

import gzip
import os
import pickle

import pytest
from conftest import command, peaks, replay


def event(action, address, size, **more):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 5, "frames": [], **more}


def segment(address, blocks, device=0):
    return {"device": device, "address": address, "total_size": sum(b["size"] for b in blocks), "stream": 0,
            "segment_type": "large", "blocks": blocks}


def block(size, state="active_allocated", **more):
    return {"size": size, "state": state, **more}


def snapshot(*traces, segments=()):
    return {"segments": list(segments), "device_traces": [list(t) for t in traces],
            "allocator_settings": {"expandable_segments": False}}


def write(path, value, protocol=4):
    path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol))
    return path


WHOLE = [event("segment_alloc", 4096, 20 << 20), event("alloc", 4096, 3 << 20, stream=7), event("alloc", 1 << 30, 700),
         event("free_requested", 4096, 3 << 20), event("snapshot", 0, 0), event("alloc", 1 << 31, 5 << 20),
         event("free_completed", 4096, 3 << 20), event("oom", 0, 1 << 40, device_free=0), event("alloc", 4096, 100)]


@pytest.mark.parametrize("protocol", range(6))
def test_a_whole_history(tmp_path, protocol):
    got = replay(write(tmp_path / "s.pickle", snapshot([], WHOLE), protocol))
    # A block is PyTorch's until free_completed: 3 MiB, 700 B and 5 MiB at once.
    assert peaks(got)[0] == (8 << 20) + 700
    assert (got["trace"]["mallocs"], got["trace"]["frees"], got["trace"]["format"]) == (4, 1, "snapshot")
    assert got["trace"]["recorded_failures"] == 1
    packed = tmp_path / "s.pickle.gz"
    packed.write_bytes(gzip.compress((tmp_path / "s.pickle").read_bytes()))
    assert replay(packed)["totals"] == got["totals"]
    (out_of_memory,) = replay(packed, "--capacity", "1GiB")["oom_events"]
    assert out_of_memory["requested_bytes"] == 1 << 40


@pytest.mark.parametrize("waiting", ["active_pending_free", "active_awaiting_free"])  # what PyTorch writes, and documents
def test_what_was_there_before_the_history_begins(tmp_path, waiting):
    events = [event("free_requested", 8192, 600), event("free_completed", 8192, 600), event("alloc", 8192, 900),
              event("segment_alloc", 1 << 30, 40 << 20), event("segment_free", 1 << 29, 60 << 20)]
    ends = [segment(4096, [block(4096, requested_size=4000), block(1024, requested_size=900), block(512, "inactive")]),
            segment(1 << 30, [block(40 << 20, waiting)]), segment(1 << 35, [block(512)], device=1)]
    path = write(tmp_path / "s.pickle", snapshot(events, segments=ends))
    got = replay(path)
    assert (got["trace"]["mallocs"], got["trace"]["frees"]) == (4, 1)
    assert peaks(got)[0] == 4000 + (40 << 20) + 900
    assert got["trace"]["recorded_peak_reserved_bytes"] == 5632 + (100 << 20)
    done = command("replay", path)
    assert "3 blocks were allocated before" in done.stderr and f"at most {5632 + (100 << 20)} bytes" in done.stdout


def test_devices(tmp_path):
    path = write(tmp_path / "s.pickle", snapshot([event("alloc", 1, 10)], [], [event("alloc", 1, 20)]))
    done = command("replay", path)
    assert done.returncode == 2 and "0, 2" in done.stderr
    assert peaks(replay(path, "--device", 2))[0] == 20
    assert command("replay", path, "--device", 1).returncode == 2


class Evil:
    """Unpickled carelessly, it makes a file."""

    def __reduce__(self):
        return os.system, ("touch evil",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_no_code_is_run(tmp_path, protocol):
    for value in (Evil(), snapshot([Evil()]), {"device_traces": [], "segments": Evil()}):
        done = command("replay", write(tmp_path / "s.pickle", value, protocol), cwd=tmp_path)
        assert done.returncode == 3 and not done.stdout and "Traceback" not in done.stderr
        assert protocol < 2 or "only plain data is read" in done.stderr, done.stderr
        assert not (tmp_path / "evil").exists()


GOOD = pickle.dumps(snapshot(WHOLE))


@pytest.mark.parametrize("value", [
    b"\x80", b"\x80\x04", b"\x80\x63N.", GOOD[:50], GOOD[:-1], b"\x80\x04\x8e" + b"\xff" * 8, b"\x80\x04r\xff\xff\xff\x7fN.",
    b"\x80\x04\x82\x01.", b"\x80\x04Pid\n.", b"\x80\x04h\x05.", b"\x80\x040.", b"\x80\x04" + b"]" * 3000 + b"a" * 2999 + b".",
    None, [], {}, {"device_traces": 5}, {"device_traces": [5]}, snapshot(), snapshot([])], ids=range(19))
def test_what_is_no_snapshot(tmp_path, value):
    done = command("replay", write(tmp_path / "s.pickle", value))
    assert done.returncode == 3 and not done.stdout and "Traceback" not in done.stderr
    assert done.stderr.startswith("cachalot: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("events, number, reason", [
    ([5], 0, "no action"), ([{"action": 7}], 0, "no action"), 
    ([event("alloc", "x", 1)], 0, "no number"), ([event("free_requested", [1], 3)], 0, "no number"), ([event("alloc", 1, -1)], 0, "no number"),
    ([event("alloc", 1, True)], 0, "no number"), ([event("alloc", 1, 1), event("alloc", 1, 1)], 1, "allocated already"),
    ([event("alloc", 1, 1), event("free_completed", 1, 1), event("free_requested", 1, 1)], 2, "not allocated"),
    ([event("free_completed", 1, 1), event("free_completed", 1, 1)], 1, "not allocated")])
def test_broken_events(tmp_path, events, number, reason):
    done = command("replay", write(tmp_path / "s.pickle", snapshot(events)))
    assert done.returncode == 3 and f"event {number} of device 0: " in done.stderr and reason in done.stderr, done.stderr


@pytest.mark.parametrize("bad", [5, {"size": "x"}, {"size": -1, "state": "inactive"}])
def test_broken_blocks(tmp_path, bad):
    ends = [{"device": 0, "address": 4096, "total_size": 5, "blocks": [bad]}]
    done = command("replay", write(tmp_path / "s.pickle", snapshot(WHOLE, segments=ends)))
    assert done.returncode == 3 and "has no address or size" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command_name", ["replay", "tune"])
@pytest.mark.parametrize("size", [10**5000, 10**30, 1 << 63, -5, "5", 0.5, True], ids=range(7))
def test_a_segment_of_a_size_that_cannot_be(tmp_path, size, command_name):
    path = write(tmp_path / "s.pickle", snapshot(WHOLE, segments=[{**segment(4096, [block(512)]), "total_size": size}]))
    done = command(command_name, path)
    assert done.returncode == 3 and done.stderr == f"cachalot: {path}: a segment of device 0 has a total_size that is no size\n"
    assert not done.stdout


@pytest.mark.parametrize("bad", [{"size": 10**5000}, {"size": 1 << 63}, {"address": 10**5000, "size": 1}, {"address": 1 << 64, "size": 1}], ids=range(4))
def test_blocks_beyond_all_memory(tmp_path, bad):
    ends = [{"device": 0, "address": 4096, "total_size": 5, "blocks": [block(**{"state": "active_allocated", **bad})]}]
    done = command("replay", write(tmp_path / "s.pickle", snapshot(WHOLE, segments=ends)))
    assert done.returncode == 3 and "has no address or size" in done.stderr and "Traceback" not in done.stderr


def test_what_segments_and_events_do_not_add_up_to_is_not_known(tmp_path):
    for ends, events in (([segment(4096, [block(512)])], [event("segment_alloc", 4096, 1 << 30)]),
                         ([{"device": 0, "address": 4096, "total_size": (1 << 63) - 1}] * 3, [])):
        got = replay(write(tmp_path / "s.pickle", snapshot([event("alloc", 1 << 31, 512), *events], segments=ends)))
        assert got["trace"]["recorded_peak_reserved_bytes"] is None


def test_a_history_without_one_half_of_each_free(tmp_path):
    """_record_memory_history has skip_actions: what is asked for is then done."""
    events = [step for i in range(100) for step in (event("alloc", 4096 + (i % 2 << 20), 1000), event("free_requested", 4096 + (i % 2 << 20), 1000))]
    got = replay(write(tmp_path / "s.pickle", snapshot(events)))
    assert peaks(got)[0] == 1000 and got["trace"]["live_at_end"] == 0
    # But for what other streams still use at the end.
    events = [event("alloc", 4096, 1000), event("free_requested", 4096, 1000), event("alloc", 8192, 1000)]
    got = replay(write(tmp_path / "s.pickle", snapshot(events, segments=[segment(4096, [block(1024, "active_pending_free")])])))
    assert peaks(got)[0] == 2000 and got["trace"]["live_at_end"] == 2


    # Nor where an address comes again, whatever is the last of it.
    events = [step for _ in range(3) for step in (event("alloc", 4096, 1000), event("free_requested", 4096, 1000))]
    got = replay(write(tmp_path / "s.pickle", snapshot(events, segments=[segment(4096, [block(1024, "active_pending_free")])])))
    assert peaks(got)[0] == 1000


def test_actions_of_a_later_pytorch_are_left_out(tmp_path):
    path = write(tmp_path / "s.pickle", snapshot([event("alloc", 4096, 1000), {"action": "moved\x1b"}, event("free_completed", 4096, 1000)]))
    for name in ("replay", "export"):
        done = command(name, path, *(["--csv", tmp_path / "out"] if name == "export" else []))
        assert done.returncode == 0 and done.stderr.startswith(f"cachalot: {path}: actions that are not known are left out: moved?\n")
    assert peaks(replay(path))[0] == 1000


def test_a_snapshot_of_pytorch_2_15(tmp_path):
    """It has annotations, and pinned host memory beside the devices. What is no memory event makes no device."""
    noted = [event("annotate", 4096, 1000, user_metadata="step 1"), event("user_defined", 0, 0), event("snapshot", 0, 0)]
    root = {**snapshot(noted, [event("alloc", 4096, 1000), *noted], noted[2:]), "host_segments": [segment(4096, [block(64)])],
            "host_traces": [[event("alloc", 4096, 64)]]}
    path = write(tmp_path / "s.pickle", root)
    done = command("replay", path)
    assert (done.returncode, done.stderr) == (0, "cachalot: events of pinned host memory (host_traces) are left out: 1\n")
    assert peaks(replay(path))[0] == 1000
    for traces, said in (([noted], "has events of pinned host memory (host_traces) alone"), ([[], []], "host_traces) alone")):
        write(path, {**root, "device_traces": traces})
        done = command("export", path, "--csv", "-")
        assert done.returncode == 3 and said in done.stderr
    write(path, snapshot(noted))
    assert "no events: call torch.cuda.memory._record_memory_history() first" in command("replay", path).stderr


def test_sizes_as_an_older_pytorch_has_them(tmp_path):
    ends = [segment(4096, [block(1024, history=[{"addr": 4096, "real_size": 700}]), block(512, history=[])])]
    got = replay(write(tmp_path / "s.pickle", snapshot([event("oom", 0, 1 << 40)], segments=ends)))
    assert peaks(got)[0] == 700 + 512


@pytest.mark.parametrize("what", ["--csv", "--html", "--perfetto", "--memory-viz"])
def test_what_was_out_of_memory_is_exported(tmp_path, what):
    path = write(tmp_path / "s.pickle", snapshot(WHOLE))
    done = command("export", path, what, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    if what == "--csv":
        assert replay(tmp_path / "out")["trace"]["recorded_failures"] == 1
        assert peaks(replay(tmp_path / "out")) == peaks(replay(path))


def test_one_device_is_exported(tmp_path):
    path = write(tmp_path / "s.pickle", snapshot([event("alloc", 4096, 10)], [event("alloc", 4096, 7000), event("free_completed", 4096, 7000)]))
    done = command("export", path, "--csv", "-", "--device", 1)
    assert done.returncode == 0 and ",7000," in done.stdout and ",10," not in done.stdout, done.stderr
    assert "choose one with --device" in command("export", path, "--csv", "-").stderr


@pytest.mark.parametrize("begin, kind", [(b"\xfd7zXZ\0", "xz"), (b"BZh9", "bzip2"), (b"PK\3\4", "zip")])
def test_what_others_packed(tmp_path, begin, kind):
    (tmp_path / "x").write_bytes(begin + b"rest")
    assert f"x: compressed by {kind}; unpack it first" in command("replay", tmp_path / "x").stderr


def test_what_zstd_made_is_no_pickle(tmp_path):
    path = write(tmp_path / "s", b"\x28\xb5\x2f\xfd and more")
    assert f"{path}: compressed by zstd; unpack it first" in command("replay", path).stderr
