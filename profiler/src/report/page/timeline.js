// The timeline: a row for each step, its processes as bars on as few lanes as they need, and below, on the
// same axis and the same canvas, the counters of the machine.

const REST = 22; // height of the area of those that are not drawn one by one
const T = {
  left: 190, right: 14, top: 26, gap: 3, most: 16, from: 0, to: 1, width: 0, height: 0,
  rows: [], areas: [], open: new Set(), all: false, drag: null, hover: null, row: -1,
};

// Lanes of a step: each bar goes to the lane with the smallest number that is free.
function lanesOf(list, bars) {
  const lanes = [], busy = [], free = []; // heaps: [end, lane], lane
  const push = (heap, item, less) => {
    let i = heap.push(item) - 1;
    while (i > 0 && less(heap[i], heap[(i - 1) >> 1])) {
      const up = (i - 1) >> 1;
      [heap[i], heap[up]] = [heap[up], heap[i]];
      i = up;
    }
  };
  const pop = (heap, less) => {
    const first = heap[0], last = heap.pop();
    if (heap.length) {
      heap[0] = last;
      for (let i = 0; ;) {
        let small = i;
        for (const child of [2 * i + 1, 2 * i + 2]) if (child < heap.length && less(heap[child], heap[small])) small = child;
        if (small === i) break;
        [heap[i], heap[small]] = [heap[small], heap[i]];
        i = small;
      }
    }
    return first;
  };
  const sooner = (a, b) => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]), lower = (a, b) => a < b;
  for (const bar of list) {
    while (busy.length && busy[0][0] <= bars.start_ns[bar]) push(free, pop(busy, sooner)[1], lower);
    const lane = free.length ? pop(free, lower) : lanes.push([]) - 1;
    lanes[lane].push(bar);
    push(busy, [Math.max(bars.end_ns[bar], bars.start_ns[bar] + 1), lane], sooner);
  }
  return lanes;
}

function buildRows() {
  const bars = block("processes").bars, byRule = block("rules").name.map(() => []);
  bars.rule.forEach((rule, bar) => byRule[rule].push(bar));
  const byStart = (a, b) => bars.start_ns[a] - bars.start_ns[b] || a - b;
  let rows = [];
  byRule.forEach((list, rule) => {
    if (!list.length) return;
    list.sort(byStart);
    const life = list.reduce((a, bar) => a + bars.end_ns[bar] - bars.start_ns[bar], 0);
    rows.push({ rules: [rule], list, life, first: bars.start_ns[list[0]] });
  });
  const out = block("processes").left_out;
  const isMinor = (row) => minorRules()[row.rules[0]];
  rows.sort((a, b) => isMinor(a) - isMinor(b) || b.life - a.life);
  const most = Math.min(T.most, rows.filter((row) => !isMinor(row)).length || T.most);
  T.folded = Math.max(0, rows.length - most);
  if (!T.all && rows.length > most + 1) {
    const rest = rows.splice(most);
    const list = rest.flatMap((row) => row.list).sort(byStart);
    rows.sort((a, b) => a.first - b.first);
    rows.push({ rules: rest.map((row) => row.rules[0]), list, first: Infinity });
  } else {
    rows.sort((a, b) => a.first - b.first);
  }
  for (const row of rows) {
    row.out = sum(row.rules.map((rule) => out[rule] || 0));
    row.rest = restOf(row.rules);
  }
  const known = new Map(T.rows.map((row) => [row.rules.join(), row.lanes]));
  for (const row of rows) row.lanes = known.get(row.rules.join()) || lanesOf(row.list, bars);
  T.rows = rows;
}

// Number of processes in each interval that are not drawn one by one; null: none.
function restOf(rules) {
  const living = block("processes").rest.living, lists = rules.map((rule) => living[rule]).filter(Boolean);
  return lists.length ? lists[0].map((_, bin) => sum(lists.map((list) => list[bin]))) : null;
}

// Heights, from top to bottom; a step has at most 40 pixels until it is opened.
function placeRows() {
  const hasPath = block("path").steps.process.length > 0;
  let y = T.top + (hasPath ? 20 : 0);
  T.path = hasPath ? T.top - 1 : null;
  for (const row of T.rows) {
    const n = row.lanes.length;
    row.open = T.open.has(row.rules.join());
    row.lane = row.open ? Math.max(1.5, Math.min(15, 1500 / n)) : n === 1 ? 14 : n === 2 ? 10 : Math.min(8, 40 / n);
    row.bars = Math.max(14, Math.ceil(row.lane * n));
    row.h = row.bars + (row.rest ? REST + 2 : 0);
    row.y = y;
    y += row.h + T.gap;
  }
  T.areasTop = y + 8;
  T.height = T.areasTop + placeStrips(T.areasTop) + 6;
}

