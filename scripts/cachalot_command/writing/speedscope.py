"""Who held the memory, for speedscope.app: one profile for each device and moment, in bytes."""

import json

from cachalot_command.reading.holders import MOMENTS, holders

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def profile(name, found, frames):
    """Stacks outermost first. `frames` numbers the texts of all profiles."""
    return {"type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": sum(holder.bytes for holder in found),
            "samples": [[frames.setdefault(text, len(frames)) for text in reversed(holder.frames or ("unknown",))] for holder in found],
            "weights": [holder.bytes for holder in found]}


def document(source):
    frames, profiles = {}, []
    for moment, words in MOMENTS.items():
        found = holders(source.report, moment)
        for history in source.histories:
            rows = [holder for holder in found if holder.device == history.device]
            profiles += [profile(f"GPU {history.device} {words}", rows, frames)] if rows else []
    return {"$schema": SCHEMA, "name": f"GPU memory of {source.program[:300]}", "exporter": "cachalot", "activeProfileIndex": 0,
            "shared": {"frames": [{"name": text} for text in frames]}, "profiles": profiles}


def write(source, file):
    file.write(json.dumps(document(source), separators=(",", ":")).encode())
