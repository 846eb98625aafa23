// The tree of processes. Siblings of one step share a line until it is opened, and every level
// shows at most a page.

const TREE = { page: 40, fold: 6 };

// Lines below some processes: {list, label, isOne}; the processes of a step share a line where they are many.
function treeLines(list) {
  const p = block("processes"), byKind = new Map();
  for (const i of list) {
    const kind = p.rule[i] + "/" + (processEnding(i) || "");
    if (!byKind.has(kind)) byKind.set(kind, []);
    byKind.get(kind).push(i);
  }
  const lines = [];
  for (const members of byKind.values()) {
    if (members.length >= TREE.fold) lines.push(members); else members.forEach((i) => lines.push([i]));
  }
  return lines.sort((a, b) => p.start_ns[a[0]] - p.start_ns[b[0]] || a[0] - b[0]);
}

function treeRow(members, depth, isOpen, hasMore) {
  const p = block("processes"), one = members.length === 1, i = members[0];
  const add = (column) => {
    const known = members.map((m) => p[column][m]).filter((v) => v !== null);
    return known.length ? sum(known) : null;
  };
  const ending = hasFailed(i) || p.end_ns[i] === null ? processEnding(i) : null, label = one ? processCommand(i) : `${ruleName(p.rule[i])} ×${count(members.length)}`;
  const shown = members.some(isShown);
  const row = el("div", { class: `branch${shown ? "" : " dim"}${filter.what && filter.what.kind === "process" && one && filter.what.process === i ? " chosen" : ""}`,
    role: "treeitem", tabindex: -1, "aria-level": depth + 1, "aria-expanded": hasMore ? String(isOpen) : null },
  el("span", { style: `padding-left: ${Math.min(depth, 24) * 15}px`, title: label.length > 60 ? shorten(label, 1000) : null },
    el("span", { class: "knob" }, hasMore ? (isOpen ? "▾" : "▸") : ""),
    el("span", { class: "swatch", style: `background: ${ruleColours(p.rule[i]).strong}` }),
    depth > 24 ? `(depth ${depth}) ` : "", ending ? el("span", { class: "bad" }, `[${ending}] `) : null, shorten(label, 300)),
  el("span", {}, sinceBegin(Math.min(...members.map((m) => p.start_ns[m])))), el("span", {}, duration(sum(members.map(processLife)))),
  el("span", {}, duration(add("cpu_ns"))), el("span", {}, dash(bytes)(add("read_bytes"))), el("span", {}, dash(bytes)(add("write_bytes"))));
  row.addEventListener("pointermove", (event) => one ? tip(event, processCommand(i), processFacts(i)) : noTip());
  row.addEventListener("pointerleave", noTip);
  return row;
}

const opened = new Set();
function drawTree() {
  const host = $("tree-view"), children = processChildren(), focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  host.replaceChildren(el("div", { class: "branch title" }, ["process", "start", "life", "CPU", "read", "written"].map((t) => el("span", {}, t))));
  // With a filter, the ways to the selection are open; without, the levels that were opened.
  const wanted = filter.processes ? wayTo(filter.processes) : null;
  const waiting = [];
  const push = (list, depth, key) => {
    let lines = treeLines(list);
    if (wanted) lines = lines.filter((members) => members.some((i) => wanted[i]));
    const most = TREE.page + (drawTree.more && drawTree.more.get(key) || 0);
    if (lines.length > most) waiting.push({ more: lines.length - most, depth, key });
    for (const members of lines.slice(0, most).reverse()) waiting.push({ members, depth });
  };
  push(children.roots, 0, "");
  let drawn = 0;
  while (waiting.length && drawn < 1500) {
    const { members, depth, more, key } = waiting.pop();
    drawn++;
    if (more) {
      host.append(el("div", { class: "branch", style: "display: block" }, el("button", { type: "button", class: "more", style: `margin-left: ${Math.min(depth, 24) * 15 + 18}px`, onclick: () => {
        drawTree.more = drawTree.more || new Map();
        drawTree.more.set(key, (drawTree.more.get(key) || 0) + 400);
        drawTree();
      } }, `+${count(more)} more`)));
      continue;
    }
    const one = members.length === 1, own = one ? "p" + members[0] : "g" + members[0];
    const hasMore = one ? children[members[0]].length > 0 : true;
    const isWanted = wanted && (one ? children[members[0]].some((i) => wanted[i]) : members.length <= 60 && members.some((i) => wanted[i]));
    const isOpen = hasMore && (opened.has(own) !== !!(isWanted || (!wanted && one && depth < drawTree.depth)));
    const row = treeRow(members, depth, isOpen, hasMore);
    row.dataset.key = own;
    row.addEventListener("click", (event) => {
      if (hasMore && (event.target.classList.contains("knob") || !one)) toggleBranch(own);
      else select({ kind: "process", process: members[0] });
    });
    host.append(row);
    if (isOpen) {
      if (one) push(children[members[0]], depth + 1, own);
      else {
        const shown = wanted ? members.filter((i) => wanted[i]) : members, most = TREE.page + (drawTree.more && drawTree.more.get(own) || 0);
        if (shown.length > most) waiting.push({ more: shown.length - most, depth: depth + 1, key: own });
        for (const i of shown.slice(0, most).reverse()) waiting.push({ members: [i], depth: depth + 1 });
      }
    }
  }
  if (waiting.length) host.append(el("div", { class: "branch title" }, el("span", {}, "more than a page of it is open; close something to see the rest")));
  const rows = [...host.querySelectorAll("[role=treeitem]")];
  const again = rows.find((row) => row.dataset.key === focused);
  if (again) again.focus({ preventScroll: true });
  if (rows.length) (again || rows[0]).tabIndex = 0;
}
// Levels that are open at first: as many as a page holds.
function firstDepth() {
  const children = processChildren();
  let level = children.roots, depth = 0, lines = 0;
  while (level.length && depth < 6) {
    lines += treeLines(level).length;
    if (lines > TREE.page) break;
    depth++;
    level = treeLines(level).filter((members) => members.length === 1).flatMap(([i]) => children[i]);
  }
  return Math.max(1, depth);
}
function toggleBranch(key) {
  if (!opened.delete(key)) opened.add(key);
  drawTree();
}
// The chosen processes and all above them.
function wayTo(mask) {
  const parent = block("processes").parent, way = new Uint8Array(mask.length);
  mask.forEach((on, start) => {
    for (let i = on ? start : null; i !== null && !way[i]; i = parent[i]) way[i] = 1;
  });
  return way;
}
function listenTree() {
  const host = $("tree-view");
  drawTree.depth = firstDepth();
  host.addEventListener("keydown", (event) => {
    const rows = [...host.querySelectorAll("[role=treeitem]")], at = rows.indexOf(document.activeElement);
    if (at < 0) return;
    const row = rows[at], expanded = row.getAttribute("aria-expanded");
    const go = (to) => { if (rows[to]) { row.tabIndex = -1; rows[to].tabIndex = 0; rows[to].focus(); } };
    const level = (r) => +r.getAttribute("aria-level");
    const keys = {
      ArrowDown: () => go(at + 1), ArrowUp: () => go(at - 1), Home: () => go(0), End: () => go(rows.length - 1),
      ArrowRight: () => (expanded === "false" ? toggleBranch(row.dataset.key) : go(at + 1)),
      ArrowLeft: () => {
        if (expanded === "true") return toggleBranch(row.dataset.key);
        for (let i = at - 1; i >= 0; i--) if (level(rows[i]) < level(row)) return go(i);
      },
      Enter: () => row.click(),
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
  onFilter(drawTree);
  drawTree();
}
