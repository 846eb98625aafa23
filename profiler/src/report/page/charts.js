// Distributions: for each value the share of all values that are no larger, over a logarithmic axis. And the
// matrix of the traffic between pairs.

// series: {name, colour, points: [[value, count]] in the order of values}
function cdf(title, format, series) {
  series = series.filter((s) => s.points.length);
  if (!series.length) return null;
  const W = 400, H = 210, left = 34, bottom = 22, top = 8, right = 10;
  const positive = series.flatMap((s) => s.points.map(([v]) => v)).filter((v) => v > 0);
  if (!positive.length) return null;
  let low = Math.floor(Math.log10(Math.min(...extremes(positive)))), high = Math.ceil(Math.log10(Math.max(...extremes(positive))) + 1e-9);
  if (high <= low) high = low + 1;
  const x = (v) => left + ((Math.log10(Math.max(v, 10 ** low)) - low) / (high - low)) * (W - left - right);
  const y = (share) => top + (1 - share) * (H - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(svg("line", { x1: left, x2: W - right, y1: y(share), y2: y(share), style: "stroke: var(--faint)" }),
      svg("text", { x: left - 4, y: y(share) + 4, "text-anchor": "end" }, share * 100 + "%"));
  }
  const each = Math.max(1, Math.ceil((high - low) / 5));
  for (let power = low; power <= high; power += each) {
    picture.append(svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: H - bottom, style: "stroke: var(--faint)" }),
      svg("text", { x: x(10 ** power), y: H - 6, "text-anchor": power === high ? "end" : "middle" }, format(10 ** power).replace(".0 ", " ")));
  }
  for (const s of series) {
    const total = s.points.reduce((a, [, n]) => a + n, 0);
    let below = 0, d = `M${x(s.points[0][0]).toFixed(1)},${y(0).toFixed(1)}`;
    s.curve = s.points.map(([v, n]) => [v, (below += n) / total]);
    const step = Math.max(1, Math.floor(s.curve.length / 400));
    s.curve.forEach(([v, share], i) => { if (i % step === 0 || i === s.curve.length - 1) d += ` H${x(v).toFixed(1)} V${y(share).toFixed(1)}`; });
    s.total = total;
    picture.append(svg("path", { d: d + ` H${W - right}`, style: `fill: none; stroke: ${s.colour}; stroke-width: 1.6` }));
  }
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * W;
    if (at < left || at > W - right) return noTip();
    const value = 10 ** (low + ((at - left) / (W - left - right)) * (high - low));
    tip(event, "≤ " + format(value), series.map((s) => {
      const i = lowerBound(s.curve, value * 1.0000001, ([v]) => v) - 1;
      return [s.name, percent(i < 0 ? 0 : s.curve[i][1])];
    }));
  });
  picture.addEventListener("pointerleave", noTip);
  const half = (s) => s.curve[lowerBound(s.curve, 0.5, ([, share]) => share)][0];
  return el("figure", { class: "chart", style: "margin: 0" }, el("h3", {}, title), picture,
    el("div", { class: "legend" }, series.map((s) => el("span", { title: `${count(s.total)} values` }, el("span", { class: "swatch", style: `background: ${s.colour}` }), `${s.name} · half ≤ ${format(half(s))}`))));
}
function extremes(list) {
  return list.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
}
function counted(values) {
  return values.filter((v) => v !== null).sort((a, b) => a - b).map((v) => [v, 1]);
}

function drawCharts() {
  const grid = $("chart-grid"), p = block("processes"), f = block("files"), calls = block("calls");
  const byRule = new Map();
  p.rule.forEach((rule, i) => {
    if (!isShown(i)) return;
    if (!byRule.has(rule)) byRule.set(rule, []);
    byRule.get(rule).push(i);
  });
  const top = [...byRule].sort((a, b) => b[1].length - a[1].length).slice(0, 6);
  const ofRules = (value) => top.map(([rule, list]) => ({ name: ruleName(rule), colour: ruleColours(rule).strong, points: counted(list.map(value)) }));
  const shownFiles = places(fileCount()).filter(isFileShown), sizes = (mask) => counted(shownFiles.filter((i) => f.flags[i] & mask).map((i) => f.size_bytes[i]));
  const heavy = calls.by_op.reduce((a, c) => a.set(c.op, (a.get(c.op) || 0) + c.ns), new Map());
  const ops = calls.durations.slice().sort((a, b) => heavy.get(b.op) - heavy.get(a.op)).slice(0, 6);
  const spread = (s, i) => ({ name: s.op, colour: `oklch(${isDark() ? 0.72 : 0.58} 0.14 ${(40 + i * 57) % 360})`, points: s.buckets });
  const all = filter.processes ? " (whole run)" : "";
  grid.replaceChildren(...[
    cdf("Life of processes", duration, ofRules(processLife)),
    cdf("CPU time of processes", duration, ofRules((i) => p.cpu_ns[i])),
    cdf("Size of files", bytes, [{ name: "read", colour: "var(--read)", points: sizes(1) }, { name: "written", colour: "var(--write)", points: sizes(2) }]),
    cdf("Time of file calls" + all, duration, ops.map(spread)),
    cdf("Bytes of file calls" + all, bytes, calls.sizes.map((s) => ({ ...spread(s, 0), colour: s.op.startsWith("write") || s.op === "copy_to" ? "var(--write)" : "var(--read)" }))),
  ].filter(Boolean));
  if (!$("call-pictures").children.length) $("call-pictures").append(...pictures(block("pictures").calls));
  $("charts").hidden = !grid.children.length && !block("pictures").calls.length;
}
// Traffic between pairs of the busiest addresses.
function drawMatrix(flows) {
  const total = new Map(), cell = new Map();
  for (const flow of flows) {
    const n = flow.bytes || 0;
    for (const address of [flow.src, flow.dst]) total.set(address, (total.get(address) || 0) + n);
    const key = flow.src + "\u0000" + flow.dst;
    cell.set(key, (cell.get(key) || 0) + n);
  }
  const names = [...total].sort((a, b) => b[1] - a[1]).map(([address]) => address), shown = names.slice(0, 24), top = Math.max(1, ...cell.values());
  $("matrix").append(el("h3", {}, "Bytes of the flows begun by a row's address with a column's"), el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th"), shown.map((name) => el("th", { class: "n" }, el("button", { type: "button", tabindex: -1 }, name))))),
    el("tbody", {}, shown.map((a) => el("tr", {}, el("th", {}, el("button", { type: "button", tabindex: -1 }, a)), shown.map((b) => {
      const n = cell.get(a + "\u0000" + b) || 0;
      const strength = n ? 8 + 72 * Math.max(0, 1 - Math.log10(top / n) / 5) : 0;
      return el("td", { style: n ? `background: color-mix(in oklab, var(--accent) ${strength.toFixed(0)}%, var(--panel))` : null }, n ? bytes(n) : "");
    })))))), names.length > shown.length ? el("p", { class: "muted" }, `+${count(names.length - shown.length)} more addresses`) : null);
}
