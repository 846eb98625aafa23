"""A headless Chromium driven over its DevTools protocol, through pipes: no port, no driver."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 120.0


def find():
    """The program, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    """One page in one browser, without a network."""

    def __init__(self, width=1360, height=860, dark=False):
        self.profile = tempfile.TemporaryDirectory(prefix="flowtrace-browser-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        arguments = [
            find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--hide-scrollbars", "--proxy-server=127.0.0.1:9",
            f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}",
            "--remote-debugging-pipe", "about:blank",
        ]

        def pipes():
            # The browser takes commands from descriptor 3 and answers on 4.
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            arguments, preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.pending = b""
        self.number = 0
        self.events = []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(20)
        except Exception:
            self.process.kill()
            self.process.wait()
        try:
            self.profile.cleanup()
        except OSError:
            pass

    def _message(self, deadline):
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.back, 1 << 20)
            if not more:
                raise EOFError("the browser has ended")
            self.pending += more
        line, self.pending = self.pending.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, path):
        """Opens a file from disk and waits until its script has run."""
        self.visit("file://" + os.path.abspath(path))

    def visit(self, address):
        """Opens an address and waits until its script has run."""
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + PATIENCE
        protocol = address.split("//")[0]
        while self.value(f"location.protocol === '{protocol}' && document.readyState") != "complete":
            if time.monotonic() > deadline:
                raise TimeoutError("the page does not load")
            time.sleep(0.05)

    def value(self, expression):
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self):
        """Waits until two frames have been drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def press(self, key):
        code = {"/": "Slash", "?": "Slash"}.get(key, key)
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", key=key, code=code, text=text,
                  windowsVirtualKeyCode={"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowRight": 39}.get(key, 0))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)

    def mouse(self, kind, x, y, clicks=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if clicks else "none", clickCount=clicks)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y, 1)

    def screenshot(self, path, full=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        with open(path, "wb") as file:
            file.write(base64.b64decode(data["data"]))

    def problems(self, origin="file://"):
        """Errors on the console, and everything that was fetched but for the page itself: of a page that a server
        sends, everything from elsewhere than its origin."""
        self.call("Runtime.evaluate", expression="1")
        found = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append("exception: " + json.dumps(parameters["exceptionDetails"])[:2000])
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append("console: " + json.dumps(parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append("log: " + parameters["entry"]["text"])
            elif event["method"] == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                is_page = url.startswith(origin) and (origin != "file://" or parameters["type"] == "Document")
                # What a data: URL has, the page has.
                if not is_page and not url.startswith("data:"):
                    found.append("fetched: " + url[:200])
        return found
