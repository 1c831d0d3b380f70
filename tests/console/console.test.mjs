// The web console as people use it: a real Chromium, a real `skua run`, real traffic in the lab.
import assert from "node:assert/strict";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { chain, endAll, FOLDER, launch, on, open, output, SKUA, Skua, traffic, until } from "./lab.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const skua = new Skua(8082, {
  SKUA_HISTORY_DIRECTORY: `${FOLDER}/history`,
  SKUA_LAKE_DIRECTORY: `${FOLDER}/lake`,
  SKUA_LAKE_FLUSH: "2s",
});
let browser;
let page;

before(async () => {
  [browser] = await Promise.all([launch(), skua.start()]);
  await Promise.all([traffic(), chain()]);
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
  target.locator(".surface").evaluate((surface) => {
    const canvas = [...surface.querySelectorAll("canvas:not(.marks)")].find((one) => one.style.visibility !== "hidden");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4 * 7) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return seen.size;
  });

/**
 * How much of a view has moved by itself since the page was loaded: 0 for nothing, 1 for all of it; and what. Rows of a live table may
 * change places, as they are sorted by what they show; its columns may not.
 */
const shifted = (target) =>
  target.evaluate(
    () =>
      new Promise((resolve) => {
        let sum = 0;
        const what = [];
        const place = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(",");
        const sorted = ({ node, previousRect: before, currentRect: after }) =>
          !node ||
          ((node.closest ? node : node.parentElement).closest("tbody") &&
            // Out of what is seen, into it, or within it.
            (after.width === 0 || before.width === 0 || (before.left === after.left && before.width === after.width)));
        const observer = new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) {
            const still = entry.sources.length > 0 && entry.sources.every(sorted);
            if (entry.hadRecentInput || still) continue;
            sum += entry.value;
            for (const { node, previousRect: before, currentRect: after } of entry.sources)
              what.push(`${node?.outerHTML?.slice(0, 80) ?? node?.data} from ${place(before)} to ${place(after)}`);
          }
        });
        observer.observe({ type: "layout-shift", buffered: true });
        // What is buffered comes in a task of its own.
        setTimeout(() => resolve([sum, what.join("; ")]), 200);
      }),
  );

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
  await page.locator(".surface").focus();
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
  const lefts = await page.evaluate(() =>
    ["thead th", "tbody tr:first-child td"].map((cells) =>
      [...document.querySelectorAll(`table.grid ${cells}`)].map((cell) => Math.round(cell.getBoundingClientRect().left)),
    ),
  );
  assert.ok(lefts[0].length > 10);
  assert.deepEqual(lefts[0], lefts[1], "heads stand over their columns");
  await rows().first().getByRole("button").click();
  const aside = page.getByRole("complementary", { name: "Details" });
  await aside.getByText("Community ID", { exact: false }).first().waitFor();
  const times = await aside.locator("dl.values div", { hasText: /round.trip/ }).locator("dd").allTextContents();
  assert.ok(times.length > 0 && times.every((time) => / (ns|µs|ms|s)$/.test(time)), `times have units: ${times}`);
  await accessible("flows");
  await aside.getByRole("button", { name: "Show path on map" }).click();
  await page.getByRole("button", { name: "Clear path" }).waitFor();
  await go("flows?filter=tcp+and");
  await page.locator(".trouble").waitFor();
  expected(/status of 400/);
});

test("the map moves and zooms, and is drawn anew where it is then", async () => {
  await go("map");
  await page.getByText(/[1-9]\d* nodes/).waitFor();
  const surface = page.locator(".surface");
  await surface.focus();
  const shown = () =>
    surface.evaluate((element) => {
      const canvas = [...element.querySelectorAll("canvas:not(.marks)")].find((one) => one.style.visibility !== "hidden");
      return canvas.style.transform;
    });
  await page.keyboard.press("0");
  for (let i = 0; i < 8; i++) await page.keyboard.press("+");
  // A sheet that is drawn for this place lies there as it is.
  await until("a sharp picture", async () => /scale\(1\)$/.test(await shown()));
  const before = await shown();
  await page.keyboard.press("ArrowRight");
  await until("a move", async () => (await shown()) !== before);
  for (let i = 0; i < 30; i++) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("0");
  await until("the whole map", async () => /scale\(1\)$/.test(await shown()) && (await colours()) > 20);
});

