"""What is served, what is passed on and counted, what happens when memory is short."""

import shutil

import pytest

import sanitizer

from conftest import BUILD, KIB, MIB, PROGRAMS, load

SHORT = {"CACHALOT_SIM_CAPACITY": "64M"}
# Ways that the device runs full by itself, and ways that fail when told to (CACHALOT_SIM_FAIL).
FULL = ["malloc", "in another context", "pitch", "managed", "async", "from pool", "array", "3D array", "mipmapped",
        "granules"]
TOLD = {"host": "cuMemHostAlloc", "host 2": "cuMemAllocHost_v2", "module": "cuModuleLoadData",
        "fat binary": "cuModuleLoadFatBinary", "library": "cuLibraryLoadData",
        "stream": "cuStreamCreate",
        "stream 2": "cuStreamCreateWithPriority", "graph": "cuGraphInstantiateWithFlags",
        "pool": "cuMemPoolCreate", "event": "cuEventCreate", "global": "cuModuleGetGlobal_v2",
        "peer": "cuCtxEnablePeerAccess", "launch": "cuLaunchKernel",
        "context": "cuCtxCreate_v4"}


def first(way):
    """Which call is the program's first: a free before it has made an event of the library's."""
    return 2 if way == "event" else 1


def test_pitch_and_3D(place):
    report = place.report("pitch")
    # The driver answers what it refuses; what it grants is ours: 5 + 1 + 3 pitched blocks.
    assert (report.totals["requests"], report.totals["frees"]) == (9, 9)
    assert report["coverage"]["counters"]["forwarded_allocations"] == 0


def test_other_memory_is_counted_and_returned(place):
    others = place.report("others")["others"]
    peaks = {"managed": MIB, "host": 2 * MIB, "array": MIB + MIB + (MIB + 128 * KIB + 16 * KIB),
             "vmm": 2 * MIB,
             "pool": 2 * MIB}
    for kind, peak in peaks.items():
        assert others[kind]["bytes"] == 0, kind
        assert others[kind]["allocated"] == others[kind]["freed"] > 0, kind
        assert others[kind]["peak_bytes"] == peak, kind
    assert others["device"]["allocated"] == others["imported"]["allocated"] == 0


def test_other_memory_that_is_kept(place):
    others = place.report("others", "keep")["others"]
    assert {kind: row["allocated"] for kind, row in others.items()} == {
        "managed": 1, "host": 2, "array": 3, "vmm": 1, "pool": 2, "imported": 0, "device": 0, "graph": 0}
    assert all(row["freed"] == 0 and row["bytes"] == row["peak_bytes"] for row in others.values())


