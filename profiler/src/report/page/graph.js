// The workflow graph: groups of processes and files, which open into their members.

const G = { open: new Set(), files: null, minor: false, down: null, view: { x: 0, y: 0, k: 1 }, moved: false,
  model: null, of: () => graphModel(), tip: (event, node) => nodeTip(event, node), choose: (node) => chooseNode(node), toggle: (node) => toggleGroup(node.group) };
const SHOWN = 24; // members of an opened group; the others are counted

function groupMembers() {
  if (groupMembers.lists) return groupMembers.lists;
  const m = block("members"), lists = block("graph").nodes.map(() => []);
  m.group.forEach((group, node) => { if (group !== null) lists[group].push(node); });
  return (groupMembers.lists = lists);
}

// The nodes and edges to draw, with the opened groups replaced by their members.
function graphModel() {
  const graph = block("graph"), nodes = [], edges = new Map(), ofGroup = [], ofNode = new Map();
  graph.nodes.forEach((node, group) => {
    if (G.open.has(group)) openGroup(group, nodes, ofNode);
    else ofGroup[group] = nodes.push({ group, members: null, ...groupText(node) }) - 1;
  });
  const add = (from, to, kind, critical, [way, bytes, back, inCalls], n, calls, span) => {
    if (from === to || from === undefined || to === undefined) return;
    const key = from + ">" + to, edge = edges.get(key);
    if (!edge) return edges.set(key, { from, to, kind, critical, way, bytes, back, inCalls, count: n, calls, span });
    joinEdges(edge, kind, critical, [way, bytes, back, inCalls], n);
  };
  const between = new Set();
  for (const e of graph.edges) {
    between.add(e.from + ">" + e.to);
    if (!G.open.has(e.from) && !G.open.has(e.to)) {
      add(ofGroup[e.from], ofGroup[e.to], e.kind, e.is_critical, [e.way, e.bytes, e.back_bytes, e.latency_ns], e.count, e.calls, [e.first_ns, e.last_ns]);
    }
  }
  if (G.open.size) {
    const m = block("members");
    m.from.forEach((from, i) => {
      const to = m.to[i], a = m.group[from], b = m.group[to];
      if (!G.open.has(a) && !G.open.has(b)) return;
      const kind = m.kinds[m.kind[i]], x = ofNode.has(from) ? ofNode.get(from) : ofGroup[a], y = ofNode.has(to) ? ofNode.get(to) : ofGroup[b];
      // Members of groups without an edge between them are not connected either; within a group, edges of
      // members that are only counted could close a cycle.
      if (a === b ? kind === "fork" || !nodes[x] || nodes[x].rest || nodes[y].rest : !between.has(a + ">" + b)) return;
      add(x, y, kind, memberPath().edges.has(i), [m.way[i], m.bytes[i], m.back_bytes[i], m.latency_ns[i]], 1, null, null);
    });
  }
  nodes.forEach((node) => {
    node.critical = node.node !== undefined ? memberPath().nodes.has(node.node) : !node.rest && graph.nodes[node.group].is_critical;
  });
  const all = [...edges.values()], steps = pathSteps(nodes, all, ofGroup, ofNode);
  const model = G.minor ? { nodes, edges: all, steps } : withoutMinor(nodes, all, steps);
  return G.files ? model : withoutFiles(model.nodes, model.edges, model.steps);
}
// Without managers and small steps that are not on the critical path, and without the files that only these use.
function withoutMinor(nodes, edges, steps) {
  const isMinor = (node) => !node.isFile && !node.critical && node.rule !== null && minorRules()[node.rule];
  const used = new Set(edges.filter((e) => !isMinor(nodes[e.from]) && !isMinor(nodes[e.to])).flatMap((e) => [e.from, e.to]));
  const kept = new Map();
  const own = nodes.filter((node, i) => !isMinor(node) && (!node.isFile || used.has(i)) && (kept.set(i, kept.size), true));
  if (!own.length) return { nodes, edges, steps };
  const moved = (list) => list.filter((e) => kept.has(e.from) && kept.has(e.to)).map((e) => ({ ...e, from: kept.get(e.from), to: kept.get(e.to) }));
  return { nodes: own, edges: moved(edges), steps: moved(steps) };
}
// The direction of the data is that of the strongest relation; of several sockets the best known one.
function joinEdges(edge, kind, critical, [way, bytes, back, inCalls], n) {
  edge.critical = edge.critical || critical;
  edge.inCalls += inCalls;
  edge.bytes += bytes;
  edge.back += back;
  edge.count += n;
  const more = strength[kind] - strength[edge.kind];
  if (more > 0 || more === 0 && ways[way] > ways[edge.way]) edge.way = way;
  if (more > 0) edge.kind = kind;
}
const ways = { unknown: 0, forth: 1, both: 2 };
const strength = { fork: 0, update: 1, exec: 2, socket: 3, pipe: 4, read: 5, write: 6, create: 7 };

