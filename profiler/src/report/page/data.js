// The data, each block read from the page when it is first asked for.

const blocks = {};
function block(name) {
  return blocks[name] || (blocks[name] = JSON.parse($("data-" + name).textContent));
}
const facts = () => block("head").facts;
// Managers, shells and launchers, and steps with less than a hundredth of all life: true for each rule. Where
// all are such, none is.
function minorRules() {
  if (minorRules.found) return minorRules.found;
  const r = block("rules"), all = sum(r.life_ns.filter((_, i) => !r.is_runner[i]));
  const minor = r.name.map((_, i) => r.is_runner[i] || r.life_ns[i] < all / 100);
  return (minorRules.found = minor.every(Boolean) ? minor.map(() => false) : minor);
}
const ruleName = (rule) => (rule === null || rule === undefined ? "(not known)" : block("rules").name[rule]);
// Zero of the times that are shown: the begin of the command, a little after that of the recording.
const runBegins = () => facts().begins_ns;
const sinceBegin = (ns) => (ns === null || ns === undefined ? "?" : duration(ns - runBegins()));
const runLength = () => Math.max(facts().recording_ns, facts().duration_ns, 1);

function processCommand(i) {
  const p = block("processes");
  return p.texts[p.command[i]];
}
const processCount = () => block("processes").pid.length;
function processEnd(i) {
  const end = block("processes").end_ns[i];
  return end === null ? facts().recording_ns : end;
}
function processLife(i) { return Math.max(0, processEnd(i) - block("processes").start_ns[i]); }
function hasFailed(i) {
  const p = block("processes");
  // Others ended it, or the reader of its pipe had enough: no failure.
  if (p.exit_signal[i] !== null) return !["SIGHUP", "SIGINT", "SIGPIPE", "SIGTERM"].includes(p.signals[p.exit_signal[i]]);
  return p.exit_code[i] !== null && p.exit_code[i] !== 0;
}
function processEnding(i) {
  const p = block("processes");
  if (p.exit_signal[i] !== null) return p.signals[p.exit_signal[i]];
  if (p.exit_code[i] !== null) return "exit " + p.exit_code[i];
  return p.end_ns[i] === null ? "no end seen" : null;
}
function processFacts(i) {
  const p = block("processes");
  return [
    ["step", ruleName(p.rule[i])],
    ["pid", p.pid[i] + " (upid " + p.upid[i] + ")"],
    ["start", sinceBegin(p.start_ns[i])],
    ["life", p.end_ns[i] === null ? "≥ " + duration(processLife(i)) : duration(processLife(i))],
    ["on CPU", p.cpu_ns[i] === null ? null : duration(p.cpu_ns[i])],
    p.run_queue_ns[i] ? ["waited for a CPU", duration(p.run_queue_ns[i])] : null,
    p.storage_ns[i] ? ["storage", duration(p.storage_ns[i])] : null,
    p.wait_ns[i] ? ["other waits", duration(p.wait_ns[i])] : null,
    p.read_bytes[i] ? ["read", bytes(p.read_bytes[i])] : null,
    p.write_bytes[i] ? ["wrote", bytes(p.write_bytes[i])] : null,
    p.max_rss_bytes[i] ? ["peak memory", bytes(p.max_rss_bytes[i])] : null,
    processEnding(i) ? ["ended", processEnding(i) === "SIGPIPE" ? "when nobody read its pipe any more (SIGPIPE)" : processEnding(i)] : null,
    onPath()[i] ? ["", "on the critical path"] : block("path").slack_ns[i] === null ? null : ["slack", duration(block("path").slack_ns[i])],
  ];
}

// Processes on the critical path, as a mask.
function onPath() {
  if (onPath.mask) return onPath.mask;
  onPath.mask = new Uint8Array(processCount());
  block("path").steps.process.forEach((i) => { if (i !== null) onPath.mask[i] = 1; });
  return onPath.mask;
}
const pathChoice = () => ({ kind: "processes", label: "critical path", processes: [...new Set(block("path").steps.process.filter((i) => i !== null))] });

const fileCount = () => block("files").name.length;
function filePath(i) {
  const f = block("files"), directory = f.directories[f.directory[i]];
  return directory === "" ? f.name[i] : directory === "/" ? "/" + f.name[i] : directory + "/" + f.name[i];
}
// A path as seen from the directory of the run.
function inRun(path) {
  const cwd = block("head").cwd.replace(/\/$/, "") + "/";
  return cwd !== "/" && path.startsWith(cwd) ? path.slice(cwd.length) : path;
}
// Files by the common form of their names; the form "*" alone shows nothing.
function countedFiles(form, files) {
  if (files === 1) return form;
  const above = form === "*" ? "." : form === "/*" ? "/" : form.endsWith("/*") ? form.slice(0, -2) : null;
  return above === null ? `${form} ×${count(files)}` : `${count(files)} files in ${above}`;
}
function fileFacts(i) {
  const f = block("files");
  return [
    ["size", bytes(f.size_bytes[i])], ["read", bytes(f.read_bytes[i])],
    ["written", bytes(f.write_bytes[i])], ["calls", count(f.calls[i])],
    f.flags[i] & 8 ? ["coverage", "opened outside the traced directories; contents not traced"] : null,
  ];
}
// The children of every process, in the order of their start.
function processChildren() {
  if (processChildren.lists) return processChildren.lists;
  const p = block("processes"), lists = p.pid.map(() => []), roots = [];
  p.parent.forEach((parent, i) => (parent === null ? roots : lists[parent]).push(i));
  const byStart = (a, b) => p.start_ns[a] - p.start_ns[b] || a - b;
  lists.forEach((list) => list.sort(byStart));
  lists.roots = roots.sort(byStart);
  return (processChildren.lists = lists);
}
