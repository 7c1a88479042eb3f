"""Recorded traces in all forms, opened as input of cachalot-replay.

cachalot-replay reads CSV (ours and RMM's) and what CACHALOT_TRACE recorded by itself, or unpacked from gzip. A memory
snapshot of PyTorch is a pickle (snapshot.py), which becomes RMM's log.
"""

import contextlib
import csv
import gzip
import itertools
import os
from dataclasses import dataclass

from cachalot_command.common.tools import Failure, open_regular, printable
from cachalot_command.reading import recorded
from cachalot_command.reading import snapshot
from cachalot_command.reading.snapshot import DAMAGED

CHUNK = 1 << 20
PICKLES = (b"\x80", b"(", b"}")  # first byte of protocol 2 and later, 0, and 1
PACKED = {b"(\xb5": "zstd", b"\xfd7": "xz", b"BZ": "bzip2", b"PK": "zip"}


@dataclass
class Source:
    """A trace: `path` if cachalot-replay reads the file itself, else `chunks` of text to feed to it."""

    name: str
    path: str = None
    chunks: object = None
    arguments: tuple = ()
    note: str = None
    device: int = None  # only of a snapshot
    reserved_before: int = 0  # bytes, only of a snapshot
    packed: object = None  # the gzip file behind the chunks


# Columns of text traces. Other tools write them in another order, quoted, with more columns, or behind a byte order mark.
OWN, RMM = ("op", "id", "bytes", "stream"), ("Thread", "Time", "Action", "Pointer", "Size", "Stream")
FORMS = ((OWN, OWN[:3]), (RMM, RMM[2:5]))  # (all columns, required columns)
FREES = (["f"], ["free"])


def first_line(chunks):
    """(the first line of the text, cut at a bound; the chunks unchanged)."""
    begin, chunks = b"", iter(chunks)
    for chunk in chunks:
        begin += chunk
        if b"\n" in chunk or len(begin) > CHUNK:
            break
    return begin.partition(b"\n")[0], itertools.chain([begin], chunks)


def odd_header(line):
    """(the columns of a header line, the columns that cachalot-replay wants) if it would not know that header, else None."""
    try:
        known = line.decode("utf-8-sig").rstrip("\r\n")
        columns = [name.strip() for name in next(csv.reader([known.strip()], skipinitialspace=True), ())]
    except (UnicodeDecodeError, csv.Error):
        return None
    return next(((columns, every) for every, least in FORMS if known != ",".join(every) and set(least) <= set(columns)), None)


def fields_of(line):
    """The fields of a line, without quotes and blanks; the raw fields if the quoting is broken."""
    if '"' in line:
        with contextlib.suppress(csv.Error):
            return [field.strip() for field in next(csv.reader([line], skipinitialspace=True), ())]
    return [field.strip() for field in line.split(",")] if line.strip() else []


def in_order(chunks, columns, every, name):
    """The text with its columns in the order that cachalot-replay wants. Lines keep their numbers, so that errors name the
    right one."""
    places = [columns.index(name) if name in columns else None for name in every]
    action, ids, size = (columns.index(name) for form, least in FORMS if form == every for name in least)
    rest, number, added = b"", 0, False
    for chunk in itertools.chain(chunks, [None]):
        if chunk is None:
            chunk, added = b"\n", rest
        text, _, rest = (rest + chunk).rpartition(b"\n")
        lines = []
        for line in text.decode("utf-8-sig", "replace").split("\n") if text else ():
            row = fields_of(line)
            number += 1
            if len(row) > len(columns):
                raise Failure(3, f"{name}: line {number}: {len(row)} columns, where the header has {len(columns)}")
            if number == 1:
                line = ",".join(every)
            elif added and len(row) - 1 in ({action, ids} if row[action:action + 1] in FREES else {action, ids, size}):  # as f,12 of f,123
                raise Failure(3, f"{name}: line {number}: cut off in the column `{columns[len(row) - 1]}`, or its newline is missing")
            elif row:  # trailing columns may be missing, as in a free
                line = ",".join("0" if i is None else "".join(row[i:i + 1]) for i in places).rstrip(",")
            lines.append(line)
        if len(rest) > CHUNK:
            raise Failure(3, f"{name}: line {number + 1}: longer than {CHUNK} bytes")
        yield ("\n".join(lines) + "\n").encode() if lines else b""


def unpack(file, name):
    """The content of a gzip file in chunks. Damage is reported with the line or event it lies in."""
    lines, size, is_recorded = 1, 0, False
    try:
        while chunk := file.read1(CHUNK):
            is_recorded = is_recorded or (size == 0 and chunk.startswith(recorded.MAGIC))
            lines += chunk.count(b"\n")
            size += len(chunk)
            yield chunk
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno:
            raise Failure(3, f"{name}: {error.strerror}") from error
        place = f"event {recorded.event_at(size)}" if is_recorded else f"line {lines}"
        raise Failure(3, f"{name}: {place}: the gzip file is damaged from here on: {error}") from error


