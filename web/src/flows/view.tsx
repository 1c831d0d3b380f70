import { useSignal } from "@preact/signals";
import { ask, get, lines, quoted, Refused } from "../api";
import { Complete } from "../complete";
import { bytes, clock, count, endpoint, exact, moment, plain, rate, span } from "../format";
import { useAnswer, useLines, type Lines } from "../hooks";
import { then } from "../map/details";
import { Aside, Columns, Copy, Empty, Name, Trouble } from "../parts";
import { Readable } from "../values";
import { at, connection, go, isAdmin, link, param, route, say, set, type Params } from "../state";
import { completed, completions, steps } from "./filter";
import { recorded, stateOf, type Flow, type Found, type Side } from "./record";

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
  rtt: "TCPMetric.HandshakeRTT",
  retransmits: "TCPMetric.ABSegmentRetransmitted",
};

/**
 * Columns of conversations: title, sorted by, width in px (0: an equal share of the rest), and from which width on there is room for it
 * (1 always, 4 only in the widest).
 */
const COLUMNS: [string, string, number, number][] = [
  ["Protocol", "", 86, 1],
  ["From", "", 0, 1],
  ["To", "", 0, 1],
  ["Rate", "rate", 100, 1],
  ["Sent", "", 78, 3],
  ["Received", "", 98, 3],
  ["Bytes", "bytes", 82, 1],
  ["Packets", "packets", 84, 2],
  ["RTT", "rtt", 70, 2],
  ["Retrans.", "retransmits", 90, 3],
  ["State", "", 100, 2],
  ["Interface", "", 98, 4],
  ["Start", "start", 106, 4],
  ["Last", "last", 106, 1],
];
const SORTED: [string, string][] = [["rate", "rate"], ["bytes", "bytes"], ["packets", "packets"], ["rtt", "RTT"], ["retransmits", "retransmits"], ["start", "start"], ["last", "last packet"]];
/** Columns that are shown when they are chosen: of both sides what files of `networks` say. */
const MORE: Record<string, { title: string; of: (side: Side) => string }> = {
  countries: { title: "Countries", of: (side) => side.country ?? "" },
  as: { title: "Autonomous systems", of: (side) => (side.asn ? `AS${side.asn} ${side.organization ?? ""}`.trim() : "") },
  networks: { title: "Networks", of: (side) => side.network ?? "" },
};

/** Names of the chosen ones. */
const chosenColumns = () => param("columns").split(",").filter((name) => MORE[name]);

/** Both sides as one text: `office → NO`. */
function bothSides(row: Flow, of: (side: Side) => string): string {
  const [a, b] = [of(row.a), of(row.b)];
  return a || b ? `${a || "?"} → ${b || "?"}` : "";
}

function ChooseColumns() {
  const chosen = chosenColumns();
  return (
    <details
      class="choose"
      onFocusOut={({ currentTarget, relatedTarget }) => {
        if (!currentTarget.contains(relatedTarget as Node | null)) currentTarget.open = false;
      }}
    >
      <summary class="button">Columns</summary>
      <div>
        {Object.entries(MORE).map(([name, { title }]) => (
          <label key={name} class="check">
            <input
              type="checkbox"
              checked={chosen.includes(name)}
              onChange={(event) => {
                const others = chosen.filter((other) => other !== name);
                set({ columns: (event.currentTarget.checked ? [...others, name] : others).join(",") });
              }}
            />{" "}
            {title}
          </label>
        ))}
      </div>
    </details>
  );
}

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

/** Titles of what conversations are summed up by. */
const SUMMED: Record<string, string> = {
  process: "Process",
  container: "Container",
  service: "Service",
  country: "Country",
  as: "Autonomous system",
  network: "Network",
};

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
          placeholder="Filter: process:curl port:443 rate>1Mbit, or tcp port 443"
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
            <option value="country">by country</option>
            <option value="as">by autonomous system</option>
            <option value="network">by network</option>
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
        {!by && (
          <label class="sort-narrow">
            Sort{" "}
            <select value={param("sort", "rate")} onChange={(event) => set({ sort: event.currentTarget.value, page: "" })}>
              {SORTED.map(([key, name]) => <option key={key} value={key}>by {name}</option>)}
            </select>
          </label>
        )}
        <button type="button" aria-pressed={frozen.value} onClick={() => (frozen.value = !frozen.value)}>
          Freeze
        </button>
        {!by && <ChooseColumns />}
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

function Sortable({ name, sort, children, also = "" }: { name: string; sort: string; children: string; also?: string }) {
  const on = param("sort", "rate") === sort;
  // What is heard has what is seen in it, for those who say what they see (WCAG 2.5.3).
  const label = name.toLowerCase().includes(children.toLowerCase()) ? name : `${children} (${name})`;
  return (
    <th scope="col" class={`number ${also}`} aria-sort={on ? "descending" : undefined}>
      <button type="button" onClick={() => set({ sort, page: "" })} aria-label={`Sort by ${label}`}>
        {children}
        <span aria-hidden="true">{on ? " ▾" : ""}</span>
      </button>
    </th>
  );
}