test("tables are told of changes over the one WebSocket, and poll without it", async () => {
  const asked = [];
  const note = (request) => asked.push(new URL(request.url()).pathname);
  await go("map");
  await page.getByRole("status", { name: "Connection: live" }).waitFor();
  page.on("request", note);
  await page.getByRole("link", { name: "Flows" }).click();
  await rows().first().waitFor();
  const sum = async () => (await rows().allInnerTexts()).join();
  let first = await sum();
  await until("other rows", async () => (await sum()) !== first);
  await page.getByRole("combobox", { name: "Show" }).selectOption("process");
  await rows().filter({ hasText: "curl" }).first().waitFor();
  await page.getByRole("link", { name: "Services" }).click();
  await page.locator("svg.services .edge").first().waitFor({ state: "attached" });
  page.off("request", note);
  assert.deepEqual(asked.filter((path) => path.startsWith("/api/") && !["/api/summary", "/api/services/history"].includes(path)), []);
});

test("flows are summed up by process", async () => {
  await go("flows?by=process");
  await rows().filter({ hasText: "curl" }).first().waitFor();
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
  await complained(/status of 4\d\d/);
});

test("a tap is made, watched and ended", async () => {
  await go("captures?kind=taps");
  await page.getByRole("button", { name: "New tap" }).click();
  const form = page.getByRole("dialog");
  await form.getByRole("textbox", { name: "Name", exact: true }).fill("look");
  await form.getByRole("textbox", { name: /From/ }).fill("web0");
  await form.getByRole("textbox", { name: /To/ }).fill("stream");
  await form.getByRole("button", { name: "Make it" }).click();
  const row = rows().filter({ hasText: "look" });
  await until("copies", async () => Object.values(await skua.get("api/tap")).some((tap) => tap.Matched.Packets > 0));
  await until("their number", async () => /[1-9]/.test(await row.locator("td.number").first().innerText()));
  await accessible("taps");
  await row.getByRole("button", { name: "End" }).click();
  await page.getByRole("button", { name: "End it" }).click();
  await row.waitFor({ state: "detached" });
  assert.deepEqual(await skua.get("api/tap"), {});
});

test("the lake is asked by form, as table and chart", async () => {
  await go("query?of=lake&by=service,client_address");
  const ask = page.getByRole("button", { name: "Ask", exact: true });
  await until("rows in the lake", async () => {
    await ask.click();
    return (await rows().filter({ hasText: "python3" }).count()) > 0;
  });
  await accessible("the lake");
  const by = page.getByRole("combobox", { name: "Summed up by" });
  await by.fill("");
  await by.pressSequentially("server_po");
  await page.getByRole("option", { name: /server_port/ }).waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  const where = page.getByRole("combobox", { name: "Where" });
  await where.fill("server_port=80");
  await page.keyboard.press("Enter");
  await until("one port", async () => {
    const all = await rows().locator("td:first-child").allInnerTexts();
    return all.length === 1 && all[0].trim() === "80";
  });
  await page.getByRole("button", { name: "chart", exact: true }).click();
  await page.locator(".bars meter").first().waitFor();
  await accessible("the lake as chart");
  await where.fill("nonsense=1");
  await page.keyboard.press("Enter");
  await page.locator(".trouble").getByText('there is no field "nonsense"').waitFor();
  await complained(/status of 400/);
});

