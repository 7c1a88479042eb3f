"""Who held the memory, for pprof: a profile.proto (github.com/google/pprof), gzipped, with what each call site held at the peak of
its device and at the end."""

import gzip

from cachalot_command.reading.holders import MOMENTS, holders

VALUES = (("peak_objects", "count"), ("peak_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"))
# Numbers of fields in profile.proto.
SAMPLE_TYPE, SAMPLE, LOCATION, FUNCTION, STRING, TIME, DEFAULT = 1, 2, 4, 5, 6, 9, 14
VARINT, BYTES = 0, 2


def varint(value):
    data = bytearray()
    while value > 0x7f:
        data.append(value & 0x7f | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def field(number, value):
    """A field of a message: bytes, or a whole number."""
    if isinstance(value, bytes):
        return varint(number << 3 | BYTES) + varint(len(value)) + value
    return varint(number << 3 | VARINT) + varint(value)


def packed(number, values):
    return field(number, b"".join(map(varint, values)))


class Strings(dict):
    """The number of each text; 0 is the empty one."""

    def __missing__(self, text):
        self[text] = len(self)
        return self[text]


def samples(source):
    """{(device, kind, frames): the VALUES}."""
    rows, devices = {}, {history.device for history in source.histories}
    for i, moment in enumerate(MOMENTS):
        for holder in holders(source.report, moment):
            if holder.device in devices:
                row = rows.setdefault((holder.device, holder.kind, holder.frames or ("unknown",)), [0] * len(VALUES))
                row[2 * i] += holder.blocks
                row[2 * i + 1] += holder.bytes
    return rows


def encode(source):
    strings, locations, message = Strings({"": 0}), {}, b""
    for name, unit in VALUES:
        message += field(SAMPLE_TYPE, field(1, strings[name]) + field(2, strings[unit]))
    for (device, kind, frames), values in samples(source).items():
        places = [locations.setdefault(text, len(locations) + 1) for text in frames]
        labels = field(3, field(1, strings["device"]) + field(3, device)) + field(3, field(1, strings["kind"]) + field(2, strings[kind]))
        message += field(SAMPLE, packed(1, places) + packed(2, values) + labels)
    for text, place in locations.items():
        message += field(LOCATION, field(1, place) + field(4, field(1, place)))
        message += field(FUNCTION, field(1, place) + field(2, strings[text]) + field(3, strings[text]))
    start = max(0, int(source.start.timestamp() * 1_000_000_000))
    message += field(TIME, start) + field(DEFAULT, strings["peak_space"])
    return message + b"".join(field(STRING, text.encode("utf-8", "replace")) for text in strings)


def write(source, file):
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed_file:
        packed_file.write(encode(source))
