// Lists over the WebSocket of the map: the server sends their changes. Without a WebSocket they are polled.
import { signal } from "@preact/signals";

/** An update of a list. */
export type ListUpdate = { rows: unknown[]; found: number | null } | { status: number; error: string };

interface Message {
  Key: string;
  Found?: number;
  Rows?: (number | [number, Record<string, unknown>] | Record<string, unknown>)[];
  Status?: number;
  Error?: string;
}
interface Watch {
  path: string;
  rows: unknown[];
  update: (message: ListUpdate) => void;
}

/** Lists of one connection at most; more are polled. */
const LISTS = 4;

/** Whether there is a WebSocket. */
export const online = signal(false);
const watches = new Map<string, Watch>();
let send: ((text: string) => void) | null = null;
let last = 0;
/** Whether the map is visible. */
let mapVisible = false;

function sendWatches(): void {
  const all = document.hidden ? [] : [...watches].map(([key, watch]) => [key, watch.path]);
  send?.(JSON.stringify({ Map: mapVisible && !document.hidden, Watch: Object.fromEntries(all) }));
}

/** Tells the server whether the map is visible: otherwise it sends no changes of it. */
export function watchMap(map: boolean): void {
  mapVisible = map;
  sendWatches();
}

/** Resets all lists: the server has no memory of earlier messages. */
function forget(): void {
  for (const watch of watches.values()) watch.rows = [];
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) forget();
  sendWatches();
});

/** Sets the connection of a WebSocket, or removes it. */
export function setSocket(socket: ((text: string) => void) | null): void {
  send = socket;
  forget();
  if (socket) sendWatches();
  online.value = socket !== null;
}

/** Applies a list message of the server. */
export function applyList(message: Message): void {
  const watch = watches.get(message.Key);
  if (!watch) return;
  if (message.Error !== undefined) {
    watch.rows = [];
    watch.update({ status: message.Status ?? 0, error: message.Error });
    return;
  }
  const before = watch.rows;
  watch.rows = (message.Rows ?? []).map((row) => {
    if (typeof row === "number") return before[row];
    if (!Array.isArray(row)) return row;
    return { ...(before[row[0]] as object), ...row[1] };
  });
  watch.update({ rows: watch.rows, found: message.Found ?? null });
}

/** Watches a list until the returned function is called; null if it has to be polled. */
export function watch(path: string, update: (message: ListUpdate) => void): (() => void) | null {
  if (!send || watches.size >= LISTS) return null;
  const key = String(++last);
  watches.set(key, { path, rows: [], update });
  sendWatches();
  return () => {
    watches.delete(key);
    sendWatches();
  };
}
