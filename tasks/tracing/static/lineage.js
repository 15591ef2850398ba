// The map of a lineage: boxes that can be folded, chosen, searched and moved to, and the record of the chosen one.
"use strict";
const FOLD_FROM = 2, MOST_LISTED = 200, MOST_IN_A_LINE = 8;

const cut = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
class Lineage {
  constructor(data) {
    Object.assign(this, data);
    this.byKey = new Map(this.nodes.map((node) => [node.key, node]));
    this.kinds = [...new Set(this.nodes.map((node) => node.kind))].sort();
    const sizes = new Map();
    for (const node of this.nodes) sizes.set(node.family, (sizes.get(node.family) ?? 0) + 1);
    this.families = new Set([...sizes].filter(([, size]) => size >= FOLD_FROM).map(([family]) => family));
    this.folded = new Set(this.families);
    this.view = {x: 0, y: 0, scale: 1};
    this.found = [];
    this.prepareKinds();
    this.prepareSearch();
    this.prepareMoving();
    this.draw();
    this.choose(this.graph.boxOf.get(this.root), this.byKey.get(this.root));
    this.fit();
    addEventListener("resize", () => this.fit());
  }

  colour(kind) { return `k${this.kinds.indexOf(kind) % 6}`; }

  prepareKinds() {
    for (const kind of this.kinds) {
      const families = [...this.families].filter((family) => this.nodes.some((n) => n.family === family && n.kind === kind));
      if (!families.length) continue;
      const number = this.nodes.filter((node) => node.kind === kind).length;
      const box = element("input", undefined, {type: "checkbox", checked: true});
      box.dataset.kind = kind;
      box.addEventListener("change", () => {
        families.forEach((family) => this.folded[box.checked ? "add" : "delete"](family));
        this.redraw();
      });
      const label = element("label", undefined, {className: "tick"});
      label.append(box, `${kind || "files"} (${number})`);
      $("folds").append(label);
    }
    $("fold").hidden = !$("folds").children.length;
  }

  redraw() {
    const chosen = this.chosen;
    this.draw();
    this.highlight();
    this.choose(this.graph.boxOf.get(chosen.key) ?? chosen.key, chosen);
    this.fit();
  }

  draw() {
    this.graph = boxesOf(this.nodes, this.edges, this.folded);
    this.boxes = new Map(this.graph.boxes.map((box) => [box.key, box]));
    this.map = placed(this.graph.boxes, this.graph.arrows, MOST_IN_A_LINE);
    const scene = drawn("g"), marks = drawn("g");
    this.lines = this.map.lines.map(({from, to, points}) => {
      const line = drawn("path", {class: "arrow", d: curveOf(points), "marker-end": "url(#head)"});
      line.from = from; line.to = to;
      scene.append(line);
      return line;
    });
    this.marks = new Map();
    for (const line of this.map.order) for (const key of line) {
      const mark = this.box(this.boxes.get(key));
      this.marks.set(key, mark);
      marks.append(mark);
    }
    scene.append(marks);
    this.scene = scene;
    $("scene").replaceChildren(scene);
  }

  words(box) {
    const [first] = box.members;
    if (box.members.length > 1) return {kind: first.kind || "files", title: box.key.slice(box.key.indexOf("/") + 1), small: `${box.members.length.toLocaleString("en")} folded`};
    const gone = first.status === "published" || first.status === "external" ? "" : `${first.status} · `;
    return {kind: first.kind || "files", title: first.label ? `${first.name}@${first.label}` : first.name || first.title, small: gone + first.figures};
  }

  box(box) {
    const {x, y} = this.map.corner.get(box.key), {kind, title, small} = this.words(box), [first] = box.members;
    const classes = ["box", this.colour(first.kind), first.status];
    if (box.members.length > 1) classes.push("many");
    if (box.members.some((node) => node.key === this.root)) classes.push("root");
    const mark = drawn("g", {class: classes.join(" "), transform: `translate(${x} ${y})`, role: "button", tabindex: -1, "aria-pressed": "false", "data-name": `${kind} ${title}`});
    mark.append(drawn("title", {}, `${kind} ${title}, ${small}`));  // its name, for readers of screens, too
    if (box.members.length > 1) mark.append(drawn("rect", {class: "behind", x: 5, y: 5, width: BOX.width, height: BOX.height, rx: 7}));
    mark.append(drawn("rect", {class: "face", width: BOX.width, height: BOX.height, rx: 7}), drawn("rect", {class: "edge", width: 6, height: BOX.height, rx: 3}));
    const texts = drawn("g", {"clip-path": "url(#inside)"});
    [[kind, 19, "kind", 32], [title, 39, "name", 27], [small, 58, "small", 31]].forEach(([text, at, name, most]) =>
      texts.append(drawn("text", {class: name, x: 16, y: at}, cut(text, most))));
    mark.append(texts);
    mark.dataset.key = box.key;
    mark.addEventListener("click", () => { if (!this.moved) { this.choose(box.key); mark.focus({preventScroll: true}); } });
    mark.addEventListener("keydown", (event) => this.key(event, box.key));
    return mark;
  }

