// Queries of the lake: sums of flows or services over a time, as a table or a chart.
import { useSignal } from "@preact/signals";
import { lines, Refused, save } from "./api";
import { Sankey } from "./charts/sankey";
import { Stacked } from "./charts/stack";
import { Complete } from "./complete";
import { bytes, exact, moment, rate, span } from "./format";
import { useAnswer } from "./hooks";
import { Copy, Empty, Name, Trouble } from "./parts";
import { Bars } from "./result";
import { at, param, set } from "./state";

/** A group and its sums, from `/api/flows?since=…`. */
interface Group {
  [field: string]: unknown;
  sent: { packets: number; bytes: number };
  received: { packets: number; bytes: number };
  begun: number;
  retransmitted: number;
  handshake_rtt?: number;
  rate: { bits_per_second: number };
  start: string;
  last: string;
}

const SINCE: [string, string][] = [
  ["15m", "15 minutes"],
  ["1h", "hour"],
  ["6h", "6 hours"],
  ["1day", "day"],
  ["7days", "7 days"],
  ["30days", "30 days"],
];
const SORTS = ["bytes", "rate", "packets", "sent", "received", "begun", "ended", "retransmits", "rtt", "last", "start"];
/** Fields that flows are summed up by; all are in the documentation. */
const FIELDS: [string, string][] = [
  ["service", "the service that is called"],
  ["process", "of either side"],
  ["container", "of either side"],
  ["pod", "of either side"],
  ["unit", "of either side"],
  ["user", "of either side"],
  ["address", "of either side"],
  ["port", "of either side"],
  ["country", "of either side, by a file"],
  ["asn", "of either side, by a file"],
  ["organization", "of either side, by a file"],
  ["network", "of either side, by a file"],
  ["client_process", "the side that calls"],
  ["client_address", "the side that calls"],
  ["server_process", "the side that is called"],
  ["server_address", "the side that is called"],
  ["server_port", "the side that is called"],
  ["protocol", ""],
  ["host", "where it was seen"],
  ["interface", "where it was seen"],
  ["minute", "time, rounded down"],
  ["hour", "time, rounded down"],
  ["day", "time, rounded down"],
];
const SERVICE_FIELDS: [string, string][] = [
  ["server", "address that is called"],
  ["client", "address that calls"],
  ["port", "of the service"],
  ["protocol", ""],
  ["collector", "the collector that wrote it"],
  ["minute", "time, rounded down"],
  ["hour", "time, rounded down"],
  ["day", "time, rounded down"],
];
const SPANS = ["minute", "hour", "day"];
/** Lengths of slices of time, ms. */
const LENGTHS: Record<string, number> = { minute: 60e3, hour: 3600e3, day: 86400e3 };
/** Names in a chart; the rest is one more. */
const SERIES = 7;
const TOP = 100;

/** Of `a,b,c` the last word is completed. */
const offers = (fields: [string, string][]) => (before: string) => {
  const word = /[a-z_.]*$/.exec(before)![0];
  return fields.filter(([name]) => name.startsWith(word) && name !== word).slice(0, 10);
};
const taken = (before: string, chosen: string) => before.replace(/[a-z_.]*$/, "") + chosen;

/** The requested time; it ends at the selected moment. */
export function sinceAndUntil(): Record<string, string> {
  const ago = param("since", "1h");
  const end = at.value;
  const from = Number(param("from"));
  // A range of the time line is the time that is asked for.
  if (from > 0) return { since: new Date(from).toISOString(), ...(end === null ? {} : { until: new Date(end).toISOString() }) };
  if (end === null) return { since: ago };
  const units: Record<string, number> = { m: 60e3, h: 3600e3, day: 86400e3, days: 86400e3 };
  const [, number, unit] = /^(\d+)(m|h|days?)$/.exec(ago) ?? [];
  const begin = end - Number(number ?? 1) * (units[unit ?? "h"] ?? 3600e3);
  return { since: new Date(begin).toISOString(), until: new Date(end).toISOString() };
}

