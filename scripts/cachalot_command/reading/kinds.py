"""Memory by kind, from reports of any version."""

from cachalot_command.reading.report import ENDS, number

ON_DEVICE = ("device", "stream_ordered", "managed", "vmm", "array")  # memory of the devices: what a gate judges unless told
KINDS = (*ON_DEVICE, "pinned", "imported")
ROWS = {"stream_ordered": "pool", "pinned": "host"}  # names in `others`


def uncached(report, kind, key):
    """A number of the memory of a kind that the program took past the cache."""
    return number(report.root, "others", ROWS.get(kind, kind), key) or 0


def peak(report, kind):
    return uncached(report, kind, "peak_bytes")


def leaked(report, kind):
    """None: the process still ran."""
    return uncached(report, kind, "bytes") if report.get("kind") in ENDS else None


def past_the_cache(report):
    """[(kind, most at once, leaked)] of the memory that the program took past the cache, the most first."""
    others = report.get("others")
    names = {row: kind for kind, row in ROWS.items()}
    kinds = [names.get(row, row) for row in others] if isinstance(others, dict) else []
    taken = [(kind, peak(report, kind), leaked(report, kind) or 0) for kind in kinds]
    return sorted((row for row in taken if row[1] > 0), key=lambda row: -row[1])

