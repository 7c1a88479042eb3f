"""Mapped memory (expandable_segments): random work on memory that moves, failing drivers, what ends with a context, what
the driver says of it, and which way `auto` goes."""

import shutil

import pytest

import sanitizer
from conftest import BUILD, LIBRARY, MIB

MAPPED = "expandable_segments:True,large_segment_size_mb:2"
LARGE = "expandable_segments:True,large_segment_size_mb:14"
WITH_POLICY = BUILD / "test/preload/libcachalot_policy.so"
LARGE_HANDLES = "handle_part=2,loss_part=1,device_chunks_least=16"


def option(report):
    return report["config"]["expandable_segments"]["value"]


@pytest.mark.parametrize("seed, threads, operations, capacity", [(1, 1, 6000, "320M"), (2, 1, 6000, "256M"), (3, 3, 2000, "512M")])
def test_random_work_on_memory_that_moves(place, seed, threads, operations, capacity):
    """No byte has two owners, and no mapping is taken down under work: the device would end the program."""
    ours = place.run("mapped_stress", seed, threads, operations, CACHALOT_CONF=MAPPED, CACHALOT_SIM_CAPACITY=capacity)
    assert (ours.code, ours.err, ours.value("cachalot_sim_unfinished()")) == (0, "", 0)
    report = place.reports()[-1]
    assert report.totals["allocated_bytes"] == 0 and report.counter("num_maps") > 0
    assert threads > 1 or report.counter("num_maps") > 300
    assert threads > 1 or sanitizer.KIND or report.counter("num_lane_frees") > 500  # slowed down, events look late


@pytest.mark.parametrize("driver", ["12040", "13000"])
def test_nothing_is_taken_down_under_work_where_there_are_no_context_events(place, driver):
    ours = place.run("no_events", CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_DRIVER=driver, CACHALOT_SIM_CAPACITY="1G")
    assert (ours.code, ours.err) == (0, "")
    assert place.reports()[-1].counter("num_maps") > 20


@pytest.mark.parametrize("seed, threads, operations, capacity", [(1, 1, 6000, "768M"), (2, 1, 6000, "512M"), (3, 3, 2000, "2G")])
def test_random_work_on_blocks_that_share_no_chunk(place, seed, threads, operations, capacity):
    """No size comes again."""
    ours = place.run("mapped_stress", seed, threads, operations, 90, CACHALOT_CONF=LARGE, CACHALOT_SIM_CAPACITY=capacity)
    assert (ours.code, ours.err, ours.value("cachalot_sim_unfinished()")) == (0, "", 0)
    report = place.reports()[-1]
    assert report.totals["allocated_bytes"] == 0 and report.counter("num_maps") > (300 if capacity == "768M" else 0)


@pytest.mark.parametrize("failing", ["cuMemCreate:9:999", "cuMemMap:9:999", "cuMemSetAccess:9:999", "cuMemUnmap:1:999", "cuMemRelease:9:999"])
def test_calls_that_fail_for_blocks_that_share_no_chunk(place, failing):
    ours = place.run("mapped_stress", 1, 1, 1500, 90, CACHALOT_CONF=LARGE, CACHALOT_SIM_CAPACITY="768M", CACHALOT_SIM_FAIL=failing)
    assert (ours.code, ours.err) == (0, "")
    assert place.reports()[-1].totals["allocated_bytes"] == 0


@pytest.mark.parametrize("seed, threads, operations, most", [(1, 1, 3000, 40), (2, 1, 3000, 0), (16, 3, 1500, 0), (4, 3, 1500, 40)])
@pytest.mark.parametrize("held", [12, 30])
@pytest.mark.parametrize("failing", ["", "cuMemCreate:30", "cuMemRelease:9:999", "cuMemMap:88", "cuMemMap:120:999"])
def test_random_work_in_large_handles(place, seed, threads, operations, most, held, failing):
    """With a policy that makes handles of up to 8 chunks in little memory: they move, go home and go back as one."""
    ours = place.run("mapped_stress", seed, threads, operations, most, held, preload=(WITH_POLICY,), TEST_POLICY=LARGE_HANDLES, CACHALOT_CONF="expandable_segments:True",
                     CACHALOT_SIM_CAPACITY="1G", CACHALOT_SIM_FAIL=failing)
    assert (ours.code, ours.err) == (0, "")
    report = place.reports()[-1]
    assert report.totals["allocated_bytes"] == 0 and report.counter("num_maps") > 50


def test_many_threads_wait_for_the_driver_at_once(place):
    """Its calls take as long as on a GPU, so that all threads have claims under way."""
    delay = ",".join(f"{name}:1" for name in ("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"))
    ours = place.run("mapped_stress", 1, 16, 2000, CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_CAPACITY="64G",
                     CACHALOT_SIM_DELAY=delay)
    assert (ours.code, ours.err) == (0, "")
    assert place.reports()[-1].totals["allocated_bytes"] == 0


@pytest.mark.parametrize("failing", ["cuMemAddressReserve:1", "cuMemCreate:2", "cuMemMap:3:999", "cuMemSetAccess:2:999", "cuMemUnmap:1:999",
                                     "cuMemRelease:20:999", "cuMemCreate:3+"])
