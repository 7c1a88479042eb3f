"""Limits of gates: how they are written, and how they and what is held against them are shown."""

import re

from cachalot_command.common.tools import Failure
from cachalot_command.reading.report import bytes_text, scaled

LEVELS = ("none", "partial", "full")
DIGITS_MOST = 16


def parse_size(text):
    """8GiB, 8G (the same), 8GB (decimal), 512MiB, 1000."""
    found = re.fullmatch(r"(?ai)(\d{1,16}(?:\.\d{1,9})?) ?(?:([kmgt])(iB|i|B)?|B)?", text)
    if found is None:
        raise Failure(2, f"`{text}` is not a size; write 8GiB, 512MiB or a number of bytes")
    amount, unit, suffix = found.groups()
    base = 1000 if suffix in ("B", "b") else 1024
    power = base ** (1 + "kmgt".index(unit.lower())) if unit else 1
    return round(float(amount) * power) if "." in amount else int(amount) * power


def parse_count(text):
    if not re.fullmatch("[0-9]{1,15}", text):
        raise Failure(2, f"`{text}` is not a count")
    return int(text)


def parse_increase(text):
    """5%, 200% or 0.05. A bare 5 could be meant as either: refused."""
    found = re.fullmatch(r"(?a)(\d{1,9}(?:\.\d{1,9})?) ?(%?)", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else 2
    if value > 1 and not (found and found[2]):
        raise Failure(2, f"`{text}` is not a share; write 90% or 0.9")
    return value


def parse_ratio(text):
    """90% or 0.9."""
    value = parse_increase(text)
    if value > 1:
        raise Failure(2, f"`{text}` is more than all; write 90% or 0.9")
    return value


def parse_least(text):
    count = parse_count(text)
    if count == 0:
        raise Failure(2, "no report is never a pass")
    return count


def parse_level(text):
    if text not in LEVELS:
        raise Failure(2, f"`{text}` is not full, partial or none")
    return text


PARSERS = {"bytes": parse_size, "count": parse_count, "ratio": parse_ratio}
OTHERS = {"--max-spread": parse_ratio, "--baseline": str, "--max-increase": parse_increase,
          "--require-reports": parse_least, "--require-coverage": parse_level}


def share_text(value, limit, digits=2, sign=""):
    """A share for people, with as many digits as tell it from its limit."""
    text, other = (f"{100 * share:{sign}.{digits}f} %" for share in (value, limit))
    is_told = text != other or value == limit or digits == DIGITS_MOST
    return text if is_told else share_text(value, limit, digits + 1, sign)


def value_text(value, unit, limit=None):
    """A value with its unit, for people."""
    if value is None:
        return "unknown"
    if unit == "bytes":
        return bytes_text(value).strip()
    return share_text(value, value if limit is None else limit) if unit == "ratio" else str(value)


class Limit:
    """What a figure is held against."""

    def __init__(self, value, unit, scope="each"):
        self.value, self.unit, self.scope = value, unit, scope

    def exact(self):
        """For programs."""
        return "sum:" * (self.scope == "sum") + str(self.value)

    def __str__(self):
        """For people, and never rounded."""
        shown = value_text(self.value, self.unit)
        if self.unit == "bytes" and scaled(self.value, 10240)[0] % 1:
            shown = f"{self.value} bytes"
        elif self.unit == "ratio" and round(100 * self.value, 2) != round(100 * self.value, 9):
            shown = f"{round(100 * self.value, 9)} %"
        return shown + " in sum" * (self.scope == "sum")