def open_snapshot(file, name, device, segments=False):
    told, chunks = snapshot.read(file, name, device, segments)
    notes = []
    if told["unknown"]:
        notes.append(f"{name}: actions that are not known are left out: {', '.join(printable(action)[:40] for action in told['unknown'][:8])}")
    if told["before"]:
        notes.append(f"{told['before']} block{'s were' if told['before'] > 1 else ' was'} allocated before the snapshot's history "
                     "begins; replayed first")
    if told["host_events"]:
        notes.append(f"events of pinned host memory (host_traces) are left out: {told['host_events']}")
    return Source(name, chunks=chunks, note="\ncachalot: ".join(notes) or None, device=told["device"],
                  reserved_before=told["reserved_before"],
                  arguments=("--kind", "snapshot", "--recorded-reserved", str(told["reserved"])))


def read_header(begin, file, name):
    """(bytes read, header or None if the file is no recorded trace). `begin` was read before."""
    begin += file.read(recorded.HEADER_BYTES - len(begin))
    if not begin.startswith(recorded.MAGIC):
        return begin, None
    try:
        size = file.seek(0, os.SEEK_END)
    except DAMAGED:
        file.fileobj.seek(0)
        size = sum(map(len, unpack(gzip.GzipFile(fileobj=file.fileobj), name)))  # raises Failure with the place
    file.seek(len(begin))
    return begin, recorded.Header(begin, size, name)


def unreadable(error, name):
    return Failure(3, f"{name}: {getattr(error, 'strerror', None) or f'line 1: the gzip file is damaged: {error}'}")


def open_recorded(begin, header, file, path, name, device):
    """A recorded trace. `path`: None if it must be unpacked, else cachalot-replay reads it there."""
    device = () if device is None else ("--device", str(device))
    chunks = None if path else itertools.chain([begin], unpack(file, name))
    return Source(name, path=path, chunks=chunks, arguments=device, note=header.note())


def recorded_events(path):
    """(header, rows) of a trace that CACHALOT_TRACE recorded, gzipped or not; None for another file."""
    name = printable(path)
    try:
        file = open_regular(path)
        if file.read(2) == b"\x1f\x8b":
            file.seek(0)
            file = gzip.GzipFile(fileobj=file)
        else:
            file.seek(0)
        _, header = read_header(b"", file, name)
    except DAMAGED as error:
        raise unreadable(error, name) from error
    return None if header is None else (header, recorded.rows(header, unpack(file, name)))


def device_number(text):
    """The device that an option names, or None."""
    if text is not None and not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise Failure(2, f"`{text}` is not the number of a device")
    return None if text is None else int(text)


def open_text(chunks, path, name, device, packed=None):
    """A text trace. `path`: None if it must be unpacked, else cachalot-replay reads it there."""
    if device is not None:
        raise Failure(2, f"{name}: a trace of text has no devices: leave out --device")
    header, chunks = first_line(chunks)
    odd = odd_header(header)
    if odd:
        twice = next((column for column in odd[1] if odd[0].count(column) > 1), None)
        if twice:
            raise Failure(3, f"{name}: line 1: the column `{twice}` is there twice")
        return Source(name, chunks=in_order(chunks, *odd, name), packed=packed)
    return Source(name, path=path, chunks=None if path else chunks, packed=packed)


def check_rest(file, name):
    """Raises Failure if a gzip file whose text was refused is damaged: its checksum stands at its end."""
    try:
        while file.read1(CHUNK):
            pass
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno:
            raise Failure(3, f"{name}: {error.strerror}") from error
        raise Failure(3, f"{name}: but the gzip file is damaged, so that its text may not be what was packed: {error}") from error


def place_of(path, file):
    """The path by which cachalot-replay finds the same file; None if there is none, as for /dev/stdin."""
    place = os.path.realpath(path)
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(place), os.fstat(file.fileno())) and not place.startswith("/proc/"):
            return place
    return None


def open_source(path, device=None, segments=False):
    """The trace at `path`, in any form. `segments`: of a snapshot, also the events of segments."""
    name = printable(path)
    try:
        file = open_regular(path)
        begin = file.read(2)
        path = place_of(path, file)
        if begin in PACKED:
            raise Failure(3, f"{name}: compressed by {PACKED[begin]}; unpack it first, or compress it by gzip")
        if begin == b"\x1f\x8b":
            file.seek(0)
            file = gzip.GzipFile(fileobj=file)
            begin = file.peek(2)[:2]
        elif begin[:1] in PICKLES:
            file.seek(0)
        elif begin[:1] == b"{":
            raise Failure(3, f"{name}: line 1: this is JSON, not a trace; `cachalot run --trace FILE` records one")
        else:
            read, header = read_header(begin, file, name)
            if header and path:
                file.close()
                return open_recorded(read, header, None, path, name, device)
            if header:
                return open_recorded(read, header, file, None, name, device)
            return open_text(itertools.chain([read], unpack(file, name)), path, name, device)
    except DAMAGED as error:
        raise unreadable(error, name) from error
    if begin[:1] in PICKLES:
        return open_snapshot(file, name, device, segments)
    try:
        read, header = read_header(b"", file, name)
    except DAMAGED:
        read, header = b"", None  # reading it as text reports the place
    if header:
        return open_recorded(read, header, file, None, name, device)
    file.seek(0)
    return open_text(unpack(file, name), None, name, device, file)
