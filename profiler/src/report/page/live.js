// The page of a run that goes on: the server sends the parts of the data that have changed, and each part of
// the page is drawn again when its data has changed.

const L = { source: null, pending: false, gone: 0, seen: new Set() };
const token = new URLSearchParams(location.search).get("token") || "";
const address = (path) => `${path}?token=${encodeURIComponent(token)}`;
const since = (ns) => duration(Math.max(0, block("head").now_ns - ns));
const rate = (n) => (n > 0 ? bytes(n) + "/s" : "–");
const elapsed = () => block("head").now_ns - block("head").begins_ns;

blocks.members = {};
blocks.rules = { name: [] };

function connect() {
  L.source = new EventSource(address("/events"));
  L.source.onopen = () => { L.gone = 0; };
  L.source.onmessage = (event) => receive(JSON.parse(event.data));
  L.source.addEventListener("report", () => location.reload());
  L.source.onerror = () => {
    L.gone += 1;
    drawState();
    // A refusal closes the source; a server that went away does not.
    if (L.source.readyState === EventSource.CLOSED) setTimeout(connect, Math.min(10000, 1000 * L.gone));
  };
}

function receive(data) {
  Object.assign(blocks, data);
  Object.keys(data).forEach((name) => L.seen.add(name));
  if (data.steps) blocks.rules = { name: data.steps.name };
  // Hidden pages are not drawn, and several events in one frame are drawn once.
  if (L.pending) return;
  L.pending = true;
  const draw = () => {
    L.pending = false;
    const names = [...L.seen];
    L.seen.clear();
    drawParts(names);
  };
  if (document.hidden) setTimeout(draw, 250); else requestAnimationFrame(draw);
}

const drawers = {
  head: [drawState, drawTiles, drawLosses], limit: [drawLimit], managers: [drawManagers], failures: [drawFailures],
  running: [drawRunning], graph: [drawLiveGraph], steps: [drawSteps], files: [drawFiles], machine: [drawMachine], nodes: [drawNodes],
};
function drawParts(names) {
  if (!blocks.head) return;
  for (const name of Object.keys(drawers)) {
    if (blocks[name] && names.includes(name)) drawers[name].forEach((draw) => draw());
  }
  L.drawn = (L.drawn || 0) + 1;
}

function drawState() {
  const head = blocks.head, chip = $("state"), notice = $("notice");
  const words = { recording: "recording", ended: "the run has ended", killed: "the recording was cut short" };
  const state = L.gone ? "lost" : head ? head.state : "";
  chip.className = state;
  chip.textContent = L.gone ? "no connection" : head ? words[head.state] : "connecting …";
  notice.hidden = !L.gone && (!head || head.state === "recording");
  notice.className = "notice" + (state === "killed" || state === "lost" ? " bad" : "");
  const texts = {
    lost: "flowtrace does not answer: it has ended, or cannot be reached. The page shows the last data, and tries again.",
    ended: "The run has ended. The report is being prepared, and takes the place of this page.",
    killed: "The recorder has ended without closing the trace: it was killed, or its machine stopped. What follows is all that it had stored; the run itself may go on. ",
  };
  if (state === "killed" && head.unrecorded) texts.killed = sentence(head.unrecorded) + " ";
  notice.replaceChildren(texts[state] || "");
  if (state === "killed" && head.has_report) notice.append(el("a", { href: address("/report") }, "report of what was stored"));
}

