// The web console as people use it: a real Chromium, a real `skua run`, real traffic in the lab.
import assert from "node:assert/strict";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { endAll, FOLDER, launch, on, open, output, SKUA, Skua, traffic, until } from "./lab.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const skua = new Skua(8082, { SKUA_HISTORY_DIRECTORY: `${FOLDER}/history` });
let browser;
let page;

before(async () => {
  [browser] = await Promise.all([launch(), skua.start()]);
  await traffic();
  page = await open(browser);
});
after(async () => {
  await browser?.close();
  await skua.stop();
  endAll();
});

const go = (hash, target = page) => target.goto(`${skua.url}#/${hash}`);
const rows = (target = page) => target.locator("table.grid tbody tr");
const text = async (target = page) => (await target.locator("body").innerText()).replace(/\s+/g, " ");

/** No serious fault that a machine can find (WCAG 2.1 A and AA). */
async function accessible(what, target = page) {
  // Past the page's policy, which lets nothing in: as a script of the debugger.
  await target.evaluate(axe);
  const { violations } = await target.evaluate(() =>
    globalThis.axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }),
  );
  const serious = violations.filter((one) => ["serious", "critical"].includes(one.impact));
  const told = serious.map((one) => `${what}: ${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  assert.deepEqual(told, []);
}

/** Colours of the map's picture, to see that something is drawn. */
const colours = (target = page) =>
  target.locator(".map-stage canvas").evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4 * 7) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return seen.size;
  });

test("the page comes from the binary, and nothing else may be loaded", async () => {
  const response = await page.goto(skua.url);
  const policy = response.headers()["content-security-policy"];
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe/);
  assert.equal(response.headers()["x-content-type-options"], "nosniff");
  const routes = await (await fetch(skua.url)).text();
  assert.match(routes, /GET \/api\/flows/);
  await page.getByRole("status", { name: "Connection: live" }).waitFor();
});

test("the map shows the lab, and what is selected", async () => {
  await go("map");
  await page.getByRole("searchbox", { name: "Find nodes" }).fill("10.99.1.2");
  await page.locator(".found button").first().click();
  const aside = page.getByRole("complementary", { name: "Details" });
  await aside.getByText("10.99.1.2/24").first().waitFor();
  await aside.locator(".chart canvas").waitFor();
  await aside.getByRole("heading", { name: "Flows" }).waitFor();
  await until("a picture", async () => (await colours()) > 20);
  await accessible("map");
  // By keys alone.
  await page.locator(".map-stage canvas").focus();
  await page.keyboard.press("Escape");
  await aside.waitFor({ state: "detached" });
});

test("the map is told of what comes and goes", async () => {
  await go("map?find=dummy7");
  const nodes = page.getByText(/nodes, \d+ found/);
  await page.getByText(/nodes, 0 found/).waitFor();
  on("host", "ip", "link", "add", "dummy7", "type", "veth", "peer", "name", "dummy8");
  await page.getByText(/nodes, 1 found/).waitFor();
  on("host", "ip", "link", "del", "dummy7");
  await page.getByText(/nodes, 0 found/).waitFor();
  assert.equal(await nodes.count(), 1);
});

test("flows are filtered and sorted by the server", async () => {
  await go("flows");
  await rows().first().waitFor();
  const filter = page.getByRole("combobox", { name: "Filter" });
  await filter.pressSequentially("tc");
  await page.getByRole("option", { name: /tcp/ }).waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await filter.pressSequentially("port 80");
  await page.keyboard.press("Enter");
  await until("only flows of port 80", async () => {
    const all = await rows().allInnerTexts();
    return all.length > 0 && all.every((row) => /:80(?!\d)/.test(row));
  });
  assert.match(page.url(), /filter=tcp\+port\+80/);
  await page.getByRole("button", { name: "Sort by bytes" }).click();
  await page.locator("th[aria-sort=descending]", { hasText: "Bytes" }).waitFor();
  await rows().first().getByRole("button").click();
  const aside = page.getByRole("complementary", { name: "Details" });
  await aside.getByText("Community ID", { exact: false }).first().waitFor();
  await accessible("flows");
  await aside.getByRole("button", { name: "Show path on map" }).click();
  await page.getByRole("button", { name: "Clear path" }).waitFor();
  await go("flows?filter=tcp+and");
  await page.locator(".trouble").waitFor();
  expected(/status of 400/);
});

test("flows are summed up by process", async () => {
  await go("flows?by=process");
  await rows().filter({ hasText: "curl" }).first().waitFor();
});

test("services show who calls whom", async () => {
  await go("services");
  const edge = page.getByRole("button", { name: /curl calls .*:80:/ }).first();
  // A line that lies flat has a box without height, which Playwright takes for hidden.
  await edge.waitFor({ state: "attached" });
  await accessible("services");
  await edge.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("complementary", { name: "Details" }).getByRole("button", { name: "Flows" }).click();
  await page.waitForURL(/flows\?filter=tcp/);
  await go("services?as=table");
  await rows().filter({ hasText: "python3" }).first().waitFor();
  await accessible("services as table");
});

test("a capture is made, watched and ended", async () => {
  await go("captures");
  await page.getByRole("button", { name: "New capture" }).click();
  await page.getByRole("textbox", { name: /Nodes/ }).fill('G.V().Has("Name", "web0")');
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("<b>bold</b>");
  await page.getByRole("spinbutton", { name: /First packets/ }).fill("3");
  await accessible("a new capture");
  await page.getByRole("button", { name: "Make it" }).click();
  const row = rows().filter({ hasText: "<b>bold</b>" });
  await row.getByText("active").waitFor();
  await until("packets of the capture", async () =>
    (await skua.get("api/status")).captures.some((one) => one.in_flows?.packets > 0 || one.flows > 0));
  await accessible("captures");
  const download = page.waitForEvent("download");
  await row.getByRole("button", { name: "pcapng" }).click();
  const file = readFileSync(await (await download).path());
  assert.equal(file.readUInt32LE(0), 0x0a0d0d0a);
  await row.getByRole("button", { name: "End" }).click();
  await page.getByRole("button", { name: "End it" }).click();
  await row.waitFor({ state: "detached" });
  assert.deepEqual(await skua.get("api/capture"), {});
});

test("alerts, taps and detectors are listed and made", async () => {
  await go("captures?kind=alerts");
  await page.getByRole("button", { name: "New alert" }).click();
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("any node");
  await page.getByRole("textbox", { name: "Query", exact: true }).fill("G.V().Count()");
  await page.getByRole("button", { name: "Make it" }).click();
  await rows().filter({ hasText: "any node" }).getByText("firing").waitFor();
  await page.getByRole("button", { name: "Taps" }).click();
  await page.getByText("There is no tap.").waitFor();
  await page.getByRole("button", { name: "Steering" }).click();
  await page.getByRole("button", { name: "New detector" }).click();
  const form = page.getByRole("dialog");
  await form.getByRole("textbox").fill('{"name": "x", "interface": "nowhere", "action": {"report": true}, "unknown": 1}');
  await form.getByRole("button", { name: "Make it" }).click();
  await form.getByRole("alert").getByText("unknown").waitFor();
  await form.getByRole("button", { name: "Cancel" }).click();
  expected(/status of 4\d\d/);
});

test("queries are completed, answered and explained", async () => {
  await go("query");
  const query = page.getByRole("combobox", { name: "Query in Gremlin" });
  await query.fill("");
  await query.pressSequentially('G.V().Has("Type", "bridge").Val');
  await page.locator("#query-list").getByRole("option", { name: /ValueMap/ }).waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Control+Enter");
  await rows().filter({ hasText: "br0" }).first().waitFor();
  await accessible("query");
  for (const [as, shown] of [["graph", ".empty, .card"], ["chart", ".empty, .chart, .bars"], ["JSON", ".json"]]) {
    await page.getByRole("button", { name: as, exact: true }).click();
    await page.locator(shown).first().waitFor();
  }
  await query.fill("G.V().Hass()");
  await page.keyboard.press("Control+Enter");
  await page.locator(".trouble").getByText("did you mean").waitFor();
  expected(/status of 400/);
});

/** Complaints of the browser that belong to what was just done, so that others are found. */
function expected(pattern, target = page) {
  target.complaints = target.complaints.filter((complaint) => !pattern.test(complaint));
}

test("names of others do no harm", async () => {
  const evil = "<img src=x onerror=alert(1)>\u202egnp.exe\u0007";
  const long = "ж".repeat(2048);
  for (const name of [evil, long]) {
    const response = await fetch(`${skua.url}api/node`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ Metadata: { Name: name, Type: "switch" } }),
    });
    assert.ok(response.ok, await response.text());
  }
  page.on("dialog", () => assert.fail("a script of a name ran"));
  await go("map?find=img");
  const found = page.locator(".found button").first();
  await found.click();
  assert.match(await found.innerText(), /<img src=x onerror=alert\(1\)>⟨U\+202E⟩gnp/);
  await page.getByRole("complementary").getByText("gnp.exe␇").first().waitFor();
  await go(`map?find=${encodeURIComponent("жжж")}`);
  await page.locator(".found button").first().click();
  await until("the long name", async () => (await text()).includes("жжж"));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `the page is ${wide} px too wide`);
  await go('query?q=G.V().Has("Type","switch")');
  await rows().filter({ hasText: "<img src=x" }).first().waitFor();
});

test("the page travels back in time, and a bookmark leads there", async () => {
  // A port that was there for a while.
  on("host", "ip", "link", "add", "past0", "type", "veth", "peer", "name", "past1");
  await go("map?find=past0");
  await page.getByText(/nodes, 1 found/).waitFor();
  const then = Date.now();
  await until("a moment to pass", () => Date.now() > then + 1500);
  on("host", "ip", "link", "del", "past0");
  await page.getByText(/nodes, 0 found/).waitFor();
  const other = await open(browser);
  await other.goto(`${skua.url}#/map?find=past0&at=${then + 500}`);
  await other.getByText(/nodes, 1 found/).waitFor();
  assert.equal(await other.getByRole("button", { name: "Live" }).getAttribute("aria-pressed"), "false");
  await other.getByRole("link", { name: "Flows" }).click();
  await rows(other).first().waitFor();
  assert.match(other.url(), /at=\d+/);
  await accessible("the past", other);
  await other.getByRole("button", { name: "Live" }).click();
  await other.waitForURL((url) => !url.hash.includes("at="));
  // The slider moves by keys.
  await other.getByRole("slider").focus();
  for (let i = 0; i < 5; i++) await other.keyboard.press("ArrowLeft");
  await other.waitForURL(/at=\d+/);
  assert.deepEqual(other.complaints, []);
  await other.context().close();
});

