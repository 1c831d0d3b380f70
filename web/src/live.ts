// Lists that are looked at, over the WebSocket of the map: the server tells what has changed of them. Whoever
// looks at one polls while there is no WebSocket.
import { signal } from "@preact/signals";

/** What is told of a list. */
export type Told = { rows: unknown[]; found: number | null } | { status: number; error: string };

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
  tell: (told: Told) => void;
}

/** Lists of one connection at most; more are polled. */
const LISTS = 4;

/** Whether there is a WebSocket. */
export const online = signal(false);
const watches = new Map<string, Watch>();
let send: ((text: string) => void) | null = null;
let last = 0;
/** Whether the map is looked at. */
let seen = false;

function say(): void {
  const all = document.hidden ? [] : [...watches].map(([key, watch]) => [key, watch.path]);
  send?.(JSON.stringify({ Map: seen && !document.hidden, Watch: Object.fromEntries(all) }));
}

/** Says whether the map is looked at: else nothing of it is sent. */
export function look(map: boolean): void {
  seen = map;
  say();
}

/** The server knows of nothing that it has told before. */
function forget(): void {
  for (const watch of watches.values()) watch.rows = [];
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) forget();
  say();
});

/** There is a WebSocket to say what is looked at, or none any more. */
export function opened(way: ((text: string) => void) | null): void {
  send = way;
  forget();
  if (way) say();
  online.value = way !== null;
}

/** Takes what the server tells of a list. */
export function told(message: Message): void {
  const watch = watches.get(message.Key);
  if (!watch) return;
  if (message.Error !== undefined) {
    watch.rows = [];
    watch.tell({ status: message.Status ?? 0, error: message.Error });
    return;
  }
  const before = watch.rows;
  watch.rows = (message.Rows ?? []).map((row) => {
    if (typeof row === "number") return before[row];
    if (!Array.isArray(row)) return row;
    return { ...(before[row[0]] as object), ...row[1] };
  });
  watch.tell({ rows: watch.rows, found: message.Found ?? null });
}

/** Looks at a list until the function that is returned is called; null where it has to be polled. */
export function watch(path: string, tell: (told: Told) => void): (() => void) | null {
  if (!send || watches.size >= LISTS) return null;
  const key = String(++last);
  watches.set(key, { path, rows: [], tell });
  say();
  return () => {
    watches.delete(key);
    say();
  };
}
