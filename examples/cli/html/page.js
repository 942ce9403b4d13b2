/* SPDX-License-Identifier: MIT
   What the parts of the page are made with. Text goes into text nodes and attributes that are no code, never into
   markup. */

/* What a reader cannot see, or what turns the order of characters around, is shown by its number. Line ends and tabs
 * stay. */
function visible(text) {
  return String(text).replace(
      /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
      (c) => "\u2039U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u203a");
}

function put(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return node;
}

/* el("p", "class name", child...) */
function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  return put(node, children);
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) node.setAttribute(name, attributes[name]);
  return put(node, children);
}

function button(label, action) {
  const node = el("button", "", label);
  node.type = "button";
  node.addEventListener("click", action);
  return node;
}

/* entries: [value, label]; changed(value) */
function choice(entries, chosen, changed) {
  const node = el("select", "");
  for (const [value, label] of entries) {
    const option = el("option", "", label);
    option.value = value;
    node.append(option);
  }
  node.value = chosen;
  node.addEventListener("change", () => changed(node.value));
  return node;
}

/* columns: [title, "number" or "" or "name"]; rows: lists of cells, or {cells, className} */
function table(columns, rows) {
  const head = el("tr", "");
  for (const [title, kind] of columns) {
    const cell = el("th", kind, title);
    cell.scope = "col";
    head.append(cell);
  }
  const body = el("tbody", "");
  for (const row of rows) {
    const cells = row.cells || row;
    body.append(el("tr", row.className || "", cells.map((cell, i) => el("td", columns[i][1], cell))));
  }
  return el("div", "scroll", el("table", "", el("thead", "", head), body));
}

function bar(share, color) {
  const filled = el("i", "");
  filled.style.width = 100 * Math.max(0, Math.min(1, share || 0)) + "%";
  if (color) filled.style.background = color;
  return el("span", "bar", filled);
}

function facts(pairs) {
  const list = el("dl", "");
  for (const [name, value] of pairs)
    if (value !== null && value !== undefined && value !== "") list.append(el("dt", "", name), el("dd", "", value));
  return list;
}

function figure(value, name) {
  return el("div", "figure", el("b", "", value), el("span", "", name));
}

/* ---- numbers ---- */

const known = (value) => typeof value === "number" && isFinite(value);

function digits(value, places) {
  return known(value) ? value.toLocaleString("en", {minimumFractionDigits: places, maximumFractionDigits: places}) : "";
}

/* Three digits that count. */
function short(value) {
  if (!known(value)) return "";
  const size = Math.abs(value);
  return digits(value, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

function time(us) {
  if (!known(us) || us <= 0) return "";
  return us < 1e3 ? short(us) + " \u00b5s" : us < 1e6 ? short(us / 1e3) + " ms" : short(us / 1e6) + " s";
}

function bytes(value) {
  if (!known(value)) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < 4) value /= 1000, unit++;
  return (unit ? short(value) : digits(value, 0)) + " " + units[unit];
}

function percent(share, places) {
  return known(share) ? digits(100 * share, places || 0) + " %" : "";
}

const plural = (count, word) => digits(count, 0) + " " + word + (count === 1 ? "" : "s");

/* ---- what hovers, and what follows the width ---- */

const tip = document.getElementById("tip");

function hover(node, text) {
  node.addEventListener("pointermove", (event) => {
    tip.textContent = visible(text());
    tip.hidden = false;
    const right = event.clientX + 14 + tip.offsetWidth < window.innerWidth;
    tip.style.left = Math.max(4, right ? event.clientX + 14 : event.clientX - 10 - tip.offsetWidth) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 6)) + "px";
  });
  node.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  return node;
}

/* Calls changed() when the node has got a place in the page, and when its size has changed; not within the observer,
   which must not cause what it observes. */
function watch(node, changed) {
  queueMicrotask(changed);
  new ResizeObserver(() => requestAnimationFrame(changed)).observe(node);
}

/* A box that draw(width) is drawn into whenever its width has changed. */
function drawn(draw, className) {
  const box = el("div", className || "chart");
  let width = 0;
  const redraw = () => {
    const now = Math.round(box.clientWidth);
    if (now > 0 && now !== width) {
      width = now;
      box.replaceChildren(draw(width));
    }
  };
  watch(box, redraw);
  return box;
}

/* A part that cannot be drawn leaves the others alone. */
function part(make) {
  try {
    return make();
  } catch (error) {
    return el("p", "note bad", "This part cannot be shown: " + error.message);
  }
}