const X = (ns) => T.left + ((ns - T.from) / (T.to - T.from)) * (T.width - T.left - T.right);
const timeAt = (x) => T.from + ((x - T.left) / (T.width - T.left - T.right)) * (T.to - T.from);

function sizeCanvas(canvas) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(T.width * ratio);
  canvas.height = Math.round(T.height * ratio);
  canvas.style.width = T.width + "px";
  canvas.style.height = T.height + "px";
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}

function drawTimeline() {
  T.width = $("lanes").clientWidth;
  placeRows();
  const ctx = sizeCanvas($("lanes-base"));
  sizeCanvas($("lanes-over"));
  T.colours = Object.fromEntries(["text", "muted", "faint", "line", "bad", "read", "write", "accent", "warn", "good", "panel", "pipe"].map((n) => [n, colour(n)]));
  ctx.font = "12px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  drawAxis(ctx);
  ctx.save();
  ctx.beginPath();
  ctx.rect(T.left, 0, T.width - T.left - T.right + 1, T.height);
  ctx.clip();
  for (const row of T.rows) drawRow(ctx, row);
  if (T.path !== null) drawPath(ctx);
  ctx.restore();
  for (const row of T.rows) drawLabel(ctx, row);
  if (T.path !== null) {
    ctx.textAlign = "right";
    ctx.fillStyle = T.colours.bad;
    ctx.fillText("critical path", T.left - 8, T.path + 6);
    ctx.textAlign = "left";
  }
  drawStrips(ctx);
  drawOver();
}

function drawAxis(ctx) {
  const step = niceStep(T.to - T.from, Math.max(2, (T.width - T.left) / 110));
  ctx.strokeStyle = T.colours.faint;
  ctx.fillStyle = T.colours.muted;
  ctx.textAlign = "center";
  const zero = runBegins();
  for (let t = zero + Math.ceil((T.from - zero) / step) * step; t <= T.to; t += step) {
    const x = Math.round(X(t)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, T.top - 6);
    ctx.lineTo(x, T.height - 4);
    ctx.stroke();
    ctx.fillText(axisTime(t - zero, step), Math.min(x, T.width - 24), 11);
  }
  ctx.textAlign = "left";
}
// A time with as many digits as the distance of two ticks needs.
function axisTime(ns, step) {
  if (ns === 0) return "0";
  if (step >= 60e9) return duration(ns);
  const unit = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9));
  return (ns / unit[0]).toFixed(digits) + " " + unit[1];
}

// Processes that are not drawn one by one, as an area: number of them at each time.
function drawRest(ctx, row) {
  const width = block("processes").rest.bin_ns, top = extremes(row.rest)[1] || 1, base = row.y + row.h;
  const shown = row.rules.some(isRuleShown);
  ctx.fillStyle = shown ? ruleColours(row.rules[0]).pale : T.colours.faint;
  ctx.beginPath();
  ctx.moveTo(X(0), base);
  row.rest.forEach((n, bin) => {
    const y = base - (n / top) * REST;
    ctx.lineTo(X(bin * width), y);
    ctx.lineTo(X((bin + 1) * width), y);
  });
  ctx.lineTo(X(row.rest.length * width), base);
  ctx.fill();
  ctx.fillStyle = T.colours.muted;
  ctx.font = "10.5px system-ui, sans-serif";
  ctx.fillText(`+${count(row.out)} shorter, at most ${count(top)} at once`, Math.max(X(0), T.left) + 4, base - REST / 2);
  ctx.font = "12px system-ui, sans-serif";
}