function End({ side, which }: { side: Side; which: string }) {
  const who = side.container ?? side.process;
  return (
    <td class={`end side-${which}`}>
      {who && <span class="who"><Name text={who} most={40} /></span>}
      <span class="at"><Name text={endpoint(side.address, side.port)} most={46} /></span>
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
        <div class="flow-place">
        <div class={connection.value === "unreachable" ? "scroll old" : "scroll"} tabIndex={0} role="region" aria-label="Conversations">
          {data && rows.length > 0 && (
            <table class={chosenColumns().length ? "grid fixed conversations chosen" : "grid fixed conversations"} aria-rowcount={found} aria-busy={answer.value.loading}>
              <colgroup>
                {COLUMNS.map(([name, , width, place]) => <col key={name} class={`p${place}`} width={width || undefined} />)}
                {chosenColumns().map((name) => <col key={name} width={130} />)}
              </colgroup>
              <thead>
                <tr>
                  {COLUMNS.map(([name, sort, , place], i) =>
                    sort ? (
                      <Sortable key={name} name={sort === "last" ? "last packet" : sort} sort={sort} also={`p${place}`}>{name}</Sortable>
                    ) : (
                      <th key={name} scope="col" class={`p${place} ${i > 3 && name !== "State" && name !== "Interface" ? "number" : ""}`}>{name}</th>
                    ))}
                  {chosenColumns().map((name) => <th key={name} scope="col">{MORE[name]!.title}</th>)}
                </tr>
              </thead>
              <tbody>
                {rows.map((row) => (
                  <Row key={row.id} row={row} chosen={shown?.id === row.id} choose={() => (chosen.value = row)} />
                ))}
              </tbody>
            </table>
          )}
          {data && rows.length === 0 && <Nothing filter={params.filter ?? ""} active={params.active === "1"} />}
        </div>
        </div>
        {data && <Pages page={page} found={found} />}
      </div>
      {shown && <FlowDetails flow={shown} close={() => (chosen.value = null)} />}
    </div>
  );
}

/** Why there is no conversation, and what to do. */
function Nothing({ filter, active }: { filter: string; active: boolean }) {
  if (filter || active) {
    return (
      <Empty title="No conversation matches.">
        {/^[\w.*-]+$/.test(filter) && (
          <p>
            <code>{plain(filter)}</code> alone is searched in names, addresses, interfaces, services, protocols and states. Conditions are
            written like <code>process:curl port:443 rate&gt;1Mbit -user:root</code>, pcap expressions like <code>tcp port 443</code>.
          </p>
        )}
        {filter && <p>The filter is <code>{plain(filter)}</code>. Conversations that ended a while ago are in the past: move the time line, or ask the lake.</p>}
        <p class="buttons empty-buttons">
          {filter && <button type="button" onClick={() => set({ filter: "", page: "" })}>Remove the filter</button>}
          {active && <button type="button" onClick={() => set({ active: "", page: "" })}>Also those that have ended</button>}
          <a class="button" href={link("query", { of: "lake" })}>Ask the lake</a>
        </p>
      </Empty>
    );
  }
  if (at.value !== null) {
    return (
      <Empty title="No conversation is known of this moment.">
        <p>The history may begin later, or there was no traffic. The time line shows when there was.</p>
        <button type="button" onClick={() => set({ at: "", from: "" })}>Back to now</button>
      </Empty>
    );
  }
  return (
    <Empty title="No packet has been seen yet.">
      <p>Each conversation on the watched interfaces appears here within seconds. Make one: <code>ping -c 3 192.0.2.1</code>. If nothing
        comes, <code>skua doctor</code> says what is watched.</p>
    </Empty>
  );
}

function Row({ row, chosen, choose }: { row: Flow; chosen: boolean; choose: () => void }) {
  const resent = (row.tcp?.ab_retransmitted ?? 0) + (row.tcp?.ba_retransmitted ?? 0);
  return (
    <tr class={row.end ? "over" : ""} aria-selected={chosen} onClick={choose}>
      <td class="proto">
        <button type="button" class="row" onClick={choose} aria-label={`${plain(row.protocol).toUpperCase()}: details of ${row.a.address} to ${row.b.address}`}>
          {plain(row.protocol).toUpperCase()}
        </button>
      </td>
      <End side={row.a} which="a" />
      <End side={row.b} which="b" />
      <td class="number rate">{rate(row.rate?.bits_per_second ?? 0)}</td>
      <td class="number p3">{bytes(row.ab.bytes)}</td>
      <td class="number p3">{bytes(row.ba.bytes)}</td>
      <td class="number all">{bytes(row.ab.bytes + row.ba.bytes)}</td>
      <td class="number p2">{count(row.ab.packets + row.ba.packets)}</td>
      <td class="number p2">{row.tcp?.handshake_rtt ? span(row.tcp.handshake_rtt) : ""}</td>
      <td class={resent ? "number bad p3" : "number p3"}>{row.tcp ? resent || "" : ""}</td>
      <td class="state p2">{plain(stateOf(row))}</td>
      <td class="p4"><Name text={row.interface} most={20} /></td>
      <td class="number p4">{clock(Date.parse(row.start))}</td>
      <td class="number">{clock(Date.parse(row.last))}</td>
      {chosenColumns().map((name) => <td key={name} class="more"><Name text={bothSides(row, MORE[name]!.of)} most={40} /></td>)}
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
  const all = { ...record } as Record<string, unknown>;
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
        <button type="button" onClick={() => set({ filter: capture, page: "" })}>Only this one</button>
        {flow.community_id && <Copy value={flow.community_id} label="Copy Community ID" />}
      </p>
      <Readable of={whole} also={raw === undefined ? {} : { query: raw }} />
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
        {answer.value.data && rows.length > 0 && (
          <table class="grid fixed">
            <Columns widths={SUM_WIDTHS} />
            <thead>
              <tr>
                <th scope="col">{SUMMED[by] ?? by}</th>
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
        {rows.length === 0 && answer.value.data && <Nothing filter={params.filter ?? ""} active={params.active === "1"} />}
      </div>
    </div>
  );
}
