// The machines of a cluster beside each other: their counters over time, what came of their samples, and how
// some differ from the others. Also pictures that the commands draw, as images, in which no script runs.

function pictures(list) {
  return list.map((p) => el("figure", { class: "picture" },
    el("img", { src: "data:image/svg+xml," + encodeURIComponent(p.svg), alt: p.command }),
    el("figcaption", { class: "muted" }, el("code", {}, `flowtrace ${p.command.replace(" ", " " + block("head").trace + " ")} --format svg`))));
}

// All are shown if there are few. Of many, those that are silent, cut short or different, and some others.
const FEW_NODES = 24, ODD_NODES = 40, OTHER_NODES = 6;
const N = { all: false };
// Where no node has its last totals, the recording was cut short, and none stands out for that.
const isOdd = (node) => node.state === "silent" || node.why.length > 0 || (node.state === "cut" && block("nodes").all.cut < block("nodes").all.nodes);
const perSecond = (n) => (n === null ? "?" : n ? bytes(n) + "/s" : "–");

// Lines over the same time, each value from its begin to its end; values are hundredths of the height, null where
// nothing is known.
function nodeChart(title, lines) {
  const path = ([colour, values]) => {
    const x = (i) => ((i * 100) / values.length).toFixed(1);
    let d = "", pen = "M";
    values.forEach((v, i) => {
      if (v === null) return void (pen = "M");
      d += `${pen}${x(i)},${(25 - v * 0.24).toFixed(1)}H${x(i + 1)}`;
      pen = "L";
    });
    return svg("path", { d, style: `stroke: var(--${colour})` });
  };
  return svg("svg", { viewBox: "0 0 100 26", preserveAspectRatio: "none", role: "img", "aria-label": title }, lines.map(path));
}

const PARTS = [["CPU", "good"], ["queue", "good"], ["memory", "warn"], ["disk in sequence", "read"], ["disk, other", "write"], ["network", "accent"]];
function nodeParts(parts) {
  if (!parts) return "?";
  const title = PARTS.map(([name], i) => (parts[i] > 0.0005 ? `${name} ${percent(parts[i])}` : null)).concat(`waiting ${percent(parts[6])}`).filter(Boolean).join(", ");
  return el("span", { class: "shares", title, role: "img", "aria-label": title },
    PARTS.map(([, colour], i) => el("i", { style: `width: ${(parts[i] * 100).toFixed(1)}%; background: var(--${colour})` })));
}

function nodeState(node) {
  const words = { reporting: "reports", ended: "ended", cut: "no last totals", recorded: "recorded itself" };
  return node.state === "silent" ? `silent ${duration(node.quiet_ns)}` : words[node.state];
}

function nodeRow(node, hasParts) {
  const w = node.watched, r = node.rates, lost = w ? w.sent - w.received : 0;
  const facts = [["CPUs", node.cpus], ["memory", node.memory_bytes === null ? null : bytes(node.memory_bytes)],
    ...(w ? [["samples a second", w.per_second.toFixed(1)], ["sent", count(w.sent)], ["sessions", count(w.sessions)], ["drift of its clock", (w.drift_ppb / 1000).toFixed(1) + " ppm"],
      ["last totals", w.is_final ? "exact" : "missing"]] : [])];
  const two = (chart, title, a, b) => [nodeChart(title, [["read", chart[0]], ["write", chart[1]]]), el("span", { class: "rates" }, el("span", {}, perSecond(a)), el("span", {}, perSecond(b)))];
  const state = node.state === "silent" ? "bad" : node.state === "cut" ? "warn" : null;
  return el("tr", { class: isOdd(node) ? "odd" : null },
    el("th", { scope: "row", onpointermove: (event) => tip(event, node.name, facts), onpointerleave: noTip }, node.name,
      node.why.length ? el("span", { class: "why" }, node.why.join(" · ")) : null),
    el("td", {}, nodeChart(`CPUs busy of ${node.name}`, [["good", node.cpu]]), el("span", { class: "rates" }, r.cpu === null ? "?" : percent(r.cpu))),
    el("td", {}, two(node.network, `network of ${node.name}`, r.net_in, r.net_out)),
    el("td", {}, two(node.disk, `disks of ${node.name}`, r.disk_read, r.disk_write)),
    hasParts ? el("td", {}, nodeParts(node.parts)) : null,
    el("td", { class: "n" }, w ? count(w.received) : "–"),
    el("td", { class: "n " + (lost ? "warn" : "") }, w ? dash((n) => `${count(n)} (${percent(n / w.sent)})`)(lost) : "–"),
    el("td", { class: "n" }, duration(node.clock_error_ns)),
    el("td", { class: state }, nodeState(node)));
}

