import { useSignal } from "@preact/signals";
import { ask, get, lines, quoted, Refused } from "../api";
import { Complete } from "../complete";
import { bytes, clock, count, endpoint, exact, moment, plain, rate, span } from "../format";
import { useAnswer, useLines, type Lines } from "../hooks";
import { then } from "../map/details";
import { Aside, Columns, Copy, Name, Trouble, Values } from "../parts";
import { at, connection, go, isAdmin, link, param, route, say, set, type Params } from "../state";
import { completed, completions, steps } from "./filter";
import { recorded, type Flow, type Found, type Side } from "./record";

/** Rows of a page. */
const PAGE = 100;
/** Interval of polling, ms. */
const EVERY = 2000;
const SORTS: Record<string, string> = {
  rate: "LastUpdateMetric.ABBytes",
  bytes: "Metric.ABBytes",
  packets: "Metric.ABPackets",
  last: "Last",
  start: "Start",
};

/** Widths of the columns of conversations, px; 0: an equal share of the rest. */
const WIDTHS = [84, 0, 0, 104, 88, 88, 88, 84, 80, 80, 104, 112, 84, 84];
/** And of those of sums. */
const SUM_WIDTHS = [0, 0, 84, 84, 104, 92, 92, 92, 84];

/** Fields of a record that are shown first. */
const FIRST = ["interface", "layers", "protocol", "a", "b", "ab", "ba", "start", "last", "duration", "end", "rate", "tcp"];

/** An analyzer without a probe has no flow table: present flows are queried like past ones. */
let noTable = false;

/** The page that the address names, as it is now. */
function pathOf(params: Params): string {
  const page = Number(params.page ?? 0);
  const query = new URLSearchParams({ sort: params.sort ?? "rate", limit: String(PAGE), offset: String(page * PAGE) });
  if (params.filter) query.set("filter", params.filter);
  if (params.active) query.set("active", "true");
  return `/api/flows?${query}`;
}

async function load(signal: AbortSignal): Promise<Lines<Flow>> {
  const { params } = route.peek();
  const page = Number(params.page ?? 0);
  const sort = params.sort ?? "rate";
  const filter = params.filter ?? "";
  if (at.peek() === null && !noTable) {
    try {
      return await lines<Flow>(pathOf(params), signal);
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
      noTable = true;
    }
  }
  const kept = `Flows()${steps(filter)}${params.active ? '.Has("FinishType", 0)' : ""}`;
  const key = SORTS[sort] ?? "Last";
  const [rows, found] = await Promise.all([
    ask<Found>(then(`${kept}.Sort(DESC, ${quoted(key)}).Range(${page * PAGE}, ${(page + 1) * PAGE})`), signal),
    ask<number>(then(`${kept}.Count()`), signal),
  ]);
  return { rows: rows.map(recorded), found: found[0] ?? 0 };
}

interface Sum {
  by: string;
  name: string;
  place?: string;
  protocol?: string;
  port?: number;
  flows: number;
  active: number;
  sent: { packets: number; bytes: number };
  received: { packets: number; bytes: number };
  rate: { bits_per_second: number };
  last: string;
}

export function FlowsView() {
  const { params } = route.value;
  const by = at.value === null ? param("by") : "";
  const frozen = useSignal(false);
  return (
    <div class="flows">
      <div class="tools" role="toolbar" aria-label="Flows">
        <Complete
          id="filter"
          label="Filter"
          placeholder="Filter: tcp and port 443, host 10.0.0.5, net 10.0.0.0/8 …"
          value={params.filter ?? ""}
          offer={completions}
          take={completed}
          done={(filter) => set({ filter, page: "" })}
        />
        <label>
          Show{" "}
          <select value={by} disabled={at.value !== null} onChange={(event) => set({ by: event.currentTarget.value, page: "" })}>
            <option value="">conversations</option>
            <option value="process">by process</option>
            <option value="container">by container</option>
            <option value="service">by service</option>
          </select>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={params.active === "1"}
            onChange={(event) => set({ active: event.currentTarget.checked ? "1" : "", page: "" })}
          />{" "}
          only active
        </label>
        <button type="button" aria-pressed={frozen.value} onClick={() => (frozen.value = !frozen.value)}>
          Freeze
        </button>
        <Export />
        <Losses />
      </div>
      {by ? <Sums by={by} frozen={frozen.value} /> : <Table frozen={frozen.value} />}
    </div>
  );
}

