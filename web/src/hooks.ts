import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Gone, lines } from "./api";
import { online, watch } from "./live";
import { connection, user } from "./state";

export interface Answer<T> {
  data: T | null;
  error: string;
  loading: boolean;
}

/** How a list is looked at over the WebSocket. */
interface Live<T> {
  path: string;
  take: (rows: unknown[], found: number | null) => T;
  /** What answers instead when there is no such list, as at an analyzer without a probe. */
  missing?: () => void;
}

/**
 * Asks now, whenever `key` changes and then every so many ms, as long as the page is looked at; or is told over
 * the WebSocket when `live` says of what and there is one. What was there stays until something newer is.
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
        const text = error instanceof Gone ? "" : (error as Error).message;
        answer.value = { ...answer.peek(), error: text, loading: false };
      }
    };
    const round = async (): Promise<void> => {
      // While nobody answers the connection itself tries again.
      if (connection.peek() !== "gone") await once();
      if (every !== null && !abort.signal.aborted && !unwatch) timer = setTimeout(() => void round(), every);
    };
    const begin = (): void => {
      unwatch?.();
      clearTimeout(timer);
      unwatch = null;
      if (live && every !== null && online.peek()) {
        unwatch = watch(live.path, (told) => {
          if ("rows" in told) {
            answer.value = { data: live.take(told.rows, told.found), error: "", loading: false };
          } else if (told.status === 404 && live.missing) {
            unwatch?.();
            unwatch = null;
            live.missing();
            void round();
          } else {
            answer.value = { ...answer.peek(), error: told.error, loading: false };
          }
        });
      }
      if (!unwatch) void round();
    };
    answer.value = { ...answer.peek(), loading: true };
    begin();
    let before = connection.peek();
    const stop = connection.subscribe((now) => {
      if (before === "gone" && now !== "gone" && !unwatch) void once();
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

/** A list of the API as it is now: told over the WebSocket, or asked for every so many ms; null: once. */
export function useLines<T>(path: string, every: number | null): Signal<Answer<Lines<T>>> {
  return useAnswer<Lines<T>>(path, (signal) => lines<T>(path, signal), every, {
    path,
    take: (rows, found) => ({ rows: rows as T[], found }),
  });
}
