import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Unreachable, lines } from "./api";
import { online, watch } from "./live";
import { connection, user } from "./state";

export interface Answer<T> {
  data: T | null;
  error: string;
  loading: boolean;
}

/** A list over the WebSocket. */
interface Live<T> {
  path: string;
  take: (rows: unknown[], found: number | null) => T;
  /** The request instead, if the server has no such list, like an analyzer without a probe. */
  missing?: () => void;
}

/**
 * Requests now, on each change of `key`, and then every `ms` while the page is visible; or gets changes
 * over the WebSocket with `live`, if there is one. The last data stays until newer data arrives.
 */
export function useAnswer<T>(
  key: string,
  work: (signal: AbortSignal) => Promise<T>,
  every: number | null,
  live: Live<T> | null = null,
): Signal<Answer<T>> {
  const answer = useSignal<Answer<T>>({ data: null, error: "", loading: true });
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let unwatch: (() => void) | null = null;
    const once = async (): Promise<void> => {
      if (document.hidden || !user.peek()) return;
      try {
        const data = await work(abort.signal);
        if (!abort.signal.aborted) answer.value = { data, error: "", loading: false };
      } catch (error) {
        if (abort.signal.aborted) return;
        const text = error instanceof Unreachable ? "" : (error as Error).message;
        answer.value = { ...answer.peek(), error: text, loading: false };
      }
    };
    const round = async (): Promise<void> => {
      // While the server is unreachable, the connection itself retries.
      if (connection.peek() !== "unreachable") await once();
      if (every !== null && !abort.signal.aborted && !unwatch) timer = setTimeout(() => void round(), every);
    };
    const begin = (): void => {
      unwatch?.();
      clearTimeout(timer);
      unwatch = null;
      if (live && every !== null && online.peek()) {
        unwatch = watch(live.path, (update) => {
          if ("rows" in update) {
            answer.value = { data: live.take(update.rows, update.found), error: "", loading: false };
          } else if (update.status === 404 && live.missing) {
            unwatch?.();
            unwatch = null;
            live.missing();
            void round();
          } else {
            answer.value = { ...answer.peek(), error: update.error, loading: false };
          }
        });
      }
      if (!unwatch) void round();
    };
    answer.value = { ...answer.peek(), loading: true };
    begin();
    let before = connection.peek();
    const stop = connection.subscribe((now) => {
      if (before === "unreachable" && now !== "unreachable" && !unwatch) void once();
      before = now;
    });
    let was = online.peek();
    const stopOnline = online.subscribe((now) => {
      if (now !== was && live) begin();
      was = now;
    });
    return () => {
      abort.abort();
      clearTimeout(timer);
      unwatch?.();
      stop();
      stopOnline();
    };
  }, [key, every]);
  return answer;
}

export interface Lines<T> {
  rows: T[];
  found: number | null;
}

/** A list of the API: over the WebSocket, or polled at this interval in ms; null: once. */
export function useLines<T>(path: string, every: number | null): Signal<Answer<Lines<T>>> {
  return useAnswer<Lines<T>>(path, (signal) => lines<T>(path, signal), every, {
    path,
    take: (rows, found) => ({ rows: rows as T[], found }),
  });
}
