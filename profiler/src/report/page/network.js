// The answers from packets: in words, the topology, the traffic of each pair, and the rate and period of the
// program's iterations.

function drawNetwork() {
  const net = block("network"), host = $("network-view");
  if (!net.nodes.length) return;
  host.append(el("ul", { class: "lines" }, net.answers.map(([question, answer]) => el("li", {}, el("b", {}, question), el("span", {}, answer)))));
  if (net.notes.length) host.append(el("p", { class: "muted" }, net.notes.join(" · ")));
  const charts = [topologyChart(net), rateChart(net), spectrumChart(net)].filter(Boolean);
  host.append(el("div", { class: "charts" }, charts));
  for (const [what, why] of [["Iterations over time", net.rate_unknown], ["Spectrum", net.spectrum_unknown]]) {
    if (why) host.append(el("p", { class: "muted" }, `${what}: unknown, ${why}`));
  }
  host.append(trafficMatrix(net));
  $("network-pictures").append(...pictures(block("pictures").network));
}

function framed(title, note, ...children) {
  return el("div", { class: "chart" }, el("h3", {}, title), children, note ? el("p", { class: "muted" }, note) : null);
}

// The processes in an order in which neighbours talk to each other, as far as a walk along the edges gives
// one.
function walk(net) {
  const order = [], near = net.nodes.map(() => []);
  net.edges.forEach((e) => { near[e.src].push([e.share, e.dst]); near[e.dst].push([e.share, e.src]); });
  near.forEach((list) => list.sort((a, b) => b[0] - a[0] || a[1] - b[1]));
  const seen = new Set();
  for (let start = 0; start < net.nodes.length; start++) {
    for (let at = start; at !== undefined && !seen.has(at);) {
      seen.add(at);
      order.push(at);
      const next = near[at].find(([, to]) => !seen.has(to));
      at = next && next[1];
    }
  }
  return order;
}

