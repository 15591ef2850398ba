// Places boxes in rows, from what things are made of to what is made from them. Pure functions of plain data.
"use strict";

// The boxes that are drawn: an unfolded node alone, a folded family as one; and the arrows between boxes.
function boxesOf(nodes, edges, folded) {
  const boxes = new Map(), boxOf = new Map();
  for (const node of nodes) {
    const key = folded.has(node.family) ? node.family : node.key;
    if (!boxes.has(key)) boxes.set(key, {key, members: []});
    boxes.get(key).members.push(node);
    boxOf.set(node.key, key);
  }
  const arrows = new Map();
  for (const [source, target] of edges) {
    const from = boxOf.get(source), to = boxOf.get(target);
    if (from !== to) arrows.set(`${from} ${to}`, {from, to});
  }
  return {boxes: [...boxes.values()], arrows: [...arrows.values()], boxOf};
}

// The boxes next to each one: its inputs (`up`), and what used it (`down`).
function neighboursOf(boxes, arrows) {
  const up = new Map(boxes.map((box) => [box.key, []])), down = new Map(boxes.map((box) => [box.key, []]));
  for (const {from, to} of arrows) { up.get(to).push(from); down.get(from).push(to); }
  return {up, down};
}

// Every box that is reached from one, itself left out.
function reached(start, next) {
  const seen = new Set(), waiting = [start];
  while (waiting.length) for (const key of next.get(waiting.pop()) ?? []) if (key !== start && !seen.has(key)) { seen.add(key); waiting.push(key); }
  return seen;
}

// The row of each box: below all of its inputs. Families that are folded may use each other; such a circle is
// cut at the arrow that closes it. What has no input stands just above what uses it first.
function rowsOf(boxes, {up, down}) {
  const row = new Map(), open = new Set();
  for (const {key: start} of boxes) {
    const stack = [[start, 0]];
    while (stack.length) {
      const frame = stack[stack.length - 1], [key] = frame, inputs = up.get(key);
      if (row.has(key)) { stack.pop(); continue; }
      open.add(key);
      while (frame[1] < inputs.length && (row.has(inputs[frame[1]]) || open.has(inputs[frame[1]]))) frame[1] += 1;
      if (frame[1] < inputs.length) { stack.push([inputs[frame[1]], 0]); continue; }
      row.set(key, Math.max(-1, ...inputs.map((input) => row.get(input) ?? -1)) + 1);
      open.delete(key);
      stack.pop();
    }
  }
  for (const {key} of boxes) {
    const users = down.get(key).map((user) => row.get(user));
    if (!up.get(key).length && users.length) row.set(key, Math.max(0, Math.min(...users) - 1));
  }
  const rows = [];
  for (const {key} of boxes) (rows[row.get(key)] ??= []).push(key);
  return rows.filter((one) => one);
}

// Arrows over several rows get a place in each row between, a lane, so that they do not cross boxes. Those from one
// box, or those to one box, share their lanes: whichever are more.
function withLanes(rows, boxes, arrows) {
  const row = new Map(rows.flatMap((keys, index) => keys.map((key) => [key, index]))), long = ({from, to}) => row.get(to) - row.get(from) > 1;
  const leaving = new Map(), entering = new Map(), add = (map, key) => map.set(key, (map.get(key) ?? 0) + 1);
  for (const arrow of arrows.filter(long)) { add(leaving, arrow.from); add(entering, arrow.to); }
  const near = {up: new Map(boxes.map((box) => [box.key, []])), down: new Map(boxes.map((box) => [box.key, []]))};
  const lanes = new Set(), join = (from, to) => { near.down.get(from).push(to); near.up.get(to).push(from); };
  const paths = arrows.map((arrow) => {
    const {from, to} = arrow, path = [from];
    if (long(arrow)) {
      const shared = leaving.get(from) > entering.get(to) ? `from ${from}` : `to ${to}`;
      for (let index = row.get(from) + 1; index < row.get(to); index += 1) {
        const lane = `lane ${index} ${shared}`;
        if (!lanes.has(lane)) { lanes.add(lane); rows[index].push(lane); near.up.set(lane, []); near.down.set(lane, []); }
        path.push(lane);
      }
    }
    path.push(to);
    path.slice(1).forEach((key, index) => join(path[index], key));
    return {...arrow, path};
  });
  return {near, lanes, paths};
}

