// Flame graphs of sampled call stacks: a box is a function, as wide as its share of the time of the step, on a CPU or waiting;
// above it are those that it calls. A click shows a function and those it calls alone.

const F = { graph: 0, root: -1, find: "", boxes: [] };
const ROW = 19;

function listenFlame() {
  const stacks = block("stacks"), choice = el("select", { "aria-label": "Step", onchange: () => { F.graph = +choice.value; F.root = -1; drawFlame(); } },
    stacks.graphs.map((graph, i) => el("option", { value: i }, graphName(graph) + " · " + duration(graph.time_ns))));
  const find = el("input", { type: "search", placeholder: "mark functions", "aria-label": "Mark functions", oninput: () => { F.find = find.value.trim().toLowerCase(); drawFlame(); } });
  F.choice = choice;
  $("flame-tools").append(choice, el("button", { type: "button", onclick: () => { F.root = -1; drawFlame(); } }, "all"), find, el("span", { id: "flame-note", class: "muted" }));
  const canvas = $("flame-canvas"), at = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return F.boxes.find((b) => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + ROW);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = at(event);
    if (!box) return noTip();
    const graph = stacks.graphs[F.graph], node = box.node, time = (ns) => duration(ns) + " · " + percent(ns / graph.time_ns), kind = graph.waits ? "waiting" : "on CPU";
    if (node < 0) return tip(event, graphName(graph), [[kind, duration(graph.time_ns)], ["samples", count(graph.samples)]]);
    const f = graph.function[node];
    tip(event, stacks.name[f], [["in", stacks.place[f]], [kind, time(graph.all_ns[node])], ["by itself", time(graph.own_ns[node])],
      stacks.kind[f] === 2 ? ["", "the file has no symbols: known by its address"] : null]);
  });
  canvas.addEventListener("pointerleave", noTip);
  canvas.addEventListener("click", (event) => {
    const box = at(event);
    if (!box) return;
    F.root = box.node === F.root ? -1 : box.node;
    drawFlame();
  });
  onFilter(() => { chooseFlame(); drawFlame(); });
  drawFlame();
}
const graphName = (graph) => (graph.rule === null ? "critical path" : ruleName(graph.rule)) + (graph.waits ? ", waiting" : "");

// The graph of the step that is selected anywhere on the page.
function chooseFlame() {
  const what = filter.what;
  let rule = null;
  if (what && what.kind === "rule") rule = what.rule;
  if (what && what.kind === "process") rule = block("processes").rule[what.process];
  if (what && what.kind === "group") rule = block("graph").nodes[what.group].rule;
  const place = block("stacks").graphs.findIndex((graph) => rule !== null && graph.rule === rule && graph.waits === block("stacks").graphs[F.graph].waits);
  if (place < 0 || place === F.graph) return;
  F.graph = place;
  F.root = -1;
  F.choice.value = place;
}

function flameChildren(graph) {
  if (graph.children) return graph.children;
  const children = [[]];
  graph.function.forEach(() => children.push([]));
  graph.caller.forEach((caller, node) => children[caller + 1].push(node));
  const name = (node) => block("stacks").name[graph.function[node]];
  children.forEach((list) => list.sort((a, b) => (name(a) < name(b) ? -1 : 1)));
  return (graph.children = children);
}

function drawFlame() {
  const stacks = block("stacks"), graph = stacks.graphs[F.graph], canvas = $("flame-canvas"), children = flameChildren(graph);
  const width = canvas.parentNode.clientWidth, boxes = (F.boxes = []);
  const above = [];
  for (let node = F.root; node >= 0; node = graph.caller[node]) above.unshift(node);
  if (F.root >= 0) above.unshift(-1);
  above.pop();
  above.forEach((node, depth) => boxes.push({ node, depth, x: 0, w: width, isAbove: true }));
  const total = F.root < 0 ? graph.time_ns : graph.all_ns[F.root], waiting = [[F.root, above.length, 0, width]];
  let deepest = 0, marked = 0;
  while (waiting.length) {
    const [node, depth, x, w] = waiting.pop();
    boxes.push({ node, depth, x, w });
    deepest = Math.max(deepest, depth);
    let from = x;
    for (const child of children[node + 1]) {
      const wide = (graph.all_ns[child] / total) * width;
      if (wide >= 0.4) waiting.push([child, depth + 1, from, wide]);
      from += wide;
    }
  }
  const height = (deepest + 1) * ROW, scale = devicePixelRatio || 1;
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const ctx = canvas.getContext("2d"), dark = isDark();
  ctx.scale(scale, scale);
  ctx.font = "12px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  for (const box of boxes) {
    box.y = height - (box.depth + 1) * ROW;
    const f = box.node < 0 ? -1 : graph.function[box.node], name = f < 0 ? graphName(graph) : stacks.name[f];
    const isMarked = F.find && name.toLowerCase().includes(F.find);
    if (isMarked && !box.isAbove && !isWithinMarked(graph, box.node)) marked += graph.all_ns[box.node];
    ctx.globalAlpha = box.isAbove ? 0.5 : 1;
    ctx.fillStyle = isMarked ? colour("accent") : flameColour(f, dark);
    ctx.fillRect(box.x, box.y, Math.max(0.5, box.w - 0.6), ROW - 1);
    ctx.globalAlpha = 1;
    if (box.w < 24) continue;
    ctx.fillStyle = isMarked ? colour("back") : dark ? "#f2f3f4" : "#14171a";
    ctx.fillText(fitted(ctx, name, box.w - 8), box.x + 4, box.y + ROW / 2);
  }
  // The outermost functions are at the bottom.
  canvas.parentNode.scrollTop = canvas.parentNode.scrollHeight;
  const note = [many(graph.samples, "sample", "samples"), "one for " + duration(stacks.period_ns) + (graph.waits ? " or more of waiting in calls" : " of CPU time")];
  if (F.find) note.push("marked: " + percent(marked / graph.time_ns));
  $("flame-note").textContent = note.join(" · ");
}
// A function that calls itself counts once.
function isWithinMarked(graph, node) {
  for (let at = graph.caller[node]; at >= 0; at = graph.caller[at]) {
    if (block("stacks").name[graph.function[at]].toLowerCase().includes(F.find)) return true;
  }
  return false;
}
// Warm colours for functions, blue for the kernel, grey for those without a name.
function flameColour(f, dark) {
  if (f < 0) return dark ? "oklch(0.40 0.02 250)" : "oklch(0.88 0.02 250)";
  const stacks = block("stacks"), name = stacks.name[f];
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
  const light = (dark ? 0.44 : 0.80) + (hash % 7) * 0.012;
  if (stacks.kind[f] === 1) return `oklch(${light} 0.08 ${235 + (hash % 25)})`;
  if (stacks.kind[f] === 2) return `oklch(${light} 0.01 80)`;
  return `oklch(${light} 0.11 ${45 + (hash % 50)})`;
}
