/* SPDX-License-Identifier: MIT
   Speed-ups over attempts, roofline, timeline: drawings that know nothing of the rest of the page. */

const COLORS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#8899aa"];
const DARK = ["#4477aa", "#228833", "#aa3377"]; /* those that white text is read on */

/* One color a name, in the order of their first use. */
function palette() {
  const names = new Map();
  return (name) => {
    if (!names.has(name)) names.set(name, COLORS[names.size % COLORS.length]);
    return names.get(name);
  };
}

function frame(width, height, label) {
  return svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
}

/* 1, 2, 5 times a power of ten; at most `most` of them from 0 to `top`. */
function ticks(top, most) {
  const raw = top / most, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10), out = [];
  for (let i = 0; i * step <= top * 1.0001; i++) out.push(i * step);
  return out;
}

/* ---- attempts ---- */

/* Which attempts have their numbers below them: the best one, and as many others as there is room for. */
function numbering(points, width) {
  const every = Math.ceil(points.length / (width / 26)), best = points.findIndex((p) => p.best);
  return (i) => i === best || (i % every === 0 && (best < 0 || Math.abs(i - best) >= every));
}

/* points: [{number, value, low, high, ok, text, best}]; value of those that are ok: a speed-up. */
function speedupChart(points, width) {
  const height = 260, left = 58, right = 14, top = 14, bottom = 48;
  const root = frame(width, height, "Speed-up of each attempt over the baseline");
  const most = Math.max(1, ...points.map((p) => (p.ok ? Math.max(p.value, p.high || 0) : 0))) * 1.08;
  const x = (i) => left + (width - left - right) * (points.length === 1 ? 0.5 : (i + 0.5) / points.length);
  const y = (value) => height - bottom - (height - top - bottom) * (value / most);
  for (const tick of ticks(most, 5)) {
    root.append(
        svg("line", {class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick)}),
        tick > 0 &&
                svg("text", {class: "label", x: left - 8, y: y(tick) + 4, "text-anchor": "end"},
                    Number(tick.toPrecision(6)) + "\u00d7") ||
            "");
  }
  root.append(
      svg("line", {class: "dash", x1: left, x2: width - right, y1: y(1), y2: y(1)}),
      svg("text", {class: "label", x: width - right, y: y(1) - 5, "text-anchor": "end"}, "baseline"));
  let best = 0, path = "";
  points.forEach((p, i) => {
    const now = p.ok && p.value > best ? p.value : best;
    if (now > 0) path += best > 0 ? `H${x(i)}V${y(now)}` : `M${x(i)} ${y(now)}`;
    best = now;
  });
  if (path) root.append(svg("path", {class: "line", d: path + `H${width - right}`}));
  const numbered = numbering(points, width - left - right);
  points.forEach((p, i) => {
    if (numbered(i))
      root.append(
          svg("text", {class: "label", x: x(i), y: height - bottom + 34, "text-anchor": "middle"}, String(p.number)));
    if (p.ok && p.low > 0) root.append(svg("line", {class: "line", x1: x(i), x2: x(i), y1: y(p.low), y2: y(p.high)}));
    root.append(hover(
        p.ok ?
            svg("circle", {
              class: "hit",
              cx: x(i),
              cy: y(p.value),
              r: p.best ? 6 : 4.5,
              fill: p.best ? "var(--good)" : "var(--accent)"
            }) :
            svg("text", {class: "hit", x: x(i), y: height - bottom + 16, "text-anchor": "middle", fill: "var(--bad)"},
                "\u2715"),
        () => p.text));
  });
  root.append(
      svg("text", {class: "label", x: left - 8, y: height - bottom + 16, "text-anchor": "end"}, "failed"),
      svg("text", {class: "label", x: left - 8, y: height - bottom + 34, "text-anchor": "end"}, "attempt"));
  return root;
}

/* Where nothing is timed: how far each attempt came. points: [{number, stage, ok, text, best}], stage an index of
 * stages. */