test("the lake is asked in SQL, where the build has an engine for it", async () => {
  const { status } = await fetch(`${skua.url}api/sql?statement=select+1`);
  assert.ok([200, 501].includes(status), `status ${status}`);
  const { Features } = await skua.get("api");
  assert.deepEqual(Features, status === 200 ? ["sql"] : []);
  await go("query");
  await page.getByRole("button", { name: "Lake", exact: true }).waitFor();
  const tab = page.getByRole("button", { name: "SQL", exact: true });
  // What the build lacks has no tab.
  if (status === 501) return assert.equal(await tab.count(), 0);
  await tab.click();
  const question = page.getByRole("combobox", { name: "Query in SQL" });
  await question.fill("select b_port, sum(ab_bytes) bytes from flows where b_port = 80 group by all");
  await page.keyboard.press("Control+Enter");
  await until("a row", async () => (await rows().first().innerText()).startsWith("80"));
  await accessible("SQL");
  await question.fill("");
  await question.pressSequentially("select a_addr");
  await page.getByRole("option", { name: /a_address/ }).waitFor();
  await question.fill("drop view flows");
  await page.keyboard.press("Control+Enter");
  await page.locator(".trouble").getByText("Parser Error").waitFor();
  await complained(/status of 400/);
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
  // What was asked before can be asked again.
  const before = page.getByRole("combobox", { name: "Earlier queries" });
  await query.fill("G.E().Count()");
  await page.keyboard.press("Control+Enter");
  await page.getByRole("button", { name: "table", exact: true }).click();
  await page.getByRole("status").getByText("1 result").waitFor();
  await before.selectOption({ index: 2 });
  await until("the query of before", async () => /bridge/.test(await query.inputValue()));
  await query.fill("G.V().Hass()");
  await page.keyboard.press("Control+Enter");
  await page.locator(".trouble").getByText("did you mean").waitFor();
  await complained(/status of 400/);
});

test("what is typed into a field as soon as it is there stays", async () => {
  await go("map");
  await page.locator(".surface").waitFor();
  // In the same task as the field comes: nothing of the page runs in between.
  const typed = await page.evaluate(
    () =>
      new Promise((resolve) => {
        addEventListener(
          "hashchange",
          () => {
            const field = document.getElementById("query");
            field.value = "G.E()";
            field.dispatchEvent(new InputEvent("input", { bubbles: true }));
            setTimeout(() => resolve(field.value), 500);
          },
          { once: true },
        );
        location.hash = "#/query";
      }),
  );
  assert.equal(typed, "G.E()");
});

/** Complaints of the browser that belong to what was just done, so that others are found. */
function expected(pattern, target = page) {
  target.complaints = target.complaints.filter((complaint) => !pattern.test(complaint));
}

