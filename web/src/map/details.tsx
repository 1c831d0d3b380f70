import { ask, quoted } from "../api";
import { Chart } from "../charts/lines";
import { ago, brief, bytes, endpoint, moment, plain, rate } from "../format";
import { useAnswer } from "../hooks";
import type { Spot } from "../mapdata";
import { Aside, Copy, Name, Trouble, Values } from "../parts";
import { at, isAdmin, link, serverNow, set } from "../state";

interface Node {
  ID: string;
  Host: string;
  Origin: string;
  CreatedAt: number;
  UpdatedAt: number;
  Metadata: Record<string, unknown>;
}
interface Metric {
  Start: number;
  Last: number;
  RxBytes?: number;
  TxBytes?: number;
}
export interface GremlinFlow {
  UUID: string;
  Network?: { A: string; B: string };
  Transport?: { A: string; B: string };
  LayersPath: string;
  Metric: { ABBytes: number; BABytes: number };
  CommunityID?: string;
}
interface Sock {
  Protocol: string;
  LocalAddress: string;
  LocalPort: number;
  RemoteAddress: string;
  RemotePort: number;
  State: string;
  Name?: string;
}

/** Long and seldom needed fields are last. */
const LATE = ["Features", "RoutingTables", "Neighbors", "FDB", "BPF", "Nftables", "Metric", "LastUpdateMetric", "Captures"];
/** Seconds that the chart shows. */
const CHARTED = 600;

/** A query at the selected moment. */
export const then = (query: string, span?: number): string => {
  if (at.value === null) return span === undefined ? `G.${query}` : `G.At(NOW, ${span}).${query}`;
  return `G.At(${at.value}${span === undefined ? "" : `, ${span}`}).${query}`;
};

export function Details({ id, spot }: { id: string; spot: Spot | undefined }) {
  const key = `${id} ${at.value}`;
  const every = at.value === null ? 5000 : null;
  const v = `V(${quoted(id)})`;
  const found = useAnswer(key, (signal) => ask<Node>(then(v), signal), every);
  const metrics = useAnswer(key, (signal) => ask<Record<string, Metric[]>>(then(`${v}.Metrics()`, CHARTED), signal), every);
  const node = found.value.data?.[0];
  const isInterface = node?.Metadata.IfIndex !== undefined;
  const flows = useAnswer(
    `${key} ${isInterface}`,
    (signal) =>
      isInterface ? ask<GremlinFlow>(then(`${v}.Flows().Sort(DESC, "Last").Limit(12)`), signal) : Promise.resolve([]),
    every,
  );
  const owns = node !== undefined && ["host", "netns", "container", "process", "vm"].includes(String(node.Metadata.Type));
  const sockets = useAnswer(
    `${key} ${owns}`,
    (signal) =>
      owns ? ask<Record<string, Sock[]>>(then(`${v}.Sockets().Limit(15)`), signal).catch(() => []) : Promise.resolve([]),
    every,
  );
  const close = () => set({ node: "" });
  const title = <Name text={spot?.Name ?? node?.Metadata.Name ?? id} most={50} />;
  if (!node) {
    return (
      <Aside title={title} close={close}>
        <Trouble text={found.value.error} />
        {!found.value.loading && !found.value.error && <p class="quiet">This node does not exist at this moment.</p>}
      </Aside>
    );
  }
  const all = Object.entries(node.Metadata);
  const first = all.filter(([name]) => !LATE.includes(name));
  const late = all.filter(([name]) => LATE.includes(name));
  const now = at.value ?? serverNow();
  return (
    <Aside title={title} close={close}>
      <p class="quiet">
        {plain(node.Metadata.Type)} on <Name text={node.Host} most={40} /> · since {moment(node.CreatedAt)} · changed{" "}
        {ago(node.UpdatedAt, now)}
      </p>
      <Rates metrics={metrics.value.data?.[0]?.[id] ?? []} />
      <p class="buttons">
        <a class="button" href={link("query", { q: `G.V(${quoted(id)}).Flows()` })}>Query flows</a>
        {isAdmin.value && isInterface && at.value === null && (
          <a class="button" href={link("captures", { new: `G.V().Has("TID", ${quoted(String(node.Metadata.TID))})` })}>
            Capture here
          </a>
        )}
        <Copy value={node} />
      </p>
      {flows.value.data && flows.value.data.length > 0 && (
        <section>
          <h3>Flows</h3>
          <table class="small">
            <tbody>
              {flows.value.data.map((flow) => (
                <tr key={flow.UUID}>
                  <td><Name text={endpoint(flow.Network?.A ?? "", Number(flow.Transport?.A ?? 0))} most={28} /></td>
                  <td><Name text={endpoint(flow.Network?.B ?? flow.LayersPath, Number(flow.Transport?.B ?? 0))} most={28} /></td>
                  <td class="number">{bytes(flow.Metric.ABBytes + flow.Metric.BABytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      <Sockets all={sockets.value.data ?? []} />
      <h3>Metadata</h3>
      <Values of={Object.fromEntries([...first, ...late])} />
    </Aside>
  );
}

function Sockets({ all }: { all: Record<string, Sock[]>[] }) {
  const list = all.flatMap((one) => Object.values(one).flat()).slice(0, 15);
  if (!list.length) return null;
  return (
    <section>
      <h3>Sockets</h3>
      <table class="small">
        <tbody>
          {list.map((one, i) => (
            <tr key={i}>
              <td>{brief(one.Name ?? "", 18)}</td>
              <td>{brief(endpoint(one.LocalAddress, one.LocalPort), 28)}</td>
              <td>{one.RemotePort ? brief(endpoint(one.RemoteAddress, one.RemotePort), 28) : plain(one.State)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Rates({ metrics }: { metrics: Metric[] }) {
  if (metrics.length < 2) return null;
  const sorted = [...metrics].sort((a, b) => a.Last - b.Last);
  const per = (metric: Metric, key: "RxBytes" | "TxBytes") =>
    ((metric[key] ?? 0) * 8000) / Math.max(1, metric.Last - metric.Start);
  const times: number[] = [];
  const rx: (number | null)[] = [];
  const tx: (number | null)[] = [];
  sorted.forEach((metric, i) => {
    const before = sorted[i - 1];
    // A gap between metrics means that nothing was counted.
    if (before && metric.Start - before.Last > 1000) {
      times.push(before.Last / 1000 + 0.001, metric.Start / 1000);
      rx.push(0, 0);
      tx.push(0, 0);
    }
    times.push(metric.Last / 1000);
    rx.push(per(metric, "RxBytes"));
    tx.push(per(metric, "TxBytes"));
  });
  return (
    <Chart
      label="Received and sent over the last ten minutes"
      times={times}
      series={[{ name: "received", values: rx }, { name: "sent", values: tx }]}
      format={rate}
    />
  );
}
