// Drives the page in a headless Chromium as people would: pointing, typing, stepping, playing, comparing, copying, wrong input; from a file
// and under `reshard serve`; wide, as narrow as a phone, dark. Errors on the console are failures. With RESHARD_PICTURES=write the screenshots
// and the accessibility tree of the documentation are written anew; the tree is compared.
import assert from "node:assert";
import { execFileSync, execSync, spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const root = process.env.RESHARD_ROOT, program = process.env.RESHARD;
const { chromium } = createRequire(import.meta.url)(path.join(root, "target/browser/node_modules/playwright-core"));
const writes = process.env.RESHARD_PICTURES !== undefined;
const reshard = (...words) => execFileSync(program, words, { maxBuffer: 1 << 28 }).toString();
const answer = (...words) => JSON.parse(reshard(...words, "--json"));

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const troubles = [];

async function opened(url, { width = 1160, colorScheme = "light" } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) troubles.push(`${url}: ${message.text()}`); });
  page.on("pageerror", (error) => troubles.push(`${url}: ${error.stack}`));
  page.on("request", (request) => { if (url.startsWith("file:") && !request.url().startsWith("file:")) troubles.push(`${url} asks for ${request.url()}`); });
  await page.goto(url);
  await page.waitForSelector("body[data-ready=yes]");
  await page.waitForSelector("body[data-compared=yes]");
  return page;
}

function fileOf(name, ...words) {
  const file = path.resolve(`${name}.html`);
  reshard("explain", ...words, "--html", file);
  return `file://${file}`;
}

const said = (page, id) => page.textContent(`#${id}`);
const set = (page, id, value) => page.$eval(`#${id}`, (input, value) => { input.value = value; input.dispatchEvent(new Event("input", { bubbles: true })); }, String(value));
// A point of a canvas, in parts of its width and height.
async function point(page, id, x, y) {
  const box = await page.locator(`#${id}`).boundingBox();
  await page.mouse.move(box.x + x * box.width, box.y + y * box.height);
}
const compared = (page) => page.waitForSelector("body[data-compared=yes]");

