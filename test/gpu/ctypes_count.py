"""A counted number of cudaMalloc and cudaFree through ctypes.
usage: ctypes_count.py LIBCUDART count|forever [HEARTBEAT_FILE]

`forever` never ends: in HEARTBEAT_FILE it notes how many were begun and done.
"""

import ctypes
import mmap
import sys

from point import say, skip

COUNT, KEPT = 500, 7


class Runtime:
    """The few functions, with errors as exceptions."""

    def __init__(self, path):
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            skip(f"{path} cannot be loaded: {error}")
        self.library.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
        self.library.cudaMemset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        self.library.cudaFree.argtypes = [ctypes.c_void_p]

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {code}")

    def malloc(self, size):
        memory = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(memory), size)
        self.call("cudaMemset", memory, 1, min(size, 4096))
        return memory


def sizes():
    """A fixed pseudo-random sequence, 1 byte to 4 MiB."""
    state = 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield 1 + (state >> 33) % ((1 << 22) if state >> 60 == 0 else 20000)


def count(runtime):
    held, requested = [], 0
    for number, size in zip(range(COUNT), sizes()):
        requested += size
        held.append(runtime.malloc(size))
        if len(held) > 20:
            runtime.call("cudaFree", held.pop(number % 20))
    while len(held) > KEPT:
        runtime.call("cudaFree", held.pop())
    runtime.call("cudaDeviceSynchronize")
    say(mallocs=COUNT, requested=requested, kept=len(held))


def forever(runtime, path):
    with open(path, "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        begun_and_done = (ctypes.c_uint64 * 2).from_buffer(mmap.mmap(file.fileno(), mmap.PAGESIZE))  # pack_into writes zeros first
    held = []
    for number, size in enumerate(sizes(), 1):
        begun_and_done[0] = number
        held.append(runtime.malloc(size))
        begun_and_done[1] = number
        if len(held) > 20:
            runtime.call("cudaFree", held.pop(number % 20))


cudart = Runtime(sys.argv[1])
if sys.argv[2] == "count":
    count(cudart)
else:
    forever(cudart, sys.argv[3])
