"""Headless Chromium through chromedriver's HTTP interface, with Python's standard library alone."""
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
]


class Browser:
    """A browser with a profile of its own; a context manager."""

    def __init__(self, width=1280, height=900, dark=False):
        self.profile = tempfile.mkdtemp(prefix="browser-")
        self.session = None
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True)
        try:
            self.address = f"http://127.0.0.1:{self._port()}"
            flags = FLAGS + [f"--user-data-dir={self.profile}"]
            options = {"args": flags}
            if os.environ.get("CHROMIUM"):
                options["binary"] = os.environ["CHROMIUM"]
            value = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
            self.session = value["sessionId"]
            self.size(width, height)
            self.scheme("dark" if dark else "light")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            if self.session:
                self._call("DELETE", f"/session/{self.session}")
        except (OSError, RuntimeError):
            pass
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.driver.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, url):
        self._of_session("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The value that the script returns."""
        return self._of_session("POST", "/execute/sync", {"script": script, "args": list(args)})

    def wait(self, script, seconds=10):
        """Waits until the script returns something true, and returns that."""
        end = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if value or time.monotonic() > end:
                assert value, f"never true: {script}"
                return value
            time.sleep(0.05)

    def errors(self):
        """Warnings and errors on the console since the last call."""
        entries = self._of_session("POST", "/se/log", {"type": "browser"})
        return [e for e in entries if e["level"] in ("WARNING", "SEVERE")]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._of_session("GET", "/screenshot")))

    def size(self, width, height, scale=1):
        """The size of the page's view, not of a window, which has a least width."""
        self.command("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": False})

    def scheme(self, name, media=""):
        """Light or dark colours, and `print` or the screen."""
        self.command("Emulation.setEmulatedMedia", {
            "media": media, "features": [{"name": "prefers-color-scheme", "value": name}]})

    def command(self, name, params):
        """A command of the DevTools protocol."""
        return self._of_session("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    def _of_session(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:600]}") from error

    def _port(self):
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip(".\n").rsplit(" ", 1)[1])
        raise RuntimeError("chromedriver did not start")
