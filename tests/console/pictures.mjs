// Makes the pictures of docs/pictures: each view with the lab's traffic, the map also dark. Only what is the lab's
// is shown: neither processes of the machine nor what makes the pictures.
import { mkdirSync } from "node:fs";
import { chain, endAll, FOLDER, launch, open, Skua, traffic, until } from "./lab.mjs";

const out = `${process.env.SKUA_TEST_ROOT}/docs/pictures`;
mkdirSync(out, { recursive: true });
const skua = new Skua(
  8082,
  {
    SKUA_HISTORY_DIRECTORY: `${FOLDER}/history`,
    SKUA_LAKE_DIRECTORY: `${FOLDER}/lake`,
    SKUA_LAKE_FLUSH: "5s",
    SKUA_TOPOLOGY_PROCESSES: "false",
    SKUA_TOPOLOGY_BPF: "false",
  },
  ["--filter", "not tcp port 8082"],
);
const browser = await launch();
try {
  await skua.start();
  await Promise.all([traffic(), chain()]);
  const page = await open(browser, { viewport: { width: 1280, height: 760 }, colorScheme: "light", locale: "en-GB" });
  const picture = async (name) => {
    await page.evaluate(() => document.activeElement?.blur?.());
    await page.screenshot({ path: `${out}/${name}.png` });
    console.log(`docs/pictures/${name}.png`);
  };
  const go = (hash) => page.goto(`${skua.url}#/${hash}`);
  await go("map");
  await page.getByText(/[1-9]\d* nodes/).waitFor();
  // Until rates and charts have a past.
  const begin = Date.now();
  await until("half a minute of traffic", () => Date.now() > begin + 30_000);
  await page.getByRole("searchbox").fill("10.99.1.3");
  await page.locator(".found button").first().click();
  await page.getByRole("searchbox").fill("");
  await page.locator(".aside .chart canvas").waitFor();
  await page.getByRole("button", { name: "Fit" }).click();
  await until("rates", async () => (await (await fetch(`${skua.url}api/map`)).json()).Rates.length > 0);
  await page.emulateMedia({ colorScheme: "dark" });
  await picture("map-dark");
  await page.emulateMedia({ colorScheme: "light" });
  // The path of a conversation, whose steps have numbers.
  await go("flows?filter=tcp+and+host+10.99.3.2");
  await page.locator("table.grid tbody tr").first().click();
  await page.getByRole("button", { name: "Show path on map" }).click();
  await page.getByRole("button", { name: "Clear path" }).waitFor();
  await page.getByRole("button", { name: "Fit" }).click();
  await page.locator(".notice").first().waitFor({ state: "detached" });
  await picture("map");
  await go("flows?filter=tcp+or+udp");
  await page.locator("table.grid tbody tr").nth(8).waitFor();
  await page.locator("table.grid tbody tr").first().click();
  await page.locator(".aside .values").first().waitFor();
  await picture("flows");
  await go("services");
  await page.locator("svg.services .edge").nth(3).waitFor({ state: "attached" });
  const strangers = await page.locator("svg.services .service.local .title").allTextContents();
  const own = /^(curl|python3|ping|gateway|orders|postgres)$/;
  if (!strangers.every((name) => own.test(name.trim()))) throw new Error(`not of the lab: ${strangers}`);
  await picture("services");
  await page.getByRole("button", { name: /^orders\s*service/ }).click();
  await page.locator(".aside .red .chart canvas").waitFor();
  await page.getByRole("heading", { name: "Where it runs" }).waitFor();
  await picture("service");
  await go("home");
  await page.getByRole("region", { name: "Top talkers" }).getByText("curl").waitFor();
  await page.getByRole("region", { name: "Traffic" }).locator(".column").nth(4).waitFor({ state: "attached" });
  await picture("home");
  await page.emulateMedia({ colorScheme: "dark" });
  await page.getByRole("button", { name: "who to whom" }).click();
  await page.locator(".sankey .band").first().waitFor({ state: "attached" });
  await picture("home-dark");
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 390, height: 760 });
  await go("flows?filter=tcp");
  await page.locator("table.grid tbody tr").nth(3).waitFor();
  await picture("phone");
  await page.setViewportSize({ width: 1280, height: 760 });
  await go("captures?new=1");
  await page.getByRole("button", { name: "Make it" }).waitFor();
  await page.getByRole("textbox", { name: /Nodes/ }).fill('G.V().Has("Name", "web0")');
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("web");
  await page.getByRole("spinbutton", { name: /First packets/ }).fill("10");
  await page.getByRole("button", { name: "Make it" }).click();
  await page.locator("table.grid tbody tr").getByText("active").waitFor();
  await page.locator(".notice").first().waitFor({ state: "detached" });
  await picture("captures");
  await go(`query?q=${encodeURIComponent('G.V().Has("Type", "veth").ValueMap("Name", "MAC", "MTU", "State")')}`);
  await page.locator("table.grid tbody tr").first().waitFor();
  await picture("query");
  await go("query?of=lake&by=service,client_address");
  await until("rows in the lake", async () => {
    await page.getByRole("button", { name: "Ask", exact: true }).click();
    return (await page.locator("table.grid tbody tr").count()) > 2;
  });
  await picture("lake");
} finally {
  await browser.close();
  await skua.stop();
  endAll();
}