/** Chooses it. */
export function Since() {
  if (param("from")) return <span class="quiet">in the range of the time line</span>;
  return (
    <label>
      in the last{" "}
      <select value={param("since", "1h")} onChange={(event) => set({ since: event.currentTarget.value })}>
        {SINCE.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
      </select>
    </label>
  );
}

function pathOf(): string {
  const query = new URLSearchParams({ top: param("top", String(TOP)), sort: param("sort", "bytes"), ...sinceAndUntil() });
  query.set("by", param("by", param("table") === "services" ? "server,port" : "service,process"));
  if (param("table") === "services") query.set("table", "services");
  if (param("filter")) query.set("filter", param("filter"));
  for (const condition of param("where").split(/\s+and\s+|;/)) if (condition.trim()) query.append("where", condition.trim());
  return `/api/flows?${query}`;
}

export function LakeView() {
  const services = param("table") === "services";
  const fields = services ? SERVICE_FIELDS : FIELDS;
  const usual = services ? "server,port" : "service,process";
  const turn = useSignal(0);
  const path = pathOf();
  const answer = useAnswer(`${path} ${turn.value}`, (signal) => lines<Group>(path, signal).catch(explained), null);
  const rows = answer.value.data?.rows ?? [];
  const by = param("by", usual).split(",").map((name) => name.trim().replaceAll(".", "_")).filter(Boolean);
  const as = param("as", "table");
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Query of the lake">
        <label>
          Of{" "}
          <select value={param("table", "flows")} onChange={(event) => set({ table: event.currentTarget.value === "flows" ? "" : "services", by: "", where: "", filter: "" })}>
            <option value="flows">flows</option>
            <option value="services">services (of collectors)</option>
          </select>
        </label>
        <Since />
        <label>
          the{" "}
          <select aria-label="Rows at most" value={param("top", String(TOP))} onChange={(event) => set({ top: event.currentTarget.value })}>
            {["20", "100", "500", "2000"].map((top) => <option key={top} value={top}>{top} first</option>)}
          </select>{" "}
          by{" "}
          <select aria-label="Sorted by" value={param("sort", "bytes")} onChange={(event) => set({ sort: event.currentTarget.value })}>
            {SORTS.map((sort) => <option key={sort} value={sort}>{sort}</option>)}
          </select>
        </label>
        <span class="tabs" role="group" aria-label="Show the answer as">
          {["table", "chart"].map((one) => (
            <button key={one} type="button" aria-pressed={as === one} onClick={() => set({ as: one })}>{one}</button>
          ))}
        </span>
        <button type="button" class="primary" disabled={answer.value.loading} onClick={() => (turn.value += 1)}>Ask</button>
      </div>
      <div class="tools fields">
        <Complete id="lake-by" label="Summed up by" placeholder="Summed up by: service,process" value={param("by", usual)}
          offer={offers(fields)} take={taken} done={(next) => set({ by: next })} />
        <Complete id="lake-where" label="Where" placeholder="Where: process=nginx and server_port>=1024" value={param("where")}
          offer={offers(fields)} take={taken} done={(next) => set({ where: next })} />
        {!services && (
          <input type="text" aria-label="Filter" placeholder="Filter: tcp port 443" value={param("filter")}
            onChange={(event) => set({ filter: event.currentTarget.value })} />
        )}
        {answer.value.data && (
          <>
            <span class="quiet" role="status">{exact(rows.length)} {rows.length === 1 ? "row" : "rows"}</span>
            <a class="button" href={`${path}&format=csv`} download="lake.csv">CSV</a>
            <button type="button" onClick={() => save(JSON.stringify(rows, null, 1), "lake.json")}>Save</button>
            <Copy value={rows} />
          </>
        )}
      </div>
      <Trouble text={answer.value.error} />
      {answer.value.loading && !answer.value.data && <p class="empty" role="status">Asking the lake …</p>}
      {answer.value.data && !answer.value.error && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Answer">
          {rows.length === 0 ? (
            <Empty title="The lake has no such rows.">
              <p>Flows are written to it every few seconds to minutes. Ask for a longer time, or without a condition.</p>
              <p class="buttons empty-buttons">
                {param("where") && <button type="button" onClick={() => set({ where: "" })}>Without the condition</button>}
                {param("filter") && <button type="button" onClick={() => set({ filter: "" })}>Without the filter</button>}
                <button type="button" onClick={() => set({ since: "7days", from: "" })}>The last 7 days</button>
              </p>
            </Empty>
          ) : as === "chart" ? (
            <Drawn rows={rows} by={by} />
          ) : (
            <Table rows={rows} by={by} />
          )}
        </div>
      )}
    </>
  );
}

