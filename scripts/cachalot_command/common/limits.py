"""The limits of gates: how the command line gives them, and how a limit and a figure are shown."""

import re
import shlex

from cachalot_command.common.tools import Failure, meant, printable
from cachalot_command.common.units import bytes_text, parse_size, scaled

LEVELS = ("none", "partial", "full")
RUNS = ("one", "newest", "all")  # the reports of several runs that `check` takes
FORMS = ("text", "github", "junit", "json", "openmetrics")  # in which the verdict is written
DIGITS_MOST = 16
SCOPES = {"sum": " in sum", "gpu": " on each GPU"}  # of a limit, beside each process


def parse_count(text):
    if not re.fullmatch("[0-9]{1,15}", text):
        raise Failure(2, f"`{text}` is not a count")
    return int(text)


def parse_increase(text):
    """A share: 5%, 200% or 0.05. A bare 5 could mean 5 % or 500 %, and is refused."""
    found = re.fullmatch(r"(?a)(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9}) ?(%?)", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else 2
    if value > 1 and not (found and found[2]):
        raise Failure(2, f"`{text}` is not a share; write 90% or 0.9")
    return value


class Growth:
    """How much a figure may grow: by a share, and a figure of bytes by so many bytes at least."""

    def __init__(self, share=0.0, size=0):
        self.share, self.size = share, size

    def __eq__(self, other):
        return (self.share, self.size) == (other.share, other.size)

    def allows(self, before, now, unit):
        """Whether a figure may grow so. From 0, no share allows anything."""
        size = self.size if unit == "bytes" else 0
        return now - before <= size or bool(before) and (now - before) / before <= self.share

    def __str__(self):
        return f"{self.share},{self.size}" if self.size else str(self.share)


def parse_growth(text):
    """SHARE, SIZE or both: 5%, 8MiB or 5%,8MiB."""
    growth, given = Growth(), []
    for part in text.split(","):
        is_share = "%" in part or re.fullmatch(r"(?a)[\d.]*", part)
        name, parser = ("share", parse_increase) if is_share else ("size", parse_size)
        if name in given:
            raise Failure(2, f"`{printable(text)}` has two of a kind; write 5%,8MiB")
        given.append(name)
        setattr(growth, name, parser(part))
    return growth


def parse_ratio(text):
    """A share of at most 1: 90% or 0.9."""
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
OTHERS = {"--max-spread": parse_ratio, "--baseline": str, "--max-increase": parse_growth,
          "--require-reports": parse_least, "--require-coverage": parse_level}


def share_text(value, limit, digits=2, sign=""):
    """A share in percent, with as many digits as are needed to tell it from its limit."""
    text, other = (f"{100 * share:{sign}.{digits}f} %" for share in (value, limit))
    is_told = text != other or value == limit or digits == DIGITS_MOST
    return text if is_told else share_text(value, limit, digits + 1, sign)


def value_text(value, unit, limit=None):
    """A value with its unit."""
    if value is None:
        return "unknown"
    if unit == "bytes":
        return bytes_text(value).strip()
    return share_text(value, value if limit is None else limit) if unit == "ratio" else str(value)


class Limit:
    """What a figure is compared with."""

    def __init__(self, value, unit, scope="each"):
        self.value, self.unit, self.scope = value, unit, scope

    def exact(self):
        """The limit for programs, not rounded."""
        return ("" if self.scope == "each" else f"{self.scope}:") + str(self.value)

    def __str__(self):
        """The limit for people, not rounded either."""
        if self.unit == "growth":
            share, size = Limit(self.value.share, "ratio"), Limit(self.value.size, "bytes")
            return " or ".join(str(part) for part in (share, size) if part.value) or str(share)
        shown = value_text(self.value, self.unit)
        if self.unit == "bytes" and scaled(self.value, 10240)[0] % 1:
            shown = f"{self.value} bytes"
        elif self.unit == "ratio" and round(100 * self.value, 2) != round(100 * self.value, 9):
            shown = f"{round(100 * self.value, 9)} %"
        return shown + SCOPES.get(self.scope, "")


ON_DEVICE = ("device", "stream_ordered", "managed", "vmm", "array")  # kinds of device memory, which a gate adds up
KINDS = (*ON_DEVICE, "pinned")
KIND_LIMITS = ("--max-peak-reserved", "--max-peak-allocated", "--max-leaked")
# option: (key in the report's totals, unit)
LIMITS = {
    "--max-peak-reserved": ("peak_reserved_bytes", "bytes"),
    "--max-peak-allocated": ("peak_allocated_bytes", "bytes"),
    "--max-leaked": ("leaked_bytes", "bytes"),
    "--max-oom": ("ooms", "count"),
    "--max-retries": ("alloc_retries", "count"),
    "--max-double-frees": ("double_frees", "count"),
    "--max-faults": ("faults", "count"),
    "--max-warnings": ("warnings", "count"),
    "--min-utilization": ("peak_utilization_ratio", "ratio"),
    "--min-hits": ("hit_ratio", "ratio"),
}


def parse_value(option, parser, value):
    """Parses a value; an error names the option."""
    try:
        return parser(value)
    except Failure as failure:
        raise Failure(2, f"{option}: {failure}") from failure


def parse_limit(option, value):
    """Parses [sum:][KIND=]VALUE or gpu:VALUE into (scope, limit), or into (scope, limit, kind)."""
    unit = LIMITS[option][1]
    scope, colon, rest = value.partition(":")
    if not colon:
        scope, rest = "each", value
    elif scope not in SCOPES or unit == "ratio" or (scope == "gpu" and "-peak-" not in option):
        raise Failure(2, f"{option}: `{printable(value)}` is not a limit")
    kind, equals, size = rest.partition("=")
    if not equals:
        return scope, parse_value(option, PARSERS[unit], rest)
    if option not in KIND_LIMITS or scope == "gpu":
        raise Failure(2, f"{option}: `{printable(value)}` is not a limit")
    if kind not in KINDS:
        raise Failure(2, f"{option}: `{printable(kind)}` is no kind of memory; the kinds are {', '.join(KINDS)}")
    return scope, parse_value(option, PARSERS[unit], size), kind


def add_gate(gates, option, value):
    """Adds a gate. All gates given apply; a gate given twice counts once."""
    limits = gates.setdefault(option, [])
    limit = parse_limit(option, value) if option in LIMITS else parse_value(option, OTHERS[option], value)
    limits += [limit] * (limit not in limits)


def parse(arguments):
    """Parses the command line of `check` into (files, gates, options)."""
    words, gates, options = [], {}, {"--format": "text", "--runs": "one"}
    rest, known = iter(arguments), (*LIMITS, *OTHERS, "--format", "--output", "--runs")
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            words += rest
        elif name in known:
            value = value if equals else next(rest, None)
            if value is None:
                raise Failure(2, f"{name} needs a value; see `cachalot check --help`")
            if name == "--output" and name in options:
                raise Failure(2, f"{name} is given twice, and only one file is written")
            if name in ("--format", "--output", "--runs"):
                options[name] = value
            else:
                add_gate(gates, name, value)
        elif argument.startswith("-") and argument != "-":
            raise Failure(2, f"unknown option {argument}; see `cachalot check --help`{meant(name, known)}")
        else:
            words.append(argument)
    check_options(gates, options)
    return words, gates, options


def check_options(gates, options):
    if options.get("--output") == "":
        raise Failure(2, "--output needs a file name")
    if options["--format"] not in FORMS:
        raise Failure(2, f"--format is one of {', '.join(FORMS)}")
    if options["--runs"] not in RUNS:
        raise Failure(2, f"--runs is one of {', '.join(RUNS)}")
    if not gates and options["--format"] != "openmetrics":  # it writes figures, which need no gate
        raise Failure(2, "no gate given, so nothing could fail; see `cachalot check --help`")
    if "--max-increase" in gates and "--baseline" not in gates:
        raise Failure(2, "--max-increase needs a --baseline")
    gates.setdefault("--max-increase", [Growth(0.05)])


def split_words(text):
    splitter = shlex.shlex(text, posix=True, punctuation_chars=False)
    splitter.whitespace += ","
    splitter.whitespace_split = True
    splitter.commenters = ""
    try:
        return list(splitter)
    except ValueError as error:
        raise Failure(2, f"{text}: {error}") from error


def parse_words(*texts):
    """Parses the gates that `cachalot run --check` takes as one word: max-leaked=0,max-oom=0."""
    words = []
    for word in (word for text in texts for word in split_words(text)):
        if words and "max-increase" in words[-1] and "=" not in word and word[:1].isdigit():  # 5%,8MiB is one value
            words[-1] += f",{word}"
        else:
            words.append(word)
    named = [w if w.startswith("--") or "=" not in w else f"--{w}" for w in words]
    files, gates, options = named, {}, {}
    if not named or any(word.startswith("--") for word in named):
        files, gates, options = parse(named)
    if files:
        raise Failure(2, f"`{files[0]}` is not a gate; write max-leaked=0,max-oom=0")
    return gates, options
