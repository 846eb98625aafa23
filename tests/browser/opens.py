"""Opens a page, goes through all of it, selects and searches: no error, nothing fetched, and its
title is the report's. opens.py PAGE [SECONDS]: the first screen within so many seconds."""

import sys
import time

from chromium import Browser

with Browser() as page:
    began = time.monotonic()
    page.open(sys.argv[1])
    page.settle()
    took = time.monotonic() - began
    for section in page.value("[...document.querySelectorAll('main section')].filter(s => !s.hidden).map(s => s.id)"):
        page.value(f"document.getElementById('{section}').scrollIntoView()")
        page.settle()
        page.settle()
    page.value("select({kind: 'rule', rule: 0})")
    page.settle()
    page.value("select(null); search('<b>')")
    page.settle()
    page.value("search('')")
    page.value("document.querySelectorAll('.node').forEach(n => n.dispatchEvent(new PointerEvent('pointermove', {bubbles: true})))")
    page.settle()
    if not page.value("document.title").endswith("flowtrace") or page.value("document.querySelectorAll('main b script, main img:not([src^=data])').length"):
        raise AssertionError("something got out of a name: " + page.value("document.title"))
    problems = page.problems()
    if problems:
        raise AssertionError("\n".join(problems))
    print(f"first screen after {took:.2f} s, {page.value('performance.now() / 1000'):.1f} s for all of it")
    if len(sys.argv) > 2 and took > float(sys.argv[2]):
        raise AssertionError(f"it took {took:.2f} s to open")
