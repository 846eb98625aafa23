// Tables that sort and search, and show the heaviest rows first: "+K more" brings the others.

const PAGE = 25;

// options: host, columns: [{title, key(row), text(row), number, cell(row), hint}], rows: numbers,
// isShown(row), choose(row) → the selection, sort: [column, descending]
function makeTable(options) {
  const { host, columns } = options;
  let [sorted, descending] = options.sort || [0, false], most = PAGE, wanted = "";
  const body = el("tbody"), more = el("button", { type: "button", class: "more" }), note = el("span", { class: "muted" });
  const find = el("input", { type: "search", placeholder: "search this table", "aria-label": "Search this table" });
  const heads = columns.map((column, i) => el("th", { class: column.number ? "n" : null, scope: "col", title: column.hint },
    el("button", { type: "button", onclick: () => {
      descending = sorted === i ? !descending : !!column.number;
      sorted = i;
      draw();
    } }, column.title)));
  const text = (column, row) => String(column.text ? column.text(row) : column.key(row));
  function draw() {
    let rows = options.rows().filter((row) => options.isShown(row));
    const all = rows.length;
    if (wanted) rows = rows.filter((row) => columns.some((column) => !column.number && text(column, row).toLowerCase().includes(wanted)));
    const key = columns[sorted].key, sign = descending ? -1 : 1;
    const keyed = rows.map((row) => [key(row), row]);
    keyed.sort(([a, x], [b, y]) => {
      if (a === null || b === null) return (a === null) - (b === null) || x - y;
      return (a < b ? -sign : a > b ? sign : 0) || x - y;
    });
    heads.forEach((head, i) => {
      if (i === sorted) head.setAttribute("aria-sort", descending ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
      head.firstChild.textContent = columns[i].title + (i === sorted ? (descending ? " ↓" : " ↑") : "");
    });
    body.replaceChildren(...keyed.slice(0, most).map(([, row]) => line(row)));
    more.hidden = keyed.length <= most;
    more.textContent = `+${count(keyed.length - most)} more`;
    note.textContent = (all < options.rows().length || wanted ? `${count(keyed.length)} of ` : "") + many(options.rows().length, options.one, options.more) +
      (options.leftOut ? `, +${count(options.leftOut)} not in this file` : "");
  }
  function line(row) {
    const choose = () => { const what = options.choose && options.choose(row); if (what) select(what); };
    return el("tr", { tabindex: options.choose ? 0 : null, onclick: choose, onkeydown: (event) => { if (event.key === "Enter") choose(); },
      class: options.isChosen && options.isChosen(row) ? "chosen" : null },
    columns.map((column) => {
      const full = text(column, row);
      return el("td", { class: column.number ? "n" : null, title: full.length > 60 ? full : null }, column.cell ? column.cell(row) : full);
    }));
  }
  more.addEventListener("click", () => { most += 200; draw(); });
  find.addEventListener("input", () => { wanted = find.value.toLowerCase(); most = PAGE; draw(); });
  host.append(el("div", { class: "tools" }, find, note), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body)), more);
  onFilter(draw);
  draw();
}
const places = (n) => Array.from({ length: n }, (_, i) => i);
const number = (title, key, format, hint) => ({ title, key, text: (row) => format(key(row)), number: true, hint });

function stepLabel(rule) {
  return rule === null ? "(not known)" : [el("span", { class: "swatch", style: `background: ${ruleColours(rule).strong}` }), ruleName(rule)];
}
function tableOf(id) { return document.querySelector(`#${id} .table`); }
const isChosenRule = (rule) => !!filter.what && filter.what.kind === "rule" && filter.what.rule === rule;

function ruleTable() {
  const r = block("rules"), rows = places(r.name.length), total = sum(r.cpu_ns) || 1;
  const of = (column) => (row) => r[column][row], life = (at) => (row) => r.job_life_ns[row] && r.job_life_ns[row][at];
  const longest = Math.max(1, ...r.job_life_ns.map((box) => (box ? box[4] : 0)));
  makeTable({
    host: tableOf("rules"), one: "step", more: "steps", rows: () => rows, isShown: isRuleShown, sort: [4, true],
    choose: (rule) => ({ kind: "rule", rule }), isChosen: isChosenRule,
    columns: [
      { title: "step", key: of("name"), cell: stepLabel },
      number("executions", of("executions"), count), number("processes", of("processes"), dash(count), "whose last program it is"),
      number("failed", of("failed"), dash(count)),
      { ...number("CPU", of("cpu_ns"), dash(duration), "forks without exec included"),
        cell: (row) => [el("span", { class: "meter", style: `width: ${((r.cpu_ns[row] / total) * 70).toFixed(1)}px` }), dash(duration)(r.cpu_ns[row])] },
      number("life", of("life_ns"), duration, "summed over its programs, from exec to the next exec or the end, and its forks"),
      number("waited for CPU", of("run_queue_ns"), dash(duration)), number("storage", of("storage_ns"), dash(duration), "blocked on storage, all threads"),
      number("other waits", of("wait_ns"), dash(duration), "blocked on anything else, all threads"),
      number("read", of("read_bytes"), dash(bytes), "from files, pipes and sockets"), number("written", of("write_bytes"), dash(bytes)),
      number("peak memory", of("max_rss_bytes"), dash(bytes), "of one process"),
      number("jobs", of("jobs"), dash(count), "processes without the shells and managers that only started them"),
      number("median", (row) => life(2)(row) || 0, dash(duration), "life of a job"), number("longest", (row) => life(4)(row) || 0, dash(duration), "life of a job"),
      { title: "spread", key: life(4), text: () => "", cell: (row) => boxPlot(r.job_life_ns[row], longest), hint: "life of the jobs: least, quartiles, longest" },
    ],
  });
}