test("when nobody answers the last view stays, and comes back", async () => {
  await go("map");
  await page.getByRole("status", { name: "Connection: live" }).waitFor();
  const before = await page.getByText(/\d+ nodes/).innerText();
  await skua.stop("SIGKILL");
  await page.getByRole("alert").getByText("does not answer").waitFor();
  assert.equal(await page.getByText(/\d+ nodes/).innerText(), before);
  await skua.start();
  await page.getByRole("status", { name: "Connection: live" }).waitFor();
  await page.getByRole("alert").waitFor({ state: "detached" });
  await go("flows");
  await rows().first().waitFor();
  expected(/ERR_CONNECTION|WebSocket connection|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE/);
});

test("where WebSockets are refused the page polls", async () => {
  const other = await open(browser);
  await other.addInitScript(() => {
    globalThis.WebSocket = class {
      constructor() {
        setTimeout(() => this.onclose?.(), 10);
      }
      close() {}
    };
  });
  await other.goto(skua.url);
  await other.getByRole("status", { name: /Connection: polling/ }).waitFor();
  await other.getByText(/[1-9]\d* nodes/).waitFor();
  await other.context().close();
});

test("it fits small windows, and dark ones", async () => {
  const small = await open(browser, { viewport: { width: 390, height: 700 }, colorScheme: "dark" });
  for (const view of ["map", "flows", "services", "captures", "query"]) {
    await go(view, small);
    await small.getByRole("status", { name: "Connection: live" }).waitFor();
    const wide = await small.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${view} is ${wide} px too wide`);
    await accessible(`${view}, dark and small`, small);
  }
  assert.deepEqual(small.complaints, []);
  await small.context().close();
});

test("who has to log in may do what the role allows", async () => {
  const folder = FOLDER;
  const token = async (name, role) =>
    (await output(SKUA, ["token", "create", name, "--role", role, "--ends", "1d", "--file", `${folder}/tokens`])).trim();
  const read = await token("reader", "read");
  const admin = await token("boss", "admin");
  chmodSync(`${folder}/tokens`, 0o600);
  const guarded = new Skua(8083, { SKUA_API_TOKENS: `${folder}/tokens` });
  await guarded.start();
  try {
    const other = await open(browser);
    await other.goto(guarded.url);
    const form = other.getByRole("form", { name: "Log in" });
    await form.waitFor();
    await accessible("login", other);
    await form.getByRole("button", { name: "With a token" }).click();
    await form.getByLabel("Token").fill("wrong");
    await form.getByRole("button", { name: "Log in" }).click();
    await form.getByRole("alert").getByText("wrong").waitFor();
    await form.getByLabel("Token").fill(read);
    await form.getByRole("button", { name: "Log in" }).click();
    await other.getByText("token reader (read)").waitFor();
    await other.getByText(/[1-9]\d* nodes/).waitFor();
    await other.getByRole("link", { name: "Capture" }).click();
    await other.getByText("may look, and change nothing").waitFor();
    assert.equal(await other.getByRole("button", { name: "New capture" }).count(), 0);
    // Not only the page, but the server says so.
    const status = await other.evaluate(async () =>
      (await fetch("/api/capture", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" })).status);
    assert.equal(status, 403);
    const cookies = await other.context().cookies();
    assert.ok(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === "Strict"));
    await other.getByRole("button", { name: "Log out" }).click();
    await form.waitFor();
    await form.getByRole("button", { name: "With a token" }).click();
    await form.getByLabel("Token").fill(admin);
    await form.getByRole("button", { name: "Log in" }).click();
    await other.getByRole("button", { name: "New capture" }).waitFor();
    // A token that is over: the page asks again.
    writeFileSync(`${folder}/tokens`, "");
    await form.waitFor();
    expected(/status of 40[13]|WebSocket/, other);
    assert.deepEqual(other.complaints, []);
    await other.context().close();
  } finally {
    await guarded.stop();
  }
});

test("another site's page changes nothing", async () => {
  const foreign = await fetch(`${skua.url}api/capture`, {
    method: "POST",
    headers: { "content-type": "application/json", origin: "http://evil.example" },
    body: JSON.stringify({ GremlinQuery: "G.V()" }),
  });
  assert.equal(foreign.status, 403);
  const form = await fetch(`${skua.url}logout`, { method: "POST", body: new URLSearchParams({ a: "b" }) });
  assert.equal(form.status, 415);
});

test("nothing was complained of, and nobody else asked", () => {
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(page.strangers, []);
});
