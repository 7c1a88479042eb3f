#!/usr/bin/env bash
# guess: each sample of JAX's device memory profile stands for live arrays, so "allocations" counts arrays, and a sample without bytes
#   does not occur.
# found (2026-11-30, jax and jaxlib 0.10.2): compiled functions are samples too, with an allocation each, 0 bytes and the label
#   kind=executable; arrays have kind=buffer. The profile says neither when it was taken nor which of its two values a viewer is to
#   show, and its locations name no mapping.
. "$(dirname "$0")/install.sh"
install jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 ml_dtypes==0.6.0 opt_einsum==3.4.0 scipy==1.17.1
cat >"$work/profile.py" <<'PY'
import gzip

import jax
import jax.numpy as jnp
import jax.profiler


def varint(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        yield key >> 3, value


live, dead = jnp.ones(1000), jnp.ones(500)
del dead
profile = list(fields(gzip.decompress(jax.profiler.device_memory_profile())))
texts = [value.decode() for field, value in profile if field == 6]
kinds = {}
for field, value in profile:
    if field == 2:
        sample = list(fields(value))
        count, size = varint(sample[1][1], 0)[0], varint(sample[1][1], varint(sample[1][1], 0)[1])[0]
        labels = {texts[dict(fields(label))[1]]: texts[dict(fields(label)).get(2, 0)] for key, label in sample if key == 3}
        kinds.setdefault(labels["kind"], []).append((count, size))
print("buffers:", kinds["buffer"])
print("executables: some,", set(kinds["executable"]))
print("fields of the profile:", sorted({field for field, _ in profile}))
print("mapping of a location:", [dict(fields(value)).get(2) for field, value in profile if field == 4][:1])
PY
JAX_PLATFORMS=cpu python3 "$work/profile.py" | same "buffers: [(1, 4000)]
executables: some, {(1, 0)}
fields of the profile: [1, 2, 4, 5, 6]
mapping of a location: [None]"
