// The web page with 5,000 nodes and 50,000 flows: time to first paint and to the whole map, frames per second
// while 1,000 nodes a second change and the map is moved, bytes per minute, memory. NODES, CHANGES say otherwise.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { endAll, FOLDER, launch, on, open, Skua, TOKEN, until } from "./lab.mjs";

const NODES = Number(process.env.NODES ?? 5000);
const CHANGES = Number(process.env.CHANGES ?? 1000);
const FLOWS = Number(process.env.FLOWS ?? 50_000);
/** Seconds of each measurement. */
const SECONDS = 8;

const skua = new Skua();
/**
 * An agent of another host, whose interfaces change all the time (docs/fleet.md): what it says is JSON in frames of
 * a WebSocket, masked with zeros. What it is told is not listened to.
 */
async function join(host) {
  const request = http.request(`${skua.url}ws/agent`, {
    headers: {
      authorization: `Bearer ${TOKEN}`,
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": Buffer.from("sixteen bytes ..").toString("base64"),
    },
  });
  request.end();
  const [, socket] = await once(request, "upgrade");
  let over = null;
  socket.on("data", () => {});
  socket.on("close", () => (over = new Error("the agent was cut off")));
  socket.on("error", (error) => (over = error));
  const say = async (message) => {
    if (over) throw over;
    const payload = Buffer.from(JSON.stringify(message));
    const head = Buffer.alloc(14);
    head[0] = 0x81;
    head[1] = 0x80 | 127;
    head.writeBigUInt64BE(BigInt(payload.length), 2);
    if (!socket.write(Buffer.concat([head, payload]))) await once(socket, "drain");
  };
  await say({ Hello: { protocol: 5, version: "0", host, instance: randomUUID(), challenge: randomUUID() } });
  return say;
}

/** Counters of an update that has just come. */
const metric = () => {
  const now = Date.now();
  const bytes = () => Math.round(10 ** (3 + Math.random() * 5));
  return { Start: now - 10_000, Last: now, RxBytes: bytes(), TxBytes: bytes(), RxPackets: 9, TxPackets: 9 };
};

const HOST = "rack";
/** A node as an agent tells it. */
const node = (id, metadata) => ({ ID: id, Host: HOST, Origin: `agent.${HOST}`, Metadata: metadata });

/** Namespaces with interfaces in them, and cables between neighbours. */
async function fill(say) {
  const nodes = [];
  const edges = [];
  const edge = (parent, child, type) =>
    edges.push({ ...node(`e${edges.length}`, { RelationType: type }), Parent: parent, Child: child });
  nodes.push(node("rack", { Name: HOST, Type: "host" }));
  for (let n = 0; nodes.length < NODES; n++) {
    const room = `n${n}`;
    nodes.push(node(room, { Name: `pod-${n}`, Type: "netns" }));
    edge("rack", room, "ownership");
    for (let i = 0; i < 9; i++) {
      const id = `${room}i${i}`;
      const addresses = [`10.${n >> 8}.${n & 255}.${i}/24`];
      nodes.push(node(id, { Name: `eth${i}`, Type: "veth", State: "UP", IPV4: addresses, LastUpdateMetric: metric() }));
      edge(room, id, "ownership");
      if (n && i < 2) edge(`n${n - 1}i${i + 2}`, id, "layer2");
    }
  }
  for (let i = 0; i < nodes.length; i += 500) await say({ Sync: { graph: { Nodes: nodes.slice(i, i + 500), Edges: [] }, last: false } });
  await say({ Sync: { graph: { Nodes: [], Edges: edges }, last: true } });
  // Who says nothing for 35 s is cut off.
  setInterval(() => void say({ Changes: [] }), 10_000).unref();
  return nodes.filter((one) => one.Metadata.LastUpdateMetric);
}

/** Changes so many nodes a second until it is told to stop; returns how many it were that the server took. */
function change(say, nodes) {
  const state = { stop: false, done: 0, begin: Date.now() };
  const work = async () => {
    while (!state.stop) {
      const due = Math.floor(((Date.now() - state.begin) / 1000) * CHANGES) - state.done;
      const changes = [];
      for (let i = 0; i < due; i++) {
        const one = nodes[state.done++ % nodes.length];
        changes.push({ NodeUpdated: { ...one, Metadata: { ...one.Metadata, LastUpdateMetric: metric() } } });
      }
      if (changes.length) await say({ Changes: changes });
      await sleep(50);
    }
  };
  const all = work();
  return async () => {
    state.stop = true;
    await all;
    const taken = await until("the last change", async () => {
      const answer = await fetch(`${skua.url}api/topology`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ GremlinQuery: `G.V("${nodes[(state.done - 1) % nodes.length].ID}")` }),
      });
      const [last] = await answer.json();
      return last.Revision > state.done / nodes.length - 1 ? Date.now() : 0;
    });
    return (state.done * 1000) / (taken - state.begin);
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
  const say = await join(HOST);
  const nodes = await fill(say);
  // Datagrams to so many ports: each is a conversation, however many places see it.
  writeFileSync(`${FOLDER}/flood.py`, `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(1, ${FLOWS + 1}):
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
  await page.goto(`${skua.url}#/map`);
  await page.waitForFunction((most) => Number(/(\d+) nodes/.exec(document.body.innerText)?.[1]) >= most, NODES);
  result.whole_map_ms = Date.now() - begin;
  result.first_paint_ms = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  result.map_bytes = bytes;

  const frames = (kind, target = page) =>
    target.evaluate(
      ([seconds, kind]) =>
        new Promise((resolve) => {
          const map = document.querySelector(".surface");
          const press = (key) => map?.dispatchEvent(new KeyboardEvent("keydown", { key }));
          const begin = performance.now();
          let count = 0;
          let last = begin;
          let longest = 0;
          const frame = () => {
            const now = performance.now();
            longest = Math.max(longest, now - last);
            last = now;
            count += 1;
            // There and back again.
            const back = Math.floor(count / 20) % 2;
            if (kind === "move") press(back ? "ArrowLeft" : "ArrowRight");
            if (kind === "zoom") press(back ? "-" : "+");
            if (now - begin < seconds * 1000) requestAnimationFrame(frame);
            else resolve({ per_second: (count * 1000) / (now - begin), longest_ms: longest });
          };
          requestAnimationFrame(frame);
        }),
      [SECONDS, kind],
    );
  const near = () =>
    page.evaluate(() => {
      const map = document.querySelector(".surface");
      for (let i = 0; i < 12; i++) map.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
    });
  const all = () =>
    page.evaluate(() => document.querySelector(".surface").dispatchEvent(new KeyboardEvent("keydown", { key: "0" })));
  const empty = await open(browser);
  await empty.goto(`${skua.url}console/icon.svg`);
  await empty.bringToFront();
  const table = { "empty loop": await frames("", empty) };
  result.frames = table;
  await empty.context().close();
  const kinds = async (when) => {
    await page.bringToFront();
    await all();
    table[`${when}, whole map, at rest`] = await frames("");
    table[`${when}, whole map, moved`] = await frames("move");
    table[`${when}, zoomed`] = await frames("zoom");
    await all();
    await near();
    table[`${when}, names, at rest`] = await frames("");
    table[`${when}, names, moved`] = await frames("move");
    await all();
  };
  await kinds("quiet");
  const stop = change(say, nodes);
  await sleep(2000);
  bytes = 0;
  const from = Date.now();
  await kinds("changing");
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