function drawRow(ctx, row) {
  if (row.rest) drawRest(ctx, row);
  const p = block("processes"), bars = p.bars, thick = row.lane >= 5;
  const colours = new Map(row.rules.map((rule) => [rule, ruleColours(rule)]));
  row.lanes.forEach((lane, n) => {
    const y = row.y + n * row.lane, h = Math.max(0.8, row.lane - (row.lane > 3 ? 1 : 0));
    let reached = -1, at = lowerBound(lane, T.from, (bar) => bars.end_ns[bar]);
    for (; at < lane.length; at++) {
      const bar = lane[at];
      if (bars.start_ns[bar] > T.to) break;
      const x = X(bars.start_ns[bar]), end = Math.max(X(bars.end_ns[bar]), x + 1);
      if (end <= reached + 0.4) continue; // this pixel is painted already
      reached = end;
      const i = bars.process[bar], shown = isShown(i) && (T.folded || row.rules.length > 1 || isRuleShown(bars.rule[bar]));
      const c = colours.get(bars.rule[bar]), life = bars.end_ns[bar] - bars.start_ns[bar];
      ctx.fillStyle = shown ? c.pale : T.colours.faint;
      ctx.fillRect(x, y, end - x, h);
      if (!shown) continue;
      const share = bars.cpu_ns[bar] === null || !life ? 0 : Math.min(1, bars.cpu_ns[bar] / life);
      ctx.fillStyle = c.strong;
      if (thick) ctx.fillRect(x, y + h * (1 - share), end - x, h * share);
      else if (share > 0.5) ctx.fillRect(x, y, end - x, h);
      if (hasFailed(i)) {
        ctx.fillStyle = T.colours.bad;
        ctx.fillRect(Math.max(x, end - 2.5), y, Math.min(2.5, end - x), h);
      }
      if (row.lane >= 12 && end - x > 70) {
        const at = Math.max(x, T.left) + 4;
        ctx.save();
        ctx.beginPath();
        ctx.rect(x, y, end - x - 3, h);
        ctx.clip();
        ctx.fillStyle = c.text;
        ctx.fillText(fitted(ctx, shorten(processCommand(i), 200), end - at - 3), at, y + h / 2 + 0.5);
        ctx.restore();
      }
    }
  });
}

// The critical path: one lane, each stretch in the colour of its step over a red line.
function drawPath(ctx) {
  const s = block("path").steps;
  let reached = -1;
  for (let i = 0; i < s.rule.length; i++) {
    if (s.to_ns[i] < T.from || s.from_ns[i] > T.to) continue;
    const x = X(s.from_ns[i]), end = Math.max(X(s.to_ns[i]), x + 0.8);
    if (end <= reached + 0.3) continue;
    reached = end;
    const shown = s.process[i] === null || isShown(s.process[i]), c = ruleColours(s.rule[i]);
    ctx.fillStyle = !shown ? T.colours.faint : s.kind[i] === 0 ? c.strong : c.pale;
    ctx.fillRect(x, T.path, end - x, 11);
    const name = ruleName(s.rule[i]);
    if (end - x > 34) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(x, T.path - 2, end - x - 3, 15);
      ctx.clip();
      ctx.font = "10.5px system-ui, sans-serif";
      ctx.fillStyle = shown && s.kind[i] === 0 && !isDark() ? "#fff" : T.colours.text;
      if (isDark() && shown && s.kind[i] === 0) ctx.fillStyle = "#111";
      const at = Math.max(x, T.left) + 4;
      ctx.fillText(fitted(ctx, name, end - at - 3), at, T.path + 6);
      ctx.restore();
    }
  }
  ctx.fillStyle = T.colours.bad;
  const from = X(block("path").start_ns);
  ctx.fillRect(from, T.path + 11, X(block("path").end_ns) - from, 2);
}

function drawLabel(ctx, row) {
  const y = row.y + Math.min(row.h, 40) / 2, one = row.rules.length === 1;
  const name = one ? ruleName(row.rules[0]) : `+${row.rules.length} more steps`;
  const chosen = filter.what && filter.what.kind === "rule" && one && filter.what.rule === row.rules[0];
  ctx.textAlign = "right";
  ctx.fillStyle = T.colours.muted;
  let right = T.left - 8;
  if (row.lanes.length > 2) {
    ctx.fillText(row.open ? "▾" : "▸", right, y);
    right -= 13;
  }
  if (row.list.length + row.out > 1) {
    const text = "×" + count(row.list.length + row.out);
    ctx.fillText(text, right, y);
    right -= ctx.measureText(text).width + 6;
  }
  ctx.fillStyle = chosen ? T.colours.accent : one && !isRuleShown(row.rules[0]) ? T.colours.muted : T.colours.text;
  if (chosen) ctx.font = "bold 12px system-ui, sans-serif";
  ctx.fillText(fitted(ctx, name, right - 8), right, y);
  ctx.font = "12px system-ui, sans-serif";
  ctx.textAlign = "left";
}

