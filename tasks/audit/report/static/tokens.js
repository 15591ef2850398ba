// The table of all tokens, of which only the visible rows are in the page, and the merge tree of one.
"use strict";

const ROW = 30, BEYOND = 12;

class TokenTable {
  constructor(columns) {
    this.columns = columns;
    this.count = columns.token_id.length;
    this.places = new Map(columns.token_id.map((id, place) => [id, place]));
    this.shown = Uint32Array.from({length: this.count}, (_, place) => place);
    this.sort = {column: "token_id", down: false};
    for (const [id, column] of [["kind", columns.kind], ["script", columns.scripts]])
      column.names.forEach((name, place) => $(id).append(element("option", name || "none", {value: String(place)})));
    for (const id of ["search", "kind", "script", "state"]) $(id).addEventListener("input", () => this.filter());
    $("grid").addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    document.querySelectorAll("[data-sort]").forEach((button) =>
      button.addEventListener("click", () => this.sortBy(button.dataset.sort)));
    $("rows").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) { showTree(this, Number(button.dataset.place)); $("tree-title").focus(); }
    });
    this.filter();
  }

  value(name, place) {
    const column = this.columns[name];
    return column.names ? column.names[column.places[place]] : column[place];
  }

  matcher() {
    const wanted = $("search").value;
    if (/^#\d+$/.test(wanted)) return (place) => this.columns.token_id[place] === Number(wanted.slice(1));
    const pattern = /^\/(.+)\/$/.exec(wanted);
    if (pattern) {
      const found = new RegExp(pattern[1], "u");
      return (place) => found.test(this.columns.text[place]);
    }
    const text = wanted.toLowerCase();
    this.lower ??= this.columns.text.map((one) => one.toLowerCase());
    return text ? (place) => this.lower[place].includes(text) : () => true;
  }

  filter() {
    let matches;
    try { matches = this.matcher(); } catch (error) { $("found").textContent = error.message; return; }
    const {kind, scripts, reachable, redundant, num_training} = this.columns;
    const wanted = {kind: $("kind").value, script: $("script").value, state: $("state").value};
    const states = {
      "": () => true, unreachable: (p) => reachable[p] === false, redundant: (p) => redundant[p] === true,
      unseen: (p) => num_training[p] === 0,
    };
    const inState = states[wanted.state], kept = [];
    for (let p = 0; p < this.count; p++)
      if ((wanted.kind === "" || kind.places[p] === Number(wanted.kind)) &&
          (wanted.script === "" || scripts.places[p] === Number(wanted.script)) && inState(p) && matches(p)) kept.push(p);
    this.shown = Uint32Array.from(kept);
    this.order();
    $("found").textContent = `${kept.length.toLocaleString("en")} of ${this.count.toLocaleString("en")} tokens`;
    $("grid").scrollTop = 0;
    this.draw();
  }

  sortBy(column) {
    this.sort = {column, down: this.sort.column === column && !this.sort.down};
    document.querySelectorAll("[data-sort]").forEach((button) => {
      const head = button.parentElement;
      head.removeAttribute("aria-sort");
      if (button.dataset.sort === column) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
    });
    this.order();
    $("grid").scrollTop = 0;
    this.draw();
  }

  order() {
    const {column, down} = this.sort, sign = down ? -1 : 1;
    this.shown.sort((a, b) => {
      const left = this.value(column, a), right = this.value(column, b);
      if (left === right) return a - b;
      if (left === null || left === undefined) return 1;
      if (right === null || right === undefined) return -1;
      return (left < right ? -1 : 1) * sign;
    });
  }

  draw() {
    const grid = $("grid"), first = Math.max(Math.floor(grid.scrollTop / ROW) - BEYOND, 0);
    const last = Math.min(first + Math.ceil(grid.clientHeight / ROW) + 2 * BEYOND, this.shown.length);
    const rows = [this.space(first)];
    for (let i = first; i < last; i++) rows.push(this.row(this.shown[i], i));
    rows.push(this.space(this.shown.length - last));
    grid.querySelector("table").setAttribute("aria-rowcount", String(this.shown.length + 1));
    const focused = document.activeElement?.dataset?.place;
    $("rows").replaceChildren(...rows);
    if (focused) $("rows").querySelector(`[data-place="${focused}"]`)?.focus({preventScroll: true});
  }

  space(count) {
    const row = element("tr", undefined, {className: "space"});
    row.setAttribute("aria-hidden", "true");
    row.style.height = `${count * ROW}px`;
    row.append(element("td"));
    return row;
  }

  row(place, index) {
    const row = element("tr");
    row.setAttribute("aria-rowindex", String(index + 2));
    const head = element("th", undefined, {scope: "row"}), button = element("button", String(this.columns.token_id[place]), {type: "button"});
    button.dataset.place = String(place);
    button.setAttribute("aria-label", `merge tree of token ${this.columns.token_id[place]}`);
    head.append(button);
    row.append(head, element("td", this.columns.text[place]));
    for (const name of ["num_bytes", "num_training", "rank"]) {
      const value = this.columns[name][place];
      row.append(element("td", value === null ? "–" : value.toLocaleString("en"), {className: "n"}));
    }
    for (const name of ["kind", "scripts"]) row.append(element("td", this.value(name, place)));
    return row;
  }
}

function showTree(table, place) {
  const {text, token_id, left} = table.columns;
  $("tree-title").textContent = `Merge tree of ${text[place]} (${token_id[place]})`;
  $("tree-note").textContent = left[place] === null ? "No merge makes this token." : "A token, and below it the two that it is merged from.";
  $("tree").replaceChildren(branch(table, place, 0));
}

function branch(table, place, depth) {
  const {text, token_id, rank, left, right} = table.columns, item = element("li");
  item.append(element("span", text[place], {className: `t t${depth % 6}`}));
  item.append(element("span", ` ${token_id[place]}${rank[place] === null ? "" : `, rank ${rank[place].toLocaleString("en")}`}`, {className: "remark"}));
  if (left[place] !== null && depth < 200) {
    const parts = element("ul");
    for (const part of [left[place], right[place]]) parts.append(branch(table, table.places.get(part), depth + 1));
    item.append(parts);
  }
  return item;
}

unpacked("data").then((columns) => { window.tokenTable = new TokenTable(columns); });
