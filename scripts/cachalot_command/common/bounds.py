"""Bounds on memory and time, for what is read from files of anybody's."""

import contextlib
import resource


def available_at_most(most):
    """So many bytes, but never all that the machine has left."""
    with contextlib.suppress(OSError, ValueError, KeyError), open("/proc/meminfo", encoding="ascii") as file:
        available = dict(line.split(":") for line in file)["MemAvailable"]
        return min(most, int(available.split()[0]) * 1024 * 7 // 8)
    return most


def limit(what, most):
    """Sets a limit, which only lowers one that is there. Returns what it was."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard))
    return soft, hard


@contextlib.contextmanager
def memory_bounded(most):
    """Within it, this process gets at most so many bytes more, and then a MemoryError."""
    with open("/proc/self/statm", "rb") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    before = limit(resource.RLIMIT_AS, used + most)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
