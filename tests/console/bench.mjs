// The web page with 5,000 nodes and 50,000 flows: time to first paint and to the whole map, frames per second
// while 1,000 nodes a second change and the map is moved, bytes per minute, memory. NODES, CHANGES say otherwise.
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { endAll, FOLDER, launch, on, open, Skua, until } from "./lab.mjs";

const NODES = Number(process.env.NODES ?? 5000);
const CHANGES = Number(process.env.CHANGES ?? 1000);
const FLOWS = Number(process.env.FLOWS ?? 50_000);
/** Seconds of each measurement. */
const SECONDS = 15;

const skua = new Skua();
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
function ask(method, path, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(
      { host: "127.0.0.1", port: skua.port, method, path: `/${path}`, agent, headers: { "content-type": "application/json" } },
      (response) => {
        let text = "";
        response.on("data", (part) => (text += part));
        response.on("end", () => (response.statusCode < 300 ? resolve(text) : reject(new Error(`${path}: ${response.statusCode} ${text}`))));
      },
    );
    request.on("error", reject);
    request.end(JSON.stringify(body));
  });
}

/** Counters of an update that has just come. */
const metric = () => {
  const now = Date.now();
  const bytes = () => Math.round(10 ** (3 + Math.random() * 5));
  return { Start: now - 10_000, Last: now, RxBytes: bytes(), TxBytes: bytes(), RxPackets: 9, TxPackets: 9 };
};

/** Namespaces with interfaces in them, and cables between neighbours. */
async function fill() {
  const nodes = [];
  const edges = [];
  const edge = (parent, child, type) =>
    edges.push({ ID: `e${edges.length}`, Parent: parent, Child: child, Metadata: { RelationType: type } });
  nodes.push({ ID: "rack", Metadata: { Name: "rack", Type: "host" } });
  for (let n = 0; nodes.length < NODES; n++) {
    const room = `n${n}`;
    nodes.push({ ID: room, Metadata: { Name: `pod-${n}`, Type: "netns" } });
    edge("rack", room, "ownership");
    for (let i = 0; i < 9; i++) {
      const id = `${room}i${i}`;
      nodes.push({ ID: id, Metadata: { Name: `eth${i}`, Type: "veth", State: "UP", IPV4: [`10.${n >> 8}.${n & 255}.${i}/24`], LastUpdateMetric: metric() } });
      edge(room, id, "ownership");
      if (n && i < 2) edge(`n${n - 1}i${i + 2}`, id, "layer2");
    }
  }
  await ask("POST", "api/topology/import", { Nodes: nodes, Edges: edges });
  return nodes.filter((node) => node.Metadata.LastUpdateMetric).map((node) => node.ID);
}

/** Changes so many nodes a second until it is told to stop; returns how many it were. */
function change(ids) {
  const state = { stop: false, done: 0, begin: Date.now() };
  const worker = async () => {
    while (!state.stop) {
      const due = ((Date.now() - state.begin) / 1000) * CHANGES;
      if (state.done >= due) {
        await sleep(2);
        continue;
      }
      const id = ids[state.done++ % ids.length];
      await ask("PATCH", `api/node/${id}`, [{ op: "replace", path: "/Metadata/LastUpdateMetric", value: metric() }]);
    }
  };
  const all = Promise.all([worker(), worker(), worker()]);
  return async () => {
    state.stop = true;
    await all;
    return (state.done * 1000) / (Date.now() - state.begin);
  };
}

const memory = async (browser) => {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const renderers = processInfo.filter((one) => one.type === "renderer");
  const sizes = renderers.map(({ id }) => {
    const rollup = readFileSync(`/proc/${id}/smaps_rollup`, "utf8");
    return Number(/^Pss:\s+(\d+)/m.exec(rollup)?.[1] ?? 0) / 1024;
  });
  return Math.max(...sizes);
};

const result = { nodes: NODES };
const browser = await launch();
try {
  await skua.start();
  const ids = await fill();
  // Datagrams to so many ports; each is seen at three places.
  writeFileSync(`${FOLDER}/flood.py`, `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(1, ${Math.ceil(FLOWS / 3)}):
    try:
        s.sendto(b"skua", ("10.99.1.2", port))
    except OSError:
        pass
`);
  on("host", "python3", `${FOLDER}/flood.py`);
  const flows = () => fetch(`${skua.url}api/flows?limit=1`).then((response) => Number(response.headers.get("x-skua-found")));
  await until(`${FLOWS} flows`, async () => (await flows()) > FLOWS * 0.9);
  result.flows = await flows();

  const page = await open(browser);
  const session = await page.context().newCDPSession(page);
  let bytes = 0;
  await session.send("Network.enable");
  session.on("Network.dataReceived", (event) => (bytes += event.encodedDataLength || event.dataLength));
  session.on("Network.webSocketFrameReceived", (event) => (bytes += event.response.payloadData.length));
  const begin = Date.now();
  await page.goto(skua.url);
  await page.waitForFunction((most) => Number(/(\d+) nodes/.exec(document.body.innerText)?.[1]) >= most, NODES);
  result.whole_map_ms = Date.now() - begin;
  result.first_paint_ms = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  result.map_bytes = bytes;

  const frames = (move) =>
    page.evaluate(
      ([seconds, moves]) =>
        new Promise((resolve) => {
          const canvas = document.querySelector("canvas");
          const begin = performance.now();
          let count = 0;
          let last = begin;
          let longest = 0;
          const frame = () => {
            const now = performance.now();
            longest = Math.max(longest, now - last);
            last = now;
            count += 1;
            // There and back again, so that all of it is drawn anew each time.
            if (moves) {
              const key = Math.floor(count / 20) % 2 ? "ArrowLeft" : "ArrowRight";
              canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
            }
            if (now - begin < seconds * 1000) requestAnimationFrame(frame);
            else resolve({ per_second: (count * 1000) / (now - begin), longest_ms: longest });
          };
          requestAnimationFrame(frame);
        }),
      [SECONDS, move],
    );
  result.at_rest = await frames(false);
  result.moved = await frames(true);
  const stop = change(ids);
  await sleep(2000);
  bytes = 0;
  const from = Date.now();
  result.moved_while_changing = await frames(true);
  result.map_bytes_per_minute = Math.round((bytes * 60_000) / (Date.now() - from));
  result.memory_mib = await memory(browser);
  await page.goto(`${skua.url}#/flows`);
  await page.locator("table.grid tbody tr").nth(50).waitFor();
  bytes = 0;
  const since = Date.now();
  await sleep(SECONDS * 1000);
  result.flows_bytes_per_minute = Math.round((bytes * 60_000) / (Date.now() - since));
  result.changes_per_second = await stop();
  result.complaints = page.complaints;
  const load = readFileSync("/proc/loadavg", "utf8").split(" ")[0];
  console.log(JSON.stringify({ ...result, load: Number(load) }, (_, value) => (typeof value === "number" ? Math.round(value * 10) / 10 : value), 1));
} finally {
  await browser.close();
  await skua.stop();
  endAll();
}
