"""Memory by kind, from reports of any version: `others` has what the cache did not serve."""

from cachalot_command.reading.report import ENDS, get, number

ROWS = {"stream_ordered": "pool", "pinned": "host"}  # names in `others`


def figures(report, kind):
    """(most at once, leaked) of the memory of a kind that the program took past the cache, as the report has them; leaked is
    None while the process runs."""
    row = get(report.root, "others", ROWS.get(kind, kind))
    most, held = (0 if get(row, key) is None else get(row, key) for key in ("peak_bytes", "bytes"))
    return most, held if report.get("kind") in ENDS else None


def past_the_cache(report):
    """[(kind, most at once, leaked)] of the memory that the program took past the cache, the most first."""
    others, names = report.get("others"), {row: kind for kind, row in ROWS.items()}
    taken = [(names.get(row, row), number(others, row, "peak_bytes") or 0, number(others, row, "bytes") or 0)
             for row in (others if isinstance(others, dict) else ())]
    is_final = report.get("kind") in ENDS
    return sorted(((kind, most, held * is_final) for kind, most, held in taken if most > 0), key=lambda row: -row[1])