function explained(error: unknown): never {
  if (error instanceof Refused && error.status === 404) {
    throw new Error(`${error.message}\n\nSet lake.directory in the configuration to store flows as Parquet from then on.`);
  }
  throw error;
}

const total = (row: Group) => row.sent.bytes + row.received.bytes;

function Table({ rows, by }: { rows: Group[]; by: string[] }) {
  return (
    <table class="grid">
      <thead>
        <tr>
          {by.map((name) => <th key={name} scope="col">{name.replaceAll("_", " ")}</th>)}
          {["Sent", "Received", "Rate", "Begun", "Retrans.", "RTT", "First", "Last"].map((name) => (
            <th key={name} scope="col" class="number">{name}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row, i) => (
          <tr key={i}>
            {by.map((name) => <td key={name}><Name text={row[name] ?? "–"} most={50} /></td>)}
            <td class="number">{bytes(row.sent.bytes)}</td>
            <td class="number">{bytes(row.received.bytes)}</td>
            <td class="number">{rate(row.rate.bits_per_second)}</td>
            <td class="number">{exact(row.begun)}</td>
            <td class="number">{row.retransmitted || ""}</td>
            <td class="number">{row.handshake_rtt ? span(row.handshake_rtt) : ""}</td>
            <td class="number">{moment(Date.parse(row.start))}</td>
            <td class="number">{moment(Date.parse(row.last))}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Over time when it is summed up by a time; from whom to whom with several other fields; else the largest. */
function Drawn({ rows, by }: { rows: Group[]; by: string[] }) {
  const time = by.find((name) => SPANS.includes(name));
  const rest = by.filter((name) => name !== time);
  const label = (row: Group) => rest.map((name) => String(row[name] ?? "–")).join(" · ") || "all";
  if (!time && rest.length > 1) {
    const bands = rows.filter((row) => total(row) > 0).map((row) => ({ path: rest.map((name) => String(row[name] ?? "–")), value: total(row) }));
    return <div class="drawn"><Sankey bands={bands} heads={rest.map((name) => name.replaceAll("_", " "))} format={bytes} label="The answer, from field to field" /></div>;
  }
  if (!time) {
    const bars = rows.slice(0, 40).map((row) => ({ label: label(row), value: total(row) }));
    bars.sort((a, b) => b.value - a.value);
    return <Bars bars={bars} most={Math.max(1, bars[0]!.value)} format={bytes} />;
  }
  const sums = new Map<string, number>();
  for (const row of rows) sums.set(label(row), (sums.get(label(row)) ?? 0) + total(row));
  const names = new Set([...sums].sort((a, b) => b[1] - a[1]).slice(0, SERIES).map(([name]) => name));
  const ms = LENGTHS[time]!;
  const cells = new Map<string, { start: number; ms: number; name: string; value: number }>();
  for (const row of rows) {
    const start = Date.parse(String(row[time]));
    if (!Number.isFinite(start)) continue;
    const name = names.has(label(row)) ? label(row) : "others";
    const cell = cells.get(`${start} ${name}`) ?? { start, ms, name, value: 0 };
    cell.value += (total(row) * 8000) / ms;
    cells.set(`${start} ${name}`, cell);
  }
  const slices = [...cells.values()];
  const starts = slices.map((slice) => slice.start);
  return (
    <div class="drawn">
      <Stacked slices={slices} from={Math.min(...starts)} until={Math.max(...starts) + ms} format={rate} height={320} label="The answer over time" />
    </div>
  );
}
