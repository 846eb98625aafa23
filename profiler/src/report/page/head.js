// The verdict, the key figures, and the gaps in coverage.

function drawHead() {
  const head = block("head"), f = head.facts;
  const { action } = block("bottlenecks").verdict;
  $("headline").textContent = unbroken(action || head.headline);
  const when = head.started_unix_ns ? new Date(head.started_unix_ns / 1e6).toISOString().slice(0, 19).replace("T", " ") + " UTC" : null;
  const machine = head.hosts.map((h) => [h.name, h.cpus && h.cpus + " CPUs", h.memory_bytes && bytes(h.memory_bytes)].filter(Boolean).join(", "));
  $("where").textContent = [action && head.headline, when, machine.slice(0, 3).join("; ") + (machine.length > 3 ? `; +${machine.length - 3} more` : ""),
    head.cwd && "in " + head.cwd, "trace " + head.trace].filter(Boolean).join(" · ");
  for (const [name, text, kind] of verdict()) {
    $("lines").append(el("li", { class: kind }, el("b", {}, unbroken(name)), el("span", {}, unbroken(text))));
  }
  drawFindings();
  for (const [value, label, kind, title] of tiles()) {
    $("tiles").append(el("div", { class: "tile", title }, el("strong", { class: kind }, value), el("span", {}, label)));
  }
}

// Possible changes, the greatest gain first: the findings of `flowtrace summary`.
function drawFindings() {
  const { findings } = block("bottlenecks").verdict, length = facts().duration_ns || 1, trace = block("head").trace;
  $("findings").hidden = !findings.length;
  for (const finding of findings) {
    const rule = finding.step === null ? -1 : block("rules").name.indexOf(finding.step);
    const title = el("button", { type: "button", class: "link", disabled: rule < 0, title: rule < 0 ? null : "select the step",
      onclick: () => rule >= 0 && select({ kind: "rule", rule }) }, unbroken(finding.title));
    $("findings").append(el("li", {},
      el("strong", {}, `up to ${duration(finding.saving_ns)}`), el("span", { class: "share" }, percent(finding.saving_ns / length)),
      el("div", {}, title, el("p", { class: "muted" }, unbroken(finding.evidence), ` · confidence ${finding.confidence} · `, el("code", {}, `flowtrace ${finding.command} ${trace}`)))));
  }
}

// Lines with a name, a text, and a severity.
function verdict() {
  const f = facts(), rules = block("rules"), lines = [];
  if (f.is_incomplete) lines.push(["incomplete", "rows are missing that could not be stored: every count is a lower bound", "bad"]);
  if (f.failures.length) {
    const named = f.failures.slice(0, 4).map((x) => `${x.rule} ${x.ending}` + (x.count > 1 ? ` ×${count(x.count)}` : ""));
    const more = sum(f.failures.slice(4).map((x) => x.count));
    lines.push(["failed", `${count(sum(f.failures.map((x) => x.count)))} of ${many(f.processes, "process", "processes")}: ` +
      named.join(" · ") + (more ? ` · +${count(more)} more` : ""), "warn"]);
  }
  const limits = block("bottlenecks"), why = limits.verdict.why || (limits.bars.length ? limits.answer : null);
  // A finding says it below.
  if (why && !limits.verdict.findings.some((one) => one.title === why)) lines.push([`why ${duration(f.duration_ns)}`, why]);
  if (limits.verdict.bottleneck) lines.push(["bottleneck", limits.verdict.bottleneck]);
  lines.push(...pathLine());
  if (limits.verdict.hot) lines.push(["on CPU", limits.verdict.hot]);
  const cpu = sum(rules.cpu_ns), heavy = rules.name.map((name, i) => i).filter((i) => rules.cpu_ns[i] > 0 && rules.cpu_ns[i] >= cpu / 100);
  if (heavy.length) {
    const named = heavy.slice(0, 5).map((i) => `${rules.name[i]}${rules.processes[i] > 1 ? " ×" + count(rules.processes[i]) : ""} ` +
      `${duration(rules.cpu_ns[i])} cpu (${percent(rules.cpu_ns[i] / cpu)})`);
    lines.push(["most time", named.join(" · ") + (heavy.length > 5 ? ` · +${heavy.length - 5} more` : "")]);
  }
  const waits = block("waits").waits.filter((w) => w.culprit !== null && w.channel !== null && !w.is_orchestrator && w.ns > f.duration_ns / 20).slice(0, 3);
  if (waits.length) {
    lines.push(["waiting", waits.map((w) => `${ruleName(w.rule)} waited ${duration(w.ns)} for ${ruleName(w.culprit)}`).join(" · ")]);
  }
  if (f.never_read_bytes > 0) {
    const kinds = f.never_read.slice(0, 3).map((k) => `${countedFiles(inRun(k.pattern), k.files)} ${bytes(k.bytes)}`);
    lines.push(["unread", `${bytes(f.never_read_bytes)} in ${many(f.never_read_files, "file", "files")} written and never read: ` +
      kinds.join(" · ") + (f.never_read.length > 3 ? ` · +${f.never_read.length - 3} more` : "")]);
  }
  return lines;
}

