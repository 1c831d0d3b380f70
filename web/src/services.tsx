// The service graph: a graph and, with the same rows, a table.
import dagre from "@dagrejs/dagre";
import { useComputed, useSignal } from "@preact/signals";
import { ago, brief, bytes, count, exact, plain, span } from "./format";
import { useLines } from "./hooks";
import { Columns, Aside, Copy, Name, Trouble, Values } from "./parts";
import type { ServiceEdge as Call } from "./records";
import { at, connection, go, link, param, serverNow, set } from "./state";

/** Edges at most; the server sends those with the most bytes. */
const MOST = 120;
const COLOURS = ["rtt", "retransmits", "failures", "age"] as const;
type Colour = (typeof COLOURS)[number];
const PROTOCOLS: Record<number, string> = { 1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp" };

const protocolOf = (call: Call) => PROTOCOLS[call.protocol] ?? `ip ${call.protocol}`;
const clientOf = (call: Call) => call.client.service ?? call.client.address ?? "(unknown)";
const serverOf = (call: Call) =>
  `${call.server.service ?? call.server.address ?? "(unknown)"}${call.port ? `:${call.port}` : ""}`;
const keyOf = (call: Call) => `${clientOf(call)}→${serverOf(call)}/${call.protocol}`;
const total = (call: Call) => call.client_sent.bytes + call.server_sent.bytes;
const failed = (call: Call) => call.failures.refused + call.failures.timed_out;
const resent = (call: Call) =>
  (call.retransmitted.client + call.retransmitted.server) / Math.max(1, call.client_sent.packets + call.server_sent.packets);

/** 0 (fine) to 3 (bad). */
function level(call: Call, colour: Colour): number {
  const steps = (value: number, limits: [number, number, number]) => limits.filter((limit) => value >= limit).length;
  switch (colour) {
    case "rtt":
      return steps(call.rtt?.p95_us ?? 0, [5_000, 50_000, 200_000]);
    case "retransmits":
      return steps(resent(call), [0.001, 0.01, 0.05]);
    case "failures":
      return steps(failed(call) / Math.max(1, call.connections), [0.0001, 0.05, 0.5]);
    case "age":
      return call.change === "vanished" ? 3 : call.change === "new" ? 1 : 0;
  }
}

interface Placed {
  nodes: { name: string; x: number; y: number; w: number; local: boolean }[];
  edges: { call: Call; path: string; x: number; y: number }[];
  width: number;
  height: number;
}

function lay(calls: Call[]): Placed {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", ranksep: 110, nodesep: 14, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  const width = (name: string) => Math.min(240, 24 + brief(name, 30).length * 7.2);
  // A fixed order, so that the picture stays when rates change.
  const sorted = [...calls].sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  const local = new Set<string>();
  for (const call of sorted) {
    if (call.client.service) local.add(clientOf(call));
    if (call.server.service) local.add(serverOf(call));
    for (const name of [clientOf(call), serverOf(call)]) {
      if (!graph.hasNode(name)) graph.setNode(name, { width: width(name), height: 28 });
    }
    graph.setEdge(clientOf(call), serverOf(call), {}, String(call.protocol));
  }
  dagre.layout(graph);
  const byKey = new Map(calls.map((call) => [keyOf(call), call]));
  const edges = graph.edges().flatMap((edge) => {
    const call = byKey.get(`${edge.v}→${edge.w}/${edge.name}`);
    const { points } = graph.edge(edge) as { points: { x: number; y: number }[] };
    if (!call || !points.length) return [];
    const [first, ...rest] = points;
    const path = `M${first!.x} ${first!.y}${rest
      .map((point, i) => {
        const before = points[i]!;
        const middle = (before.x + point.x) / 2;
        return `C${middle} ${before.y} ${middle} ${point.y} ${point.x} ${point.y}`;
      })
      .join("")}`;
    const half = points[Math.floor(points.length / 2)]!;
    return [{ call, path, x: half.x, y: half.y }];
  });
  const size = graph.graph();
  return {
    nodes: graph.nodes().map((name) => {
      const node = graph.node(name);
      return { name, x: node.x, y: node.y, w: node.width, local: local.has(name) };
    }),
    edges,
    width: Math.max(10, size.width ?? 10),
    height: Math.max(10, size.height ?? 10),
  };
}

/** Opens the flows of an edge. */
function flowsOf(call: Call): void {
  const parts = [call.protocol === 17 ? "udp" : call.protocol === 6 ? "tcp" : "ip"];
  if (call.client.address) parts.push(`host ${call.client.address}`);
  if (call.server.address) parts.push(`host ${call.server.address}`);
  if (call.port) parts.push(`port ${call.port}`);
  go("flows", { filter: parts.join(" and ") });
}

export function ServicesView() {
  const colour = param("colour", "rtt") as Colour;
  const filter = param("service");
  const as = param("as", "graph");
  const query = new URLSearchParams({ limit: String(MOST) });
  if (filter) query.set("service", filter);
  if (at.value !== null) query.set("at", String(at.value));
  const path = `/api/services/graph?${query}`;
  const answer = useLines<Call>(path, at.value === null ? 3000 : null);
  const chosen = useSignal<string | null>(null);
  // The answer of another moment would be taken for this one.
  const all = answer.value.error && at.value !== null ? [] : (answer.value.data?.rows ?? []);
  // Traffic without a port (ping, neighbours, routing) is no service.
  const rows = all.filter((row) => row.port !== 0);
  const found = answer.value.data?.found ?? all.length;
  const now = at.value ?? serverNow();
  const call = rows.find((row) => keyOf(row) === chosen.value);
  return (
    <div class={call ? "split" : "whole"}>
      <div class="list">
        <div class="tools" role="toolbar" aria-label="Services">
          <input
            type="search"
            aria-label="Service"
            placeholder="Only this service"
            value={filter}
            onChange={(event) => set({ service: event.currentTarget.value })}
          />
          <label>
            Colour by{" "}
            <select value={colour} onChange={(event) => set({ colour: event.currentTarget.value })}>
              <option value="rtt">round-trip time</option>
              <option value="retransmits">retransmits</option>
              <option value="failures">failures</option>
              <option value="age">new and vanished in the last hour</option>
            </select>
          </label>
          <label>
            Show as{" "}
            <select value={as} onChange={(event) => set({ as: event.currentTarget.value })}>
              <option value="graph">graph</option>
              <option value="table">table</option>
            </select>
          </label>
          <span class="quiet" role="status">
            {exact(rows.length)} {rows.length === 1 ? "edge" : "edges"}
            {found > all.length ? ` of ${exact(found)}, those with the most bytes` : ""}
            {all.length > rows.length ? ` and ${exact(all.length - rows.length)} without a port` : ""} ·{" "}
            {rows.filter((row) => row.change === "new").length} new in the last hour ·{" "}
            {rows.filter((row) => row.change === "vanished").length} vanished
          </span>
        </div>
        <Trouble text={answer.value.error} />
        {answer.value.data && !answer.value.error && rows.length === 0 && <p class="empty quiet">No service has been called yet.</p>}
        {rows.length > 0 &&
          (as === "table" ? (
            <Table rows={rows} now={now} colour={colour} choose={(key) => (chosen.value = key)} chosen={chosen.value} />
          ) : (
            <Graph rows={rows} colour={colour} choose={(key) => (chosen.value = key)} chosen={chosen.value} />
          ))}
      </div>
      {call && (
        <Aside title="Dependency" close={() => (chosen.value = null)}>
          <p class="ends">
            <Name text={clientOf(call)} most={60} /> → <Name text={serverOf(call)} most={60} />
          </p>
          <p class="buttons">
            <button type="button" onClick={() => flowsOf(call)}>Flows</button>
            {(call.server.service ?? call.client.service) && (
              <button type="button" onClick={() => set({ service: call.server.service ?? call.client.service ?? "" })}>
                Only this service
              </button>
            )}
            {call.client.service && <a class="button" href={link("map", { find: call.client.service })}>Client on map</a>}
            {call.server.service && <a class="button" href={link("map", { find: call.server.service })}>Server on map</a>}
            <Copy value={call} />
          </p>
          <Values of={call as unknown as Record<string, unknown>} />
        </Aside>
      )}
    </div>
  );
}

interface Shown {
  rows: Call[];
  colour: Colour;
  chosen: string | null;
  choose: (key: string) => void;
}

function describe(call: Call): string {
  const parts = [`${clientOf(call)} calls ${serverOf(call)}: ${bytes(total(call))}, ${exact(call.connections)} connections`];
  if (call.rtt?.p95_us) parts.push(`95% of round trips below ${span(call.rtt.p95_us * 1000)}`);
  if (failed(call)) parts.push(`${exact(failed(call))} failed`);
  if (call.change) parts.push(`${call.change} in the last hour`);
  return plain(parts.join(", "));
}

function Graph({ rows, colour, chosen, choose }: Shown) {
  // Bytes change all the time; the layout depends only on which service calls which.
  const keys = useSignal("");
  const joined = rows.map(keyOf).sort().join("\n");
  keys.value = joined;
  const current = useSignal(rows);
  current.value = rows;
  const placed = useComputed(() => {
    keys.value;
    return lay(current.peek());
  }).value;
  const byKey = new Map(rows.map((row) => [keyOf(row), row]));
  const most = Math.max(1, ...rows.map(total));
  const key = (name: string) => (event: KeyboardEvent) => {
    if (event.key === "Enter" || event.key === " ") {
      choose(name);
      event.preventDefault();
    }
  };
  return (
    <div class={connection.value === "unreachable" ? "scroll old" : "scroll"}>
      <svg
        class="services"
        width={placed.width}
        height={placed.height}
        viewBox={`0 0 ${placed.width} ${placed.height}`}
        role="group"
        aria-label={`${placed.nodes.length} services, ${placed.edges.length} dependencies`}
      >
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0L8 4L0 8z" class="arrow" />
          </marker>
        </defs>
        {placed.edges.map(({ call: old, path }) => {
          const name = keyOf(old);
          const call = byKey.get(name) ?? old;
          const wide = 1 + 7 * Math.sqrt(total(call) / most);
          return (
            <g
              key={name}
              class={`edge level-${level(call, colour)} ${call.change ?? ""} ${chosen === name ? "chosen" : ""}`}
              role="button"
              tabindex={0}
              aria-label={describe(call)}
              onClick={() => choose(name)}
              onKeyDown={key(name)}
            >
              <title>{describe(call)}</title>
              <path d={path} class="hit" />
              <path d={path} stroke-width={wide} marker-end="url(#arrow)" />
            </g>
          );
        })}
        {placed.nodes.map((node) => (
          <g key={node.name} class={node.local ? "service local" : "service"} transform={`translate(${node.x - node.w / 2} ${node.y - 14})`}>
            <title>{plain(node.name)}</title>
            <rect width={node.w} height={28} rx={6} />
            <text x={node.w / 2} y={18} text-anchor="middle">{brief(node.name, 30)}</text>
          </g>
        ))}
      </svg>
    </div>
  );
}

/** Widths of the columns, px; 0: an equal share of the rest. */
const WIDTHS = [0, 0, 84, 92, 92, 104, 72, 72, 84, 80, 84];

function Table({ rows, colour, now, chosen, choose }: Shown & { now: number }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Dependencies">
      <table class="grid fixed">
        <Columns widths={WIDTHS} />
        <thead>
          <tr>
            <th scope="col">Client</th>
            <th scope="col">Server</th>
            <th scope="col">Protocol</th>
            <th scope="col" class="number">To server</th>
            <th scope="col" class="number">To client</th>
            <th scope="col" class="number">Connections</th>
            <th scope="col" class="number">Ended</th>
            <th scope="col" class="number">Failed</th>
            <th scope="col" class="number">RTT p95</th>
            <th scope="col" class="number">Retrans.</th>
            <th scope="col">Last</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)} class={`level-${level(row, colour)}`} aria-selected={chosen === keyOf(row)} onClick={() => choose(keyOf(row))}>
              <td>
                <button type="button" class="row" onClick={() => choose(keyOf(row))}><Name text={clientOf(row)} most={40} /></button>
              </td>
              <td><Name text={serverOf(row)} most={40} /></td>
              <td>{protocolOf(row)}</td>
              <td class="number">{bytes(row.client_sent.bytes)}</td>
              <td class="number">{bytes(row.server_sent.bytes)}</td>
              <td class="number">{count(row.connections)}</td>
              <td class="number">{count(row.ended)}</td>
              <td class={failed(row) ? "number bad" : "number"}>{count(failed(row))}</td>
              <td class="number">{row.rtt?.p95_us ? span(row.rtt.p95_us * 1000) : ""}</td>
              <td class="number">{resent(row) ? `${(resent(row) * 100).toFixed(2)}%` : ""}</td>
              <td>{ago(Date.parse(row.last), now)}{row.change ? ` · ${row.change}` : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
