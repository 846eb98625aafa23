"""Uses a report in a browser as a person would, and holds what it shows against `query`.

report.py FLOWTRACE TRACE PAGE [SCREENSHOT]
"""

import json
import subprocess
import sys
import time

from chromium import Browser

flowtrace, trace, path = sys.argv[1:4]


def query(sql):
    out = subprocess.run([flowtrace, "query", trace, "--format", "json", sql], check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)


def same(what, shown, expected):
    if shown != expected:
        raise AssertionError(f"{what}: the page has {shown!r}, expected {expected!r}")


def holds(what, condition):
    if not condition:
        raise AssertionError(what)


def rows(section):
    """The texts of the cells of a table."""
    return f"[...document.querySelectorAll('#{section} tbody tr')].map(r => [...r.cells].map(c => c.textContent))"


with Browser() as page:
    def until(what, expression):
        deadline = time.monotonic() + 90
        while not page.value(expression):
            holds(what, time.monotonic() < deadline)
            time.sleep(0.05)

    def reach(section):
        """Goes where a reader would scroll to, and waits for what is drawn there."""
        page.value(f"document.getElementById('{section}').scrollIntoView()")
        page.settle()
        until(section, f"!document.querySelector('#{section} .table') || !!document.querySelector('#{section} .table tbody')")

    def centre(selector):
        return page.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                          " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()")

    page.open(path)
    page.settle()

    # What has no room on a canvas ends in "…".
    fitted = "fitted(document.createElement('canvas').getContext('2d'), 'a long command line', %d)"
    same("a text with room", page.value(fitted % 900), "a long command line")
    cut = page.value(fitted % 40)
    holds(f"a text that is cut: {cut}", cut.endswith("…") and 2 < len(cut) < 12)

    # The first screen says how it ended, with the numbers of the trace.
    tiles = dict(reversed(t) for t in page.value("[...document.querySelectorAll('.tile')].map(t => [t.children[0].textContent, t.children[1].textContent])"))
    processes = query("SELECT COUNT(*) AS n FROM processes WHERE prev_upid IS NULL")[0]["n"]
    shown = next(value for label, value in tiles.items() if label.startswith("processes"))
    same("processes", shown, page.value(f"count({processes})"))
    data = query("SELECT SUM(read_bytes) AS r, SUM(write_bytes) AS w FROM file_access")[0]
    for label, n in (("read in", data["r"]), ("written in", data["w"])):
        shown = next(value for name, value in tiles.items() if name.startswith(label))
        same(label, shown, page.value(f"bytes({n})"))

    # Lanes are how many ran at once; bars and strips share the axis, edge to edge.
    until("timeline", "T.rows.length > 0")
    lanes = dict(page.value("T.rows.filter(r => r.rules.length === 1).map(r => [ruleName(r.rules[0]), r.lanes.length])"))
    for rule in query("SELECT DISTINCT rule FROM processes")[:40]:
        bars = query(f"""SELECT start_ns, MAX(COALESCE(end_ns, start_ns), start_ns + 1) AS end_ns FROM processes AS p WHERE rule = '{rule["rule"]}'
            AND (origin <> 'fork' OR NOT EXISTS (SELECT 1 FROM processes AS q WHERE q.prev_upid = p.upid))""")
        edges = sorted([(b["start_ns"], 1) for b in bars] + [(b["end_ns"], -1) for b in bars])
        at_once = most = 0
        for _, step in edges:
            at_once += step
            most = max(most, at_once)
        if rule["rule"] in lanes:
            same("lanes of " + rule["rule"], lanes[rule["rule"]], most)
    holds("the axis fills the canvas", page.value("T.width === document.getElementById('lanes').clientWidth && X(T.from) === T.left && Math.abs(X(T.to) - (T.width - T.right)) < 1e-6"))
    holds("one canvas for bars and strips", page.value("[...document.querySelectorAll('#lanes canvas')].every(c => c.clientWidth === T.width)"))

    # Zoom by dragging over the middle half.
    x, y = page.value("(() => { const b = document.getElementById('lanes-over').getBoundingClientRect(); return [b.x, b.y] })()")
    left, width = page.value("[T.left, T.width - T.left - T.right]")
    length = page.value("runLength()")
    page.mouse("mouseMoved", x + left + width * 0.25, y + 60)
    page.mouse("mousePressed", x + left + width * 0.25, y + 60, 1)
    page.mouse("mouseMoved", x + left + width * 0.5, y + 60)
    page.mouse("mouseMoved", x + left + width * 0.75, y + 60)
    page.mouse("mouseReleased", x + left + width * 0.75, y + 60, 1)
    page.settle()
    start, end = page.value("[T.from, T.to].map(t => (t - runBegins()) / (runLength() - runBegins()))")
    holds(f"the drag zooms: {start} {end}", abs(start - 0.25) < 0.01 and abs(end - 0.75) < 0.01)
    page.value("document.getElementById('lanes-over').focus({preventScroll: true})")
    page.press("ArrowRight")
    page.settle()
    holds("an arrow moves", page.value("T.from") > start * length)
    page.press("0")
    page.settle()
    same("0 shows all", page.value("[T.from, T.to]"), [page.value("runBegins()"), length])

    # The findings are those of the summary.
    out = subprocess.run([flowtrace, "summary", trace, "--format", "json"], check=True, stdout=subprocess.PIPE)
    verdict = json.loads(out.stdout)["verdict"]
    shown = page.value("[...document.querySelectorAll('#findings li')].map(li => [li.querySelector('strong').textContent, li.querySelector('button').textContent])")
    same("findings", shown, [["up to " + page.value(f"duration({f['saving_ns']})"), f["title"]] for f in verdict["findings"]])
    lines = page.value("Object.fromEntries([...document.querySelectorAll('#lines li')].map(li => [li.children[0].textContent, li.children[1].textContent]))")
    if verdict["why"] and not any(f["title"] == verdict["why"] for f in verdict["findings"]):
        same("why", next(text for name, text in lines.items() if name.startswith("why")), verdict["why"])

    # The table of steps has the sums of the query, whatever it is sorted by.
    reach("rules")
    expected = {r["rule"]: r for r in query("SELECT rule, SUM(origin <> 'fork') AS executions, SUM(COALESCE(on_cpu_ns, user_ns + sys_ns, 0)) AS cpu FROM processes GROUP BY rule")}
    table = page.value(rows("rules"))
    same("steps", len(table), min(25, len(expected)))
    for line in table:
        row = expected[line[0]]
        same(line[0] + " executions", line[1], page.value(f"count({row['executions']})"))
        same(line[0] + " CPU", line[4], page.value(f"dash(duration)({row['cpu']})"))
    cpu = [expected[line[0]]["cpu"] for line in table]
    same("heaviest first", cpu, sorted(cpu, reverse=True))
    page.value("document.querySelectorAll('#rules th button')[0].click()")
    names = [line[0] for line in page.value(rows("rules"))]
    same("sorted by name", names, sorted(names))

    # A click on a step filters every part.
    step = max(expected, key=lambda rule: expected[rule]["cpu"])
    reach("files")
    if page.value("!document.getElementById('files').hidden"):
        page.value(f"[...document.querySelectorAll('#rules tbody tr')].find(r => r.cells[0].textContent === {json.dumps(step)}).click()")
        page.settle()
        holds("the mark names the step", step in page.value("document.getElementById('chip').textContent"))
        # What was only opened may belong to the system, and is then left out.
        counts = [query(f"""SELECT COUNT(DISTINCT a.file_id) AS n FROM file_access AS a JOIN files AS f USING (file_id)
            WHERE f.kind = 'file' AND f.coverage IN ({seen}) AND a.upid IN (SELECT upid FROM processes WHERE pid IN
              (SELECT pid FROM processes WHERE rule = '{step}'))""")[0]["n"] for seen in ("'exact', 'cached'", "'exact', 'cached', 'open'")]
        note = page.value("document.querySelector('#files .tools .muted').textContent")
        shown = int(note.split(" of ")[0].split(" ")[0].replace("\u2009", ""))
        holds(f"files of the step: {shown} of {counts}", counts[0] <= shown <= counts[1])
        same("only its step", [line[0] for line in page.value(rows("rules"))], [step])
        reach("graph")
        holds("the rest of the graph is dim", page.value("document.querySelectorAll('.node.dim').length > 0 && document.querySelectorAll('.node.chosen').length > 0"))
        page.press("Escape")
        page.settle()
        same("all steps again", len(page.value(rows("rules"))), min(25, len(expected)))
        holds("nothing is dim", page.value("document.querySelectorAll('.dim').length") == 0)

    # A group of the graph opens into its members and closes again.
    reach("graph")
    before = page.value("document.querySelectorAll('.node').length")
    group = page.value("G.model.nodes.findIndex(n => !n.isFile && block('graph').nodes[n.group].count > 1)")
    if group >= 0:
        size = page.value(f"block('graph').nodes[G.model.nodes[{group}].group].count")
        page.value(f"G.model.nodes[{group}].shape.dispatchEvent(new MouseEvent('dblclick', {{bubbles: true}}))")
        page.settle()
        same("members", page.value("document.querySelectorAll('.node').length"), before - 1 + min(size, 25))
        page.value("[...document.querySelectorAll('#graph-tools button')].find(b => b.textContent === 'close groups').click()")
        same("closed", page.value("document.querySelectorAll('.node').length"), before)
    overlaps = page.value("""(() => { const boxes = [...document.querySelectorAll('.node')].map(n => n.getBoundingClientRect());
        return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)) })()""")
    holds("nodes lie apart", not overlaps)
    x, y = centre(".node.step")
    page.mouse("mouseMoved", x, y)
    page.settle()
    holds("facts are text", "[object" not in page.value("document.getElementById('tip').textContent"))
    holds("hovering shows numbers", page.value("!document.getElementById('tip').hidden && document.getElementById('tip').textContent.includes('processes')"))

    # Search, from the keyboard.
    reach("tree")
    page.press("/")
    same("/ goes to the search", page.value("document.activeElement.id"), "search")
    for letter in step[:6]:
        page.press(letter)
    until("the search is over", f"filter.text === {json.dumps(step[:6].lower())}")
    matching = page.value("[...filter.processes].reduce((a, b) => a + b, 0)")
    holds(f"something is found: {matching} of {processes}", 0 < matching <= processes)
    page.press("Escape")
    same("Esc ends it", page.value("filter.processes"), None)

    # The tree opens by keys.
    page.value("document.querySelector('#tree-view [role=treeitem]').focus()")
    lines = page.value("document.querySelectorAll('#tree-view [role=treeitem]').length")
    page.press("ArrowDown")
    page.settle()
    holds("the tree moves by keys", lines == 1 or page.value("[...document.querySelectorAll('#tree-view [role=treeitem]')].indexOf(document.activeElement)") == 1)

    # Everything below is drawn as well; light and dark differ.
    for section in page.value("[...document.querySelectorAll('main section')].filter(s => !s.hidden).map(s => s.id)"):
        reach(section)
    holds("distributions", page.value("document.querySelectorAll('.chart path').length") > 0)
    light = page.value("getComputedStyle(document.body).backgroundColor")
    page.press("d")
    holds("dark", page.value("getComputedStyle(document.body).backgroundColor") != light)
    page.settle()
    title = page.value("document.title")
    holds(f"the title is the report's: {title}", title.endswith("flowtrace"))
    if len(sys.argv) > 4:
        page.value("scrollTo(0, 0)")
        page.screenshot(sys.argv[4])
    problems = page.problems()
    holds("no errors, nothing fetched:\n" + "\n".join(problems), not problems)
print("the page does what it should")
