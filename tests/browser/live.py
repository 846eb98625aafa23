"""Drives the page of a run that goes on: live.py ADDRESS FLOWTRACE TRACE GATE. What it shows is what `flowtrace
query` says; then the gate is opened, the run ends, and the page becomes the report. With the address alone: the
recorder was killed, and the page says so."""

import json
import subprocess
import sys
import time

from chromium import Browser

PATIENCE = 90


def wait(page, what, check):
    begin = time.monotonic()
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() - begin > PATIENCE:
            raise AssertionError(f"{what}: " + page.value("document.body.innerText"))
        time.sleep(0.2)


def cells(page, section):
    """The texts of the rows of a table."""
    return page.value(f"[...document.querySelectorAll('#{section} tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")


def running(flowtrace, trace):
    sql = "SELECT pid FROM processes WHERE end_ns IS NULL ORDER BY pid"
    rows = json.loads(subprocess.run([flowtrace, "query", trace, "--format", "json", sql], check=True, capture_output=True).stdout)
    return [str(row["pid"]) for row in rows]


address = sys.argv[1]
origin = address.split("/?")[0]
with Browser() as page, Browser(width=390, height=800, dark=True) as other:
    page.visit(address)
    if len(sys.argv) == 2:
        wait(page, "it says that it was cut short", lambda: "cut short" in page.value("document.getElementById('state').textContent"))
        wait(page, "there is a report", lambda: page.value("!!document.querySelector('#notice a')"))
        sys.exit(0)
    flowtrace, trace, gate = sys.argv[2:]
    wait(page, "the pipeline waits", lambda: any(row[0] == "wc" and "← tee" in row[5] for row in cells(page, "running")))
    wait(page, "the same processes", lambda: sorted((row[1] for row in cells(page, "running")), key=int) == running(flowtrace, trace))
    endings = [row[3] for row in cells(page, "failures")]
    if endings != ["SIGSEGV", "exit 3 ×2"]:
        raise AssertionError(endings)
    nodes = page.value("[...document.querySelectorAll('#graph .node text:first-of-type')].map(t => t.textContent)")
    if not {"tee", "wc", "cat ×2"} <= set(nodes):
        raise AssertionError(nodes)
    # A second viewer, narrow: nothing is wider than the screen.
    other.visit(address)
    wait(other, "a second viewer", lambda: cells(other, "running"))
    if other.value("document.documentElement.scrollWidth") > 390:
        raise AssertionError("the page is wider than the screen")
    # A connection that was lost comes back.
    drawn = page.value("L.source.close(), connect(), L.drawn")
    wait(page, "it draws again", lambda: page.value("L.drawn") > drawn)
    problems = page.problems(origin) + other.problems(origin)
    if problems:
        raise AssertionError("\n".join(problems))
    open(gate, "w").close()
    for one in (page, other):
        wait(one, "it becomes the report", lambda: one.value("!!document.getElementById('data-head')"))