function drawTiles() {
  const head = block("head"), machine = blocks.machine;
  const nodes = blocks.nodes && blocks.nodes.rows.length ? blocks.nodes.all : null;
  const name = head.command || (nodes ? many(nodes.nodes, "node", "nodes") : "(no command)");
  document.title = `${name} · flowtrace live`;
  $("headline").textContent = name;
  // What agents send is of machines alone.
  document.body.classList.toggle("machines-alone", !head.sees_processes);
  $("where").textContent = [head.cwd && "in " + head.cwd, `as of ${sinceStart(head.now_ns)} after its begin`,
    head.is_behind && "still reading what was recorded before: sums are too small"].filter(Boolean).join(" · ");
  const last = (list) => (list && list.length ? list[list.length - 1] : null);
  const cpu = machine && last(machine.cpu), data_loss = head.losses.filter((loss) => loss.is_of_data);
  const files = head.sees_files ? [[rate(head.read_rate), "read from files now", null, bytes(head.read_bytes) + " so far"],
    [rate(head.write_rate), "written to files now", null, bytes(head.write_bytes) + " so far"]] : [];
  const processes = head.sees_processes ? [[count(head.running), "running", null, "process images that have not ended"],
    [count(head.ended), "ended", null, "processes"], [count(head.failed), "failed", head.failed ? "bad" : null, "processes that ended with another status than 0"]] : [];
  const tiles = [
    [duration(elapsed()), "since its begin"], ...processes,
    nodes && !head.sees_processes ? [count(nodes.reporting), `of ${many(nodes.nodes, "node reports", "nodes report")}`, nodes.silent ? "bad" : null] : null,
    cpu === null || cpu === undefined ? null : [percent(cpu), "of the CPUs busy"], ...files,
    [data_loss.length ? count(sum(data_loss.map((loss) => loss.value))) : "nothing", "lost", data_loss.length ? "bad" : null],
  ];
  $("tiles").replaceChildren(...tiles.filter(Boolean).map(([value, label, kind, title]) =>
    el("div", { class: "tile", title }, el("strong", { class: kind }, value), el("span", {}, label))));
}
const sinceStart = (ns) => duration(ns - block("head").begins_ns);

function drawLimit() {
  const limit = block("limit"), text = $("limit-text");
  const known = limit.until_ns > limit.from_ns;
  $("limit-hint").textContent = known ? `windows of ${duration(limit.window_ns)}, complete up to ${since(limit.until_ns)} ago` : "";
  if (limit.name) {
    text.replaceChildren(el("strong", {}, limit.name), ` limits the run (${percent(limit.share)} of the last seconds)` +
      (limit.resource ? `: ${limit.resource}, confidence ${limit.confidence}` : ""));
  } else text.textContent = known ? "No step and no channel limited the last complete windows." : "Not known yet: no window is complete.";
  const span = Math.max(1, limit.until_ns - limit.from_ns);
  $("limit-bars").replaceChildren(...limit.bars.map((bar) => el("div", { class: "limit-row" }, el("span", { title: bar.name }, bar.name),
    svg("svg", { viewBox: "0 0 1000 12", preserveAspectRatio: "none", role: "img", "aria-label": `times in which ${bar.name} limited the run` },
      bar.intervals.map(([from, to]) => svg("rect", { x: (((from - limit.from_ns) / span) * 1000).toFixed(1), y: 0, height: 12,
        width: Math.max(1, ((to - from) / span) * 1000).toFixed(1), style: `fill: ${bar.step === null ? "var(--bad)" : ruleColours(bar.step).strong}` }))))));
}

function drawManagers() {
  const rows = block("managers");
  $("managers").hidden = !rows.length;
  $("manager-rows").replaceChildren(...rows.map((row) => {
    const of = row.total === null ? "" : ` of ${count(row.total)}`;
    const left = row.left_ns === null ? "no estimate of the end" : row.left_ns === 0 ? "all are done" :
      `about ${duration(row.left_ns)} left, ± ${duration(row.error_ns)}`;
    const begun = row.submitted === null ? "" : ` · ${count(row.submitted)} begun`;
    return el("div", { class: "manager" }, el("b", {}, row.name), row.total === null ? el("span", {}, `${count(row.done)} done`) :
      el("progress", { max: Math.max(1, row.total), value: row.done, "aria-label": `${row.done} of ${row.total} steps` }),
    el("p", {}, `${count(row.done)}${of} done${begun} · ${left} · ${row.note}`));
  }));
}

// A table whose rows are drawn anew: [title, text or nodes of a row, class, hint].
function liveTable(id, columns, rows, leftOut, more, classOf) {
  const host = document.querySelector(`#${id} .table`);
  if (!rows.length) return host.replaceChildren(el("p", { class: "muted" }, "none"));
  const head = el("tr", {}, columns.map(([title, , kind, hint]) => el("th", { scope: "col", class: kind === "n" ? "n" : null, title: hint }, el("span", { class: "head" }, title))));
  const body = rows.map((row) => el("tr", { class: classOf ? classOf(row) : null }, columns.map(([, cell, kind]) => {
    const value = cell(row), title = typeof value === "string" && value.length > 40 ? value : null;
    return el("td", { class: kind, title }, value);
  })));
  const scroll = host.querySelector(".scroll"), left = scroll ? scroll.scrollLeft : 0;
  const now = el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
  host.replaceChildren(now, leftOut ? el("p", { class: "muted" }, `+${count(leftOut)} ${more}`) : "");
  now.scrollLeft = left;
}
const swatch = (step) => (step === null ? "–" : [el("span", { class: "swatch", style: `background: ${ruleColours(step).strong}` }), ruleName(step)]);
const isRunner = (step) => L.runners && L.runners.has(step);

