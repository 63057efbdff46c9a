// Compares the page's script with the program: the simulator with `reshard simulate` for every strategy on many machines, and who has an
// element, where it goes and what a message holds with `reshard layout` and `reshard plan`. Arguments: the number of random cases.
import assert from "node:assert";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(import.meta.url);
const scripts = path.join(process.env.RESHARD_ROOT, "crates/reshard-cli/src/page");
const { simulate } = require(path.join(scripts, "simulate.js"));
const { elementOf, targetOf, sourceOf, elementsOf } = require(path.join(scripts, "lookup.js"));

const reshard = (...words) => execFileSync(process.env.RESHARD, words, { maxBuffer: 1 << 28 }).toString();
const answer = (...words) => JSON.parse(reshard(...words, "--json"));
const dataOf = (...words) => JSON.parse(/<script type="application\/json" id="data">(.*?)<\/script>/s.exec(reshard("explain", ...words, "--html", "-"))[1]);

let seed = 20261119;
const random = (below) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor(seed / 2147483648 * below); };
const any = (list) => list[random(list.length)];
const near = (a, b) => Math.abs(a - b) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b), 1e-12);

function machineOf() {
  const network = any(["flat", "flat", "ring", "torus", "fat-tree:4:2", "fat-tree:2:1"]);
  const flags = ["--network", network, "--alpha", any(["2us", "0", "1e-3"]), "--beta", any(["0.8ns", "1e-3", "0"]), "--ports", String(1 + random(3))];
  if (random(2)) flags.push("--barriers", "--barrier-cost", "1us");
  if (random(3) === 0) flags.push("--half-duplex");
  if (random(3) === 0) flags.push("--pack", "0.3ns");
  return flags;
}

function layoutsOf() {
  const dims = 1 + random(2), grid = () => Array.from({ length: dims }, () => 1 + random(dims === 1 ? 12 : 4)).join("x");
  const side = () => random(5) === 0 && dims === 2 ? `(*, cyclic(${1 + random(5)})) on ${1 + random(3)}x${1 + random(3)}` : `${grid()}/${Array.from({ length: dims }, () => 1 + random(7)).join("x")}`;
  const shape = Array.from({ length: dims }, () => 1 + random(40));
  const words = [side(), side(), "--shape", shape.join("x")];
  if (random(2)) {
    const window = shape.map((length) => 1 + random(length)), from = window.map((length, dim) => random(shape[dim] - length + 1));
    const transposed = dims === 2 && random(2), there = transposed ? [...window].reverse() : window, to = there.map(() => random(4));
    words.push("--window", window.join("x"), "--from-at", from.join(","), "--to-at", to.join(","), "--to-shape", there.map((length, dim) => length + to[dim] + random(3)).join("x"));
    if (transposed) words.push("--transpose");
  }
  return words;
}

let simulated = 0, elements = 0, messages = 0;
for (let number = 0; number < Number(process.argv[2]); number++) {
  const layouts = layoutsOf(), flags = machineOf(), what = [...layouts, ...flags].join(" ");
  const data = dataOf(...layouts, ...flags);
  // The simulator, on the machine of the page and on another one.
  for (const [machine, more] of [[data.machine, flags], [{ ...data.machine, network: "ring", barriers: false, alpha: 3e-6 }, [...flags.filter((flag) => flag !== "--barriers" && flag !== "--barrier-cost" && flag !== "1us"), "--network", "ring", "--alpha", "3us"]]]) {
    if (machine !== data.machine) for (const twice of ["--network", "--alpha"]) more.splice(more.indexOf(twice), 2);
    const rows = answer("simulate", ...layouts, ...more, "--compare").rows;
    for (const strategy of data.strategies) {
      const row = rows.find((one) => one.strategy === strategy.name);
      assert.equal(row.error !== undefined, strategy.refused !== undefined, `${what}: ${strategy.name}`);
      if (row.error !== undefined) continue;
      // The steps of min-cost are those for the page's own costs of messages: for others the program plans others.
      if (machine !== data.machine && strategy.name === "min-cost") continue;
      const run = simulate(strategy, machine);
      assert(near(run.makespan, row.makespan), `${what} ${JSON.stringify(machine)}: ${strategy.name} takes ${run.makespan}, not ${row.makespan}`);
      if (machine === data.machine) {
        assert(near(strategy.makespan, row.makespan), what);
        const order = (timeline) => [...timeline].sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[3] - b[3] || a[4] - b[4] || a[2] - b[2]);
        const [mine, its] = [order(run.timeline), order(strategy.timeline)];
        assert.equal(mine.length, its.length, what);
        mine.forEach((sent, at) => assert(sent.every((one, place) => near(one, its[at][place])), `${what}: ${strategy.name} sends ${sent}, not ${its[at]}`));
      }
      simulated++;
    }
  }
  // Elements.
  const shapes = { from: data.from.shape, to: data.to.shape };
  for (let count = 0; count < 3; count++) for (const side of ["from", "to"]) {
    const index = shapes[side].map((length) => random(length)), found = elementOf(data[side], index);
    const said = answer("layout", data[side].layout, "--shape", shapes[side].join("x"), "--element", index.join(",")).element;
    assert.deepEqual([...found.ranks].sort((a, b) => a - b), [...(said.copies ?? [said.rank])].sort((a, b) => a - b), `${what}: ${side} ${index}`);
    assert.deepEqual(found.local, said.local, `${what}: ${side} ${index}`);
    const there = side === "from" ? targetOf(data.window, index) : sourceOf(data.window, index);
    if (there) assert.deepEqual(side === "from" ? sourceOf(data.window, there) : targetOf(data.window, there), index);
    elements++;
  }
  // Messages: as many elements as the program says, each owned by both ends, and going where it should.
  for (const { from, to, elems } of answer("plan", ...layouts).messages) {
    const pieces = elementsOf(data, from, to), sizes = (list) => list.map((axis) => axis.reduce((all, [start, end]) => all + end - start, 0));
    const product = (list) => sizes(list).reduce((a, b) => a * b, 1);
    assert.equal(product(pieces.from), elems, `${what}: ${from} to ${to}`);
    assert.equal(product(pieces.to), elems, `${what}: ${from} to ${to}`);
    const first = pieces.from.map((axis) => axis[0][0]), there = targetOf(data.window, first);
    assert(elementOf(data.from, first).ranks.includes(from) && elementOf(data.to, there).ranks.includes(to), what);
    assert.deepEqual(there, pieces.to.map((axis) => axis[0][0]), what);
    messages++;
  }
}
console.log(`${simulated} runs, ${elements} elements and ${messages} messages are what the program says`);
