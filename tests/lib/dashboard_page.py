"""Opens a dashboard in Chromium, as a desktop and as a phone, and looks at what is drawn.

dashboard_page.py URL FOLDER

Leaves desktop.png, dark.png and phone.png in FOLDER. Exit code 1 if something is missing, wider
than the screen, without a name, or if the console has an error.
"""

import base64
import json
import sys
import time

from browser import Browser

url, folder = sys.argv[1:]
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
    audit: text("#audit"),
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


def take_picture(browser, name):
    # The whole page, not only what fits.
    whole = {"captureBeyondViewport": True}
    shot = browser.command("Page.captureScreenshot", whole)["data"]
    with open(f"{folder}/{name}.png", "wb") as out:
        out.write(base64.b64decode(shot))


def look(browser, name, width, height, scale, scheme):
    browser.size(width, height, scale)
    browser.scheme(scheme)
    for _ in range(50):
        time.sleep(0.2)
        page = browser.run(LOOK)
        is_full = all("parts" in one for one in page["evenness"])
        if page["state"] == "live" and is_full and all(dots > 100 for dots in page["dots"]):
            break
    take_picture(browser, name)
    # Warnings are about how often this test reads the pictures.
    errors = [entry for entry in browser.errors() if entry["level"] == "SEVERE"]
    print(json.dumps({"name": name, "errors": errors, **page}))
    assert not errors, errors
    assert page["state"] == "live" and "token" not in page["address"], page["state"]
    assert page["title"] and page["readings"] >= 3
    assert page["audit"].startswith("Audit: no leak found: 0 of "), page["audit"]
    assert len(page["dots"]) == 4 and all(dots > 100 for dots in page["dots"]), page["dots"]
    assert all(": " in label for label in page["labels"]), page["labels"]
    assert page["wide"] <= 0, f"{page['wide']} px wider than the screen"
    assert not page["clipped"], page["clipped"]


with Browser() as browser:
    browser.open(url)
    look(browser, "desktop", 1280, 900, 1, "light")
    look(browser, "dark", 1280, 900, 1, "dark")
    look(browser, "phone", 390, 844, 2, "light")
    # What is secret can be hidden.
    browser.run("document.getElementById('hide').click()")
    hidden = browser.run("return document.getElementById('user').clientHeight")
    assert hidden == 0, hidden
    # Without the token there is a question for it, and nothing else. The refusal is in the log.
    browser.open("about:blank")
    browser.open(url.split("#")[0] + "#token=0123456789abcdef")
    browser.wait("return !document.getElementById('login').hidden")
    assert browser.run("return document.querySelectorAll('.tiles > div').length") == 0
    token = url.split("token=")[1]
    browser.run(f"document.getElementById('token').value = '{token}';"
                "document.querySelector('#login button').click()")
    browser.wait("return document.querySelector('#state').textContent === 'live'")