function waitCell(row) {
  if (!row.state) return "not known yet";
  const states = { running: "on a CPU", runnable: "waits for a CPU" };
  const whom = row.blockers.map((one) => `${ruleName(one.step)} ${one.pid}`).join(", ");
  const text = states[row.state] || row.waits || row.state;
  // A running thread changes its state many times a second: how long says nothing.
  const time = row.state in states || row.known_ns - row.since_ns < 1e9 ? "" : ` for ${duration(row.known_ns - row.since_ns)}`;
  return [text, whom ? el("span", { class: "whom" }, ` ← ${whom}`) : "", time];
}
function drawRunning() {
  const running = block("running");
  liveTable("running", [
    ["step", (row) => swatch(row.step)], ["pid", (row) => String(row.pid), "n"], ["age", (row) => since(row.start_ns), "n"],
    ["CPUs", (row) => (row.cpus === null ? "?" : row.cpus.toFixed(2)), "n", "in use, a mean over the last two seconds that are known"],
    ["CPU time", (row) => (row.cpu_ns ? duration(row.cpu_ns) : "–"), "n", "as far as it was sampled"],
    ["waits for", waitCell], ["command", (row) => row.command, "command"],
  ], running.rows, running.left_out, "more processes", (row) => (isRunner(row.step) ? "runner" : null));
}

function drawSteps() {
  const steps = block("steps");
  L.runners = new Set(steps.rows.filter((row) => row.is_runner).map((row) => row.step));
  $("rate-hint").textContent = `rates are means over ${block("head").rate_seconds} s, of file calls`;
  liveTable("steps", [
    ["step", (row) => swatch(row.step)], ["running", (row) => dash(count)(row.running), "n"], ["ended", (row) => dash(count)(row.done), "n"],
    ["failed", (row) => dash(count)(row.failed), "n"], ["CPUs", (row) => (row.running ? row.cpus.toFixed(2) : "–"), "n"], ["CPU time", (row) => dash(duration)(row.cpu_ns), "n"],
    ["reads", (row) => rate(row.read_rate), "n"], ["writes", (row) => rate(row.write_rate), "n"],
    ["read", (row) => dash(bytes)(row.read_bytes), "n"], ["written", (row) => dash(bytes)(row.write_bytes), "n"],
  ], steps.rows, steps.left_out, "more steps", (row) => (row.is_runner ? "runner" : null));
}
function drawFiles() {
  const files = block("files");
  $("files").hidden = !block("head").sees_files;
  liveTable("files", [
    ["file", (row) => row.path], ["step", (row) => swatch(row.step), null, "that wrote it last, or reads it"],
    ["reads", (row) => rate(row.read_rate), "n"], ["writes", (row) => rate(row.write_rate), "n"],
    ["read", (row) => dash(bytes)(row.read_bytes), "n"], ["written", (row) => dash(bytes)(row.write_bytes), "n"],
  ], files.rows, files.left_out, "more files");
}
function drawFailures() {
  const failures = block("failures");
  $("failures").hidden = !failures.rows.length;
  if (failures.rows.length) {
    liveTable("failures", [
      ["at", (row) => sinceStart(row.at_ns), "n"], ["step", (row) => swatch(row.step)], ["pid", (row) => String(row.pid), "n"],
      ["ended", (row) => row.ending + (row.count > 1 ? ` ×${count(row.count)}` : "")], ["command", (row) => row.command, "command"],
    ], failures.rows, failures.left_out, "earlier ones");
  }
}

