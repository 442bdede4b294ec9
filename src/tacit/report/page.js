// Draws the plots, and again in other colours when the theme changes. Colours in the specifications
// are names: "@first" is the CSS variable --first, except where a word may come from the data.
// Nothing is remembered, nothing is fetched.
(function () {
  "use strict";
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  const button = document.getElementById("theme");
  const PAPER_WIDTH = 640;
  const WORDS = ["text", "ticktext", "name", "x", "y"];

  function theme() {
    return root.dataset.theme || (system.matches ? "dark" : "light");
  }

  function coloured(value, style) {
    if (typeof value === "string" && value.startsWith("@")) {
      return style.getPropertyValue("--" + value.slice(1)).trim();
    }
    if (Array.isArray(value)) return value.map((item) => coloured(item, style));
    if (value && typeof value === "object") {
      const entries = Object.entries(value);
      const done = ([key, item]) => [key, WORDS.includes(key) ? item : coloured(item, style)];
      return Object.fromEntries(entries.map(done));
    }
    return value;
  }

  function draw() {
    const style = getComputedStyle(root);
    for (const figure of figures) {
      const node = document.getElementById(figure.id);
      const layout = coloured(figure.layout, style);
      if (paper.matches) Object.assign(layout, { autosize: false, width: PAPER_WIDTH });
      const config = { displayModeBar: false, responsive: true, showTips: false };
      Plotly.react(node, coloured(figure.data, style), layout, config);
    }
    const other = theme() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark theme" : "Light theme";
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    draw();
  });
  system.addEventListener("change", draw);
  paper.addEventListener("change", draw);
  draw();
})();
