import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ask, packets, save } from "./api";
import { Chart } from "./chart";
import { Complete } from "./complete";
import { bytes, exact, plain } from "./format";
import { Copy, Name, Trouble } from "./parts";
import { at, link, param, remember, say, set } from "./state";

/** Steps of the language, with what they do. */
const STEPS: [string, string][] = [
  ["V()", "all nodes"],
  ["E()", "all edges"],
  ["Flows()", "flows, also those of nodes"],
  ["At('-5m')", "as it was"],
  ["Has(\"Name\", \"eth0\")", "keep what has a value"],
  ["HasEither()", "one of several values"],
  ["HasKey(\"\")", "the key is there"],
  ["HasNot(\"\")", "the key is not there"],
  ["Dedup()", "the first of each"],
  ["Limit(10)", "the first ones"],
  ["Range(0, 10)", "from, up to before"],
  ["Sort(DESC, \"\")", "by a key"],
  ["Out()", "children"],
  ["In()", "parents"],
  ["Both()", "children and parents"],
  ["OutE()", "edges to children"],
  ["InE()", "edges from parents"],
  ["BothE()", "all edges"],
  ["Descendants(3)", "with those below"],
  ["Ascendants(3)", "with those above"],
  ["Neighbors(\"RelationType\", \"layer2\", 2)", "with those beside"],
  ["ShortestPathTo(Metadata(\"Name\", \"eth0\"))", "the way to a node"],
  ["SubGraph()", "only these"],
  ["Count()", "how many"],
  ["Values(\"Name\")", "values of a key"],
  ["ValueMap(\"Name\", \"MTU\")", "values of several keys"],
  ["Keys()", "all keys"],
  ["Sum(\"Metric.ABBytes\")", "sum of a key"],
  ["Metrics()", "counters"],
  ["Aggregates(10)", "counters in slices of seconds"],
  ["Hops()", "where flows were captured"],
  ["Path()", "where a conversation was seen, in order"],
  ["Nodes()", "nodes of flows"],
  ["RawPackets()", "packets that were kept"],
  ["BPF(\"tcp port 80\")", "packets that match"],
  ["Sockets()", "sockets with their processes"],
  ["Group()", "by a key"],
  ["NextHop(\"8.8.8.8\")", "where routes lead"],
];
const KEYS: [string, string][] = [
  "Name", "Type", "State", "Host", "IPV4", "IPV6", "MAC", "MTU", "IfIndex", "Driver", "TID", "Captures.State", "Speed",
  "Network", "Network.A", "Network.B", "Transport", "Transport.B", "LayersPath", "Application", "CommunityID", "TrackingID",
  "Metric.ABBytes", "Metric.BABytes", "Metric.ABPackets", "LastUpdateMetric.ABBytes", "FinishType", "Process", "Container",
  "RelationType", "Start", "Last", "TCPMetric.State",
].map((key) => [key, "key"]);
const EXAMPLES = [
  'G.V().Has("Type", "bridge").Out()',
  'G.V().Has("State", "DOWN").ValueMap("Name", "Host", "Type")',
  'G.Flows().Sort(DESC, "Metric.ABBytes").Limit(20)',
  'G.V().Has("Type", "host").Metrics()',
];
const HISTORY = "skua-queries";
/** Queries that are remembered. */
const REMEMBERED = 30;
/** Rows and columns of a table. */
const ROWS = 500;
const COLUMNS = 12;

