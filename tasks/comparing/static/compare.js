// The sortable table of runs, the scatter of two figures, and the parallel coordinates of several.
"use strict";

const isNumber = (value) => typeof value === "number";
const shown = (value) => value === null || value === undefined ? "–"
  : !isNumber(value) ? String(value)
    : value.toLocaleString("en", Math.abs(value) >= 999.95 ? {maximumFractionDigits: 0} : {maximumSignificantDigits: 4});
// The value of a run: integers beyond what a number of JavaScript holds come with all their digits.
const shownOf = (column, place) => column.exact?.[place] ?? shown(column.values[place]);
const CHARACTER = 6.2, LINE = 14;
const cut = (text, room) => text.length * CHARACTER <= room ? text : `${text.slice(0, Math.max(1, Math.floor(room / CHARACTER) - 1))}…`;

// The order of two values: numbers by size, before texts by their characters.
function compared(a, b) {
  if (isNumber(a) !== isNumber(b)) return isNumber(a) ? -1 : 1;
  return a === b ? 0 : a < b ? -1 : 1;
}

// A scale from the values of a column to places: by size for numbers, by order if there are texts. There are no more ticks than fit.
function scale(values, first, last, room = LINE) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.every(isNumber)) {
    const low = Math.min(...known), high = Math.max(...known), span = high - low;
    return {at: (v) => span ? first + (v - low) / span * (last - first) : (first + last) / 2, ticks: span ? [low, (low + high) / 2, high] : [low]};
  }
  const texts = [...new Set(known)].sort(compared);
  const step = texts.length > 1 ? (last - first) / (texts.length - 1) : 0;
  const apart = Math.max(1, Math.ceil(room / Math.abs(step)));
  return {at: (v) => texts.length > 1 ? first + texts.indexOf(v) * step : (first + last) / 2, ticks: texts.filter((_, place) => place % apart === 0)};
}

class Page {
  constructor(data) {
    Object.assign(this, data);
    this.byName = new Map(this.columns.map((column) => [column.name, column]));
    this.figures = this.columns.filter((column) => new Set(column.values.map(String)).size > 1 || column.values.some(isNumber));
    this.shown = [...this.chosen];
    this.sort = {name: "", down: true};
    this.axes = new Set(this.chosen);
    if (this.axes.size < 2) this.figures.filter((c) => c.of === "metric").slice(0, 4).forEach((c) => this.axes.add(c.name));
    this.prepare();
    this.drawTable();
    this.drawScatter();
    this.drawLines();
  }

  prepare() {
    const option = (column) => element("option", column.name, {value: column.name});
    $("add").append(element("option", "choose a figure", {value: ""}), ...this.figures.map(option));
    $("add").addEventListener("change", () => {
      if ($("add").value && !this.shown.includes($("add").value)) this.shown.push($("add").value);
      $("add").value = "";
      this.drawTable();
    });
    for (const id of ["across", "up"]) {
      $(id).append(...this.figures.map(option));
      $(id).addEventListener("change", () => this.drawScatter());
    }
    const metrics = this.chosen.filter((name) => this.byName.get(name).of === "metric");
    const rest = this.figures.filter((c) => c.of === "metric" && new Set(c.values).size > 1).map((c) => c.name);
    const [across, up] = [...new Set([...metrics, ...rest, ...this.figures.map((c) => c.name)])];
    if (across) $("across").value = across;
    if (up ?? across) $("up").value = up ?? across;
    for (const column of this.figures) {
      const box = element("input", undefined, {type: "checkbox", checked: this.axes.has(column.name)});
      box.addEventListener("change", () => { this.axes[box.checked ? "add" : "delete"](column.name); this.drawLines(); });
      const label = element("label", undefined, {className: "tick"});
      label.append(box, column.name);
      $("axes").append(label);
    }
  }

  order() {
    const places = this.runs.map((_, place) => place), {name, down} = this.sort;
    if (!name) return places;
    const own = {run: "id", name: "name", state: "state", began: "started"}[name];
    const value = own ? (p) => this.runs[p][own] : (p) => this.byName.get(name).values[p];
    return places.sort((a, b) => {
      const left = value(a), right = value(b);
      if (left === right) return a - b;
      if (left === null || left === undefined) return 1;
      if (right === null || right === undefined) return -1;
      return compared(left, right) * (down ? -1 : 1);
    });
  }

  drawTable() {
    const focused = document.activeElement?.dataset?.sort;
    const table = element("table"), head = element("tr"), body = element("tbody");
    for (const name of ["run", "name", "state", "began", ...this.shown]) {
      const cell = element("th", undefined, {scope: "col"}), button = element("button", name, {type: "button"});
      button.dataset.sort = name;
      button.addEventListener("click", () => this.sortBy(name));
      if (this.sort.name === name) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      if (this.byName.get(name)?.values.some(isNumber)) cell.className = "n";
      cell.append(button);
      head.append(cell);
    }
    for (const place of this.order()) {
      const run = this.runs[place], row = element("tr");
      row.dataset.place = String(place);
      row.append(element("th", run.id, {scope: "row"}), element("td", run.name), element("td", run.state), element("td", run.started.replace("T", " ")));
      for (const name of this.shown) {
        const column = this.byName.get(name);
        row.append(element("td", shownOf(column, place), {className: isNumber(column.values[place]) ? "n" : ""}));
      }
      body.append(row);
    }
    const top = element("thead");
    top.append(head);
    table.append(element("caption", "The runs; the first of the comparison is what the others are measured against"), top, body);
    $("table").replaceChildren(table);
    if (focused) $("table").querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus({preventScroll: true});
  }

