// The strips below the timeline: areas over the same axis.

const STRIP = 46;

// {label, unit, top: the value at the upper edge, parts: [{name, colour, at(t): value}], line}
function strips() {
  if (strips.list) return strips.list;
  const list = [];
  for (const host of block("machine").hosts) {
    const of = block("machine").hosts.length > 1 && host.name ? " " + host.name : "";
    if (host.t_ns.length > 1 && host.cpu_user.length) {
      const cpu = [["in programs", "good", host.cpu_user], ["in the kernel", "warn", host.cpu_system]];
      list.push(strip("CPUs busy" + of, (n) => n.toFixed(1), host.t_ns, cpu, host.cpus));
    }
    host.disks.slice(0, 1).forEach((d) => list.push(strip(`disk ${d.name}${of}`, (n) => bytes(n) + "/s", host.t_ns,
      [["read", "read", d.inward], ["written", "write", d.outward]], null, ["busy", d.busy, percent])));
    host.interfaces.slice(0, 1).forEach((d) => list.push(strip(`network ${d.name}${of}`, (n) => bytes(n) + "/s", host.t_ns,
      [["received", "read", d.inward], ["sent", "write", d.outward]])));
    if (host.t_ns.length > 1 && host.memory_bytes && host.memory_available.length) {
      const used = host.memory_available.map((n) => host.memory_bytes - n);
      list.push(strip("memory used" + of, bytes, host.t_ns, [["used", "accent", used]], host.memory_bytes));
    }
  }
  const calls = block("calls"), over = calls.over_time;
  if (over.calls.length) {
    const t = over.calls.map((_, i) => i * calls.bin_ns), rate = (list) => list.map((n) => (n * 1e9) / calls.bin_ns);
    list.unshift(strip("file calls", (n) => bytes(n) + "/s", t, [["read", "read", rate(over.read_bytes)], ["written", "write", rate(over.write_bytes)]],
      null, ["calls", rate(over.calls), (n) => count(n) + "/s"]));
  }
  return (strips.list = list);
}
function strip(label, format, t, parts, limit, more) {
  return { label, format, t, limit, more, parts: parts.map(([name, colour, values]) => ({ name, colour, values })) };
}

function placeStrips(top) {
  const bars = block("bottlenecks").bars;
  T.limits = top;
  T.limitsHeight = bars.length ? bars.length * 15 + 24 : 0;
  strips().forEach((s, i) => { s.y = top + T.limitsHeight + i * (STRIP + 8); });
  return T.limitsHeight + strips().length * (STRIP + 8);
}

// Intervals in which a step or channel limited the run: a line for each.
function drawLimits(ctx) {
  const { bars, left_out } = block("bottlenecks");
  if (!bars.length) return;
  ctx.textAlign = "right";
  ctx.fillStyle = T.colours.text;
  ctx.fillText("limited by" + (left_out ? ` (+${count(left_out)} more)` : ""), T.left - 8, T.limits + 6);
  bars.forEach((bar, n) => {
    const y = T.limits + 16 + n * 15, on = bar.rule === null || isRuleShown(bar.rule);
    ctx.textAlign = "right";
    ctx.fillStyle = on ? T.colours.muted : T.colours.line;
    ctx.fillText(shorten(bar.name, 18) + " " + percent(bar.share), T.left - 8, y + 6);
    ctx.textAlign = "left";
    ctx.save();
    ctx.beginPath();
    ctx.rect(T.left, y - 1, T.width - T.left - T.right + 1, 15);
    ctx.clip();
    ctx.fillStyle = T.colours.faint;
    ctx.fillRect(T.left, y + 5, T.width, 1);
    ctx.fillStyle = !on ? T.colours.faint : bar.rule === null ? T.colours.pipe : ruleColours(bar.rule).strong;
    for (const [from, to] of bar.intervals) {
      const x = X(from), end = Math.max(X(to), x + 1);
      ctx.fillRect(x, y, end - x, 11);
      if (end - x > 60 && on) {
        ctx.save();
        ctx.fillStyle = isDark() ? "#111" : "#fff";
        ctx.font = "10.5px system-ui, sans-serif";
        const at = Math.max(x, T.left) + 4;
        ctx.fillText(fitted(ctx, bar.resource, end - at - 3), at, y + 6);
        ctx.restore();
      }
    }
    ctx.restore();
  });
}
function limitAt(y) {
  const n = Math.floor((y - T.limits - 16) / 15);
  return T.limitsHeight && n >= 0 ? block("bottlenecks").bars[n] : undefined;
}

