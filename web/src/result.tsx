// The result of a query, as a table that people can read, as nodes, as a chart or as JSON.
import { Chart } from "./charts/lines";
import { bytes, clock, endpoint, exact, moment, plain, span } from "./format";
import { recorded, stateOf, type Found as FoundFlow } from "./flows/record";
import { Name } from "./parts";
import { link } from "./state";

/** Rows and columns of a table. */
const ROWS = 500;
const COLUMNS = 12;
/** Parts of a value that are shown in a cell. */
const PARTS = 4;

type Row = Record<string, unknown>;
const isRow = (value: unknown): value is Row => typeof value === "object" && value !== null && !Array.isArray(value);

/** What says most of a node, in this order. */
const FIRST = ["Name", "Type", "State", "Host", "IPV4", "IPV6", "MAC", "MTU", "Speed", "Driver", "Manager", "Owner", "RelationType", "Parent", "Child"];
/** What is long, or of the program alone. */
const LATE = ["Features", "Metric", "LastUpdateMetric", "RoutingTables", "Neighbors", "FDB", "Captures", "TID", "IfIndex", "NetNS", "ID", "Origin", "Revision"];
const rankOf = (key: string) => (FIRST.includes(key) ? FIRST.indexOf(key) : LATE.includes(key) ? 200 + LATE.indexOf(key) : 100);

/** A flow as columns of its own: in the form of records most of it is inside of other values. */
function flowRow(found: FoundFlow): Row {
  const flow = recorded(found);
  const who = (side: typeof flow.a) => [endpoint(side.address, side.port), side.container ?? side.process].filter(Boolean).join(" ");
  return {
    Protocol: flow.protocol.toUpperCase(),
    From: who(flow.a),
    To: who(flow.b),
    Sent: flow.ab?.bytes ?? 0,
    Received: flow.ba?.bytes ?? 0,
    Packets: (flow.ab?.packets ?? 0) + (flow.ba?.packets ?? 0),
    RTT: flow.tcp?.handshake_rtt ? span(flow.tcp.handshake_rtt) : "",
    State: stateOf(flow),
    Interface: flow.interface ?? "",
    Start: Date.parse(flow.start),
    Last: Date.parse(flow.last),
  };
}

/** Elements of a graph and answers by name become rows. */
function rowsOf(found: unknown[], table: boolean): Row[] {
  return found.flatMap((one): Row[] => {
    if (Array.isArray(one)) return rowsOf(one, table);
    if (!isRow(one)) return [{ value: one }];
    if (Array.isArray(one.Nodes)) return rowsOf([...one.Nodes, ...((one.Edges as unknown[]) ?? [])], table);
    if (isRow(one.Metadata)) {
      const { Metadata, ID, Host, Parent, Child } = one;
      const { Name: name, Type, State, ...rest } = Metadata as Row;
      const head: Row = name === undefined && Parent !== undefined ? {} : { Name: name, Type };
      if (State !== undefined) head.State = State;
      return [{ ...head, ...(Parent === undefined ? {} : { Parent, Child }), Host, ...rest, ID }];
    }
    if (table && typeof one.UUID === "string" && typeof one.LayersPath === "string" && typeof one.Last === "number") {
      return [flowRow(one as unknown as FoundFlow)];
    }
    const values = Object.entries(one);
    if (!values.every(([, value]) => Array.isArray(value))) return [one];
    // Of each name a list: which one it is stands in the first column, if there are several.
    return values.flatMap(([name, list]) => rowsOf(list as unknown[], table).map((row) => (values.length > 1 && table ? { of: name, ...row } : row)));
  });
}

/** A value as people read it. */
function shown(key: string, value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (value > 1e12 && value < 1e13 && /(^|[a-z])(Start|Last|At|Time|Timestamp|Since)$/.test(key)) {
      return Math.abs(Date.now() - value) < 20 * 3600e3 ? clock(value) : moment(value);
    }
    if (/Bytes$|^(Sent|Received)$/.test(key)) return bytes(value);
    if (/RTT$/.test(key)) return span(value);
    if (/^(value|.*Packets|Count|Sum)$/.test(key) || value > 1e6) return exact(value);
    return String(value);
  }
  if (Array.isArray(value)) {
    const parts = value.slice(0, PARTS).map((one) => shown(key, one));
    return parts.join(", ") + (value.length > PARTS ? ` and ${exact(value.length - PARTS)} more` : "");
  }
  if (isRow(value)) {
    const entries = Object.entries(value).filter(([, inner]) => inner !== null && inner !== "" && inner !== 0);
    const parts = entries.slice(0, PARTS).map(([name, inner]) => `${name}: ${isRow(inner) || Array.isArray(inner) ? "…" : shown(name, inner)}`);
    return parts.join(", ") + (entries.length > PARTS ? ` and ${exact(entries.length - PARTS)} more` : "");
  }
  return String(value);
}

const flat = (value: unknown) => shown("", value);