function stageChart(points, stages, width) {
  const left = 74, right = 14, top = 10, row = 21, bottom = 28, height = top + stages.length * row + bottom;
  const root = frame(width, height, "The stage that each attempt reached");
  const x = (i) => left + (width - left - right) * ((i + 0.5) / points.length);
  const y = (stage) => top + (stages.length - 1 - stage) * row + row / 2;
  stages.forEach((name, i) => {
    root.append(
        svg("line", {class: "grid", x1: left, x2: width - right, y1: y(i), y2: y(i)}),
        svg("text", {class: "label", x: left - 10, y: y(i) + 4, "text-anchor": "end"}, name));
  });
  const numbered = numbering(points, width - left - right);
  points.forEach((p, i) => {
    if (numbered(i))
      root.append(svg("text", {class: "label", x: x(i), y: height - 8, "text-anchor": "middle"}, String(p.number)));
    root.append(svg("line", {class: "axis", x1: x(i), x2: x(i), y1: y(0), y2: y(p.stage)}));
    root.append(hover(
        p.ok ? svg("circle", {class: "hit", cx: x(i), cy: y(p.stage), r: p.best ? 6 : 4.5, fill: "var(--good)"}) :
               svg("text", {class: "hit", x: x(i), y: y(p.stage) + 5, "text-anchor": "middle", fill: "var(--bad)"},
                   "\u2715"),
        () => p.text));
  });
  root.append(svg("text", {class: "label", x: left - 10, y: height - 8, "text-anchor": "end"}, "attempt"));
  return root;
}

/* ---- roofline ---- */

/* roofs: [[name, TFLOP/s]]; gbs: of DRAM; points: [{name, intensity, tflops, color, text}], tflops null: counted, not
 * timed. */
