"""Uses the flame graphs of a report: flame.py PAGE [SCREENSHOT]. A step that is selected shows its functions, a
click enlarges one of them."""

import sys

from chromium import Browser


def holds(what, condition):
    if not condition:
        raise AssertionError(what)


with Browser() as page:
    page.open(sys.argv[1])
    page.settle()
    page.value("document.getElementById('flame').scrollIntoView()")
    page.settle()
    page.settle()
    holds("the critical path comes first", page.value("block('stacks').graphs[0].rule === null && F.graph === 0"))
    # The boxes at the bottom are all samples; each row above is no wider.
    widths = page.value("(() => { const w = {}; F.boxes.forEach(b => w[b.depth] = (w[b.depth] || 0) + b.w); return Object.values(w) })()")
    holds(f"rows are no wider than those below: {widths}", all(a >= b - 0.5 for a, b in zip(widths, widths[1:])))
    rule = page.value("block('stacks').graphs[1].rule")
    page.value(f"select({{kind: 'rule', rule: {rule}}})")
    page.settle()
    holds("a selected step shows its functions", page.value("F.graph") == 1)
    widest = page.value("F.boxes.filter(b => b.node >= 0).sort((a, b) => b.w - a.w || b.depth - a.depth)[0].node")
    page.value("document.getElementById('flame-view').scrollIntoView({block: 'end'})")
    page.settle()
    x, y = page.value(f"(() => {{ const c = document.getElementById('flame-canvas').getBoundingClientRect(), b = F.boxes.find(b => b.node === {widest}); return [c.x + b.x + b.w / 2, c.y + b.y + 5] }})()")
    page.click(x, y)
    page.settle()
    holds("a click enlarges a function", page.value("F.root") == widest)
    page.value("(() => { const i = document.querySelector('#flame-tools input'); i.value = 'work'; i.dispatchEvent(new Event('input')) })()")
    page.settle()
    holds("marked functions are counted", "marked" in page.value("document.getElementById('flame-note').textContent"))
    page.value("F.root = -1, F.find = '', drawFlame()")
    page.settle()
    if len(sys.argv) > 2:
        page.screenshot(sys.argv[2])
    problems = page.problems()
    if problems:
        raise AssertionError("\n".join(problems))
