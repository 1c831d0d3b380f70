// The result of a query, as a table, as nodes, as a chart or as JSON.
import { Chart } from "./charts/lines";
import { bytes, exact, plain } from "./format";
import { Name } from "./parts";
import { link } from "./state";

/** Rows and columns of a table. */
const ROWS = 500;
const COLUMNS = 12;

type Row = Record<string, unknown>;
const isRow = (value: unknown): value is Row => typeof value === "object" && value !== null && !Array.isArray(value);

/** Elements of a graph and answers by name become rows. */
function rowsOf(found: unknown[]): Row[] {
  return found.flatMap((one): Row[] => {
    if (Array.isArray(one)) return rowsOf(one);
    if (!isRow(one)) return [{ value: one }];
    if (Array.isArray(one.Nodes)) return rowsOf([...one.Nodes, ...((one.Edges as unknown[]) ?? [])]);
    if (isRow(one.Metadata)) {
      const { Metadata, ID, Host } = one;
      const { Name: name, Type, State, ...rest } = Metadata as Row;
      const head: Row = { Name: name, Type };
      if (State !== undefined) head.State = State;
      return [{ ...head, Host, ...rest, ID }];
    }
    return Object.values(one).every(Array.isArray) ? rowsOf(Object.values(one)) : [one];
  });
}

function flat(value: unknown): string {
  return isRow(value) || (Array.isArray(value) && value.some((one) => typeof one === "object"))
    ? JSON.stringify(value)
    : Array.isArray(value) ? value.join(", ") : String(value ?? "");
}

export function Result({ found, as }: { found: unknown[]; as: string }) {
  if (as === "json") return <pre class="json" tabIndex={0}>{plain(JSON.stringify(found, null, 1).slice(0, 500_000)).split("␊").join("\n")}</pre>;
  const rows = rowsOf(found);
  if (as === "chart") return <Charted rows={rows} />;
  if (as === "graph") return <Found rows={rows} />;
  const counts = new Map<string, number>();
  for (const row of rows.slice(0, ROWS)) for (const key of Object.keys(row)) counts.set(key, (counts.get(key) ?? 0) + 1);
  const columns = [...counts.keys()].slice(0, COLUMNS);
  return (
    <>
      <table class="grid">
        <thead>
          <tr>{columns.map((column) => <th key={column} scope="col"><Name text={column} most={30} /></th>)}</tr>
        </thead>
        <tbody>
          {rows.slice(0, ROWS).map((row, i) => (
            <tr key={i}>
              {columns.map((column) => (
                <td key={column} class={typeof row[column] === "number" ? "number" : ""}>
                  {column === "Name" && typeof row.ID === "string"
                    ? <a href={link("map", { node: row.ID })}><Name text={row[column]} most={40} /></a>
                    : <Name text={flat(row[column])} most={50} />}
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