function Export() {
  const { params } = route.value;
  if (at.value !== null) return null;
  const query = (format: string) => {
    const all = new URLSearchParams({ format, sort: params.sort ?? "rate" });
    for (const name of ["filter", "by"]) if (params[name]) all.set(name, params[name]!);
    if (params.active) all.set("active", "true");
    return `/api/flows?${all}`;
  };
  return (
    <span class="buttons">
      <a class="button" href={query("csv")} download="flows.csv">CSV</a>
      <a class="button" href={query("json")} download="flows.jsonl">JSON</a>
    </span>
  );
}

interface Summary {
  seen: { packets: number };
  lost: Record<string, { packets: number; bytes: number }>;
}

/** Losses, next to the sums that lack them. */
function Losses() {
  const summary = useAnswer("losses", (signal) => get<Summary>("/api/summary", signal).catch(() => null), 5000);
  const data = summary.value.data;
  // Reserves its space before the data arrives, so that nothing moves.
  if (!data) return <span class="losses" />;
  const lost = Object.entries(data.lost).filter(([, sum]) => sum.packets > 0);
  if (!lost.length) return <span class="losses quiet">nothing lost of {count(data.seen.packets)} packets</span>;
  const text = lost.map(([cause, sum]) => `${exact(sum.packets)} ${cause}`).join(", ");
  const whole = `lost packets: ${plain(text)} of ${count(data.seen.packets)}`;
  return <span class="losses bad" role="status" title={whole}>{whole}</span>;
}

function Sortable({ name, sort, children }: { name: string; sort: string; children: string }) {
  const on = param("sort", "rate") === sort;
  return (
    <th scope="col" class="number" aria-sort={on ? "descending" : undefined}>
      <button type="button" onClick={() => set({ sort, page: "" })} aria-label={`Sort by ${name}`}>
        {children}
        <span aria-hidden="true">{on ? " ▾" : ""}</span>
      </button>
    </th>
  );
}

function End({ side }: { side: Side }) {
  const who = side.container ?? side.process;
  return (
    <td class="end">
      <Name text={endpoint(side.address, side.port)} most={46} />
      {who && (
        <span class="who">
          <Name text={who} most={24} />
        </span>
      )}
    </td>
  );
}

function Table({ frozen }: { frozen: boolean }) {
  const { params } = route.value;
  const key = JSON.stringify([at.value, params.filter, params.sort, params.page, params.active]);
  const live = {
    path: pathOf(params),
    take: (rows: unknown[], found: number | null) => ({ rows: rows as Flow[], found }),
    missing: () => {
      noTable = true;
    },
  };
  const answer = useAnswer(key, load, frozen || at.value !== null ? null : EVERY, noTable ? null : live);
  const chosen = useSignal<Flow | null>(null);
  const page = Number(params.page ?? 0);
  const { data, error } = answer.value;
  const rows = data?.rows ?? [];
  const found = data?.found ?? rows.length;
  const newest = chosen.value && rows.find((row) => row.id === chosen.value?.id);
  const shown = newest ?? chosen.value;
  return (
    <div class={shown ? "split" : "whole"}>
      <div class="list">
        <Trouble text={error} />
        <div class={connection.value === "unreachable" ? "scroll old" : "scroll"} tabIndex={0} role="region" aria-label="Conversations">
          {data && (
            <table class="grid fixed conversations" aria-rowcount={found} aria-busy={answer.value.loading}>
              <Columns widths={WIDTHS} />
              <thead>
                <tr>
                  <th scope="col">Protocol</th>
                  <th scope="col">A</th>
                  <th scope="col">B</th>
                  <Sortable name="rate" sort="rate">Rate</Sortable>
                  <th scope="col" class="number">A → B</th>
                  <th scope="col" class="number">B → A</th>
                  <Sortable name="bytes" sort="bytes">Bytes</Sortable>
                  <Sortable name="packets" sort="packets">Packets</Sortable>
                  <th scope="col" class="number">RTT</th>
                  <th scope="col" class="number">Retrans.</th>
                  <th scope="col">State</th>
                  <th scope="col">Interface</th>
                  <Sortable name="start" sort="start">Start</Sortable>
                  <Sortable name="last packet" sort="last">Last</Sortable>
                </tr>
              </thead>
              <tbody>
                {rows.map((row) => (
                  <Row key={row.id} row={row} chosen={shown?.id === row.id} choose={() => (chosen.value = row)} />
                ))}
              </tbody>
            </table>
          )}
          {data && rows.length === 0 && <p class="empty quiet">No conversation matches.</p>}
        </div>
        <Pages page={page} found={found} />
      </div>
      {shown && <FlowDetails flow={shown} close={() => (chosen.value = null)} />}
    </div>
  );
}