// Value at the upper edge: the largest sum of the parts in sight.
function stripTop(s) {
  if (s.limit) return s.limit;
  const from = Math.max(0, lowerBound(s.t, T.from, (t) => t) - 1);
  let top = 0;
  for (let i = from; i < s.t.length && s.t[i] <= T.to; i++) top = Math.max(top, s.parts.reduce((a, part) => a + part.values[i], 0));
  return top || 1;
}

function drawStrips(ctx) {
  drawLimits(ctx);
  for (const s of strips()) {
    const top = stripTop(s), base = s.y + STRIP;
    ctx.textAlign = "right";
    ctx.fillStyle = T.colours.text;
    ctx.fillText(shorten(s.label, 28), T.left - 8, s.y + 12);
    ctx.fillStyle = T.colours.muted;
    ctx.fillText((s.limit ? "of " : "up to ") + s.format(top), T.left - 8, s.y + 28);
    let right = T.left - 8;
    for (const part of [...s.parts].reverse()) {
      ctx.fillStyle = T.colours[part.colour];
      ctx.fillText(part.name, right, s.y + 43);
      right -= ctx.measureText(part.name).width + 8;
    }
    ctx.textAlign = "left";
    ctx.save();
    ctx.beginPath();
    ctx.rect(T.left, s.y - 1, T.width - T.left - T.right + 1, STRIP + 2);
    ctx.clip();
    drawAreas(ctx, s, top, base);
    ctx.restore();
    ctx.strokeStyle = T.colours.line;
    ctx.beginPath();
    ctx.moveTo(T.left, base + 0.5);
    ctx.lineTo(T.width - T.right, base + 0.5);
    ctx.stroke();
  }
}
// Step functions, one on the other; the highest value within a pixel.
function drawAreas(ctx, s, top, base) {
  const start = Math.max(0, lowerBound(s.t, T.from, (t) => t) - 1), pixels = Math.ceil(T.width) + 1;
  const heights = s.parts.map(() => new Float32Array(pixels));
  for (let i = start; i < s.t.length && s.t[i] <= T.to; i++) {
    const end = i + 1 < s.t.length ? s.t[i + 1] : i ? s.t[i] + (s.t[i] - s.t[i - 1]) : runLength();
    const a = Math.max(0, Math.floor(X(s.t[i]))), b = Math.min(pixels - 1, Math.max(a + 1, Math.floor(X(end))));
    s.parts.forEach((part, n) => { for (let x = a; x < b; x++) heights[n][x] = Math.max(heights[n][x], part.values[i]); });
  }
  ctx.globalAlpha = 0.8;
  for (let x = T.left; x < T.width - T.right; x++) {
    let y = base;
    s.parts.forEach((part, n) => {
      const h = Math.min(y - s.y, (heights[n][x] / top) * STRIP);
      if (h <= 0) return;
      ctx.fillStyle = T.colours[part.colour];
      ctx.fillRect(x, y - h, 1, h);
      y -= h;
    });
  }
  ctx.globalAlpha = 1;
}

function stripTip(event, x, y) {
  const bar = limitAt(y);
  if (bar) {
    tip(event, bar.name, [["", bar.is_channel ? "a channel that was full" : "a step that kept the others waiting"], ["it lacked", bar.resource],
      ["for", `${duration(bar.ns)}, ${percent(bar.share)} of the run`], ["confidence", bar.confidence]]);
    return true;
  }
  const s = strips().find((s) => y >= s.y && y < s.y + STRIP + 8);
  if (!s || x < T.left || x > T.width - T.right) return false;
  const t = timeAt(x), i = Math.max(0, lowerBound(s.t, t + 1, (v) => v) - 1);
  if (!s.t.length) return false;
  const facts = s.parts.map((part) => [part.name, s.format(part.values[i])]);
  if (s.more && s.more[1].length) facts.push([s.more[0], s.more[2](s.more[1][i])]);
  tip(event, `${s.label} at ${axisTime(t, (T.to - T.from) / 100)}`, facts);
  return true;
}
