"""A history as RMM 26.10 logs it (Thread,Time,Action,Pointer,Size,Stream), of one device."""

from cachalot_command.common.tools import Failure

SECOND = 1000000  # microseconds


class Csv:
    """RMM's log of one device."""

    def __init__(self, begin, file):
        self.begin, self.file = ((begin.hour * 60 + begin.minute) * 60 + begin.second) * SECOND + begin.microsecond, file

    def time(self, ns):
        minutes, rest = divmod(self.begin + ns // 1000, 60 * SECOND)
        return f"{minutes // 60 % 24:02}:{minutes % 60:02}:{rest // SECOND:02}.{rest % SECOND:06}"

    def line(self, thread, time, action, address, size):
        pointer = f"{address:#x}" if address else "(nil)"
        self.file.write(f"{thread},{self.time(time)},{action},{pointer},{size},0\n".encode())

    def write(self, history):
        self.file.write(b"Thread,Time,Action,Pointer,Size,Stream\n")
        first = history.events[0].time
        for block in history.before:
            self.line(0, first, "allocate", block.address, block.requested)
        held = {block.address for block in history.before}
        for event in history.events:
            if event.action == "alloc":
                held.add(event.address)
                self.line(event.thread, event.time, "allocate", event.address, event.requested)
            elif event.action == "free_requested" and event.address in held:
                held.discard(event.address)
                self.line(event.thread, event.time, "free", event.address, event.requested)
            elif event.action == "oom":
                self.line(event.thread, event.time, "allocate failure", 0, event.requested)


def write_csv(source, file):
    """Writes the log of one device, since RMM's log has no column for devices."""
    used = [h for h in source.histories if h.events]
    if len(used) > 1:
        raise Failure(2, f"{source.path} has events of devices {', '.join(str(h.device) for h in used)}; "
                         "choose one with --device")
    Csv(source.start, file).write(used[0])
