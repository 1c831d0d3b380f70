// A conversation as the table shows it, from /api/flows or, in the past, from a query.
import { FLOW_KEYS, type Flow as FlowRecord } from "../records";

export interface Flow extends FlowRecord {
  /** What a query answered. */
  raw?: unknown;
}
export type Side = Flow["a"];

type Tree = { [name: string]: unknown };
/** What a query answers: values in Skydive's form, and those of records under other names. */
export interface Found extends Tree {
  UUID: string;
  LayersPath: string;
  Link?: { A?: string; B?: string };
  Network?: { A: string; B: string };
  Transport?: { A: number; B: number };
  LastUpdateMetric?: { ABPackets: number; ABBytes: number; BAPackets: number; BABytes: number; Start: number; Last: number };
  Start: number;
  Last: number;
  FinishType?: number;
}

const value = (tree: unknown, path: string) =>
  path.split(".").reduce<unknown>((inner, name) => (inner as Tree | undefined)?.[name], tree);

function put(tree: Tree, path: string, value: unknown): void {
  const names = path.split(".");
  const last = names.pop() ?? "";
  const inner = names.reduce((inner, name) => (inner[name] ??= {}) as Tree, tree);
  inner[last] = value;
}

/** A result of a query as a record. */
export function recorded(found: Found): Flow {
  const flow: Tree = { raw: found };
  for (const [path, key] of FLOW_KEYS) {
    const known = value(found, key);
    if (known !== undefined) put(flow, path, known);
  }
  for (const [side, letter] of [["a", "A"], ["b", "B"]] as const) {
    put(flow, `${side}.address`, found.Network?.[letter] ?? found.Link?.[letter] ?? "");
    const port = found.Transport?.[letter];
    if (port) put(flow, `${side}.port`, port);
  }
  const update = found.LastUpdateMetric;
  const spent = update ? update.Last - update.Start : 0;
  const perSecond = (number: number) => (spent > 0 ? (number * 1000) / spent : 0);
  put(flow, "rate.bits_per_second", perSecond(update ? (update.ABBytes + update.BABytes) * 8 : 0));
  put(flow, "rate.packets_per_second", perSecond(update ? update.ABPackets + update.BAPackets : 0));
  flow.protocol = (found.LayersPath.split("/").pop() ?? "").toLowerCase();
  flow.start = new Date(found.Start).toISOString();
  flow.last = new Date(found.Last).toISOString();
  if (found.FinishType) flow.end = ["", "timeout", "tcp_fin", "tcp_rst"][found.FinishType];
  return flow as unknown as Flow;
}

/** How states and ends of conversations stand in tables. */
const STATES: Record<string, string> = { tcp_fin: "closed", tcp_rst: "reset", timeout: "timed out", "syn-sent": "no answer yet" };
export const stateOf = (flow: Flow) => {
  const state = flow.end ?? flow.tcp?.state ?? "";
  return STATES[state] ?? state.replaceAll("_", " ");
};
