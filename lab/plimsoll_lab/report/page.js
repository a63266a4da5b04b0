"use strict";
// Draws the charts in the reader's colours, and draws them again when the reader changes from light to dark.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function look() {
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
      title: { color: colour("--ink"), font: "system-ui, sans-serif" },
      axis: { ...text, gridColor: colour("--line"), domainColor: colour("--line"), tickColor: colour("--line") },
      range: { category: [0, 1, 2, 3, 4, 5, 6].map((place) => colour(`--c${place}`)) },
    };
  }

  function draw() {
    const config = look();
    for (const { name, spec } of data.charts) {
      const place = document.querySelector(`[data-chart="${name}"]`);
      vegaEmbed(place, { ...spec, datasets: data.rows }, {
        ast: true, // no eval: the page's Content-Security-Policy forbids it
        config,
        renderer: "svg",
        logLevel: 1, // errors: a point with too few trials for an interval is not worth a warning
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: name,
      });
    }
  }

  draw();
  dark.addEventListener("change", draw);
})();
