"use strict";
// Timelines of the runs below each other, on one scale of time: all zoom and move together.
// Drag to move; the buttons, + and -, a double click, or the wheel with Ctrl (or after a click) zoom.
(() => {
  const canvases = [...document.querySelectorAll("canvas.timeline")];
  if (!canvases.length) return;
  const tip = document.getElementById("tip");
  const LEFT = 62, TOP = 16, HEIGHT = 15, LANE = 5, GAP = 5, NARROWEST = 50;
  const charts = canvases.map(canvas => {
    const data = JSON.parse(canvas.parentNode.querySelector("script").textContent);
    let top = TOP;
    for (const rank of data.ranks) {
      rank.top = top;
      top += HEIGHT + 2 + rank.lanes * LANE + GAP;
    }
    canvas.style.height = top + 4 + "px";
    return { canvas, data, height: top + 4 };
  });
  const last = Math.max(...charts.map(chart => chart.data.stop));
  const flights = chart => chart.data.ranks.flatMap(rank => rank.flights);
  const first = Math.min(0, ...charts.flatMap(chart => flights(chart).map(flight => flight[0])));
  let view = [0, last], showsMessages = false, colours = {};

  const time = tenths => tenths >= 1e7 ? (tenths / 1e7).toPrecision(4) + " s" : tenths >= 1e4 ? (tenths / 1e4).toPrecision(3) + " ms"
    : (tenths / 10).toPrecision(3) + " µs";
  const size = bytes => bytes >= 1e6 ? (bytes / 1e6).toPrecision(3) + " MB" : bytes >= 1e3 ? (bytes / 1e3).toPrecision(3) + " kB" : bytes + " B";
  const place = (hop, way, noun) => way ? `, ${noun} ${hop}, ${way.replace("_", " ")}` : "";
  const noun = kind => kind === "block" || kind === "weights" ? "block" : "hop";

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const kinds = [...charts[0].data.kinds, "hidden", "waited"];
    colours = Object.fromEntries(kinds.map(kind => [kind, style.getPropertyValue("--t-" + kind).trim() || "#888"]));
    for (const name of ["ink", "soft", "faint"]) colours["." + name] = style.getPropertyValue("--" + name).trim();
  }

  const scale = width => moment => LEFT + (moment - view[0]) / (view[1] - view[0]) * (width - LEFT);

  function draw() {
    for (const chart of charts) {
      const { canvas, data, height } = chart, width = canvas.clientWidth, ratio = devicePixelRatio || 1;
      if (!width) continue;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.font = "11px system-ui, sans-serif";
      drawAxis(pen, width, height);
      pen.save();
      pen.beginPath();
      pen.rect(LEFT, 0, width - LEFT, height);
      pen.clip();
      for (const rank of data.ranks) drawRank(pen, rank, data, width);
      if (showsMessages) drawMessages(pen, data, width);
      pen.restore();
      pen.fillStyle = colours[".soft"];
      for (const rank of data.ranks) pen.fillText(rank.name, 0, rank.top + 11);
    }
  }

  function drawAxis(pen, width, height) {
    const x = scale(width), raw = (view[1] - view[0]) / Math.max(width / 110, 1), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= raw);
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      pen.fillStyle = colours[".faint"];
      pen.fillRect(x(at), 10, 1, height);
      pen.fillStyle = colours[".soft"];
      if (x(at) < width - 40) pen.fillText(at ? time(Math.abs(at)).replace(/^/, at < 0 ? "−" : "") : "0", x(at) + 3, 9);
    }
  }

  function drawRank(pen, rank, data, width) {
    const x = scale(width);
    for (const [start, stop, kind] of rank.spans) {
      if (stop < view[0] || start > view[1]) continue;
      pen.fillStyle = colours[data.kinds[kind]];
      pen.fillRect(x(start), rank.top, Math.max(x(stop) - x(start), .4), HEIGHT);
    }
    for (const [start, waited, stop, lane] of rank.flights) {
      const top = rank.top + HEIGHT + 2 + lane * LANE;
      pen.fillStyle = colours.hidden;
      pen.fillRect(x(start), top, Math.max(x(waited) - x(start), .4), LANE - 1);
      pen.fillStyle = colours.waited;
      pen.fillRect(x(waited), top, x(stop) - x(waited), LANE - 1);
    }
    pen.fillStyle = colours[".ink"];
    for (const [, start, stop] of rank.epochs) {
      pen.fillRect(x(start), rank.top - 2, 1, HEIGHT + 4);
      pen.fillRect(x(stop), rank.top - 2, 1, HEIGHT + 4);
    }
  }

  function drawMessages(pen, data, width) {
    const x = scale(width);
    pen.strokeStyle = colours[".ink"];
    pen.globalAlpha = .45;
    pen.lineWidth = .7;
    for (const [sender, receiver, sent, arrived] of data.messages) {
      if (arrived < view[0] || sent > view[1]) continue;
      const down = data.ranks[receiver].top > data.ranks[sender].top;
      pen.beginPath();
      pen.moveTo(x(sent), data.ranks[sender].top + (down ? HEIGHT : 0));
      pen.lineTo(x(arrived), data.ranks[receiver].top + (down ? 0 : HEIGHT));
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  function look(ends) {
    view = ends;
    document.querySelector(".timelines").dataset.view = view.map(Math.round).join(" ");
  }
  function move(low, high) {
    const width = Math.min(Math.max(high - low, NARROWEST), last - first);
    const start = Math.min(Math.max(low, first), last - width);
    look([start, start + width]);
    requestAnimationFrame(draw);
  }
  function zoom(factor, at = (view[0] + view[1]) / 2) {
    move(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  }

  // What is under the pointer, in words.
  function under(chart, event) {
    const box = chart.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const moment = view[0] + (x - LEFT) / (box.width - LEFT) * (view[1] - view[0]);
    const slack = (view[1] - view[0]) / (box.width - LEFT);
    for (const rank of chart.data.ranks) {
      if (y >= rank.top && y <= rank.top + HEIGHT) {
        const span = rank.spans.find(span => span[0] <= moment && moment < span[1]);
        if (!span) return null;
        const kind = chart.data.kinds[span[2]];
        return [`${rank.name} on ${rank.host}`, chart.data.names[span[2]] + place(span[3], span[4], noun(kind)), time(span[1] - span[0])];
      }
      const lane = Math.floor((y - rank.top - HEIGHT - 2) / LANE);
      if (lane >= 0 && lane < rank.lanes) {
        const flight = rank.flights.find(f => f[3] === lane && f[0] - slack <= moment && moment <= f[2] + slack);
        return flight && [`${rank.name} on ${rank.host}`, "messages in flight" + place(flight[4], flight[5], "hop"),
          `${time(flight[2] - flight[0])}, waited for ${time(flight[2] - flight[1])}`];
      }
    }
    return null;
  }

  function show(event, lines) {
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(...lines.map((text, k) => Object.assign(document.createElement("div"), { className: k ? "" : "head", textContent: text })));
    const right = event.pageX + 16 + tip.offsetWidth > document.documentElement.clientWidth + scrollX;
    tip.style.left = (right ? Math.max(event.pageX - 16 - tip.offsetWidth, 4) : event.pageX + 16) + "px";
    tip.style.top = event.pageY + 14 + "px";
  }

  for (const chart of charts) {
    const { canvas } = chart;
    const moment = event => {
      const box = canvas.getBoundingClientRect();
      return view[0] + (event.clientX - box.left - LEFT) / (box.width - LEFT) * (view[1] - view[0]);
    };
    let held = null;
    canvas.addEventListener("pointerdown", event => {
      held = { at: event.clientX, view };
      try { canvas.setPointerCapture(event.pointerId); } catch { /* an event that no pointer made */ }
    });
    canvas.addEventListener("pointerup", () => { held = null; });
    canvas.addEventListener("pointermove", event => {
      if (!held) return show(event, under(chart, event));
      const by = (held.at - event.clientX) / (canvas.clientWidth - LEFT) * (held.view[1] - held.view[0]);
      move(held.view[0] + by, held.view[1] + by);
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("dblclick", event => zoom(.4, moment(event)));
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : .8, moment(event));
    }, { passive: false });
    canvas.addEventListener("keydown", event => {
      const step = (view[1] - view[0]) / 5;
      const acts = { "+": () => zoom(.6), "-": () => zoom(1 / .6), "0": () => move(0, last),
        ArrowLeft: () => move(view[0] - step, view[1] - step), ArrowRight: () => move(view[0] + step, view[1] + step) };
      if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
    });
    // The share of what is drawn that is drawn as hidden: that of the run, if the drawing is right.
    const drawn = flights(chart).reduce((sums, [start, waited, stop]) => [sums[0] + waited - start, sums[1] + stop - start], [0, 0]);
    canvas.dataset.hidden = drawn[1] ? drawn[0] / drawn[1] : 0;
  }
  for (const button of document.querySelectorAll(".timelines .tools button")) {
    button.addEventListener("click", () => {
      const acts = { in: () => zoom(.5), out: () => zoom(2), fit: () => move(0, last),
        messages: () => { showsMessages = !showsMessages; button.setAttribute("aria-pressed", showsMessages); draw(); } };
      acts[button.dataset.do]();
    });
  }
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
  look(view);
  readColours();
  draw();
})();