function offer(before: string): [string, string][] {
  const key = /"([A-Za-z.@]*)$/.exec(before);
  if (key && (before.match(/"/g)?.length ?? 0) % 2 === 1) {
    const word = key[1]!.toLowerCase();
    return KEYS.filter(([name]) => name.toLowerCase().startsWith(word)).slice(0, 8);
  }
  const step = /\.([A-Za-z]*)$/.exec(before);
  if (!step) return before === "" ? [["G", "the graph"]] : [];
  const word = step[1]!.toLowerCase();
  return STEPS.filter(([name]) => name.toLowerCase().startsWith(word)).slice(0, 8);
}

function take(before: string, chosen: string): string {
  const key = /"([A-Za-z.@]*)$/.exec(before);
  if (key && (before.match(/"/g)?.length ?? 0) % 2 === 1) return `${before.slice(0, key.index + 1)}${chosen}"`;
  return before.replace(/[A-Za-z]*$/, "") + chosen;
}

function recall(): string[] {
  try {
    const all: unknown = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(all) ? all.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

/** At the moment that is looked at, unless the query says a moment itself. */
function placed(query: string): string {
  if (at.value === null || /^G\.(At|Context)\(/i.test(query)) return query;
  return query.replace(/^G\b/, `G.At(${at.value})`);
}

export function QueryView() {
  const query = param("q");
  const text = useSignal(query || 'G.V().Has("Type", "netns")');
  const given = useSignal({ text: text.value, turn: 0 });
  const give = (next: string) => {
    text.value = next;
    given.value = { text: next, turn: given.peek().turn + 1 };
  };
  const past = useSignal(recall());
  const answer = useSignal<{ found: unknown[]; took: number } | null>(null);
  const error = useSignal("");
  const busy = useSignal(false);
  const as = param("as", "table");
  const running = useRef<AbortController | null>(null);

  const run = async (asked: string): Promise<void> => {
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    busy.value = true;
    const begin = performance.now();
    try {
      const found = await ask(placed(asked), abort.signal);
      answer.value = { found, took: performance.now() - begin };
      error.value = "";
      past.value = [asked, ...past.value.filter((one) => one !== asked)].slice(0, REMEMBERED);
      remember(HISTORY, JSON.stringify(past.value));
    } catch (problem) {
      if (abort.signal.aborted) return;
      error.value = (problem as Error).message;
    } finally {
      if (running.current === abort) busy.value = false;
    }
  };
  useEffect(() => {
    if (query) {
      if (query !== text.peek()) give(query);
      void run(query);
    }
    return () => running.current?.abort();
  }, [query, at.value]);
  const go = (asked: string) => {
    if (asked === query) void run(asked);
    else set({ q: asked });
  };
  const found = answer.value?.found ?? [];
  return (
    <div class="list query">
      <div class="ask">
        <Complete
          id="query"
          label="Query in Gremlin"
          rows={3}
          value={given.value.text}
          turn={given.value.turn}
          offer={offer}
          take={take}
          change={(next) => (text.value = next)}
          done={go}
        />
        <div class="buttons">
          <button type="button" class="primary" disabled={busy.value} onClick={() => go(text.value.trim())}>
            Run
          </button>
          <span class="quiet">Control and Enter</span>
          <label>
            <span class="sr">Queries of before</span>
            <select
              value=""
              onChange={(event) => {
                if (event.currentTarget.value) give(event.currentTarget.value);
                event.currentTarget.value = "";
              }}
            >
              <option value="">History and examples</option>
              {past.value.length > 0 && (
                <optgroup label="History">
                  {past.value.map((one) => <option key={one} value={one}>{one.slice(0, 90)}</option>)}
                </optgroup>
              )}
              <optgroup label="Examples">
                {EXAMPLES.map((one) => <option key={one} value={one}>{one}</option>)}
              </optgroup>
            </select>
          </label>
          <span class="tabs" role="group" aria-label="Show the answer as">
            {["table", "graph", "chart", "json"].map((one) => (
              <button key={one} type="button" aria-pressed={as === one} onClick={() => set({ as: one })}>
                {one === "json" ? "JSON" : one}
              </button>
            ))}
          </span>
          {answer.value && (
            <>
              <span class="quiet" role="status">
                {exact(found.length)} {found.length === 1 ? "result" : "results"} in {answer.value.took.toFixed(0)} ms
              </span>
              <button type="button" onClick={() => save(JSON.stringify(found, null, 1), "answer.json")}>Save</button>
              <Copy value={found} />
              {/Flows\(/.test(query) && (
                <button
                  type="button"
                  onClick={() => {
                    const asked = /RawPackets\(/.test(query) ? query : `${query}.RawPackets()`;
                    packets(placed(asked)).then(
                      (file) => save(file, "packets.pcapng"),
                      (problem: Error) => say(problem.message, true),
                    );
                  }}
                >
                  pcapng
                </button>
              )}
            </>
          )}
        </div>
      </div>
      <Trouble text={error.value} />
      {answer.value && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Answer">
          {found.length === 0 ? <p class="empty quiet">Nothing was found.</p> : <Result found={found} as={as} />}
        </div>
      )}
    </div>
  );
}

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

function Result({ found, as }: { found: unknown[]; as: string }) {
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

/** What was found, on the map. */
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
  return (
    <table class="bars">
      <tbody>
        {bars.map((bar, i) => (
          <tr key={i}>
            <th scope="row"><Name text={bar.label} most={50} /></th>
            <td><meter max={most} value={bar.value} aria-label={`${exact(bar.value)}`} /></td>
            <td class="number">{exact(bar.value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