function Row({ row, chosen, choose }: { row: Flow; chosen: boolean; choose: () => void }) {
  const resent = (row.tcp?.ab_retransmitted ?? 0) + (row.tcp?.ba_retransmitted ?? 0);
  return (
    <tr class={row.end ? "over" : ""} aria-selected={chosen} onClick={choose}>
      <td>
        <button type="button" class="row" onClick={choose} aria-label={`Details of ${row.protocol} ${row.a.address} to ${row.b.address}`}>
          {plain(row.protocol)}
        </button>
      </td>
      <End side={row.a} />
      <End side={row.b} />
      <td class="number">{rate(row.rate?.bits_per_second ?? 0)}</td>
      <td class="number">{bytes(row.ab.bytes)}</td>
      <td class="number">{bytes(row.ba.bytes)}</td>
      <td class="number">{bytes(row.ab.bytes + row.ba.bytes)}</td>
      <td class="number">{count(row.ab.packets + row.ba.packets)}</td>
      <td class="number">{row.tcp?.handshake_rtt ? span(row.tcp.handshake_rtt) : ""}</td>
      <td class={resent ? "number bad" : "number"}>{row.tcp ? resent || "" : ""}</td>
      <td>{plain(row.end ?? row.tcp?.state ?? "")}</td>
      <td><Name text={row.interface} most={20} /></td>
      <td class="number">{clock(Date.parse(row.start))}</td>
      <td class="number">{clock(Date.parse(row.last))}</td>
    </tr>
  );
}

function Pages({ page, found }: { page: number; found: number }) {
  const last = Math.max(0, Math.ceil(found / PAGE) - 1);
  const to = (next: number) => set({ page: next ? String(next) : "" });
  return (
    <nav class="pages" aria-label="Pages">
      <span class="quiet" role="status">
        {found === 0 ? "none" : `${exact(page * PAGE + 1)}–${exact(Math.min(found, (page + 1) * PAGE))} of ${exact(found)}`}
      </span>
      <button type="button" disabled={page === 0} onClick={() => to(0)}>First</button>
      <button type="button" disabled={page === 0} onClick={() => to(page - 1)}>Previous</button>
      <button type="button" disabled={page >= last} onClick={() => to(page + 1)}>Next</button>
    </nav>
  );
}

interface Hop {
  Hop: number;
  Node: string;
  NodeTID: string;
  Interface?: string;
}

/** Shows the path of a conversation on the map. */
async function showPath(flow: Flow): Promise<void> {
  const what = flow.community_id
    ? `Flows().Has("CommunityID", ${quoted(flow.community_id)})`
    : `Flows().Has("UUID", ${quoted(flow.id)})`;
  try {
    // For each conversation its capture points, in order.
    const found = await ask<Record<string, Hop[]>>(then(`${what}.Path()`));
    const hops = found.flatMap((paths) => Object.values(paths).flat());
    if (!hops.length) say("It was seen at no place that is on the map", true);
    else go("map", { path: hops.map((hop) => hop.NodeTID).join(",") });
  } catch (error) {
    say((error as Error).message, true);
  }
}