@pytest.mark.parametrize("driver", [13000, 13050])  # the newest cuGraphAddNode is the second, and the third
def test_memory_that_graphs_allocate(place, driver):
    report = place.report("graph_memory", CACHALOT_SIM_DRIVER=driver)
    assert report["coverage"]["status"] == "full"
    frees = 4 * (20 * 4 + 1) + 1  # by the program; the graphs' own are none of ours
    assert report["others"]["graph"] == {
        "allocated": frees, "freed": frees, "bytes": 0, "peak_bytes": report["devices"][0]["total_bytes"] // 2}
    assert report["others"]["pool"]["allocated"] == 0
    assert report["coverage"]["submissions"]["graphs"] == 4 * 20 * 6 + 1


@sanitizer.unless_sanitized("its runtime ends a program that asks for too much, and is no framework's")
@pytest.mark.parametrize("file, off, said", [
    ("libc10_cuda.so", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "set PYTORCH_NO_CUDA_MEMORY_CACHING=1"),
    ("xla_cuda_plugin.so", {"XLA_PYTHON_CLIENT_ALLOCATOR": "Platform"}, "set XLA_PYTHON_CLIENT_ALLOCATOR=platform"),
    ("cupy/cuda/memory.cpython-311-x86_64-linux-gnu.so", None, "call cupy.cuda.set_allocator(None)")])
def test_a_framework_whose_own_cache_is_on(place, file, off, said):
    """One warning says what to set, and so does the summary; nothing where it is set, or sizes of all kinds come."""
    library = place.work / file
    library.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(BUILD / "test/preload/liblook_up_plugin.so", library)
    for program, variables, warned in (("fill", {}, True), ("allocate_130", {} if off is None else off, False)):
        done = place.cachalot("run", "--summary", PROGRAMS / program, LD_PRELOAD=library, CACHALOT_OUTPUT="r.json",
                              CACHALOT_SIM_CAPACITY="100M", **variables)
        texts = [warning["text"] for warning in load(place.work / "r.json")["warnings"]]
        assert [said in text for text in texts if "cache of its own" in text] == [True] * warned, texts
        assert (said in done.err) is warned, done.err


@pytest.mark.parametrize("way", ["expandable_segments:False", "expandable_segments:True", "thread_cache:off"])
def test_a_thread_without_a_context(place, way):
    report = place.report("no_context", CACHALOT_CONF=way)
    assert report["coverage"]["status"] == "full"
    assert (report.totals["requests"], report.totals["frees"]) == (2, 2)
    assert report["others"]["vmm"]["allocated"] == report["others"]["vmm"]["freed"] == 1


def test_memory_of_another_process(place):
    place.same("import_ipc")
    reports = place.reports()
    imported = sorted(report["others"]["imported"]["allocated"] for report in reports)
    assert imported == [1]  # the child left by _exit: its page is there
    assert reports[0]["others"]["imported"]["freed"] == 1
    (child,) = place.harvest()
    assert (child.counter("num_exports"), child.counter("num_offset_exports")) == (1, 0)


def test_async_free_of_our_memory(place):
    report = place.report("free_async")
    assert (report.totals["requests"], report.totals["frees"]) == (4, 4)
    assert report["others"]["pool"]["freed"] == 0


def test_memory_info_is_as_natively(place):
    report = place.report("memory_info")
    assert report.statistic("reserved_bytes") == 160 * MIB  # though all of it is cached


def test_memory_info_under_a_limit(place):
    ours = place.run("memory_info", CACHALOT_CONF="memory_limit_mb:200")
    lines = ours.out.splitlines()
    assert lines[0] == "at first: 200 of 8192 MiB"
    assert lines[4] == "made one: 40 of 8192 MiB"
    assert lines[8] == "freed one: 200 of 8192 MiB"


@pytest.mark.parametrize("mode", ["async", "fence", "strict"])
def test_copies_to_the_host_are_done_at_a_free(place, mode):
    place.same("host_copies", CACHALOT_CONF=f"free_mode:{mode}")


@pytest.mark.parametrize("mode", ["async", "fence", "strict"])
@pytest.mark.parametrize("mapped", [False, True])
def test_copies_to_the_host_while_the_context_is_released(place, mode, mapped):
    place.same("host_meanwhile", CACHALOT_CONF=f"free_mode:{mode},expandable_segments:{mapped}")


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kib", [1, 3000])
def test_what_is_pinned_and_freed_goes_back(place, kib, mapped):
    """It serves nobody: not one more for each block."""
    report = place.report("sync_memops", "again", kib, CACHALOT_CONF=f"expandable_segments:{mapped}")
    assert report.totals["peak_reserved_bytes"] <= 32 << 20 and report.counter("num_pinned_blocks") == 300


def test_what_the_driver_says_of_freed_memory(place):
    """Also where it knows the segment."""
    ours, native = place.run("attributes", CACHALOT_CONF="expandable_segments:False"), place.native("attributes")
    begin = ours.out.index("cuPointerGetAttribute(&type")
    assert ours.code == 0 and ours.out[begin:] == native.out[native.out.index("cuPointerGetAttribute(&type"):]
    assert ours.out.count("CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at): 1") == 3


def test_sync_memops_is_never_recycled(place):
    report = place.report("sync_memops")
    assert report.counter("num_pinned_blocks") == 7


def test_ipc_of_small_blocks_warns(place):
    ours = place.run("export_ipc", 300)
    native = place.native("export_ipc", 300)
    codes = [[line.split(",")[0] for line in done.out.splitlines()] for done in (ours, native)]
    assert codes[0] == codes[1]
    assert ours.out.splitlines()[1] == "export: 0, offset 307200"
    report = place.only_report()
    assert report.warned("CACHALOT_CONF=ipc:dedicated") > 0
    assert report.counter("num_offset_exports") > 0


def test_ipc_large_blocks_get_segments_after_the_first_export(place):
    ours = place.run("export_ipc", 3 * 1024)
    offsets = [line.split("offset ")[1] for line in ours.out.splitlines() if "offset" in line]
    assert offsets[:2] == ["0", str(3 * MIB)]
    assert set(offsets[2:]) == {"0"}


def test_ipc_dedicated(place):
    native = place.native("export_ipc", 3 * 1024)
    ours = place.run("export_ipc", 3 * 1024, CACHALOT_CONF="ipc:dedicated")
    assert (ours.code, ours.out) == (0, native.out)
    assert place.only_report().warned("IPC") == 0


def test_ipc_error(place):
    ours = place.run("export_ipc", 300, CACHALOT_CONF="ipc:error")
    assert ours.out.splitlines()[:2] == ["export: 0, offset 0", "export: 801, offset 0"]


@pytest.mark.parametrize("way", FULL)
def test_full_device_gives_the_cache_back(place, way):
    place.same("out_of_memory", way, CACHALOT_CONF="expandable_segments:True", CACHALOT_OUTPUT="mapped", **SHORT)
    report = place.report("out_of_memory", way, **SHORT)
    assert report.totals["reserved_bytes"] == (48 * MIB if way in ("malloc", "in another context", "pitch") else 0)
    assert report.totals["ooms"] == 0


@pytest.mark.parametrize("conf", ["expandable_segments:False", "expandable_segments:True"])
def test_a_busy_context_is_not_waited_for_in_vain(place, conf):
    assert place.same("out_of_memory", "beside a busy one", CACHALOT_CONF=conf, **SHORT).value("take(argument[1])") == 0


@sanitizer.unless_sanitized("its runtime ends a program that asks for too much, and is no framework's")
@pytest.mark.parametrize("conf", ["expandable_segments:False", "expandable_segments:True"])
def test_what_nothing_can_serve_is_refused_at_once(place, conf):
    done = place.same("impossible", CACHALOT_CONF=conf, **SHORT)
    assert done.value("answers") == 15 and done.value("slow") == 0


@pytest.mark.parametrize("way", TOLD)
def test_out_of_memory_is_tried_once_more(place, way):
    full = {"CACHALOT_SIM_CAPACITY": "49M", "CACHALOT_CONF": "pinned:off"} if way.startswith("host") else {}  # no room left for page tables
    native = place.native("out_of_memory", way, CACHALOT_SIM_FAIL=f"{TOLD[way]}:1", CACHALOT_SIM_DEVICES="2", **full)
    ours = place.run("out_of_memory", way, CACHALOT_SIM_FAIL=f"{TOLD[way]}:{first(way)}", CACHALOT_SIM_DEVICES="2", **full)
    assert (native.value("take(argument[1])"), ours.value("take(argument[1])")) == (2, 0)
    assert place.only_report().totals["reserved_bytes"] == 0


@pytest.mark.parametrize("way", TOLD)
def test_out_of_memory_stays_when_it_stays(place, way):
    more = {"CACHALOT_SIM_DEVICES": "2", "CACHALOT_CONF": "pinned:off"}
    place.same("out_of_memory", way, CACHALOT_SIM_FAIL=f"{TOLD[way]}:1+", **more)
    ours = place.run("out_of_memory", way, CACHALOT_SIM_FAIL=f"{TOLD[way]}:{first(way)}:1", **more)
    assert ours.value("take(argument[1])") == 1


def test_out_of_memory_is_said(place):
    place.same("out_of_memory", "malloc", CACHALOT_SIM_CAPACITY="63M",
               CACHALOT_SIM_FAIL="cuMemAlloc_v2:4+")
    report = place.only_report()
    assert (report.totals["ooms"], len(report["oom_events"])) == (1, 1)
    assert report["oom_events"][0]["requested_bytes"] == 48 * MIB


@pytest.mark.parametrize("how, losses", [("destroy", 3), ("reset", 3), ("release", 3)])
def test_a_context_ends(place, how, losses):
    report = place.report("context_end", how)
    assert report["coverage"]["counters"]["context_losses"] == losses
    assert report.totals["allocated_bytes"] == report.totals["reserved_bytes"] == 0
    # Late requests have a context again after a reset or release only if the driver says so.
    assert report.totals["double_frees"] == 0


@pytest.mark.parametrize("how, conf", [("reset", "expandable_segments:False"), *[
    (how, "expandable_segments:True") for how in ("destroy", "reset", "release")]])
def test_a_context_ends_while_threads_allocate(place, how, conf):
    """What they get then may be gone; what comes after is not."""
    place.same("context_race", how, 12, CACHALOT_CONF=conf)


@pytest.mark.parametrize("how, more", [  # a release that is held: nobody enters a context that may have ended
    *[(how, [40]) for how in ("destroy", "reset", "release")], ("destroy", [2, "held"]), ("reset", [2, "held"])])
@pytest.mark.parametrize("conf", [f"expandable_segments:{mapped},free_mode:{mode}" for mapped in ("True", "False")
                                  for mode in ("async", "fence", "strict")])
def test_memory_of_a_context_that_ends_is_there_for_another(place, conf, how, more):
    """What was freed before is, as natively, before the driver is told and until all has ended."""
    place.same("context_beside", how, *more, CACHALOT_CONF=conf, CACHALOT_SIM_CAPACITY="1200M",
               CACHALOT_SIM_DELAY="cuCtxDestroy_v2:1,cuMemUnmap:9")


@pytest.mark.parametrize("failing", [None, "cuGreenCtxDestroy:1:999"])
@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_green_context_ends(place, mapped, order, failing):
    place.same("green_context", order, CACHALOT_CONF=f"expandable_segments:{mapped}", CACHALOT_SIM_FAIL=failing)


@pytest.mark.parametrize("how", ["green", "reset"])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_tool_within_a_release(place, mapped, how):
    place.same("within_release", how, CACHALOT_CONF=f"expandable_segments:{mapped}")


@pytest.mark.parametrize("meanwhile", ["ask", "again"])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_primary_context_that_cannot_be_destroyed(place, mapped, meanwhile):
    place.same("context_refused", meanwhile, CACHALOT_CONF=f"expandable_segments:{mapped}", CACHALOT_SIM_DEVICES=2)
    assert place.reports()[-1].totals["hits"] >= 98  # it is served as before


@pytest.mark.parametrize("bytes", [300000, 40 * MIB])
@pytest.mark.parametrize("beside", ["busy", "capture"])
@pytest.mark.parametrize("way", ["expandable_segments:False", "expandable_segments:True", "free_mode:fence"])
def test_idle_pinned_memory_keeps_no_request_waiting(place, way, beside, bytes):
    place.same("pinned_beside", bytes, beside, CACHALOT_CONF=way)


def test_synchronous_operations_alone_are_waited_for(place):
    """Mapped memory: beside a capture there are none."""
    assert place.run("pinned_beside", 40 * MIB, "set", CACHALOT_CONF="expandable_segments:True").code == 0


@pytest.mark.parametrize("what", ["primary", "own", "called", "helped", "detached"])
@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_current_is_what_the_driver_says(place, mapped, what):
    place.same("current", what, CACHALOT_CONF=f"expandable_segments:{mapped}")
    for report in place.reports():
        assert report["coverage"]["status"] == "full"
        assert report.totals["hits"] > (990 if what in ("helped", "detached") else 5)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_context_that_was_taken_away(place, mapped):
    place.same("current_runtime", CACHALOT_CONF=f"expandable_segments:{mapped}")
    assert place.reports()[0].totals["requests"] == 4


@pytest.mark.parametrize("threads, rounds", [(0, 0), (0, 1), (0, 2), (8, 20)])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_contexts_handle_comes_back(place, mapped, threads, rounds):
    """Its first owner is still on its way out of the driver's call."""
    place.same("context_handle", threads, rounds, CACHALOT_CONF=f"expandable_segments:{mapped}",
               CACHALOT_SIM_DELAY="cuCtxDestroy_v2:2")
    for report in place.reports():
        assert report["coverage"]["status"] == "full"
        assert report.totals["allocated_bytes"] == 0


@pytest.mark.parametrize("conf", ["expandable_segments:False", "expandable_segments:True", "free_mode:fence"])
def test_threads_with_contexts_of_their_own(place, conf):
    """Also of a primary one that another thread retains anew as the last release ends it."""
    for _ in range(4):
        place.same("own_contexts", 8, 12, CACHALOT_CONF=conf, CACHALOT_SIM_DEVICES=2)
    for report in place.reports():
        assert report.totals["allocated_bytes"] == report.totals["reserved_bytes"] == 0


def test_a_context_stays(place):
    report = place.report("context_stays")
    assert report["coverage"]["counters"]["context_losses"] == 0
    assert (report.totals["requests"], report.totals["frees"]) == (4, 4)


@pytest.mark.parametrize("cudart", ["130", "131", "static", "113", "112"])
def test_devices(place, cudart):
    report = place.report(f"devices_{cudart}", CACHALOT_SIM_DEVICES=3)
    rows = [report.statistic("allocation", kind, device) for device in range(3)
            for kind in ("allocated", "freed")]
    assert rows == [10, 10, 9, 9, 9, 8]


@pytest.mark.parametrize("contexts", [2, 5])
def test_contexts(place, contexts):
    report = place.report("contexts", contexts)
    assert report.counter("num_lane_leaves") == 1  # the default stream of the second one is another
    assert (report.totals["requests"], report.totals["frees"]) == (3 * contexts, 3 * contexts)
    assert report["coverage"]["counters"]["context_losses"] == 0
    # Each has a segment of its own, and a third request that hits it.
    assert (report.totals["device_alloc"], report.totals["hits"]) == (contexts, 2 * contexts)


def test_more_contexts_than_books(place):
    report = place.report("contexts", 300)
    forwarded = report["coverage"]["counters"]["forwarded_allocations"]
    assert forwarded >= 2 * (300 - 256)
    assert report.totals["requests"] + forwarded == 900
    assert report.totals["frees"] + report["others"]["device"]["freed"] == 900


def test_a_free_binds_its_thread(place):
    place.report("bind_by_free")


def test_threads(place):
    report = place.report("threads")
    assert (report.totals["requests"], report.totals["frees"]) == (16000, 16000)
    assert report.totals["allocated_bytes"] == report.totals["active_bytes"] == 0
    assert report.totals["requested_bytes"] == 0


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("how", ["release", "reset"])
def test_a_context_that_has_ended_gives_nothing(place, mapped, how):
    """Though it is current, and mapped memory needs no context."""
    place.same("context_ended", how, CACHALOT_CONF=f"expandable_segments:{mapped}")
