// Messages in virtual time, for the sliders of the page: the model of `reshard simulate` (docs/simulation.md), message by message. A test
// compares both. Nothing here knows layouts.
"use strict";

// A heap of [time, kind, message, version], the smallest first.
class Events {
  constructor() { this.heap = []; }
  get size() { return this.heap.length; }
  static before(a, b) {
    for (let at = 0; at < 4; at++) if (a[at] !== b[at]) return a[at] < b[at];
    return false;
  }
  push(event) {
    const heap = this.heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!Events.before(event, heap[parent])) break;
      heap[at] = heap[parent];
      at = parent;
    }
    heap[at] = event;
  }
  peek() { return this.heap[0]; }
  pop() {
    const heap = this.heap, first = heap[0], last = heap.pop();
    if (heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && Events.before(heap[child + 1], heap[child])) child++;
      if (!Events.before(heap[child], last)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

// The most links that all messages together cross, as in the program.
const MOST_HOPS = 2000000;

// The links of a network: {capacity, hops(from, to), walk(from, to) -> names of links}.
function fittedNetwork(text, nodes) {
  const [name, ...sizes] = text.split(":");
  if (name === "flat") return { capacity: 1, hops: () => 0, walk: () => [] };
  if (name === "fat-tree") {
    const leaf = Number(sizes[0] ?? 16), taper = Number(sizes[1] ?? 2);
    const walk = (from, to) => {
      const here = Math.floor(from / leaf), there = Math.floor(to / leaf);
      return here === there ? [] : [`up ${here}`, `down ${there}`];
    };
    return { capacity: leaf / taper, hops: (from, to) => walk(from, to).length, walk };
  }
  let extents = [nodes];
  if (name === "torus" && sizes.length > 0) extents = sizes[0].split("x").map(Number);
  else if (name === "torus") {
    const side = Math.ceil(Math.sqrt(nodes));
    extents = [Math.ceil(nodes / side), side];
  }
  const hops = (from, to) => {
    let all = 0;
    for (const extent of [...extents].reverse()) {
      const apart = Math.abs(from % extent - to % extent);
      all += Math.min(apart, extent - apart);
      [from, to] = [Math.floor(from / extent), Math.floor(to / extent)];
    }
    return all;
  };
  // The last dimension has stride 1 and is crossed first; both ways equally long: towards higher indices.
  const walk = (from, to) => {
    const links = [];
    let at = from, stride = 1;
    for (let dim = extents.length - 1; dim >= 0; dim--) {
      const extent = extents[dim], target = Math.floor(to / stride) % extent;
      for (;;) {
        const index = Math.floor(at / stride) % extent;
        if (index === target) break;
        const ahead = target > index ? target - index : extent - (index - target);
        const up = ahead <= extent - ahead;
        links.push(`${at} ${dim} ${up}`);
        const next = up ? (index + 1) % extent : (index === 0 ? extent : index) - 1;
        at += (next - index) * stride;
      }
      stride *= extent;
    }
    return links;
  };
  return { capacity: 1, hops, walk };
}

// For each rank one program that sends and one that receives, in the order of the steps; `steps` are lists of [from, to, elements]. A program is
// a list of operations: {from, to, elems, sends}, or null for a barrier.
function programsOf(steps, machine, eager) {
  const together = eager ? 1 : machine.ports;
  // By rank, by sending or receiving, by lane and index: programs have this order.
  const lanes = [new Map(), new Map()];
  const place = (rank, receiving, lane, index, round, op) => {
    const of = lanes[receiving];
    let own = of.get(rank);
    if (own === undefined) of.set(rank, own = []);
    let program = own.find((one) => one.lane === lane && one.index === index);
    if (program === undefined) own.push(program = { rank, receiving, lane, index, rounds: [], ops: [] });
    program.rounds.push(round);
    program.ops.push(op);
  };
  steps.forEach((messages, number) => {
    const round = Math.floor(number / together), lane = number % together, had = [new Map(), new Map()];
    // Of `eager` a rank has several messages in a step; without barriers it expects each at any time.
    const nth = (rank, receiving) => {
      if (!eager) return 0;
      const index = had[receiving].get(rank) ?? 0;
      had[receiving].set(rank, index + 1);
      return index;
    };
    for (const [from, to, elems] of messages) {
      place(from, 0, lane, nth(from, 0), round, { from, to, elems, sends: true });
      place(to, 1, eager && !machine.barriers ? number : lane, nth(to, 1), round, { from, to, elems, sends: false });
    }
  });
  const sorted = lanes.flatMap((of) => [...of.values()].flat());
  sorted.sort((a, b) => a.rank - b.rank || a.receiving - b.receiving || a.lane - b.lane || a.index - b.index);
  if (!machine.barriers) return sorted.map(({ ops }) => ops);
  const last = Math.ceil(steps.length / together);
  return sorted.map(({ ops, rounds }) => {
    const all = [];
    let passed = 0;
    ops.forEach((op, at) => {
      for (; passed < rounds[at]; passed++) all.push(null);
      all.push(op);
    });
    for (; passed < last; passed++) all.push(null);
    return all;
  });
}

const ENTERS = 0, LEAVES = 1, ENDS = 2, OPENS = 3;

// Runs a strategy's steps on a machine: {makespan, timeline: [from, to, elements, start, end]}.
function simulate(strategy, machine) {
  const programs = programsOf(strategy.steps, machine, strategy.name === "eager");
  // The n-th send of a pair meets its n-th receive.
  const sends = [], receives = [];
  programs.forEach((ops, program) => ops.forEach((op, index) => {
    if (op !== null) (op.sends ? sends : receives).push({ from: op.from, to: op.to, elems: op.elems, program, index });
  }));
  for (const list of [sends, receives]) {
    list.sort((a, b) => a.from - b.from || a.to - b.to || a.program - b.program || a.index - b.index);
  }
  const messages = sends.map((send, number) => (
    { from: send.from, to: send.to, elems: send.elems, sender: send.program, receiver: receives[number].program, come: 0, ready: 0, start: 0 }
  ));
  const operations = programs.map((ops) => ops.map(() => null));
  for (const list of [sends, receives]) list.forEach(({ program, index }, number) => { operations[program][index] = number; });
  const nodes = 1 + messages.reduce((most, { from, to }) => Math.max(most, from, to), 0);
  const network = fittedNetwork(machine.network, nodes);
  const hops = messages.reduce((all, { from, to }) => all + network.hops(from, to), 0);
  if (hops > MOST_HOPS) {
    throw new RangeError(`the messages cross ${hops} links of the network ${machine.network} in all, and at most ${MOST_HOPS} are simulated; take fewer ranks or the network flat`);
  }
  const ports = new Map(), events = new Events(), next = programs.map(() => 0);
  const port = (rank) => {
    if (!ports.has(rank)) ports.set(rank, { sending: 0, receiving: 0, waiting: new Set() });
    return ports.get(rank);
  };
  const crossing = new Map(), flows = new Map(), timeline = [];
  let stirred = new Set(), changed = new Set(), now = 0, atBarrier = 0;
  const at = (time, kind, message, version = 0) => events.push([time, kind, message, version]);

  const arrive = (program) => {
    const ops = operations[program];
    if (next[program] >= ops.length) return;
    const number = ops[next[program]];
    if (number === null) {
      if (++atBarrier === operations.length) at(now + machine.barrier, OPENS, 0);
      return;
    }
    const message = messages[number];
    if (++message.come === 2) {
      message.ready = now;
      for (const rank of [message.from, message.to]) {
        port(rank).waiting.add(number);
        stirred.add(rank);
      }
    }
  };
  const goOn = (program) => { next[program]++; arrive(program); };
  const hasRoom = (from, to) => {
    const used = (rank, sending) => {
      const { sending: sends, receiving } = port(rank);
      return machine.half_duplex ? sends + receiving : sending ? sends : receiving;
    };
    return used(from, true) < machine.ports && used(to, false) < machine.ports;
  };
  const take = (from, to, by) => {
    port(from).sending += by;
    if (from !== to || !machine.half_duplex) port(to).receiving += by;
  };
  const start = (number) => {
    const message = messages[number], { from, to, elems } = message;
    message.start = now;
    const path = network.walk(from, to);
    if (path.length === 0) {
      at(now + (machine.alpha + (machine.beta + 2 * machine.pack) * elems), ENDS, number);
      return;
    }
    const packed = now + machine.alpha + machine.pack * elems;
    flows.set(number, { path, left: machine.beta * elems, speed: 0, since: packed, version: 0 });
    at(packed, ENTERS, number);
  };
  const startReady = () => {
    const candidates = new Set();
    for (const rank of stirred) for (const number of port(rank).waiting) candidates.add(number);
    stirred = new Set();
    const inTurn = [...candidates].sort((a, b) => messages[a].ready - messages[b].ready || a - b);
    for (const number of inTurn) {
      const { from, to } = messages[number];
      if (!hasRoom(from, to)) continue;
      take(from, to, 1);
      port(from).waiting.delete(number);
      port(to).waiting.delete(number);
      start(number);
    }
  };
  // A link divides its bandwidth equally among the messages that cross it; a message moves at the least of its shares.
  const divideLinks = () => {
    const touched = new Set();
    for (const link of changed) for (const number of crossing.get(link) ?? []) touched.add(number);
    changed = new Set();
    for (const number of [...touched].sort((a, b) => a - b)) {
      const flow = flows.get(number);
      if (!flow) continue;
      const speed = flow.path.reduce((least, link) => Math.min(least, network.capacity / crossing.get(link).size), 1);
      if (speed === flow.speed) continue;
      flow.left = Math.max(flow.left - (now - flow.since) * flow.speed, 0);
      flow.since = now;
      flow.speed = speed;
      flow.version++;
      at(now + flow.left / speed, LEAVES, number, flow.version);
    }
  };
  const happen = ([, kind, number, version]) => {
    const message = messages[number];
    if (kind === OPENS) {
      atBarrier = 0;
      operations.forEach((_, program) => goOn(program));
    } else if (kind === ENTERS) {
      const flow = flows.get(number);
      flow.since = now;
      for (const link of flow.path) {
        if (!crossing.has(link)) crossing.set(link, new Set());
        crossing.get(link).add(number);
        changed.add(link);
      }
    } else if (kind === LEAVES) {
      const flow = flows.get(number);
      if (!flow || flow.version !== version) return;
      flows.delete(number);
      for (const link of flow.path) {
        crossing.get(link).delete(number);
        changed.add(link);
      }
      at(now + machine.pack * message.elems, ENDS, number);
    } else {
      take(message.from, message.to, -1);
      stirred.add(message.from).add(message.to);
      timeline.push([message.from, message.to, message.elems, message.start, now]);
      goOn(message.sender);
      goOn(message.receiver);
    }
  };

  operations.forEach((_, program) => arrive(program));
  for (;;) {
    startReady();
    divideLinks();
    if (events.size === 0) break;
    now = events.peek()[0];
    while (events.size > 0 && events.peek()[0] === now) happen(events.pop());
  }
  return { makespan: now, timeline };
}

if (typeof module !== "undefined") module.exports = { simulate };
