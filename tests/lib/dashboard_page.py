"""Opens a dashboard in Chromium, as a desktop and as a phone, and looks at what is drawn.

dashboard_page.py URL FOLDER

Leaves desktop.png, dark.png and phone.png in FOLDER. Exit code 1 if something is missing, wider
than the screen, without a name, or if the console has an error.
"""

import base64
import json
import re
import subprocess
import sys
import time
import urllib.request

url, folder = sys.argv[1:]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile"]
# What a script in the page finds there.
LOOK = """
const text = (selector) => document.querySelector(selector).textContent;
const tiles = (id) => Object.fromEntries([...document.querySelectorAll(`#${id} .tiles > div`)]
    .map((tile) => [tile.querySelector("dt").textContent, tile.querySelector("dd").textContent]));
const dots = (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let dots = 0;
    for (let at = 3; at < data.length; at += 4) dots += data[at] > 0;
    return dots;
};
return {
    state: text("#state"),
    title: text("#title"),
    address: location.href,
    adversary: tiles("adversary"),
    user: tiles("user"),
    evenness: [text("#adversary .evenness"), text("#user .evenness")],
    readings: document.querySelectorAll("#readings tr").length,
    dots: [...document.querySelectorAll("canvas")].map(dots),
    labels: [...document.querySelectorAll("canvas")].map((one) => one.getAttribute("aria-label")),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    clipped: [...document.querySelectorAll("dd")]
        .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent),
};
"""


class Browser:
    """A session of a browser's driver."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        port = None
        while port is None:
            line = self.driver.stdout.readline()
            assert line, "chromedriver has ended"
            port = re.search(r"started successfully on port (\d+)", line)
        self.base = f"http://127.0.0.1:{port[1]}/session"
        options = {"args": FLAGS}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._send("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self.base += "/" + made["sessionId"]

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method,
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)["value"]

    def go(self, address):
        self._send("POST", "/url", {"url": address})

    def run(self, script):
        return self._send("POST", "/execute/sync", {"script": script, "args": []})

    def cdp(self, command, **params):
        return self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def console(self):
        return self._send("POST", "/se/log", {"type": "browser"})

    def picture(self, name):
        # The whole page, not only what fits.
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(f"{folder}/{name}.png", "wb") as out:
            out.write(base64.b64decode(shot))

    def quit(self):
        try:
            self._send("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()


def look(browser, name, width, height, scale, scheme):
    browser.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                deviceScaleFactor=scale, mobile=width < 600)
    browser.cdp("Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": scheme}])
    for _ in range(50):
        time.sleep(0.2)
        page = browser.run(LOOK)
        is_full = all("parts" in one for one in page["evenness"])
        if page["state"] == "live" and is_full and all(dots > 100 for dots in page["dots"]):
            break
    browser.picture(name)
    errors = [line for line in browser.console() if line["level"] == "SEVERE"]
    print(json.dumps({"name": name, "errors": errors, **page}))
    assert not errors, errors
    assert page["state"] == "live" and "token" not in page["address"], page["state"]
    assert page["title"] and page["readings"] >= 3
    assert len(page["dots"]) == 4 and all(dots > 100 for dots in page["dots"]), page["dots"]
    assert all(": " in label for label in page["labels"]), page["labels"]
    assert page["wide"] <= 0, f"{page['wide']} px wider than the screen"
    assert not page["clipped"], page["clipped"]


browser = Browser()
try:
    browser.go(url)
    look(browser, "desktop", 1280, 900, 1, "light")
    look(browser, "dark", 1280, 900, 1, "dark")
    look(browser, "phone", 390, 844, 2, "light")
    # What is secret can be hidden.
    browser.run("document.getElementById('hide').click()")
    hidden = browser.run("return document.getElementById('user').clientHeight")
    assert hidden == 0, hidden
    # Without the token there is a question for it, and nothing else. The refusal is in the log.
    browser.go("about:blank")
    browser.go(url.split("#")[0] + "#token=0123456789abcdef")
    for _ in range(50):
        time.sleep(0.2)
        if browser.run("return !document.getElementById('login').hidden"):
            break
    assert browser.run("return document.querySelectorAll('.tiles > div').length") == 0
    token = url.split("token=")[1]
    browser.run(f"document.getElementById('token').value = '{token}';"
                "document.querySelector('#login button').click()")
    for _ in range(50):
        time.sleep(0.2)
        if browser.run(LOOK)["state"] == "live":
            break
    assert browser.run(LOOK)["state"] == "live"
finally:
    browser.quit()
