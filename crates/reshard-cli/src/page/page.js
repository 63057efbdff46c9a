// The page: what is chosen, and what follows from it. Every handler is measured: `performance.getEntriesByType("measure")`.
"use strict";

if (typeof document !== "undefined") (() => {
  let data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  // What is pinned stays when the pointer goes.
  const state = { strategy: data.strategy, step: null, element: null, message: null, pinned: { element: false, message: false }, view: "columns", moment: null, machine: { ...data.machine } };
  // What is drawn is kept until one of these changes.
  let planned = 0, run = 0;
  const NETWORKS = ["flat", "ring", "torus", "fat-tree"];
  let results = new Map(), waiting = null, playing = null;

  const measured = (name, action) => (...given) => {
    const begin = performance.now();
    try { return action(...given); } finally { performance.measure(name, { start: begin, end: performance.now() }); }
  };

  const strategyNamed = (name) => data.strategies.find((one) => one.name === name);
  const chosen = () => strategyNamed(state.strategy);
  const isGiven = () => Object.keys(data.machine).every((key) => data.machine[key] === state.machine[key]);

  // How a strategy runs on the chosen machine.
  function resultOf(strategy) {
    if (!results.has(strategy.name)) {
      results.set(strategy.name, isGiven() ? { makespan: strategy.makespan, timeline: strategy.timeline.map((sent) => [...sent]) } : simulate(strategy, state.machine));
    }
    return results.get(strategy.name);
  }

  // The messages of a strategy: [from, to, elements, steps]; those that are cut are one.
  const merged = new Map();
  function messagesOf(strategy) {
    if (!merged.has(strategy.name)) {
      const all = new Map();
      strategy.steps.forEach((step, number) => step.forEach(([from, to, elems]) => {
        const key = `${from} ${to}`, message = all.get(key);
        if (message) { message[2] += elems; message[3].push(number); } else all.set(key, [from, to, elems, [number]]);
      }));
      merged.set(strategy.name, { list: [...all.values()], of: all });
    }
    return merged.get(strategy.name);
  }

  const stepsKnown = new WeakMap();
  // The step of each message of a timeline: those that were cut go in the order of their steps.
  function stepsIn(strategy, timeline) {
    if (stepsKnown.has(timeline)) return stepsKnown.get(timeline);
    const had = new Map(), of = messagesOf(strategy).of, steps = new Map();
    for (const sent of [...timeline].sort((a, b) => a[3] - b[3])) {
      const key = `${sent[0]} ${sent[1]}`, at = had.get(key) ?? 0;
      had.set(key, at + 1);
      steps.set(sent, of.get(key)?.[3][at] ?? 0);
    }
    const stepOf = (sent) => steps.get(sent) ?? 0;
    stepsKnown.set(timeline, stepOf);
    return stepOf;
  }

  // The ranges that move, of both arrays; null where all of it does.
  const framed = () => {
    const { shape, from, to, axes } = data.window, there = axes.map((axis, dim) => [to[dim], to[dim] + shape[axis]]);
    const whole = (ranges, side) => ranges.every(([start, end], dim) => start === 0 && end === side.shape[dim]) ? null : ranges;
    return [whole(from.map((at, dim) => [at, at + shape[dim]]), data.from), whole(there, data.to)];
  };
  const drawArrays = () => {
    // Of a replicated source not every pair of ranks that hold the same elements sends them.
    const sends = state.message && messagesOf(chosen()).of.has(`${state.message[0]} ${state.message[1]}`);
    const pieces = sends ? elementsOf(data, ...state.message) : null;
    let [source, target] = [null, null];
    if (state.element) {
      const { side, index } = state.element;
      source = side === "source" ? index : sourceOf(data.window, index);
      target = side === "target" ? index : targetOf(data.window, index);
    }
    const [before, after] = framed();
    drawArray($("source"), data.from, planned, before, { pieces: pieces?.from, element: source });
    drawArray($("target"), data.to, planned, after, { pieces: pieces?.to, element: target });
  };
  const drawMessages = () => {
    const strategy = chosen();
    const list = messagesOf(strategy).list;
    const key = `${planned} ${strategy.name} ${state.step} ${state.view}`;
    drawGrid($("grid"), data, key, list, state.step, state.message);
    const shown = strategy.steps.flatMap((step, number) => state.step === null || state.step === number ? step.map((message) => [...message, number]) : []);
    drawStep($("matching"), data, key, shown, state.view === "ring", state.message);
  };
  const drawTimes = () => {
    const strategy = chosen(), { timeline, makespan } = resultOf(strategy);
    drawTimeline($("timeline"), `${planned} ${run} ${strategy.name}`, timeline, stepsIn(strategy, timeline), makespan, state.moment === null ? null : state.moment * makespan);
    $("moment").value = Math.round(1000 * (state.moment ?? 1));
    $("moment-text").textContent = timeText((state.moment ?? 1) * makespan);
    $("moment").setAttribute("aria-valuetext", $("moment-text").textContent);
  };

  const sayMessage = () => {
    const strategy = chosen();
    if (state.message) {
      const [from, to] = state.message, message = messagesOf(strategy).of.get(`${from} ${to}`);
      const names = message ? message[3].map(stepName) : [];
      $("message").textContent = message
        ? `Rank ${from} sends ${counted(message[2], "element")} to rank ${to}, in ${names.length > 1 ? "steps" : "step"} ${listed(names)}.`
        : `Rank ${from} sends nothing to rank ${to}.`;
    } else if (state.step !== null) {
      const step = strategy.steps[state.step], most = step.reduce((a, b) => Math.max(a, b[2]), 0);
      $("message").textContent = `Step ${stepName(state.step)}: ${counted(step.length, "message")}, the longest of ${counted(most, "element")}.`;
    } else {
      const count = messagesOf(strategy).list.length;
      $("message").textContent = `${counted(count, "message")} in ${counted(strategy.steps.length, "step")}. No message is chosen.`;
    }
    $("step-name").textContent = state.step === null ? "all" : `${stepName(state.step)} of ${strategy.steps.length}`;
    $("step").max = strategy.steps.length;
    $("step").value = state.step === null ? 0 : state.step + 1;
    $("step").setAttribute("aria-valuetext", state.step === null ? "all steps" : `step ${stepName(state.step)}`);
  };

  const sayElement = () => {
    if (!state.element) { $("element").textContent = "No element is chosen."; return; }
    const { side, index } = state.element, before = side === "source";
    const here = elementOf(before ? data.from : data.to, index), other = before ? targetOf(data.window, index) : sourceOf(data.window, index);
    const there = other && elementOf(before ? data.to : data.from, other);
    const who = ({ ranks, local }) => `${ranks.length > 1 ? "ranks" : "rank"} ${listed(ranks)}, local index ${indexText(local)}`;
    let text = `Element ${indexText(index)} ${before ? "before" : "after"}: ${here ? who(here) : "not on this page"}`;
    const sameIndex = other && indexText(other) === indexText(index);
    if (!other) text += before ? "; it does not move." : "; nothing moves there.";
    else text += `; it ${before ? "goes to" : "comes from"} ${sameIndex ? "" : `element ${indexText(other)} on `}${there ? who(there) : "a part that is not on this page"}.`;
    $("element").textContent = text;
  };

  const sayMachine = () => {
    const { alpha, beta, network, barriers } = state.machine;
    $("alpha").value = Math.round(10 * Math.log10(Math.max(alpha, 1e-9)));
    $("beta").value = Math.round(10 * Math.log10(Math.max(beta, 1e-12)));
    $("alpha-text").textContent = timeText(alpha);
    $("beta-text").textContent = timeText(beta);
    $("network").value = network;
    $("barriers").checked = barriers;
    $("alpha").setAttribute("aria-valuetext", timeText(alpha));
    $("beta").setAttribute("aria-valuetext", timeText(beta));
  };

  // The rows of the table, one strategy at a time, so that no interaction waits for all.
  function compare() {
    clearTimeout(waiting);
    const rows = $("rows");
    rows.replaceChildren(...data.strategies.map((strategy) => {
      const row = document.createElement("tr"), cell = (text) => row.appendChild(Object.assign(document.createElement("td"), { textContent: text }));
      const name = cell("");
      row.dataset.strategy = strategy.name;
      if (strategy.refused !== undefined && !(strategy.left_out && data.live)) {
        name.textContent = strategy.name;
        Object.assign(cell(strategy.refused), { colSpan: 5, className: "why" });
        return row;
      }
      name.appendChild(Object.assign(document.createElement("button"), { type: "button", textContent: strategy.name, onclick: () => choose(strategy.name) }));
      // Its steps depend on what a message costs; the others' do not.
      const { alpha, beta, pack } = data.machine;
      if (strategy.name === "min-cost" && (alpha !== state.machine.alpha || beta !== state.machine.beta)) {
        name.append(` planned for alpha ${timeText(alpha)}, beta ${timeText(beta + 2 * pack)}`);
      }
      if (strategy.left_out) {
        Object.assign(cell("choose it to see it"), { colSpan: 5, className: "why" });
        return row;
      }
      cell(strategy.steps.length);
      cell(strategy.steps.reduce((all, step) => all + step.length, 0));
      cell(strategy.total_cost);
      cell("...").className = "time";
      cell("").innerHTML = "<span class=\"bar\" style=\"width:0\"></span>";
      return row;
    }));
    const carried = data.strategies.filter((one) => one.refused === undefined);
    const times = () => {
      const known = carried.filter((one) => results.has(one.name)), most = Math.max(...known.map((one) => results.get(one.name).makespan || 0), 1e-300);
      for (const one of known) {
        const row = rows.querySelector(`[data-strategy="${one.name}"]`), { makespan } = results.get(one.name);
        row.querySelector(".time").textContent = Number.isNaN(makespan) ? "not simulated" : timeText(makespan);
        row.querySelector(".bar").style.width = `${100 * (makespan || 0) / most}%`;
      }
      for (const row of rows.children) row.classList.toggle("chosen", row.dataset.strategy === state.strategy);
    };
    const next = measured("compare", () => {
      const one = carried.find((strategy) => !results.has(strategy.name));
      if (one) {
        try { resultOf(one); } catch { results.set(one.name, { makespan: NaN, timeline: [] }); }
        times();         waiting = setTimeout(next, 0);
      } else document.body.dataset.compared = "yes";
    });
    document.body.dataset.compared = "no";
    resultOf(chosen());
    times();
    waiting = setTimeout(next, 0);
  }

  function remember() {
    const { strategy, step, element, message, view, machine } = state, words = new URLSearchParams();
    if (data.live) { words.set("from", data.from.layout); words.set("to", data.to.layout); words.set("shape", data.from.shape.join("x")); }
    words.set("strategy", strategy);
    if (step !== null) words.set("step", step);
    if (element) words.set("element", `${element.side}:${element.index.join(",")}`);
    if (message) words.set("message", message.join(","));
    if (view !== "columns") words.set("view", view);
    for (const key of ["alpha", "beta", "network", "barriers"]) if (machine[key] !== data.machine[key]) words.set(key, machine[key]);
    history.replaceState(null, "", `#${words}`);
  }

  function recall(words) {
    const number = (name) => words.has(name) && Number.isFinite(Number(words.get(name))) ? Number(words.get(name)) : undefined;
    if (strategyNamed(words.get("strategy"))?.refused === undefined && strategyNamed(words.get("strategy"))) state.strategy = words.get("strategy");
    const step = number("step");
    state.step = Number.isInteger(step) && step >= 0 && step < chosen().steps.length ? step : null;
    const [side, index] = (words.get("element") ?? "").split(":"), at = (index ?? "").split(",").map(Number);
    const shape = side === "source" ? data.from.shape : side === "target" ? data.to.shape : null;
    if (shape && at.length === shape.length && at.every((one, dim) => Number.isInteger(one) && one >= 0 && one < shape[dim])) { state.element = { side, index: at }; state.pinned.element = true; }
    const message = (words.get("message") ?? "").split(",").map(Number);
    if (message.length === 2 && data.from.ranks.includes(message[0]) && data.to.ranks.includes(message[1])) { state.message = message; state.pinned.message = true; }
    if (words.get("view") === "ring") state.view = "ring";
    for (const key of ["alpha", "beta"]) if (number(key) >= 0) state.machine[key] = number(key);
    if ([...NETWORKS, data.machine.network].includes(words.get("network"))) state.machine.network = words.get("network");
    if (words.has("barriers")) state.machine.barriers = words.get("barriers") === "true";
  }

  // What follows from a change of...
  const afterElement = () => { drawArrays(); sayElement(); remember(); };
  const afterMessage = () => { drawArrays(); drawMessages(); sayMessage(); remember(); };
  const afterStep = () => { state.message = null; state.pinned.message = false; afterMessage(); };
  const changeMachine = (change) => {
    const before = { ...state.machine }, had = results;
    Object.assign(state.machine, change);
    results = new Map();
    try { resultOf(chosen()); } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      [state.machine, results] = [before, had];
      sayMachine();
      $("machine-said").textContent = error.message;
      return;
    }
    $("machine-said").textContent = "";
    run++;
    afterMachine();
  };
  const afterMachine = () => { state.moment = null; sayMachine(); drawTimes(); compare(); remember(); };
  const choose = measured("strategy", (name) => {
    if (strategyNamed(name).left_out) {
      state.strategy = name;
      ask(data.from.layout, data.to.layout, data.from.shape.join("x"));
      return;
    }
    state.strategy = name;
    state.step = null;
    state.moment = null;
    $("strategy").value = name;
    document.body.dataset.compared = "no";
    drawMessages();
    sayMessage();
    remember();
    // In a task of its own: its run may have to be simulated first.
    clearTimeout(waiting);
    waiting = setTimeout(measured("times", () => { drawTimes(); compare(); }), 0);
  });

  // The element under a point of an array's canvas.
  function elementAt(canvas, side, event) {
    const place = arrayPlace(canvas, side), box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - place.left) / place.width * place.columns);
    const row = Math.floor((event.clientY - box.top - place.top) / place.height * place.rows);
    if (column < 0 || column >= place.columns || row < 0 || row >= place.rows) return null;
    return side.shape.map((_, dim) => dim === (place.one ? 0 : 1) ? column : dim === 0 ? row : 0);
  }
  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  for (const [name, side] of [["source", () => data.from], ["target", () => data.to]]) {
    const canvas = $(name);
    // A mouse shows what it is over; a click, a tap or a key pins it, the same again or Escape lets it go.
    const show = (event, pin) => {
      const index = elementAt(canvas, side(), event);
      if (!index) return;
      const same = state.element?.side === name && indexText(state.element.index) === indexText(index);
      if (pin) state.pinned.element = !(same && state.pinned.element);
      if (same && !pin) return;
      state.element = { side: name, index };
      afterElement();
    };
    canvas.addEventListener("pointermove", measured("element", (event) => { if (event.pointerType === "mouse" && !state.pinned.element) show(event, false); }));
    canvas.addEventListener("click", measured("element", (event) => show(event, true)));
    canvas.addEventListener("pointerleave", measured("element", (event) => {
      if (event.pointerType !== "mouse" || state.pinned.element || !state.element) return;
      state.element = null;
      afterElement();
    }));
    canvas.addEventListener("keydown", measured("element", (event) => {
      if (event.key === "Escape") { state.element = null; state.pinned.element = false; afterElement(); }
      const move = ARROWS[event.key];
      if (!move) return;
      event.preventDefault();
      state.pinned.element = true;
      const of = side(), one = of.shape.length === 1, limits = of.shape;
      if (limits.some((length) => length === 0)) return;
      const index = state.element?.side === name ? [...state.element.index] : limits.map(() => 0);
      if (state.element?.side === name) {
        if (one) index[0] += move[0] + move[1]; else { index[0] += move[0]; index[1] += move[1]; }
      }
      state.element = { side: name, index: index.map((at, dim) => Math.min(Math.max(at, 0), Math.max(Math.min(of.corner[dim], limits[dim]) - 1, 0))) };
      afterElement();
    }));
  }

  const grid = $("grid");
  const showMessage = (event, pin) => {
    const place = gridPlace(grid, data), box = grid.getBoundingClientRect();
    const from = place.senders[Math.floor((event.clientY - box.top - place.top) / place.cellHeight)];
    const to = place.receivers[Math.floor((event.clientX - box.left - place.left) / place.cellWidth)];
    if (from === undefined || to === undefined) return;
    const same = state.message?.[0] === from && state.message?.[1] === to;
    if (pin) state.pinned.message = !(same && state.pinned.message);
    if (same && !pin) return;
    state.message = [from, to];
    afterMessage();
  };
  grid.addEventListener("pointermove", measured("message", (event) => { if (event.pointerType === "mouse" && !state.pinned.message) showMessage(event, false); }));
  grid.addEventListener("click", measured("message", (event) => showMessage(event, true)));
  grid.addEventListener("pointerleave", measured("message", (event) => {
    if (event.pointerType !== "mouse" || state.pinned.message || !state.message) return;
    state.message = null;
    afterMessage();
  }));
  grid.addEventListener("keydown", measured("message", (event) => {
    if (event.key === "Escape") { state.message = null; state.pinned.message = false; afterMessage(); }
    const move = ARROWS[event.key];
    if (!move) return;
    event.preventDefault();
    state.pinned.message = true;
    const { senders, receivers } = gridPlace(grid, data), within = (at, list) => Math.min(Math.max(at, 0), list.length - 1);
    const at = state.message ? [senders.indexOf(state.message[0]) + move[0], receivers.indexOf(state.message[1]) + move[1]] : [0, 0];
    state.message = [senders[within(at[0], senders)], receivers[within(at[1], receivers)]];
    afterMessage();
  }));

  $("step").addEventListener("input", measured("step", () => { const value = Number($("step").value); state.step = value === 0 ? null : value - 1; afterStep(); }));
  $("view").addEventListener("change", measured("view", () => { state.view = $("view").value; drawMessages(); remember(); }));
  $("strategy").addEventListener("change", () => choose($("strategy").value));
  $("alpha").addEventListener("input", measured("machine", () => { changeMachine({ alpha: Number((10 ** ($("alpha").value / 10)).toPrecision(3)) }); }));
  $("beta").addEventListener("input", measured("machine", () => { changeMachine({ beta: Number((10 ** ($("beta").value / 10)).toPrecision(3)) }); }));
  $("network").addEventListener("change", measured("machine", () => { changeMachine({ network: $("network").value }); }));
  $("barriers").addEventListener("change", measured("machine", () => { changeMachine({ barriers: $("barriers").checked }); }));
  $("moment").addEventListener("input", measured("moment", () => { state.moment = $("moment").value / 1000; drawTimes(); }));

  // Plays the timeline in four seconds.
  function stop() { cancelAnimationFrame(playing); playing = null; $("play").textContent = "Play"; }
  $("play").addEventListener("click", measured("play", () => {
    if (playing !== null) { stop(); return; }
    const begin = performance.now() - 4000 * (state.moment !== null && state.moment < 1 ? state.moment : 0);
    $("play").textContent = "Pause";
    const frame = measured("frame", () => {
      state.moment = Math.min((performance.now() - begin) / 4000, 1);
      drawTimes();
      if (state.moment < 1) playing = requestAnimationFrame(frame); else stop();
    });
    playing = requestAnimationFrame(frame);
  }));

  // What is typed elsewhere to see the same.
  const quote = (word) => /^[\w.,:/=@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
  function cCode(typed, moved) {
    const side = (of, name, parts) => {
      const ranks = sortedRanks(of), listed = ranks.some((rank, at) => rank !== ranks[0] + at);
      const rank = listed ? `${name}_ranks[i]` : ranks[0] === 0 ? "i" : `${ranks[0]} + i`;
      return [
        ...(listed ? [`    static const uint64_t ${name}_ranks[] = {${ranks.join(", ")}};`] : []),
        `    static reshard_${parts} ${parts}s[${ranks.length}]; /* one part for each rank */`,
        `    for (uint64_t i = 0; i < ${ranks.length}; i++) {`,
        `        uint64_t elements;`,
        `        CHECK(reshard_layout_span(${name}, ${rank}, &elements));`,
        `        ${parts}s[i].bytes = elements * sizeof(double);`,
        `        ${parts}s[i].address = calloc(elements + 1, sizeof(double));`,
        `    }`,
      ];
    };
    const numbers = (name, list, type = "uint64_t") => `    static const ${type} ${name}[] = {${list.join(", ")}};`;
    const { window } = data;
    return [
      "#include <reshard.h>",
      "#include <stdio.h>",
      "#include <stdlib.h>",
      "",
      "#define CHECK(call) \\",
      "    do { if ((call) != RESHARD_OK) { fprintf(stderr, \"%s\\n\", reshard_error_message()); exit(1); } } while (0)",
      "",
      "int main(void)",
      "{",
      "    reshard_layout *from, *to;",
      "    reshard_plan *plan;",
      "    reshard_engine *engine;",
      `    CHECK(reshard_layout_parse(${JSON.stringify(typed(data.from))}, &from));`,
      `    CHECK(reshard_layout_parse(${JSON.stringify(typed(data.to))}, &to));`,
      "    CHECK(reshard_plan_new(&plan));",
      ...(moved ? [
        numbers("shape", window.shape), numbers("from_at", window.from), numbers("to_at", window.to), numbers("axes", window.axes, "size_t"),
        "    reshard_window window = {0};",
        "    window.dims = " + window.shape.length + ";",
        "    window.shape = shape, window.from = from_at, window.to = to_at, window.axes = axes;",
        "    CHECK(reshard_plan_add_window(plan, from, to, sizeof(double), &window));",
      ] : ["    CHECK(reshard_plan_add(plan, from, to, sizeof(double)));"]),
      "    CHECK(reshard_engine_threads(plan, NULL, &engine));",
      ...side(data.from, "from", "source"),
      ...side(data.to, "to", "target"),
      "    reshard_array array = {0};",
      `    array.from = sources, array.from_count = ${data.from.ranks.length};`,
      `    array.to = targets, array.to_count = ${data.to.ranks.length};`,
      "    CHECK(reshard_engine_run_arrays(engine, &array, 1));",
      "    return 0;",
      "}",
      "",
    ].join("\n");
  }

  function codeOf(what) {
    const { alpha, beta, network, barriers } = state.machine, shape = data.from.shape, typed = (side) => `${side.layout} of ${side.shape.join("x")}`;
    const words = [...data.command];
    if (state.strategy !== "optimal") words.push("--strategy", state.strategy);
    words.push("--alpha", String(alpha), "--beta", String(beta));
    if (network !== "flat") words.push("--network", network);
    const { ports, pack, barrier, half_duplex: half } = state.machine;
    if (barriers) words.push("--barriers");
    if (barriers && barrier > 0) words.push("--barrier-cost", String(barrier));
    if (ports > 1) words.push("--ports", String(ports));
    if (half) words.push("--half-duplex");
    if (pack > 0) words.push("--pack", String(pack));
    if (data.in_flight !== null && state.strategy === "eager") words.push("--in-flight", String(data.in_flight));
    if (data.most_steps !== null && state.strategy === "min-cost") words.push("--steps", String(data.most_steps));
    const moved = JSON.stringify(data.window.axes) !== JSON.stringify(data.window.axes.map((_, axis) => axis)) || [...data.window.from, ...data.window.to].some((at) => at > 0) || JSON.stringify(data.window.shape) !== JSON.stringify(shape);
    const list = (numbers) => numbers.join(", ");
    if (what === "command") return `reshard explain ${words.map(quote).join(" ")} --svg picture.svg`;
    if (what === "link") return location.href;
    if (what === "rust") return [
      moved ? "use reshard::{Layout, Move, Redistribution, Window};" : "use reshard::{Layout, Move, Redistribution};",
      "",
      `let from: Layout = ${JSON.stringify(typed(data.from))}.parse()?;`,
      `let to: Layout = ${JSON.stringify(typed(data.to))}.parse()?;`,
      `let source = from.parts(|_| 0.0_f64)?; // one part for each rank`,
      `let mut target = to.parts(|_| 0.0_f64)?;`,
      moved
        ? `let window = Window::of(&[${list(data.window.shape)}]).from(&[${list(data.window.from)}]).to(&[${list(data.window.to)}]).permuted(&[${list(data.window.axes)}]);\nlet moving = Move::windowed::<f64>(from, to, window)?;`
        : "let moving = Move::of::<f64>(from, to)?;",
      "Redistribution::new(moving)?.run(&source, &mut target)?;",
      "",
    ].join("\n");
    if (what === "c") return cCode(typed, moved);
    return [
      "import json, subprocess",
      "",
      "# Who sends how many elements to whom.",
      `plan = json.loads(subprocess.check_output(${JSON.stringify(["reshard", "plan", ...data.command.filter((word) => word !== "--shared-ranks"), "--json"])}))`,
      "for message in plan[\"messages\"]:",
      "    print(message[\"from\"], message[\"to\"], message[\"elems\"])",
      "",
    ].join("\n");
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => {
      const text = codeOf(button.dataset.copy), say = (how) => { $("copied").textContent = how; };
      $("code").textContent = text;
      if (!navigator.clipboard) { say("Copy it from here:"); return; }
      navigator.clipboard.writeText(text).then(() => say("Copied:"), () => say("Copy it from here:"));
    });
  }

  // Other layouts, where a planner is behind the page.
  function refuse({ message, field, text, position }) {
    const box = $("wrong");
    box.replaceChildren(document.createTextNode(message));
    if (typeof position === "number" && text !== undefined) {
      const letters = [...text], line = Object.assign(document.createElement("div"), { className: "text" });
      const under = Object.assign(document.createElement("u"), { textContent: letters[position] ?? " " });
      line.append(letters.slice(0, position).join(""), under, letters.slice(position + 1).join(""));
      box.append(line);
    }
    for (const name of ["from", "to", "shape"]) $(name).setAttribute("aria-invalid", String(name === field));
    if (field) $(field).focus();
  }
  // The last question counts: answers to those before it come too late. `words` are what a link says besides.
  let question = 0;
  async function ask(from, to, shape, words = null) {
    const number = ++question, asked = { from, to, shape };
    const shown = Object.fromEntries(Object.keys(asked).map((name) => [name, $(name).value]));
    const strategy = words?.get("strategy") ?? state.strategy;
    const query = new URLSearchParams({ ...asked, strategy });
    $("layouts").setAttribute("aria-busy", "true");
    $("frozen").textContent = "Planning ...";
    let answer;
    try {
      answer = await (await fetch(`${data.live}?${query}`)).json();
    } catch {
      answer = { error: { message: "the planner does not answer; is \u201creshard serve\u201d still running?" } };
    }
    if (number !== question) return;
    $("layouts").setAttribute("aria-busy", "false");
    $("frozen").textContent = "";
    if (answer.error) { refuse(answer.error); return; }
    for (const name of ["from", "to", "shape"]) $(name).setAttribute("aria-invalid", "false");
    $("wrong").replaceChildren();
    const { machine } = state;
    data = answer;
    Object.assign(state, { strategy: data.strategy, step: null, element: null, message: null, pinned: { element: false, message: false }, moment: null });
    state.machine = { ...data.machine, alpha: machine.alpha, beta: machine.beta, barriers: machine.barriers, network: machine.network };
    if (words) recall(words);
    measured("plan", all)(shown);
    $("frozen").textContent = "Planned.";
  }
  $("layouts").addEventListener("submit", (event) => {
    event.preventDefault();
    if (data.live) ask($("from").value, $("to").value, $("shape").value);
  });

  // Shows everything anew. What somebody has typed since he asked for this stays.
  function all(shown = null) {
    planned++;
    stop();
    results = new Map();
    merged.clear();
    $("machine-said").textContent = "";
    try { resultOf(chosen()); } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      $("machine-said").textContent = error.message;
      state.machine = { ...data.machine };
    }
    const title = `${data.from.layout} to ${data.to.layout}`;
    document.title = `${title} - reshard`;
    $("title").textContent = title;
    const { ports, half_duplex: half, pack } = data.machine;
    $("about").textContent = `${data.about}, from ${counted(data.from.ranks.length, "rank")} to ${counted(data.to.ranks.length, "rank")}${ports > 1 ? `, ${ports} messages at a time` : ""}${half ? ", half duplex" : ""}${pack > 0 ? `, ${timeText(pack)} to pack an element` : ""}.`;
    $("before").textContent = `Before: ${data.from.layout} of ${data.from.shape.join(" x ")}${data.from.caption ? `; ${data.from.caption}` : ""}`;
    $("after").textContent = `After: ${data.to.layout} of ${data.to.shape.join(" x ")}${data.to.caption ? `; ${data.to.caption}` : ""}`;
    $("source").closest(".pair").classList.toggle("stacked", data.from.shape.length === 1);
    const fields = { from: data.from.layout, to: data.to.layout, shape: data.from.shape.join("x") };
    for (const [name, value] of Object.entries(fields)) if (!shown || $(name).value === shown[name]) $(name).value = value;
    for (const id of ["from", "to", "shape", "plan"]) $(id).disabled = !data.live;
    $("frozen").textContent = data.live ? "" : "This file carries one redistribution; other layouts can be typed in the page of \u201creshard serve\u201d, with the planner behind it.";
    const option = (text, disabled = false) => Object.assign(document.createElement("option"), { value: text, textContent: text, disabled });
    $("strategy").replaceChildren(...data.strategies.map((one) => option(one.name, one.refused !== undefined && !(one.left_out && data.live))));
    $("strategy").value = state.strategy;
    $("network").replaceChildren(...[...new Set([...NETWORKS, data.machine.network, state.machine.network])].map((one) => option(one)));
    $("view").value = state.view;
    sayMachine();
    drawArrays();
    sayElement();
    drawMessages();
    sayMessage();
    drawTimes();
    compare();
    remember();
  }

  const redraw = measured("redraw", () => {
    planned++;
    drawArrays(); drawMessages(); drawTimes(); });
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // What a link says: other layouts are asked for, where that can be.
  function follow(words) {
    const [from, to, shape] = ["from", "to", "shape"].map((name) => words.get(name));
    const other = from !== data.from.layout || to !== data.to.layout || shape !== data.from.shape.join("x");
    if (data.live && from && to && other) ask(from, to, shape ?? "", words);
  }
  addEventListener("hashchange", () => {
    const words = new URLSearchParams(location.hash.slice(1));
    Object.assign(state, { step: null, element: null, message: null, pinned: { element: false, message: false }, view: "columns" });
    recall(words);
    measured("plan", all)();
    follow(words);
  });
  const words = new URLSearchParams(location.hash.slice(1));
  recall(words);
  measured("begin", all)();
  follow(words);
  document.body.dataset.ready = "yes";
})();