/** The same, of what the browser may still be about to say. */
async function complained(pattern, target = page) {
  await until(`a complaint like ${pattern}`, () => target.complaints.some((complaint) => pattern.test(complaint)));
  expected(pattern, target);
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

/** The services of the map, with their places. */
const services = (target = page) =>
  target.locator("svg.services .service").evaluateAll((all) =>
    all.map((one) => {
      const { left, right, top, bottom } = one.querySelector("rect").getBoundingClientRect();
      return { name: one.querySelector(".title").textContent, left, right, top, bottom };
    }));

test("a chain of services is one chain on the map, from left to right", async () => {
  await go("services");
  for (const [client, server, port] of [["curl", "gateway", 8000], ["gateway", "orders", 9000], ["orders", "postgres", 5432]]) {
    // A line that lies flat has a box without height, which Playwright takes for hidden.
    await page.getByRole("button", { name: new RegExp(`^${client} calls ${server}:${port}: `) }).first().waitFor({ state: "attached" });
  }
  const all = await services();
  const of = (name) => {
    const found = all.filter((one) => one.name === name);
    assert.equal(found.length, 1, `${name} is there ${found.length} times`);
    return found[0];
  };
  const row = ["curl", "gateway", "orders", "postgres"].map(of);
  for (const [i, one] of row.entries()) if (i) assert.ok(one.left > row[i - 1].right, `${one.name} is right of ${row[i - 1].name}`);
  for (const a of all) {
    for (const b of all) {
      const apart = a === b || a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      assert.ok(apart, `${a.name} stands on ${b.name}`);
    }
  }
  // The picture takes the window's width.
  const box = await page.locator(".service-map").boundingBox();
  const wide = Math.max(...all.map((one) => one.right)) - Math.min(...all.map((one) => one.left));
  assert.ok(wide > 0.85 * box.width, `${wide} of ${box.width} px`);
  // Numbers stand on the links, and failures, once the first of them have ended.
  const texts = page.locator("svg.services .edge-text");
  await texts.filter({ hasText: ":5432" }).filter({ hasText: /\d\/s · .*s \/ .*s/ }).first().waitFor({ state: "attached" });
  await texts.filter({ hasText: ":81" }).filter({ hasText: /% fail/ }).first().waitFor({ state: "attached" });
  await page.getByLabel("Legend").getByText("1% fail").waitFor();
  await accessible("services");
});

test("a service opens with its rate, errors and duration, its peers and processes", async () => {
  await go("services");
  const orders = page.getByRole("button", { name: /^orders\s*service/ });
  await orders.waitFor({ state: "attached" });
  await orders.focus();
  await page.keyboard.press("Enter");
  const aside = page.getByRole("complementary", { name: "Details" });
  await aside.getByRole("heading", { name: "orders" }).waitFor();
  await aside.locator(".red .column rect").nth(2).waitFor({ state: "attached" });
  const part = (name) => aside.locator("section", { has: page.getByRole("heading", { name, exact: true }) });
  await part("Callers").getByText("gateway").waitFor();
  await part("Callees").getByText("postgres").waitFor();
  await part("Slowest peers").getByText(/p95/).first().waitFor();
  await part("Processes").getByText("orders").first().waitFor();
  await part("Where it runs").getByText("10.99.1.3").waitFor();
  await aside.locator(".red .chart canvas").waitFor();
  await accessible("a service");
  // From one to the next.
  await part("Callees").getByRole("button", { name: "postgres" }).click();
  await aside.getByRole("heading", { name: "postgres" }).waitFor();
  assert.match(page.url(), /show=service\+postgres/);
  // What the page shows is what the server has counted.
  const history = await fetch(`${skua.url}api/services/history?server=orders&whole=true`);
  const [sum] = (await history.text()).trim().split("\n").map((line) => JSON.parse(line));
  assert.ok(sum.connections > 3 && sum.failed === 0 && sum.rtt.p95_us > 0, JSON.stringify(sum));
  const refused = await fetch(`${skua.url}api/services/history?client=gateway&by=edge&whole=true`);
  const edges = (await refused.text()).trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(edges.map((edge) => edge.port).sort(), [9000, 9001]);
  assert.ok(edges.find((edge) => edge.port === 9001).failed > 0);
});

test("flows of a link have its client, its server and its ports", async () => {
  await go("services");
  const edge = page.getByRole("button", { name: /^gateway calls orders:9000: / });
  await edge.waitFor({ state: "attached" });
  await edge.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("complementary", { name: "Details" }).getByRole("button", { name: "Flows" }).click();
  await page.waitForURL(/flows\?filter=tcp/);
  const filter = new URLSearchParams(page.url().split("?").pop()).get("filter");
  assert.equal(filter, "tcp port 9000 and host 10.99.1.2 and host 10.99.1.3");
  await rows().filter({ hasText: "orders" }).filter({ hasText: "gateway" }).first().waitFor();
  await go("services?as=table");
  await rows().filter({ hasText: "python3" }).first().waitFor();
  await accessible("services as table");
});

test("the home page says who talks, what fails, what is lost and what is new", async () => {
  await go("home");
  const card = (name) => page.getByRole("region", { name, exact: true });
  await card("Top talkers").getByText("curl").waitFor();
  await card("Losses").getByText(/Each of [\d,]+ packets is in a flow|%/).first().waitFor();
  // The newest ones; which of the chain these are depends on when each was seen first.
  await card("What is new").getByText(/(curl → gateway|gateway → orders|orders → postgres) :\d+/).first().waitFor();
  await card("Traffic").locator(".stacked .column rect").nth(3).waitFor({ state: "attached" });
  await card("Traffic").getByRole("button", { name: "python3" }).waitFor();
  // Of the two ports where nobody listens.
  await card("Services with trouble").getByText(/curl → .*:81.*% fail/).waitFor();
  await accessible("home");
  await card("Traffic").getByRole("button", { name: "who to whom" }).click();
  const band = card("Traffic").getByRole("button", { name: /^orders to postgres: / });
  await band.waitFor({ state: "attached" });
  await accessible("home with a Sankey chart");
  await band.focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/services\?.*service=orders/);
});