// The item at a point: a bar, a label, or a strip.
function hit(x, y) {
  if (T.path !== null && y >= T.path - 2 && y < T.path + 16) {
    const s = block("path").steps, t = timeAt(x);
    return { path: x < T.left ? -1 : s.to_ns.findIndex((end, i) => end >= t && s.from_ns[i] <= t) };
  }
  if (limitAt(y)) return { limit: limitAt(y) };
  const row = T.rows.find((r) => y >= r.y && y < r.y + r.h + T.gap);
  if (!row) return null;
  if (x < T.left) return { row, knob: x > T.left - 22 && row.lanes.length > 2 };
  if (row.rest && y >= row.y + row.bars) return { row, rest: true };
  const lane = row.lanes[Math.min(row.lanes.length - 1, Math.floor((y - row.y) / row.lane))];
  const bars = block("processes").bars, near = ((T.to - T.from) / (T.width - T.left - T.right)) * 2;
  const t = timeAt(x), at = lowerBound(lane, t - near, (bar) => bars.end_ns[bar]);
  return at < lane.length && bars.start_ns[lane[at]] <= t + near ? { row, bar: lane[at] } : { row };
}

function drawOver() {
  const canvas = $("lanes-over"), ctx = canvas.getContext("2d");
  ctx.clearRect(0, 0, T.width, T.height);
  if (T.drag && T.drag.moved) {
    const [a, b] = [T.drag.from, T.drag.x].sort((m, n) => m - n);
    ctx.globalAlpha = 0.18;
    ctx.fillStyle = T.colours.accent;
    ctx.fillRect(Math.max(a, T.left), T.top - 6, Math.min(b, T.width - T.right) - Math.max(a, T.left), T.height);
    ctx.globalAlpha = 1;
  } else if (T.hover !== null && T.hover >= T.left && T.hover <= T.width - T.right) {
    ctx.strokeStyle = T.colours.muted;
    ctx.beginPath();
    ctx.moveTo(Math.round(T.hover) + 0.5, T.top - 6);
    ctx.lineTo(Math.round(T.hover) + 0.5, T.height - 4);
    ctx.stroke();
  }
  if (T.row >= 0 && T.rows[T.row] && document.activeElement === canvas) {
    const row = T.rows[T.row];
    ctx.strokeStyle = T.colours.accent;
    ctx.strokeRect(1.5, row.y - 1.5, T.width - 3, row.h + 3);
  }
}

function zoomTo(from, to) {
  const first = runBegins(), length = Math.max(1, runLength() - first), least = Math.min(1000, length);
  const span = Math.min(Math.max(to - from, least), length);
  const middle = (from + to) / 2;
  T.from = Math.min(Math.max(first, middle - span / 2), first + length - span);
  T.to = T.from + span;
  requestAnimationFrame(drawTimeline);
}
function zoomBy(factor, at) {
  const middle = at === undefined ? (T.from + T.to) / 2 : at;
  zoomTo(middle - (middle - T.from) * factor, middle + (T.to - middle) * factor);
}
function pan(share) {
  const step = (T.to - T.from) * share;
  zoomTo(T.from + step, T.to + step);
}
function zoomToSelection() {
  const bars = block("processes").bars;
  let from = Infinity, to = -Infinity;
  bars.process.forEach((i, bar) => {
    if (!isShown(i)) return;
    from = Math.min(from, bars.start_ns[bar]);
    to = Math.max(to, bars.end_ns[bar]);
  });
  if (from < to) zoomTo(from - (to - from) * 0.03, to + (to - from) * 0.03);
}

