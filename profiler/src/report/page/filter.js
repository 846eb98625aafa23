// The selection. A click anywhere selects a step, process, file, group or channel; every part of the page
// shows the processes and files that belong to it: masks over processes and over files, null for all.

const filter = { what: null, text: "", processes: null, files: null };
const listeners = [];
function onFilter(listener) { listeners.push(listener); }

// what: {kind: "rule", rule} | {kind: "process", process} | {kind: "file", file}
//     | {kind: "group", group} | {kind: "processes", processes, label}; null: nothing.
function select(what) {
  filter.what = what && filter.what && sameChoice(what, filter.what) ? null : what;
  refilter();
}
function search(text) {
  filter.text = text.trim().toLowerCase();
  refilter();
}
function sameChoice(a, b) {
  return a.kind === b.kind && a.rule === b.rule && a.process === b.process && a.file === b.file &&
    a.group === b.group && a.label === b.label;
}
function choiceLabel(what) {
  switch (what.kind) {
    case "rule": return ruleName(what.rule);
    case "process": return block("processes").pid[what.process] + " " + processCommand(what.process);
    case "file": return inRun(filePath(what.file));
    case "group": return block("graph").nodes[what.group].name;
    default: return what.label;
  }
}
function refilter() {
  let chosen = { processes: null, files: null };
  if (filter.what) chosen = masksOf(filter.what);
  if (filter.text) chosen = both(chosen, masksOfText(filter.text));
  filter.processes = chosen.processes;
  filter.files = chosen.files;
  const chip = $("chip");
  chip.hidden = !filter.what;
  if (filter.what) {
    chip.textContent = "✕ " + shorten(choiceLabel(filter.what), 60);
    chip.title = "show everything again (Esc)";
  }
  listeners.forEach((listener) => listener());
}
function both(a, b) {
  const and = (x, y) => (x && y ? x.map((v, i) => v & y[i]) : x || y);
  return { processes: and(a.processes, b.processes), files: and(a.files, b.files) };
}
function masksOf(what) {
  const processes = new Uint8Array(processCount());
  let files = null;
  if (what.kind === "rule") {
    const bars = block("processes").bars;
    bars.rule.forEach((rule, i) => { if (rule === what.rule) processes[bars.process[i]] = 1; });
  } else if (what.kind === "process") {
    processes[what.process] = 1;
  } else if (what.kind === "processes") {
    what.processes.forEach((i) => { processes[i] = 1; });
  } else if (what.kind === "file") {
    files = new Uint8Array(fileCount());
    files[what.file] = 1;
  } else {
    const members = block("members"), isRule = block("graph").nodes[what.group].rule !== null;
    if (!isRule) files = new Uint8Array(fileCount());
    members.group.forEach((group, i) => {
      const member = members.member[i];
      if (group !== what.group || member === null) return;
      if (member >= 0) processes[member] = 1; else files[-1 - member] = 1;
    });
  }
  return files ? { files, processes: usersOf(files) } : { processes, files: usedBy(processes) };
}
function usersOf(files) {
  const a = block("files").access, processes = new Uint8Array(processCount());
  for (let i = 0; i < a.file.length; i++) if (files[a.file[i]]) processes[a.process[i]] = 1;
  return processes;
}
function usedBy(processes) {
  const a = block("files").access, files = new Uint8Array(fileCount());
  for (let i = 0; i < a.file.length; i++) if (processes[a.process[i]]) files[a.file[i]] = 1;
  return files;
}
function masksOfText(text) {
  const p = block("processes"), f = block("files");
  const rules = block("rules").name.map((name) => name.toLowerCase().includes(text));
  const texts = p.texts.map((command) => command.toLowerCase().includes(text));
  const processes = Uint8Array.from(p.pid, (pid, i) => +(rules[p.rule[i]] || texts[p.command[i]] || String(pid) === text));
  const directories = f.directories.map((path) => path.toLowerCase().includes(text));
  const files = Uint8Array.from(f.name, (name, i) => +(directories[f.directory[i]] || name.toLowerCase().includes(text) ||
    (text.includes("/") && filePath(i).toLowerCase().includes(text))));
  const any = (mask) => mask.includes(1);
  // A match only among processes shows the files that they use, and the reverse.
  if (any(processes) && !any(files)) return { processes, files: usedBy(processes) };
  if (any(files) && !any(processes)) return { processes: usersOf(files), files };
  return { processes, files };
}
const isShown = (process) => !filter.processes || filter.processes[process] === 1;
const isFileShown = (file) => !filter.files || filter.files[file] === 1;
function isRuleShown(rule) {
  if (!filter.processes) return true;
  if (!isRuleShown.of || isRuleShown.mask !== filter.processes) {
    isRuleShown.mask = filter.processes;
    const shown = (isRuleShown.of = new Uint8Array(block("rules").name.length));
    const p = block("processes");
    if (filter.what && filter.what.kind === "rule" && !filter.text) shown[filter.what.rule] = 1;
    else p.bars.rule.forEach((r, i) => { if (filter.processes[p.bars.process[i]]) shown[r] = 1; });
  }
  return isRuleShown.of[rule] === 1;
}