// The heavy directions as a circle of processes; both directions of a pair are one line.
function topologyChart(net) {
  const n = net.nodes.length, W = 420, H = 300, R = n > 2 ? 108 : 90, pairs = new Map();
  const turn = walk(net);
  const place = net.nodes.map((_, i) => {
    const angle = (turn.indexOf(i) / n) * 2 * Math.PI - Math.PI / 2;
    return [W / 2 + R * Math.cos(angle) * 1.15, H / 2 + R * Math.sin(angle)];
  });
  for (const edge of net.edges) {
    const key = Math.min(edge.src, edge.dst) + "-" + Math.max(edge.src, edge.dst);
    if (!pairs.has(key)) pairs.set(key, []);
    pairs.get(key).push(edge);
  }
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Topology", class: "topology" });
  picture.append(svg("defs", {}, svg("marker", { id: "tip-of-arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
    svg("path", { d: "M0,0 L8,4 L0,8 Z", style: "fill: var(--pipe)" }))));
  for (const edges of pairs.values()) {
    const [a, b] = [place[edges[0].src], place[edges[0].dst]], length = Math.hypot(b[0] - a[0], b[1] - a[1]) || 1, cut = 8 / length;
    const share = Math.max(...edges.map((e) => e.share));
    const line = svg("line", { x1: a[0], y1: a[1], x2: b[0] - (b[0] - a[0]) * cut, y2: b[1] - (b[1] - a[1]) * cut,
      "marker-end": edges.length === 1 ? "url(#tip-of-arrow)" : null, style: `stroke: var(--pipe); stroke-opacity: ${(0.35 + 0.65 * share).toFixed(2)}; stroke-width: ${(1 + 4 * share).toFixed(1)}` });
    const target = svg("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], style: "stroke: transparent; stroke-width: 12" });
    target.addEventListener("pointermove", (event) => tip(event, `${net.nodes[edges[0].src]} ${edges.length > 1 ? "↔" : "→"} ${net.nodes[edges[0].dst]}`,
      edges.map((e) => [`${net.nodes[e.src]} → ${net.nodes[e.dst]}`, `${bytes(e.bytes)}, ${percent(e.share)} of the heaviest`])));
    target.addEventListener("pointerleave", noTip);
    picture.append(line, target);
  }
  place.forEach(([x, y], i) => {
    const angle = Math.atan2(y - H / 2, x - W / 2), side = Math.cos(angle);
    picture.append(svg("circle", { cx: x, cy: y, r: 5.5, style: "fill: var(--accent)" }), svg("text", {
      x: x + (Math.abs(side) < 0.2 ? 0 : side > 0 ? 10 : -10), y: y + (Math.abs(side) < 0.2 ? (y > H / 2 ? 20 : -11) : 4),
      "text-anchor": Math.abs(side) < 0.2 ? "middle" : side > 0 ? "start" : "end" }, shortenPath(net.nodes[i], 22)));
  });
  const answer = net.answers.find(([question]) => question === "topology");
  return framed("Topology", (answer ? answer[1] : "") + (net.nodes_left_out ? ` · +${count(net.nodes_left_out)} more processes with less traffic` : ""), picture);
}

// A line over an axis: points [[x, y]], x and y in any unit.
function lineChart(title, note, options) {
  const W = 420, H = 200, left = 46, right = 12, top = 10, bottom = 24;
  const { lines, xs, ys, format, logX, logY } = options;
  const flat = (axis) => lines.flatMap((line) => line.points.map((p) => p[axis])).filter((v) => v > 0 || !(axis ? logY : logX));
  if (!flat(0).length || !flat(1).length) return null;
  const ends = (list, log) => {
    let [low, high] = extremes(list);
    if (log) return [Math.log10(low), Math.max(Math.log10(high), Math.log10(low) + 0.5)];
    low = Math.min(0, low);
    return [low, high > low ? high : low + 1];
  };
  const [x0, x1] = ends(flat(0), logX), [yLow, y1] = ends(flat(1), logY);
  // The floor of a spectrum shows nothing: seven decades are enough.
  const y0 = logY ? Math.max(yLow, y1 - 7) : yLow;
  const x = (v) => left + (((logX ? Math.log10(v) : v) - x0) / (x1 - x0)) * (W - left - right);
  const y = (v) => top + (1 - Math.max(0, ((logY ? Math.log10(Math.max(v, 1e-300)) : v) - y0) / (y1 - y0))) * (H - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  const ticks = (low, high, log, most) => {
    if (log) {
      const each = Math.max(1, Math.ceil((high - low) / most)), list = [];
      for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power += each) list.push(10 ** power);
      return list;
    }
    const step = niceStep(high - low, most), list = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) list.push(v);
    return list;
  };
  for (const v of ticks(y0, y1, logY, 4)) {
    picture.append(svg("line", { x1: left, x2: W - right, y1: y(v), y2: y(v), style: "stroke: var(--faint)" }), svg("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end" }, ys(v)));
  }
  for (const v of ticks(x0, x1, logX, 5)) {
    picture.append(svg("line", { x1: x(v), x2: x(v), y1: top, y2: H - bottom, style: "stroke: var(--faint)" }), svg("text", { x: x(v), y: H - 8, "text-anchor": x(v) > W - 30 ? "end" : "middle" }, xs(v)));
  }
  for (const mark of options.marks || []) {
    if (mark.at < (logX ? 10 ** x0 : x0) || mark.at > (logX ? 10 ** x1 : x1)) continue;
    picture.append(svg("line", { x1: x(mark.at), x2: x(mark.at), y1: top, y2: H - bottom, style: "stroke: var(--bad); stroke-dasharray: 3 3" }),
      svg("text", { x: x(mark.at) + (x(mark.at) > W / 2 ? -5 : 5), y: top + 10, "text-anchor": x(mark.at) > W / 2 ? "end" : "start", style: "fill: var(--bad)" }, mark.label));
  }
  for (const line of lines) {
    const d = line.points.filter((p) => !logX || p[0] > 0).map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join("");
    picture.append(svg("path", { d, style: `fill: none; stroke: ${line.colour}; stroke-width: ${line.thin ? 1 : 1.5}` + (line.thin ? "; stroke-dasharray: 4 3" : "") }));
  }
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * W;
    if (at < left || at > W - right) return noTip();
    const raw = x0 + ((at - left) / (W - left - right)) * (x1 - x0), value = logX ? 10 ** raw : raw, points = lines[0].points;
    const near = points[Math.min(points.length - 1, lowerBound(points, value, (p) => p[0]))];
    tip(event, title, format(near));
  });
  picture.addEventListener("pointerleave", noTip);
  return framed(title, note, picture);
}