test("services have a past", async () => {
  await go("services");
  await page.getByRole("button", { name: /curl calls python3.*:80/ }).first().waitFor({ state: "attached" });
  const moment = await until("a past of services", async () => {
    const now = Date.now();
    const answer = await fetch(`${skua.url}api/services/graph?at=${now}`);
    return answer.ok && (await answer.text()).includes("curl") ? now : 0;
  });
  await go(`services?at=${moment}`);
  await page.getByRole("button", { name: /curl calls python3.*:80/ }).first().waitFor({ state: "attached" });
  await accessible("services of the past");
  await go(`services?at=${moment - 30 * 86400e3}`);
  await page.locator(".trouble").getByText("are known only since").waitFor();
  assert.equal(await page.locator("svg.services").count(), 0);
  await complained(/status of 404.*services/);
  // Nor is there a map of that time.
  await complained(/status of 400.*api\/map/);
});

test("the time line shows when there was something, and selects a range", async () => {
  await go("home");
  const line = page.getByRole("region", { name: "Time line" });
  const histogram = line.locator(".histogram svg");
  await histogram.locator(".act").nth(3).waitFor({ state: "attached" });
  const { x, y, width, height } = await histogram.boundingBox();
  await page.mouse.move(x + width * 0.3, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.7, y + height / 2, { steps: 4 });
  await page.mouse.up();
  await page.waitForURL(/from=\d+/);
  const chosen = () => new URLSearchParams(page.url().split("?").pop());
  const [from, until_] = [Number(chosen().get("from")), Number(chosen().get("at"))];
  assert.ok(from > 0 && until_ > from, page.url());
  await histogram.locator(".selected").waitFor({ state: "attached" });
  // The range is what is asked for, and stays in other views.
  const asked = page.waitForRequest((request) => request.url().includes("services/history") && request.url().includes(`from=${from}`));
  await page.getByRole("link", { name: "Query" }).click();
  await page.getByRole("link", { name: "Home", exact: true }).click();
  assert.equal(new URL((await asked).url()).searchParams.get("until"), String(until_));
  // By keys alone: a range of five minutes, and a moment as it is written.
  await line.getByRole("combobox", { name: "Range of time" }).selectOption({ label: "5 min before" });
  await until("a range of five minutes", () => Number(chosen().get("at")) - Number(chosen().get("from")) === 300_000);
  const moment = line.getByRole("textbox", { name: "Moment" });
  await moment.fill("-20s");
  await page.keyboard.press("Enter");
  await until("another moment", () => Number(chosen().get("at")) !== until_);
  await moment.fill("25:99");
  await page.keyboard.press("Enter");
  await page.locator(".notice.bad").getByText("A moment is a time").waitFor();
  await line.getByRole("button", { name: "Live" }).click();
  await page.waitForURL((url) => !/at=|from=/.test(url.hash));
  // Who looks into the past only for an instant is live again, too.
  await go("map?find=dummy5");
  await page.getByText(/nodes, 0 found/).waitFor();
  await page.evaluate(() => {
    location.hash = `#/map?find=dummy5&at=${Date.now() - 20_000}`;
    setTimeout(() => (location.hash = "#/map?find=dummy5"), 50);
  });
  await page.waitForURL(/at=/);
  await page.waitForURL((url) => !/at=/.test(url.hash));
  on("host", "ip", "link", "add", "dummy5", "type", "veth", "peer", "name", "dummy6");
  await page.getByText(/nodes, 1 found/).waitFor();
  on("host", "ip", "link", "del", "dummy5");
  await page.getByText(/nodes, 0 found/).waitFor();
  expected(/status of 4\d\d/);
});