function listenTimeline() {
  const over = $("lanes-over"), button = (label, title, action) => el("button", { type: "button", title, "aria-label": title, onclick: action }, label);
  T.from = runBegins();
  T.to = Math.max(runLength(), T.from + 1);
  buildRows();
  $("timeline-tools").append(
    button("+", "closer", () => zoomBy(0.5)), button("−", "farther", () => zoomBy(2)), button("all", "the whole run", () => zoomTo(0, runLength())),
    button("selection", "zoom to what is selected", zoomToSelection));
  if (block("path").steps.process.length) $("timeline-tools").append(button("critical path", "select the processes on it", () => select(pathChoice())));
  if (T.folded > 1) {
    const all = button(`all ${T.rows.length - 1 + T.rows[T.rows.length - 1].rules.length} steps`, "a row for every step", () => {
      T.all = !T.all;
      all.setAttribute("aria-pressed", T.all);
      buildRows();
      drawTimeline();
    });
    $("timeline-tools").append(all);
  }
  const left = sum(Object.values(block("processes").left_out));
  if (left) $("timeline-tools").append(el("span", { class: "muted" }, `+${count(left)} shorter processes are drawn as areas`));
  const place = (event) => {
    const box = over.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  over.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    T.hover = x;
    if (T.drag) {
      T.drag.x = x;
      T.drag.moved = T.drag.moved || Math.abs(x - T.drag.from) > 4;
      noTip();
    } else {
      hoverTip(event, x, y);
    }
    drawOver();
  });
  over.addEventListener("pointerleave", () => { T.hover = null; noTip(); drawOver(); });
  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [x] = place(event);
    T.drag = { from: x, x, moved: false };
    over.setPointerCapture(event.pointerId);
  });
  over.addEventListener("pointerup", (event) => {
    const drag = T.drag, [x, y] = place(event);
    T.drag = null;
    if (!drag) return;
    if (drag.moved) {
      const [a, b] = [timeAt(drag.from), timeAt(x)].sort((m, n) => m - n);
      return zoomTo(Math.max(0, a), b);
    }
    clickAt(hit(x, y));
  });
  over.addEventListener("dblclick", () => zoomTo(0, runLength()));
  over.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoomBy(Math.exp(event.deltaY * 0.003), timeAt(place(event)[0]));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 1000);
    else return;
    event.preventDefault();
  }, { passive: false });
  over.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2),
      "0": () => zoomTo(0, runLength()), ArrowUp: () => { T.row = Math.max(0, T.row - 1); drawOver(); },
      ArrowDown: () => { T.row = Math.min(T.rows.length - 1, T.row + 1); drawOver(); },
      Enter: () => T.row >= 0 && clickAt({ row: T.rows[T.row] }), " ": () => T.row >= 0 && clickAt({ row: T.rows[T.row], knob: true }),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
  over.addEventListener("focus", drawOver);
  over.addEventListener("blur", drawOver);
}
function clickAt(what) {
  if (!what) return;
  const { row, bar, knob, path, limit } = what;
  if (limit) return limit.rule === null ? undefined : select({ kind: "rule", rule: limit.rule });
  if (path !== undefined) {
    const process = path < 0 ? null : block("path").steps.process[path];
    select(process === null ? pathChoice() : { kind: "process", process });
  } else if (knob || (bar === undefined && row.rules.length > 1)) {
    const key = row.rules.join();
    if (!T.open.delete(key)) T.open.add(key);
    drawTimeline();
  } else if (bar !== undefined) {
    select({ kind: "process", process: block("processes").bars.process[bar] });
  } else {
    select({ kind: "rule", rule: row.rules[0] });
  }
}
function hoverTip(event, x, y) {
  const what = hit(x, y), bars = block("processes").bars;
  if (what && what.bar !== undefined) {
    const i = bars.process[what.bar], rule = bars.rule[what.bar];
    const facts = processFacts(i);
    // An image that an exec replaced has its own name and times.
    if (rule !== block("processes").rule[i]) facts.unshift(["as", `${ruleName(rule)} for ${duration(bars.end_ns[what.bar] - bars.start_ns[what.bar])}`]);
    return tip(event, processCommand(i), facts);
  }
  if (what && what.rest) {
    const at = Math.floor(timeAt(x) / block("processes").rest.bin_ns);
    return tip(event, what.row.rules.length > 1 ? "shorter processes" : ruleName(what.row.rules[0]), [["not drawn one by one", count(what.row.out)], ["of them living here", digits(what.row.rest[at] || 0)]]);
  }
  if (what && what.path !== undefined) {
    const s = block("path").steps, i = what.path;
    if (i < 0) return tip(event, "critical path", [["length", duration(block("path").length_ns)], ["", "click selects it"]]);
    const how = ["worked", "woke late, or the cause is not known", "had not begun", "was stopped (SIGSTOP or Ctrl-Z)"][s.kind[i]];
    return tip(event, s.process[i] === null ? ruleName(s.rule[i]) : processCommand(s.process[i]), [["step", ruleName(s.rule[i])], ["on the path for", duration(s.to_ns[i] - s.from_ns[i])], ["it", how]]);
  }
  if (what && what.row && x < T.left) {
    const rules = block("rules"), rule = what.row.rules[0];
    if (what.row.rules.length > 1) return tip(event, `${what.row.rules.length} steps`, [["", what.row.rules.slice(0, 12).map(ruleName).join(", ") + (what.row.rules.length > 12 ? `, +${what.row.rules.length - 12} more` : "")], ["", "click opens"]]);
    return tip(event, ruleName(rule), [["processes", count(rules.processes[rule])], ["CPU", duration(rules.cpu_ns[rule])],
      ["life, summed", duration(rules.life_ns[rule])], ["at once at most", count(what.row.lanes.length)]]);
  }
  return stripTip(event, x, y) || noTip();
}