// A box plot on the axis from 0 to the longest of all.
function boxPlot(box, longest) {
  if (!box || box[0] === box[4]) return "";
  const W = 90, x = (ns) => (2 + ((W - 4) * ns) / longest).toFixed(1), width = (from, to) => Math.max(1, (to - from) * ((W - 4) / longest)).toFixed(1);
  const [least, low, middle, high, most] = box, line = (a, b, y, z) => svg("line", { x1: x(a), x2: x(b), y1: y, y2: z, stroke: "currentColor" });
  return svg("svg", { width: W, height: 14, role: "img", "aria-label": `from ${duration(least)} to ${duration(most)}, median ${duration(middle)}` },
    line(least, most, 7, 7), svg("rect", { x: x(low), y: 2, width: width(low, high), height: 10, fill: "var(--accent)", "fill-opacity": 0.5, stroke: "currentColor" }),
    line(middle, middle, 2, 12));
}

function pathTable() {
  const path = block("path"), rows = places(path.rules.length), of = (column) => (row) => path.rules[row][column];
  makeTable({
    host: tableOf("path"), one: "step on it", more: "steps on it", rows: () => rows, isShown: (row) => isRuleShown(path.rules[row].rule), sort: [2, true],
    choose: (row) => ({ kind: "rule", rule: path.rules[row].rule }), isChosen: (row) => isChosenRule(path.rules[row].rule),
    columns: [
      { title: "step", key: (row) => ruleName(path.rules[row].rule), cell: (row) => stepLabel(path.rules[row].rule) },
      number("processes on it", of("processes"), count),
      { ...number("time on it", of("ns"), duration), cell: (row) => [el("span", { class: "meter", style: `background: var(--bad); width: ${((path.rules[row].ns / path.length_ns) * 90).toFixed(1)}px` }), duration(path.rules[row].ns)] },
      number("share", (row) => path.rules[row].ns / (path.length_ns || 1), percent),
      number("less if it took half", (row) => path.length_ns - path.rules[row].halved_ns, dash(duration), "of the length of the path, waits as they were"),
    ],
  });
}

function fileTable() {
  const f = block("files"), rows = places(fileCount()), of = (column) => (row) => f[column][row];
  if (!rows.length) return hide("files");
  const use = (row) => [f.flags[row] & 4 ? "created" : f.flags[row] & 2 ? "written" : null, f.flags[row] & 1 ? "read" : null,
    f.flags[row] & 8 ? "opened" : null].filter(Boolean).join(", ");
  makeTable({
    host: tableOf("files"), one: "file", more: "files", rows: () => rows, isShown: isFileShown, leftOut: f.left_out, sort: [3, true],
    choose: (file) => ({ kind: "file", file }), isChosen: (file) => !!filter.what && filter.what.kind === "file" && filter.what.file === file,
    columns: [
      { title: "file", key: (row) => inRun(filePath(row)), cell: (row) => shortenPath(inRun(filePath(row)), 80) },
      { title: "use", key: use }, number("size", of("size_bytes"), bytes),
      number("read", of("read_bytes"), dash(bytes)), number("written", of("write_bytes"), dash(bytes)), number("calls", of("calls"), count),
    ],
  });
}

function callTable() {
  const calls = block("calls").by_op, rows = places(calls.length), of = (column) => (row) => calls[row][column];
  if (!rows.length) return hide("calls");
  makeTable({
    host: tableOf("calls"), one: "kind of call", more: "kinds of calls", rows: () => rows, sort: [5, true],
    isShown: (row) => calls[row].rule === null ? !filter.processes : isRuleShown(calls[row].rule),
    choose: (row) => (calls[row].rule === null ? null : { kind: "rule", rule: calls[row].rule }), isChosen: (row) => isChosenRule(calls[row].rule),
    columns: [
      { title: "step", key: (row) => ruleName(calls[row].rule), cell: (row) => stepLabel(calls[row].rule) },
      { title: "call", key: of("op") }, number("calls", of("calls"), count), number("failed", of("errors"), dash(count)),
      number("bytes", of("bytes"), dash(bytes)), number("time", of("ns"), duration, "from request to reply, summed"),
      number("mean", (row) => calls[row].ns / calls[row].calls, duration), number("longest", of("max_ns"), duration),
    ],
  });
}