  sortBy(name) {
    this.sort = {name, down: this.sort.name === name ? !this.sort.down : true};
    this.drawTable();
    $("sorted").textContent = `Sorted by ${name}, ${this.sort.down ? "highest" : "lowest"} first.`;
  }

  mark(place, words, status) {
    const group = drawn("g", {class: `mark-of${place === 0 ? " first" : ""}`, tabindex: 0, role: "img", "aria-label": words});
    group.append(drawn("title", {}, words));
    const tell = () => { $(status).textContent = words; this.choose(place); };
    group.addEventListener("focus", tell);
    group.addEventListener("mouseenter", tell);
    return group;
  }

  choose(place) {
    document.querySelectorAll("#table tr[data-place]").forEach((row) =>
      row.classList.toggle("chosen", row.dataset.place === String(place)));
  }

  drawScatter() {
    const [x, y] = ["across", "up"].map((id) => this.byName.get($(id).value));
    if (!x || !y) { $("points").replaceChildren(element("p", "No figure differs.", {className: "gap"})); return; }
    const width = 560, height = 340, across = scale(x.values, 84, width - 44, 60), up = scale(y.values, height - 48, 20);
    const room = Math.min(140, (width - 128) / Math.max(1, across.ticks.length - 1) - 6);
    const svg = drawn("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${y.name} over ${x.name}`});
    for (const tick of across.ticks) {
      svg.append(drawn("line", {class: "grid", x1: across.at(tick), x2: across.at(tick), y1: 14, y2: height - 42}));
      svg.append(drawn("text", {class: "middle small", x: across.at(tick), y: height - 28}, cut(shown(tick), room)));
    }
    for (const tick of up.ticks) {
      svg.append(drawn("line", {class: "grid", x1: 78, x2: width - 14, y1: up.at(tick), y2: up.at(tick)}));
      svg.append(drawn("text", {class: "end small", x: 74, y: up.at(tick) + 4}, cut(shown(tick), 72)));
    }
    svg.append(drawn("text", {class: "middle", x: (84 + width - 44) / 2, y: height - 8}, `${x.name} → ${y.name}`));
    this.runs.forEach((run, place) => {
      const [a, b] = [x.values[place], y.values[place]];
      if (a === null || b === null) return;
      const group = this.mark(place, `${run.id} ${run.name}: ${x.name} ${shownOf(x, place)}, ${y.name} ${shownOf(y, place)}`, "point");
      group.append(drawn("circle", {class: "dot", cx: across.at(a), cy: up.at(b), r: 7}));
      svg.append(group);
    });
    $("points").replaceChildren(svg);
  }

  drawLines() {
    const axes = this.figures.filter((column) => this.axes.has(column.name));
    if (axes.length < 2) { $("lines").replaceChildren(element("p", "Choose at least two axes.", {className: "gap"})); return; }
    const width = 1040, height = 340, top = 64, bottom = height - 24, left = 90, step = (width - left - 110) / (axes.length - 1);
    const scales = axes.map((column) => scale(column.values, bottom, top));
    const svg = drawn("svg", {class: "chart wide-chart", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Runs over ${axes.map((c) => c.name).join(", ")}`});
    const labels = drawn("g", {class: "labels"});
    axes.forEach((column, index) => {
      const x = left + index * step, parts = column.name.split(".");
      svg.append(drawn("line", {class: "axis", x1: x, x2: x, y1: top, y2: bottom}));
      parts.slice(-2).forEach((part, line) => svg.append(drawn("text", {class: "middle small", x, y: 20 + 15 * line + (index % 2) * 8}, part)));
      for (const tick of scales[index].ticks) labels.append(drawn("text", {class: "small", x: x + 6, y: scales[index].at(tick) + 4}, cut(shown(tick), index + 1 < axes.length ? step - 12 : 100)));
    });
    this.runs.forEach((run, place) => {
      const words = axes.map((column) => `${column.name} ${shownOf(column, place)}`).join(", ");
      const group = this.mark(place, `${run.id} ${run.name}: ${words}`, "line"), path = this.path(axes, scales, place, left, step);
      group.append(drawn("path", {class: "hit", d: path}), drawn("path", {class: "run", d: path}));
      svg.append(group);
    });
    svg.append(labels);
    $("lines").replaceChildren(svg);
  }

  path(axes, scales, place, left, step) {
    let moved = false;
    return axes.map((column, index) => {
      const value = column.values[place];
      if (value === null || value === undefined) { moved = false; return ""; }
      const point = `${moved ? "L" : "M"}${(left + index * step).toFixed(1)} ${scales[index].at(value).toFixed(1)}`;
      moved = true;
      return point;
    }).join("");
  }
}

const ready = unpacked("data").then((data) => { window.comparison = new Page(data); return data; });
