"""Drives the page of 200 machines that agents watch: nodes.py ADDRESS FLOWTRACE TRACE COLLECTOR [DIRECTORY]. Then
the process COLLECTOR is ended, the page becomes the report, and what that shows is what `flowtrace query` says.
Screenshots go to DIRECTORY."""

import json
import os
import signal
import subprocess
import sys
import time

from chromium import Browser

PATIENCE = 90
WIDTHS = (1500, 900, 390)


def wait(page, what, expression):
    begin = time.monotonic()
    while not page.value(expression):
        if time.monotonic() - begin > PATIENCE:
            raise AssertionError(f"{what}: " + page.value("document.body.innerText"))
        time.sleep(0.1)


def rows(page):
    """The texts of the cells of the table."""
    return page.value("[...document.querySelectorAll('#nodes tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")


def same(what, shown, expected):
    if shown != expected:
        raise AssertionError(f"{what}: the page has {shown!r}, expected {expected!r}")


def take(page, name):
    """Pictures at three widths, light and dark."""
    if not directory:
        return
    for width in WIDTHS:
        for theme in ("light", "dark"):
            page.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
            page.value(f"document.documentElement.dataset.theme = '{theme}'")
            page.value("document.getElementById('nodes').scrollIntoView()" if name.endswith("report") else "scrollTo(0, 0)")
            time.sleep(0.3)
            page.screenshot(os.path.join(directory, f"{name}-{width}-{theme}.png"))


address, flowtrace, trace, collector = sys.argv[1:5]
directory = sys.argv[5] if len(sys.argv) > 5 else None
origin = address.split("/?")[0]
with Browser(width=390, height=800, dark=True) as page:
    page.visit(address)
    wait(page, "two are unlike the others", "block('nodes').all.differing === 2")
    shown = rows(page)
    same("two that differ, and six others", len(shown), 8)
    same("marked", page.value("[...document.querySelectorAll('#nodes tr.odd th')].map(th => th.firstChild.textContent).sort()"), ["n0", "n7"])
    line = page.value("document.getElementById('nodes-line').textContent")
    if not line.startswith("200 nodes: 200 report · 2 unlike the others · ") or "% of the CPUs busy · network" not in line:
        raise AssertionError(line)
    # Nothing but the table is wider than the screen, and what agents do not send has no place.
    if page.value("document.documentElement.scrollWidth") > 390:
        raise AssertionError("the page is wider than the screen")
    same("parts of a run", page.value("['limit', 'running', 'graph', 'steps', 'files'].filter(id => document.getElementById(id).offsetHeight)"), [])
    take(page, "live")
    page.value("document.querySelector('#nodes .more').click()")
    same("all", len(rows(page)), 200)
    spent = page.value("(() => { const begin = performance.now(); drawNodes(); return performance.now() - begin })()")
    print(f"200 nodes are drawn in {spent:.0f} ms")
    take(page, "live-all")
    # It stays open while new values come.
    drawn = page.value("L.drawn")
    wait(page, "it draws again", f"L.drawn > {drawn}")
    same("all", len(rows(page)), 200)
    problems = page.problems(origin)
    if problems:
        raise AssertionError("\n".join(problems))

    os.kill(int(collector), signal.SIGTERM)
    wait(page, "it becomes the report", "!!document.getElementById('data-head')")
    wait(page, "the nodes are drawn", "!!document.querySelector('#nodes tbody tr')")
    take(page, "report")
    sql = "SELECT host, received, expected - received AS lost FROM nodes WHERE host IN ('n0', 'n7') ORDER BY host"
    out = subprocess.run([flowtrace, "query", trace, "--format", "json", sql], check=True, stdout=subprocess.PIPE)
    shown = {row[0][:2]: row for row in rows(page)[:2]}
    for row in json.loads(out.stdout):
        cells = shown[row["host"]]
        same("samples", cells[5], page.value(f"count({row['received']})"))
        same("lost", cells[6].split(" ")[0], page.value(f"dash(count)({row['lost']})"))
        same("state", cells[8], "no last totals")
    if not shown["n7"][0].startswith("n7CPU lower than others: "):
        raise AssertionError(shown["n7"])