def test_calls_of_the_driver_that_fail(place, failing):
    ours = place.run("mapped_stress", 1, 1, 1500, CACHALOT_CONF=MAPPED, CACHALOT_SIM_CAPACITY="320M", CACHALOT_SIM_FAIL=failing)
    assert (ours.code, ours.err) == (0, "")
    report = place.reports()[-1]
    assert report.totals["allocated_bytes"] == 0
    assert report.warned("no mapped memory") == ("Reserve" in failing)


@pytest.mark.parametrize("how", ["destroy", "reset", "release"])
def test_a_context_that_ends_gives_everything_back(place, how):
    """As natively: what is free afterwards is what was free before."""
    place.same("context_end", how, CACHALOT_CONF=MAPPED)


def test_several_contexts(place):
    place.same("contexts", 5, CACHALOT_CONF=MAPPED)


@pytest.mark.parametrize("driver", ["12040", "13000"])
def test_sync_memops_sticks_to_its_memory(place, driver):
    """The driver refuses it for mappings; the whole context's flag stands for it, since 12.1."""
    place.same("sync_memops", CACHALOT_CONF=MAPPED, CACHALOT_SIM_DRIVER=driver)


@pytest.mark.parametrize("driver", ["12040", "13000"])
def test_idle_memory_goes_back_for_the_drivers_own(place, driver):
    place.same("idle_goes_back", CACHALOT_CONF=MAPPED, CACHALOT_SIM_DRIVER=driver, CACHALOT_SIM_CAPACITY="200M")


def test_large_blocks_are_registered_by_page(place):
    place.same("registered", CACHALOT_CONF=MAPPED)


def test_sync_memops_that_the_driver_does_not_have(place):
    """A driver before 12.1 says so, and we say what to do."""
    place.run("sync_memops", CACHALOT_CONF=MAPPED, CACHALOT_SIM_DRIVER="12000")
    assert place.reports()[0].warned("SYNC_MEMOPS of mapped memory")


@pytest.mark.parametrize("conf", [MAPPED, "expandable_segments:False"])
def test_another_process_gets_what_lies_idle(place, conf):
    """64 MiB for two: one holds 2 and has 30 idle, the other wants 44."""
    shared = {"CACHALOT_SIM_SHARED": str(place.work / "memory"), "CACHALOT_SIM_CAPACITY": "64M"}
    idle = place.start("wait_for_input", CACHALOT_CONF=conf, **shared)
    assert idle.stdout.readline() == "ready\n"
    other = place.run("starve", 22, 10, preload=(), **shared)
    assert (other.code, other.value("count")) == (0, 22)
    idle.communicate("\n", timeout=20)
    assert idle.returncode == 0
    report = place.only_report()
    assert report.counter("idle_returned_bytes") == 30 * MIB and report["warnings"] == []
    assert report.statistic("reserved_bytes") == 2 * MIB


@pytest.mark.parametrize("conf, most", [(MAPPED, 64), ("expandable_segments:False", 9 * 20)])
@pytest.mark.parametrize("idle", ["1", "off"])
def test_a_program_that_sleeps_keeps_what_it_uses(place, conf, most, idle):
    """Nine blocks of 25 MiB live, in at most one handle or segment each; 120 to 370 MiB were freed, some into the caches of threads."""
    place.run("sleeps", 3000, CACHALOT_CONF=f"{conf},idle_return_s:{idle}")
    report = place.only_report()
    reserved, returned = report.statistic("reserved_bytes"), report.counter("idle_returned_bytes")
    assert (reserved <= most * MIB and returned) if idle == "1" else (reserved > 130 * MIB and not returned)


@sanitizer.unless_sanitized("it ends between two looks, which come when the program is ready")
@pytest.mark.parametrize("conf", [MAPPED, "expandable_segments:False"])
def test_memory_below_an_endless_kernel_stays(place, conf):
    report = place.run("sleeps", 2600, "spin", CACHALOT_CONF=conf) and place.only_report()  # it ends between two looks
    assert report.statistic("reserved_bytes") > 100 * MIB and report.counter("idle_returned_bytes") == 0


def test_nothing_is_given_back_during_a_capture(place):
    shared = {"CACHALOT_SIM_SHARED": str(place.work / "memory"), "CACHALOT_SIM_CAPACITY": "64M"}
    idle = place.start("wait_for_input", "capture", CACHALOT_CONF=MAPPED, **shared)
    assert idle.stdout.readline() == "ready\n"
    other = place.run("starve", 14, 2, "hold", preload=(), **shared)  # 4 MiB are free
    assert (other.code, other.value("count")) == (0, 14)
    idle.communicate("\n", timeout=20)
    assert idle.returncode == 0
    assert place.only_report().counter("idle_returned_bytes") == 0


@pytest.mark.parametrize("conf, way", [("expandable_segments:auto", "auto: True"), ("expandable_segments:True", "True"),
                                       ("expandable_segments:auto,ipc:dedicated", "auto: False, because of the option ipc"),
                                       ("expandable_segments:True,ipc:dedicated", "True: False, because of the option ipc")])
