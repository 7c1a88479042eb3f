"""cachalot export --memory-viz: snapshots as PyTorch's own viewers want them."""

import importlib.util
import json
import os
import pickle

from cachalot_command.command import export
import pytest
from history_of import MIB, report_with_history, report_with_mapped
from viewer import reserved_over_time


def snapshot_of(work, report):
    (work / "in.json").write_text(json.dumps(report))
    assert export.main([str(work / "in.json"), "--memory-viz", str(work / "out")]) == 0
    data = (work / "out").read_bytes()
    assert data[0] == 0x80 and data[1] in (2, 3, 4)
    return pickle.loads(data)


def test_memory_viz_has_the_fields_of_a_snapshot(tmp_path, model):
    history = report_with_history(model, 2000)
    snapshot = snapshot_of(tmp_path, history)
    assert snapshot.keys() == {"segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces"}
    device = history["devices"][0]
    assert len(snapshot["segments"]) == len(device["segments"])
    for ours, theirs in zip(device["segments"], snapshot["segments"]):
        assert theirs["address"] == int(ours["address"], 16) and theirs["total_size"] == ours["total_bytes"]
        assert theirs["segment_type"] in ("small", "large") and theirs["stream"] == 0 and theirs["device"] == 0
        blocks = theirs["blocks"]
        assert sum(b["size"] for b in blocks) == theirs["total_size"]
        assert theirs["allocated_size"] == sum(b["size"] for b in blocks if b["state"] == "active_allocated")
        assert theirs["allocated_size"] == ours["allocated_bytes"]
        assert theirs["active_size"] == sum(b["size"] for b in blocks if b["state"] != "inactive")
        assert {b["state"] for b in blocks} <= {"active_allocated", "active_pending_free", "inactive"}
    assert any(b["state"] == "active_pending_free" for s in snapshot["segments"] for b in s["blocks"])
    trace = snapshot["device_traces"][0]
    assert {e["action"] for e in trace} == {"alloc", "free_requested", "free_completed", "segment_alloc", "oom"}
    for entry in trace:
        assert entry.keys() >= {"action", "size", "stream", "time_us", "frames"}
        assert ("addr" in entry) == (entry["action"] != "oom")
    assert [e["device_free"] for e in trace if e["action"] == "oom"] == [7 << 20]
    frames = next(e["frames"] for e in trace if e["frames"])
    assert frames[0]["filename"] == "train.py" and frames[0]["line"] in range(31, 36) and frames[0]["name"] == "step"
    assert frames[1] == {"filename": "libtorch.so", "line": 0, "name": "at::empty+0x12"}


def memory_viz():
    """PyTorch's own script; only that file of it."""
    named = os.environ.get("MEMORY_VIZ")
    if not named:
        torch = importlib.util.find_spec("torch")
        named = torch and os.path.join(os.path.dirname(torch.origin), "cuda/_memory_viz.py")
    if not named or not os.path.isfile(named):
        pytest.skip("PyTorch's _memory_viz.py is not here: install torch, or name the file in MEMORY_VIZ")
    spec = importlib.util.spec_from_file_location("_memory_viz", named)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_memory_viz_loads_in_pytorchs_own(tmp_path, model):
    viz = memory_viz()
    for lost, devices in ((0, 1), (500, 2)):
        report = report_with_history(model, 2000, lost=lost, devices=devices)
        snapshot = snapshot_of(tmp_path, report)
        for page in (viz.trace_plot(snapshot), viz.trace_plot(snapshot, plot_segments=True), viz.segment_plot(snapshot)):
            assert "snapshot.pickle" in page or "plot" in page
        assert f"segments: {len(snapshot['segments'])}" in viz.segsum(snapshot)
        assert "raise OutOfMemoryError" in viz.trace(snapshot)


@pytest.mark.parametrize("more", [[], [("segment_alloc", -2, 2), ("segment_free", -2, 2)]])
def test_the_viewer_goes_back_through_mapped_memory(tmp_path, model, more):
    """Also where an ordinary segment touches it: the viewer joins the two."""
    report = report_with_mapped(model, more=[*more, *more[:1]])
    if more:
        block = {"address": f"{(1 << 46) - 2 * MIB:#x}", "size_bytes": 2 * MIB, "requested_bytes": 0, "state": "reusable"}
        report["devices"][0]["segments"].append({"address": block["address"], "total_bytes": 2 * MIB, "pool": "small_pool",
                                                 "allocated_bytes": 0, "blocks": [block]})
        report["devices"][0]["statistics"]["reserved_bytes"]["all"]["current"] += 2 * MIB
    snapshot = snapshot_of(tmp_path, report)
    assert [s["is_expandable"] for s in snapshot["segments"]] == [True, False][:1 + bool(more)]
    reserved = reserved_over_time(snapshot, 0)
    assert (reserved[0], max(reserved), reserved[-1]) == (0, (16 + 2 * bool(more)) * MIB, (12 + 2 * bool(more)) * MIB)
    viz = memory_viz()
    assert "segment_map" in viz.trace(snapshot) and viz.trace_plot(snapshot) and viz.segment_plot(snapshot)
