// Calls of services over time, from /api/services/history.
import { lines } from "./api";
import { useAnswer } from "./hooks";
import { at, param, serverNow } from "./state";

export interface End {
  service?: string;
  address?: string;
}
/** Sums of a slice of time. */
export interface Point {
  start: string;
  seconds: number;
  client?: End;
  server?: End;
  protocol?: number;
  port?: number;
  others?: boolean;
  connections: number;
  ended: number;
  failed: number;
  reset: number;
  bytes: number;
  client_bytes: number;
  packets: number;
  retransmitted: number;
  rtt?: { count: number; p50_us: number; p95_us: number };
}

/** Interval of polling, ms. */
const EVERY = 5000;
const HOUR = 3600e3;

/** The begin of the range that is selected, ms; the hour before the moment if none is. */
export function rangeBegin(): number {
  const from = Number(param("from"));
  const end = at.value ?? serverNow();
  return from > 0 && from < end ? from : end - HOUR;
}

/** Where a chart of these begins: of the hour only what is known, at least five minutes. */
export function chartBegin(points: { start: string }[]): number {
  const begin = rangeBegin();
  if (param("from")) return begin;
  const first = points.length ? Date.parse(points[0]!.start) : Infinity;
  return Math.max(begin, Math.min(first, (at.value ?? serverNow()) - 5 * 60e3));
}

/** The sums that a query asks for, in the selected range. */
export function useHistory(query: Record<string, string>) {
  const text = new URLSearchParams(query).toString();
  const range = `${param("from")} ${at.value ?? ""}`;
  return useAnswer(
    `${text} ${range}`,
    async (signal) => {
      const end = at.peek();
      const all = new URLSearchParams({ ...query, from: String(Math.floor(rangeBegin())) });
      if (end !== null) all.set("until", String(Math.ceil(end)));
      return (await lines<Point>(`/api/services/history?${all}`, signal)).rows;
    },
    at.value === null ? EVERY : null,
  );
}

export const endName = (end: End | undefined) => end?.service ?? end?.address ?? "";

/** The name of what a point is the sum of. */
export function groupName(point: Point): string {
  if (point.others) return "others";
  if (point.client && point.server) return `${endName(point.client)} → ${endName(point.server)}:${point.port ?? ""}`;
  return endName(point.client ?? point.server) || "all";
}