function FlowDetails({ flow, close }: { flow: Flow; close: () => void }) {
  const { raw, ...record } = flow;
  const all = { ...record, ...(raw === undefined ? {} : { query: raw }) } as Record<string, unknown>;
  const whole = { ...Object.fromEntries(FIRST.filter((key) => key in all).map((key) => [key, all[key]])), ...all };
  const host = (side: Side) => `host ${side.address}`;
  const capture = [
    flow.a.address && host(flow.a),
    flow.b.address && host(flow.b),
    flow.a.port && `port ${flow.a.port}`,
    flow.b.port && `port ${flow.b.port}`,
  ].filter(Boolean).join(" and ");
  return (
    <Aside title={`${plain(flow.protocol)} conversation`} close={close}>
      <p class="ends">
        <Name text={endpoint(flow.a.address, flow.a.port)} most={60} />
        <span aria-label="with"> ⇄ </span>
        <Name text={endpoint(flow.b.address, flow.b.port)} most={60} />
      </p>
      <p class="quiet">
        {moment(Date.parse(flow.start))}, {span(flow.duration ?? 0)}
        {flow.community_id && (
          <>
            {" · "}Community ID <code>{plain(flow.community_id)}</code>
          </>
        )}
      </p>
      <p class="buttons">
        <button type="button" onClick={() => void showPath(flow)}>Show path on map</button>
        {isAdmin.value && at.value === null && (
          <a class="button" href={link("captures", { new: `G.V().Has("Name", ${quoted(flow.interface.split("/").pop() ?? "")})`, bpf: capture, packets: "10" })}>
            Capture packets
          </a>
        )}
        <button type="button" onClick={() => set({ filter: capture, page: "" })}>Filter by capture</button>
        <Copy value={whole} />
        {flow.community_id && <Copy value={flow.community_id} label="Copy Community ID" />}
      </p>
      <Values of={whole} />
    </Aside>
  );
}

function Sums({ by, frozen }: { by: string; frozen: boolean }) {
  const { params } = route.value;
  const sort = ["rate", "bytes", "packets", "last", "start"].includes(params.sort ?? "") ? params.sort! : "rate";
  const query = new URLSearchParams({ by, sort, limit: "200" });
  if (params.filter) query.set("filter", params.filter);
  if (params.active) query.set("active", "true");
  const path = `/api/flows?${query}`;
  const answer = useLines<Sum>(path, frozen ? null : EVERY);
  const rows = answer.value.data?.rows ?? [];
  return (
    <div class="list">
      <Trouble text={answer.value.error} />
      <div class={connection.value === "unreachable" ? "scroll old" : "scroll"} tabIndex={0} role="region" aria-label="Sums">
        {answer.value.data && (
          <table class="grid fixed">
            <Columns widths={SUM_WIDTHS} />
            <thead>
              <tr>
                <th scope="col">{by === "service" ? "Service" : by === "process" ? "Process" : "Container"}</th>
                <th scope="col">{by === "service" ? "Port" : "Place"}</th>
                <th scope="col" class="number">Flows</th>
                <th scope="col" class="number">Active</th>
                <Sortable name="rate" sort="rate">Rate</Sortable>
                <th scope="col" class="number">Sent</th>
                <th scope="col" class="number">Received</th>
                <Sortable name="bytes" sort="bytes">Bytes</Sortable>
                <Sortable name="last packet" sort="last">Last</Sortable>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={`${row.name} ${row.place} ${row.protocol} ${row.port}`}>
                  <td><Name text={row.name} /></td>
                  <td>{row.port !== undefined ? `${plain(row.protocol)} ${row.port}` : <Name text={row.place ?? ""} most={40} />}</td>
                  <td class="number">{exact(row.flows)}</td>
                  <td class="number">{exact(row.active)}</td>
                  <td class="number">{rate(row.rate.bits_per_second)}</td>
                  <td class="number">{bytes(row.sent.bytes)}</td>
                  <td class="number">{bytes(row.received.bytes)}</td>
                  <td class="number">{bytes(row.sent.bytes + row.received.bytes)}</td>
                  <td class="number">{clock(Date.parse(row.last))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {rows.length === 0 && answer.value.data && <p class="empty quiet">Nothing matches.</p>}
      </div>
    </div>
  );
}
