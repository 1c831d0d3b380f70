// A conversation as the table shows it, from /api/flows or, in the past, from a query.
export interface Side {
  address: string;
  port?: number;
  process?: string;
  pid?: number;
  user?: string;
  container?: string;
  pod?: string;
  unit?: string;
}
export interface Flow {
  id: string;
  interface: string;
  layers: string;
  protocol: string;
  a: Side;
  b: Side;
  ab: { packets: number; bytes: number };
  ba: { packets: number; bytes: number };
  start: string;
  last: string;
  community_id?: string;
  end?: string;
  duration?: number;
  netns?: number;
  tcp?: {
    state?: string;
    handshake_rtt?: number;
    ab_retransmitted?: number;
    ba_retransmitted?: number;
  };
  rate?: { bits_per_second: number };
  /** The whole record, as the server gave it. */
  raw?: unknown;
}

interface Metric {
  ABPackets: number;
  ABBytes: number;
  BAPackets: number;
  BABytes: number;
  Start: number;
  Last: number;
  RTT?: number;
}
export interface Found {
  UUID: string;
  Interface?: string;
  LayersPath: string;
  Application?: string;
  Link?: { A?: string; B?: string };
  Network?: { A: string; B: string };
  Transport?: { A: string; B: string };
  Metric: Metric;
  LastUpdateMetric?: Metric;
  TCPMetric?: { State?: string; ABSegmentRetransmitted?: number; BASegmentRetransmitted?: number };
  A?: Record<string, unknown>;
  B?: Record<string, unknown>;
  Start: number;
  Last: number;
  CommunityID?: string;
  FinishType?: number;
}

function side(of: Found, letter: "A" | "B"): Side {
  const owner = of[letter] ?? {};
  const port = Number(of.Transport?.[letter] ?? 0);
  const result: Side = { address: of.Network?.[letter] ?? of.Link?.[letter] ?? "" };
  if (port) result.port = port;
  if (typeof owner.Process === "string") result.process = owner.Process;
  if (typeof owner.PID === "number") result.pid = owner.PID;
  if (typeof owner.Container === "string") result.container = owner.Container;
  return result;
}

/** What a query found, as a record. */
export function recorded(found: Found): Flow {
  const { Metric: sums, LastUpdateMetric: update } = found;
  const spent = update ? update.Last - update.Start : 0;
  const bits = update && spent > 0 ? ((update.ABBytes + update.BABytes) * 8000) / spent : 0;
  const flow: Flow = {
    id: found.UUID,
    interface: found.Interface ?? "",
    layers: found.LayersPath,
    protocol: (found.LayersPath.split("/").pop() ?? "").toLowerCase(),
    a: side(found, "A"),
    b: side(found, "B"),
    ab: { packets: sums.ABPackets, bytes: sums.ABBytes },
    ba: { packets: sums.BAPackets, bytes: sums.BABytes },
    start: new Date(found.Start).toISOString(),
    last: new Date(found.Last).toISOString(),
    duration: (found.Last - found.Start) * 1e6,
    rate: { bits_per_second: bits },
    raw: found,
  };
  if (found.CommunityID) flow.community_id = found.CommunityID;
  if (found.FinishType) flow.end = ["", "timeout", "tcp_fin", "tcp_rst"][found.FinishType];
  if (found.TCPMetric) {
    flow.tcp = {
      ab_retransmitted: found.TCPMetric.ABSegmentRetransmitted ?? 0,
      ba_retransmitted: found.TCPMetric.BASegmentRetransmitted ?? 0,
    };
    if (found.TCPMetric.State) flow.tcp.state = found.TCPMetric.State;
    if (sums.RTT) flow.tcp.handshake_rtt = sums.RTT;
  }
  return flow;
}