// Pointing at elements: what the page says is what `reshard layout` says.
{
  const layouts = ["2x3/4x4", "3x2/5x7"], page = await opened(fileOf("matrix", ...layouts, "--shape", "18x20"));
  assert.equal(await said(page, "title"), "2x3/4x4 to 3x2/5x7");
  let elements = 0;
  for (const [x, y] of [[0.1, 0.2], [0.5, 0.5], [0.8, 0.9], [0.33, 0.71]]) {
    await point(page, "source", x, y);
    const text = await said(page, "element"), index = /^Element \(([^)]*)\) before/.exec(text);
    if (!index) continue;
    elements++;
    for (const [layout, words] of [[layouts[0], "before: "], [layouts[1], "goes to "]]) {
      const { rank, local } = answer("layout", layout, "--shape", "18x20", "--element", index[1].replaceAll(" ", "")).element;
      assert(text.includes(`${words}rank ${rank}, local index (${local.join(", ")})`), `${text} is not what \`reshard layout\` says: ${rank} ${local}`);
    }
  }
  assert(elements >= 3);
  // With the keyboard.
  await page.focus("#target");
  for (const key of ["ArrowRight", "ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
  assert.match(await said(page, "element"), /^Element \(2, 0\) after: rank 0, local index \(2, 0\); it comes from rank/);
  // Messages.
  await page.focus("#grid");
  for (const key of ["ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
  const sent = answer("plan", ...layouts, "--shape", "18x20").messages.find(({ from, to }) => from === 0 && to === 1);
  const text = await said(page, "message");
  assert(sent ? text.startsWith(`Rank 0 sends ${sent.elems} elements to rank 1, in step`) : text.startsWith("Rank 0 sends nothing to rank 1"), text);
  await point(page, "grid", 0.5, 0.5);
  assert.match(await said(page, "message"), /^Rank \d+ sends/);
  // A click holds what it is on, also when the pointer goes; the same again lets it go.
  await page.keyboard.press("Escape");
  await point(page, "source", 0.3, 0.4);
  await page.mouse.down();
  await page.mouse.up();
  const held = await said(page, "element");
  await point(page, "source", 0.6, 0.8);
  assert.equal(await said(page, "element"), held);
  await page.click("[data-copy=link]");
  assert.equal(await said(page, "element"), held);
  assert.match(await said(page, "code"), /element=source%3A/);
  await page.focus("#source");
  await page.keyboard.press("Escape");
  assert.equal(await said(page, "element"), "No element is chosen.");
  await page.screenshot({ path: "message.png", fullPage: true });
  await page.context().close();
}

// Steps, strategies, the machine, play, copies, links.
const example = fileOf("example1", "16/3", "16/5");
{
  const page = await opened(example);
  const tree = await page.locator("body").ariaSnapshot(), kept = path.join(root, "crates/reshard-cli/tests/page/tree.txt");
  if (writes || !existsSync(kept)) writeFileSync(kept, tree + "\n");
  assert.equal(tree + "\n", readFileSync(kept, "utf8"), "the accessibility tree is another; RESHARD_PICTURES=write keeps it");
  if (writes) await page.screenshot({ path: path.join(root, "docs/pictures/page.png"), fullPage: true });

  await set(page, "step", 3);
  assert.match(await said(page, "message"), /^Step c: 16 messages, the longest of 3 elements\./);
  assert.equal(await said(page, "step-name"), "c of 7");
  await page.selectOption("#view", "ring");
  await page.screenshot({ path: "ring.png", fullPage: true });

  // The times in the table are those of `reshard simulate`, on every machine that the sliders make.
  const time = (seconds) => page.evaluate((seconds) => timeText(seconds), seconds);
  const agree = async (...flags) => {
    await compared(page);
    for (const row of answer("simulate", "16/3", "16/5", "--compare", ...flags).rows) {
      const shown = await page.textContent(`tr[data-strategy="${row.strategy}"]`);
      assert(shown.includes(row.error ?? await time(row.makespan)), `${flags}: ${row.strategy}: ${shown} for ${row.makespan}`);
    }
  };
  await agree();
  await set(page, "alpha", -50);
  await agree("--alpha", "1e-5");
  await set(page, "beta", -70);
  await agree("--alpha", "1e-5", "--beta", "1e-7");
  for (const network of ["ring", "torus", "fat-tree"]) {
    await page.selectOption("#network", network);
    await agree("--alpha", "1e-5", "--beta", "1e-7", "--network", network);
  }
  await page.check("#barriers");
  await agree("--alpha", "1e-5", "--beta", "1e-7", "--network", "fat-tree", "--barriers");

  await page.click("tr[data-strategy=caterpillar] button");
  assert.equal(await page.inputValue("#strategy"), "caterpillar");
  assert.match(await said(page, "message"), /in 16 steps/);

  await page.click("#play");
  await page.waitForTimeout(300);
  assert.equal(await said(page, "play"), "Pause");
  await page.click("#play");
  const moment = Number(await page.inputValue("#moment"));
  assert(moment > 0 && moment < 1000, `played to ${moment}`);

  // A link restores what is seen.
  await set(page, "step", 5);
  await page.click("[data-copy=link]");
  const link = await said(page, "code"), again = await opened(link);
  for (const id of ["step-name", "message", "alpha-text", "beta-text"]) assert.equal(await said(again, id), await said(page, id), id);
  for (const id of ["strategy", "network"]) assert.equal(await again.inputValue(`#${id}`), await page.inputValue(`#${id}`), id);
  assert(await again.isChecked("#barriers"));
  await again.context().close();

  // What is copied works.
  const code = async (what) => { await page.click(`[data-copy=${what}]`); await page.waitForFunction(() => document.getElementById("copied").textContent !== ""); return said(page, "code"); };
  const shell = { cwd: process.cwd(), env: { ...process.env, PATH: `${path.dirname(program)}:${process.env.PATH}` } };
  const command = await code("command");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), command);
  assert.match(execSync(command, shell).toString(), /caterpillar on fat-tree:16:2 with barriers.*drawn to picture.svg/);
  writeFileSync("copied.py", await code("python"));
  assert.equal(execSync("python3 copied.py", shell).toString().trim().split("\n").length, 112);
  writeFileSync("copied.c", await code("c"));
  execSync(`cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -I '${path.join(root, "crates/reshard-capi/include")}' copied.c`, shell);
  // These words are those of the README's example, which is compiled.
  assert.match(await code("rust"), /"16\/3 of 240"\.parse\(\)\?[^]*Move::of::<f64>\(from, to\)\?;\nRedistribution::new\(moving\)\?\.run\(&source, &mut target\)\?;/);
  await page.context().close();
}

// On a touch screen: a tap shows and holds.
{
  const context = await browser.newContext({ viewport: { width: 390, height: 800 }, hasTouch: true }), page = await context.newPage();
  await page.goto(example);
  await page.waitForSelector("body[data-ready=yes]");
  await page.locator("#source").tap({ position: { x: 100, y: 30 } });
  assert.match(await said(page, "element"), /^Element \(\d+\) before: rank/);
  await page.locator("#grid").tap({ position: { x: 60, y: 40 } });
  assert.match(await said(page, "message"), /^Rank \d+ sends/);
  await context.close();
}

// A machine of all kinds: the command that is copied takes as long as the page says.
{
  const words = ["12/3", "8/5", "--strategy", "eager", "--in-flight", "2", "--ports", "2", "--half-duplex", "--pack", "1ns", "--barriers", "--barrier-cost", "5us"];
  const page = await opened(fileOf("machine", ...words));
  await page.click("[data-copy=command]");
  const command = (await said(page, "code")).split(" ").slice(2, -2), { makespan } = answer("simulate", ...command);
  assert(makespan === answer("simulate", ...words).makespan, command.join(" "));
  assert.equal(await page.textContent("tr[data-strategy=eager] .time"), await page.evaluate((seconds) => timeText(seconds), makespan));
  await page.context().close();
}

// Links without end are refused, as the program refuses them.
{
  const page = await opened(fileOf("sparse", "4/3 ranks=0,1,2,600000000", "4/5 ranks=5,300000000,7,8"));
  await page.selectOption("#network", "ring");
  assert.match(await said(page, "machine-said"), /links of the network ring in all, and at most 2000000 are simulated/);
  assert.equal(await page.inputValue("#network"), "flat");
  await page.context().close();
}

// Of a replicated source not every pair that holds the same elements sends them.
{
  const page = await opened(fileOf("replicated", "(cyclic(3),*) on 2x3", "(*,cyclic(2)) on 2x3", "--shape", "12x13"));
  await page.focus("#grid");
  for (const key of ["ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
  assert.match(await said(page, "message"), /^Rank 0 sends nothing to rank 1/);
  await page.context().close();
}

// Windows and transposes.
{
  const page = await opened(fileOf("window", "2x2/3x3", "1x3/4x5", "--shape", "20x30", "--window", "7x11", "--from-at", "2,4", "--to-at", "1,3", "--to-shape", "15x12", "--transpose"));
  await page.click("[data-copy=c]");
  writeFileSync("window.c", await said(page, "code"));
  execSync(`cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -I '${path.join(root, "crates/reshard-capi/include")}' window.c`);
  await page.context().close();
}

// A phone, dark.
{
  const page = await opened(example, { width: 390, colorScheme: "dark" });
  assert(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is wider than a phone");
  await page.screenshot({ path: writes ? path.join(root, "docs/pictures/page-dark.png") : "phone.png" });
  await page.context().close();
}

// 512 ranks: what every interaction takes; few messages, and many.
for (const [name, ...layouts] of [["ranks-512", "512/3", "512/5"], ["dense-512", "16x32/1x1", "32x16/3x7", "--shape", "1000x1000"]]) {
  const page = await opened(fileOf(name, ...layouts));
  await page.evaluate(() => performance.clearMeasures());
  for (let at = 0; at < 8; at++) {
    await point(page, "source", 0.1 + 0.1 * at, 0.6);
    await point(page, "grid", 0.2 + 0.07 * at, 0.3 + 0.05 * at);
  }
  for (let step = 0; step <= 5; step++) await set(page, "step", step);
  await page.selectOption("#view", "ring");
  for (const alpha of [-60, -50, -40]) { await set(page, "alpha", alpha); await compared(page); }
  await page.selectOption("#network", "fat-tree");
  await compared(page);
  for (const moment of [100, 500, 900]) await set(page, "moment", moment);
  if (name === "ranks-512") await page.selectOption("#strategy", "caterpillar");
  await compared(page);
  const measures = await page.evaluate(() => performance.getEntriesByType("measure").map(({ name, duration }) => [name, duration]));
  const longest = new Map();
  for (const [name, duration] of measures) longest.set(name, Math.max(longest.get(name) ?? 0, duration));
  console.log(`${name}: longest script time of each interaction in ms:`, [...longest].map(([name, most]) => `${name} ${most.toFixed(1)}`).join(", "));
  // The goal is 100 ms on a quiet machine; here others may run.
  for (const [name, most] of longest) assert(most < 2000, `${name} takes ${most} ms`);
  await page.context().close();
}

// Under `reshard serve`: other layouts, and mistakes where they are.
{
  const server = spawn(program, ["serve", "--json"], { stdio: ["ignore", "pipe", "ignore"] });
  try {
    const url = await new Promise((resolve) => server.stdout.once("data", (text) => resolve(JSON.parse(text).url)));
    const page = await opened(url);
    await page.fill("#from", "2x2/8x8");
    await page.fill("#to", "4x1/5x40");
    await page.fill("#shape", "40x40");
    await page.click("#plan");
    await page.waitForFunction(() => document.getElementById("title").textContent === "2x2/8x8 to 4x1/5x40");
    await compared(page);
    assert.match(await said(page, "before"), /40 x 40/);
    await page.fill("#to", "4x1/5;40");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#wrong u");
    assert.equal(await page.textContent("#wrong u"), ";");
    assert.match(await said(page, "wrong"), /at character 6/);
    assert.equal(await page.getAttribute("#to", "aria-invalid"), "true");
    assert.equal(await said(page, "title"), "2x2/8x8 to 4x1/5x40", "what was seen stays");
    await page.screenshot({ path: "wrong.png" });
    // What is typed is shown as text, never run.
    await page.fill("#to", "<img src=x onerror=alert(1)>");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.getElementById("wrong").textContent.includes("<img"));
    assert.equal(await page.locator("#wrong img").count(), 0);
    // A link to other layouts restores them, and what is seen of them.
    await page.focus("#source");
    for (const key of ["ArrowRight", "ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
    const seen = await said(page, "element"), linked = page.url(), again = await opened(linked);
    await again.waitForFunction(() => document.getElementById("title").textContent === "2x2/8x8 to 4x1/5x40");
    await again.waitForFunction((seen) => document.getElementById("element").textContent === seen, seen);
    // Of two questions the last one counts, whichever is answered first.
    let first = true;
    await again.route("**/plan?**", async (route) => {
      const late = first;
      first = false;
      if (late) await new Promise((resolve) => setTimeout(resolve, 700));
      await route.continue();
    });
    for (const layout of ["3x1/5x5", "1x3/6x6"]) { await again.fill("#to", layout); await again.click("#plan"); }
    await again.waitForFunction(() => document.getElementById("title").textContent === "2x2/8x8 to 1x3/6x6");
    await again.waitForTimeout(900);
    assert.equal(await said(again, "title"), "2x2/8x8 to 1x3/6x6");
  } finally {
    server.kill();
  }
}

await browser.close();
assert.deepEqual(troubles, []);
console.log("the page is as it should be");