const digits = (v) => (v === 0 ? "0" : Math.abs(v) >= 1000 ? count(v) : String(+v.toPrecision(3)));
const power10 = (v) => "10" + String(Math.round(Math.log10(v))).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+c]));

function rateChart(net) {
  if (!net.rate) return null;
  const points = net.rate.per_s.map((v, i) => [net.rate.t0_ns + (i + 0.5) * net.rate.step_ns, v]);
  const answer = net.answers.find(([question]) => question === "iterations");
  return lineChart("Iterations over time, all pairs together, per second", answer && `each pair: ${answer[1]}`, {
    lines: [{ points, colour: "var(--accent)" }], xs: (v) => duration(v).replace(".0 ", " "), ys: digits,
    format: ([t, v]) => [["at", duration(t)], ["iterations per second, all pairs", digits(v)], ["mean over", duration(net.rate.step_ns)]],
  });
}

function spectrumChart(net) {
  const s = net.spectrum;
  if (!s) return null;
  const lines = [{ points: s.hz.map((hz, i) => [hz, s.power[i]]), colour: "var(--accent)" }];
  if (s.background.length === s.hz.length) lines.push({ points: s.hz.map((hz, i) => [hz, s.background[i]]), colour: "var(--warn)", thin: true });
  return lineChart("Spectrum of the iterations", s.answer.join(" · ") + (lines.length > 1 ? " · dashed: what comes without a period" : ""), {
    lines, logX: true, logY: true, xs: (v) => digits(v) + " Hz", ys: power10,
    marks: s.periods_s.map((seconds) => ({ at: 1 / seconds, label: "period " + duration(seconds * 1e9) })),
    format: ([hz, power]) => [["frequency", digits(hz) + " Hz"], ["every", duration(1e9 / hz)], ["power", power.toExponential(2)]],
  });
}

function trafficMatrix(net) {
  const cells = new Map(net.traffic.map((t) => [t.src + ">" + t.dst, t])), top = Math.max(1, ...net.traffic.map((t) => t.payload_bytes));
  const shade = (n) => (n ? `background: color-mix(in oklab, var(--accent) ${(8 + 62 * Math.max(0, 1 - Math.log10(top / n) / 5)).toFixed(0)}%, var(--panel))` : null);
  const head = (name) => el("span", { class: "head", title: name }, shortenPath(name, 20));
  return el("div", { class: "matrix" }, el("h3", {}, "Traffic: payload that a row's process sent to a column's"), el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th"), net.nodes.map((name) => el("th", { class: "n" }, head(name))))),
    el("tbody", {}, net.nodes.map((from, a) => el("tr", {}, el("th", {}, head(from)), net.nodes.map((to, b) => {
      const t = cells.get(a + ">" + b);
      return el("td", { style: t ? shade(t.payload_bytes) : null, title: t ? `${from} → ${to}: ${count(t.packets)} packets, ${bytes(t.wire_bytes)} on the wire` : null }, t ? bytes(t.payload_bytes) : "");
    })))))));
}
