"""Memory over time, drawn with characters for a terminal."""

import sys

from cachalot_command.common.units import size_text
from cachalot_command.reading.series import columns_of

BLOCKS, SHADE = " ▁▂▃▄▅▆▇█", "░"
PLAIN_BLOCKS, PLAIN_SHADE = "  ...::##", "-"
LABEL, HEIGHT = 9, 6
UNITS = ((1, "ms"), (1000, "s"), (60000, "min"), (3600000, "h"), (86400000, "days"))


def signs():
    """The characters, from an empty one to a full one, and the shade; others where the terminal does not have them."""
    try:
        (BLOCKS + SHADE).encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return PLAIN_BLOCKS, PLAIN_SHADE
    return BLOCKS, SHADE


def sparkline(values):
    """One line: a character a value. Every value above 0 is visible."""
    blocks, most = signs()[0], max(values, default=0)
    full = len(blocks) - 1
    return "".join(blocks[min(full, max(1, round(value * full / most)))] if value and most else " " for value in values)


def cell(allocated, reserved, row, step, blocks, shade):
    """One character of the chart: of the bytes from row * step on."""
    full = len(blocks) - 1
    part = round((allocated - row * step) / step * full)
    if allocated and row == 0:
        part = max(part, 1)
    if part > 0:
        return blocks[min(part, full)]
    return shade if reserved > (row + 0.5) * step or (reserved and row == 0) else " "


def ceiling(most):
    """A round number of bytes at or above `most`, with a step that people can read: 1, 1.5, 2, 3, 4, 6 … of a unit."""
    unit = 1 << max(0, most.bit_length() // 10 * 10)
    unit = unit if most >= unit else unit >> 10
    scaled = most / max(unit, 1)
    power = 1
    while scaled > 10 * power:
        power *= 10
    best = next(round_one for round_one in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if round_one * power >= scaled)
    return max(int(best * power * unit), 1)


def time_axis(begin, end, width):
    """The line below a chart: its begin, its middle and its end, in one unit."""
    span = max(end - begin, 1)
    divisor, unit = [one for one in UNITS if span >= 2 * one[0]][-1] if span >= 2 else UNITS[0]

    def text(ms):
        return f"{ms / divisor:.3g} {unit}" if ms else "0"

    line = [" "] * width
    for label, place in ((text(begin), 0), (text((begin + end) / 2), width // 2), (text(end), width)):
        start = min(max(place - len(label) // 2, 0), width - len(label))
        line[start:start + len(label)] = label
    return "".join(line)


def chart(steps, end, width):
    """Lines that show the steps from 0 to `end` ms: allocated memory in blocks, reserved memory behind it as a shade."""
    blocks, shade = signs()
    inside = width - LABEL - 2
    columns = columns_of(steps, 0, end, inside)
    top = ceiling(max(max(pair) for pair in columns))
    step, lines = top / HEIGHT, []
    for row in reversed(range(HEIGHT)):
        label = size_text(top) if row == HEIGHT - 1 else size_text(top / 2) if row == HEIGHT // 2 - 1 else ""
        lines.append(f"{label:>{LABEL}} |" + "".join(cell(*pair, row, step, blocks, shade) for pair in columns).rstrip())
    lines.append(f"{'0':>{LABEL}} +" + "-" * inside)
    return [*lines, " " * (LABEL + 2) + time_axis(0, end, inside)]


def legend():
    blocks, shade = signs()
    return f"{blocks[-1]} allocated, {shade} reserved"
