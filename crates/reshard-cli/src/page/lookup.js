// What the data say of an element, a rank or a message: blocks are looked up, nothing is planned.
"use strict";

// The block of an axis around an index: [start, end, owner, local index of the start]; null past the blocks that the page carries.
function blockAt(axis, index) {
  let low = 0, high = axis.blocks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (axis.blocks[middle][1] <= index) low = middle + 1; else high = middle;
  }
  const block = axis.blocks[low];
  return block && block[0] <= index ? block : null;
}

// All coordinates of a grid whose entries are these; null stands for any.
function ranksAt(side, coords) {
  let places = [0];
  coords.forEach((coord, dim) => {
    const extent = side.grid[dim];
    const here = coord === null ? [...Array(extent).keys()] : [coord];
    places = places.flatMap((place) => here.map((one) => place * extent + one));
  });
  return places.map((place) => side.ranks[place]);
}

function coordsOf(side, rank) {
  let place = side.ranks.indexOf(rank);
  if (place < 0) return null;
  return side.grid.map((_, dim) => {
    const stride = side.grid.slice(dim + 1).reduce((a, b) => a * b, 1);
    const coord = Math.floor(place / stride);
    place %= stride;
    return coord;
  });
}

// Who has an element and where: {ranks, local}; null if the page does not carry its blocks.
function elementOf(side, index) {
  const blocks = side.axes.map((axis, dim) => blockAt(axis, index[dim]));
  if (blocks.some((block) => block === null)) return null;
  const coords = blocks.map((block, dim) => side.axes[dim].replicated ? null : block[2]);
  return { ranks: ranksAt(side, coords), local: blocks.map((block, dim) => block[3] + index[dim] - block[0]) };
}

// Where an element of the source goes: its index in the destination; null if it does not move.
function targetOf(window, index) {
  const inside = index.map((at, dim) => at - window.from[dim]);
  if (inside.some((at, dim) => at < 0 || at >= window.shape[dim])) return null;
  return window.axes.map((axis, dim) => inside[axis] + window.to[dim]);
}

// Where an element of the destination comes from; null if nothing moves there.
function sourceOf(window, index) {
  const source = Array(index.length);
  window.axes.forEach((axis, dim) => { source[axis] = index[dim] - window.to[dim]; });
  if (source.some((at, dim) => at < 0 || at >= window.shape[dim])) return null;
  return source.map((at, dim) => at + window.from[dim]);
}

// The pieces of an axis that a coordinate has, within a range.
function piecesOf(axis, coord, from, to) {
  const own = axis.blocks.filter((block) => axis.replicated || block[2] === coord);
  return own.map(([start, end]) => [Math.max(start, from), Math.min(end, to)]).filter(([start, end]) => start < end);
}

function overlaps(one, other) {
  const both = [];
  for (let i = 0, j = 0; i < one.length && j < other.length;) {
    const start = Math.max(one[i][0], other[j][0]), end = Math.min(one[i][1], other[j][1]);
    if (start < end) both.push([start, end]);
    if (one[i][1] < other[j][1]) i++; else j++;
  }
  return both;
}

// The elements of a message, as pieces of each axis: {from, to}. A message has the product of its pieces.
function elementsOf(data, from, to) {
  const { window } = data, sender = coordsOf(data.from, from), receiver = coordsOf(data.to, to);
  if (!sender || !receiver) return null;
  const pieces = { from: [], to: [] };
  window.axes.forEach((axis, dim) => {
    const begin = window.from[axis], there = window.to[dim], length = window.shape[axis];
    const sent = piecesOf(data.from.axes[axis], sender[axis], begin, begin + length);
    const kept = piecesOf(data.to.axes[dim], receiver[dim], there, there + length);
    const moved = sent.map(([start, end]) => [start - begin + there, end - begin + there]);
    pieces.to[dim] = overlaps(moved, kept);
    pieces.from[axis] = pieces.to[dim].map(([start, end]) => [start - there + begin, end - there + begin]);
  });
  return pieces;
}

// `7`, `1, 2 and 3`, `1, 2, 3 and 61 more`.
function listed(numbers, most = 4) {
  if (numbers.length === 1) return String(numbers[0]);
  const shown = numbers.slice(0, most), more = numbers.length - shown.length;
  return more > 0 ? `${shown.join(", ")} and ${more} more` : `${shown.slice(0, -1).join(", ")} and ${shown[shown.length - 1]}`;
}

// `(3, 4)`
const indexText = (index) => `(${index.join(", ")})`;

const counted = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

// Seconds in the unit that fits, with four digits.
function timeText(seconds) {
  if (seconds <= 0) return "0 s";
  const [unit, name] = [[1, "s"], [1e-3, "ms"], [1e-6, "us"]].find(([unit]) => seconds >= unit) ?? [1e-9, "ns"];
  const value = seconds / unit;
  return `${value.toFixed(value < 10 ? 3 : value < 100 ? 2 : 1)} ${name}`;
}

// The name of a step: a to z, then aa, ab, ...
function stepName(number) {
  let name = "";
  for (let rest = number + 1; rest > 0; rest = Math.floor((rest - 1) / 26)) {
    name = String.fromCharCode(97 + ((rest - 1) % 26)) + name;
  }
  return name;
}

// A count in at most five characters.
function shortened(count) {
  if (count < 10000) return String(count);
  let value = count;
  for (const unit of ["k", "M", "G", "T", "P", "E"]) {
    value /= 1000;
    if (value < 999.5) return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + unit;
  }
  return count.toExponential(1);
}

if (typeof module !== "undefined") {
  module.exports = { blockAt, elementOf, targetOf, sourceOf, elementsOf, stepName, timeText, shortened, listed };
}