  key(event, key) {
    const line = this.map.order.find((one) => one.includes(key)), place = line.indexOf(key);
    const to = {
      ArrowUp: this.map.near.up.get(key)[0], ArrowDown: this.map.near.down.get(key)[0],
      ArrowLeft: line[place - 1], ArrowRight: line[place + 1],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.choose(key);
    else if (to !== undefined) this.focus(to);
    else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
  }

  focus(key) {
    for (const [other, mark] of this.marks) mark.setAttribute("tabindex", other === key ? 0 : -1);
    this.marks.get(key).focus({preventScroll: true});
    this.show(key);
  }

  // Chooses a box, and of a folded one possibly a member.
  choose(key, node) {
    const box = this.boxes.get(key), {up, down} = this.map.near;
    this.chosen = node && box.members.includes(node) ? node : box.members.length > 1 ? {key, members: box.members} : box.members[0];
    const above = reached(key, up), below = reached(key, down), near = (one) => one === key || above.has(one) || below.has(one);
    for (const [other, mark] of this.marks) {
      mark.setAttribute("aria-pressed", String(other === key));
      mark.setAttribute("tabindex", other === key ? 0 : -1);
      mark.classList.toggle("far", !near(other));
    }
    for (const line of this.lines) {
      const on = (line.to === key || above.has(line.to)) && above.has(line.from) || (line.from === key || below.has(line.from)) && below.has(line.to);
      line.classList.toggle("on", on);
      line.setAttribute("marker-end", on ? "url(#head-on)" : "url(#head)");
      if (on) line.parentNode.insertBefore(line, this.scene.lastChild);
    }
    this.told = `${above.size} above it, ${below.size} below it.`;
    $("chosen").textContent = `${this.words(box).kind} ${this.words(box).title}: ${this.told}`;
    this.tell(box);
  }

  // -- the record of what is chosen --

  tell(box) {
    const parts = this.chosen.members ? this.family(box) : this.record(this.chosen, box);
    $("record").replaceChildren(...parts);
    $("record").scrollTop = 0;
  }

  family(box) {
    const kind = this.words(box).kind, unfold = element("button", "Unfold", {type: "button"});
    unfold.addEventListener("click", () => {
      this.folded.delete(box.key);
      const tick = $("folds").querySelector(`[data-kind="${CSS.escape(box.members[0].kind)}"]`);
      if (tick) tick.checked = false;
      this.chosen = box.members[0];
      this.redraw();
      this.focus(box.members[0].key);
    });
    return [element("h3", box.key), element("p", `${box.members.length.toLocaleString("en")} × ${kind}. ${this.told}`), unfold, this.listed("Members", box.members)];
  }

  record(node, box) {
    const parts = [element("h3", node.title)];
    if (box.members.length > 1) parts.push(element("p", `one of ${box.members.length.toLocaleString("en")} in ${box.key}`));
    parts.push(element("p", this.told));
    if (node.notice) parts.push(element("p", node.notice, {className: "gate"}));
    parts.push(this.pairs(node.facts));
    const inputs = this.edges.filter(([, target]) => target === node.key).map(([source]) => this.byKey.get(source));
    const users = this.edges.filter(([source]) => source === node.key).map(([, target]) => this.byKey.get(target));
    if (inputs.length) parts.push(this.listed("Made from", [...new Set(inputs)]));
    if (users.length) parts.push(this.listed("Used by", [...new Set(users)]));
    for (const [title, rows] of Object.entries(node.tables)) if (rows.length) parts.push(element("h4", title), this.pairs(rows));
    return parts;
  }

  pairs(rows) {
    const list = element("dl");
    for (const [name, value] of rows) list.append(element("dt", name), this.value(value));
    return list;
  }

  value(value) {
    const cell = element("dd");
    if (/^https?:\/\//.test(value)) cell.append(element("a", value, {href: value}));
    else cell.textContent = value;
    return cell;
  }

  listed(title, nodes) {
    const part = element("div"), list = element("ul", undefined, {className: "nodes"});
    for (const node of nodes.slice(0, MOST_LISTED)) {
      const button = element("button", node.title, {type: "button"}), item = element("li");
      button.addEventListener("click", () => this.go(node));
      item.append(button);
      list.append(item);
    }
    part.append(element("h4", nodes.length > 1 ? `${title} (${nodes.length.toLocaleString("en")})` : title), list);
    if (nodes.length > MOST_LISTED) part.append(element("p", `and ${(nodes.length - MOST_LISTED).toLocaleString("en")} more; search finds them`));
    return part;
  }

  go(node) {
    const key = this.graph.boxOf.get(node.key);
    this.choose(key, node);
    this.show(key);
  }

  // -- search --

  prepareSearch() {
    this.texts = this.nodes.map((node) => [node.title, node.key, node.content_digest, ...node.facts.map(([, value]) => value), ...(node.tables.Files ?? []).flat()].join(" ").toLowerCase());
    $("search").addEventListener("input", () => this.search());
    $("search").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.next(); } });
    $("next").addEventListener("click", () => this.next());
  }

  search() {
    const wanted = $("search").value.trim().toLowerCase();
    this.found = wanted ? this.nodes.filter((_, place) => this.texts[place].includes(wanted)) : [];
    this.place = -1;
    this.highlight();
    const first = this.found.length === 1 ? "Enter shows it." : "Enter shows the first.";
    $("found").textContent = !wanted ? "" : this.found.length ? `${this.found.length.toLocaleString("en")} found. ${first}` : "Nothing found.";
  }

  highlight() {
    const keys = new Set(this.found.map((node) => this.graph.boxOf.get(node.key)));
    for (const [key, mark] of this.marks) mark.classList.toggle("match", keys.has(key));
  }

  next() {
    if (!this.found.length) return;
    this.place = (this.place + 1) % this.found.length;
    this.go(this.found[this.place]);
    $("found").textContent = `${this.place + 1} of ${this.found.length.toLocaleString("en")}: ${this.found[this.place].title}`;
  }

  // -- moving --

  prepareMoving() {
    const frame = $("scene"), held = new Map();
    frame.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event); this.moved = false; });
    frame.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
      if (!this.moved && Math.hypot(dx, dy) < 4) return;
      if (!this.moved) { this.moved = true; frame.setPointerCapture(event.pointerId); }
      const others = [...held.values()].filter((one) => one.pointerId !== event.pointerId);
      if (others.length) {
        const distance = (one) => Math.hypot(one.clientX - others[0].clientX, one.clientY - others[0].clientY);
        this.zoom(distance(event) / Math.max(1, distance(before)), event.clientX, event.clientY);
      } else this.move(dx, dy);
      held.set(event.pointerId, event);
    });
    for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, (event) => held.delete(event.pointerId));
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;  // a page that scrolls must not be caught by its map
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 300), event.clientX, event.clientY);
    }, {passive: false});
    $("in").addEventListener("click", () => this.zoom(1.3));
    $("out").addEventListener("click", () => this.zoom(1 / 1.3));
    $("whole").addEventListener("click", () => this.fit(true));
    frame.addEventListener("keydown", (event) => {
      const act = {"+": () => this.zoom(1.3), "=": () => this.zoom(1.3), "-": () => this.zoom(1 / 1.3), "0": () => this.fit(true)}[event.key];
      if (act) { act(); event.preventDefault(); }
    });
  }

  size() { const {width, height} = $("scene").getBoundingClientRect(); return {width: Math.max(width, 1), height: Math.max(height, 1)}; }

  set(view) {
    this.view = view;
    $("scene").firstChild.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  }

  move(dx, dy) { this.set({...this.view, x: this.view.x + dx, y: this.view.y + dy}); }

  zoom(by, clientX, clientY) {
    const {left, top} = $("scene").getBoundingClientRect(), {width, height} = this.size();
    const scale = Math.min(3, Math.max(0.05, this.view.scale * by)), ratio = scale / this.view.scale;
    const x = clientX === undefined ? width / 2 : clientX - left, y = clientY === undefined ? height / 2 : clientY - top;
    this.set({scale, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio});
  }

  // Shows the whole map, or as much of it around the chosen box as can be read.
  fit(whole = false) {
    const {width, height} = this.size(), pad = 14;
    const all = Math.min((width - 2 * pad) / this.map.width, (height - 2 * pad) / this.map.height, 1);
    const scale = whole ? all : Math.max(all, 0.6);
    this.set({scale, x: (width - this.map.width * scale) / 2, y: Math.max(pad, (height - this.map.height * scale) / 2)});
    if (scale > all) this.show(this.graph.boxOf.get(this.chosen.key) ?? this.chosen.key, true);
  }

  show(key, centre = false) {
    const {x, y} = this.map.corner.get(key), {width, height} = this.size(), {scale} = this.view;
    const left = this.view.x + x * scale, top = this.view.y + y * scale;
    const inside = left > 0 && top > 0 && left + BOX.width * scale < width && top + BOX.height * scale < height;
    if (inside && !centre) return;
    this.set({scale, x: width / 2 - (x + BOX.width / 2) * scale, y: height / 2 - (y + BOX.height / 2) * scale});
  }
}

const ready = unpacked("data").then((data) => { window.lineage = new Lineage(data); return data; });