// What is in a row stands near the middle of what it is joined to.
function inOrder(rows, {up, down}) {
  const place = new Map();
  const number = () => rows.forEach((row) => row.forEach((key, index) => place.set(key, row.length > 1 ? index / (row.length - 1) : 0.5)));
  number();
  for (let sweep = 0; sweep < 8; sweep += 1) {
    const next = sweep % 2 ? down : up;
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const middle = new Map(row.map((key) => {
        const near = next.get(key).map((other) => place.get(other));
        return [key, near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : place.get(key)];
      }));
      row.sort((a, b) => middle.get(a) - middle.get(b));
      row.forEach((key, index) => place.set(key, row.length > 1 ? index / (row.length - 1) : 0.5));
    }
  }
  return rows;
}

const BOX = {width: 232, height: 70, across: 26, below: 42, between: 14}, LANE = 20;

// The left upper corner of each box, the points of each arrow, and the size of the whole. A row of more than
// `most` boxes is broken into lines; its lanes go beside it.
function placed(boxes, arrows, most) {
  const near = neighboursOf(boxes, arrows), rows = rowsOf(boxes, near);
  const {near: joined, lanes, paths} = withLanes(rows, boxes, arrows);
  inOrder(rows, joined);
  const broad = (key) => lanes.has(key) ? LANE : BOX.width + BOX.across;
  const broken = rows.map((row) => {
    const alone = row.filter((key) => !lanes.has(key)), lines = Math.ceil(alone.length / most);
    if (lines <= 1) return [row];
    const each = Math.ceil(alone.length / lines);
    const made = Array.from({length: lines}, (_, line) => alone.slice(line * each, (line + 1) * each));
    made[0].push(...row.filter((key) => lanes.has(key)));
    return made;
  });
  const long = (line) => line.reduce((sum, key) => sum + broad(key), 0) - BOX.across;
  const width = Math.max(...broken.flat().map(long)), corner = new Map(), spot = new Map(), order = [];
  let y = 0;
  for (const lines of broken) {
    const height = lines.length * (BOX.height + BOX.between) - BOX.between;
    lines.forEach((line, index) => {
      let x = (width - long(line)) / 2;
      const top = y + index * (BOX.height + BOX.between);
      for (const key of line) {
        if (lanes.has(key)) spot.set(key, {x: x + LANE / 2 - BOX.across / 2, top: y - 4, bottom: y + height + 4});
        else { corner.set(key, {x, y: top}); spot.set(key, {x: x + BOX.width / 2, top: top - 7, bottom: top + BOX.height}); }
        x += broad(key);
      }
      order.push(line.filter((key) => !lanes.has(key)));
    });
    y += height + BOX.below;
  }
  const lines = paths.map(({from, to, path}) => ({from, to, points: path.map((key) => spot.get(key))}));
  return {corner, near, order, lines, width, height: y - BOX.below};
}

// A curve from the lower side of the first point to the upper side of the last, straight along lanes.
function curveOf(points) {
  let path = `M${points[0].x} ${points[0].bottom}`;
  points.slice(1).forEach((to, index) => {
    const from = points[index], bend = Math.max(16, Math.abs(to.top - from.bottom) / 2);
    path += `C${from.x} ${from.bottom + bend} ${to.x} ${to.top - bend} ${to.x} ${to.top}`;
    if (index < points.length - 2) path += `L${to.x} ${to.bottom}`;
  });
  return path;
}

if (typeof module !== "undefined") module.exports = {boxesOf, neighboursOf, reached, rowsOf, placed, curveOf};
