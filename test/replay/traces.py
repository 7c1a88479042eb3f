"""Recorded traces in `traces/`, one compressed file each; README.md says what they are."""

import gzip
import hashlib
import lzma
import pathlib

FOLDER = pathlib.Path(__file__).with_name("traces")
PROGRAMS, GROWING, CERTIFIED = "programs", "growing", "certified"
SUFFIXES = {".csv.xz": lzma.decompress, ".csv.gz": gzip.decompress}


def names(kind):
    """Names of the traces of a kind, sorted."""
    return sorted(path.name.partition(".csv")[0] for path in (FOLDER / kind).iterdir() if path.name.endswith(tuple(SUFFIXES)))


def is_set_aside(name):
    """A third of all names: nobody chooses a rule or a number by these traces (README.md)."""
    return int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest(), "big") % 3 == 0


def path_of(kind, name):
    """The file of one trace, compressed."""
    return next(path for suffix in SUFFIXES if (path := FOLDER / kind / (name + suffix)).is_file())


def read(kind, name):
    """The text of one trace: `op,id,bytes,stream` lines."""
    path = path_of(kind, name)
    return SUFFIXES["".join(path.suffixes[-2:])](path.read_bytes())