// The graph of the report's page, with the steps so far.
G.of = () => {
  const graph = block("graph");
  const nodes = graph.nodes.map((node, group) => ({ group, members: null, isFile: false, rule: node.rule, label: shorten(node.name, 26),
    times: node.count > 1 ? ` ×${count(node.count)}` : "", failed: node.failed > 0, critical: node.is_critical,
    sub: [node.running ? `${count(node.running)} running` : "ended", node.failed ? `${count(node.failed)} failed` : ""].filter(Boolean).join(" · ") }));
  const edges = graph.edges.map((e) => ({ from: e.from, to: e.to, kind: e.kind, critical: e.is_critical, way: "forth", bytes: e.bytes, back: 0, inCalls: 0,
    count: e.count, calls: 0, span: null }));
  return { nodes, edges, steps: [] };
};
G.tip = (event, node) => {
  const g = block("graph").nodes[node.group];
  tip(event, g.name, [["processes", count(g.count)], ["running", count(g.running)], ["CPU of those that ended", duration(g.cpu_ns)], g.failed ? ["failed", count(g.failed)] : null]);
};
G.choose = G.toggle = () => {};
function drawLiveGraph() {
  const graph = block("graph"), host = $("graph-view");
  $("graph").hidden = !graph.nodes.length;
  if (!graph.nodes.length || G.drag) return;
  // New numbers do not move a graph that someone has moved.
  const kept = G.movedBy ? { ...G.view } : null;
  Object.assign(graph, { hidden_forks: 0 });
  drawGraph();
  if (kept) { G.view = kept; moveGraph(); }
  graph.nodes.forEach((node, i) => G.model.nodes[i].shape.classList.toggle("active", node.running > 0));
  if (!L.listens) {
    L.listens = true;
    moveByPointer(host);
    host.addEventListener("pointermove", () => { G.movedBy = G.movedBy || (!!G.drag && G.moved); });
    host.addEventListener("wheel", (event) => { G.movedBy = G.movedBy || event.ctrlKey || event.metaKey; });
  }
}

function drawMachine() {
  const m = block("machine");
  $("machine").hidden = !m.cpu.length;
  const isOne = !blocks.nodes || !blocks.nodes.rows.length;
  $("machine").querySelector("h2").firstChild.textContent = isOne ? "Machine " : "Machines together ";
  $("machine-charts").replaceChildren(
    series("CPUs busy", percent, 1, m, [["busy", "good", m.cpu]]),
    series("storage", (n) => bytes(n) + "/s", 0, m, [["read", "read", m.disk_read], ["written", "write", m.disk_write]]),
    series("busiest disk", percent, 1, m, [["busy", "warn", m.disk_busy]]),
    series("network", (n) => bytes(n) + "/s", 0, m, [["received", "read", m.net_in], ["sent", "write", m.net_out]]));
}
// A line for each list of values, one value a step of time, the last one at the right.
function series(title, format, top, m, lines) {
  const W = 400, H = 90, most = 60, known = lines.flatMap(([, , values]) => values).filter((v) => v !== null);
  const high = Math.max(top, ...known, 1e-9), x = (i, n) => W - (n - 1 - i) * (W / (most - 1)), y = (v) => H - 3 - (v / high) * (H - 8);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  for (const share of [0, 0.5, 1]) picture.append(svg("line", { x1: 0, x2: W, y1: y(share * high), y2: y(share * high), style: "stroke: var(--faint)" }));
  for (const [, colour, values] of lines) {
    let d = "", pen = "M";
    values.forEach((v, i) => {
      if (v === null) return void (pen = "M");
      d += `${pen}${x(i, values.length).toFixed(1)},${y(v).toFixed(1)}`;
      pen = "L";
    });
    picture.append(svg("path", { d, style: `fill: none; stroke: var(--${colour}); stroke-width: 1.8` }));
  }
  const last = (values) => { const v = values[values.length - 1]; return v === null || v === undefined ? "?" : format(v); };
  return el("figure", { class: "chart", style: "margin: 0" }, el("h3", {}, title, el("span", { class: "hint" }, high > 1e-9 ? "up to " + format(high) : "")), picture,
    el("div", { class: "legend" }, lines.map(([name, colour, values]) => el("span", {}, el("span", { class: "swatch", style: `background: var(--${colour})` }), name + " ", el("strong", {}, last(values))))));
}

function drawLosses() {
  const losses = block("head").losses;
  $("loss-text").replaceChildren(losses.length ? el("ul", {}, losses.map((loss) => el("li", {}, `${loss.counter}: ${count(loss.value)}. ${loss.meaning}`))) :
    el("p", { class: "muted" }, "Nothing so far."));
}

function redrawAll() { drawParts(Object.keys(drawers)); }
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  redrawAll();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
{
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width === innerWidth) return;
    width = innerWidth;
    if (blocks.graph) drawLiveGraph();
  });
}
connect();
