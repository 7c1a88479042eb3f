"""Killed at any moment: no counter is lost, and every page becomes a report."""

import os
import time

MOMENTS = int(os.environ.get("CACHALOT_MOMENTS", "100"))


def test_killed_at_random_moments(place):
    done = place.run("killed", MOMENTS, 1, timeout=600)
    assert (done.code, done.err) == (0, "")
    lines = [[int(word) for word in line.split()] for line in done.out.splitlines()]
    counts = {pid: rest for pid, *rest in lines}
    assert len(lines) == MOMENTS
    time.sleep(3)  # until then a page half made might be somebody's who still makes it
    reports = place.harvest()
    assert place.left_pages() == []
    found = {report["process"]["pid"]: report for report in reports}
    at_work = 0
    for pid, (requests_begun, requests_ended, frees_begun, frees_ended) in counts.items():
        if pid not in found:
            assert requests_ended == 0, "a page is lost"
            continue
        totals = found[pid].totals
        assert requests_ended <= totals["requests"] <= requests_begun
        assert frees_ended <= totals["frees"] <= frees_begun
        assert found[pid]["kind"] == "harvest"
        at_work += requests_ended > 0
    assert at_work > MOMENTS / 5, "nearly all were killed before they began"