function roofline(roofs, gbs, points, width) {
  const height = Math.min(380, Math.max(260, width * 0.5)), left = 58, right = 16, top = 16, bottom = 44;
  const root = frame(width, height, "Roofline: operations per second over operations per byte");
  const slope = gbs / 1000; /* TFLOP/s at one operation a byte */
  const xs = points.map((p) => p.intensity), knees = roofs.map((r) => r[1] / slope);
  const x0 = Math.floor(Math.log10(Math.min(0.1, ...xs) * 0.9)),
        x1 = Math.ceil(Math.log10(Math.max(...knees, ...xs) * 1.6));
  const highest = Math.max(...roofs.map((r) => r[1])),
        timed = points.filter((p) => known(p.tflops)).map((p) => p.tflops);
  const y1 = Math.log10(highest * 2), y0 = Math.floor(Math.log10(Math.min(slope * Math.pow(10, x0), ...timed) * 0.9));
  const x = (v) => left + (width - left - right) * ((Math.log10(v) - x0) / (x1 - x0));
  const y = (v) => height - bottom - (height - top - bottom) * ((Math.log10(v) - y0) / (y1 - y0));
  const roof = (v) => Math.min(v * slope, highest);
  for (let e = x0; e <= x1; e++) {
    root.append(
        svg("line", {class: "grid", x1: x(10 ** e), x2: x(10 ** e), y1: top, y2: height - bottom}),
        svg("text",
            {class: "label", x: x(10 ** e), y: height - bottom + 16, "text-anchor": e === x1 ? "end" : "middle"},
            e < 0 ? (10 ** e).toFixed(-e) : digits(10 ** e, 0)));
  }
  for (let e = y0; e <= y1; e++) {
    root.append(
        svg("line", {class: "grid", x1: left, x2: width - right, y1: y(10 ** e), y2: y(10 ** e)}),
        svg("text", {class: "label", x: left - 8, y: y(10 ** e) + 4, "text-anchor": "end"},
            e < 0 ? (10 ** e).toFixed(-e) : digits(10 ** e, 0)));
  }
  root.append(
      svg("text", {class: "label", x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle"},
          "operations per byte of DRAM"),
      svg("text", {
        class: "label",
        x: 14,
        y: (top + height - bottom) / 2,
        "text-anchor": "middle",
        transform: `rotate(-90 14 ${(top + height - bottom) / 2})`
      },
          "TFLOP/s"));
  const xEnd = 10 ** x1, xStart = 10 ** x0;
  root.append(
      svg("line", {class: "roof", x1: x(xStart), y1: y(xStart * slope), x2: x(highest / slope), y2: y(highest)}));
  const sorted = [];
  for (const [name, value] of [...roofs].sort((a, b) => b[1] - a[1])) {
    const last = sorted[sorted.length - 1];
    if (last && value > 0.96 * last[1])
      last[0] += ", " + name; /* one line for the eye */
    else
      sorted.push([name, value]);
  }
  let free = -Infinity; /* below what is drawn already */
  sorted.forEach(([name, value], i) => {
    const at = y(value), next = i + 1 < sorted.length ? y(sorted[i + 1][1]) : height;
    root.append(svg("line", {class: "roof", x1: x(value / slope), y1: at, x2: x(xEnd), y2: at}));
    const label = at - 16 > free ? at - 5 : next - at > 18 ? at + 13 : null;
    if (label !== null)
      root.append(svg(
          "text", {class: "label", x: width - right - 4, y: label, "text-anchor": "end"}, `${name} ${short(value)}`));
    free = Math.max(at, label === null ? at : label + 2);
  });
  const angle = (-180 / Math.PI) * Math.atan2(y(xStart * slope) - y(xStart * 10 * slope), x(xStart * 10) - x(xStart));
  const midX = x(xStart * 3), midY = y(xStart * 3 * slope);
  root.append(
      svg("text", {class: "label", x: midX, y: midY - 7, transform: `rotate(${angle} ${midX} ${midY})`},
          `DRAM ${short(gbs)} GB/s`));
  for (const p of points) {
    const at = x(Math.max(xStart, Math.min(xEnd, p.intensity)));
    if (known(p.tflops)) {
      root.append(hover(
          svg("circle", {class: "hit", cx: at, cy: y(p.tflops), r: p.radius || 6, fill: p.color, "fill-opacity": .85}),
          () => p.text));
    } else {
      root.append(
          svg("line", {class: "dash", x1: at, x2: at, y1: y(roof(p.intensity)), y2: height - bottom}),
          hover(
              svg("circle", {
                class: "hit",
                cx: at,
                cy: y(roof(p.intensity)),
                r: 5.5,
                fill: "var(--back)",
                stroke: p.color,
                "stroke-width": 2.5
              }),
              () => p.text));
    }
  }
  return root;
}

/* ---- timeline ---- */

/* rows: [{label, host, boxes: [{start, end, name, color, text}]}], times in microseconds from 0 on. */
function timeline(rows, span, width) {
  const left = Math.min(120, width * 0.24), right = 12, rowHeight = 26, hostHeight = 16, top = 4, bottom = 26;
  const heights = rows.map((r) => (r.host ? hostHeight : rowHeight) + 6);
  const height = top + heights.reduce((a, b) => a + b, 0) + bottom;
  const root = frame(width, height, "Timeline of one run");
  const x = (us) => left + (width - left - right) * (us / span);
  const unit = span >= 1e6 ? [1e6, "s"] : span >= 1e3 ? [1e3, "ms"] : [1, "\u00b5s"];
  for (const tick of ticks(span / unit[0], Math.max(3, Math.floor((width - left) / 110)))) {
    const at = x(tick * unit[0]),
          label = digits(tick, tick % 1 ? (tick < 0.1 ? 3 : 2) : 0).replace(/(\.\d*?)0+$/, "$1");
    root.append(
        svg("line", {class: "grid", x1: at, x2: at, y1: top, y2: height - bottom}),
        svg("text", {class: "label", x: at, y: height - 8, "text-anchor": tick ? "middle" : "start"},
            label + " " + unit[1]));
  }
  let y = top;
  rows.forEach((row, i) => {
    const tall = row.host ? hostHeight : rowHeight;
    root.append(svg("text", {class: "label", x: 0, y: y + tall / 2 + 4}, row.label));
    for (const box of row.boxes) {
      const from = x(box.start), wide = Math.max(0.75, x(box.end) - from);
      root.append(hover(
          svg("rect", {class: "hit", x: from, y, width: wide, height: tall, fill: box.color, rx: wide > 6 ? 2 : 0}),
          () => box.text));
      const fits = Math.floor((wide - 8) / 6.6);
      if (!row.host && fits >= 4) {
        const label =
            svg("text", {x: from + 5, y: y + tall / 2 + 4, fill: DARK.includes(box.color) ? "#ffffff" : "#14171b"},
                box.name.length > fits ? box.name.slice(0, fits - 1) + "\u2026" : box.name);
        label.style.pointerEvents = "none";
        root.append(label);
      }
    }
    y += heights[i];
  });
  return root;
}