function waitTable() {
  const waits = block("waits").waits, rows = places(waits.length);
  if (!rows.length) return hide("waits");
  $("waits").querySelector(".hint").prepend(`${block("waits").evidence}: `);
  makeTable({
    host: tableOf("waits"), one: "kind of wait", more: "kinds of waits", rows: () => rows, sort: [3, true], leftOut: block("waits").left_out,
    isShown: (row) => isRuleShown(waits[row].rule) || (waits[row].culprit !== null && isRuleShown(waits[row].culprit)),
    choose: (row) => ({ kind: "rule", rule: waits[row].rule }), isChosen: (row) => isChosenRule(waits[row].rule),
    columns: [
      { title: "step", key: (row) => ruleName(waits[row].rule), cell: (row) => stepLabel(waits[row].rule) },
      { title: "kind", key: (row) => waits[row].kind + (waits[row].channel ? ` (${waits[row].channel})` : "") },
      { title: "for", key: (row) => (waits[row].culprit === null ? "" : ruleName(waits[row].culprit)), cell: (row) => (waits[row].culprit === null ? "–" : stepLabel(waits[row].culprit)) },
      number("time", (row) => waits[row].ns, duration, "summed over the processes, as in flowtrace waits"),
      number("processes", (row) => waits[row].processes, count),
      number("waits", (row) => waits[row].waits, count),
    ],
  });
}

// Steps and pids of some processes, in few words.
function who(list) {
  const p = block("processes"), seen = new Map();
  for (const i of list) seen.set(p.rule[i], (seen.get(p.rule[i]) || 0) + 1);
  const names = [...seen].map(([rule, n]) => ruleName(rule) + (n > 1 ? ` ×${count(n)}` : list.length === 1 ? ` (${p.pid[list[0]]})` : ""));
  return names.slice(0, 4).join(", ") + (names.length > 4 ? `, +${names.length - 4} more` : "");
}
function channelTable() {
  const list = block("channels").channels, rows = places(list.length), all = (row) => [...list[row].writers, ...list[row].readers];
  if (!rows.length) return hide("channels");
  const label = (row) => `${list[row].kind} ${list[row].channel_id}`;
  // For a socket with data in both directions, the bytes that each process sent.
  const isBoth = (row) => list[row].writers.some((i) => list[row].readers.includes(i));
  const writer = (row) => !isBoth(row) ? who(list[row].writers) || "–"
    : list[row].writers.map((i, k) => who([i]) + (list[row].written_bytes[k] === null ? "" : ` ${bytes(list[row].written_bytes[k])}`)).join(", ");
  const reader = (row) => who(list[row].readers) || "–";
  makeTable({
    host: tableOf("channels"), one: "channel", more: "channels", rows: () => rows, leftOut: block("channels").left_out, sort: [4, true],
    isShown: (row) => !filter.processes || all(row).some(isShown),
    choose: (row) => ({ kind: "processes", processes: all(row), label: label(row) }),
    isChosen: (row) => !!filter.what && filter.what.kind === "processes" && filter.what.label === label(row),
    columns: [
      { title: "kind", key: (row) => list[row].kind }, { title: "name", key: (row) => list[row].name || String(list[row].channel_id) },
      { title: "written by", key: writer }, { title: "read by", key: reader },
      number("at most", (row) => list[row].at_most_bytes, bytes, "no more bytes than these went through it"),
      number("buffer", (row) => list[row].capacity_bytes, bytes),
    ],
  });
}

function flowTable() {
  const list = block("flows").flows, rows = places(list.length);
  drawNetwork();
  if (!rows.length) return;
  if (!block("network").nodes.length) drawMatrix(list);
  const side = (address, port) => (port === null ? address : address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);
  const ends = (row) => [list[row].src_process, list[row].dst_process].filter((i) => i !== null);
  const label = (row) => `flow ${list[row].flow_id}`;
  makeTable({
    host: tableOf("flows"), one: "flow", more: "flows", rows: () => rows, leftOut: block("flows").left_out, sort: [4, true],
    isShown: (row) => !filter.processes || ends(row).some(isShown),
    choose: (row) => (ends(row).length ? { kind: "processes", processes: ends(row), label: label(row) } : null),
    columns: [
      { title: "from", key: (row) => side(list[row].src, list[row].sport) }, { title: "to", key: (row) => side(list[row].dst, list[row].dport) },
      { title: "protocol", key: (row) => list[row].proto }, { title: "processes", key: (row) => who(ends(row)) || "–" },
      number("bytes", (row) => list[row].bytes, bytes, "payload, both directions"), number("packets", (row) => list[row].packets, count),
      number("begin", (row) => list[row].first_ns, sinceBegin),
      number("length", (row) => (list[row].last_ns === null ? null : list[row].last_ns - list[row].first_ns), duration),
    ],
  });
}
function hide(id) {
  $(id).hidden = true;
}
