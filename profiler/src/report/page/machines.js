// The machines that agents watched: the part of their messages that arrived, and their counters over time.
// Also pictures that the commands draw, as images, in which no script runs.

function pictures(list) {
  return list.map((p) => el("figure", { class: "picture" },
    el("img", { src: "data:image/svg+xml," + encodeURIComponent(p.svg), alt: p.command }),
    el("figcaption", { class: "muted" }, el("code", {}, `flowtrace ${p.command.replace(" ", " " + block("head").trace + " ")} --format svg`))));
}

function drawMachines() {
  const hosts = block("machine").hosts, seen = hosts.filter((h) => h.watched), where = $("machines-view");
  if (seen.length) {
    const all = (of) => sum(seen.map((h) => h.watched[of])), lost = all("sent") - all("received");
    where.append(el("p", {}, `${many(seen.length, "machine", "machines")} watched by agents · ${all("per_second").toFixed(1)} samples a second together · ` +
      `${count(all("received"))} of ${count(all("sent"))} came, ${lost ? percent(lost / all("sent")) : "nothing"} lost · what is missing is drawn between its neighbours`));
    const cell = (text, kind) => el("td", { class: "n " + (kind || "") }, text);
    where.append(el("div", { class: "scroll matrix" }, el("table", {},
      el("thead", {}, el("tr", {}, ["machine", "CPUs", "memory", "samples/s", "sent", "lost", "confidence", "clock ±", "drift", "last totals"]
        .map((name, i) => el("th", { class: i ? "n" : null }, el("span", { class: "head" }, name))))),
      el("tbody", {}, seen.map((h) => {
        const w = h.watched, lost = w.sent - w.received;
        return el("tr", {}, el("td", {}, h.name), cell(h.cpus === null ? "?" : count(h.cpus)), cell(bytes(h.memory_bytes)), cell(w.per_second.toFixed(1)),
          cell(count(w.sent)), cell(count(lost), lost ? "warn" : ""), cell(w.confidence === null ? "?" : percent(w.confidence), w.confidence < 0.8 ? "bad" : ""),
          cell(duration(w.clock_error_ns)), cell((w.drift_ppb / 1000).toFixed(1) + " ppm"), cell(w.is_final ? "exact" : "missing", w.is_final ? "" : "warn"));
      })))));
  }
  where.append(...pictures(block("pictures").machines));
}
