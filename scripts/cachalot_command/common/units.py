"""Numbers as text: bytes, counts, times and shares; and sizes as people write them."""

import re

from cachalot_command.common.tools import Failure


def scaled(value, most):
    """(a number below `most`, its unit) for a number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < most:
            return value, unit
        value /= 1024
    return value, "TiB"


def bytes_text(value):
    """Bytes in at most nine characters."""
    if value is None:
        return "-"
    value, unit = scaled(value, 10240)
    return f"{value:.0f} {unit:<3}"


def size_text(value):
    """Bytes for a sentence, with three digits: 10.4 GiB."""
    if value is None:
        return "-"
    value, unit = scaled(value, 1024)
    return f"{value:.0f} {unit}" if value == int(value) or abs(value) >= 100 else f"{value:.3g} {unit}"


def count_text(value):
    """A count in at most seven characters, with a blank where a unit would be."""
    if value is None:
        return "-"
    for unit in ("  ", "K ", "M ", "G "):
        if abs(value) < 100000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.0f} T "


def blocks_text(count):
    return f"{count_text(count).strip()} block" + "s" * (count != 1)


def times_text(count):
    return "once" if count == 1 else f"{count_text(count).strip()} times"


def ratio_text(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def time_text(ns):
    return "not known" if ns is None else f"{ns / 1e6:.3f} ms"


def rank_text(rank):
    return "-" if rank is None else str(rank)


def counted(count, what):
    return f"{count} {what}" + "s" * (count != 1)


def processes_text(count):
    return f"{count} process" + "es" * (count != 1)


def parse_size(text):
    """Parses a size: 8GiB, 8G (the same), 8GB (decimal), 512MiB, 1000."""
    found = re.fullmatch(r"(?ai)(\d{1,16}(?:\.\d{1,9})?|\.\d{1,9}) ?(?:([kmgt])(iB|i|B)?|B)?", text)
    if found is None:
        raise Failure(2, f"`{text}` is not a size; write 8GiB, 512MiB or a number of bytes")
    amount, unit, suffix = found.groups()
    base = 1000 if suffix in ("B", "b") else 1024
    power = base ** (1 + "kmgt".index(unit.lower())) if unit else 1
    return round(float(amount) * power) if "." in amount else int(amount) * power