test("clocks are those of the reader", async () => {
  for (const [locale, timezoneId, pattern, zone] of [["de-DE", "Asia/Kolkata", /^\d\d:\d\d:\d\d$/, 330], ["en-US", "UTC", /^\d\d?:\d\d:\d\d [AP]M$/, 0]]) {
    const other = await open(browser, { locale, timezoneId });
    await go("flows", other);
    await rows(other).first().waitFor();
    const last = (await rows(other).first().locator("td").last().innerText()).trim();
    assert.match(last, pattern);
    await rows(other).first().click();
    const aside = other.getByRole("complementary", { name: "Details" });
    // A time in the reader's zone, beside the server's in UTC.
    const shown = await aside.locator(".values div", { hasText: "start" }).first().locator("dd").innerText();
    await other.keyboard.press("j");
    const raw = JSON.parse(await aside.locator("pre.raw").innerText());
    const there = new Date(Date.parse(raw.start) + zone * 60e3);
    const [hour, minute] = [there.getUTCHours(), there.getUTCMinutes()];
    const two = (number) => String(number).padStart(2, "0");
    const time = zone ? `${two(hour)}:${two(minute)}` : `${hour % 12 || 12}:${two(minute)}`;
    assert.ok(shown.includes(` ${time}:`), `${shown} of ${raw.start}`);
    await other.keyboard.press("j");
    await aside.locator(".values").first().waitFor();
    await other.context().close();
  }
});

test("columns of networks are chosen, and a filter of one word says what to write", async () => {
  await go("flows?filter=tcp");
  await rows().first().waitFor();
  await page.locator("summary", { hasText: "Columns" }).click();
  await page.getByLabel("Networks").check();
  await page.getByRole("columnheader", { name: "Networks" }).waitFor();
  assert.match(page.url(), /columns=networks/);
  await rows().first().locator(".side-a").click();
  assert.equal(await page.locator("details.choose").evaluate((list) => list.open), false);
  await go("flows?filter=fast");
  await page.getByText("Conditions are written like process:curl").waitFor();
});

