"use strict";
// Follows a run by its events. Every text goes into the page as text, never as markup.
(() => {
  const known = JSON.parse(document.getElementById("known").textContent);
  const at = (id) => document.getElementById(id);
  const say = (id, text) => { at(id).textContent = text; };
  const SVG = "http://www.w3.org/2000/svg";
  const TOP = 12, BOTTOM = 130; // of a chart of 150 pixels: room for letters above and below
  const drawn = new Map(); // what each chart shows, for another width of the window
  let run = null, onDisk = new Set(), seconds = [], costs = [], rows = 0, current = null, shown = null; // the trial under way, and that of the figures: one that is made again has its number

  const number = (value) => value.toLocaleString("en-GB", { maximumSignificantDigits: 3 });
  const time = (us) => (us === null || us === undefined ? "-" : us < 1000 ? `${number(us)} \u00b5s` : us < 1e6 ? `${number(us / 1e3)} ms` : `${number(us / 1e6)} s`);
  const size = (bytes) => (bytes === null ? "-" : `${number(bytes / 1048576)} MiB`);
  const setting = ([key, value]) => (key === "connections" && typeof value === "number" ? `${value.toLocaleString("en-GB")} ${value === 1 ? "connection" : key}` : `${key} ${value}`);
  const words = (point) => Object.entries(point).map(([path, value]) => setting([path.split(".").pop(), value])).join(", ") || "the suite's one point";

  function draw(id, points) {
    drawn.set(id, points);
    const chart = at(id);
    chart.replaceChildren();
    const width = chart.getBoundingClientRect().width;
    if (width === 0) return; // nobody sees it
    const add = (name, attributes, text = "") => {
      const made = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      made.textContent = text;
      chart.append(made);
      return made;
    };
    if (points.length === 0) { add("text", { x: 0, y: BOTTOM / 2 }, "Nothing is known yet."); return; }
    // A unit is a pixel of the page, so that letters keep their size, and the plot begins where the longest of them ends.
    const most = Math.max(...points.map(({ y }) => y), 1e-9);
    const labels = [["0", BOTTOM], [number(most), TOP]].map(([text, y]) => add("text", { x: 0, y: y + 4, "text-anchor": "end" }, text));
    const left = 6 + Math.max(...labels.map((each) => each.getComputedTextLength())), right = width - 6;
    labels.forEach((each) => each.setAttribute("x", left - 6));
    const from = points[0].x, to = Math.max(points.at(-1).x, from + 1);
    const place = ({ x, y }) => [left + ((x - from) / (to - from)) * (right - left), BOTTOM - (y / most) * (BOTTOM - TOP)];
    for (const y of [BOTTOM, TOP]) add("line", { x1: left, x2: right, y1: y, y2: y });
    add("text", { x: left, y: BOTTOM + 16 }, `${number(from)} s`);
    add("text", { x: right, y: BOTTOM + 16, "text-anchor": "end" }, `${number(to)} s`);
    add("path", { d: points.map((each, i) => `${i ? "L" : "M"}${place(each).map((v) => v.toFixed(1)).join(" ")}`).join("") });
    for (const each of points) {
      const [cx, cy] = place(each);
      add("circle", { cx, cy, r: 3.5, class: each.warm ? "warm" : "" });
    }
  }
  addEventListener("resize", () => drawn.forEach((points, id) => draw(id, points)));

  function show() {
    // A short trial is over before its seconds are known, so the figures of the one before stay until then.
    if (shown === current) return;
    shown = current;
    clear();
  }

  function clear() {
    say("earlier", "");
    for (const id of ["rate", "p50", "p99", "failed", "cpu", "memory"]) say(id, "-");
    for (const id of ["rate-chart", "p99-chart", "cpu-chart"]) draw(id, []);
  }

  function second(event) {
    show();
    // Several generators share a second, and so do the warm-up and the window where one ends within it: counts add up,
    // the worst p99 stands for all, and a median of medians is none.
    const same = seconds.find((each) => each.x === event.at_s);
    if (same) {
      same.rate += event.completed; same.failed += event.failed; same.warm = same.warm || event.phase !== "window";
      same.p99 = Math.max(same.p99 ?? 0, event.p99_us ?? 0) || null; same.p50 = null;
    } else {
      seconds.push({ x: event.at_s, warm: event.phase !== "window", rate: event.completed, failed: event.failed, p50: event.p50_us, p99: event.p99_us });
    }
    const last = seconds.at(-1);
    say("rate", last.rate.toLocaleString("en-GB")); say("p50", time(last.p50)); say("p99", time(last.p99)); say("failed", number(last.failed));
    draw("rate-chart", seconds.map((each) => ({ x: each.x, y: each.rate, warm: each.warm })));
    draw("p99-chart", seconds.filter((each) => each.p99 !== null).map((each) => ({ x: each.x, y: each.p99 / 1e3, warm: each.warm })));
  }

  function trial(event) {
    onDisk.add(event.number); // one that a resumed run makes again is among those that there were
    const row = document.createElement("tr");
    const figures = event.figures;
    const outcome = event.outcome.replaceAll("_", " ");
    const rate = figures["completed_rate"], cpu = figures["server.cpu_us_per_request"];
    const cells = [
      event.number, words(event.point), event.missed ? `${outcome}; missed ${event.missed}` : event.reason ? `${outcome}: ${event.reason}` : outcome,
      rate === undefined ? "-" : `${number(rate)} /s`, time(figures["response_time_us.p50"]), time(figures["response_time_us.p99"]), time(cpu),
    ];
    cells.forEach((text, place) => {
      const cell = document.createElement(place ? "td" : "th");
      if (!place) cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    });
    if (rows === 0) at("trials").replaceChildren();
    rows += 1;
    at("trials").prepend(row);
    progress(event.left_s);
  }

  function progress(left) {
    const total = run?.trials, done = onDisk.size;
    const rest = left === undefined || left === null ? "" : `; about ${number(left)} s left`;
    say("progress", total ? `${done} of ${total} trials are on disk${rest}.` : `${done} trials are on disk${rest}.`);
    if (total) { at("bar").hidden = false; at("bar").max = total; at("bar").value = done; }
  }

  function status(word) { say("status", word); at("status").className = `badge ${word}`; }

  function hear(event) {
    switch (event.event) {
      case "run": run = event; onDisk = new Set(event.kept); status("running"); progress(event.predicted_s); break;
      case "paths": say("progress", "The paths of the network are measured first."); break;
      case "trial_started":
        seconds = []; costs = []; current = event;
        at("now").hidden = false;
        if (shown === null) clear();
        else say("earlier", `Until there are figures of it, those of ${shown.number === event.number ? "its previous measurement" : `trial ${shown.number}`} are shown.`);
        say("trial", `trial ${event.number}${event.of ? ` of ${event.of}` : ""}, ${words(event.point)}${event.again ? `, measured again: ${event.again}` : ""}`);
        say("next", event.next.length ? `Next: ${event.next.map(words).join("; ")}.` : "");
        break;
      case "second": second(event); break;
      case "cost":
        show();
        costs.push({ x: event.at_s, y: event.server_cpu_cores });
        say("cpu", `${number(event.server_cpu_cores)} cores`); say("memory", size(event.server_memory_bytes));
        draw("cpu-chart", costs);
        break;
      case "trial": trial(event); break;
      case "end": at("now").hidden = true; status(event.status); break;
      case "closed": closed(event.status); break;
    }
  }

  function closed(word) {
    at("now").hidden = true;
    status(word);
    progress(null); // nothing is under way: no time is left
    const ending = at("ending");
    ending.hidden = false;
    if (word === "complete") {
      ending.textContent = "The run has ended. ";
    } else {
      const why = word === "killed" ? "The run's program ended without recording why: it was killed, or the machine stopped." : `The run ended: ${word}.`;
      ending.textContent = `${why} ${onDisk.size ? `Finished trials on disk: ${onDisk.size}` : "No trial is on disk"}; "plimsoll lab resume ${known.folder}" goes on with it. `;
    }
    if (word !== "killed") {
      const link = document.createElement("a");
      link.href = `/runs/${known.number}`;
      link.textContent = "Open the report";
      ending.append(link);
    }
  }

  known.events.forEach(hear);
  const source = new EventSource(`/runs/${known.number}/events`);
  source.onmessage = ({ data, lastEventId }) => {
    if (Number(lastEventId) <= known.offset && JSON.parse(data).event !== "closed") return; // in the page already
    const event = JSON.parse(data);
    hear(event);
    if (event.event === "closed") source.close();
  };
  source.onerror = () => { if (source.readyState !== EventSource.CLOSED) say("progress", "The connection to lab serve is lost; trying again."); };
})();
