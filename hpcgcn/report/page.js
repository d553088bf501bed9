"use strict";
// Hover: the values of all runs at the pointer. Legend: rest on a run to see it alone, click to hide it.
// All numbers are read back from the drawn lines, so the page holds every curve once.
(() => {
  const tip = document.getElementById("tip");
  const names = [...document.querySelectorAll(".results tbody th span")].map(span => span.textContent);
  const swatches = [...document.querySelectorAll(".results tbody th svg")].map(svg => svg.outerHTML);

  const significant = (value, digits) => String(Number(value.toPrecision(digits)));
  const bytes = value => {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    const power = Math.min(Math.max(Math.floor(Math.log10(Math.max(value, 1)) / 3), 0), units.length - 1);
    return significant(value / 1000 ** power, 3) + " " + units[power];
  };
  const seconds = value => value >= 120 ? significant(value / 60, 3) + " min" : value >= 1 ? significant(value, 3) + " s"
    : significant(1000 * value, 3) + " ms";
  const write = { epochs: value => "epoch " + Math.round(value), seconds, bytes };

  const inverse = text => {
    const [low, high, first, last, log] = text.split(" ").map(Number);
    const [a, b] = log ? [Math.log10(low), Math.log10(high)] : [low, high];
    return pixel => {
      const value = a + (pixel - first) / (last - first) * (b - a);
      return log ? 10 ** value : value;
    };
  };

  for (const chart of document.querySelectorAll("svg.chart")) {
    const toX = inverse(chart.dataset.x), toY = inverse(chart.dataset.y);
    const [, , left, right] = chart.dataset.x.split(" ").map(Number);
    const cursor = chart.querySelector(".cursor");
    const lines = [...chart.querySelectorAll(".run")].map(group => ({
      group, run: Number(group.dataset.run),
      points: group.querySelector("polyline").getAttribute("points").split(" ").map(pair => pair.split(",").map(Number)),
    }));
    const number = value => chart.dataset.percent === "1" ? value.toFixed(2) + " %" : significant(value, 4);

    chart.addEventListener("pointermove", event => {
      const box = chart.getBoundingClientRect();
      const pixel = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
      if (pixel < left || pixel > right) return hide();
      const rows = lines.filter(line => !line.group.classList.contains("off"))
        .filter(line => pixel >= line.points[0][0] - 6 && pixel <= line.points.at(-1)[0] + 6)
        .map(line => ({ run: line.run, at: line.points.reduce((a, b) => Math.abs(b[0] - pixel) < Math.abs(a[0] - pixel) ? b : a) }))
        .sort((a, b) => a.at[1] - b.at[1]);
      if (!rows.length) return hide();
      for (const [name, value] of [["x1", pixel], ["x2", pixel], ["visibility", "visible"]]) cursor.setAttribute(name, value);
      show(event, write[chart.dataset.kind](toX(pixel)), rows.map(row => [row.run, number(toY(row.at[1]))]));
    });
    chart.addEventListener("pointerleave", hide);
    function hide() {
      tip.hidden = true;
      cursor.setAttribute("visibility", "hidden");
    }
  }

  function show(event, head, rows) {
    const table = document.createElement("table");
    for (const [run, value] of rows) {
      const row = table.insertRow();
      const name = row.insertCell();
      name.innerHTML = swatches[run];
      name.append(names[run]);
      row.insertCell().textContent = value;
    }
    const title = Object.assign(document.createElement("div"), { className: "head", textContent: head });
    tip.replaceChildren(title, table);
    tip.hidden = false;
    const right = event.pageX + 16 + tip.offsetWidth > document.documentElement.clientWidth + scrollX;
    tip.style.left = (right ? Math.max(event.pageX - 16 - tip.offsetWidth, 4) : event.pageX + 16) + "px";
    tip.style.top = event.pageY + 14 + "px";
  }

  for (const button of document.querySelectorAll(".legend button")) {
    const marked = () => document.querySelectorAll("svg .run.r" + button.dataset.run);
    const focus = on => {
      document.body.classList.toggle("focus", on);
      marked().forEach(group => group.classList.toggle("on", on));
    };
    button.addEventListener("pointerenter", () => focus(button.getAttribute("aria-pressed") === "true"));
    button.addEventListener("pointerleave", () => focus(false));
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", shown);
      focus(shown);
      marked().forEach(group => group.classList.toggle("off", !shown));
    });
  }
})();
