"use strict";
// Draws the charts in the reader's colours in place of the still pictures, and opens every fold on paper.
(() => {
  // What only scripts read is in the page compressed: the charts' data, and the library that draws them.
  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (each) => each.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  }

  async function load() {
    const [engine, data] = await Promise.all(["engine", "data"].map(unpacked));
    const script = document.createElement("script");
    script.textContent = engine; // the page's Content-Security-Policy has its hash
    document.body.append(script);
    const { rows, charts } = JSON.parse(data);
    return { rows, specs: new Map(charts.map(({ name, spec }) => [name, spec])) };
  }

  let loading = null; // what load() promises, once a chart needs it
  const MARGIN = 130; // pixels that labels and titles take beside a plot, unless drawing tells otherwise
  const MOST = 760; // pixels: a wider plot says no more
  const LEAST = 110; // pixels of a plot in which something can be seen
  const LABELS = 90; // pixels that the labels of a panel take, and the space to the next
  const SHRUNK = 0.7; // of its width, what a panel keeps beside others
  const NARROW = 480; // pixels: a legend has no room beside a plot, nor its entries in one row
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function look(narrow) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const text = {
      labelColor: colour("--soft"), titleColor: colour("--soft"), labelFont: "system-ui, sans-serif",
      titleFont: "system-ui, sans-serif", labelFontSize: 11, titleFontSize: 11, titleFontWeight: 400,
    };
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      view: { stroke: null },
      aria: false, // the caption and the table beside a chart say the same
      title: { color: colour("--ink"), font: "system-ui, sans-serif" },
      text: { color: colour("--ink") },
      axis: { ...text, gridColor: colour("--line"), domainColor: colour("--line"), tickColor: colour("--line") },
      legend: narrow ? { ...text, orient: "bottom", columns: 1 } : text,
      range: { category: [0, 1, 2, 3, 4, 5, 6].map((place) => colour(`--c${place}`)) },
    };
  }

  // A chart whose plots take so much room.
  function fitted(spec, room) {
    const width = Math.min(MOST, Math.max(LEAST, room - MARGIN));
    if (spec.vconcat) return { ...spec, vconcat: spec.vconcat.map((each) => ({ ...each, width })) };
    if (!spec.hconcat) return typeof spec.width === "number" ? { ...spec, width } : spec;
    const { hconcat, bounds, align, ...rest } = spec;
    const own = Math.max(...hconcat.map((each) => each.width));
    const between = spec.spacing + (bounds === "flush" ? 4 : 60); // pixels, with the labels of a panel
    const beside = Math.min(own, room / hconcat.length - between);
    if (beside >= SHRUNK * own) return { ...spec, hconcat: hconcat.map((each) => ({ ...each, width: beside })) };
    const columns = Math.max(1, Math.floor(room / (LEAST + LABELS)));
    const alone = Math.max(LEAST, Math.min(own, room / columns - LABELS));
    const { title } = (hconcat[0].layer?.[0] ?? hconcat[0]).encoding.y;
    return { ...rest, columns, concat: hconcat.map((each) => named({ ...each, width: alone }, title)) };
  }

  // A panel that does not stand in line with others, whose names and unit it would share.
  function named(panel, title) {
    if (panel.layer) return { ...panel, layer: panel.layer.map((each) => named(each, title)) };
    const { y } = panel.encoding;
    if (!y?.field) return panel;
    return { ...panel, encoding: { ...panel.encoding, y: { ...y, title, axis: { ...y.axis, labels: true, ticks: true } } } };
  }

  async function draw(element) {
    const { rows, specs } = await (loading ??= load());
    let canvas = null;
    // What labels and a legend take is known once they are drawn: where it was too much, the plots give way.
    for (let room = element.clientWidth, over = 1, attempt = 0; over > 0 && attempt < 3; room -= over, attempt += 1) {
      canvas = document.createElement("div");
      await vegaEmbed(canvas, { ...fitted(specs.get(element.dataset.chart), room), datasets: rows }, {
        ast: true, // no eval: the page's Content-Security-Policy forbids it
        config: look(element.clientWidth < NARROW),
        renderer: "svg",
        logLevel: 1, // errors: a point with too few trials for an interval is not worth a warning
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: element.dataset.chart,
      });
      over = canvas.querySelector("svg.marks").width.baseVal.value - element.clientWidth;
    }
    // The region around a chart has its name, and a table its numbers: a screen reader skips the shapes.
    canvas.querySelector("svg.marks").setAttribute("aria-hidden", "true");
    canvas.querySelector("summary").setAttribute("aria-label", "Save this chart as a picture");
    element.dataset.drawn = "yes";
    element.replaceChildren(canvas);
  }

  // A chart is drawn when it comes near the screen: a page of fifty opens at once.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "600px" });
  const places = [...document.querySelectorAll("[data-chart]")];
  // Browsers of before 2023 cannot unpack: their still pictures stay.
  if ("DecompressionStream" in window) places.forEach((each) => near.observe(each));
  dark.addEventListener("change", () => places.filter((each) => each.dataset.drawn).forEach(draw));

  // A click on a column's name sorts by what its cells begin with: numbers as numbers.
  const unit = { us: 1e-6, ms: 1e-3, s: 1, KiB: 1024, MiB: 1048576, GiB: 1073741824, kbit: 1e3, Mbit: 1e6, Gbit: 1e9 };
  const worth = (cell) => {
    const [, number, name] = /^(-?[\d,.]+)\s*(\w*)/.exec(cell.textContent.trim()) ?? [];
    return number === undefined ? NaN : parseFloat(number.replaceAll(",", "")) * (unit[name] ?? 1);
  };
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    if (body.rows.length < 3 || body.querySelector(".group")) continue;
    for (const head of table.tHead.rows[0].cells) {
      if (!head.textContent) continue;
      const button = document.createElement("button");
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        const sorted = [...body.rows].sort((a, b) => {
          const [x, y] = [a.cells[head.cellIndex], b.cells[head.cellIndex]];
          const [m, n] = [worth(x), worth(y)];
          const order = Number.isNaN(m) || Number.isNaN(n) ? x.textContent.localeCompare(y.textContent) : m - n;
          return up ? order : -order;
        });
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        body.append(...sorted);
      });
    }
  }

  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details:not([open])")) each.open = true;
  });
})();
