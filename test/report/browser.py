"""Chromium without a window, driven through its debugging pipe: standard library only."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-sandbox", "--disable-gpu",
         "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--force-color-profile=srgb", "--hide-scrollbars")


def find():
    """A browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One tab. Errors of the page and requests to the network are collected."""

    def __init__(self, path, timeout=60):
        self.timeout, self.next, self.rest, self.session = timeout, 0, b"", None
        self.errors, self.requests = [], []
        self.profile = tempfile.mkdtemp(prefix="cachalot-browser-")
        to_child, self.to = os.pipe()
        self.come, from_child = os.pipe()
        self.process = self.spawn(path, to_child, from_child)
        os.close(to_child)
        os.close(from_child)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def spawn(self, path, to_child, from_child):
        # The browser reads from 3 and writes to 4, which may be in use here.
        passed = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_child, from_child)]
        shell = f'exec 3<&{passed[0]} 4>&{passed[1]}; exec "$0" "$@"'
        process = subprocess.Popen(["bash", "-c", shell, path, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
                                   pass_fds=passed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in passed:
            os.close(fd)
        return process

    def message(self, deadline):
        """The next message from the browser."""
        while b"\0" not in self.rest:
            if not select.select([self.come], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.come, 1 << 20)
            if not data:
                raise EOFError("the browser has ended")
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"])
        elif method == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.errors.append(values["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def call(self, method, **values):
        """One command of the DevTools protocol."""
        self.next += 1
        text = {"id": self.next, "method": method, "params": values}
        if self.session:
            text["sessionId"] = self.session
        os.write(self.to, json.dumps(text).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.next:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.note(answer)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, path, width=1280, height=900, dark=False):
        """Shows the page; returns when it says that it is drawn."""
        self.errors, self.requests = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.scheme(dark)
        self.call("Page.navigate", url=f"file://{path}")
        self.wait("Boolean(document.documentElement?.dataset.drawnMs)")

    def scheme(self, dark):
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def wait(self, expression, timeout=30):
        deadline = time.monotonic() + timeout
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}; {self.errors}"
            time.sleep(0.02)

    def mouse(self, kind, x, y):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def screenshot(self, path):
        """The whole page, not only the part in view."""
        height = self.evaluate("document.documentElement.scrollHeight")
        width = self.evaluate("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        data = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except (OSError, EOFError, TimeoutError, AssertionError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.come)
        shutil.rmtree(self.profile, ignore_errors=True)
