"""Training of a small network in CuPy, its pool off: every array is a cudaMalloc."""

import sys

from point import say, skip

try:
    import cupy
    import numpy
except ImportError as error:
    skip(f"no CuPy: {error}")
try:
    if cupy.cuda.runtime.getDeviceCount() < 1:
        skip("CuPy sees no GPU")
except cupy.cuda.runtime.CUDARuntimeError as error:
    skip(f"CuPy sees no GPU: {error}")

cupy.cuda.set_allocator(None)
cupy.cuda.set_pinned_memory_allocator(None)
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60


def hexed(array):
    return float(array.astype(cupy.float64).sum()).hex()


random = numpy.random.default_rng(0)
x = cupy.asarray(random.standard_normal((2048, 256)), dtype=cupy.float32)
wanted = cupy.sin(x @ cupy.asarray(random.standard_normal((256, 32)) / 16, dtype=cupy.float32))
first = cupy.asarray(random.standard_normal((256, 512)) / 16, dtype=cupy.float32)
second = cupy.asarray(random.standard_normal((512, 32)) / 22, dtype=cupy.float32)
for step in range(STEPS):
    rows = 512 + 37 * step % 1500
    inputs = x[:rows]
    hidden = cupy.tanh(inputs @ first)
    error = hidden @ second - wanted[:rows]
    loss = (error * error).mean()
    back = 2 * error / error.size
    gradient = (back @ second.T) * (1 - hidden * hidden)
    second -= 0.5 * (hidden.T @ back)
    first -= 0.5 * (inputs.T @ gradient)
    say(step=step, rows=rows, loss=float(loss).hex())
a = cupy.fft.rfft(x[:64], axis=1)
say(first=hexed(first), second=hexed(second), fft=hexed(cupy.abs(a)),
    sort=hexed(cupy.sort(x, axis=1)[:, 0]))
