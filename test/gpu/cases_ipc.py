"""Memory shared between processes: mapped memory by handles of ours, ordinary segments and native by the driver's."""

import signal
import subprocess
import sys
import threading

from cases_programs import driver_library
from cases_reuse import compile_cuda, gpus
from kit import MIB, ROOT, Skip, cuda_home

SIZES = (MIB + 512, 3 * MIB, 45 * MIB + 100)
WAYS = {"ordinary": "expandable_segments:False", "auto": "expandable_segments:auto"}


class Shell:
    """A process that does what it is told (test/preload/ipc_shell.c)."""

    def __init__(self, program, environment):
        self.process = subprocess.Popen([program], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.watch = threading.Timer(50, self.process.kill)
        self.watch.start()

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def shared(self, size, byte):
        """(number, handle) of filled memory."""
        number = self.ask("make", size)
        self.ask("fill", number, byte)
        return number, self.ask("export", number)

    def end(self, kill=False):
        self.watch.cancel()
        if kill:
            self.process.send_signal(signal.SIGKILL)
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        return self.process.returncode


def both_ways(a, b, size):
    """What each process sees of the other's bytes."""
    a.ask("make", 5 * MIB)
    mine, handle = a.shared(size, 7)
    theirs = b.ask("open", handle, size)
    seen = [b.ask("read", theirs)]
    b.ask("fill", theirs, 9)
    seen.append(a.ask("read", mine))
    back, handle = b.shared(size, 5)
    seen.append(a.ask("read", a.ask("open", handle, size)))
    return [*seen, b.ask("range", theirs), b.ask("close", theirs), a.ask("free", mine), back != theirs]


def open_counts(a, b):
    """Opened twice, closed three times; an exporter's own; a block that was freed, and a process that was killed."""
    mine, handle = a.shared(21 * MIB, 3)
    first, again = b.ask("open", handle, 21 * MIB), b.ask("open", handle, 21 * MIB)
    said = {"same pointer": b.ask("same", first, again), "closed": b.ask("close", first), "read on": b.ask("read", again),
            "closed again": b.ask("close", again), "and again": b.ask("close", again), "own": a.ask("open", handle, MIB)}
    a.ask("free", mine)
    freed = b.ask("open", handle, MIB)
    _, handle = a.shared(21 * MIB, 4)
    a.end(kill=True)
    return said, {"after the free": freed, "after the exporter's end": b.ask("open", handle, MIB)}


def shared_by(kit, program, environment):
    """All of it with two processes in one environment."""
    found = []
    for size in SIZES:
        a, b = Shell(program, environment), Shell(program, environment)
        found.append(both_ways(a, b, size))
        print(f"{kit.name}: {size} bytes: {found[-1]}", file=sys.stderr, flush=True)
        found.append([a.end(), b.end()])
    a, b = Shell(program, environment), Shell(program, environment)
    counts, gone = open_counts(a, b)
    print(f"{kit.name}: {counts} {gone}", file=sys.stderr, flush=True)
    found.append([b.end()])
    return found, counts, gone


def programs(kit):
    """A C pair, started by fork and exec: bytes, ranges and codes as natively."""
    program = kit.work / "ipc_shell"
    kit.build(["cc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-I", cuda_home() / "include", "-I", ROOT / "test/sim", "-o", program,
               ROOT / "test/preload/ipc_shell.c", *driver_library()])
    native, counts, gone = shared_by(kit, program, kit.native())
    kit.note("ipc: what the driver says", f"{native[0]} {counts} {gone}")
    for way, conf in WAYS.items():
        ours, our_counts, our_gone = shared_by(kit, program, kit.front(kit.native(), conf))
        if way == "auto":
            kit.check(f"ipc: {way}: bytes and ranges as natively", ours == native, ours if ours != native else f"{len(SIZES)} sizes")
        else:  # ranges and handles are the segment's
            kit.note(f"ipc: {way}: bytes and ranges", ours)
        kit.check(f"ipc: {way}: opened and closed as natively", our_counts == counts, our_counts)
        kit.note(f"ipc: {way}: of what is gone; natively {gone}", our_gone)


def torch(kit):
    """Tensors through torch.multiprocessing's queues, both ways, with PyTorch's own cache, which is what shares them."""
    command = kit.script("torch_ipc.py")
    native = kit.natively(command, kit.native(), timeout=60)
    for way, conf in WAYS.items():
        run = kit.good(command, kit.front(kit.native(), conf), timeout=60)
        kit.same_lines(f"torch.multiprocessing: {way}", native, run)
        kit.check(f"torch.multiprocessing: {way}: mapped", (run.exit.statistic("segment", "peak") > 0), option_of(run.exit))


def option_of(figures):
    return "expandable_segments " + figures.report["config"]["expandable_segments"]["value"]


def nccl(kit):
    """Two processes, a GPU each; NCCL's own buffers by legacy IPC, and by cuMemCreate."""
    if gpus() < 2:
        raise Skip("needs two GPUs")
    command = kit.script("cover_nccl.py", "processes")
    for cumem in ("0", "1"):
        native = kit.natively(command, kit.native(NCCL_CUMEM_ENABLE=cumem), timeout=60)
        for way, conf in WAYS.items():
            run = kit.good(command, kit.front(kit.native(NCCL_CUMEM_ENABLE=cumem), conf), timeout=60)
            same = sorted(run.lines) == sorted(native.lines)
            kit.check(f"NCCL_CUMEM_ENABLE={cumem}: {way}", same and run.lines, f"{len(run.lines)} lines the same" if same else run.lines)


def facts(kit):
    """What handles that can be exported cost, and what the driver says of mapped memory."""
    program = compile_cuda(kit, "facts", ["facts.cu", "facts_costs.cu", "facts_contexts.cu", "facts_map.cu", "facts_ipc.cu"])
    for name, environment in (("native", kit.native()), ("in front", kit.front(kit.native(), "expandable_segments:auto"))):
        run = kit.run([program, "ipc"], environment, timeout=60)
        for said in run.results():
            if "fact" in said:
                kit.note(f"{name}: {said['fact']}", said["says"])
            else:
                kit.check(f"{name}: facts", False, said)
        kit.check(f"{name}: all found", run.code == 0, f"exit code {run.code} {run.errors.strip()[-200:]}")