def test_the_report_says_which_way_it_went(place, conf, way):
    report = place.report("memory_info", CACHALOT_CONF=conf)
    assert option(report) == way
    assert (report.counter("num_maps") > 0) == way.endswith("True")


@pytest.mark.parametrize("library, way", [("libmpi.so.40", "auto: False, because of libmpi.so"),
                                          ("libmpich.so.12", "auto: False, because of libmpich.so"),
                                          ("libmpi_gnu_123.so.12", "auto: False, because of libmpi_"),
                                          ("libucp.so.0", "auto: False, because of libucp.so"),
                                          ("libnvshmem_host.so.3", "auto: True")])
def test_libraries_that_decide(place, library, way):
    """Those whose peers need not have us in front. PyTorch always loads NVSHMEM's."""
    stand_in = place.work / library
    shutil.copy(sanitizer.BUILD / "test/preload/liblook_up_plugin.so", stand_in)
    ours = place.run("memory_info", preload=(LIBRARY, stand_in), CACHALOT_CONF="expandable_segments:auto")
    assert (ours.code, ours.err) == (0, "")
    report = place.only_report()
    assert option(report) == way and (report.counter("num_maps") > 0) == ("True" in way)


def test_memory_that_cannot_be_exported_decides(place):
    """Else what a program exports natively could not be."""
    report = place.report("memory_info", CACHALOT_CONF="expandable_segments:auto", CACHALOT_SIM_EXPORTS=0)
    assert option(report) == "auto: False, because of memory that cannot be exported"


def test_what_is_free_is_what_would_be_natively(place):
    place.same("memory_info", CACHALOT_CONF=MAPPED, CACHALOT_SIM_CAPACITY=512 * MIB)


@pytest.mark.parametrize("end, function", [("destroy", "cuCtxDestroy_v2"), ("reset", "cuDevicePrimaryCtxReset_v2")])
def test_memory_of_a_context_that_the_driver_would_not_end(place, end, function):
    place.same("context_lives", end, CACHALOT_CONF=MAPPED, CACHALOT_SIM_FAIL=f"{function}:1:999")


def test_what_the_driver_says_of_blocks(place):
    """The allocation, not the mappings below it; nor can it be taken for memory of cuMemCreate."""
    place.same("attributes", CACHALOT_CONF=MAPPED)
    place.same("attributes", CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_DRIVER=13050)
    assert "where(at, 100, 100, 0, &location): 1" in place.native("attributes", CACHALOT_SIM_DRIVER=13050).out


def test_access_of_peers(place):
    """Natively a copy needs no leave, so the devices of all contexts have access to what is mapped."""
    ours = place.run("peers", CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_DEVICES=2)
    assert (ours.code, ours.err) == (0, "")
    said = [int(line.rsplit(": ", 1)[1]) for line in ours.out.splitlines()]
    assert said == [0] + 11 * [1]


@pytest.mark.parametrize("number", range(1, 6))
def test_access_of_peers_refused_once(place, number):
    """Natively a copy between devices needs none, so it must not be missing for good."""
    place.same("across", CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_DEVICES=2, CACHALOT_SIM_FAIL=f"cuMemSetAccess:{number}:2")


def test_access_of_peers_refused_twice(place):
    """It is said, and tried again with the next context."""
    ours = place.run("peers", CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_DEVICES=2, CACHALOT_SIM_FAIL="cuMemSetAccess:2:2,cuMemSetAccess:3:2")
    assert ours.code == 0
    assert [int(line.rsplit(": ", 1)[1]) for line in ours.out.splitlines()] == [0, 0, 0, 1] + 8 * [1]
    assert place.reports()[-1].warned("does not let device 1 reach all mapped memory of device 0")


@pytest.mark.parametrize("conf", ["expandable_segments:auto", MAPPED, "free_mode:fence", "free_mode:strict", "cache:off"])
@pytest.mark.parametrize("peers", [0, 1])
def test_copies_across_devices(place, conf, peers):
    """Without peer access enabled, or where there is none: natively all of cudaMalloc's memory takes part."""
    if conf == MAPPED and not peers:
        pytest.skip("mapped memory cannot be had without peer access")
    place.same("across", CACHALOT_CONF=conf, CACHALOT_SIM_DEVICES=2, CACHALOT_SIM_PEERS=peers)
    if conf == "expandable_segments:auto":
        assert option(place.reports()[-1]) == ("auto: True" if peers else
                                               "auto: False, because of devices without peer access")


def test_devices_that_cannot_reach_each_other(place):
    """Mapped memory that was asked for: said once for each way."""
    ours = place.run("soak", 1000, 2, 2, 10, 4 * MIB, CACHALOT_CONF="expandable_segments:True", CACHALOT_SIM_DEVICES=2, CACHALOT_SIM_PEERS=0)
    assert (ours.code, ours.err) == (0, "")
    report = place.only_report()
    assert report.warned("device 1 cannot reach mapped memory of device 0") == 1
    assert report.warned("device 0 cannot reach mapped memory of device 1") == 1
