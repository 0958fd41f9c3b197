"""Checks the page of `traceless-lab report` in a browser. Arguments: the page, and a folder for
screenshots."""
import os
import re
import sys

from browser import Browser

page, folder = map(os.path.abspath, sys.argv[1:3])
BYTES_MAX = 5_000_000
SECONDS_MAX = 1.0

# What the view shows of the page: whether it overflows, and what has no name or no table.
FACTS = """
const named = (e) => e.getAttribute("aria-label") || e.textContent.trim() || e.title;
const charts = [...document.querySelectorAll("[data-charts]")];
const wide = [...document.querySelectorAll("main *")].filter((e) =>
    e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    && !e.closest(".scroll"));
const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
return {
    charts: charts.length,
    drawn: charts.filter((e) => e.querySelector("svg rect")).length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    wide: wide.map((e) => e.outerHTML.slice(0, 80)),
    nameless: [...document.querySelectorAll("a, summary, svg[role=img], [tabindex]")]
        .filter((e) => !named(e)).length,
    tableless: charts.filter((e) => !e.parentElement.querySelector("details table th")).length,
    dead: [...document.querySelectorAll("a[href^='#']")]
        .filter((e) => !document.getElementById(e.hash.slice(1))).map((e) => e.hash),
    twice: ids.filter((id, at) => ids.indexOf(id) !== at),
    loads: performance.getEntriesByType("resource").map((e) => e.name),
    ground: getComputedStyle(document.body).backgroundColor,
    ready: performance.getEntriesByType("navigation")[0].loadEventEnd,
};
"""
# Brings the first chart that is not drawn near the view; true once all are.
NEXT_CHART = """
const next = [...document.querySelectorAll("[data-charts]")].find((e) => !e.querySelector("svg"));
next?.scrollIntoView({behavior: "instant"});
return !next;
"""


def check_file():
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert len(text) < BYTES_MAX, len(text)
    of_page = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    loads = r"""(?:src|href)\s*=\s*["'](?!#|data:)[^"']*|url\([^)]*|@import.*"""
    loads = re.findall(loads, of_page)
    assert not loads, loads


def check_view(width, dark):
    light = "dark" if dark else "light"
    with Browser(width, 900, dark) as browser:
        browser.open("file://" + page)
        browser.wait("return document.documentElement.dataset.ready")
        first = browser.run(FACTS)
        browser.screenshot(f"{folder}/report-{width}-{light}.png")
        browser.wait(NEXT_CHART)
        facts = browser.run(FACTS)
        assert facts["charts"] == facts["drawn"] == 4, facts
        assert facts["overflow"] <= 0 and not facts["wide"], facts
        assert facts["nameless"] == facts["tableless"] == 0, facts
        assert not facts["dead"] and not facts["twice"] and not facts["loads"], facts
        assert (facts["ground"] == "rgb(255, 255, 255)") == (not dark), facts
        # The first key of the keyboard leads to the content, further ones to links.
        browser.run("window.scrollTo(0, 0)")
        for key in range(2):
            browser.command("Input.dispatchKeyEvent", {"type": "keyDown", "key": "Tab"})
        where = browser.run("return document.activeElement.closest('nav, .skip') !== null")
        assert where, "the keyboard does not reach the links"
        assert not (errors := browser.errors()), errors
        return first["ready"] / 1000


def check_print():
    with Browser() as browser:
        browser.open("file://" + page)
        browser.wait("return document.documentElement.dataset.ready")
        paper = browser.command("Page.printToPDF", {})
        assert len(paper["data"]) > 20_000
        assert browser.run("return [...document.querySelectorAll('details')].every((e) => e.open)")
        assert not (errors := browser.errors()), errors


check_file()
VIEWS = [(1280, False), (1280, True), (390, True), (390, False)]
opened = [check_view(width, dark) for width, dark in VIEWS]
check_print()
print(f"opened in {min(opened):.2f} to {max(opened):.2f} s")
# The fastest, as other tests run at the same time.
assert min(opened) < SECONDS_MAX, opened