test("answers of queries are tables that people can read", async () => {
  const ask = async (query, column) => {
    await go(`query?q=${encodeURIComponent(query)}`);
    // Until then the answer before is there.
    await page.locator("table.answer th").first().getByText(column, { exact: true }).waitFor();
    return (await page.locator("table.answer").innerText()).replace(/\s+/g, " ");
  };
  const flows = await ask('G.Flows().Has("Transport", 5432).Limit(5)', "Protocol");
  assert.match(flows, /Protocol From To Sent/);
  assert.match(flows, /TCP 10\.99\.1\.3:\d+ orders 10\.99\.3\.2:5432 postgres/);
  const nodes = await ask('G.V().Has("Type", "veth", "Name", "web0")', "Name");
  assert.match(nodes, /^Name Type State Host/);
  // Nothing in a cell is a program's notation.
  for (const shown of [flows, nodes]) assert.doesNotMatch(shown, /[{}[\]"]|\d{13}/);
  await go("query?q=G.V().Count()");
  await until("a number", async () => /^[\d,]+$/.test(await page.locator(".single").innerText().then((all) => all.replace("value", "").trim(), () => "")));
  // Without a question there is something to begin with.
  await go("query");
  await page.getByRole("button", { name: 'G.V().Has("Type", "bridge").Out()' }).click();
  await rows().filter({ hasText: "web0" }).first().waitFor();
});

test("addresses become services when these are known, and none of them has vanished", async () => {
  const line = (client_service, server_service, ago) => JSON.stringify({
    window: new Date(Math.floor((Date.now() - ago) / 10_000) * 10_000).toISOString(), seconds: 10, protocol: 6,
    client: "198.51.100.7", server: "198.51.100.8", client_service, server_service, port: 7443,
    client_sent: { packets: 3, bytes: 300 }, server_sent: { packets: 2, bytes: 5000 }, retransmitted: { client: 1, server: 0 },
    begun: 2, ended: 2, reset: 0, refused: 0, timed_out: 0, samples: 0, rtt: { count: 1, sum_us: 90, min_us: 90, max_us: 90, classes: [[90, 1]] },
  });
  const send = async (batch, ...lines) => {
    const response = await fetch(`${skua.url}api/services/graph`, {
      method: "POST", headers: { "content-type": "application/json", "x-skua-sender": "77", "x-skua-batch": String(batch) }, body: lines.join("\n"),
    });
    assert.ok(response.ok, await response.text());
  };
  const edges = async () => (await (await fetch(`${skua.url}api/services/graph?port=7443`)).text()).trim().split("\n").map((one) => JSON.parse(one));
  // Older than five minutes: by itself it would have vanished.
  await send(1, line("", "", 900_000), line("", "till", 890_000));
  await send(2, line("kiosk", "till", 10_000));
  const [edge, ...more] = await edges();
  assert.deepEqual(more, []);
  assert.deepEqual([edge.client.service, edge.server.service, edge.connections, edge.change], ["kiosk", "till", 6, undefined]);
  const dot = await (await fetch(`${skua.url}api/services/graph?port=7443&format=dot`)).text();
  assert.match(dot, /"kiosk" -> "till" \[label="tcp 7443/);
  await go("services?service=kiosk");
  await page.getByRole("button", { name: /^kiosk calls till:7443: / }).waitFor({ state: "attached" });
  assert.deepEqual((await services()).map((one) => one.name).sort(), ["kiosk", "till"]);
});

test("a browser whose clock is wrong shows the server's time", async () => {
  const other = await open(browser);
  await other.addInitScript(() => {
    const right = Date.now;
    Date.now = () => right() + 7 * 3600e3;
  });
  await other.goto(`${skua.url}#/map`);
  await other.getByText(/[1-9]\d* nodes/).waitFor();
  await other.getByRole("button", { name: "Bookmark" }).click();
  await other.waitForURL(/at=\d+/);
  const at = Number(/at=(\d+)/.exec(other.url())[1]);
  assert.ok(Math.abs(at - Date.now()) < 120e3, `${at - Date.now()} ms from now`);
  // The link leads there on a machine whose clock is right.
  const colleague = await open(browser);
  await colleague.goto(other.url());
  await colleague.getByText(/[1-9]\d* nodes/).waitFor();
  assert.equal(await colleague.getByRole("button", { name: "Live" }).getAttribute("aria-pressed"), "false");
  assert.deepEqual([...other.complaints, ...colleague.complaints], []);
  await other.context().close();
  await colleague.context().close();
});

test("views are reached by keys, and nothing moves by itself", async () => {
  const other = await open(browser);
  for (const view of ["home", "map", "flows", "services", "captures", "query"]) {
    await other.goto("about:blank");
    await go(view, other);
    await other.getByRole("status", { name: "Connection: live" }).waitFor();
    await until("what the view shows", async () => (await other.locator("canvas, table.grid, svg.services, .empty, .ask, .stacked").count()) > 0);
    const [share, what] = await shifted(other);
    assert.ok(share < 0.05, `${share} of ${view} moved: ${what}`);
  }
  await go("map", other);
  await other.locator("body").press("Tab");
  for (let i = 0; i < 4; i++) await other.keyboard.press("Tab");
  assert.equal(await other.evaluate(() => document.activeElement.textContent), "Services");
  await other.keyboard.press("Enter");
  await other.locator("svg.services .edge").first().waitFor({ state: "attached" });
  assert.deepEqual(other.complaints, []);
  await other.context().close();
});

test("when nobody answers the last view stays, and comes back", async () => {
  await go("map");
  await page.getByRole("status", { name: "Connection: live" }).waitFor();
  await skua.stop("SIGKILL");
  await page.getByRole("alert").getByText("has not answered").waitFor();
  // Nothing new can come any more; until the kill it could.
  const last = await page.getByText(/[1-9]\d* nodes/).innerText();
  await page.waitForEvent("requestfailed");
  assert.equal(await page.getByText(/\d+ nodes/).innerText(), last);
  await skua.start();
  await page.getByRole("status", { name: "Connection: live" }).waitFor();
  await page.getByRole("alert").waitFor({ state: "detached" });
  // Who looks at the past meanwhile finds it again, too.
  await go(`map?at=${Date.now()}`);
  await page.getByRole("button", { name: "Live", pressed: false }).waitFor();
  await skua.stop("SIGKILL");
  await page.getByRole("alert").getByText("has not answered").waitFor();
  await skua.start();
  await page.getByRole("alert").getByText("has not answered").waitFor({ state: "detached" });
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
  await other.goto(`${skua.url}#/map`);
  await other.getByRole("status", { name: /Connection: polling/ }).waitFor();
  await other.getByText(/[1-9]\d* nodes/).waitFor();
  await other.getByRole("link", { name: "Flows" }).click();
  for (let i = 0; i < 2; i++) await other.waitForResponse((response) => response.url().includes("/api/flows?"));
  await rows(other).first().waitFor();
  await other.context().close();
});

test("it fits small windows, and dark ones", async () => {
  const small = await open(browser, { viewport: { width: 390, height: 700 }, colorScheme: "dark" });
  for (const view of ["home", "map", "flows", "services", "captures", "query"]) {
    await go(view, small);
    await small.getByRole("status", { name: "Connection: live" }).waitFor();
    const wide = await small.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${view} is ${wide} px too wide`);
    await accessible(`${view}, dark and small`, small);
  }
  assert.deepEqual(small.complaints, []);
  await small.context().close();
});

test("the table of flows fits a screen, and is a list on a phone", async () => {
  for (const width of [1440, 390]) {
    const other = await open(browser, { viewport: { width, height: 800 } });
    await go("flows?filter=tcp+port+5432", other);
    await rows(other).first().waitFor();
    const place = other.getByRole("region", { name: "Conversations" });
    const wide = await place.evaluate((element) => element.scrollWidth - element.clientWidth);
    assert.ok(wide <= 0, `${wide} px too wide at ${width}`);
    const row = (await rows(other).first().innerText()).replace(/\s+/g, " ");
    // Who, where, how much: on each of them.
    for (const part of [/orders/, /postgres/, /:5432/, /\d k?B/]) assert.match(row, part, `at ${width}`);
    await rows(other).first().locator("button").click();
    await other.getByRole("complementary", { name: "Details" }).getByRole("heading", { name: "TCP", exact: true }).waitFor();
    if (width === 390) await accessible("flows on a phone", other);
    await other.context().close();
  }
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
    const other = await open(browser, { stranger: true });
    await other.goto(`${guarded.url}#/map`);
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
    await other.getByText("may not change anything").waitFor();
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

test("a link of skua console logs in once", async () => {
  const link = async () => (await output(SKUA, ["console", "--analyzer", `unix:${skua.socket}`])).trim();
  const other = await open(browser, { stranger: true });
  await other.goto(skua.url);
  const form = other.getByRole("form", { name: "Log in" });
  await form.getByText("skua console").waitFor();
  // Into the page that is open, as into a new one.
  const first = await link();
  await other.goto(first);
  await other.getByRole("heading", { name: "Top talkers" }).waitFor();
  assert.ok(!other.url().includes("login="), other.url());
  await other.getByRole("button", { name: "Log out" }).click();
  await form.waitFor();
  const third = await open(browser, { stranger: true });
  await third.goto(first);
  await third.getByRole("form", { name: "Log in" }).waitFor();
  await third.goto("about:blank");
  await third.goto(await link());
  await third.getByRole("heading", { name: "Top talkers" }).waitFor();
  await other.context().close();
  await third.context().close();
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
