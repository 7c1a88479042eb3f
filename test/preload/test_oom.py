"""Out of memory explains itself: in the report, and in `cachalot show`."""

import pytest

from conftest import MIB, SIM, WORKLOADS


def event_of(place, **more):
    """out_of_memory asks for 16 MiB three times."""
    assert place.run("out_of_memory", "malloc", **more).code == 99
    (report,) = place.harvest()
    (event,) = report["oom_events"]
    assert (event["asked_bytes"], event["largest_hole_bytes"], event["pending_bytes"]) == (16 * MIB, 0, 0)
    assert event["site"] is None
    return event


@pytest.mark.parametrize("conf, capacity, options, said", [
    ("", "44M", [], "more than the device has left, also without a cache"),
    ("memory_limit_mb:40", "44M", [], "more than both the limit and the device have"),
    ("memory_limit_mb:40", "64M", ["memory_limit_mb:51"], "the limit of 40.0 MiB that was set is reached"),
    ("per_process_memory_fraction:0.625", "64M", ["per_process_memory_fraction:1"],
     "the limit of 40.0 MiB that was set is reached"),
])
def test_why(place, conf, capacity, options, said):
    event = event_of(place, CACHALOT_CONF=conf, CACHALOT_SIM_CAPACITY=capacity)
    assert event["would_serve"] == options
    assert said in event["explanation"] and not event["native_would_fit"]
    assert "asked for 16.0 MiB while it held 32.0 MiB" in event["explanation"]
    for option in options:  # it is true
        done = place.run("out_of_memory", "malloc", CACHALOT_CONF=option, CACHALOT_SIM_CAPACITY=capacity)
        assert done.code == 0, option


@pytest.mark.parametrize("more, options", [
    ("", "expandable_segments:True or cache:off"),
    (",roundup_power2_divisions:1", "cache:off"),  # how much more that takes is not known
])
def test_holes(place, more, options):
    """Certified: seed 4(b) under 8 GiB, where the largest of 3 GiB to hand out is no piece of 4 GiB."""
    done = place.cachalot("run", "--conf", "memory_limit_mb:8192,expandable_segments:False" + more, "--output", "r.json",
                          WORKLOADS / "seed4b_tenants", LD_LIBRARY_PATH=SIM)
    assert "point out of memory" in done.out
    shown = place.cachalot("show", "r.json").out.split("Out of memory: once:\n")[1]
    text = " ".join(shown.split())
    assert "asked for 4.00 GiB while it held 2.00 GiB" in text and "its largest piece 3.00 GiB" in text
    assert "enough in sum, but in no one piece; without a cache it would have fitted" in text
    assert f"Would have served it: CACHALOT_CONF={options}" in text