export function Result({ found, as }: { found: unknown[]; as: string }) {
  if (as === "json") return <pre class="json" tabIndex={0}>{plain(JSON.stringify(found, null, 1).slice(0, 500_000)).split("␊").join("\n")}</pre>;
  if (as === "chart") return <Charted rows={rowsOf(found, false)} />;
  if (as === "graph") return <Found rows={rowsOf(found, false)} />;
  const rows = rowsOf(found, true);
  if (rows.length === 1 && Object.keys(rows[0]!).length === 1 && typeof Object.values(rows[0]!)[0] === "number") {
    const [key, value] = Object.entries(rows[0]!)[0]!;
    return <p class="single"><span class="sr">{key}</span>{shown("value", value)}</p>;
  }
  const counts = new Map<string, number>();
  for (const row of rows.slice(0, ROWS)) {
    for (const [key, value] of Object.entries(row)) if (value !== undefined && value !== "") counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const isNodes = rows.some((row) => typeof row.ID === "string");
  const keys = [...counts.keys()];
  // The order of what was asked for stays; that of metadata is none.
  if (isNodes) keys.sort((a, b) => rankOf(a) - rankOf(b) || counts.get(b)! - counts.get(a)!);
  const columns = keys.slice(0, COLUMNS);
  const isNumber = (column: string) => rows.slice(0, ROWS).every((row) => row[column] === undefined || typeof row[column] === "number");
  const numeric = new Set(columns.filter(isNumber));
  return (
    <>
      <table class="grid answer">
        <thead>
          <tr>{columns.map((column) => <th key={column} scope="col" class={numeric.has(column) ? "number" : ""}><Name text={column} most={30} /></th>)}</tr>
        </thead>
        <tbody>
          {rows.slice(0, ROWS).map((row, i) => (
            <tr key={i}>
              {columns.map((column) => (
                <td key={column} class={numeric.has(column) ? "number" : ""} title={isRow(row[column]) ? plain(JSON.stringify(row[column]).slice(0, 2000)) : undefined}>
                  {column === "Name" && typeof row.ID === "string"
                    ? <a href={link("map", { node: row.ID })}><Name text={row[column]} most={40} /></a>
                    : <Name text={shown(column, row[column])} most={50} />}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > ROWS && <p class="quiet">The first {ROWS} of {exact(rows.length)}; JSON and Save have all.</p>}
      {counts.size > COLUMNS && <p class="quiet">{COLUMNS} of {counts.size} keys; JSON has all.</p>}
    </>
  );
}

/** Nodes of the result, with links to the map. */
function Found({ rows }: { rows: Row[] }) {
  const nodes = rows.filter((row) => typeof row.ID === "string" && row.Name !== undefined);
  if (!nodes.length) return <p class="empty quiet">The answer has no nodes.</p>;
  return (
    <div class="cards">
      {nodes.slice(0, ROWS).map((row, i) => (
        <a key={i} class="card" href={link("map", { node: String(row.ID) })}>
          <b><Name text={row.Name} most={40} /></b>
          <span class="quiet">{plain(row.Type)} {plain(row.State ?? "")}</span>
        </a>
      ))}
    </div>
  );
}

/** Counters over time, or the largest numbers. */
function Charted({ rows }: { rows: Row[] }) {
  const timed = rows.filter((row) => typeof row.Last === "number" && typeof row.Start === "number" && !("UUID" in row));
  if (timed.length > 1) {
    timed.sort((a, b) => (a.Last as number) - (b.Last as number));
    const names = Object.keys(timed[0]!).filter((key) => /Bytes$/.test(key)).slice(0, 4);
    return (
      <Chart
        label="The answer over time"
        height={260}
        times={timed.map((row) => (row.Last as number) / 1000)}
        series={names.map((name) => ({ name, values: timed.map((row) => Number(row[name] ?? 0)) }))}
        format={bytes}
      />
    );
  }
  const number = (row: Row): number => {
    const metric = row.Metric as Row | undefined;
    if (metric?.ABBytes !== undefined) return Number(metric.ABBytes) + Number(metric.BABytes ?? 0);
    const first = Object.values(row).find((value) => typeof value === "number");
    return Number(first ?? 0);
  };
  const label = (row: Row): string => {
    const net = row.Network as Row | undefined;
    return net ? `${flat(net.A)} ⇄ ${flat(net.B)}` : flat(row.Name ?? row.value ?? Object.values(row)[0]);
  };
  const bars = rows.map((row) => ({ label: label(row), value: number(row) })).sort((a, b) => b.value - a.value).slice(0, 40);
  const most = Math.max(...bars.map((bar) => bar.value), 0);
  if (most <= 0) return <p class="empty quiet">The answer has no numbers to draw.</p>;
  return <Bars bars={bars} most={most} format={exact} />;
}

/** Numbers with their names, as bars. */
export function Bars({ bars, most, format }: { bars: { label: string; value: number }[]; most: number; format: (value: number) => string }) {
  return (
    <table class="bars">
      <tbody>
        {bars.map((bar, i) => (
          <tr key={i}>
            <th scope="row"><Name text={bar.label} most={50} /></th>
            <td><meter max={most} value={bar.value} aria-label={format(bar.value)} /></td>
            <td class="number">{format(bar.value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