// The critical path, and the gain of a change to it.
function pathLine() {
  const path = block("path"), shares = path.rules.filter((s) => s.ns >= path.length_ns / 50).slice(0, 5);
  if (!shares.length) return [];
  const named = shares.map((s) => `${ruleName(s.rule)}${s.processes > 1 ? " ×" + count(s.processes) : ""} ${duration(s.ns)} (${percent(s.ns / path.length_ns)})`);
  const more = path.rules.length - shares.length, lines = [["critical path", `${duration(path.length_ns)}: ${named.join(" · ")}${more > 0 ? ` · +${more} more` : ""}`]];
  // A program that runs others cannot take half its time: only the processes that it waits for can.
  const best = path.rules.filter((s) => !block("rules").is_runner[s.rule]).sort((a, b) => a.halved_ns - b.halved_ns)[0];
  const gain = best ? path.length_ns - best.halved_ns : 0;
  if (gain > path.length_ns / 50) {
    lines.push(["would help", `${ruleName(best.rule)} in half its time: ${duration(gain)} (${percent(gain / path.length_ns)}) less` +
      (path.by_data_alone_ns < path.length_ns * 0.95 ? ` · lower bound ${duration(path.by_data_alone_ns)} (unlimited cores, data dependencies only)` : "")]);
  }
  return lines;
}

function tiles() {
  const f = facts(), rules = block("rules"), cpus = sum(block("head").hosts.map((h) => h.cpus));
  const cpu = sum(rules.cpu_ns), failed = sum(rules.failed);
  const lost = f.losses.filter((loss) => loss.severity !== "info");
  const worst = lost.some((loss) => loss.severity === "error" || loss.severity === "data_loss");
  return [
    [duration(f.duration_ns), "duration"],
    [count(f.processes), `processes, ${count(f.execs)} execs`],
    failed ? [count(failed), "of them failed", "bad"] : null,
    [duration(cpu), cpus ? `CPU time, ${percent(cpu / (f.duration_ns * cpus || 1))} of ${many(cpus, "CPU", "CPUs")}` : "CPU time",
      null, "of traced processes; what they did not use may have gone to other programs"],
    f.file_calls ? [bytes(f.data.read_bytes), `read in ${count(f.data.reads)} calls`] : null,
    f.file_calls ? [bytes(f.data.write_bytes), `written in ${count(f.data.writes)} calls`] : null,
    f.file_calls ? [count(f.data.files_read), `files read, ${count(f.data.files_written)} written`] : null,
    [lost.length ? count(lost.length) : "complete", lost.length ? "kinds of loss, see Coverage" : "nothing is known to be lost", lost.length ? (worst ? "bad" : "warn") : null],
  ].filter(Boolean);
}

function drawCoverage() {
  const head = block("head"), f = head.facts, list = (items) => el("ul", {}, items.map((item) => el("li", {}, item)));
  const where = $("coverage-text");
  where.append(list(head.seen));
  const notes = [];
  if (f.is_live) notes.push("The recording still goes on: what came in its last quarter of a second is not stored yet.");
  else if (f.unrecorded) notes.push(`${sentence(f.unrecorded)} Up to a quarter of a second before that is missing, too.`);
  else if (f.is_cut_short) notes.push("The recording was cut short: what came in its last quarter of a second is missing.");
  const p = block("processes"), left = sum(Object.values(p.left_out));
  if (left) notes.push(`${count(left)} shorter processes are in the sums and drawn as areas, not shown one by one.`);
  if (block("path").steps.left_out) notes.push(`${count(block("path").steps.left_out)} shorter stretches of the critical path are in its sums and not drawn.`);
  if (p.texts_cut) notes.push(`${many(p.texts_cut, "command line is", "command lines are")} shortened here.`);
  if (block("files").left_out) notes.push(`${count(block("files").left_out)} files with fewer bytes are in the sums and not shown one by one.`);
  if (block("files").access.left_out) notes.push(`${count(block("files").access.left_out)} uses of files with fewer bytes do not take part in selections.`);
  if (block("graph").cycle_edges) notes.push(`${many(block("graph").cycle_edges, "edge is left out of the graph because it would close a cycle", "edges are left out of the graph because they would close a cycle")}.`);
  if (notes.length) where.append(list(notes));
  if (f.losses.length === 0) {
    where.append(el("p", {}, "Nothing is known to be lost."));
  } else {
    where.append(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {},
      ["part", "counter", "how many", "what that means"].map((t) => el("th", { class: t === "how many" ? "n" : null }, el("button", { type: "button" }, t))))),
    el("tbody", {}, f.losses.map((loss) => el("tr", { class: loss.severity === "error" || loss.severity === "data_loss" ? "bad" : null },
      el("td", {}, loss.source), el("td", {}, loss.counter), el("td", { class: "n" }, count(loss.value)),
      el("td", { style: "white-space: normal; max-width: none" }, loss.meaning)))))));
  }
  where.append(el("p", { class: "muted" }, `Recorded by flowtrace ${head.recorded_by || "?"}, report by flowtrace ${head.made_by}. Processes seen by: ${f.process_layer}.`));
}
