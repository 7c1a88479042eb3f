"""cachalot metrics: the figures of running programs for Prometheus, as a text, a file or over HTTP."""

import os
import re
import sys
import time

from cachalot_command.common.arguments import split
from cachalot_command.common.tools import Failure, say
from cachalot_command.reading.live import BadPage, Watch
from cachalot_command.writing.openmetrics import family, label
from cachalot_command.writing.output import write

HELP = """\
usage: cachalot metrics [--output FILE | --listen PORT] [--interval SECONDS]

Prints what all running programs of this user hold as OpenMetrics, gauges only.
It reads their pages: they notice nothing.
  --output FILE  into a file, replaced as a whole: for node_exporter, a name in
                 its textfile folder that ends in .prom
  --interval     and again each so many seconds, until stopped
  --listen PORT  over HTTP, on the loopback interface only; 0: any free port.
                 Every user of this machine can read it

Labels: program, rank, slurm_job, pod, pid, and of a device gpu and uuid. Rank
and job are of the program's environment, pod of its control group. A scrape
config needs no more than `targets: [127.0.0.1:PORT]`.

Exit code: 0, 2 usage, 3 no directory that can be read, or no file or port.
example: cachalot metrics --listen 9465
example: cachalot metrics --output /var/lib/node_exporter/gpu.prom --interval 15
"""

# (name, key of a device's figures, unit, meaning)
DEVICE = (
    ("allocated_bytes", "allocated_bytes", "bytes", "Memory that the program holds now."),
    ("reserved_bytes", "reserved_bytes", "bytes", "Memory obtained from the driver now."),
    ("peak_allocated_bytes", "peak_allocated_bytes", "bytes", "Most memory held so far."),
    ("peak_reserved_bytes", "peak_reserved_bytes", "bytes", "Most memory obtained from the driver so far."),
    ("device_bytes", "total_bytes", "bytes", "Memory of the device."),
    ("device_free_bytes", "free", "bytes", "Memory that was free on the device when the program last changed something."),
    ("blocks", "blocks", "", "Blocks that the program holds now."),
    ("requests", "requests", "", "Allocations that the program asked for so far."),
    ("hits", "hits", "", "Requests served without a driver allocation so far."),
    ("out_of_memory", "ooms", "", "Requests answered with out of memory so far."),
    ("fence_waits", "fence_waits", "", "Waits of the host for the device, in frees, so far."),
)
JOBS = (b"SLURM_JOB_ID", b"SLURM_JOBID")
POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
HOSTS = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")  # no page of the web in a browser here may ask by another name


def content(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def place_of(pid):
    """Labels of where a process belongs: its job and its pod. Nothing changes them later."""
    environment = dict(word.partition(b"=")[::2] for word in content(f"/proc/{pid}/environ").split(b"\0"))
    job = next((environment[name] for name in JOBS if environment.get(name)), b"").decode("utf-8", "replace")
    pod = POD.search(content(f"/proc/{pid}/cgroup").decode("ascii", "replace"))
    return ([label("slurm_job", job)] if job else []) + ([label("pod", pod[1].replace("_", "-"))] if pod else [])


class Exporter:
    """Reads the pages again at each call, and keeps them open in between."""

    def __init__(self):
        self.watch, self.labels = Watch(), {}

    def labels_of(self, process):
        page = process.page
        if page.path not in self.labels:
            rank = [label("rank", page.rank)] if page.rank is not None else []
            place = place_of(page.pid) if page.is_here else []
            self.labels[page.path] = ",".join([label("program", page.program or "-"), *rank, *place, label("pid", page.pid)])
        return self.labels[page.path]

    def text(self):
        processes = self.watch.look()
        self.labels = {path: labels for path, labels in self.labels.items() if path in self.watch.processes}
        rows, ages, now = [], [], time.monotonic_ns()
        for process in processes:
            own = self.labels_of(process)
            ages.append((own, f"{max(0, now - process.page.start_ns) / 1e9:.0f}"))
            try:
                free = process.page.free()
            except (BadPage, OSError):
                free = {}
            told = {row["ordinal"]: free.get(row["row"]) for row in process.last[1]}
            rows += [(f'{own},{label("gpu", device["device"])},{label("uuid", device["uuid"])}', {**device, "free": told.get(device["device"])})
                     for device in process.devices]
        lines = family("cachalot_programs", "", "Running programs of this user that use the cache.", [("", len(processes))])
        lines += family("cachalot_problems", "", "Pages that cannot be read.", [("", len(self.watch.problems))])
        lines += family("cachalot_age_seconds", "seconds", "Time since the program began to use CUDA.", ages)
        for name, key, unit, meaning in DEVICE:
            lines += family(f"cachalot_{name}", unit, meaning, [(labels, row[key]) for labels, row in rows if row[key] is not None])
        return "\n".join([*lines, "# EOF", ""])


def serve(exporter, port):
    """Answers GET /metrics, and anything else with an error, until stopped."""
    from http.server import BaseHTTPRequestHandler, HTTPServer  # only here: it takes a while to load

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        timeout = 2  # one reader at a time
        protocol_version = "HTTP/1.0"

        def do_GET(self):  # noqa: N802
            if not HOSTS.fullmatch(self.headers.get("Host", "localhost")):
                return self.send_error(403)
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                return self.send_error(404)
            body = exporter.text().encode()
            strict = "application/openmetrics-text" in self.headers.get("Accept", "")
            self.send_response(200)
            self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8" if strict else
                             "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return self.wfile.write(body)

        def log_message(self, *_):
            """Nothing: a scrape each few seconds is no news."""

    class Server(HTTPServer):
        """One that keeps its errors to itself: a reader that went away is none."""

        def handle_error(self, *_):
            pass

    try:
        server = Server(("127.0.0.1", port), Handler)
    except OSError as error:
        raise Failure(3, f"--listen {port}: {error.strerror}") from error
    say(f"cachalot: http://127.0.0.1:{server.server_port}/metrics")
    server.serve_forever()


def parse(arguments):
    words, given = split("metrics", arguments, (), ("--output", "--listen", "--interval"))
    if words:
        raise Failure(2, f"`{words[0]}` is not expected; see `cachalot metrics --help`")
    if "--listen" in given and given.keys() & {"--output", "--interval"}:
        raise Failure(2, "--listen takes no other option")
    port, interval = given.get("--listen"), given.get("--interval")
    if port is not None and not (re.fullmatch("[0-9]{1,5}", port) and int(port) < 65536):
        raise Failure(2, "--listen is the number of a port, or 0")
    if interval is not None and ("--output" not in given or not re.fullmatch("[0-9]{1,5}", interval) or int(interval) == 0):
        raise Failure(2, "--interval is a whole number of seconds, from 1, and needs --output")
    return given.get("--output"), port, interval


def main(arguments):
    """cachalot metrics."""
    path, port, interval = parse(arguments)
    exporter = Exporter()
    if port is not None:
        serve(exporter, int(port))
    while True:
        text = exporter.text()
        if path is None:
            sys.stdout.write(text)
        else:
            try:
                write(path, lambda file: file.write(text.encode()))
                if os.path.isfile(path):
                    os.chmod(path, 0o644)  # node_exporter is another user
            except OSError as error:
                raise Failure(3, f"{path}: {error.strerror}") from error
        if interval is None:
            return 3 if exporter.watch.directory in exporter.watch.problems else 0
        time.sleep(int(interval))
