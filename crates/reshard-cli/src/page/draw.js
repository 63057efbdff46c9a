// Draws on canvases: arrays, the communication grid, a step, a timeline. Colours and hatchings are those of the program's pictures.
"use strict";

const COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#0072b2", "#bbbbbb"];
const WHITE_ON = new Set(["#0072b2"]);
const HATCHES = 8;

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Makes a canvas as large as it is shown, and clears it.
function begin(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 300;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  return { ctx, width, height, ink: cssColour("--ink"), faint: cssColour("--faint"), line: cssColour("--line"), idle: cssColour("--idle") };
}

// Draws what stays, and over it what changes: what stays is kept as a picture as long as its key and the canvas are the same.
function layered(canvas, key, height, stays, changes) {
  const ratio = window.devicePixelRatio || 1, full = `${key} ${canvas.clientWidth} ${ratio} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
  if (canvas.kept?.key !== full) {
    const pen = begin(canvas, height);
    stays(pen);
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    copy.getContext("2d").drawImage(canvas, 0, 0);
    canvas.kept = { key: full, copy, pen };
  } else {
    const { ctx } = canvas.kept.pen;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    ctx.drawImage(canvas.kept.copy, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  changes(canvas.kept.pen);
}

const patterns = new Map();
const colourOf = (index) => COLOURS[index % COLOURS.length];
const hatchOf = (index) => Math.floor(index / COLOURS.length) % HATCHES;
const inkOn = (index) => WHITE_ON.has(colourOf(index)) ? "#ffffff" : "#111111";

// How thing number `index` is filled: a colour, from the ninth on hatched.
function fillOf(ctx, index) {
  const colour = colourOf(index), hatch = hatchOf(index);
  if (hatch === 0) return colour;
  const key = `${colour} ${hatch}`;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = WHITE_ON.has(colour) ? "rgba(255,255,255,.6)" : "rgba(0,0,0,.5)";
    const lines = [null, [[0, 8, 8, 0]], [[0, 0, 8, 8]], [[0, 8, 8, 0], [0, 0, 8, 8]], [[0, 4, 8, 4]], [[4, 0, 4, 8]], [[0, 4, 8, 4], [4, 0, 4, 8]], [[3, 4, 5, 4], [7, 0, 9, 0]]][hatch];
    for (const [x, y, toX, toY] of lines) { pen.beginPath(); pen.moveTo(x, y); pen.lineTo(toX, toY); pen.stroke(); }
    patterns.set(key, tile);
  }
  // A pattern is made once for a canvas: making one takes longer than a box.
  const made = ctx.patterns ??= new Map();
  if (!made.has(key)) made.set(key, ctx.createPattern(patterns.get(key), "repeat"));
  return made.get(key);
}

// Text in the middle of a box if it has room there.
function label(ctx, index, text, x, y, width, height) {
  if (height < 11 || width < 8) return false;
  const wide = ctx.measureText(text).width;
  if (wide + 3 > width) return false;
  if (hatchOf(index) > 0) {
    ctx.fillStyle = colourOf(index);
    ctx.fillRect(x + (width - wide) / 2 - 1, y + height / 2 - 6, wide + 2, 12);
  }
  ctx.fillStyle = inkOn(index);
  ctx.textAlign = "center";
  ctx.fillText(text, x + width / 2, y + height / 2 + 0.5);
  return true;
}

// Where an array lies on its canvas: {left, top, width, height, rows, columns} in elements of its corner.
function arrayPlace(canvas, side) {
  const one = side.shape.length === 1;
  const rows = one ? 1 : side.corner[0], columns = one ? side.corner[0] : side.corner[1];
  const left = one ? 0 : 8 + 7 * String(rows).length, top = 18, room = (canvas.clientWidth || 300) - left - 2;
  const scale = Math.min(room / Math.max(columns, 1), one ? Infinity : 360 / Math.max(rows, 1));
  const size = (count, most) => Math.min(Math.max(count * scale, Math.min(36, most)), most);
  return { one, left, top, width: size(columns, room), height: one ? 34 : size(rows, 360), rows, columns };
}

const blocksWithin = (axis, length) => axis.blocks.filter(([start]) => start < length);

// Draws the corner of an array; `marks` are {pieces, element}: what lights up. `framed` are the ranges that move, null if all do.
function drawArray(canvas, side, key, framed, marks) {
  const place = arrayPlace(canvas, side);
  layered(canvas, key, place.top + place.height + 10, (pen) => drawBlocks(pen, side, place, framed), (pen) => markArray(pen, place, marks));
}

function drawBlocks({ ctx, ink, faint }, side, { one, left, top, width, height, rows, columns }, framed) {
  if (rows === 0 || columns === 0) {
    ctx.fillStyle = faint;
    ctx.fillText("the array has no elements", left, top + 10);
    return;
  }
  const x = (at) => left + width * at / columns, y = (at) => top + height * at / rows;
  const across = blocksWithin(side.axes[one ? 0 : 1], columns), down = one ? [[0, 1]] : blocksWithin(side.axes[0], rows);
  for (const [start, end] of down) {
    for (const [begins, ends] of across) {
      const index = side.shape.map((_, dim) => dim === (one ? 0 : 1) ? begins : dim === 0 ? start : 0);
      const owner = elementOf(side, index);
      if (!owner) continue;
      const first = owner.ranks[0], right = Math.min(ends, columns), bottom = Math.min(end, rows);
      const box = [x(begins), y(start), x(right) - x(begins), y(bottom) - y(start)];
      ctx.fillStyle = fillOf(ctx, first);
      ctx.fillRect(...box);
      if (box[2] > 3 && box[3] > 3) { ctx.strokeStyle = "#ffffff"; ctx.lineWidth = 0.5; ctx.strokeRect(...box); }
      label(ctx, first, owner.ranks.length > 1 ? `${first}+${owner.ranks.length - 1}` : String(first), ...box);
    }
  }
  if (framed) {
    const [[start, end], [begins, ends]] = one ? [[0, 1], framed[0]] : framed;
    if (start < rows && begins < columns && start < end && begins < ends) {
      const box = [x(begins), y(start), x(Math.min(ends, columns)) - x(begins), y(Math.min(end, rows)) - y(start)];
      for (const [colour, line, dashes] of [["#ffffff", 4, []], ["#000000", 2, [6, 4]]]) {
        ctx.strokeStyle = colour;
        ctx.lineWidth = line;
        ctx.setLineDash(dashes);
        ctx.strokeRect(...box);
      }
      ctx.setLineDash([]);
    }
  }
  ctx.strokeStyle = ink;
  ctx.lineWidth = 0.8;
  ctx.strokeRect(left, top, width, height);
  ctx.fillStyle = faint;
  ticks(columns, 4).reduce((free, tick) => {
    const half = ctx.measureText(tick).width / 2 + 3;
    if (x(tick) - half < free - 1) return free;
    ctx.textAlign = "center";
    ctx.fillText(tick, Math.min(Math.max(x(tick), half), left + width - half + 4), 8);
    return x(tick) + half;
  }, -Infinity);
  if (!one) {
    ctx.textAlign = "right";
    let free = 0;
    for (const tick of ticks(rows, 4)) if (y(tick) >= free) { ctx.fillText(tick, left - 5, y(tick) + 4); free = y(tick) + 14; }
  }
}

// Lights up the elements of a message, and frames one element.
function markArray({ ctx, ink }, { one, left, top, width, height, rows, columns }, marks) {
  if (rows === 0 || columns === 0) return;
  const x = (at) => left + width * at / columns, y = (at) => top + height * at / rows;
  if (marks.pieces) {
    // Everything else fades.
    const [pieceRows, pieceColumns] = one ? [[[0, 1]], marks.pieces[0]] : [marks.pieces[0], marks.pieces[1]];
    const shade = new Path2D();
    shade.rect(left, top, width, height);
    const lit = new Path2D();
    for (const [start, end] of pieceRows) for (const [begins, ends] of pieceColumns) {
      if (start >= rows || begins >= columns) continue;
      const box = [x(begins), y(start), Math.max(x(Math.min(ends, columns)) - x(begins), 1), Math.max(y(Math.min(end, rows)) - y(start), 1)];
      shade.rect(...box);
      lit.rect(...box);
    }
    ctx.fillStyle = cssColour("--shade");
    ctx.fill(shade, "evenodd");
    ctx.strokeStyle = ink;
    ctx.lineWidth = 1;
    ctx.stroke(lit);
  }
  if (marks.element) {
    const [row, column] = one ? [0, marks.element[0]] : marks.element;
    if (row < rows && column < columns) {
      const wide = Math.max(width / columns, 5), high = Math.max(height / rows, 5);
      const [midX, midY] = [x(column + 0.5), y(row + 0.5)];
      for (const [colour, line] of [["#ffffff", 4], ["#000000", 2]]) {
        ctx.strokeStyle = colour;
        ctx.lineWidth = line;
        ctx.strokeRect(midX - wide / 2, midY - high / 2, wide, high);
      }
    }
  }
}

// A round stride of labels, so that each has the room it needs.
const strideOf = (size, needed) => [1, 2, 5, 10, 20, 50, 100, 200, 500].find((stride) => stride * size >= needed) ?? 1000;

// Round numbers from 0 to `most`.
function ticks(most, least) {
  if (most <= 0) return [0];
  const power = 10 ** Math.floor(Math.log10(most / least));
  const step = Math.max([5, 2, 1].map((factor) => factor * power).find((step) => step * least <= most * 1.0001) ?? power, most < 1e-300 ? 1 : 0);
  const all = [];
  for (let number = 0; number * step <= most * (1 + 1e-9); number++) all.push(Number((number * step).toPrecision(12)));
  return Number.isInteger(most) ? all.filter(Number.isInteger) : all;
}

const sortedRanks = (side) => [...side.ranks].sort((a, b) => a - b);

// Where the communication grid lies: {left, top, cellWidth, cellHeight, senders, receivers}.
function gridPlace(canvas, data) {
  const senders = sortedRanks(data.from), receivers = sortedRanks(data.to);
  const left = 14 + 7 * String(senders[senders.length - 1]).length, top = 20, room = (canvas.clientWidth || 300) - left - 4;
  const width = Math.min(Math.max(room / receivers.length, 1), 56);
  return { senders, receivers, left, top, cellWidth: width, cellHeight: Math.min(Math.max(width, 1.2), 28) };
}

// Draws who sends how much to whom, in the colour of the step; `messages` are [from, to, elements, steps].
function drawGrid(canvas, data, key, messages, step, chosen) {
  const place = gridPlace(canvas, data), { senders, receivers, left, top, cellWidth, cellHeight } = place;
  layered(canvas, key, top + cellHeight * senders.length + 6, (pen) => drawCells(pen, place, messages, step), ({ ctx, ink }) => {
    if (!chosen) return;
    const [row, column] = [senders.indexOf(chosen[0]), receivers.indexOf(chosen[1])];
    ctx.strokeStyle = ink;
    ctx.lineWidth = 2.5;
    ctx.strokeRect(left + column * cellWidth, top + row * cellHeight, cellWidth, cellHeight);
  });
}

function drawCells({ ctx, ink, faint }, { senders, receivers, left, top, cellWidth, cellHeight }, messages, step) {
  const high = cellHeight * senders.length, wide = cellWidth * receivers.length;
  const row = new Map(senders.map((rank, at) => [rank, at])), column = new Map(receivers.map((rank, at) => [rank, at]));
  for (const [from, to, elems, steps] of messages) {
    const number = step === null ? steps[0] : steps.find((one) => one === step);
    const box = [left + column.get(to) * cellWidth, top + row.get(from) * cellHeight, cellWidth, cellHeight];
    ctx.globalAlpha = number === undefined ? 0.15 : 1;
    ctx.fillStyle = fillOf(ctx, number ?? steps[0]);
    ctx.fillRect(...box);
    if (number !== undefined && cellHeight >= 24) {
      label(ctx, number, shortened(elems), box[0], box[1], box[2], box[3] / 2 + 2);
      label(ctx, number, stepName(number), box[0], box[1] + box[3] / 2 - 1, box[2], box[3] / 2 + 1);
    } else if (number !== undefined) label(ctx, number, stepName(number), ...box);
    ctx.globalAlpha = 1;
  }
  ctx.strokeStyle = ink;
  ctx.lineWidth = 0.8;
  ctx.strokeRect(left, top, wide, high);
  ctx.fillStyle = faint;
  ctx.textAlign = "center";
  const across = strideOf(cellWidth, 8 + 7 * String(receivers[receivers.length - 1]).length), down = strideOf(cellHeight, 13);
  receivers.forEach((rank, at) => { if (at % across === 0) ctx.fillText(rank, left + (at + 0.5) * cellWidth, top - 8); });
  ctx.textAlign = "right";
  senders.forEach((rank, at) => { if (at % down === 0) ctx.fillText(rank, left - 5, top + (at + 0.5) * cellHeight); });
}

// Draws the messages of a step as arrows, from senders to receivers, or between ranks on a ring.
function drawStep(canvas, data, key, messages, asRing, chosen) {
  const senders = sortedRanks(data.from), receivers = sortedRanks(data.to);
  const width = canvas.clientWidth || 300;
  const all = [...new Set([...senders, ...receivers])].sort((a, b) => a - b);
  const radius = Math.min(width / 2 - 40, 200);
  const row = Math.min(Math.max(320 / Math.max(senders.length, receivers.length), 1.2), 24);
  const height = asRing ? 2 * radius + 60 : row * Math.max(senders.length, receivers.length) + 30;
  const onRing = (rank, r = radius) => {
    const angle = 2 * Math.PI * all.indexOf(rank) / all.length - Math.PI / 2;
    return [width / 2 + r * Math.cos(angle), radius + 30 + r * Math.sin(angle)];
  };
  const inColumn = (ranks, x) => { const at = new Map(ranks.map((rank, place) => [rank, 24 + (place + 0.5) * row])); return (rank) => [x, at.get(rank)]; };
  const begins = asRing ? onRing : inColumn(senders, 46), ends = asRing ? onRing : inColumn(receivers, width - 46);
  const arrow = (ctx, [from, to], colour, line) => {
    const [x, y] = begins(from), [toX, toY] = ends(to);
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = line;
    if (x === toX && y === toY) {
      // To itself: a loop inside of the ring.
      const [inX, inY] = onRing(from, radius - 7);
      ctx.beginPath();
      ctx.arc(inX, inY, 6, 0, 7);
      ctx.stroke();
      return;
    }
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(toX, toY);
    ctx.stroke();
    const angle = Math.atan2(toY - y, toX - x), tip = messages.length > 200 ? 4 : 8;
    ctx.beginPath();
    ctx.moveTo(toX, toY);
    ctx.lineTo(toX - tip * Math.cos(angle - 0.4), toY - tip * Math.sin(angle - 0.4));
    ctx.lineTo(toX - tip * Math.cos(angle + 0.4), toY - tip * Math.sin(angle + 0.4));
    ctx.fill();
  };
  const names = ({ ctx, ink, faint }) => {
  ctx.fillStyle = faint;
  if (asRing) {
    const every = strideOf(2 * Math.PI * radius / all.length, 22);
    ctx.textAlign = "center";
    all.forEach((rank, at) => { if (at % every === 0) ctx.fillText(rank, ...onRing(rank, radius + 16)); });
    return;
  }
  const every = strideOf(row, 13);
  ctx.textAlign = "right";
  senders.forEach((rank, at) => { if (at % every === 0) ctx.fillText(rank, 40, begins(rank)[1]); });
  ctx.textAlign = "left";
  receivers.forEach((rank, at) => { if (at % every === 0) ctx.fillText(rank, width - 40, ends(rank)[1]); });
  ctx.fillStyle = ink;
  ctx.fillText("sends", 8, 9);
  ctx.textAlign = "right";
  ctx.fillText("receives", width - 4, 9);
  };
  layered(canvas, key, height, (pen) => {
    for (const message of messages) arrow(pen.ctx, message, colourOf(message[3]), messages.length > 200 ? 0.7 : 1.6);
    names(pen);
  }, (pen) => {
    const on = chosen && messages.find(([from, to]) => from === chosen[0] && to === chosen[1]);
    if (on) arrow(pen.ctx, on, pen.ink, 3);
  });
}

// Draws when each rank sends, and below when each receives; `moment` is where the play has come to, null for none.
function drawTimeline(canvas, key, timeline, stepOf, makespan, moment) {
  const sides = [[0, 1], [1, 0]].map(([row, peer]) => {
    const ranks = [...new Set(timeline.map((sent) => sent[row]))].sort((a, b) => a - b);
    return { row, peer, ranks, high: Math.min(Math.max(300 / Math.max(ranks.length, 1), 1.2), 16) };
  });
  const heights = sides.map(({ ranks, high }) => ranks.length * high + 22);
  const digits = Math.max(1, ...sides.flatMap(({ ranks }) => ranks.map((rank) => String(rank).length)));
  const width = canvas.clientWidth || 300;
  const left = 10 + 7 * digits, scale = (width - left - 8) / makespan, bottom = heights[0] + heights[1];
  layered(canvas, key, heights[0] + heights[1] + 24, ({ ctx, ink, faint, line, idle }) => {
  if (makespan <= 0) {
    ctx.fillStyle = faint;
    ctx.fillText(timeline.length > 0 ? "all messages take no time" : "nothing is sent", 4, 10);
    return;
  }
  let top = 16;
  sides.forEach(({ row, peer, ranks, high }, which) => {
    ctx.fillStyle = ink;
    ctx.textAlign = "left";
    ctx.fillText(which === 0 ? "who sends, and to whom" : "who receives, and from whom", left, top - 7);
    ctx.fillStyle = idle;
    ctx.fillRect(left, top, makespan * scale, ranks.length * high);
    const place = new Map(ranks.map((rank, at) => [rank, top + at * high]));
    // Messages of one rank at one time lie above each other.
    const lanes = new Map();
    for (const sent of [...timeline].sort((a, b) => a[3] - b[3])) {
      const ends = lanes.get(sent[row]) ?? [];
      let lane = ends.findIndex((end) => end <= sent[3] * (1 + 1e-9));
      if (lane < 0) lane = ends.length;
      ends[lane] = sent[4];
      lanes.set(sent[row], ends);
      sent.lane = lane;
    }
    for (const sent of timeline) {
      const count = lanes.get(sent[row]).length, gap = high >= 8 ? 1 : 0, tall = (high - gap) / count;
      const number = stepOf(sent);
      ctx.fillStyle = fillOf(ctx, number);
      const box = [left + sent[3] * scale, place.get(sent[row]) + sent.lane * tall, Math.max((sent[4] - sent[3]) * scale - 0.5, 0.5), tall];
      ctx.fillRect(...box);
      label(ctx, number, String(sent[peer]), ...box);
    }
    ctx.fillStyle = faint;
    ctx.textAlign = "right";
    const every = strideOf(high, 13);
    ranks.forEach((rank, at) => { if (at % every === 0) ctx.fillText(rank, left - 4, top + (at + 0.5) * high); });
    top += heights[which];
  });
  ctx.textAlign = "center";
  let free = 0;
  for (const tick of ticks(makespan, 4)) {
    const x = left + tick * scale, text = tick === 0 ? "0" : timeText(tick).replace(/\.?0+ /, " "), half = ctx.measureText(text).width / 2 + 3;
    ctx.strokeStyle = line;
    ctx.lineWidth = 0.5;
    ctx.beginPath(); ctx.moveTo(x, 16); ctx.lineTo(x, bottom); ctx.stroke();
    if (x - half >= free - 4) { ctx.fillStyle = faint; ctx.fillText(text, Math.min(Math.max(x, half), width - half), bottom + 8); free = x + half; }
  }
  }, ({ ctx, ink }) => {
    if (moment === null || makespan <= 0) return;
    // What is still to come fades.
    const x = left + moment * scale;
    ctx.fillStyle = cssColour("--shade");
    ctx.fillRect(x, 16, width - x, bottom - 16);
    ctx.strokeStyle = ink;
    ctx.lineWidth = 1.5;
    ctx.beginPath(); ctx.moveTo(x, 12); ctx.lineTo(x, bottom); ctx.stroke();
  });
}
