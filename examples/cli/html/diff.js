/* SPDX-License-Identifier: MIT
   What changed between two texts, line by line, and how code is shown. */

/* Myers, "An O(ND) Difference Algorithm and Its Variations" (1986), without what both begin and end with. Texts that
   differ in more than MOST lines are shown as one replaced by the other. Returns [{sign, text, old, now}]. */
function diff(before, after) {
  const MOST = 3000;
  const a = before.split("\n"), b = after.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const n = a.length - head - tail, m = b.length - head - tail, rows = [];
  const same = (i, j) => rows.push({sign: " ", text: a[i], old: i + 1, now: j + 1});
  const removed = (i) => rows.push({sign: "-", text: a[i], old: i + 1});
  const added = (j) => rows.push({sign: "+", text: b[j], now: j + 1});
  for (let i = 0; i < head; i++) same(i, i);
  for (const [x, y, kind] of edits(a, b, head, n, m, MOST)) {
    if (kind === " ")
      same(x, y);
    else if (kind === "-")
      removed(x);
    else
      added(y);
  }
  for (let i = 0; i < tail; i++) same(head + n + i, head + m + i);
  return rows;
}

/* The way through n lines of a and m of b, both from `head` on. */
function edits(a, b, head, n, m, most) {
  const limit = Math.min(n + m, most), steps = [], out = [];
  let furthest = new Int32Array(2 * limit + 3), found = -1;
  for (let d = 0; d <= limit && found < 0; d++) {
    steps.push(furthest.slice(limit + 1 - d - 1, limit + 1 + d + 2));
    for (let k = -d; k <= d; k += 2) {
      const at = limit + 1 + k;
      let x = k === -d || (k !== d && furthest[at - 1] < furthest[at + 1]) ? furthest[at + 1] : furthest[at - 1] + 1;
      while (x < n && x - k < m && a[head + x] === b[head + x - k]) x++;
      furthest[at] = x;
      if (x >= n && x - k >= m) {
        found = d;
        break;
      }
    }
  }
  if (found < 0) {
    for (let i = 0; i < n; i++) out.push([head + i, 0, "-"]);
    for (let i = 0; i < m; i++) out.push([0, head + i, "+"]);
    return out;
  }
  let x = n, y = m;
  for (let d = found; d > 0; d--) {
    const kept = steps[d], k = x - y, at = (diagonal) => kept[diagonal + d + 1];
    const down = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const from = down ? k + 1 : k - 1, fromX = at(from), fromY = fromX - from;
    while (x > fromX && y > fromY) out.push([head + --x, head + --y, " "]);
    if (down)
      out.push([0, head + --y, "+"]);
    else
      out.push([head + --x, 0, "-"]);
  }
  while (x > 0 && y > 0) out.push([head + --x, head + --y, " "]);
  return out.reverse();
}

const whole = (text) => text.split("\n").map((line, i) => ({sign: " ", text: line, now: i + 1}));

/* Rows of diff() or whole(). fold: unchanged lines further than three from what matters are folded. heat: Map of line
   to [share, what it waits for], or null. */
function codeView(rows, options) {
  const {fold, heat, numbers} = Object.assign({fold: false, heat: null, numbers: 2}, options);
  const matters = rows.map((row) => row.sign !== " " || (heat && heat.has(row.now)));
  const near = rows.map((_, i) => matters.slice(Math.max(0, i - 3), i + 4).some(Boolean));
  const lines = el("div", "lines");
  const line = (row) => {
    const hot = heat && row.sign !== "-" ? heat.get(row.now) : null;
    const node =
        el("div",
           "line" +
               (row.sign === "+"     ? " added" :
                    row.sign === "-" ? " removed" :
                                       "") +
               (hot ? " hot" : ""),
           heat && el("span", "heat", hot ? percent(hot[0], hot[0] < 0.0995 ? 1 : 0) : " "),
           numbers > 1 && el("span", "number", row.old || " "), el("span", "number", row.now || " "),
           numbers > 1 && el("span", "sign", row.sign === " " ? " " : row.sign), el("span", "text", row.text || " "));
    return hot && hot[1] ? hover(node, () => hot[1]) : node;
  };
  for (let i = 0; i < rows.length;) {
    let end = i;
    while (fold && end < rows.length && !near[end]) end++;
    if (end - i > 1) {
      const from = i, to = end;
      const gap = button(
          "\u22ef " + (to - from) + " lines" + (heat ? "" : " as before"),
          () => gap.replaceWith(...rows.slice(from, to).map(line)));
      gap.className = "gap";
      lines.append(gap);
      i = end;
    } else {
      lines.append(line(rows[i++]));
    }
  }
  return el("div", "code", lines);
}