function groupText(node) {
  const times = node.count > 1 ? ` ×${count(node.count)}` : "", part = node.parts > 1 ? ` · group ${node.part} of ${node.parts}` : "";
  if (node.rule === null) return { label: countedFiles(shortenPath(node.name, 30), node.count), times: "", sub: bytes(node.size_bytes) + part, isFile: true, rule: null };
  return { label: shorten(node.name, 26), times, sub: duration(node.cpu_ns) + " cpu" + (node.failed ? ` · ${count(node.failed)} failed` : "") + part,
    isFile: false, rule: node.rule, failed: node.failed > 0 };
}
function openGroup(group, nodes, ofNode) {
  const m = block("members"), isFile = block("graph").nodes[group].rule === null;
  // Only the size of the newest version of a file is known.
  const replaced = new Set(m.replaced);
  const size = (node) => replaced.has(node) ? null : block("files").size_bytes[-1 - m.member[node]];
  const weight = (node) => {
    const member = m.member[node];
    if (member === null) return -1;
    return member >= 0 ? processLife(member) : size(node) || 0;
  };
  const list = groupMembers()[group].slice().sort((a, b) => weight(b) - weight(a) || a - b);
  const shown = list.length > SHOWN + 1 ? SHOWN : list.length, p = block("processes");
  list.slice(0, shown).forEach((node) => {
    const member = m.member[node], version = m.version[node] ? ` v${m.version[node]}` : "";
    let text = { label: "(not shown)", sub: "" };
    if (member !== null && member >= 0) {
      text = { label: shorten(processCommand(member).replace(/(^| )\S*\//g, "$1"), 30) + version, failed: hasFailed(member),
        sub: `${p.pid[member]} · ${duration(processLife(member))}` + (hasFailed(member) ? " · " + processEnding(member) : "") };
    } else if (member !== null) {
      text = { label: shortenPath(block("files").name[-1 - member], 28) + version, sub: bytes(size(node)) };
    }
    ofNode.set(node, nodes.push({ group, node, member, isFile, times: "", rule: block("graph").nodes[group].rule, ...text }) - 1);
  });
  if (shown < list.length) {
    const rest = nodes.push({ group, rest: list.length - shown, isFile, times: "", rule: block("graph").nodes[group].rule,
      label: `+${count(list.length - shown)} more`, sub: "" }) - 1;
    list.slice(shown).forEach((node) => ofNode.set(node, rest));
  }
}
// Steps only: an edge from the writer of a file to its reader.
function withoutFiles(nodes, edges, steps) {
  const into = nodes.map(() => []), out = nodes.map(() => []), kept = new Map(), joined = new Map();
  for (const e of edges) { out[e.from].push(e); into[e.to].push(e); }
  const own = nodes.filter((node, i) => !node.isFile && (kept.set(i, kept.size), true));
  const add = (from, to, kind, critical, [way, bytes, back, inCalls], n) => {
    const key = kept.get(from) + ">" + kept.get(to), edge = joined.get(key);
    if (!edge) joined.set(key, { from: kept.get(from), to: kept.get(to), kind, critical, way, bytes, back, inCalls, count: n });
    else joinEdges(edge, kind, critical, [way, bytes, back, inCalls], n);
  };
  for (const e of edges) if (kept.has(e.from) && kept.has(e.to)) add(e.from, e.to, e.kind, e.critical, [e.way, e.bytes, e.back, e.inCalls], e.count);
  nodes.forEach((node, start) => {
    if (node.isFile) return;
    // Follow edges through files, and through the versions of one.
    const seen = new Set(), way = out[start].filter((e) => nodes[e.to].isFile);
    while (way.length) {
      const { to: file, critical } = way.pop();
      if (seen.has(file)) continue;
      seen.add(file);
      for (const e of out[file]) {
        if (nodes[e.to].isFile) way.push({ to: e.to, critical: critical && e.critical });
        else if (e.to !== start) add(start, e.to, "read", critical && e.critical, ["forth", e.bytes, 0, e.inCalls], e.count);
      }
    }
  });
  const between = steps.map((step) => ({ ...step, from: kept.get(step.from), to: kept.get(step.to) }));
  return { nodes: own, edges: [...joined.values()], steps: between };
}

// Nodes of single processes and files on the critical path, and its edges.
function memberPath() {
  const m = block("members");
  return memberPath.found || (memberPath.found = { nodes: new Set(m.path_nodes), edges: new Set(m.path_edges) });
}
// Steps of the critical path between nodes of the drawing without an edge for them: between closed groups
// those of the groups, else those of their members.
function pathSteps(nodes, edges, ofGroup, ofNode) {
  const m = block("members"), drawn = new Set(edges.filter((e) => e.critical).map((e) => e.from + ">" + e.to)), steps = [];
  const add = (from, to, kind) => {
    if (from === undefined || to === undefined || from === to || drawn.has(from + ">" + to)) return;
    drawn.add(from + ">" + to);
    steps.push({ from, to, kind });
  };
  const each = (s, of) => s.from.forEach((from, i) => add(of(from), of(s.to[i]), s.is_fork[i] ? "fork" : "wait"));
  each(block("graph").steps, (group) => ofGroup[group]);
  if (G.open.size) {
    const s = m.steps, of = (node) => ofNode.has(node) ? ofNode.get(node) : ofGroup[m.group[node]];
    s.from.forEach((from, i) => {
      if (ofNode.has(from) || ofNode.has(s.to[i])) add(of(from), of(s.to[i]), s.is_fork[i] ? "fork" : "wait");
    });
  }
  return steps;
}

function drawGraph() {
  const host = $("graph-view"), model = G.of(), W = host.clientWidth;
  const size = model.nodes.map((node) => ({
    w: Math.max(96, Math.max((node.label + node.times).length * 6.9, node.sub.length * 5.9) + 20), h: node.sub ? 36 : 24 }));
  const ends = model.edges.map((e) => [e.from, e.to]);
  const lay = (down) => layout(size, ends, { down, layerGap: down ? 34 : 64, nodeGap: down ? 18 : 9 });
  const scale = (l) => Math.min(1, (W - 30) / l.width, 970 / l.height);
  let l = lay(G.down !== false);
  if (G.down === null) {
    const other = lay(false);
    if (scale(other) > scale(l)) l = other;
    G.isDown = l !== other;
  } else G.isDown = G.down;
  const k = Math.max(scale(l), 0.55), H = Math.round(Math.max(160, Math.min(1000, l.height * k + 30)));
  G.view = { k, x: (W - l.width * k) / 2, y: Math.max(15, (H - l.height * k) / 2) };
  if (l.width * k > W) G.view.x = 15;
  const stage = svg("g", {}), root = svg("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": "Workflow graph" }, markers(), stage);
  model.edges.forEach((e, i) => stage.append(edgeShape(model, e, l.edges[i], size)));
  model.steps.forEach((step) => stage.append(stepShape(model, step, l.nodes, size)));
  model.nodes.forEach((node, i) => stage.append(nodeShape(node, l.nodes[i], size[i])));
  host.replaceChildren(root);
  G.root = root;
  G.stage = stage;
  G.model = model;
  moveGraph();
  dimGraph();
  const graph = block("graph"), notes = [];
  if (graph.left_out) notes.push(`+${count(graph.left_out)} smaller groups with ${count(graph.edges_left_out)} edges are not drawn`);
  if (graph.hidden_forks) notes.push(`${count(graph.hidden_forks)} forks are not drawn, because data connects those processes already`);
  if (graph.cycle_edges) notes.push(`${many(graph.cycle_edges, "edge", "edges")} that would close a cycle ${graph.cycle_edges === 1 ? "is" : "are"} left out`);
  if (G.open.size && block("members").left_out) notes.push(`${count(block("members").left_out)} edges with fewer bytes are not drawn between members`);
  $("graph-note").textContent = notes.join(" · ");
}
function markers() {
  return svg("defs", {}, ["read", "write", "pipe", "fork", "bad"].map((kind) => svg("marker", { id: "to-" + kind, viewBox: "0 0 8 8", refX: 7.5, refY: 4,
    markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, svg("path", { d: "M0,0.8 L8,4 L0,7.2 z", style: `fill: var(--${kind})` }))));
}
const markerOf = { read: "read", exec: "read", write: "write", create: "write", pipe: "pipe", socket: "pipe", fork: "fork", update: "fork" };

function edgeShape(model, e, points, size) {
  const down = G.isDown, half = (i) => (down ? size[i].h : size[i].w) / 2;
  const p = points.map((q) => [q.x, q.y]), axis = down ? 1 : 0;
  p[0][axis] += half(e.from);
  p[p.length - 1][axis] -= half(e.to) + 1;
  let d = `M${p[0].map((n) => n.toFixed(1))}`;
  for (let i = 1; i < p.length; i++) {
    const [a, b] = [p[i - 1], p[i]], bend = (b[axis] - a[axis]) / 2;
    const c = down ? [[a[0], a[1] + bend], [b[0], b[1] - bend]] : [[a[0] + bend, a[1]], [b[0] - bend, b[1]]];
    d += ` C${[...c[0], ...c[1], ...b].map((n) => n.toFixed(1)).join(" ")}`;
  }
  const width = lineWidth(e);
  const marker = `url(#to-${e.critical ? "bad" : markerOf[e.kind]})`;
  const path = svg("path", { d, class: `edge ${e.kind}${e.critical ? " critical" : ""}`,
    "stroke-width": (e.critical ? Math.max(2, width) : width).toFixed(1),
    "marker-end": e.way === "unknown" ? null : marker, "marker-start": e.way === "both" ? marker : null });
  const arrow = { unknown: "–", forth: "→", both: "↔" }[e.way];
  path.addEventListener("pointermove", (event) => !G.drag && tip(event, `${name(model.nodes[e.from])} ${arrow} ${name(model.nodes[e.to])}`, [
    e.way === "unknown" ? ["direction", "not known"] : null, e.back ? ["of these back", bytes(e.back)] : null,
    ["relation", e.kind], e.bytes ? ["bytes", (e.kind === "pipe" ? "at most " : "") + bytes(e.bytes)] : null,
    rateOf(e) ? ["rate, in calls", bytes(rateOf(e)) + "/s"] : null, e.calls ? ["calls", count(e.calls)] : null, ["edges", count(e.count)], e.span ? ["from, to", e.span.map(duration).join(" – ")] : null]));
  path.addEventListener("pointerleave", noTip);
  e.shape = path;
  return path;
}
// Bytes per second of the time in the calls that moved the bytes; null: not known.
const rateOf = (e) => (e.bytes > 0 && e.inCalls > 0 ? (e.bytes * 1e9) / e.inCalls : null);
// Width on a logarithmic scale, of bytes from 10 kB or of rates from 1 MB/s.
function lineWidth(e) {
  const value = G.byRate ? rateOf(e) : e.bytes;
  return value > 0 ? Math.min(4.5, 1 + Math.max(0, Math.log10(value) - (G.byRate ? 6 : 4)) * (G.byRate ? 0.9 : 0.6)) : 1;
}
// A step of the critical path without an edge: beside the layers, because it does not affect the order.
function stepShape(model, step, places, size) {
  const [a, b] = [places[step.from], places[step.to]], dx = b.x - a.x, dy = b.y - a.y;
  const bend = { x: (a.x + b.x) / 2 - dy * 0.25, y: (a.y + b.y) / 2 + dx * 0.25 };
  // The point where the line from the bend to the middle of a box enters the box.
  const border = (at, box) => {
    const [vx, vy] = [bend.x - at.x, bend.y - at.y], part = Math.min(box.w / 2 / (Math.abs(vx) || 1e-9), box.h / 2 / (Math.abs(vy) || 1e-9), 1);
    return [at.x + vx * part, at.y + vy * part].map((n) => n.toFixed(1)).join(",");
  };
  const path = svg("path", { d: `M${border(a, size[step.from])} Q${bend.x.toFixed(1)},${bend.y.toFixed(1)} ${border(b, size[step.to])}`,
    class: `edge ${step.kind} critical`, "stroke-width": 2, "marker-end": "url(#to-bad)" });
  path.addEventListener("pointermove", (event) => !G.drag && tip(event, `${name(model.nodes[step.from])} → ${name(model.nodes[step.to])}`,
    [["critical path", step.kind === "fork" ? "started it" : "it went on when that had ended or let it go"]]));
  path.addEventListener("pointerleave", noTip);
  step.shape = path;
  return path;
}
const name = (node) => node.label + node.times;

function nodeShape(node, at, size) {
  const x = at.x - size.w / 2, y = at.y - size.h / 2;
  const shape = svg("g", { class: `node ${node.isFile ? "files" : "step"}${node.failed ? " failed" : ""}${node.critical ? " critical" : ""}`, tabindex: 0, role: "button",
    "aria-label": `${name(node)}, ${node.sub}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` },
  svg("rect", { width: size.w.toFixed(1), height: size.h, rx: node.isFile ? 2 : 10, style: node.rule === null || node.rest ? null : `fill: ${ruleColours(node.rule).pale}` }),
  svg("text", { x: size.w / 2, y: node.sub ? 15 : 16, "text-anchor": "middle" }, name(node)),
  node.sub ? svg("text", { x: size.w / 2, y: 29, "text-anchor": "middle", class: "sub" }, node.sub) : null);
  shape.addEventListener("pointermove", (event) => !G.drag && G.tip(event, node));
  shape.addEventListener("pointerleave", noTip);
  shape.addEventListener("click", () => { if (!G.moved) G.choose(node); });
  shape.addEventListener("dblclick", (event) => { event.stopPropagation(); G.toggle(node); });
  shape.addEventListener("keydown", (event) => {
    if (event.key === "Enter") G.choose(node);
    else if (event.key === " ") G.toggle(node);
    else return;
    event.preventDefault();
  });
  node.shape = shape;
  return shape;
}
function nodeTip(event, node) {
  const g = block("graph").nodes[node.group];
  if (node.member !== undefined && node.member !== null) {
    return node.member >= 0 ? tip(event, processCommand(node.member), processFacts(node.member)) : tip(event, filePath(-1 - node.member), fileFacts(-1 - node.member));
  }
  if (node.rest) return tip(event, `${name(node)} of ${g.name}`);
  tip(event, g.name, g.rule === null ? [["files", count(g.count)], ["size", bytes(g.size_bytes)], ["", "double click opens"]]
    : [["processes", count(g.count)], ["CPU", duration(g.cpu_ns)], ["life, summed", duration(g.life_ns)], g.failed ? ["failed", count(g.failed)] : null,
      ["from, to", `${sinceBegin(g.first_ns)} – ${sinceBegin(g.last_ns)}`], ["", "double click opens"]]);
}
function chooseNode(node) {
  const g = block("graph").nodes[node.group];
  if (node.member !== undefined && node.member !== null) {
    select(node.member >= 0 ? { kind: "process", process: node.member } : { kind: "file", file: -1 - node.member });
  } else if (g.is_whole && g.rule !== null) select({ kind: "rule", rule: g.rule });
  else select({ kind: "group", group: node.group });
}
function toggleGroup(group) {
  if (!G.open.delete(group)) G.open.add(group);
  noTip();
  drawGraph();
}

function dimGraph() {
  const isOn = (member) => member !== null && (member >= 0 ? isShown(member) : isFileShown(-1 - member));
  const m = block("members"), what = filter.what;
  for (const node of G.model.nodes) {
    let on = true;
    if (filter.processes) {
      on = node.rest ? true : node.member !== undefined ? isOn(node.member) : groupMembers()[node.group].some((i) => isOn(m.member[i]));
    }
    node.on = on;
  }
  // Nodes that a pipe or socket connects to the selection belong to it: one step further, and no more.
  const near = new Set();
  for (const e of G.model.edges) {
    const [a, b] = [G.model.nodes[e.from], G.model.nodes[e.to]];
    if ((e.kind === "pipe" || e.kind === "socket") && a.on !== b.on) near.add(a.on ? b : a);
  }
  near.forEach((node) => { node.on = true; });
  for (const node of G.model.nodes) {
    const on = node.on;
    node.shape.classList.toggle("dim", !on);
    node.shape.classList.toggle("chosen", !!what && ((what.kind === "group" && what.group === node.group && node.member === undefined) ||
      (what.kind === "rule" && what.rule === node.rule && node.member === undefined) ||
      (what.kind === "process" && what.process === node.member) || (what.kind === "file" && node.member !== undefined && what.file === -1 - node.member)));
  }
  for (const e of [...G.model.edges, ...G.model.steps]) e.shape.classList.toggle("dim", !(G.model.nodes[e.from].on && G.model.nodes[e.to].on));
}
function moveGraph() { G.stage.setAttribute("transform", `translate(${G.view.x.toFixed(1)} ${G.view.y.toFixed(1)}) scale(${G.view.k.toFixed(3)})`); }
function zoomGraph(factor, x, y) {
  const k = Math.min(3, Math.max(0.08, G.view.k * factor)), real = k / G.view.k;
  G.view = { k, x: x - (x - G.view.x) * real, y: y - (y - G.view.y) * real };
  moveGraph();
}

function listenGraph() {
  const graph = block("graph"), host = $("graph-view");
  if (!graph.nodes.length) return void ($("graph").hidden = true);
  G.files = graph.nodes.length <= 90;
  const button = (label, title, action, pressed) => el("button", { type: "button", title, "aria-pressed": pressed === undefined ? null : String(pressed), onclick: action }, label);
  const middle = () => [host.clientWidth / 2, host.clientHeight / 2];
  const files = button("files", "show files, or only the steps that they connect", () => {
    G.files = !G.files;
    files.setAttribute("aria-pressed", G.files);
    drawGraph();
  }, G.files);
  const minor = button("small steps", "show managers, shells and steps below 1 % as well", () => {
    G.minor = !G.minor;
    minor.setAttribute("aria-pressed", G.minor);
    drawGraph();
  }, false);
  minor.hidden = !graph.nodes.some((node) => node.rule !== null && !node.is_critical && minorRules()[node.rule]);
  const rate = button("width: rate", "the width of lines by bytes per second in calls, or by bytes", () => {
    G.byRate = !G.byRate;
    rate.setAttribute("aria-pressed", G.byRate);
    drawGraph();
  }, false);
  const turn = button("turn", "from top to bottom, or from left to right", () => { G.down = !G.isDown; drawGraph(); });
  $("graph-tools").append(button("+", "larger", () => zoomGraph(1.3, ...middle())), button("−", "smaller", () => zoomGraph(1 / 1.3, ...middle())),
    button("fit", "the whole graph", fitGraph), turn, files, minor, rate, button("close groups", "close every opened group", () => { G.open.clear(); drawGraph(); }));
  moveByPointer(host);
  drawGraph();
}
function moveByPointer(host) {
  host.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    G.drag = { x: event.clientX, y: event.clientY };
    G.moved = false;
  });
  addEventListener("pointermove", (event) => {
    if (!G.drag) return;
    const [dx, dy] = [event.clientX - G.drag.x, event.clientY - G.drag.y];
    if (!G.moved && Math.abs(dx) + Math.abs(dy) < 5) return;
    G.moved = true;
    G.view.x += dx;
    G.view.y += dy;
    G.drag = { x: event.clientX, y: event.clientY };
    G.root.classList.add("moving");
    moveGraph();
  });
  addEventListener("pointerup", () => { G.drag = null; if (G.root) G.root.classList.remove("moving"); });
  host.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = host.getBoundingClientRect();
    zoomGraph(Math.exp(-event.deltaY * 0.003), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
}
function fitGraph() {
  const box = G.stage.getBBox(), host = $("graph-view");
  const k = Math.min(1.2, (host.clientWidth - 20) / box.width, (host.clientHeight - 20) / box.height);
  G.view = { k, x: (host.clientWidth - box.width * k) / 2 - box.x * k, y: (host.clientHeight - box.height * k) / 2 - box.y * k };
  moveGraph();
}
