// Puts the page together. Sections far down are drawn when they come near the screen.

const parts = [
  ["nodes", () => { drawNodes(); $("nodes-pictures").append(...pictures(block("pictures").machines)); }], ["timeline", () => { listenTimeline(); drawTimeline(); onFilter(drawTimeline); }],
  ["graph", () => { listenGraph(); onFilter(() => G.model && dimGraph()); }],
  ["path", pathTable], ["flame", listenFlame], ["tree", listenTree], ["rules", ruleTable], ["waits", waitTable], ["files", fileTable], ["calls", callTable],
  ["channels", channelTable], ["flows", flowTable], ["charts", () => { drawCharts(); onFilter(drawCharts); }], ["coverage", drawCoverage],
];

function empty(id) {
  switch (id) {
    case "timeline": case "tree": case "rules": return !processCount();
    case "nodes": return !block("nodes").rows.length;
    case "path": return !block("path").rules.length;
    case "graph": return !block("graph").nodes.length;
    case "flame": return !block("stacks").graphs.length;
    case "waits": return !block("waits").waits.length;
    case "channels": return !block("channels").channels.length;
    case "flows": return !block("flows").flows.length && !block("network").nodes.length;
    case "files": return !facts().file_calls;
    case "calls": return !block("calls").by_op.length;
    default: return false;
  }
}

function start() {
  drawHead();
  const pending = new Map();
  for (const [id, draw] of parts) {
    const section = $(id);
    if (empty(id)) {
      section.hidden = true;
      continue;
    }
    if (section.dataset.title) $("nav").append(el("a", { href: "#" + id }, section.dataset.title));
    pending.set(section, draw);
  }
  const drawNow = (section) => {
    const draw = pending.get(section);
    if (pending.delete(section)) draw();
  };
  const drawAll = () => [...pending.keys()].forEach(drawNow);
  const watcher = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      drawNow(target);
    }
  }, { rootMargin: "600px" });
  [...pending.keys()].forEach((section) => watcher.observe(section));
  // A jump lands in the right place only if the sections before it have their height.
  $("nav").addEventListener("click", drawAll);
  // Paper is white, so the page is printed in light colours.
  let before;
  addEventListener("beforeprint", () => {
    before = isDark() ? document.documentElement.dataset.theme || "" : undefined;
    if (before !== undefined) document.documentElement.dataset.theme = "light";
    drawAll();
    if (before !== undefined) redraw();
  });
  addEventListener("afterprint", () => {
    if (before === undefined) return;
    if (before) document.documentElement.dataset.theme = before; else delete document.documentElement.dataset.theme;
    redraw();
  });
  listenKeys();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width === innerWidth) return;
    width = innerWidth;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
// After a change of width or of colours.
function redraw() {
  if (T.rows.length) drawTimeline();
  if (G.model) drawGraph();
  listeners.forEach((listener) => listener());
}

function listenKeys() {
  const box = $("search");
  let timer = 0;
  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => search(box.value), 120);
  });
  $("chip").addEventListener("click", () => select(null));
  const turn = () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  };
  $("theme").addEventListener("click", turn);
  const help = $("help"), keys = [
    ["/", "search"], ["Esc", "show everything again"], ["+ − 0", "zoom the timeline, all of it"], ["← →", "move the timeline"],
    ["↑ ↓ Enter Space", "in the timeline: go to a step, select it, open its lanes"], ["Tab, Enter, Space", "in the graph: go to a node, select it, open it"],
    ["↑ ↓ ← →", "in the tree: move, close, open"], ["d", "light or dark"], ["?", "these keys"]];
  help.append(el("h2", {}, "Keys"), el("dl", {}, keys.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])),
    el("form", { method: "dialog" }, el("button", {}, "close")));
  $("keys").addEventListener("click", () => help.showModal());
  addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement;
    if (event.key === "Escape" && !help.open) {
      box.value = "";
      box.blur();
      filter.text = "";
      noTip();
      return select(null);
    }
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const action = { "/": () => box.focus(), "?": () => help.showModal(), d: turn, "+": () => zoomBy(0.5), "-": () => zoomBy(2), "0": () => zoomTo(0, runLength()) }[event.key];
    if (!action) return;
    action();
    event.preventDefault();
  });
}

start();