// All machines in a line.
function nodesLine({ all, rate_ns }) {
  const states = [["report", all.reporting], ["silent", all.silent], ["ended", all.ended], ["without last totals", all.cut]];
  const r = all.rates, lost = all.sent - all.received, known = (text, ...values) => (values.every((v) => v === null) ? null : text);
  return [many(all.nodes, "node", "nodes") + (all.sent ? ": " + states.filter(([, n]) => n).map(([name, n]) => `${count(n)} ${name}`).join(", ") : ""),
    all.differing ? `${count(all.differing)} unlike the others` : null,
    r.cpu === null ? null : `${percent(r.cpu)} of the CPUs busy`,
    known(`network ${perSecond(r.net_in)} in, ${perSecond(r.net_out)} out`, r.net_in, r.net_out),
    known(`disks ${perSecond(r.disk_read)} read, ${perSecond(r.disk_write)} written`, r.disk_read, r.disk_write),
    all.sent ? `${all.samples_per_second.toFixed(1)} samples a second, ${lost ? `${count(lost)} of ${count(all.sent)} lost (${percent(lost / all.sent)})` : `none of ${count(all.sent)} lost`}` : null,
    all.clock_error_ns === null ? null : `clocks within ${duration(all.clock_error_ns)}`,
    rate_ns === null ? "rates are means over the whole recording" : `rates are means over ${duration(rate_ns)}`].filter(Boolean).join(" · ");
}

function drawNodes() {
  const nodes = block("nodes"), where = $("nodes-view"), odd = nodes.rows.filter(isOdd).length;
  $("nodes").hidden = !nodes.rows.length;
  if (!nodes.rows.length) return;
  const few = nodes.rows.length <= FEW_NODES ? nodes.rows.length : Math.min(odd, ODD_NODES) + OTHER_NODES;
  const shown = N.all ? nodes.rows.length : few, hasParts = nodes.rows.some((node) => node.parts);
  const head = [["node"], ["CPU", "share of its CPUs that were busy"], ["network", "came, and went, each second; all charts have one axis"], ["disk", "read, and written, each second; all charts have one axis"],
    hasParts ? ["time by resource", "as flowtrace resources"] : null, ["samples", "that came in time", "n"], ["lost", "samples that were sent and did not come", "n"],
    ["clock ±", "bound of the error of its times", "n"], ["state"]].filter(Boolean);
  const scroll = where.querySelector(".scroll"), left = scroll ? scroll.scrollLeft : 0;
  const now = el("div", { class: "scroll nodes" }, el("table", {},
    el("thead", {}, el("tr", {}, head.map(([name, title, kind]) => el("th", { scope: "col", class: kind, title }, el("span", { class: "head" }, name))))),
    el("tbody", {}, nodes.rows.slice(0, shown).map((node) => nodeRow(node, hasParts)))));
  const rest = nodes.rows.length - few;
  const fold = () => { N.all = !N.all; drawNodes(); };
  const legend = nodes.to_ns <= nodes.from_ns ? [] : [["read", `received, read: networks up to ${perSecond(nodes.network_top)}, disks up to ${perSecond(nodes.disk_top)}`], ["write", "sent, written"],
    ["good", `CPUs busy, up to 100 %; from left to right ${duration(nodes.to_ns - nodes.from_ns)}`], ...(hasParts ? PARTS.slice(2).map(([name, colour]) => [colour, name]) : [])];
  where.replaceChildren(el("p", { id: "nodes-line" }, nodesLine(nodes)), now,
    rest > 0 ? el("button", { type: "button", class: "more", onclick: fold }, N.all ? `hide ${count(rest)}` : `+${count(rest)} more`) : "",
    nodes.left_out ? el("p", { class: "muted" }, `+${count(nodes.left_out)} more nodes, in the sums only`) : "",
    el("div", { class: "legend" }, legend.map(([colour, name]) => el("span", {}, el("span", { class: "swatch", style: `background: var(--${colour})` }), name))));
  now.scrollLeft = left;
}
