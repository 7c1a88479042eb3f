"""Is a program's output in front the same as natively, where native outputs differ among themselves?"""

import re

UNIT = r"(?:[nmuµ]?s|m?secs?|seconds?|[KMGT]i?B/s|[KMGT]?flops?(?:/s)?|%|[KMG]?Hz|Mpixels?/s|x)\b"
NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
MEASURED = re.compile(rf"{NUMBER}(?=\s*{UNIT})|\d\d:\d\d:\d\d(?:[.,]\d+)?|\d{{4}}-\d\d-\d\d", re.IGNORECASE)
TIMED = re.compile(r"time|elapsed|speed|bandwidth|throughput|perf|\bran \d+ tests? in", re.IGNORECASE)
FRACTION = re.compile(r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?")
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
WORD = re.compile(r"[-+]?\d[\w.+-]*|\w+|\S")


def masked(line):
    """The line without what is never the same twice: measured times and rates, addresses."""
    line = ADDRESS.sub("#", MEASURED.sub("#", line.rsplit("\r", 1)[-1].rstrip()))
    return FRACTION.sub("#", line) if TIMED.search(line) else line


def words(lines):
    return [WORD.findall(masked(line)) for line in lines]


def shape(row):
    """A line's words without its numbers."""
    return " ".join("#" if word[-1:].isdigit() or word[:1].isdigit() else word for word in row)


def in_step(outputs):
    """Have all the same number of lines, and each line the same number of words?"""
    return len({tuple(map(len, rows)) for rows in outputs}) == 1


def compare(natives, front, at_once=False):
    """(same?, how it was compared or the first difference) of lists of lines.

    A word has to be the same wherever it is in every native output. Lines are taken in order, or sorted
    where the natives then differ less, or several threads or processes print `at_once`; where not even their numbers of lines are equal, by what each line
    says without its numbers."""
    outputs = [words(lines) for lines in natives]
    ours = words(front)
    ways = []
    for order, name in ((list, ""), (sorted, ", in any order"))[at_once:]:
        rows = [order(output) for output in outputs]
        if in_step(rows):
            ways.append((sum(map(varying, zip(*rows))), len(ways), rows, order(ours), name))
    if ways:
        return by_word(*min(ways)[2:])
    sets = [{shape(row) for row in output} for output in outputs]
    mine = {shape(row) for row in ours}
    lost = set.intersection(*sets) - mine
    new = mine - set.union(*sets)
    if lost or new:
        return False, f"lacks «{min(lost)[:120]}»" if lost else f"new «{min(new)[:120]}»"
    return True, f"{len(mine)} kinds of lines; native runs differ in more than words"


def varying(rows):
    """How many words of one line differ natively."""
    return sum(len(set(column)) > 1 for column in zip(*rows))


def by_word(outputs, ours, name):
    """Word by word; those that vary natively may vary."""
    vary = 0
    if len(ours) != len(outputs[0]):
        return False, f"{len(ours)} lines, natively {len(outputs[0])}"
    for mine, *rows in zip(ours, *outputs):
        same = [len(set(column)) == 1 for column in zip(*rows)]
        vary += varying(rows)
        if len(mine) != len(same) or any(s and a != b for s, a, b in zip(same, mine, rows[0])):
            return False, f"«{' '.join(mine)[:120]}» natively «{' '.join(rows[0])[:120]}»"
    told = f", {vary} words differ natively" if vary else ""
    return True, f"{len(ours)} lines{name}{told}"
